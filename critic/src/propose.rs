//! Clusters → candidate patches, in the order in which the gate should try them.

use std::collections::{BTreeMap, BTreeSet};

use harness::{Dimension, Harness, Patch, PatchOp};
use rollout::PolicyId;
use serde::Serialize;

use crate::cluster::{Cluster, ops_key};
use crate::effect::Predicted;
use crate::record::{HarnessDim, RecordId, RootCause};
use crate::repairs::checked_patch;
use crate::rules::rule;
use crate::scoreboard::Scoreboard;

/// Most candidates that one cluster gives at a time.
pub const MOST_PER_CLUSTER: usize = 3;
/// How many candidates a dimension may be ahead of another that has some left.
const MOST_AHEAD: usize = 2;

/// A candidate patch and why it is proposed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proposal {
    /// The patch: it applies to the harness it was proposed for, and changes it.
    pub patch: Patch,
    /// Root cause of the heaviest cluster that asked for it.
    pub root_cause: RootCause,
    /// That cluster's dimension.
    pub harness_dim: HarnessDim,
    /// That cluster's rule.
    pub rule: String,
    /// That cluster in one line.
    pub summary: String,
    /// Records of all clusters that asked for it.
    pub records: BTreeSet<RecordId>,
    /// What it should do by all those clusters, to be compared with what is measured. Further tasks at
    /// risk are found once the patched harness is there ([`at_risk`](crate::at_risk)).
    pub predicted: Predicted,
}

/// A patch that the gate has decided on.
#[derive(Clone, Debug, PartialEq)]
pub struct TriedPatch {
    /// The patch.
    pub patch: Patch,
    /// The policy that it was tried with.
    pub policy: PolicyId,
    /// Whether it was accepted.
    pub is_accepted: bool,
}

/// Candidate patches for `harness`, most promising first.
///
/// Within a cluster the records' own suggestions come first, the most frequent one leading, then
/// the rule's repairs in their order. Across clusters the heavier goes first, with each further
/// candidate of one dimension counting less, and a dimension never more than two candidates ahead of
/// another that has some left, so that the search doesn't stay on prompts. How much a dimension counts
/// is also a matter of what the gate made of its patches lately ([`Scoreboard`]).
///
/// A patch that was rejected with one of the cluster's policies is not proposed again: neither
/// harness nor task makes the same operations new, only another θ does.
pub fn propose(harness: &Harness, clusters: &[Cluster], history: &[TriedPatch]) -> Vec<Proposal> {
    let mut pool: Vec<Candidate> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for cluster in clusters {
        for (rank, patch) in cluster_patches(harness, cluster, history)
            .into_iter()
            .enumerate()
        {
            let key = ops_key(&patch.ops);
            let score = cluster.weight as f64 / (rank + 1) as f64;
            match places.get(&key) {
                Some(place) => pool[*place].support(cluster, score),
                None => {
                    places.insert(key, pool.len());
                    pool.push(Candidate::new(patch, cluster, score));
                }
            }
        }
    }
    order(pool, history)
}

struct Candidate {
    proposal: Proposal,
    score: f64,
}

impl Candidate {
    fn new(patch: Patch, cluster: &Cluster, score: f64) -> Self {
        let proposal = Proposal {
            patch,
            root_cause: cluster.root_cause,
            harness_dim: cluster.harness_dim,
            rule: cluster.rule.clone(),
            summary: cluster.summary(),
            records: cluster.records.iter().cloned().collect(),
            predicted: cluster.predicted.clone(),
        };
        Candidate { proposal, score }
    }

    /// Another cluster asks for the same operations. The higher score counts: the clusters may
    /// stand for the same failures.
    fn support(&mut self, cluster: &Cluster, score: f64) {
        self.score = self.score.max(score);
        self.proposal
            .records
            .extend(cluster.records.iter().cloned());
        let Predicted { fixes, at_risk } = &mut self.proposal.predicted;
        fixes.extend(cluster.predicted.fixes.iter().cloned());
        at_risk.extend(cluster.predicted.at_risk.iter().cloned());
    }
}

/// At most [`MOST_PER_CLUSTER`] patches for one cluster.
fn cluster_patches(harness: &Harness, cluster: &Cluster, history: &[TriedPatch]) -> Vec<Patch> {
    let Some(dimension) = cluster.harness_dim.dimension() else {
        return Vec::new();
    };
    let repairs = rule(&cluster.rule).map_or(&[][..], |rule| rule.repairs);
    let catalogued: Vec<Patch> = repairs
        .iter()
        .filter_map(|repair| repair.patch(harness, dimension))
        .collect();
    let is_catalogued = |ops: &[PatchOp]| catalogued.iter().any(|patch| patch.ops == *ops);
    // A suggestion that is a repair keeps the repair's place and its better summary.
    let suggested = cluster
        .suggestions
        .iter()
        .filter(|(ops, _)| !is_catalogued(ops))
        .filter_map(|(ops, _)| {
            let summary = format!("as {} suggests: {}", cluster.rule, outline(ops));
            checked_patch(harness, dimension, ops.clone(), &summary)
        });
    let mut patches: Vec<Patch> = Vec::new();
    for patch in suggested.chain(catalogued.iter().cloned()) {
        let is_new = patches.iter().all(|known| known.ops != patch.ops);
        if is_new && !was_rejected(&patch, cluster, history) {
            patches.push(patch);
        }
    }
    patches.truncate(MOST_PER_CLUSTER);
    patches
}

