//! Random histories against a plain list in memory.

use std::collections::BTreeMap;

use harness::{Harness, HarnessId};
use proptest::prelude::*;
use proptest::sample::Index;
use registry::{Origin, Registry, RegistryError, VersionName};

use crate::support::{Fixture, START, acceptance, apply, base, edit, provenance, rejection};

#[derive(Debug, Clone)]
enum Action {
    /// A patch for some version, mostly for head.
    Commit {
        parent: Option<Index>,
        edit: u32,
        round: u32,
    },
    Reject {
        parent: Index,
        edit: u32,
        round: u32,
    },
    /// On top of head, or of some version.
    Rollback {
        parent: Option<Index>,
        to: Index,
        reason: u32,
    },
    /// A new process, after a crash that may have lost the tag of head.
    Reopen {
        is_tag_lost: bool,
    },
    CollectGarbage,
}

fn action() -> impl Strategy<Value = Action> {
    // Few edits and rounds, so that sequences repeat themselves.
    let (edits, rounds) = (0..4u32, 0..2u32);
    prop_oneof![
        6 => (proptest::option::weighted(0.3, any::<Index>()), edits.clone(), rounds.clone())
            .prop_map(|(parent, edit, round)| Action::Commit { parent, edit, round }),
        3 => (any::<Index>(), edits, rounds)
            .prop_map(|(parent, edit, round)| Action::Reject { parent, edit, round }),
        3 => (proptest::option::of(any::<Index>()), any::<Index>(), 0..2u32)
            .prop_map(|(parent, to, reason)| Action::Rollback { parent, to, reason }),
        2 => any::<bool>().prop_map(|is_tag_lost| Action::Reopen { is_tag_lost }),
        1 => Just(Action::CollectGarbage),
    ]
}

/// How a version came to be, as far as repeating a write depends on it.
#[derive(Debug, Clone, PartialEq)]
enum Source {
    Initial,
    Patch { round: u32 },
    Rollback { to: usize, reason: String },
}

/// What the registry should hold.
struct Oracle {
    versions: Vec<(Harness, Source)>,
    /// By round: parent and candidate, in order.
    rejected: BTreeMap<u32, Vec<(usize, HarnessId)>>,
}

/// What a write should come to.
#[derive(Debug, PartialEq)]
enum Outcome {
    Version(usize),
    Rejected(u32, usize),
    HeadMoved,
    NothingChanged,
}

impl Oracle {
    fn head(&self) -> usize {
        self.versions.len() - 1
    }

    fn commit(&mut self, parent: usize, candidate: Harness, round: u32) -> Outcome {
        if candidate == self.versions[parent].0 {
            return Outcome::NothingChanged;
        }
        let source = Source::Patch { round };
        if parent == self.head() {
            self.versions.push((candidate, source));
            return Outcome::Version(parent + 1);
        }
        if self.versions[parent + 1] == (candidate, source) {
            Outcome::Version(parent + 1)
        } else {
            Outcome::HeadMoved
        }
    }

    fn reject(&mut self, parent: usize, candidate: HarnessId, round: u32) -> Outcome {
        let entries = self.rejected.entry(round).or_default();
        let known = entries
            .iter()
            .position(|entry| *entry == (parent, candidate));
        let index = known.unwrap_or_else(|| {
            entries.push((parent, candidate));
            entries.len() - 1
        });
        Outcome::Rejected(round, index + 1)
    }

    fn rollback(&mut self, to: usize, reason: String) -> Outcome {
        let target = self.versions[to].0.clone();
        let (head, source) = &self.versions[self.head()];
        let rollback = Source::Rollback { to, reason };
        if *head != target {
            self.versions.push((target, rollback));
            Outcome::Version(self.head())
        } else if *source == rollback {
            Outcome::Version(self.head())
        } else {
            Outcome::NothingChanged
        }
    }

    fn rollback_from(&mut self, parent: usize, to: usize, reason: String) -> Outcome {
        let target = self.versions[to].0.clone();
        let rollback = Source::Rollback { to, reason };
        if self.versions[parent].0 == target {
            Outcome::NothingChanged
        } else if parent == self.head() {
            self.versions.push((target, rollback));
            Outcome::Version(parent + 1)
        } else if self.versions[parent + 1].1 == rollback {
            Outcome::Version(parent + 1)
        } else {
            Outcome::HeadMoved
        }
    }
}

fn outcome<T>(result: Result<T, RegistryError>, done: impl FnOnce(T) -> Outcome) -> Outcome {
    match result {
        Ok(value) => done(value),
        Err(RegistryError::HeadMoved { .. }) => Outcome::HeadMoved,
        Err(RegistryError::NothingChanged { .. }) => Outcome::NothingChanged,
        Err(error) => panic!("{error:?}"),
    }
}

