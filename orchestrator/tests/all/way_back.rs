//! What going back takes back: everything that is there, and nothing twice.

use std::path::Path;
use std::sync::Arc;

use coharness::harness_loop::Head;
use coharness::history::History;
use coharness::reference::Reference;
use coharness::report::{Report, kind};
use coharness::splits::Splits;
use coharness::standing::Standing;
use coharness::workshop::Workshop;
use rollout::Message;
use serde_json::json;

use crate::Place;
use crate::counting::{self, boxed, level, number_in};
use crate::scene::{FortyTwo, Scene, Scripted, accept, accepted, on, remember, small, trained_on};

/// What patches of these tests set.
const SYSTEM: &str = "prompts.system";
const TASK: &str = "prompts.task";

/// Solves as many of the gate's problems as the prompt says, and those of the suite unless it is
/// hurried and not told to take its time.
fn reply(messages: &[Message]) -> String {
    let (system, task) = (&messages[0].content, &messages[messages.len() - 1].content);
    let number = number_in(messages);
    boxed(if task.contains("spiders") {
        let is_hurried = system.contains("Hurry up.") && !task.contains("Take your time.");
        8 * number + u32::from(is_hurried)
    } else {
        4 * number + u32::from(number > level(messages, 40))
    })
}

fn forgets(messages: &[Message]) -> String {
    boxed(6 * number_in(messages))
}

