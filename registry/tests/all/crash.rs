//! Writers that die at any moment.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use registry::{Registry, RegistryError};

use crate::support::{
    Fixture, START, acceptance, apply, base, commit, edit, load, provenance, rejection,
};

const PATH: &str = "REGISTRY_TEST_CRASH";

#[test]
fn a_tag_that_a_dead_writer_left_out_is_added_at_the_next_open() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let patch = edit(2);
    let candidate = apply(&patch, &base());
    let record = acceptance(patch, 1);
    let second = registry.commit_patch(&first, &candidate, &record).unwrap();
    drop(registry);
    // The state between the two steps: head has moved, the tag is not there.
    fixture.git(&["tag", "-d", "v2"]);
    let registry = fixture.open();
    assert_eq!(
        fixture.git(&["rev-parse", "v2"]).trim(),
        second.commit.to_string()
    );
    assert_eq!(
        registry.commit_patch(&first, &candidate, &record).unwrap(),
        second
    );

    // Also without opening anew, by repeating the write.
    fixture.git(&["tag", "-d", "v1", "v2"]);
    assert_eq!(
        registry.create_initial(&base(), &provenance()).unwrap(),
        first
    );
    assert_eq!(
        registry.commit_patch(&first, &candidate, &record).unwrap(),
        second
    );
    assert_eq!(fixture.git(&["tag", "-l"]), "v1\nv2\n");
}

#[test]
fn objects_without_a_reference_are_taken_up_again() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let second = commit(&registry, &first, edit(2), 1);
    // The state before head moves: all objects are there, nothing points to them.
    fixture.git(&["update-ref", "refs/heads/main", "v1"]);
    fixture.git(&["tag", "-d", "v2"]);
    let registry = fixture.open();
    assert_eq!(registry.history().unwrap(), std::slice::from_ref(&first));
    assert_eq!(commit(&registry, &first, edit(2), 1), second);
    fixture.fsck();
}

#[test]
fn reading_alone_repairs_nothing() {
    let fixture = Fixture::new();
    let (_, first) = fixture.started();
    fixture.git(&["tag", "-d", "v1"]);
    let registry = Registry::open_read_only(&fixture.path()).unwrap();
    assert_eq!(registry.load("v1").unwrap().0.commit(), first.commit);
    assert_eq!(fixture.git(&["tag", "-l"]), "");
}

/// Writes until it is killed, when started by the test below; does nothing otherwise.
#[test]
fn writer_process() {
    let Some(path) = std::env::var_os(PATH).map(PathBuf::from) else {
        return;
    };
    let registry = Registry::open_or_create(&path).unwrap();
    let held = registry.lock().unwrap();
    registry
        .remove_stale_locks(&held, Duration::from_millis(10))
        .unwrap();
    let mut head = registry.create_initial(&base(), &provenance()).unwrap();
    head = registry.head().unwrap_or(head);
    loop {
        let number = head.name.number();
        let harness = load(&registry, &head);
        let refused = edit(number + 1000);
        let candidate = apply(&refused, &harness);
        registry
            .record_rejected(&head, &candidate, &rejection(refused, number))
            .unwrap();
        if number.is_multiple_of(5) {
            let to = registry.history().unwrap()[number as usize - 2].name;
            head = registry
                .rollback(to, "every fifth", START + u64::from(number))
                .unwrap();
        } else {
            head = commit(&registry, &head, edit(number + 7), number);
        }
    }
}

/// Waits by progress and not by the clock, which says little on a busy machine.
fn wait_for_another_version(fixture: &Fixture) {
    let head = fixture.path().join("refs/heads/main");
    let before = fs::read(&head).ok();
    let deadline = Instant::now() + Duration::from_secs(120);
    while fs::read(&head).ok() == before {
        assert!(Instant::now() < deadline, "the writer does nothing");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_writer_that_is_killed_leaves_a_sound_registry() {
    let fixture = Fixture::new();
    let mut versions = Vec::new();
    for attempt in 0..14 {
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::writer_process", "--nocapture"])
            .env(PATH, fixture.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if attempt % 2 == 0 {
            wait_for_another_version(&fixture);
        }
        // A moment that differs from one attempt to the next: inside a write, or while starting.
        thread::sleep(Duration::from_millis(attempt * 53 % 40));
        writer.kill().unwrap();
        let output = writer.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!errors.contains("panicked"), "{errors}");

        let registry = fixture.open();
        let history = registry.history().unwrap();
        assert!(history.starts_with(&versions), "history only grows");
        for version in &history {
            assert_eq!(Some(load(&registry, version).id()), version.harness);
        }
        for entry in registry.rejected().unwrap() {
            registry.load(&entry.name.to_string()).unwrap();
        }
        if !history.is_empty() {
            fixture.fsck();
        }
        versions = history;
    }
    assert!(versions.len() >= 7, "only {} versions", versions.len());

    let registry = fixture.open();
    let held = registry.lock().unwrap();
    registry
        .remove_stale_locks(&held, Duration::from_millis(10))
        .unwrap();
    let tags = fixture.git(&["tag", "-l"]);
    assert_eq!(tags.lines().count(), versions.len());
    assert!(matches!(
        fixture.open().lock(),
        Err(RegistryError::Busy { .. })
    ));
}
