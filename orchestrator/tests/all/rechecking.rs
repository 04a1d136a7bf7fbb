//! `coharness eval` under gold answers or a verifier that changed between two commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::server::{self, Answer};
use crate::{Place, tasks, write_harness};

/// Says √((i + 1)²) to "What is i + 1?", which `integer` can't read and `math` can.
const ROOT: fn(u32) -> String = |number| format!("\\boxed{{\\sqrt{{{}^2}}}}", number + 1);

/// A place with six problems and a server that gives an `answer` to each; how often it was asked.
fn place(answer: fn(u32) -> String) -> (Place, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let url = server::serve(move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        Answer::Says(format!("It is {}.", answer(server::number(request))))
    });
    let place = Place::new();
    place.write("eval.jsonl", &tasks(6));
    let splits = "{evolve: 2, gate: 4, test: 2}";
    place.write("run.yaml", &server::config(&url, splits, ""));
    (place, asked)
}

/// How many problems are solved, and what the command says beside its result.
fn eval(place: &Place, more: &[&str]) -> (u64, String) {
    let arguments = [
        "eval",
        "--config",
        "run.yaml",
        "--tasks",
        "eval.jsonl",
        "--json",
    ];
    let output = place.command(&[&arguments[..], more].concat()).output();
    let output = output.expect("runs");
    assert!(output.status.success(), "{}", place.transcript(&output));
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let results = result["results"].as_array().expect("a list");
    let correct = results.iter().map(|row| row["correct"].as_u64());
    let correct = correct.sum::<Option<u64>>().expect("counts");
    (
        correct,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn a_gold_answer_that_was_mended_counts_without_another_rollout() {
    let (place, asked) = place(|number| format!("\\boxed{{{}}}", number + 1 + number % 2));
    assert_eq!(eval(&place, &[]).0, 3);
    let mended = tasks(6).replace(
        "\"What is 1 + 1?\",\"answer\":\"2\"",
        "\"What is 1 + 1?\",\"answer\":\"3\"",
    );
    place.write("eval.jsonl", &mended);
    let (correct, messages) = eval(&place, &[]);
    assert_eq!((correct, asked.load(Ordering::Relaxed)), (4, 6));
    assert!(
        messages.contains("1 of 1 kept rollout that was judged anew got another verdict"),
        "{messages}"
    );
    // The record says so too, and once is enough.
    let list = [
        "trajectories",
        "list",
        "--json",
        "--run",
        "evaluations/small-seed0",
    ];
    let right = [&list[..], &["--outcome", "correct"]].concat();
    let output = place.command(&right).output().expect("runs");
    let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(rows.as_array().map(Vec::len), Some(4));
    let (correct, messages) = eval(&place, &[]);
    assert_eq!(correct, 4);
    assert!(!messages.contains("judged anew"), "{messages}");
}

#[test]
fn another_verifier_reads_the_kept_rollouts() {
    let (place, asked) = place(ROOT);
    assert_eq!(eval(&place, &[]).0, 0);
    let (correct, messages) = eval(&place, &["--set", "tasks.verifier=math"]);
    assert_eq!((correct, asked.load(Ordering::Relaxed)), (6, 6));
    assert!(messages.contains("6 of 6 kept rollouts"), "{messages}");
    assert_eq!(eval(&place, &[]).0, 0);
    assert_eq!(asked.load(Ordering::Relaxed), 6);
}

#[test]
fn only_rollouts_that_may_have_gone_another_way_are_made_again() {
    let (place, asked) = place(ROOT);
    write_harness(&place, "nudging", |text| {
        text.replace(
            "post_model_call: []",
            "post_model_call: [{type: nudge, message: 'And the answer?', max: 1}]",
        )
    });
    let harness = ["--harness", "nudging"];
    assert_eq!(eval(&place, &harness).0, 0);
    // Numbers are found alike whatever they are compared with.
    let numeric = r#"tasks.verifier={"numeric": {"tolerance": 1.0e-6}}"#;
    eval(&place, &[&harness[..], &["--set", numeric]].concat());
    assert_eq!(asked.load(Ordering::Relaxed), 6);
    let math = [&harness[..], &["--set", "tasks.verifier=math"]].concat();
    let (correct, messages) = eval(&place, &math);
    assert_eq!((correct, asked.load(Ordering::Relaxed)), (6, 12));
    assert!(
        messages.contains("6 kept rollouts are made again: hooks of the harness act on answers"),
        "{messages}"
    );
}

#[test]
fn a_program_of_the_users_is_asked_each_time() {
    let (place, asked) = place(ROOT);
    let program = place.write("check.sh", "exit 1");
    let verifier = json!({"command": {"program": "sh", "arguments": [program]}});
    let verifier = format!("tasks.verifier={verifier}");
    let eval = || eval(&place, &["--set", &verifier]).0;
    assert_eq!(eval(), 0);
    place.write("check.sh", "exit 0");
    assert_eq!(eval(), 6);
    // What isn't known gets another try.
    place.write("check.sh", "exit 9");
    assert_eq!(eval(), 0);
    assert_eq!(asked.load(Ordering::Relaxed), 6);
}

/// Earlier versions didn't record what a verdict rests on.
#[tokio::test]
async fn rollouts_of_earlier_versions_are_judged_anew() {
    let (place, asked) = place(ROOT);
    assert_eq!(eval(&place, &[]).0, 0);
    let database = place
        .path()
        .join(".coharness/runs/evaluations/small-seed0/run.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(database);
    let pool = sqlx::SqlitePool::connect_with(options)
        .await
        .expect("opens");
    sqlx::query("UPDATE trajectory SET basis = NULL")
        .execute(&pool)
        .await
        .expect("a column");
    pool.close().await;
    assert_eq!(eval(&place, &["--set", "tasks.verifier=math"]).0, 6);
    assert_eq!(asked.load(Ordering::Relaxed), 6);
}
