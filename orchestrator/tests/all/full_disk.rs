//! A run's database on a disk that has no room for it.

use std::process::Command;

use coharness::error::RunError;
use coharness::store::{Store, StoreError};

use crate::Place;
use crate::whole_run::Unmount;

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
        let mount = |options: &str| {
            let mounted = Command::new("mount")
                .args(["-t", "tmpfs", "-o", options, "tmpfs"])
                .arg(&small)
                .output();
            mounted.is_ok_and(|output| output.status.success())
        };
        if !mount(size) {
            println!("skipped: only root can mount a small disk");
            return;
        }
        let _unmount = Unmount(small.clone());
        let refused = Store::open(&small).await.expect_err("no room");
        assert!(matches!(refused, StoreError::Full), "{size}: {refused}");
        assert_eq!(RunError::from(refused).exit_code(), 5);
        // Once there is room it goes on with what is there.
        assert!(mount(larger));
        let store = Store::open(&small).await.expect("a store");
        store.create_run("small", "{}", 0).await.expect("a run");
        store.close().await;
    }
}
