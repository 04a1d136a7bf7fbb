//! What going back takes back: everything that is there, and nothing twice.

use std::path::Path;
use std::sync::Arc;

use coharness::config::SuiteConfig;
use coharness::harness_loop::Head;
use coharness::history::History;
use coharness::reference::Reference;
use coharness::report::{Report, kind};
use coharness::splits::{Splits, Suite};
use coharness::standing::Standing;
use coharness::workshop::Workshop;
use critic::TriedPatch;
use registry::Origin;
use rollout::{Message, PolicyId};
use serde_json::json;

use crate::Place;
use crate::scene::{FortyTwo, Scene, Scripted, accept, first_number, numbered, small};

/// Solves as many of the gate's problems as the prompt says, and those of the suite unless it is
/// hurried and not told to take its time.
fn reply(messages: &[Message]) -> String {
    let (system, task) = (&messages[0].content, &messages[messages.len() - 1].content);
    let number = first_number(task);
    let answer = if task.contains("spiders") {
        let is_hurried = system.contains("Hurry up.") && !task.contains("Take your time.");
        8 * number + u32::from(is_hurried)
    } else {
        let level = match system.split_once("Solve up to ") {
            Some((_, rest)) => first_number(rest),
            None => 40,
        };
        4 * number + u32::from(number > level)
    };
    format!("The answer is \\boxed{{{answer}}}.")
}

fn forgets(messages: &[Message]) -> String {
    let answer = 6 * first_number(&messages[messages.len() - 1].content);
    format!("The answer is \\boxed{{{answer}}}.")
}

/// A run that starts with this system prompt.
async fn workshop(directory: &Path, system: &str) -> Workshop {
    let squares = |number: u32| format!("How many sides have {number} squares?");
    let spiders = |number: u32| format!("How many legs do {number} spiders have?");
    let suite = "{name: legs, path: none, tasks: 40}";
    let config: SuiteConfig = harness::yaml::from_str(suite).expect("a suite");
    let mut splits = Splits::only_test(Vec::new());
    splits.gate = numbered("square", 40, squares, |number| 4 * number);
    splits.suites = vec![Suite {
        config,
        tasks: numbered("spider", 40, spiders, |number| 8 * number),
    }];
    let gate = "gate: {tasks: 20, retest_every: 1, retest_margin_points: 20, reference_every: 1}";
    let scene = Scene {
        config: &small([1, 40, 1], gate),
        splits,
        directory,
        is_aloud: false,
    };
    let mut start = harness::naive().expect("the shipped harness");
    start.prompts.system = system.to_owned();
    let workshop = scene.with_tools(&start, Arc::new(FortyTwo)).await;
    workshop
        .with_policy(None, Scripted::policy("counts", reply))
        .with_policy(Some("forgets"), Scripted::policy("forgets", forgets))
}

fn on(head: &Head) -> Standing {
    Standing {
        head: head.clone(),
        adapter: None,
    }
}

/// A version of a round with these weights, as the harness loop would have made it.
fn version(
    workshop: &Workshop,
    parent: &Head,
    history: &mut History,
    path: &str,
    text: &str,
) -> Head {
    let head = accept(workshop, parent, path, text);
    let Origin::Patch(acceptance) = &head.version.origin else {
        panic!("{:?}", head.version.origin);
    };
    history.tried.push(TriedPatch {
        patch: acceptance.decision.patch.clone(),
        policy: PolicyId::new("counts"),
        is_accepted: true,
    });
    head
}

/// What the critic knows of each patch: whether it counts as accepted.
fn accepted(history: &History) -> Vec<bool> {
    history.tried.iter().map(|t| t.is_accepted).collect()
}

