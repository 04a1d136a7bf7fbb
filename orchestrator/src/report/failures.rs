//! What rollouts fail of: root causes by version, and whether training still changes them.
//!
//! A fix that makes another fault shows as a cause that grows from one version to the next; training that
//! teaches nothing any more as rounds that fail alike.

use std::collections::{BTreeMap, BTreeSet};

use critic::{Record, RootCause, Severity};
use rollout::RolloutId;

use super::{DiagnoseRow, RollbackRow, WeightsRow};
use crate::gate::decide::Verdict;

/// Failed rollouts that no record explains.
const UNDIAGNOSED: &str = "undiagnosed";
/// Two rounds fail alike if their distributions are nearer to each other than this. With a few dozen
/// rollouts equal rates differ by as much.
const ALIKE: f64 = 0.1;

/// How many of `failed` rollouts each root cause accounts for. Every rollout counts once, for its gravest
/// record; of equally grave ones, for the cause that comes first in the taxonomy.
pub(crate) fn causes(records: &[Record], failed: usize) -> BTreeMap<String, usize> {
    let mut gravest: BTreeMap<&RolloutId, (Severity, RootCause)> = BTreeMap::new();
    for record in records {
        let new = (record.severity, record.root_cause);
        let known = gravest.entry(&record.evidence.trajectory).or_insert(new);
        if new.0 > known.0 || new.0 == known.0 && new.1 < known.1 {
            *known = new;
        }
    }
    let mut counts = BTreeMap::new();
    for (_, cause) in gravest.values() {
        *counts.entry(cause.to_string()).or_insert(0) += 1;
    }
    let explained: usize = counts.values().sum();
    if failed > explained {
        counts.insert(UNDIAGNOSED.to_owned(), failed - explained);
    }
    counts
}

/// Total variation distance between what became of the rollouts of two diagnoses: solved, or failed of a
/// cause.
fn distance(a: &DiagnoseRow, b: &DiagnoseRow) -> f64 {
    let share = |row: &DiagnoseRow, cause: &str| {
        let count = row.causes.get(cause).copied().unwrap_or(0);
        count as f64 / row.rollouts.max(1) as f64
    };
    let solved = |row: &DiagnoseRow| {
        (row.rollouts - row.failed.min(row.rollouts)) as f64 / row.rollouts.max(1) as f64
    };
    let all: BTreeSet<&String> = a.causes.keys().chain(b.causes.keys()).collect();
    let failed: f64 = all
        .into_iter()
        .map(|cause| (share(a, cause) - share(b, cause)).abs())
        .sum();
    (failed + (solved(a) - solved(b)).abs()) / 2.0
}

/// Rounds that begin with the same failures as the round before, although new weights came between.
pub(super) fn saturated(
    diagnoses: &[DiagnoseRow],
    weights: &[WeightsRow],
    rollbacks: &[RollbackRow],
) -> Vec<u32> {
    let first = |round: u32| diagnoses.iter().find(|row| row.round == round);
    let trained = weights
        .iter()
        .filter(|row| row.verdict == Verdict::Accepted);
    // Weights that were taken back have taught the next round nothing.
    let is_kept = |round: u32| {
        let mut back = rollbacks.iter().filter(|row| row.round == round);
        !back.any(|row| row.from.adapter != row.to.adapter)
    };
    trained
        .filter(|row| is_kept(row.round))
        .filter_map(|row| {
            let next = row.round + 1;
            let (before, after) = (first(row.round)?, first(next)?);
            (after.failed > 0 && distance(before, after) < ALIKE).then_some(next)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use critic::{Evidence, HarnessDim};
    use rollout::{ContentHash, PolicyId, RolloutBudget, RolloutKey};

    use super::super::{Cause, Place};
    use super::*;

    fn record(seed: u64, root_cause: RootCause, severity: Severity) -> Record {
        let trajectory = RolloutId::of(&RolloutKey {
            policy: &PolicyId::new("theta"),
            harness: &harness::naive().expect("the shipped harness").id(),
            task_hash: &ContentHash::of_problem("How many?"),
            seed,
            budget: &RolloutBudget {
                max_tokens: 1,
                wall: std::time::Duration::ZERO,
            },
            sandbox_level: "none",
        });
        Record {
            root_cause,
            harness_dim: HarnessDim::None,
            severity,
            evidence: Evidence {
                trajectory,
                step: 0,
                quote: "x".into(),
            },
            diff_suggestion: Vec::new(),
            rule: "x".into(),
        }
    }

    #[test]
    fn every_failed_rollout_counts_once_for_its_gravest_record() {
        use RootCause::{AgentError, PromptAmbiguity, ToolSchemaError};
        let records = [
            record(1, ToolSchemaError, Severity::Low),
            record(1, PromptAmbiguity, Severity::High),
            record(2, ToolSchemaError, Severity::High),
            record(2, PromptAmbiguity, Severity::High),
            record(3, AgentError, Severity::Low),
        ];
        let counts = causes(&records, 5);
        let counts: Vec<(&str, usize)> = counts
            .iter()
            .map(|(cause, count)| (cause.as_str(), *count))
            .collect();
        assert_eq!(
            counts,
            [
                ("agent_error", 1),
                ("prompt_ambiguity", 2),
                ("undiagnosed", 2)
            ]
        );
    }

    fn row(round: u32, causes: &[(&str, usize)]) -> DiagnoseRow {
        DiagnoseRow {
            round,
            version: "v1".into(),
            rollouts: 40,
            failed: causes.iter().map(|(_, count)| count).sum(),
            dropped_records: 0,
            causes: causes
                .iter()
                .map(|(cause, count)| ((*cause).to_owned(), *count))
                .collect(),
            clusters: Vec::new(),
            disagreements: Vec::new(),
            refused: Vec::new(),
        }
    }

    #[test]
    fn a_round_that_fails_like_the_last_one_is_flagged_if_weights_came_between() {
        let diagnoses = [
            row(1, &[("agent_error", 20), ("skill_missing", 10)]),
            row(2, &[("agent_error", 19), ("skill_missing", 12)]),
            row(2, &[("agent_error", 1)]),
            row(3, &[("agent_error", 8), ("skill_missing", 21)]),
            row(4, &[("agent_error", 8), ("skill_missing", 21)]),
        ];
        let weights = |round, verdict| WeightsRow {
            round,
            adapter: "a".into(),
            version: "v1".into(),
            stages: Vec::new(),
            evidence: None,
            rollouts: 0,
            verdict,
            spending: None,
        };
        let all = [
            weights(1, Verdict::Accepted),
            weights(2, Verdict::Accepted),
            weights(3, Verdict::Deferred),
            weights(4, Verdict::Accepted),
        ];
        assert_eq!(saturated(&diagnoses, &all, &[]), [2]);
        // Weights that were taken back at once are no reason.
        let place = |adapter: Option<&str>| Place {
            version: "v1".into(),
            adapter: adapter.map(str::to_owned),
        };
        let back = RollbackRow {
            round: 1,
            cause: Cause::Retention,
            from: place(Some("a")),
            to: place(None),
            version: None,
            undone: Vec::new(),
            reason: "lost".into(),
        };
        assert!(saturated(&diagnoses, &all, &[back]).is_empty());
    }
}
