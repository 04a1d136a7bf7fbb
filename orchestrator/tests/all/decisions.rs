//! Decisions on patches that help: they can't be measured at first, or take too much.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use coharness::history::History;
use coharness::report::{Outcomes, PatchRow, Report, Source, kind};
use coharness::splits::Splits;
use coharness::workshop::Workshop;
use rollout::{Message, Policy, PolicyError};
use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use crate::Place;
use crate::counting;
use crate::scene::{FortyTwo, Scene, Scripted, first_number, small};

/// Problems that the critic sees; those with higher numbers are the gate's.
const EVOLVE: u32 = 12;
const GATE: u32 = 40;

/// What a conversation says, but for the numbers.
fn shape(messages: &[Message]) -> String {
    let text = messages.iter().flat_map(|message| message.content.chars());
    text.filter(|c| !c.is_ascii_digit()).collect()
}

/// The number of the problem.
pub(crate) fn squares(messages: &[Message]) -> u32 {
    let mut texts = messages.iter().rev().map(|message| &message.content);
    let rest = texts.find_map(|text| text.split("sides have ").nth(1));
    first_number(rest.expect("a problem"))
}

/// A model that is wrong, and never calls its tool, under the harness that it meets first, and right, at
/// length, under any that tells it something else. While `is_down` says so it can't be had for a third of
/// the gate's problems then.
pub(crate) fn contrary(is_down: &Arc<AtomicBool>) -> Arc<dyn Policy> {
    let (first, is_down) = (OnceLock::<String>::new(), Arc::clone(is_down));
    Scripted::counted("contrary", move |messages| {
        let shape = shape(messages);
        let is_first = *first.get_or_init(|| shape.clone()) == shape;
        let number = squares(messages);
        let is_gone = number > EVOLVE && number.is_multiple_of(3) && !is_first;
        if is_gone && is_down.load(Ordering::Relaxed) {
            return Err(PolicyError::Unavailable {
                attempts: 1,
                reason: "not now".into(),
            });
        }
        let thoughts = if is_first { 0 } else { 20 };
        let answer = 4 * number + u32::from(is_first);
        Ok(format!(
            "{}I think it is \\boxed{{{answer}}}.",
            "Step by step. ".repeat(thoughts)
        ))
    })
}

async fn workshop(directory: &Path, objective: &str) -> Workshop {
    workshop_in("paper", directory, objective).await
}

