//! Removal: of two accepted patches the one that nobody misses goes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use coharness::harness_loop::Head;
use coharness::history::History;
use coharness::report::Report;
use coharness::splits::Splits;
use coharness::workshop::Workshop;
use registry::Origin;
use rollout::{Message, Policy, PolicyError};

use crate::Place;
use crate::counting::{self, boxed, number_in};
use crate::scene::{FortyTwo, Scene, Scripted, accept, on, small};

/// What the model needs to be told.
const TOLD: &str = "Write the final answer in a box.";

/// Knows the answer, and gives it where it is told how.
fn reply(messages: &[Message]) -> String {
    match messages[0].content.contains("in a box") {
        true => boxed(3 * number_in(messages)),
        false => "I know, but I won't say.".to_owned(),
    }
}

async fn workshop(directory: &Path, margin: u32, policy: Arc<dyn Policy>) -> Workshop {
    let mut splits = Splits::only_test(Vec::new());
    splits.gate = counting::triangles(80);
    let more = format!(
        "gate: {{tasks: 30, retest_every: 1, retest_margin_points: {margin}}}
faults: {{first_pause_ms: 1, longest_pause_s: 1}}"
    );
    let scene = Scene {
        config: &small([1, 80, 1], &more),
        splits,
        directory,
        is_aloud: false,
    };
    let mut start = harness::naive().expect("the shipped harness");
    start.prompts.final_answer.clear();
    let tools = Arc::new(FortyTwo);
    let workshop = scene.with_tools(&start, tools).await;
    workshop.with_policy(None, policy)
}

/// A version with a patch that nobody needs and one without which nothing is solved.
fn patched(workshop: &Workshop) -> Head {
    let first = workshop.head("v1").expect("v1");
    let idle = "{{ problem }}\n\nTake your time.";
    let second = accept(workshop, &first, "prompts.task", idle);
    accept(workshop, &second, "prompts.final_answer", TOLD)
}

