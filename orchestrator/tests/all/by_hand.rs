//! A person goes back by hand, and the run goes on from there.

use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};

use crate::scene::first_number;
use crate::server::{Answer, config, serve};
use crate::{Place, forget_times, subjects, tasks};

/// A server whose model is wrong under the harness that it is asked with first and right under any
/// other, and how often it was asked. It never calls the tool, which the critic has several patches for.
fn server() -> (String, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let first: OnceLock<Value> = OnceLock::new();
    let url = serve(move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        let messages = request["messages"].as_array().expect("messages");
        let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
        let at = messages
            .iter()
            .rposition(|message| message["role"] == "user" && text(message).contains("What is"))
            .expect("a problem");
        let opening = Value::from(messages[..at].to_vec());
        let is_first = *first.get_or_init(|| opening.clone()) == opening;
        let answer = first_number(&text(&messages[at])) + 1 + u32::from(is_first);
        Answer::Says(format!("I think it is \\boxed{{{answer}}}."))
    });
    (url, asked)
}

fn place(url: &str) -> Place {
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(30));
    let more = "gate: {mode: paper, tasks: 8, retest_every: 0, reference_every: 0}
harness_loop: {iterations: 1, diagnose_tasks: 12, candidates: 4}
";
    let config = config(url, "{evolve: 12, gate: 12, test: 6}", more);
    place.write("run.yaml", &config);
    place
}

fn arguments(rounds: &str) -> [&str; 5] {
    ["run", "--config", "run.yaml", "--rounds", rounds]
}

/// Runs to the end; the report without times.
fn run(place: &Place, rounds: &str) -> Value {
    let arguments = [&arguments(rounds)[..], &["--json"]].concat();
    let output = place.command(&arguments).output().expect("runs");
    assert!(output.status.success(), "{}", place.transcript(&output));
    let mut report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    forget_times(&mut report);
    report
}

/// One round, and back to where it started.
fn go_back(place: &Place) -> Value {
    let report = run(place, "1");
    let back = place.run(&["rollback", "v1", "--reason", "it rambles"]);
    assert!(back.contains("v3 has the files of v1"), "{back}");
    report
}

/// The patch that a round accepted.
fn accepted(report: &Value, round: u32) -> &Value {
    let rows = report["patch_decisions"].as_array().expect("decisions");
    rows.iter()
        .find(|row| row["round"] == round && !row["version"].is_null())
        .expect("an accepted patch")
}

#[test]
fn a_run_that_goes_on_starts_from_what_a_person_went_back_to() {
    let (url, asked) = server();
    let alone = place(&url);
    let before = go_back(&alone);
    assert_eq!(accepted(&before, 1)["version"], "v2");
    let again = alone.run(&["rollback", "v3", "--reason", "it rambles still"]);
    assert_eq!(
        again,
        "--- stderr\nerror: harness: v3: nothing changes: the harness is that of v3 already\n--- exit 2\n"
    );
    asked.store(0, Ordering::Relaxed);
    let report = run(&alone, "2");
    let total = asked.load(Ordering::Relaxed);

    // The first round is what it was; the second starts from the old harness, and builds on it.
    assert_eq!(
        report["patch_decisions"][0], before["patch_decisions"][0],
        "{report}"
    );
    let rounds = &report["test"]["rounds"];
    assert_eq!(rounds[0]["version"], "v2");
    assert_eq!(report["diagnoses"][1]["version"], "v3");
    let second = accepted(&report, 2);
    assert_eq!(
        (&second["parent"], &second["version"]),
        (&json!("v3"), &json!("v4"))
    );
    assert_eq!(rounds[1]["version"], "v4");
    // What the person went back from isn't what the same weights lead to again.
    assert_ne!(second["ops"], accepted(&report, 1)["ops"]);

    let place_of = |version: &str| json!({"version": version, "adapter": null});
    assert_eq!(
        report["rollbacks"],
        json!([{
            "round": 1,
            "cause": "hand",
            "from": place_of("v2"),
            "to": place_of("v1"),
            "version": "v3",
            "undone": ["v2"],
            "reason": "it rambles",
        }])
    );
    let told = alone.run(&["report"]);
    assert!(told.contains("rolled back by hand from v2"), "{told}");
    // Nothing was trained that could depend on the harness.
    assert!(!told.contains("harness debt"), "{told}");
    assert_eq!(report["matrix"]["harness_debt"], Value::Null);
    assert!(report["matrix"]["new_weights_old_harness"].is_object());
    let log = subjects(&alone);
    assert_eq!(log.lines().count(), 4, "{log}");
    assert!(log.contains(" v3 rollback to v1: it rambles"), "{log}");

    // A kill within that round changes neither its start nor its end.
    let killed = place(&url);
    go_back(&killed);
    for share in [0.2, 0.3, 0.2, 0.15] {
        asked.store(0, Ordering::Relaxed);
        let mut child = killed
            .command(&arguments("2"))
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
    assert_eq!(run(&killed, "2"), report);
    assert_eq!(subjects(&killed), log);
}