/// Operations in a few words, such as `remove memory.entries[0]`.
fn outline(ops: &[PatchOp]) -> String {
    const MOST: usize = 2;
    let mut words: Vec<String> = ops
        .iter()
        .take(MOST)
        .map(|op| {
            let verb = serde_json::to_value(op.op).unwrap_or_default();
            format!("{} {}", verb.as_str().unwrap_or_default(), op.path)
        })
        .collect();
    if ops.len() > MOST {
        words.push(format!("{} more", ops.len() - MOST));
    }
    words.join(", ")
}

fn was_rejected(patch: &Patch, cluster: &Cluster, history: &[TriedPatch]) -> bool {
    history.iter().any(|tried| {
        !tried.is_accepted
            && tried.patch.ops == patch.ops
            && cluster.policies.contains(&tried.policy)
    })
}

/// Highest averages, with a bound on how far one dimension gets ahead of another.
fn order(mut pool: Vec<Candidate>, history: &[TriedPatch]) -> Vec<Proposal> {
    let decisions = history
        .iter()
        .map(|tried| (tried.patch.dimension, tried.is_accepted));
    let board = Scoreboard::of(decisions);
    let mut ordered = Vec::with_capacity(pool.len());
    let mut taken: BTreeMap<Dimension, usize> = BTreeMap::new();
    while !pool.is_empty() {
        let count = |dimension: Dimension| taken.get(&dimension).copied().unwrap_or(0);
        let left = pool
            .iter()
            .map(|candidate| count(candidate.proposal.patch.dimension));
        let least = left.min().unwrap_or(0);
        let value = |candidate: &Candidate| {
            let dimension = candidate.proposal.patch.dimension;
            let taken = count(dimension);
            (taken < least + MOST_AHEAD)
                .then(|| candidate.score * board.score(dimension).trust() / (taken + 1) as f64)
        };
        let mut best: Option<(usize, f64)> = None;
        for (place, candidate) in pool.iter().enumerate() {
            let Some(value) = value(candidate) else {
                continue;
            };
            // Strictly greater: of equals the first stays, whose cluster is the heavier.
            if best.is_none_or(|(_, most)| value > most) {
                best = Some((place, value));
            }
        }
        let Some((place, _)) = best else { break };
        let candidate = pool.remove(place);
        *taken.entry(candidate.proposal.patch.dimension).or_default() += 1;
        ordered.push(candidate.proposal);
    }
    ordered
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use proptest::prelude::*;
    use rollout::{Columns, Event, TaskId, Trajectory, load_tasks};

    use super::*;
    use crate::cluster::cluster;
    use crate::critic::{Critic, RulesCritic};
    use crate::leak::LeakGuard;
    use crate::record::Severity;
    use crate::rules::rules;
    use crate::testing::{Build, failed, start};

    /// A cluster of every rule, so that every repair is asked for.
    fn all_clusters() -> Vec<Cluster> {
        let one = |rule: &crate::rules::Rule| Cluster {
            root_cause: rule.root_cause,
            harness_dim: rule.root_cause.harness_dim(),
            rule: rule.name.to_owned(),
            severity: Severity::Medium,
            size: 5,
            weight: 10,
            records: Vec::new(),
            tasks: BTreeSet::from([TaskId::new("task-1")]),
            policies: BTreeSet::from([PolicyId::new("theta-0")]),
            suggestions: Vec::new(),
            predicted: Predicted::default(),
        };
        rules().map(one).collect()
    }

    fn all_patches(harness: &Harness) -> Vec<Patch> {
        rules()
            .filter_map(|rule| Some((rule, rule.root_cause.harness_dim().dimension()?)))
            .flat_map(|(rule, dimension)| {
                rule.repairs
                    .iter()
                    .filter_map(move |repair| repair.patch(harness, dimension))
            })
            .collect()
    }

    fn prose_clusters() -> Vec<Cluster> {
        let text = "Mo has 5 + 7 = 13 kites.";
        let trajectories: Vec<Trajectory> = (1..=8)
            .map(|seed| failed(seed).reply(text, Some(Event::NoToolCall)))
            .collect();
        let records = RulesCritic::default()
            .diagnose(&start(), &trajectories)
            .records;
        cluster(&records, &trajectories)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Wherever the search has led, every proposal applies, stays in one dimension and
        /// changes the harness.
        #[test]
        fn proposals_are_sound(picks in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
            let mut harness = start();
            for pick in picks {
                let patches = all_patches(&harness);
                if !patches.is_empty() {
                    harness = patches[pick.index(patches.len())].apply(&harness).unwrap();
                }
            }
            for proposal in propose(&harness, &all_clusters(), &[]) {
                let patch = &proposal.patch;
                prop_assert_eq!(Some(patch.dimension), proposal.harness_dim.dimension());
                let dimension = |op: &PatchOp| Dimension::of(&op.path);
                prop_assert!(patch.ops.iter().all(|op| dimension(op) == Some(patch.dimension)));
                let patched = patch.apply(&harness).unwrap();
                prop_assert_ne!(patched.id(), harness.id());
            }
        }
    }

    #[test]
    fn examples_and_format_lead_and_no_dimension_runs_ahead() {
        let proposals = propose(&start(), &prose_clusters(), &[]);
        let dimensions: Vec<Dimension> = proposals.iter().map(|p| p.patch.dimension).collect();
        assert_eq!(
            dimensions[..2],
            [Dimension::P, Dimension::Mid],
            "{dimensions:?}"
        );
        let first_six: BTreeSet<Dimension> = dimensions.iter().take(6).copied().collect();
        assert!(first_six.len() >= 4, "{dimensions:?}");
        assert_eq!(proposals[0].predicted.fixes.len(), 8);
        assert_eq!(proposals, propose(&start(), &prose_clusters(), &[]));
    }

    #[test]
    fn a_dimension_that_keeps_failing_gives_way_to_others() {
        let clusters = prose_clusters();
        let place = |history: &[TriedPatch], dimension| {
            let proposals = propose(&start(), &clusters, history);
            proposals
                .iter()
                .position(|p| p.patch.dimension == dimension)
        };
        let other = r#"{"dimension":"P","ops":[{"op":"remove","path":"prompts.examples[0]"}]}"#;
        let rejected = TriedPatch {
            patch: Patch::from_json(other).unwrap(),
            policy: PolicyId::new("theta-9"),
            is_accepted: false,
        };
        assert_eq!(place(&[], Dimension::P), Some(0));
        assert!(place(&vec![rejected; 8], Dimension::P) > Some(0));
    }

    #[test]
    fn same_operations_are_proposed_once() {
        let proposals = propose(&start(), &all_clusters(), &[]);
        let keys: BTreeSet<String> = proposals.iter().map(|p| ops_key(&p.patch.ops)).collect();
        assert_eq!(keys.len(), proposals.len());
    }

    #[test]
    fn rejected_patches_return_only_with_another_policy() {
        let clusters = prose_clusters();
        let first = propose(&start(), &clusters, &[]).swap_remove(0).patch;
        let tried = |policy: &str, is_accepted| TriedPatch {
            patch: first.clone(),
            policy: PolicyId::new(policy),
            is_accepted,
        };
        let proposes = |history: &[TriedPatch]| {
            let proposals = propose(&start(), &clusters, history);
            proposals
                .iter()
                .any(|proposal| proposal.patch.ops == first.ops)
        };
        assert!(!proposes(&[tried("theta-0", false)]));
        assert!(proposes(&[tried("theta-1", false)]));
        assert!(proposes(&[tried("theta-0", true)]));
    }

    #[test]
    fn foreign_suggestions_come_first_if_they_apply() {
        let mut clusters = prose_clusters();
        clusters.truncate(1);
        let good = r#"[{"op":"replace","path":"prompts.task","value":"Q: {{ problem }}"}]"#;
        let bad = r#"[{"op":"replace","path":"prompts.task","value":"no slot"}]"#;
        let read = |ops: &str| serde_json::from_str::<Vec<PatchOp>>(ops).unwrap();
        clusters[0].suggestions = vec![(read(bad), 5), (read(good), 3)];
        let proposals = propose(&start(), &clusters, &[]);
        assert_eq!(proposals.len(), MOST_PER_CLUSTER);
        assert_eq!(proposals[0].patch.ops, read(good));
    }

    /// The catalogue must not share texts with the tasks that the project ships.
    #[test]
    fn catalogue_is_not_from_the_shipped_tasks() {
        let text = include_str!("../../configs/tasks/arithmetic.jsonl");
        let tasks = load_tasks(text, "arithmetic", &Columns::default()).unwrap();
        let guard = LeakGuard::new(tasks.iter(), std::iter::empty());
        for patch in all_patches(&start()) {
            assert_eq!(guard.check(&patch), Ok(()), "{}", patch.summary);
        }
    }
}
