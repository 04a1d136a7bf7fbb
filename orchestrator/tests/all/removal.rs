//! Removal: of two accepted patches the one that nobody misses goes.

use std::path::Path;
use std::sync::Arc;

use coharness::history::History;
use coharness::report::Report;
use coharness::splits::Splits;
use coharness::standing::Standing;
use coharness::workshop::Workshop;
use registry::Origin;
use rollout::Message;

use crate::Place;
use crate::scene::{FortyTwo, Scene, Scripted, accept, first_number, numbered, small};

/// Knows the answer, and gives it where it is told how.
fn reply(messages: &[Message]) -> String {
    let answer = 3 * first_number(&messages[messages.len() - 1].content);
    match messages[0].content.contains("in a box") {
        true => format!("The answer is \\boxed{{{answer}}}."),
        false => "I know, but I won't say.".to_owned(),
    }
}

async fn workshop(directory: &Path) -> Workshop {
    let text = |number: u32| format!("How many sides have {number} triangles?");
    let mut splits = Splits::only_test(Vec::new());
    splits.gate = numbered("triangle", 80, text, |number| 3 * number);
    let scene = Scene {
        config: &small(
            [1, 80, 1],
            "gate: {tasks: 30, retest_every: 1, retest_margin_points: 10}",
        ),
        splits,
        directory,
        is_aloud: false,
    };
    let mut start = harness::naive().expect("the shipped harness");
    start.prompts.final_answer.clear();
    let tools = Arc::new(FortyTwo);
    let workshop = scene.with_tools(&start, tools).await;
    workshop.with_policy(None, Scripted::policy("knows", reply))
}

/// Three rounds of re-tests; the versions that are head after each.
async fn rounds(workshop: &Workshop) -> (Vec<String>, History) {
    let first = workshop.head("v1").expect("v1");
    let idle = "{{ problem }}\n\nTake your time.";
    let second = accept(workshop, &first, "prompts.task", idle);
    let told = "Write the final answer in a box.";
    let third = accept(workshop, &second, "prompts.final_answer", told);
    let mut history = History::new(0.05);
    let mut standing = Standing {
        head: third,
        adapter: None,
    };
    let mut names = Vec::new();
    for round in 2..=4 {
        let left = workshop.retest(round, standing, &mut history).await;
        standing = left.expect("a decision");
        names.push(standing.head.name());
    }
    let prompts = &standing.head.harness.prompts;
    assert_eq!(prompts.task, first.harness.prompts.task);
    assert_eq!(prompts.final_answer, told);
    (names, history)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_that_nobody_misses_goes_and_one_that_is_needed_stays() {
    let place = Place::new();
    let scene = workshop(place.path()).await;
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
        (2, 80),
        "one pass, no difference"
    );
    assert_eq!(
        (needed.stages.len(), needed.stages[0].delta_out.lost),
        (1, 60)
    );
    assert_eq!(idle.stages[0].delta_in.pairs, 0);

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
    for part in ["margin 10 points", "stage 2: +0 −0 of 20; test 1 at level"] {
        assert!(
            decision.gate_detail.contains(part),
            "{}",
            decision.gate_detail
        );
    }

    // Started again, it comes to the same.
    drop(scene);
    let again = workshop(place.path()).await;
    assert_eq!(rounds(&again).await.0, names);
    assert_eq!(Report::read(&again.store).await.expect("a report"), report);
    let versions = again.with_registry(registry::Registry::history);
    assert_eq!(versions.expect("a history").len(), 4);
}