fn place(name: VersionName) -> usize {
    name.number() as usize - 1
}

fn step(fixture: &Fixture, registry: &mut Registry, oracle: &mut Oracle, action: &Action) {
    let history = registry.history().unwrap();
    match action {
        Action::Commit {
            parent,
            edit: number,
            round,
        } => {
            let parent = parent.map_or(oracle.head(), |parent| parent.index(oracle.versions.len()));
            let patch = edit(*number);
            let candidate = apply(&patch, &oracle.versions[parent].0);
            let record = acceptance(patch, *round);
            let result = registry.commit_patch(&history[parent], &candidate, &record);
            let found = outcome(result, |version| Outcome::Version(place(version.name)));
            assert_eq!(found, oracle.commit(parent, candidate, *round));
        }
        Action::Reject {
            parent,
            edit: number,
            round,
        } => {
            let parent = parent.index(oracle.versions.len());
            let patch = edit(*number);
            let candidate = apply(&patch, &oracle.versions[parent].0);
            let record = rejection(patch, *round);
            let result = registry.record_rejected(&history[parent], &candidate, &record);
            let found = outcome(result, |entry| {
                Outcome::Rejected(entry.name.round, entry.name.index as usize)
            });
            assert_eq!(found, oracle.reject(parent, candidate.id(), *round));
        }
        Action::Rollback { parent, to, reason } => {
            let to = to.index(oracle.versions.len());
            let reason = format!("reason {reason}");
            let name = history[to].name;
            let parent = parent.map(|parent| parent.index(oracle.versions.len()));
            let (result, expected) = match parent {
                None => (
                    registry.rollback(name, &reason, START + 1),
                    oracle.rollback(to, reason),
                ),
                Some(parent) => (
                    registry.rollback_from(&history[parent], name, &reason, START + 1),
                    oracle.rollback_from(parent, to, reason),
                ),
            };
            let found = outcome(result, |version| Outcome::Version(place(version.name)));
            assert_eq!(found, expected);
        }
        Action::Reopen { is_tag_lost } => {
            if *is_tag_lost {
                fixture.git(&["tag", "-d", &history[oracle.head()].name.to_string()]);
            }
            *registry = Registry::open(&fixture.path()).unwrap();
        }
        Action::CollectGarbage => {
            fixture.git(&["gc", "-q", "--prune=now"]);
        }
    }
}

fn compare(fixture: &Fixture, registry: &Registry, oracle: &Oracle) {
    let history = registry.history().unwrap();
    assert_eq!(history.len(), oracle.versions.len());
    for (index, (version, (harness, source))) in history.iter().zip(&oracle.versions).enumerate() {
        assert_eq!(place(version.name), index);
        assert_eq!(version.harness, Some(harness.id()));
        let parent = index.checked_sub(1).map(|parent| history[parent].commit);
        assert_eq!(version.parent, parent);
        let read = match &version.origin {
            Origin::Initial(_) => Source::Initial,
            Origin::Patch(found) => Source::Patch {
                round: found.decision.round,
            },
            Origin::Rollback { to, reason } => Source::Rollback {
                to: place(*to),
                reason: reason.clone(),
            },
            Origin::Foreign { reason } => panic!("{reason}"),
        };
        assert_eq!(read, *source);
        let (entry, loaded) = registry.load(&version.name.to_string()).unwrap();
        assert_eq!((entry.version(), &loaded), (Some(version), harness));
        let tagged = fixture.git(&["rev-parse", &format!("refs/tags/{}", version.name)]);
        assert_eq!(tagged.trim(), version.commit.to_string());
    }
    let rejected = registry.rejected().unwrap();
    let expected = oracle.rejected.iter().flat_map(|(round, entries)| {
        entries
            .iter()
            .enumerate()
            .map(move |(index, entry)| (*round, index + 1, *entry))
    });
    let found = rejected.iter().map(|entry| {
        let parent = history
            .iter()
            .position(|version| version.commit == entry.parent)
            .unwrap();
        (
            entry.name.round,
            entry.name.index as usize,
            (parent, entry.harness),
        )
    });
    assert!(found.eq(expected));
    fixture.fsck();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_equal_a_plain_list(actions in prop::collection::vec(action(), 1..14)) {
        let fixture = Fixture::new();
        let mut registry = fixture.open();
        registry.create_initial(&base(), &provenance()).unwrap();
        let mut oracle =
            Oracle { versions: vec![(base(), Source::Initial)], rejected: BTreeMap::new() };
        for action in &actions {
            step(&fixture, &mut registry, &mut oracle, action);
        }
        compare(&fixture, &registry, &oracle);
    }
}
