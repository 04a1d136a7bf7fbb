//! Retention suites: a gain at home that is paid for elsewhere is taken back.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coharness::history::History;
use coharness::report::{Cause, Report};
use coharness::splits::Splits;
use coharness::workshop::Workshop;
use rollout::{Message, Task};
use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use crate::counting::{self, boxed, number_in, spiders};
use crate::scene::{FortyTwo, Scene, Scripted, first_number, on, small, trained_on};
use crate::server::{Answer, config, serve};
use crate::{CONFIG, Place, forget_times, subjects, tasks};

/// The tasks as a file.
fn lines(tasks: &[Task]) -> String {
    let line = |task: &Task| {
        json!({"id": task.id, "problem": task.problem, "answer": task.answer}).to_string() + "\n"
    };
    tasks.iter().map(line).collect()
}

/// Worked examples help this model with sums and confuse it about spiders. It never calls the tool,
/// which the critic has patches for.
fn one_sided(request: &Value) -> String {
    let messages = request["messages"].as_array().expect("messages");
    let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
    let is_task = |text: &str| text.contains("What is") || text.contains("spiders");
    let at = messages
        .iter()
        .rposition(|message| message["role"] == "user" && is_task(&text(message)))
        .expect("a problem");
    let has_examples = messages[..at].iter().any(|m| m["role"] == "assistant");
    let problem = text(&messages[at]);
    let number = first_number(&problem);
    let is_spider = problem.contains("spiders");
    let right = if is_spider { 8 * number } else { number + 1 };
    let answer = right + u32::from(is_spider == has_examples);
    format!("I think it is \\boxed{{{answer}}}.")
}

/// A server with that model, and how often it was asked.
fn one_sided_server() -> (String, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let url = serve(move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        Answer::Says(one_sided(request))
    });
    (url, asked)
}

const SUITE: &str = "retention: [{name: legs, path: legs.jsonl, tasks: 20}]\n";

fn place(url: &str) -> Place {
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(30));
    place.write("legs.jsonl", &lines(&spiders(24)));
    let more = format!(
        "gate: {{mode: paper, tasks: 8, retest_every: 0, reference_every: 0}}
harness_loop: {{iterations: 1, diagnose_tasks: 12, candidates: 1}}
{SUITE}"
    );
    let config = config(url, "{evolve: 12, gate: 12, test: 6}", &more);
    place.write("run.yaml", &config.replace("rounds: 1", "rounds: 2"));
    place
}

const RUN: [&str; 3] = ["run", "--config", "run.yaml"];

/// Runs to the end; the report without times.
fn run(place: &Place) -> Value {
    let output = place.command(&[&RUN[..], &["--json"]].concat()).output();
    let output = output.expect("runs");
    assert!(output.status.success(), "{}", place.transcript(&output));
    let mut report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    forget_times(&mut report);
    report
}

