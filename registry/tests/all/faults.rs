//! Faults reported for other stores: locks of dead writers, foreign owners, damaged objects.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use registry::{Registry, RegistryError};

use crate::support::{Fixture, acceptance, apply, base, commit, edit, git, provenance, rejection};

const QUIET: Duration = Duration::from_millis(50);

#[test]
fn an_index_lock_does_no_harm() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    fs::write(fixture.path().join("index.lock"), "").unwrap();
    let second = commit(&registry, &first, edit(2), 1);
    registry.rollback(first.name, "to see", 1).unwrap();
    assert_eq!(registry.load("v2").unwrap().0.commit(), second.commit);

    // The same in a repository with a work tree, where the index means something.
    let folder = fixture.folder().join("normal");
    git(fixture.folder(), &["init", "-q", "-b", "main", "normal"]);
    fs::write(folder.join(".git/index.lock"), "").unwrap();
    let registry = Registry::open_or_create(&folder).unwrap();
    let first = registry.create_initial(&base(), &provenance()).unwrap();
    commit(&registry, &first, edit(2), 1);
}

#[test]
fn a_held_reference_lock_is_named_with_the_way_out() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let patch = edit(2);
    let candidate = apply(&patch, &base());
    let record = acceptance(patch.clone(), 1);
    let lock = fixture.path().join("refs/heads/main.lock");
    fs::write(&lock, "").unwrap();

    let text = lock.display().to_string();
    let error = registry
        .commit_patch(&first, &candidate, &record)
        .unwrap_err();
    assert!(
        matches!(&error, RegistryError::Locked { file } if *file == lock),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .ends_with(&format!("the file can go: rm '{text}'")),
        "{error}"
    );
    assert!(registry.rollback(first.name, "x", 1).is_err());
    assert_eq!(registry.history().unwrap(), std::slice::from_ref(&first));
    assert!(
        lock.exists(),
        "only the holder of the run lock may remove it"
    );
    // Reading and opening are not held up.
    assert_eq!(fixture.open().head().unwrap(), first);

    let run_lock = registry.lock().unwrap();
    assert_eq!(
        registry.remove_stale_locks(&run_lock, QUIET).unwrap(),
        [lock]
    );
    registry.commit_patch(&first, &candidate, &record).unwrap();
    fixture.fsck();
}

#[test]
fn every_kind_of_reference_lock_is_found_and_nothing_else_is_touched() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let candidate = apply(&edit(2), &base());
    registry
        .record_rejected(&first, &candidate, &rejection(edit(2), 1))
        .unwrap();
    let locks = [
        "HEAD.lock",
        "packed-refs.lock",
        "refs/heads/main.lock",
        "refs/rejected/run-1/1-2.lock",
        "refs/tags/v2.lock",
    ]
    .map(|name| fixture.path().join(name));
    for lock in &locks {
        fs::write(lock, "").unwrap();
    }
    fs::write(fixture.path().join("index.lock"), "").unwrap();
    let error = registry.record_rejected(&first, &apply(&edit(4), &base()), &rejection(edit(4), 1));
    assert!(matches!(error, Err(RegistryError::Locked { file }) if file == locks[3]));
    // Head moves, only the tag is held: repeating the write later completes it.
    fs::remove_file(&locks[2]).unwrap();
    let error = registry
        .commit_patch(&first, &candidate, &acceptance(edit(2), 1))
        .unwrap_err();
    assert!(
        matches!(&error, RegistryError::Locked { file } if *file == locks[4]),
        "{error:?}"
    );
    assert_eq!(fixture.open().head().unwrap().name.to_string(), "v2");

    let run_lock = registry.lock().unwrap();
    let removed = registry.remove_stale_locks(&run_lock, QUIET).unwrap();
    let expected: Vec<PathBuf> = [&locks[0], &locks[1], &locks[3], &locks[4]]
        .map(Clone::clone)
        .to_vec();
    assert_eq!(removed, expected);
    assert!(fixture.path().join("index.lock").exists());
    assert_eq!(
        fixture.git(&["rev-parse", "v2"]),
        fixture.git(&["rev-parse", "main"])
    );
    assert!(
        registry
            .remove_stale_locks(&run_lock, QUIET)
            .unwrap()
            .is_empty()
    );
    fixture.fsck();
}

#[test]
fn a_lock_that_is_in_use_is_left_alone() {
    let fixture = Fixture::new();
    let (registry, _) = fixture.started();
    let run_lock = registry.lock().unwrap();
    let lock = fixture.path().join("refs/heads/main.lock");
    fs::write(&lock, "").unwrap();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                fs::write(&lock, "busy").unwrap();
                thread::sleep(Duration::from_millis(5));
            }
        });
        let removed = registry.remove_stale_locks(&run_lock, QUIET).unwrap();
        is_done.store(true, Ordering::Relaxed);
        assert!(removed.is_empty());
    });
    assert!(lock.exists());
}

#[test]
fn a_lock_held_for_a_moment_is_waited_for() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let lock = fixture.path().join("refs/heads/main.lock");
    fs::write(&lock, "").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(60));
            fs::remove_file(&lock).unwrap();
        });
        commit(&registry, &first, edit(2), 1);
    });
}