async fn workshop_in(mode: &str, directory: &Path, objective: &str) -> Workshop {
    let mut tasks = counting::squares(EVOLVE + GATE);
    let mut splits = Splits::only_test(Vec::new());
    splits.gate = tasks.split_off(EVOLVE as usize);
    splits.evolve = tasks;
    let more = format!(
        "objective: {objective}
gate: {{mode: {mode}, tasks: 40}}
harness_loop: {{iterations: 1, diagnose_tasks: 12, candidates: 100}}
faults: {{first_pause_ms: 1, longest_pause_s: 1}}"
    );
    let scene = Scene {
        config: &small([EVOLVE, GATE, 1], &more),
        splits,
        directory,
        is_aloud: false,
    };
    let start = harness::naive().expect("the shipped harness");
    scene.with_tools(&start, Arc::new(FortyTwo)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_that_could_not_be_measured_is_not_held_against_it() {
    let place = Place::new();
    let workshop = workshop(place.path(), "accuracy").await;
    let is_down = Arc::new(AtomicBool::new(true));
    let policy = contrary(&is_down);
    let mut history = History::new(0.05);
    let start = workshop.head("v1").expect("v1");
    let looped = workshop.harness_loop(1, start, &policy, &mut history).await;
    let head = looped.expect("a loop");
    assert_eq!(head.name(), "v1");
    let report = Report::read(&workshop.store).await.expect("a report");
    let rows = &report.patch_decisions;
    let open: Vec<&PatchRow> = rows.iter().filter(|row| row.is_open).collect();
    assert!(!open.is_empty(), "{rows:#?}");
    for row in &open {
        let reason = row.verdict.objection().expect("an objection");
        assert!(
            reason.contains("only 27 of 40 pairs on V_in count (13 kept from being made)"),
            "{reason}"
        );
    }
    // Neither the critic nor the scoreboard takes these for rejected, and all others are.
    let ops = |tried: &critic::TriedPatch| serde_json::to_value(&tried.patch.ops).expect("JSON");
    let tried: Vec<serde_json::Value> = history.tried.iter().map(ops).collect();
    for row in rows {
        assert_eq!(tried.contains(&row.ops), !row.is_open, "{row:#?}");
    }
    let scored: u32 = report.scoreboard.iter().map(|row| row.rejected).sum();
    assert_eq!(scored as usize, rows.len() - open.len());

    // The journal says what was left out; a second measurement isn't the first one again.
    is_down.store(false, Ordering::Relaxed);
    let looped = workshop.harness_loop(2, head, &policy, &mut history).await;
    assert_eq!(looped.expect("a loop").name(), "v2");
    let report = Report::read(&workshop.store).await.expect("a report");
    let was_open = |row: &&PatchRow| open.iter().any(|known| known.ops == row.ops);
    let again = report.patch_decisions.iter().filter(|row| row.round == 2);
    let again: Vec<&PatchRow> = again.filter(was_open).collect();
    assert!(!again.is_empty(), "{:#?}", report.patch_decisions);
    for row in again {
        let seen = row.stages[0].delta_in;
        assert_eq!((seen.pairs, seen.gained, row.is_open), (40, 40, false));
    }
}

/// A model that is wrong under the harness that it meets first, and about every fourth problem under any
/// other.
fn often_wrong() -> Arc<dyn Policy> {
    let first = OnceLock::<String>::new();
    Scripted::counted("often wrong", move |messages| {
        let shape = shape(messages);
        let is_first = *first.get_or_init(|| shape.clone()) == shape;
        let number = squares(messages);
        let is_wrong = is_first || number.is_multiple_of(4);
        let answer = 4 * number + u32::from(is_wrong);
        Ok(format!("I think it is \\boxed{{{answer}}}."))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_last_version_fails_of_is_known_without_another_cycle() {
    let place = Place::new();
    let first = workshop(place.path(), "accuracy").await;
    let policy = often_wrong();
    let start = first.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let looped = first.harness_loop(1, start, &policy, &mut history).await;
    assert_eq!(looped.expect("a loop").name(), "v2");
    let report = Report::read(&first.store).await.expect("a report");
    assert_eq!(report.diagnoses.len(), 1);
    let failures: Vec<(&str, Source, usize, usize)> = report
        .failures
        .iter()
        .map(|row| {
            let Outcomes {
                rollouts, failed, ..
            } = row.outcomes;
            (row.version.as_str(), row.source, rollouts, failed)
        })
        .collect();
    assert_eq!(
        failures,
        [
            ("v1", Source::Diagnosis, 12, 12),
            ("v2", Source::Effect, 12, 3)
        ]
    );
    let causes = report.failures[1].outcomes.causes.values();
    assert_eq!(causes.sum::<usize>(), 3);

    // A run that lost the decision, and not the rollouts, comes to the same.
    first.store.clone().close().await;
    drop(first);
    let options = SqliteConnectOptions::new().filename(place.path().join("run.db"));
    let pool = SqlitePool::connect_with(options).await.expect("a database");
    sqlx::query("DELETE FROM step WHERE kind = ?")
        .bind(kind::PATCH)
        .execute(&pool)
        .await
        .expect("no decision");
    pool.close().await;
    let again = workshop(place.path(), "accuracy").await;
    let start = again.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let looped = again.harness_loop(1, start, &policy, &mut history).await;
    assert_eq!(looped.expect("a loop").name(), "v2");
    let read = Report::read(&again.store).await.expect("a report");
    assert_eq!(read, report);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_that_takes_more_than_the_objective_allows_is_rejected() {
    for (limit, version) in [(30, "v1"), (300, "v2")] {
        let place = Place::new();
        let objective = format!("{{accuracy_under: {{tokens_per_problem: {limit}}}}}");
        let workshop = workshop(place.path(), &objective).await;
        let policy = contrary(&Arc::new(AtomicBool::new(false)));
        let mut history = History::new(0.05);
        let start = workshop.head("v1").expect("v1");
        let looped = workshop.harness_loop(1, start, &policy, &mut history).await;
        assert_eq!(looped.expect("a loop").name(), version);
        let report = Report::read(&workshop.store).await.expect("a report");
        let rows = &report.patch_decisions;
        let gains = |row: &&PatchRow| row.stages.iter().any(|stage| stage.delta_in.gained > 0);
        let gaining: Vec<&PatchRow> = rows.iter().filter(gains).collect();
        assert!(!gaining.is_empty(), "{rows:#?}");
        for row in gaining {
            let spending = row.spending.expect("it was measured");
            assert!(
                spending.candidate.tokens_per_problem() > Some(60.0),
                "{spending:?}"
            );
            assert_eq!(spending.incumbent.tokens_per_problem(), Some(5.0));
            if limit == 30 {
                let reason = row.verdict.objection().expect("an objection");
                assert!(
                    reason.contains("generated tokens a problem: ")
                        && reason.contains("(the incumbent 5.000), above the limit of 30"),
                    "{reason}"
                );
                assert!(!row.is_open);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_there_is_nothing_to_measure_on_takes_no_level() {
    let place = Place::new();
    let workshop = workshop_in("sequential", place.path(), "accuracy").await;
    // Wrong where the critic looks, and right on every gate problem.
    let policy = Scripted::policy("half", |messages| {
        let number = squares(messages);
        let answer = 4 * number + u32::from(number <= EVOLVE);
        format!("I think it is \\boxed{{{answer}}}.")
    });
    let next_number = async || {
        let mut history = History::new(0.05);
        let start = workshop.head("v1").expect("v1");
        let looped = workshop.harness_loop(1, start, &policy, &mut history).await;
        assert_eq!(looped.expect("a loop").name(), "v1");
        history.discoveries.enter(1)[0].number
    };
    assert_eq!(next_number().await, 1);
    let report = Report::read(&workshop.store).await.expect("a report");
    let rows = report.patch_decisions;
    assert!(!rows.is_empty());
    for row in &rows {
        let reason = row.verdict.objection().expect("an objection");
        assert_eq!(reason, "there is no gate problem that the incumbent fails");
        assert_eq!(row.evidence, None);
    }

    // Where an earlier version gave them levels, later decisions go by the numbers that these left.
    let mut earlier = serde_json::to_value(&rows[0]).expect("JSON");
    let test = json!({"number": 1, "discoveries": 0, "level": 0.02});
    earlier["evidence"] = json!({"test": test, "benefit": [], "harm": []});
    let store = &workshop.store;
    let recorded = store
        .record_step("a row", kind::PATCH, 1, &earlier, 0)
        .await;
    recorded.expect("a step");
    assert_eq!(next_number().await as usize, rows.len() + 1);
}
