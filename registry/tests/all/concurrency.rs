//! Several writers at once: compare-and-swap lets one win and tells the others.

use std::sync::Barrier;
use std::thread;

use registry::{Registry, RegistryError};

use crate::support::{Fixture, acceptance, apply, base, edit, rejection};

const WRITERS: u32 = 6;

#[test]
fn one_of_several_writers_wins_and_the_others_learn_that_head_moved() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let barrier = Barrier::new(WRITERS as usize);
    let results: Vec<_> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let (path, first, barrier) = (fixture.path(), &first, &barrier);
                scope.spawn(move || {
                    let registry = Registry::open(&path).unwrap();
                    let patch = edit(2 * number);
                    let candidate = apply(&patch, &base());
                    barrier.wait();
                    registry.commit_patch(first, &candidate, &acceptance(patch, 1))
                })
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 1);
    for error in lost {
        assert!(
            matches!(error, Err(RegistryError::HeadMoved { .. })),
            "{error:?}"
        );
    }
    assert_eq!(registry.history().unwrap().len(), 2);
    fixture.fsck();
}

#[test]
fn the_same_decision_written_by_several_is_one_version() {
    let fixture = Fixture::new();
    let path = fixture.path();
    fixture.open();
    let barrier = Barrier::new(WRITERS as usize);
    let commits: Vec<_> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                let (path, barrier) = (&path, &barrier);
                scope.spawn(move || {
                    let registry = Registry::open(path).unwrap();
                    barrier.wait();
                    let provenance = crate::support::provenance();
                    let first = registry.create_initial(&base(), &provenance).unwrap();
                    let patch = edit(2);
                    let candidate = apply(&patch, &base());
                    registry
                        .commit_patch(&first, &candidate, &acceptance(patch, 1))
                        .unwrap()
                })
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    assert!(commits.windows(2).all(|pair| pair[0] == pair[1]));
    fixture.fsck();
}

#[test]
fn rejected_candidates_of_several_writers_get_different_numbers() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    thread::scope(|scope| {
        for number in 0..WRITERS {
            let (path, first) = (fixture.path(), &first);
            scope.spawn(move || {
                let registry = Registry::open(&path).unwrap();
                let patch = edit(2 * number);
                let candidate = apply(&patch, &base());
                registry
                    .record_rejected(first, &candidate, &rejection(patch, 1))
                    .unwrap();
            });
        }
    });
    let entries = registry.rejected().unwrap();
    let numbers: Vec<u32> = entries.iter().map(|entry| entry.name.index).collect();
    assert_eq!(numbers, (1..=WRITERS).collect::<Vec<_>>());
    fixture.fsck();
}