#[test]
fn one_run_holds_the_lock() {
    let fixture = Fixture::new();
    let one = fixture.open();
    let two = fixture.open();
    let held = one.lock().unwrap();
    let error = two.lock().unwrap_err();
    assert!(matches!(&error, RegistryError::Busy { .. }), "{error}");
    assert!(error.to_string().contains("coharness.lock"), "{error}");
    drop(held);
    two.lock().unwrap();
}

#[test]
fn a_registry_of_another_owner_is_refused_with_the_fix() {
    let fixture = Fixture::new();
    fixture.started();
    let path = fixture.path();
    if fs::metadata(&path).unwrap().uid() != 0 {
        // Only root can give files away; the rest of the fault can't be set up.
        return;
    }
    chown_all(&path, 12345);
    for result in [
        Registry::open(&path),
        Registry::open_read_only(&path),
        Registry::open_or_create(&path),
    ] {
        let error = result.unwrap_err();
        assert!(
            matches!(error, RegistryError::ForeignOwner { .. }),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(text.contains(&path.display().to_string()), "{text}");
        assert!(
            text.contains("chown -R") && text.contains("safe.directory"),
            "{text}"
        );
    }
    chown_all(&path, 0);
    assert_eq!(fixture.open().history().unwrap().len(), 1);
}

fn chown_all(path: &Path, owner: u32) {
    chown(path, Some(owner), Some(owner)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            chown_all(&entry.unwrap().path(), owner);
        }
    }
}

fn object_file(fixture: &Fixture, id: &str) -> PathBuf {
    fixture.path().join("objects").join(&id[..2]).join(&id[2..])
}

/// Empties an object file as a power loss may.
fn empty_object(fixture: &Fixture, id: &str) -> PathBuf {
    let file = object_file(fixture, id);
    let _ = fs::remove_file(&file);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "").unwrap();
    file
}

#[test]
fn an_empty_head_commit_is_named_with_the_way_back() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let second = commit(&registry, &first, edit(2), 1);
    drop(registry);
    let id = second.commit.to_string();
    empty_object(&fixture, &id);
    let error = Registry::open(&fixture.path()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("the git object {id} in ")),
        "{text}"
    );
    let command = text
        .split('`')
        .find(|part| part.starts_with("git -C"))
        .unwrap();
    let arguments: Vec<&str> = command
        .split('\'')
        .nth(2)
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(arguments, ["update-ref", "refs/heads/main", "refs/tags/v1"]);
    fixture.git(&arguments);

    // What is left of the lost version is found too: first its tag, then its file.
    let registry = fixture.open();
    assert_eq!(registry.history().unwrap(), std::slice::from_ref(&first));
    let patch = edit(2);
    let candidate = apply(&patch, &base());
    let record = acceptance(patch, 1);
    let error = registry
        .commit_patch(&first, &candidate, &record)
        .unwrap_err()
        .to_string();
    let file = object_file(&fixture, &id);
    assert!(error.contains(&format!("`{}`", file.display())), "{error}");
    assert!(error.contains("remove it and repeat the write"), "{error}");
    assert_eq!(
        fixture.open().history().unwrap(),
        std::slice::from_ref(&first)
    );
    fs::remove_file(file).unwrap();
    assert_eq!(
        registry.commit_patch(&first, &candidate, &record).unwrap(),
        second
    );
    fixture.fsck();
}

#[test]
fn an_empty_blob_is_found_before_head_moves() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let other = Fixture::new();
    let (elsewhere, origin) = other.started();
    commit(&elsewhere, &origin, edit(2), 1);
    let blob = other.git(&["rev-parse", "v2:prompts/system.md"]);
    let file = empty_object(&fixture, blob.trim());

    let patch = edit(2);
    let candidate = apply(&patch, &base());
    let record = acceptance(patch.clone(), 1);
    let error = registry
        .commit_patch(&first, &candidate, &record)
        .unwrap_err();
    assert!(matches!(&error, RegistryError::Damaged { .. }), "{error:?}");
    assert!(error.to_string().contains(blob.trim()), "{error}");
    let error = registry
        .record_rejected(&first, &candidate, &rejection(patch, 1))
        .unwrap_err();
    assert!(matches!(&error, RegistryError::Damaged { .. }), "{error:?}");
    assert_eq!(
        fixture.open().history().unwrap(),
        std::slice::from_ref(&first)
    );
    assert!(registry.rejected().unwrap().is_empty());

    fs::remove_file(file).unwrap();
    registry.commit_patch(&first, &candidate, &record).unwrap();
    fixture.fsck();
}

#[test]
fn an_empty_rejected_commit_can_be_dropped() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let candidate = apply(&edit(2), &base());
    let entry = registry
        .record_rejected(&first, &candidate, &rejection(edit(2), 1))
        .unwrap();
    drop(registry);
    empty_object(&fixture, &entry.commit.to_string());
    // The history is not held up by it.
    let registry = fixture.open();
    assert_eq!(registry.history().unwrap(), [first]);
    let error = registry.rejected().unwrap_err().to_string();
    assert!(
        error.ends_with("update-ref -d refs/rejected/run-1/1-1`"),
        "{error}"
    );
    fixture.git(&["update-ref", "-d", "refs/rejected/run-1/1-1"]);
    assert!(registry.rejected().unwrap().is_empty());
}