/// Three rounds of re-tests; the versions that are head after each.
async fn rounds(workshop: &Workshop) -> (Vec<String>, History) {
    let first = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let mut standing = on(&patched(workshop));
    let mut names = Vec::new();
    for round in 2..=4 {
        let left = workshop.retest(round, standing, &mut history).await;
        standing = left.expect("a decision");
        names.push(standing.head.name());
    }
    let prompts = &standing.head.harness.prompts;
    assert_eq!(prompts.task, first.harness.prompts.task);
    assert_eq!(prompts.final_answer, TOLD);
    (names, history)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_that_nobody_misses_goes_and_one_that_is_needed_stays() {
    let place = Place::new();
    let scene = workshop(place.path(), 10, Scripted::policy("knows", reply)).await;
    let (names, history) = rounds(&scene).await;
    assert_eq!(names, ["v4", "v4", "v4"]);
    // With the same weights the critic isn't to come up with it again.
    let [tried] = &history.tried[..] else {
        panic!("{:?}", history.tried);
    };
    assert!(!tried.is_accepted && tried.patch.summary == "set prompts.task");
    // Nothing of this counts as a decision on a patch.
    let mut discoveries = history.discoveries;
    assert_eq!(discoveries.enter(1)[0].number, 1);

    let report = Report::read(&scene.store).await.expect("a report");
    let rows: Vec<(u32, &str, Option<&str>)> = report
        .removals
        .iter()
        .map(|row| (row.round, row.removes.as_str(), row.version.as_deref()))
        .collect();
    // The needed one is looked at again once the other is gone, and then not again.
    assert_eq!(
        rows,
        [(2, "v2", Some("v4")), (2, "v3", None), (3, "v3", None)]
    );
    let (idle, needed) = (&report.removals[0], &report.removals[1]);
    assert_eq!(
        (idle.stages.len(), idle.rollouts),
        (1, 60),
        "one look, no difference"
    );
    assert_eq!(
        (needed.stages.len(), needed.stages[0].delta_out.lost),
        (1, 60)
    );
    assert_eq!(idle.stages[0].delta_in.pairs, 0);
    let spending = idle.spending.expect("it was measured");
    let tokens = spending.candidate.completion_tokens;
    assert_eq!((spending.candidate.rollouts, tokens), (60, 60 * 20));
    assert_eq!(spending.incumbent.prompt_tokens, 60 * 50);

    let version = scene.head("v4").expect("v4").version;
    let Origin::Patch(acceptance) = &version.origin else {
        panic!("{:?}", version.origin);
    };
    let decision = &acceptance.decision;
    assert_eq!(
        decision.removes.map(|v| v.to_string()).as_deref(),
        Some("v2")
    );
    assert_eq!(version.summary, "P: remove v2: set prompts.task");
    for part in [
        "margin 10 points",
        "stage 1: +0 -0 of 60; test 1 at level",
        " s, 50.00 + 20.00 tokens; the incumbent's ",
    ] {
        assert!(
            decision.gate_detail.contains(part),
            "{}",
            decision.gate_detail
        );
    }

    // Started again, it comes to the same.
    drop(scene);
    let again = workshop(place.path(), 10, Scripted::policy("knows", reply)).await;
    assert_eq!(rounds(&again).await.0, names);
    assert_eq!(Report::read(&again.store).await.expect("a report"), report);
    let versions = again.with_registry(registry::Registry::history);
    assert_eq!(versions.expect("a history").len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_that_others_build_on_is_told_of_and_not_tried() {
    let place = Place::new();
    let workshop = workshop(place.path(), 10, Scripted::policy("knows", reply)).await;
    let first = workshop.head("v1").expect("v1");
    let below = accept(&workshop, &first, "prompts.final_answer", "Be brief.");
    let standing = on(&accept(&workshop, &below, "prompts.final_answer", TOLD));
    let mut history = History::new(0.05);
    let kept = workshop.retest(2, standing, &mut history).await;
    assert_eq!(kept.expect("a decision").head.name(), "v3");
    let report = Report::read(&workshop.store).await.expect("a report");
    let [needed, below] = &report.removals[..] else {
        panic!("{:?}", report.removals);
    };
    assert_eq!((needed.removes.as_str(), needed.is_untested), ("v3", false));
    assert_eq!((below.removes.as_str(), below.is_untested), ("v2", true));
    assert_eq!((below.rollouts, below.stages.len()), (0, 0));
    assert_eq!(
        below.verdict.objection().as_deref(),
        Some("a later change builds on it (prompts.final_answer: it has changed since)")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_whose_pairs_could_not_be_made_is_tried_without_again() {
    let place = Place::new();
    let is_down = Arc::new(AtomicBool::new(true));
    let down = Arc::clone(&is_down);
    let policy = Scripted::failing("knows", move |messages| {
        if down.load(Ordering::Relaxed) && number_in(messages).is_multiple_of(3) {
            return Err(PolicyError::Unavailable {
                attempts: 1,
                reason: "not now".into(),
            });
        }
        Ok(reply(messages))
    });
    let workshop = workshop(place.path(), 20, policy).await;
    let mut history = History::new(0.05);
    let standing = on(&patched(&workshop));
    let kept = workshop.retest(2, standing, &mut history).await;
    let kept = kept.expect("a decision");
    assert_eq!(kept.head.name(), "v3");
    is_down.store(false, Ordering::Relaxed);
    let kept = workshop.retest(3, kept, &mut history).await;
    assert_eq!(kept.expect("a decision").head.name(), "v4");
    let report = Report::read(&workshop.store).await.expect("a report");
    let ends: Vec<(u32, &str, Option<String>)> = report
        .removals
        .iter()
        .map(|row| (row.round, row.removes.as_str(), row.verdict.objection()))
        .collect();
    // After the first look the other twenty problems might have made up for it.
    let unmeasured = "stage 2: only 54 of 80 pairs count (26 kept from being made)";
    assert_eq!(ends[0], (2, "v2", Some(unmeasured.to_owned())));
    // That forty pairs are lost is seen without the others.
    let at_once = ends[1].2.as_deref().expect("an objection");
    assert!(
        ends[1].1 == "v3" && at_once.starts_with("stage 1: it is missed"),
        "{at_once}"
    );
    assert_eq!(ends[2], (3, "v2", None));
    let missed = ends[3].2.as_deref().expect("an objection");
    assert!(
        ends[3].1 == "v3" && missed.contains("it is missed"),
        "{missed}"
    );
}
