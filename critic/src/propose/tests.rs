use harness::Dimension;
use proptest::prelude::*;
use rollout::{Columns, Event, PolicyId, Trajectory, load_tasks};

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
    let text = include_str!("../../../configs/tasks/arithmetic.jsonl");
    let tasks = load_tasks(text, "arithmetic", &Columns::default()).unwrap();
    let guard = LeakGuard::new(tasks.iter(), std::iter::empty());
    for patch in all_patches(&start()) {
        assert_eq!(guard.check(&patch), Ok(()), "{}", patch.summary);
    }
}
