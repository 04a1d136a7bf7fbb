//! Clusters → candidate patches, in the order in which the gate should try them.

use std::collections::{BTreeMap, BTreeSet};

use harness::{Change, Dimension, Harness, Patch, PatchOp};
use rollout::{PolicyId, TaskId};
use serde::Serialize;

use crate::cluster::{Cluster, ops_key};
use crate::effect::Predicted;
use crate::growth::TooLarge;
use crate::record::{HarnessDim, RecordId, RootCause};
use crate::repairs::checked_patch;
use crate::rules::rule;
use crate::scoreboard::Scoreboard;

/// Most candidates that one cluster gives at a time.
pub const MOST_PER_CLUSTER: usize = 3;
/// How many candidates a dimension may be ahead of another that has some left.
const MOST_AHEAD: usize = 2;
/// The first candidates, as many as a cycle measures by default.
const FIRST: usize = 4;
/// How many of them are for what the heaviest cluster fails at.
const FOR_HEAVIEST: usize = 2;

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
    /// What it does, by which it is known on other harnesses.
    pub change: Change,
    /// The policy that it was tried with.
    pub policy: PolicyId,
    /// Whether it was accepted.
    pub is_accepted: bool,
    /// The limit that it would have gone beyond, if that is why it wasn't: there may be room for it later.
    pub too_large: Option<TooLarge>,
}

impl TriedPatch {
    /// A decision on `patch`, which is for `harness`.
    pub fn new(harness: &Harness, patch: Patch, policy: PolicyId, is_accepted: bool) -> Self {
        TriedPatch {
            change: Change::of(harness, &patch.ops),
            patch,
            policy,
            is_accepted,
            too_large: None,
        }
    }

    /// Whether `patch`, which does this `change` to `harness`, needn't be tried with one of `policies`.
    fn bars(
        &self,
        harness: &Harness,
        patch: &Patch,
        change: &Change,
        policies: &BTreeSet<PolicyId>,
    ) -> bool {
        let is_it = !self.is_accepted && self.change == *change && policies.contains(&self.policy);
        let still = |limit: TooLarge| {
            let after = patch.apply(harness);
            after.is_ok_and(|after| limit.holds(harness, &after))
        };
        is_it && self.too_large.is_none_or(still)
    }
}