async fn undone(workshop: &Workshop) -> Vec<Vec<String>> {
    let report = Report::read(&workshop.store).await.expect("a report");
    let rollbacks = report.rollbacks.into_iter();
    rollbacks.map(|rollback| rollback.undone).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_back_before_is_not_taken_back_again() {
    let place = Place::new();
    let workshop = workshop(place.path(), "Solve it.").await;
    let start = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let mut reference = Reference::new(on(&start));
    // A loss at home that nobody has looked at yet, and in the next round one on the suite.
    let worse = version(
        &workshop,
        &start,
        &mut history,
        "prompts.system",
        "Solve up to 10.",
    );
    let hasty = version(
        &workshop,
        &worse,
        &mut history,
        "prompts.system",
        "Solve up to 10. Hurry up.",
    );
    let kept = workshop
        .retain(2, &on(&worse), on(&hasty), &mut history)
        .await
        .expect("a decision");
    assert_eq!(kept.head.name(), "v4");
    let kept = workshop.refer(2, kept, &mut reference, &mut history).await;
    assert_eq!(kept.expect("a decision").head.name(), "v5");
    assert_eq!(undone(&workshop).await, [["v3"], ["v2"]]);
    assert_eq!(accepted(&history), [false, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_is_taken_back_leaves_no_rejected_patch() {
    let place = Place::new();
    let workshop = workshop(place.path(), "Hurry up.").await;
    let start = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let calm = "{{ problem }}\n\nTake your time.";
    let calm = version(&workshop, &start, &mut history, "prompts.task", calm);
    // At home nobody misses the patch, and on the suite everything is lost without it.
    let removed = workshop.retest(2, on(&calm), &mut history).await;
    let removed = removed.expect("a decision");
    assert_eq!(removed.head.name(), "v3");
    assert_eq!(accepted(&history), [true, false]);
    let back = workshop
        .retain(2, &on(&calm), removed, &mut history)
        .await
        .expect("a decision");
    assert_eq!(back.head.name(), "v4");
    assert_eq!(undone(&workshop).await, [["v3"]]);
    // The patch is in the harness again, and was never found wanting.
    assert_eq!(accepted(&history), [true]);
    // Nor is it tried without again.
    let kept = workshop.retest(3, back, &mut history).await;
    assert_eq!(kept.expect("a decision").head.name(), "v4");
    let report = Report::read(&workshop.store).await.expect("a report");
    assert_eq!(report.removals.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn weights_alone_go_back_where_the_harness_is_the_same_again() {
    let place = Place::new();
    let workshop = workshop(place.path(), "Solve it.").await;
    let start = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let idle = "{{ problem }}\n\nThink twice.";
    let idle = version(&workshop, &start, &mut history, "prompts.task", idle);
    let removed = workshop.retest(2, on(&idle), &mut history).await;
    let removed = removed.expect("a decision").head;
    assert_eq!(
        (removed.name(), removed.harness.id()),
        ("v3".to_owned(), start.harness.id())
    );
    let trained = Standing {
        head: removed,
        adapter: Some("forgets".into()),
    };
    let known = history.tried.clone();
    let back = workshop
        .retain(2, &on(&start), trained, &mut history)
        .await
        .expect("a decision");
    assert_eq!((back.head.name(), back.adapter), ("v3".to_owned(), None));
    assert_eq!(undone(&workshop).await, [Vec::<String>::new()]);
    assert_eq!(history.tried, known);
}

/// What git says in a run's registry.
fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = std::process::Command::new("git")
        .arg("--git-dir")
        .arg(coharness::run::registry_path(directory))
        .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"])
        .args(arguments)
        .output()
        .expect("git");
    assert!(output.status.success(), "git {arguments:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A commit of a person's own with these files, on top of the registry's head.
fn commit_by_hand(directory: &Path, tree: &str) {
    let commit = git(
        directory,
        &["commit-tree", tree, "-p", "main", "-m", "mine"],
    );
    git(directory, &["update-ref", "refs/heads/main", &commit]);
}

/// What a round starts from.
async fn begun(
    workshop: &Workshop,
    round: u32,
    head: &Head,
    reference: &mut Reference,
    history: &mut History,
) -> Head {
    let begun = workshop.begin(round, on(head), reference, history).await;
    begun.expect("a start").head
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_starts_from_what_a_person_has_put_there_and_keeps_to_it() {
    let place = Place::new();
    let workshop = workshop(place.path(), "Solve it.").await;
    let start = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let mut reference = Reference::new(on(&start));
    let text = "Solve up to 30.";
    let first = version(&workshop, &start, &mut history, "prompts.system", text);
    let text = "{{ problem }}\n\nThink twice.";
    let second = version(&workshop, &first, &mut history, "prompts.task", text);
    reference.best = on(&second);
    let (refer, tried) = (&mut reference, &mut history);
    let same = begun(&workshop, 2, &second, refer, tried).await;
    assert_eq!(same.name(), "v3");

    let to = start.version.name;
    workshop
        .with_registry(|registry| registry.rollback(to, "it was enough", 7))
        .expect("v4");
    // The round that has begun keeps its start, the next one is another's.
    let same = begun(&workshop, 2, &second, refer, tried).await;
    assert_eq!(same.name(), "v3");
    assert_eq!(accepted(tried), [true, true]);
    let back = begun(&workshop, 3, &second, refer, tried).await;
    assert_eq!(back.name(), "v4");
    assert_eq!(back.harness.id(), start.harness.id());
    assert_eq!(accepted(tried), [false, false]);
    assert_eq!(refer.best.head.name(), "v4");
    assert_eq!(undone(&workshop).await, [["v2", "v3"]]);

    // What the round makes of it, and what a person does later, don't move its start.
    let text = "Solve up to 20.";
    let third = version(&workshop, &back, tried, "prompts.system", text);
    assert_eq!(third.name(), "v5");
    let again = begun(&workshop, 3, &second, refer, tried).await;
    assert_eq!(again.name(), "v4");

    // A commit of the person's own.
    commit_by_hand(place.path(), "v2^{tree}");
    let mine = begun(&workshop, 4, &third, refer, tried).await;
    assert_eq!(mine.name(), "v6");
    assert_eq!(mine.harness.id(), first.harness.id());
    let report = Report::read(&workshop.store).await.expect("a report");
    let told: Vec<String> = report.rollbacks.iter().map(|row| row.outline()).collect();
    assert_eq!(
        told,
        [
            "rolled back by hand from v3 with the base weights to v1 with the base weights as v4: \
             it was enough",
            "changed by hand from v5 with the base weights to v6 with the base weights: \
             committed by hand",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_run_itself_went_back_to_is_no_persons_doing() {
    let place = Place::new();
    let workshop = workshop(place.path(), "Solve it.").await;
    let start = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let mut reference = Reference::new(on(&start));
    let text = "Hurry up.";
    let hasty = version(&workshop, &start, &mut history, "prompts.system", text);
    let back = workshop
        .retain(2, &on(&start), on(&hasty), &mut history)
        .await
        .expect("a decision");
    assert_eq!(back.head.name(), "v3");
    // A round of a run that did not keep its start yet.
    let again = begun(&workshop, 2, &hasty, &mut reference, &mut history).await;
    assert_eq!(again.name(), "v2");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_has_put_there_is_checked_before_a_round_keeps_to_it() {
    let place = Place::new();
    let workshop = workshop(place.path(), "Solve it.").await;
    let start = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let mut reference = Reference::new(on(&start));
    let empty = git(
        place.path(),
        &["hash-object", "-w", "-t", "tree", "/dev/null"],
    );
    commit_by_hand(place.path(), &empty);
    let refused = workshop
        .begin(2, on(&start), &mut reference, &mut history)
        .await;
    let error = refused.expect_err("no harness");
    assert_eq!(
        error.to_string(),
        "v2, put on top of v1 by hand, can't be used"
    );
    let hint = error.hint().expect("a hint");
    let way_out = "`git update-ref refs/heads/main v1` and `git tag -d v2`";
    assert!(hint.contains(way_out), "{hint}");
    assert_eq!(error.exit_code(), 2);

    commit_by_hand(place.path(), "v1^{tree}");
    let mended = begun(&workshop, 2, &start, &mut reference, &mut history).await;
    assert_eq!(mended.name(), "v3");
    assert_eq!(mended.harness.id(), start.harness.id());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_that_is_over_starts_where_it_did_before_starts_were_kept() {
    let place = Place::new();
    let workshop = workshop(place.path(), "Solve it.").await;
    let start = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let mut reference = Reference::new(on(&start));
    let text = "Solve up to 30.";
    let first = version(&workshop, &start, &mut history, "prompts.system", text);
    // The second round accepted nothing. Its cell is all that tells of it, as in a run of an earlier
    // version, which a person rolled back when it was finished.
    let cell = json!({
        "label": "round 2", "version": "v2", "policy": "counts", "adapter": null,
        "rate": {"pass_at_1": 0.5, "ci95": [0.0, 1.0], "correct": 1, "n": 2},
        "exits": {}, "mean_tokens": 1.0,
    });
    workshop
        .store
        .record_step("a cell", kind::EVALUATE, 2, &cell, 0)
        .await
        .expect("a cell");
    let to = start.version.name;
    workshop
        .with_registry(|registry| registry.rollback(to, "it was enough", 7))
        .expect("v3");
    let (refer, tried) = (&mut reference, &mut history);
    let over = begun(&workshop, 2, &first, refer, tried).await;
    assert_eq!(over.name(), "v2");
    assert_eq!(accepted(tried), [true]);
    let next = begun(&workshop, 3, &first, refer, tried).await;
    assert_eq!(next.name(), "v3");
    assert_eq!(undone(&workshop).await, [["v2"]]);
}
