//! The head beside the start of the run and the best so far.

use std::path::Path;
use std::sync::Arc;

use coharness::harness_loop::Head;
use coharness::history::History;
use coharness::reference::Reference;
use coharness::report::{Cause, Point, Report, kind};
use coharness::splits::Splits;
use coharness::workshop::Workshop;
use rollout::Message;
use serde_json::json;

use crate::Place;
use crate::counting::{self, boxed, level, number_in};
use crate::scene::{FortyTwo, Scene, Scripted, accept, accepted, on, remember, small};

/// Solves as many of forty problems as the prompt says.
fn reply(messages: &[Message]) -> String {
    let number = number_in(messages);
    boxed(4 * number + u32::from(number > level(messages, 10)))
}

async fn workshop(directory: &Path) -> Workshop {
    let mut splits = Splits::only_test(Vec::new());
    splits.gate = counting::squares(40);
    let scene = Scene {
        config: &small([1, 40, 1], "gate: {reference_every: 2}"),
        splits,
        directory,
        is_aloud: false,
    };
    let start = harness::naive().expect("the shipped harness");
    let workshop = scene.with_tools(&start, Arc::new(FortyTwo)).await;
    workshop.with_policy(None, Scripted::policy("counts", reply))
}

/// A version that solves `level` of the problems.
fn version(workshop: &Workshop, parent: &Head, level: u32) -> Head {
    let text = format!("Solve up to {level}.");
    accept(workshop, parent, "prompts.system", &text)
}

/// Four checks in eight rounds; the versions that the run stands on after each.
async fn checks(workshop: &Workshop) -> (Vec<String>, History) {
    let start = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let mut reference = Reference::new(on(&start));
    let mut head = start.clone();
    let mut names = Vec::new();
    // A gain; a small loss that isn't shown; one more, which is shown against the best; nothing new.
    for (round, level) in [(2, 30), (4, 28), (6, 18), (8, 0)] {
        if level > 0 {
            head = version(workshop, &head, level);
            remember(&mut history, &head, "counts");
        }
        // Rounds between checks change nothing.
        for round in [round - 1, round] {
            let kept = workshop.refer(round, on(&head), &mut reference, &mut history);
            head = kept.await.expect("a decision").head;
        }
        names.push(head.name());
    }
    (names, history)
}

#[tokio::test(flavor = "multi_thread")]
async fn losses_that_add_up_are_seen_against_the_best_and_the_run_goes_back_there() {
    let place = Place::new();
    let scene = workshop(place.path()).await;
    let (names, history) = checks(&scene).await;
    assert_eq!(names, ["v2", "v3", "v5", "v5"]);
    assert_eq!(accepted(&history), [true, false, false]);

    let report = Report::read(&scene.store).await.expect("a report");
    let rows: Vec<(u32, Point, &str, u32, u32, bool)> = report
        .references
        .iter()
        .map(|row| {
            let (old, new) = (row.rate_reference.correct, row.rate_head.correct);
            let version = row.reference.version.as_str();
            (row.round, row.point, version, old, new, row.loss.is_shown)
        })
        .collect();
    assert_eq!(
        rows,
        [
            (2, Point::Best, "v1", 10, 30, false),
            (4, Point::Best, "v2", 30, 28, false),
            (4, Point::Start, "v1", 10, 28, false),
            (6, Point::Best, "v2", 30, 18, true),
            (8, Point::Start, "v1", 10, 30, false),
        ]
    );
    let [back] = &report.rollbacks[..] else {
        panic!("{:?}", report.rollbacks);
    };
    assert_eq!(
        (back.cause, back.to.version.as_str()),
        (Cause::Reference, "v2")
    );
    assert_eq!(back.version.as_deref(), Some("v5"));
    assert_eq!(back.undone, ["v3", "v4"]);
    let reason =
        "round 6: v4 with the base weights beside the best so far, v2 with the base weights";
    assert!(back.reason.starts_with(reason), "{}", back.reason);
    assert!(back.reason.contains("+0 -12 of 40"), "{}", back.reason);

    // Started again, it comes to the same.
    drop(scene);
    let again = workshop(place.path()).await;
    assert_eq!(checks(&again).await.0, names);
    assert_eq!(Report::read(&again.store).await.expect("a report"), report);
    let versions = again.with_registry(registry::Registry::history);
    assert_eq!(versions.expect("a history").len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_way_back_is_found_again_in_the_words_that_an_earlier_version_had_for_it() {
    let place = Place::new();
    let scene = workshop(place.path()).await;
    let start = scene.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let mut reference = Reference::new(on(&start));
    let better = version(&scene, &start, 30);
    let kept = scene.refer(2, on(&better), &mut reference, &mut history);
    assert_eq!(kept.await.expect("a decision").head.name(), "v2");

    let worse = version(&scene, &better, 18);
    let reason = "round 4: v3 has lost (+0 −12 of 40)";
    let target = better.version.name;
    scene
        .with_registry(|registry| registry.rollback_from(&worse.version, target, reason, 0))
        .expect("v4");
    let of = |version: &str| json!({"version": version, "adapter": null});
    let row = json!({"round": 4, "cause": "reference", "from": of("v3"), "to": of("v2"), "version": "v4",
        "undone": ["v3"], "reason": reason});
    let recorded = scene
        .store
        .record_step("a way back", kind::ROLLBACK, 4, &row, 0)
        .await;
    recorded.expect("a step");
    let kept = scene.refer(4, on(&worse), &mut reference, &mut history);
    assert_eq!(kept.await.expect("a decision").head.name(), "v4");
    let versions = scene.with_registry(registry::Registry::history);
    assert_eq!(versions.expect("a history").len(), 4);
}
