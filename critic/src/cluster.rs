//! Clusters: records of one fault, seen in several rollouts.

use std::collections::{BTreeMap, BTreeSet};

use harness::PatchOp;
use rollout::{PolicyId, RolloutId, TaskId, Trajectory};
use serde::Serialize;

use crate::effect::Predicted;
use crate::record::{HarnessDim, Record, RecordId, RootCause, Severity};

/// A fault seen in fewer trajectories may be chance.
pub const FEWEST_FAILURES: usize = 2;

/// Records with one root cause, dimension and rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cluster {
    /// The shared root cause.
    pub root_cause: RootCause,
    /// The shared dimension.
    pub harness_dim: HarnessDim,
    /// The shared rule.
    pub rule: String,
    /// The highest severity among the records.
    pub severity: Severity,
    /// Distinct failed trajectories, at least [`FEWEST_FAILURES`].
    pub size: usize,
    /// What clusters are ordered by: the sum over the trajectories of the severity's weight in each.
    pub weight: u64,
    /// Ids of the records, in the order of the trajectories' ids.
    pub records: Vec<RecordId>,
    /// The tasks that failed so.
    pub tasks: BTreeSet<TaskId>,
    /// The policies that failed so.
    pub policies: BTreeSet<PolicyId>,
    /// The records' distinct suggestions with their counts, the most frequent first.
    pub suggestions: Vec<(Vec<PatchOp>, usize)>,
    /// What a patch for it should do: mend the tasks that failed so, unless whoever found the fault
    /// says otherwise ([`Critique::foretell`](crate::Critique::foretell)).
    pub predicted: Predicted,
}

impl Cluster {
    /// One line for people.
    pub fn summary(&self) -> String {
        let Cluster {
            root_cause,
            harness_dim,
            rule,
            size,
            ..
        } = self;
        let count = self.tasks.len();
        let plural = if count == 1 { "" } else { "s" };
        format!("{root_cause} ({harness_dim}), {rule}: {size} rollouts of {count} task{plural}")
    }
}

/// Groups `records`; a group of fewer than [`FEWEST_FAILURES`] distinct trajectories is left out,
/// and so is a record whose trajectory isn't among `trajectories`. Heaviest cluster first; the
/// order of the arguments makes no difference.
pub fn cluster(records: &[Record], trajectories: &[Trajectory]) -> Vec<Cluster> {
    let by_id: BTreeMap<&RolloutId, &Trajectory> = trajectories
        .iter()
        .map(|trajectory| (&trajectory.id, trajectory))
        .collect();
    let mut groups: BTreeMap<_, BTreeMap<&RolloutId, Vec<&Record>>> = BTreeMap::new();
    for record in records {
        let id = &record.evidence.trajectory;
        if by_id.contains_key(id) {
            let key = (record.root_cause, record.harness_dim, &record.rule);
            let group = groups.entry(key).or_default();
            group.entry(id).or_default().push(record);
        }
    }
    let mut clusters: Vec<Cluster> = groups
        .into_iter()
        .filter(|(_, group)| group.len() >= FEWEST_FAILURES)
        .map(|((root_cause, harness_dim, rule), group)| {
            let members = || group.values().flatten();
            let seen = || group.keys().filter_map(|id| by_id.get(id));
            let severity = members().map(|record| record.severity).max();
            let mut records: Vec<RecordId> = members().map(|record| record.id()).collect();
            records.dedup();
            let worst = |records: &Vec<&Record>| {
                let weights = records.iter().map(|record| record.severity.weight());
                u64::from(weights.max().unwrap_or(0))
            };
            let tasks: BTreeSet<TaskId> =
                seen().map(|trajectory| trajectory.task.clone()).collect();
            Cluster {
                root_cause,
                harness_dim,
                rule: rule.clone(),
                severity: severity.unwrap_or(Severity::Low),
                size: group.len(),
                weight: group.values().map(worst).sum(),
                records,
                predicted: Predicted {
                    fixes: tasks.clone(),
                    at_risk: BTreeSet::new(),
                },
                tasks,
                policies: seen().map(|trajectory| trajectory.policy.clone()).collect(),
                suggestions: count_suggestions(members().copied()),
            }
        })
        .collect();
    // Stable: equal weights stay in the order of cause, dimension and rule.
    clusters.sort_by_key(|cluster| std::cmp::Reverse(cluster.weight));
    clusters
}

fn count_suggestions<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<(Vec<PatchOp>, usize)> {
    let mut counts: BTreeMap<String, (Vec<PatchOp>, usize)> = BTreeMap::new();
    for record in records.filter(|record| !record.diff_suggestion.is_empty()) {
        let entry = counts
            .entry(ops_key(&record.diff_suggestion))
            .or_insert_with(|| (record.diff_suggestion.clone(), 0));
        entry.1 += 1;
    }
    let mut suggestions: Vec<(Vec<PatchOp>, usize)> = counts.into_values().collect();
    suggestions.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    suggestions
}

/// A text that is equal exactly when the operations are.
pub(crate) fn ops_key(ops: &[PatchOp]) -> String {
    let value = serde_json::to_value(ops).expect("operations are plain data with string keys");
    harness::canonical_json(&value)
}

#[cfg(test)]
mod tests {
    use rollout::Event;

    use super::*;
    use crate::critic::{Critic, RulesCritic};
    use crate::testing::{Build, failed, start};

    fn prose(seed: u64) -> Trajectory {
        failed(seed).reply("It is 13.", Some(Event::NoToolCall))
    }

    #[test]
    fn one_failure_is_no_cluster() {
        let trajectories = [prose(1)];
        let records = RulesCritic::default()
            .diagnose(&start(), &trajectories)
            .records;
        assert!(!records.is_empty());
        // The same records twice are still one trajectory.
        let twice: Vec<Record> = records.iter().chain(&records).cloned().collect();
        assert_eq!(cluster(&twice, &trajectories), []);
    }

    #[test]
    fn heaviest_first_and_independent_of_order() {
        let mut trajectories: Vec<Trajectory> = (1..=4).map(prose).collect();
        let silent = |seed| {
            failed(seed)
                .call("x = 1")
                .result("", Some(Event::EmptyOutput))
        };
        trajectories.extend([silent(5), silent(6)]);
        let mut records = RulesCritic::default()
            .diagnose(&start(), &trajectories)
            .records;
        let clusters = cluster(&records, &trajectories);
        assert!(clusters.is_sorted_by(|a, b| a.weight >= b.weight));
        assert_eq!(
            (clusters[0].severity, clusters[0].size),
            (Severity::High, 4)
        );
        assert_eq!(clusters[0].tasks.len(), 4);
        assert_eq!(clusters[0].suggestions[0].1, 4);
        records.reverse();
        trajectories.reverse();
        assert_eq!(cluster(&records, &trajectories), clusters);
    }
}
