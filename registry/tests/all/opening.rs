//! Making and opening registries.

use std::fs;

use registry::{Registry, RegistryError};

use crate::support::{Fixture, base, commit, edit, git_output, provenance};

#[test]
fn opening_what_is_no_registry() {
    let fixture = Fixture::new();
    let error = Registry::open(&fixture.path()).unwrap_err();
    assert!(matches!(error, RegistryError::NotFound { .. }), "{error}");
    // A folder inside somebody's repository is not that repository.
    crate::support::git(fixture.folder(), &["init", "-q"]);
    fs::create_dir(fixture.path()).unwrap();
    assert!(matches!(
        Registry::open(&fixture.path()),
        Err(RegistryError::NotFound { .. })
    ));

    fs::write(fixture.path().join("notes.txt"), "mine").unwrap();
    let error = Registry::open_or_create(&fixture.path()).unwrap_err();
    assert!(error.to_string().contains("holds other files"), "{error}");
    assert_eq!(fs::read_dir(fixture.path()).unwrap().count(), 1);

    fs::remove_file(fixture.path().join("notes.txt")).unwrap();
    fixture.started();
    fixture.fsck();
}

#[test]
fn what_an_interrupted_creation_left_is_not_in_the_way() {
    let fixture = Fixture::new();
    let left = fixture.folder().join("registry.creating-0");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("config.lock"), "").unwrap();
    fixture.started();
    fixture.fsck();
    let names: Vec<_> = fs::read_dir(fixture.folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "registry.creating-0")
        .collect();
    assert_eq!(names, ["registry"]);
}

#[test]
fn a_registry_is_made_behind_a_link_and_below_folders_that_are_not_there_yet() {
    let fixture = Fixture::new();
    let deep = fixture.folder().join("a/b/registry");
    Registry::open_or_create(&deep).unwrap();
    fs::create_dir(fixture.folder().join("empty")).unwrap();
    std::os::unix::fs::symlink("empty", fixture.path()).unwrap();
    fixture.started();
    assert!(fixture.folder().join("empty/HEAD").exists());
    fixture.fsck();

    let file = fixture.folder().join("file");
    fs::write(&file, "").unwrap();
    let error = Registry::open_or_create(&file).unwrap_err();
    assert!(matches!(error, RegistryError::Occupied { .. }), "{error}");
}

#[test]
fn several_threads_may_make_the_same_registry() {
    // Several times, since they rarely meet at the same step.
    for _ in 0..20 {
        let fixture = Fixture::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| fixture.open());
            }
        });
        assert_eq!(fs::read_dir(fixture.folder()).unwrap().count(), 1);
        fixture.started();
        fixture.fsck();
    }
}

#[test]
fn a_newer_format_may_be_read_but_not_written() {
    let fixture = Fixture::new();
    let (_, first) = fixture.started();
    fixture.git(&["config", "coharness.registryFormat", "2"]);
    let error = Registry::open(&fixture.path()).unwrap_err();
    assert!(
        matches!(error, RegistryError::NewerFormat { found: 2, .. }),
        "{error}"
    );
    let registry = Registry::open_read_only(&fixture.path()).unwrap();
    assert_eq!(registry.history().unwrap(), [first]);
    let error = registry.create_initial(&base(), &provenance()).unwrap_err();
    assert!(matches!(error, RegistryError::ReadOnly { .. }), "{error}");
    assert!(registry.lock().is_err());
}

#[test]
fn a_clone_with_a_work_tree_is_a_registry_too() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    commit(&registry, &first, edit(2), 1);
    let path = fixture.path();
    let clone = git_output(
        fixture.folder(),
        &["clone", "-q", path.to_str().unwrap(), "copy"],
    );
    assert!(clone.status.success());
    let copy = Registry::open(&fixture.folder().join("copy")).unwrap();
    assert_eq!(copy.history().unwrap(), registry.history().unwrap());
    let head = copy.head().unwrap();
    assert_eq!(commit(&copy, &head, edit(4), 2).name.to_string(), "v3");
}
