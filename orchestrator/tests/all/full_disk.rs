//! A run's database and its harness versions on a disk that has no room for them, or can't be written.

use std::path::Path;
use std::process::Command;

use coharness::error::RunError;
use coharness::store::{Store, StoreError};
use registry::{Provenance, Registry};

use crate::Place;
use crate::whole_run::Unmount;

/// Whether a disk with these options lies at `place` now.
fn mount(place: &Path, options: &str) -> bool {
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", options, "tmpfs"])
        .arg(place)
        .output();
    mounted.is_ok_and(|output| output.status.success())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_has_no_room_to_be_opened_says_that_the_disk_is_full() {
    let place = Place::new();
    // Room for nothing, for a database without its log's index, for not all of its tables, for no
    // second file.
    let disks = [
        ("size=4k", "remount,size=10m"),
        ("size=16k", "remount,size=10m"),
        ("size=48k", "remount,size=10m"),
        ("nr_inodes=3", "remount,nr_inodes=100"),
    ];
    for (number, (size, larger)) in disks.into_iter().enumerate() {
        let small = place.path().join(format!("small-{number}"));
        std::fs::create_dir(&small).expect("folder");
        if !mount(&small, size) {
            println!("skipped: only root can mount a small disk");
            return;
        }
        let _unmount = Unmount(small.clone());
        let refused = Store::open(&small).await.expect_err("no room");
        assert!(matches!(refused, StoreError::Full), "{size}: {refused}");
        assert_eq!(RunError::from(refused).exit_code(), 5);
        // Once there is room it goes on with what is there.
        assert!(mount(&small, larger));
        let store = Store::open(&small).await.expect("a store");
        store.create_run("small", "{}", 0).await.expect("a run");
        store.close().await;
    }
}

#[test]
fn a_version_that_has_no_room_is_told_like_any_full_disk_and_made_once_there_is_some() {
    let place = Place::new();
    let small = place.path().join("small");
    std::fs::create_dir(&small).expect("folder");
    if !mount(&small, "size=400k") {
        println!("skipped: only root can mount a small disk");
        return;
    }
    let _unmount = Unmount(small.clone());
    let registry = Registry::open_or_create(&small.join("registry.git")).expect("a registry");
    let ballast = small.join("ballast");
    // Blocks are taken one by one: what is left has no room for a whole version.
    let filled = std::fs::write(&ballast, vec![0_u8; 1 << 20]);
    assert!(filled.is_err(), "the disk is smaller");
    let start = harness::naive().expect("the shipped harness");
    let provenance = Provenance {
        source: "a test".into(),
        run: None,
        unix_seconds: 0,
    };
    let refused = registry.create_initial(&start, &provenance);
    let error = RunError::from(refused.expect_err("no room"));
    assert_eq!(error.exit_code(), 5, "{error:?}");
    let hint = error.hint().unwrap_or_default();
    assert!(hint.starts_with("Free some"), "{hint}");

    std::fs::remove_file(&ballast).expect("the ballast goes");
    let first = registry.create_initial(&start, &provenance).expect("v1");
    assert_eq!(first.name.to_string(), "v1");
    let (_, harness) = registry.load("v1").expect("it is whole");
    assert_eq!(harness.id(), start.id());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_can_be_looked_at_where_nothing_can_be_written() {
    let place = Place::new();
    let runs = place.path().join(".coharness/runs");
    std::fs::create_dir_all(&runs).expect("folder");
    if !mount(&runs, "size=10m") {
        println!("skipped: only root can mount a disk that can't be written");
        return;
    }
    let _unmount = Unmount(runs.clone());
    let [closed, killed] = ["closed-seed0", "killed-seed0"].map(|name| runs.join(name));
    for directory in [&closed, &killed] {
        std::fs::create_dir(directory).expect("folder");
    }
    let store = Store::open(&closed).await.expect("a store");
    store.create_run("small", "{}", 0).await.expect("a run");
    // What a process that was killed leaves; without an index of the log, as a copy may be.
    for file in ["run.db", "run.db-wal"] {
        std::fs::copy(closed.join(file), killed.join(file)).expect("a copy");
    }
    store.close().await;
    let registry = Registry::open_or_create(&closed.join("registry.git")).expect("a registry");
    let start = harness::naive().expect("the shipped harness");
    let provenance = Provenance {
        source: "a test".into(),
        run: None,
        unix_seconds: 0,
    };
    registry.create_initial(&start, &provenance).expect("v1");
    assert!(mount(&runs, "remount,ro"));

    let look = |command: &[&str], run: &str| place.run(&[command, &["--run", run]].concat());
    for command in [&["report"][..], &["history"], &["trajectories", "list"]] {
        let shown = look(command, "closed-seed0");
        assert!(shown.ends_with("--- exit 0\n"), "{shown}");
    }
    let refused = look(&["report"], "killed-seed0");
    for part in [
        "killed-seed0/run.db can't be read where nothing can be written beside it",
        "hint: Copy the run's directory",
        "--- exit 1\n",
    ] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    let shown = place.run(&["status"]);
    for part in [
        "closed-seed0",
        "killed-seed0",
        "warning: killed-seed0 can't",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert_eq!(shown.matches("unreadable").count(), 1, "{shown}");
}
