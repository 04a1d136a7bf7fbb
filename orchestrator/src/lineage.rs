//! What a harness version is made of: the decisions on the way to it that nothing has taken back.

use std::collections::BTreeSet;

use registry::{Decision, Origin, Version, VersionName};

/// A version that a decision made, and the decision.
type Made<'a> = (&'a Version, &'a Decision);

/// Patches and removals that the last of `history` rests on, in their order.
fn path(history: &[Version]) -> Vec<Made<'_>> {
    let mut after: Vec<Vec<Made<'_>>> = Vec::with_capacity(history.len());
    for version in history {
        let mut now = after.last().cloned().unwrap_or_default();
        match &version.origin {
            Origin::Patch(acceptance) => now.push((version, &acceptance.decision)),
            Origin::Rollback { to, .. } => {
                let place = history.iter().position(|known| known.name == *to);
                now = place
                    .and_then(|place| after.get(place))
                    .cloned()
                    .unwrap_or_default();
            }
            Origin::Initial(_) | Origin::Foreign { .. } => {}
        }
        after.push(now);
    }
    after.pop().unwrap_or_default()
}

/// Versions whose patches are in the harness of the last of `history`.
pub(crate) fn active(history: &[Version]) -> Vec<&Version> {
    let mut active: Vec<&Version> = Vec::new();
    for (version, decision) in path(history) {
        match decision.removes {
            Some(removed) => active.retain(|known| known.name != removed),
            None => active.push(version),
        }
    }
    active
}

/// What version `old` rests on and version `new` doesn't: patches and removals. What was taken back before
/// isn't among them. The history may be longer: a run that starts again finds what it did later.
pub(crate) fn lost(history: &[Version], [old, new]: [VersionName; 2]) -> Vec<Made<'_>> {
    let kept = path(up_to(history, new));
    let kept: BTreeSet<VersionName> = kept.iter().map(|(version, _)| version.name).collect();
    let mut made = path(up_to(history, old));
    made.retain(|(version, _)| !kept.contains(&version.name));
    made
}

/// The history as it was when version `last` was head.
fn up_to(history: &[Version], last: VersionName) -> &[Version] {
    let place = history.iter().position(|version| version.name == last);
    &history[..place.map_or(0, |place| place + 1)]
}

#[cfg(test)]
pub(crate) mod testing {
    //! Histories in words.

    use harness::{Dimension, Patch, PatchOp};
    use registry::{
        Acceptance, CommitId, Decision, Delta, ModelId, Origin, RunId, Version, VersionName,
    };

    /// A version's name.
    pub(crate) fn name(number: u32) -> VersionName {
        VersionName::new(number).expect("a number")
    }

    /// A decision on a patch that `summary` tells from others, or on a removal.
    pub(crate) fn decision(summary: &str, removes: Option<VersionName>) -> Decision {
        Decision {
            run: RunId::new("r").expect("a name"),
            round: 1,
            model: ModelId::new("m").expect("a name"),
            root_cause: "x".into(),
            severity: "x".into(),
            evidence: String::new(),
            patch: Patch {
                dimension: Dimension::P,
                ops: vec![PatchOp::replace(
                    "prompts.system".parse().expect("a path"),
                    summary.into(),
                )],
                summary: summary.to_owned(),
            },
            removes,
            gate_mode: "x".into(),
            gate_detail: String::new(),
            unix_seconds: 0,
        }
    }

    /// The history that follows v1: `+` is a patch, `-2` takes back the patch of v2, `<2` goes back to
    /// v2.
    pub(crate) fn history(steps: &str) -> Vec<Version> {
        let named = |text: &str| name(text.parse().expect("a number"));
        let delta = Delta {
            estimate: 0.0,
            low: 0.0,
            high: 0.0,
            confidence: 0.95,
            gained: 0,
            lost: 0,
            pairs: 0,
        };
        let patched = |removes| {
            Origin::Patch(Box::new(Acceptance {
                decision: decision("", removes),
                delta_in: delta,
                delta_out: delta,
            }))
        };
        let origin = |step: &str| match step.split_at(1) {
            ("-", number) => patched(Some(named(number))),
            ("<", number) => Origin::Rollback {
                to: named(number),
                reason: "x".into(),
            },
            _ => patched(None),
        };
        let first = Origin::Foreign {
            reason: "the first".into(),
        };
        let origins = std::iter::once(first).chain(steps.split(' ').map(origin));
        let commit: CommitId = "0123456789abcdef0123456789abcdef01234567"
            .parse()
            .expect("an id");
        origins
            .zip(1..)
            .map(|(origin, number)| Version {
                name: name(number),
                commit,
                parent: None,
                harness: None,
                summary: String::new(),
                unix_seconds: 0,
                origin,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{history, name};
    use super::*;

    #[test]
    fn what_is_in_the_head_follows_from_patches_removals_and_rollbacks() {
        let names = |steps: &str| -> Vec<u32> {
            let history = history(steps);
            active(&history)
                .iter()
                .map(|version| version.name.number())
                .collect()
        };
        assert_eq!(names("+ + +"), [2, 3, 4]);
        assert_eq!(names("+ + -2"), [3]);
        assert_eq!(names("+ + <2"), [2]);
        assert_eq!(names("+ + <1 +"), [5]);
        // A removal that was taken back, and a rollback to a version after one.
        assert_eq!(names("+ + -2 <3"), [2, 3]);
        assert_eq!(names("+ + -2 + <4"), [3]);
        assert!(names("+ -2").is_empty());
    }

    #[test]
    fn going_back_takes_back_what_is_there_and_nothing_twice() {
        let undone = |steps: &str, first: u32| -> Vec<u32> {
            let history = history(steps);
            let last = history.last().expect("a version").name;
            lost(&history, [last, name(first)])
                .iter()
                .map(|(version, _)| version.name.number())
                .collect()
        };
        assert_eq!(undone("+ + +", 2), [3, 4]);
        // A removal and the patch that it removed.
        assert_eq!(undone("+ + -3", 2), [3, 4]);
        assert_eq!(undone("+ + -2", 3), [4]);
        // v3 was taken back before; so were v3 and its removal.
        assert_eq!(undone("+ + <2 +", 1), [2, 5]);
        assert_eq!(undone("+ + -3 <2", 1), [2]);
        assert!(undone("+ + <2", 2).is_empty());
        assert!(undone("+", 2).is_empty());
    }

    #[test]
    fn what_a_person_went_back_from_is_what_the_head_is_without() {
        let undone = |steps: &str, old: u32| -> Vec<u32> {
            let history = history(steps);
            let last = history.last().expect("a version").name;
            lost(&history, [name(old), last])
                .iter()
                .map(|(version, _)| version.name.number())
                .collect()
        };
        assert_eq!(undone("+ + + <1", 4), [2, 3, 4]);
        // Twice, the second time back to some of it; and to what was taken back before.
        assert_eq!(undone("+ + + <1 <3", 4), [4]);
        assert!(undone("+ <1 <2", 3).is_empty());
        assert!(undone("+ + +", 4).is_empty());
        // What came later is no part of either.
        let longer = history("+ + <1 + <2");
        let lost = lost(&longer, [name(3), name(4)]);
        assert_eq!(lost.len(), 2);
    }
}
