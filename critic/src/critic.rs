//! The critic: failed trajectories in, records and proposals out.

use std::collections::BTreeSet;

use harness::{Dimension, Harness, Patch, PatchOp};
use rollout::{RolloutId, Trajectory};

use crate::cluster::Cluster;
use crate::mining::mine;
use crate::propose::{Proposal, TriedPatch, propose};
use crate::record::{HarnessDim, Record, Severity, check_evidence};
use crate::rules::{Facts, Rule, is_failure, rules};

/// Says why rollouts failed, and what might help.
pub trait Critic {
    /// Records of the failed ones among `trajectories`, which all ran under `harness`.
    fn diagnose(&self, harness: &Harness, trajectories: &[Trajectory]) -> Diagnosis;

    /// Candidate patches for `harness`, most promising first.
    fn propose(
        &self,
        harness: &Harness,
        clusters: &[Cluster],
        history: &[TriedPatch],
    ) -> Vec<Proposal>;
}

/// What a critic found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// The records, by trajectory in the order given, then by rule; then those of [`mine`].
    pub records: Vec<Record>,
    /// Records that were dropped because their evidence isn't there.
    pub dropped: usize,
    /// Failed trajectories that were read.
    pub failures: usize,
    /// Failed trajectories without a record.
    pub undiagnosed: usize,
}

/// The critic that works without a language model: [`rules`] and their repairs, and [`mine`].
#[derive(Clone, Copy, Debug, Default)]
pub struct RulesCritic {
    /// Whether the policy decodes under grammars ([`rollout::Policy::follows_grammars`]). Another can't be
    /// run by a harness that asks for it, so nothing is said that would lead there.
    pub follows_grammars: bool,
}

impl RulesCritic {
    /// Whether the policy can be run by what a patch makes of `harness`.
    fn can_run(&self, harness: &Harness, patch: &Patch) -> bool {
        let is_constrained = |after: Harness| after.middleware.protocol.constrained;
        self.follows_grammars || !patch.apply(harness).is_ok_and(is_constrained)
    }

    /// Whether it can be run by what a record suggests.
    fn can_follow(&self, harness: &Harness, record: &Record) -> bool {
        record.harness_dim != HarnessDim::Mid
            || self.can_run(
                harness,
                &Patch {
                    dimension: Dimension::Mid,
                    ops: record.diff_suggestion.clone(),
                    summary: String::new(),
                },
            )
    }
}

impl Critic for RulesCritic {
    fn diagnose(&self, harness: &Harness, trajectories: &[Trajectory]) -> Diagnosis {
        let mut diagnosis = Diagnosis::default();
        let facts = Facts::of(harness, trajectories);
        let mut rules: Vec<(&Rule, Option<Vec<PatchOp>>)> = rules().map(|r| (r, None)).collect();
        for trajectory in trajectories.iter().filter(|t| is_failure(t)) {
            diagnosis.failures += 1;
            let found = rules.iter_mut().filter_map(|(rule, first_repair)| {
                rule.detect_beside(&facts, harness, trajectory, first_repair)
                    .filter(|record| self.can_follow(harness, record))
            });
            for record in found {
                match check_evidence(&record, trajectory) {
                    Ok(()) => diagnosis.records.push(record),
                    Err(_) => diagnosis.dropped += 1,
                }
            }
        }
        acquit(harness, trajectories, &mut diagnosis.records);
        drop_mere_suspicions(&mut diagnosis.records);
        let explained: BTreeSet<&RolloutId> = diagnosis
            .records
            .iter()
            .map(|record| &record.evidence.trajectory)
            .collect();
        diagnosis.undiagnosed = diagnosis.failures - explained.len();
        let mined = mine(harness, trajectories);
        let by_id = |record: &Record| {
            let id = &record.evidence.trajectory;
            trajectories.iter().find(|trajectory| trajectory.id == *id)
        };
        for record in mined {
            match by_id(&record).map(|trajectory| check_evidence(&record, trajectory)) {
                Some(Ok(())) => diagnosis.records.push(record),
                _ => diagnosis.dropped += 1,
            }
        }
        diagnosis
    }

    fn propose(
        &self,
        harness: &Harness,
        clusters: &[Cluster],
        history: &[TriedPatch],
    ) -> Vec<Proposal> {
        let mut proposals = propose(harness, clusters, history);
        proposals.retain(|proposal| self.can_run(harness, &proposal.patch));
        proposals
    }
}