/// Candidate patches for `harness`, most promising first.
///
/// Within a cluster the records' own suggestions come first, the most frequent one leading, then
/// the rule's repairs in their order. Across clusters the heavier goes first, with each further
/// candidate of one dimension counting less, and a dimension never more than two candidates ahead of
/// another that has some left, so that the search doesn't stay on prompts. How much a dimension counts
/// is also a matter of what the gate made of its patches lately ([`Scoreboard`]).
///
/// Two of the first four are for what the heaviest cluster fails at, if there are as many: its own, or those
/// of clusters with the same tasks.
///
/// A patch that was rejected with one of the cluster's policies is not proposed again, wherever the list
/// entries that it changes stand by then: neither harness nor task makes it new, only another θ does, or
/// room for what was too large.
pub fn propose(harness: &Harness, clusters: &[Cluster], history: &[TriedPatch]) -> Vec<Proposal> {
    let mut pool: Vec<Candidate> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    // The heaviest cluster that gives a candidate comes first.
    let mut heaviest: Option<&BTreeSet<TaskId>> = None;
    for cluster in clusters {
        for (rank, patch) in cluster_patches(harness, cluster, history)
            .into_iter()
            .enumerate()
        {
            heaviest.get_or_insert(&cluster.predicted.fixes);
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
    order(pool, heaviest.unwrap_or(&BTreeSet::new()), history)
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

    fn dimension(&self) -> Dimension {
        self.proposal.patch.dimension
    }

    /// Whether it should mend half of these tasks or more.
    fn is_for(&self, tasks: &BTreeSet<TaskId>) -> bool {
        let mended = self.proposal.predicted.fixes.intersection(tasks).count();
        2 * mended >= tasks.len()
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
        if is_new && !was_rejected(harness, &patch, cluster, history) {
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

fn was_rejected(
    harness: &Harness,
    patch: &Patch,
    cluster: &Cluster,
    history: &[TriedPatch],
) -> bool {
    let change = Change::of(harness, &patch.ops);
    let mut history = history.iter();
    history.any(|tried| tried.bars(harness, patch, &change, &cluster.policies))
}

/// Highest averages, with a bound on how far one dimension gets ahead of another and two of the first places
/// for the tasks of the `heaviest` cluster.
fn order(
    mut pool: Vec<Candidate>,
    heaviest: &BTreeSet<TaskId>,
    history: &[TriedPatch],
) -> Vec<Proposal> {
    let decisions = history
        .iter()
        .map(|tried| (tried.patch.dimension, tried.is_accepted));
    let board = Scoreboard::of(decisions);
    let mut ordered = Vec::with_capacity(pool.len());
    let mut taken: BTreeMap<Dimension, usize> = BTreeMap::new();
    let candidates = pool.iter().filter(|candidate| candidate.is_for(heaviest));
    let mut wanted = candidates.count().min(FOR_HEAVIEST);
    while !pool.is_empty() {
        let count = |dimension: Dimension| taken.get(&dimension).copied().unwrap_or(0);
        let left = pool.iter().map(|candidate| count(candidate.dimension()));
        let least = left.min().unwrap_or(0);
        // Until the heaviest cluster has its share, the others wait in its candidates' dimensions, so that the
        // bound doesn't keep it from it, and everywhere if no other places are left.
        let places = FIRST.saturating_sub(ordered.len());
        let is_open = (1..=places).contains(&wanted);
        let preferred = pool.iter().filter(|c| is_open && c.is_for(heaviest));
        let preferred: BTreeSet<Dimension> = preferred.map(Candidate::dimension).collect();
        let waits = |candidate: &Candidate| {
            let is_in_the_way = wanted == places || preferred.contains(&candidate.dimension());
            is_open && is_in_the_way && !candidate.is_for(heaviest)
        };
        let value = |candidate: &Candidate| {
            let dimension = candidate.dimension();
            let taken = count(dimension);
            (taken < least + MOST_AHEAD && !waits(candidate))
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
        *taken.entry(candidate.dimension()).or_default() += 1;
        wanted = wanted.saturating_sub(usize::from(candidate.is_for(heaviest)));
        ordered.push(candidate.proposal);
    }
    ordered
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use proptest::prelude::*;
    use rollout::{Columns, Event, Trajectory, load_tasks};

    use super::*;
    use crate::cluster::cluster;
    use crate::critic::{Critic, RulesCritic};
    use crate::growth::GrowthLimits;
    use crate::leak::LeakGuard;
    use crate::record::Severity;
    use crate::rules::rules;
    use crate::testing::{Build, failed, start};

    fn asking(rule: &str, root_cause: RootCause) -> Cluster {
        Cluster {
            root_cause,
            harness_dim: root_cause.harness_dim(),
            rule: rule.to_owned(),
            severity: Severity::Medium,
            size: 5,
            weight: 10,
            records: Vec::new(),
            tasks: BTreeSet::from([TaskId::new("task-1")]),
            policies: BTreeSet::from([PolicyId::new("theta-0")]),
            suggestions: Vec::new(),
            predicted: Predicted::default(),
        }
    }

    /// A cluster of every rule, so that every repair is asked for.
    fn all_clusters() -> Vec<Cluster> {
        let clusters = rules().map(|rule| asking(rule.name, rule.root_cause));
        clusters.collect()
    }

    /// A cluster that asks for a change of the notes and nothing else.
    fn asking_of_notes(patch: &Patch) -> Cluster {
        Cluster {
            suggestions: vec![(patch.ops.clone(), 2)],
            ..asking("llm/notes", RootCause::MemoryOverflow)
        }
    }

    fn notes(op: &str) -> Patch {
        let text = format!(r#"{{"dimension":"M","ops":[{{{op}}}]}}"#);
        Patch::from_json(&text).unwrap()
    }

    fn noted(entries: &[&str]) -> Harness {
        let mut harness = start();
        harness.memory.kind = harness::MemoryKind::Notes;
        harness.memory.capacity = 4;
        harness.memory.entries = entries.iter().map(|entry| (*entry).to_owned()).collect();
        harness
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

    /// A cluster of a rule with this weight, whose rollouts are of these tasks.
    fn weighing(name: &str, weight: u64, tasks: std::ops::Range<u32>) -> Cluster {
        let tasks: BTreeSet<TaskId> = tasks.map(|task| TaskId::new(format!("t{task}"))).collect();
        Cluster {
            weight,
            predicted: Predicted {
                fixes: tasks.clone(),
                at_risk: BTreeSet::new(),
            },
            tasks,
            ..asking(name, rule(name).unwrap().root_cause)
        }
    }

    #[test]
    fn the_heaviest_cluster_has_two_of_the_first_four() {
        let first_five = |clusters: &[Cluster]| -> Vec<String> {
            let proposals = propose(&start(), clusters, &[]).into_iter();
            proposals.map(|proposal| proposal.rule).take(5).collect()
        };
        // Each of the others weighs more than a quarter of it.
        let others = |weights: [u64; 3], tasks: [std::ops::Range<u32>; 3]| {
            let rules = [
                "tool_description_vague",
                "call_format_unused",
                "protocol_lesson_not_kept",
            ];
            let others = rules.into_iter().zip(weights).zip(tasks);
            let others = others.map(|((rule, weight), tasks)| weighing(rule, weight, tasks));
            others.collect::<Vec<Cluster>>()
        };
        let heaviest = weighing("example_missing", 60, 0..20);
        let mut clusters = vec![heaviest.clone()];
        clusters.extend(others([20; 3], [20..30, 30..40, 40..50]));
        let expected = [
            "example_missing",
            "tool_description_vague",
            "call_format_unused",
            "example_missing",
            "protocol_lesson_not_kept",
        ];
        assert_eq!(first_five(&clusters), expected);
        // Another cluster of its dimension doesn't take the place that the bound leaves.
        clusters.insert(1, weighing("tool_not_asked_for", 59, 50..70));
        assert_eq!(first_five(&clusters), expected);
        // Clusters of the same tasks in other dimensions are for them too: nothing is moved.
        let mut clusters = vec![heaviest];
        clusters.extend(others([20; 3], [0..20, 0..10, 40..50]));
        assert_eq!(
            first_five(&clusters)[..4],
            [
                "example_missing",
                "tool_description_vague",
                "call_format_unused",
                "protocol_lesson_not_kept",
            ]
        );
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
        let other = Patch::from_json(other).unwrap();
        let rejected = TriedPatch::new(&start(), other, PolicyId::new("theta-9"), false);
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
        let tried = |policy: &str, is_accepted| {
            TriedPatch::new(&start(), first.clone(), PolicyId::new(policy), is_accepted)
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
    fn a_rejected_removal_is_known_by_what_it_removes() {
        let removal = |place: usize| {
            notes(&format!(
                r#""op":"remove","path":"memory.entries[{place}]""#
            ))
        };
        let (all, rest) = (noted(&["a", "b", "c"]), noted(&["b", "c"]));
        let policy = PolicyId::new("theta-0");
        let history = [TriedPatch::new(&all, removal(1), policy, false)];
        let proposes = |harness: &Harness, place| {
            let clusters = [asking_of_notes(&removal(place))];
            !propose(harness, &clusters, &history).is_empty()
        };
        // "b" has moved to the front, and "c" to where it was.
        assert!(proposes(&all, 0) && !proposes(&all, 1) && proposes(&all, 2));
        assert!(!proposes(&rest, 0) && proposes(&rest, 1));
    }

    #[test]
    fn what_was_too_large_is_proposed_again_once_there_is_room() {
        let limits = GrowthLimits {
            memory_tokens: 10,
            ..GrowthLimits::default()
        };
        let addition = notes(&format!(
            r#""op":"add","path":"memory.entries","value":"{}""#,
            "n".repeat(24)
        ));
        let full = noted(&[&"o".repeat(36)]);
        let too_large = limits
            .check(&full, &addition.apply(&full).unwrap())
            .unwrap_err();
        let tried = |too_large| TriedPatch {
            too_large,
            ..TriedPatch::new(&full, addition.clone(), PolicyId::new("theta-0"), false)
        };
        let proposes = |harness: &Harness, tried: TriedPatch| {
            !propose(harness, &[asking_of_notes(&addition)], &[tried]).is_empty()
        };
        for (kept, has_room) in [(36, false), (20, false), (16, true)] {
            let harness = noted(&[&"o".repeat(kept)]);
            assert_eq!(
                proposes(&harness, tried(Some(too_large))),
                has_room,
                "{kept}"
            );
            // What the gate has turned down stays so.
            assert!(!proposes(&harness, tried(None)), "{kept}");
        }
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