#[test]
fn a_patch_that_destroys_a_suite_is_taken_back_and_a_kill_changes_nothing() {
    let (url, asked) = one_sided_server();
    let alone = place(&url);
    let report = run(&alone);
    let total = asked.swap(0, Ordering::Relaxed);

    // It helped at home, by the gate's own measure.
    let first = &report["patch_decisions"][0];
    assert_eq!(first["version"], "v2", "{first}");
    assert_eq!(first["stages"][0]["delta_in"]["lost"], 0);
    // Each arm's spending stands beside it: worked examples are prompt tokens.
    let spent = |arm: &str, what: &str| first["spending"][arm][what].as_u64().expect("a count");
    assert_eq!(
        spent("incumbent", "rollouts"),
        spent("candidate", "rollouts")
    );
    assert!(spent("incumbent", "prompt_tokens") < spent("candidate", "prompt_tokens"));
    // It cost the suite everything.
    let row = &report["retention"][0];
    assert_eq!((&row["round"], &row["suite"]), (&json!(1), &json!("legs")));
    assert_eq!(row["rate_before"]["correct"], 20, "{row}");
    assert_eq!(row["rate_after"]["correct"], 0, "{row}");
    assert_eq!(row["loss"]["is_shown"], true);
    let back = &report["rollbacks"][0];
    assert_eq!(back["cause"], "retention");
    assert_eq!(
        (&back["version"], &back["undone"]),
        (&json!("v3"), &json!(["v2"]))
    );
    let reason = back["reason"].as_str().expect("a reason");
    for part in ["round 1 lost too much", "suite legs", "+0 -20 of 20"] {
        assert!(reason.contains(part), "{part} in {reason}");
    }
    // The round ends, and the next one starts, with the old harness.
    let baseline = &report["test"]["baseline"];
    assert_eq!(report["test"]["rounds"][0]["version"], "v3");
    assert_eq!(report["test"]["rounds"][0]["correct"], baseline["correct"]);
    assert_eq!(report["diagnoses"][1]["version"], "v3");
    // The same patch isn't tried again with the same weights.
    let ops = |number: usize| &report["patch_decisions"][number]["ops"];
    assert_ne!(ops(0), ops(1));

    let log = subjects(&alone);
    assert!(log.contains(" v3 rollback to v1: round 1 lost"), "{log}");
    let history = alone.run(&["history"]);
    assert!(
        history.contains("rollback to v1: round 1 lost"),
        "{history}"
    );
    let shown = alone.run(&["show", "v2"]);
    // What the patch promised, and what became of it, is told beside it.
    for part in [
        "predicted:",
        "fixes:",
        "promise:",
        "effect:",
        "foresight:",
        "taken_back:",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let told = alone.run(&["report"]);
    assert!(told.contains("rolled back from v2"), "{told}");
    assert!(told.contains("before → with it"), "{told}");

    // Killed at several moments, among them while the suite is rolled out.
    let killed = place(&url);
    for share in [0.2, 0.3, 0.15, 0.2] {
        asked.store(0, Ordering::Relaxed);
        let mut child = killed
            .command(&RUN)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("runs");
        let enough = (share * total as f64) as usize;
        while asked.load(Ordering::Relaxed) < enough && child.try_wait().expect("wait").is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        // One that has ended is beyond it.
        let _ = child.kill();
        child.wait().expect("wait");
    }
    assert_eq!(run(&killed), report);
    assert_eq!(subjects(&killed), log);
}

#[test]
fn a_suite_that_shares_a_problem_or_is_too_small_is_refused_by_name() {
    let run_with = |suite: &str, section: &str| {
        let place = Place::new();
        place.write("tasks.jsonl", &tasks(8));
        place.write("legs.jsonl", suite);
        place.write("run.yaml", &format!("{CONFIG}{section}"));
        place.run(&RUN)
    };
    let legs = lines(&spiders(24));
    let shared = format!("{legs}{{\"id\":\"x\",\"problem\":\"what is 3+1?\",\"answer\":\"4\"}}\n");
    let all = SUITE.replace("20", "25");
    for (suite, section, words) in [
        (
            &shared,
            all.as_str(),
            "problems t3 (./tasks.jsonl:4) and x of retention suite legs have the same text",
        ),
        (
            &legs,
            &SUITE.replace("20", "30"),
            "retention: legs asks for 30 tasks, ./legs.jsonl has 24; lower tasks",
        ),
        (
            &legs,
            &SUITE.replace("legs.jsonl", "wings.jsonl"),
            "retention: legs: path: cannot read ./wings.jsonl",
        ),
        (
            &legs,
            &SUITE.replace("20", "3"),
            "even if all of 3 tasks were lost, that would be no evidence",
        ),
        (
            &legs,
            &SUITE.replace("tasks: 20", "max_drop_points: 80"),
            "max_drop_points must lie between 0 and 50",
        ),
        (
            &legs,
            &SUITE.replace("name: legs", "name: 'a b'"),
            "letters, digits",
        ),
    ] {
        let text = run_with(suite, section);
        assert!(text.contains(words), "{words} is missing in {text}");
        assert!(text.ends_with("--- exit 2\n"), "{text}");
    }
}

async fn workshop(directory: &Path) -> Workshop {
    let mut splits = Splits::only_test(Vec::new());
    splits.suites = vec![counting::legs(40)];
    let scene = Scene {
        config: &small([1, 4, 1], ""),
        splits,
        directory,
        is_aloud: false,
    };
    let harness = harness::naive().expect("the shipped harness");
    let knows = |messages: &[Message]| boxed(8 * number_in(messages));
    // Two of forty: five points, which are tolerated.
    let slips = |messages: &[Message]| {
        let number = number_in(messages);
        boxed((8 - u32::from(number % 20 == 7)) * number)
    };
    let forgets = |messages: &[Message]| boxed(6 * number_in(messages));
    scene
        .with_tools(&harness, Arc::new(FortyTwo))
        .await
        .with_policy(None, Scripted::policy("knows", knows))
        .with_policy(Some("slips"), Scripted::policy("slips", slips))
        .with_policy(Some("forgets"), Scripted::policy("forgets", forgets))
}

#[tokio::test(flavor = "multi_thread")]
async fn weights_that_forget_are_taken_back_and_those_that_keep_within_the_tolerance_stay() {
    let place = Place::new();
    let workshop = workshop(place.path()).await;
    let head = workshop.head("v1").expect("v1");
    let before = on(&head);
    let mut history = History::new(0.05);
    let mut retain = async |round, after| {
        let kept = workshop.retain(round, &before, after, &mut history).await;
        kept.expect("a decision")
    };
    assert_eq!(retain(1, on(&head)).await.adapter, None, "nothing changed");
    let kept = retain(2, trained_on(&head, "slips")).await;
    assert_eq!(kept.adapter.as_deref(), Some("slips"));
    let kept = retain(3, trained_on(&head, "forgets")).await;
    assert_eq!((kept.adapter, kept.head.name()), (None, "v1".into()));

    let report = Report::read(&workshop.store).await.expect("a report");
    let rows: Vec<(u32, bool, u32)> = report
        .retention
        .iter()
        .map(|row| (row.round, row.loss.is_shown, row.rate_after.correct))
        .collect();
    assert_eq!(rows, [(2, false, 38), (3, true, 0)]);
    let [back] = &report.rollbacks[..] else {
        panic!("{:?}", report.rollbacks);
    };
    assert_eq!((back.round, back.cause), (3, Cause::Retention));
    assert_eq!((&back.version, back.undone.len()), (&None, 0));
    assert_eq!(back.from.adapter.as_deref(), Some("forgets"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_found_of_a_round_stays_where_an_earlier_version_counted_otherwise() {
    let place = Place::new();
    let workshop = workshop(place.path()).await;
    let head = workshop.head("v1").expect("v1");
    let before = on(&head);
    let mut history = History::new(0.05);
    let mut retain = async |adapter: &str| {
        let after = trained_on(&head, adapter);
        let kept = workshop.retain(2, &before, after, &mut history).await;
        kept.expect("a decision").adapter
    };
    assert_eq!(retain("slips").await.as_deref(), Some("slips"));
    let options = SqliteConnectOptions::new().filename(place.path().join("run.db"));
    let pool = SqlitePool::connect_with(options).await.expect("opens");
    let found = "UPDATE step SET output = replace(output, '\"is_shown\":false', '\"is_shown\":true') \
                 WHERE kind = 'retention'";
    let changed = sqlx::query(found).execute(&pool).await.expect("a step");
    assert_eq!(changed.rows_affected(), 1);
    pool.close().await;
    assert_eq!(retain("slips").await, None);
}