/// Takes back what a text is blamed for where it serves too: where rollouts were solved as the rule says
/// that others failed, by the same text, and more than a quarter as many.
fn acquit(harness: &Harness, trajectories: &[Trajectory], records: &mut Vec<Record>) {
    const ENOUGH: usize = 4;
    for rule in rules().filter(|rule| rule.is_contrasted()) {
        let solved = trajectories.iter().filter(|t| t.verdict.correct);
        let served: Vec<Vec<PatchOp>> = solved
            .filter_map(|trajectory| rule.suggestion(harness, trajectory))
            .collect();
        let blamed: Vec<Vec<PatchOp>> = records
            .iter()
            .filter(|record| record.rule == rule.name)
            .map(|record| record.diff_suggestion.clone())
            .collect();
        let count = |of: &[Vec<PatchOp>], ops: &[PatchOp]| {
            let same = of.iter().filter(|known| known.as_slice() == ops);
            same.count()
        };
        records.retain(|record| {
            let ops = &record.diff_suggestion;
            record.rule != rule.name || ENOUGH * count(&served, ops) <= count(&blamed, ops)
        });
    }
}

/// Suspicions are for rollouts that nothing explains.
fn drop_mere_suspicions(records: &mut Vec<Record>) {
    let explained: BTreeSet<RolloutId> = records
        .iter()
        .filter(|record| record.severity == Severity::High)
        .map(|record| record.evidence.trajectory.clone())
        .collect();
    records.retain(|record| {
        !record.rule.ends_with("_suspected") || !explained.contains(&record.evidence.trajectory)
    });
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use rollout::Event;

    use super::*;
    use crate::cluster::cluster;
    use crate::testing::{Build, failed, patched, start};

    #[test]
    fn a_text_that_serves_is_not_blamed_for_what_goes_wrong_beside_it() {
        let skill = r#"[{"op":"add","path":"skills.shares","value":{"name":"shares",
            "description":"Shares.","triggers":["percent"],"body":"A dozen is 12."}}]"#;
        let note = r#"[{"op":"replace","path":"memory.kind","value":"notes"},
            {"op":"replace","path":"memory.capacity","value":1},
            {"op":"add","path":"memory.entries","value":"A dozen is 12."}]"#;
        let told = |seed, is_solved| {
            let mut trajectory = failed(seed)
                .system("Solve. A dozen is 12.")
                .problem("What is 50 percent of 9 dozen?")
                .call("print(9 * 12)")
                .result("108", None)
                .answered("108");
            trajectory.verdict.correct = is_solved;
            trajectory
        };
        for (dimension, ops, rule) in [("S", skill, "skill_misleads"), ("M", note, "stale_number")]
        {
            let harness = patched(&start(), dimension, ops);
            let blamed = |solved: u64| {
                let failed = (1..=8).map(|seed| told(seed, false));
                let solved = (9..9 + solved).map(|seed| told(seed, true));
                let all: Vec<Trajectory> = failed.chain(solved).collect();
                let records = RulesCritic::default().diagnose(&harness, &all).records;
                records.iter().filter(|record| record.rule == rule).count()
            };
            assert_eq!((blamed(0), blamed(2), blamed(3)), (8, 8, 0), "{rule}");
        }
    }

    #[test]
    fn a_grammar_is_asked_for_only_where_the_policy_follows_it() {
        let broken = |seed| {
            let reason = "expected value".to_owned();
            let text = "{\"name\": \"python\", \"arguments\": print(12)}";
            failed(seed).reply(text, Some(Event::UnparsableCall { reason }))
        };
        let trajectories: Vec<Trajectory> = (1..=3).map(broken).collect();
        let diagnosed = |follows_grammars| {
            RulesCritic { follows_grammars }
                .diagnose(&start(), &trajectories)
                .records
        };
        let is_named = |records: &[Record]| {
            let mut records = records.iter();
            records.any(|record| record.rule == "call_without_grammar")
        };
        assert!(is_named(&diagnosed(true)) && !is_named(&diagnosed(false)));
        // Whoever else suggests it.
        let clusters = cluster(&diagnosed(true), &trajectories);
        let place = |follows_grammars| {
            let critic = RulesCritic { follows_grammars };
            let proposals = critic.propose(&start(), &clusters, &[]);
            proposals.iter().position(|proposal| {
                let after = proposal.patch.apply(&start()).unwrap();
                after.middleware.protocol.constrained
            })
        };
        assert!(place(true).is_some_and(|place| place < 4));
        assert_eq!(place(false), None);
    }
}