async fn workshop(directory: &Path, system: &str) -> Workshop {
    let mut splits = Splits::only_test(Vec::new());
    splits.gate = counting::squares(40);
    splits.suites = vec![counting::legs(40)];
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

/// A run, with what its rounds hand on.
struct Run {
    workshop: Workshop,
    history: History,
    reference: Reference,
}

impl Run {
    /// One that starts with this system prompt, and its start.
    async fn open(place: &Place, system: &str) -> (Self, Head) {
        let workshop = workshop(place.path(), system).await;
        let start = workshop.head("v1").expect("v1");
        let run = Self {
            workshop,
            history: History::new(0.05),
            reference: Reference::new(on(&start)),
        };
        (run, start)
    }

    /// A version of a round with these weights, as the harness loop would have made it.
    fn version(&mut self, parent: &Head, path: &str, text: &str) -> Head {
        let head = accept(&self.workshop, parent, path, text);
        remember(&mut self.history, &head, "counts");
        head
    }

    /// What a round starts from.
    async fn begun(&mut self, round: u32, head: &Head) -> Head {
        let (reference, history) = (&mut self.reference, &mut self.history);
        let begun = self.workshop.begin(round, on(head), reference, history);
        begun.await.expect("a start").head
    }

    /// What is left of a round after its look at the suite.
    async fn retained(&mut self, round: u32, before: &Head, after: Standing) -> Standing {
        let before = on(before);
        let kept = self
            .workshop
            .retain(round, &before, after, &mut self.history);
        kept.await.expect("a decision")
    }

    /// What is left of it after the look at the run's start and its best.
    async fn referred(&mut self, round: u32, head: Standing) -> Standing {
        let (reference, history) = (&mut self.reference, &mut self.history);
        let kept = self.workshop.refer(round, head, reference, history);
        kept.await.expect("a decision")
    }

    /// What is left of it after the re-test of a patch.
    async fn retested(&mut self, round: u32, standing: Standing) -> Standing {
        let kept = self.workshop.retest(round, standing, &mut self.history);
        kept.await.expect("a decision")
    }

    /// The versions that each way back took back.
    async fn undone(&self) -> Vec<Vec<String>> {
        let rollbacks = self.report().await.rollbacks.into_iter();
        rollbacks.map(|rollback| rollback.undone).collect()
    }

    async fn report(&self) -> Report {
        let report = Report::read(&self.workshop.store).await;
        report.expect("a report")
    }

    /// A person's rollback.
    fn roll_back(&self, to: &Head) {
        let to = to.version.name;
        self.workshop
            .with_registry(|registry| registry.rollback(to, "it was enough", 7))
            .expect("a version");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_back_before_is_not_taken_back_again() {
    let place = Place::new();
    let (mut run, start) = Run::open(&place, "Solve it.").await;
    // A loss at home that nobody has looked at yet, and in the next round one on the suite.
    let worse = run.version(&start, SYSTEM, "Solve up to 10.");
    let hasty = run.version(&worse, SYSTEM, "Solve up to 10. Hurry up.");
    let kept = run.retained(2, &worse, on(&hasty)).await;
    assert_eq!(kept.head.name(), "v4");
    let kept = run.referred(2, kept).await;
    assert_eq!(kept.head.name(), "v5");
    assert_eq!(run.undone().await, [["v3"], ["v2"]]);
    assert_eq!(accepted(&run.history), [false, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_is_taken_back_leaves_no_rejected_patch() {
    let place = Place::new();
    let (mut run, start) = Run::open(&place, "Hurry up.").await;
    let calm = "{{ problem }}\n\nTake your time.";
    let calm = run.version(&start, TASK, calm);
    // At home nobody misses the patch, and on the suite everything is lost without it.
    let removed = run.retested(2, on(&calm)).await;
    assert_eq!(removed.head.name(), "v3");
    assert_eq!(accepted(&run.history), [true, false]);
    let back = run.retained(2, &calm, removed).await;
    assert_eq!(back.head.name(), "v4");
    assert_eq!(run.undone().await, [["v3"]]);
    // The patch is in the harness again, and was never found wanting.
    assert_eq!(accepted(&run.history), [true]);
    // Nor is it tried without again.
    let kept = run.retested(3, back).await;
    assert_eq!(kept.head.name(), "v4");
    assert_eq!(run.report().await.removals.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn weights_alone_go_back_where_the_harness_is_the_same_again() {
    let place = Place::new();
    let (mut run, start) = Run::open(&place, "Solve it.").await;
    let idle = run.version(&start, TASK, "{{ problem }}\n\nThink twice.");
    let removed = run.retested(2, on(&idle)).await.head;
    assert_eq!(
        (removed.name(), removed.harness.id()),
        ("v3".to_owned(), start.harness.id())
    );
    let known = run.history.tried.clone();
    let trained = trained_on(&removed, "forgets");
    let back = run.retained(2, &start, trained).await;
    assert_eq!((back.head.name(), back.adapter), ("v3".to_owned(), None));
    assert_eq!(run.undone().await, [Vec::<String>::new()]);
    assert_eq!(run.history.tried, known);
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

#[tokio::test(flavor = "multi_thread")]
async fn a_round_starts_from_what_a_person_has_put_there_and_keeps_to_it() {
    let place = Place::new();
    let (mut run, start) = Run::open(&place, "Solve it.").await;
    let first = run.version(&start, SYSTEM, "Solve up to 30.");
    let second = run.version(&first, TASK, "{{ problem }}\n\nThink twice.");
    run.reference.best = on(&second);
    let same = run.begun(2, &second).await;
    assert_eq!(same.name(), "v3");

    run.roll_back(&start);
    // The round that has begun keeps its start, the next one is another's.
    let same = run.begun(2, &second).await;
    assert_eq!(same.name(), "v3");
    assert_eq!(accepted(&run.history), [true, true]);
    let back = run.begun(3, &second).await;
    assert_eq!(back.name(), "v4");
    assert_eq!(back.harness.id(), start.harness.id());
    assert_eq!(accepted(&run.history), [false, false]);
    assert_eq!(run.reference.best.head.name(), "v4");
    assert_eq!(run.undone().await, [["v2", "v3"]]);

    // What the round makes of it, and what a person does later, don't move its start.
    let third = run.version(&back, SYSTEM, "Solve up to 20.");
    assert_eq!(third.name(), "v5");
    let again = run.begun(3, &second).await;
    assert_eq!(again.name(), "v4");

    // A commit of the person's own.
    commit_by_hand(place.path(), "v2^{tree}");
    let mine = run.begun(4, &third).await;
    assert_eq!(mine.name(), "v6");
    assert_eq!(mine.harness.id(), first.harness.id());
    let rollbacks = run.report().await.rollbacks;
    let told: Vec<String> = rollbacks.iter().map(|row| row.outline()).collect();
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
    let (mut run, start) = Run::open(&place, "Solve it.").await;
    let hasty = run.version(&start, SYSTEM, "Hurry up.");
    let back = run.retained(2, &start, on(&hasty)).await;
    assert_eq!(back.head.name(), "v3");
    // A round of a run that did not keep its start yet.
    let again = run.begun(2, &hasty).await;
    assert_eq!(again.name(), "v2");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_has_put_there_is_checked_before_a_round_keeps_to_it() {
    let place = Place::new();
    let (mut run, start) = Run::open(&place, "Solve it.").await;
    let empty = git(
        place.path(),
        &["hash-object", "-w", "-t", "tree", "/dev/null"],
    );
    commit_by_hand(place.path(), &empty);
    let (reference, history) = (&mut run.reference, &mut run.history);
    let refused = run.workshop.begin(2, on(&start), reference, history).await;
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
    let mended = run.begun(2, &start).await;
    assert_eq!(mended.name(), "v3");
    assert_eq!(mended.harness.id(), start.harness.id());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_that_is_over_starts_where_it_did_before_starts_were_kept() {
    let place = Place::new();
    let (mut run, start) = Run::open(&place, "Solve it.").await;
    let first = run.version(&start, SYSTEM, "Solve up to 30.");
    // The second round accepted nothing. Its cell is all that tells of it, as in a run of an earlier
    // version, which a person rolled back when it was finished.
    let cell = json!({
        "label": "round 2", "version": "v2", "policy": "counts", "adapter": null,
        "rate": {"pass_at_1": 0.5, "ci95": [0.0, 1.0], "correct": 1, "n": 2},
        "exits": {}, "mean_tokens": 1.0,
    });
    run.workshop
        .store
        .record_step("a cell", kind::EVALUATE, 2, &cell, 0)
        .await
        .expect("a cell");
    run.roll_back(&start);
    let over = run.begun(2, &first).await;
    assert_eq!(over.name(), "v2");
    assert_eq!(accepted(&run.history), [true]);
    let next = run.begun(3, &first).await;
    assert_eq!(next.name(), "v3");
    assert_eq!(run.undone().await, [["v2"]]);
}
