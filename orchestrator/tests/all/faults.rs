//! Servers that fail: one rollout, for a while, for good.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{Answer, config, number, serve};
use crate::{Place, tasks, write_harness};

const SPLITS: &str = "{evolve: 2, gate: 4, test: 2}";
/// Pauses that a test can wait for.
const QUICK: &str = "faults: {first_pause_ms: 10, longest_pause_s: 1, patience_s: 60}\n";
const EVAL: [&str; 6] = [
    "eval",
    "--config",
    "run.yaml",
    "--tasks",
    "eval.jsonl",
    "--json",
];

fn right(request: &Value) -> Answer {
    Answer::Says(format!("The answer is \\boxed{{{}}}.", number(request) + 1))
}

fn place(url: &str, more: &str) -> Place {
    let place = Place::new();
    place.write("eval.jsonl", &tasks(6));
    place.write("run.yaml", &config(url, SPLITS, more));
    place
}

/// Output as JSON, messages, exit code.
fn eval(place: &Place) -> (Value, String, Option<i32>) {
    let output = place.command(&EVAL).output().expect("runs");
    let result = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    (result, messages, output.status.code())
}

#[test]
fn a_rollout_that_keeps_failing_is_left_out_and_the_others_count() {
    let is_mended = Arc::new(AtomicBool::new(false));
    let mended = Arc::clone(&is_mended);
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let url = serve(move |request| {
        let is_mended = mended.load(Ordering::Relaxed);
        if number(request) == 2 && !is_mended {
            *count.lock().expect("lock") += 1;
            return Answer::Status(400, "");
        }
        right(request)
    });
    let place = place(&url, QUICK);
    let (result, messages, code) = eval(&place);
    assert_eq!(code, Some(0), "{messages}");
    assert_eq!(
        (&result["problems"], &result["left_out"]),
        (&json!(6), &json!(1))
    );
    assert_eq!(result["exits"], json!({"answered": 5}));
    assert_eq!(result["cost"]["rollouts"], 5);
    let pass = &result["pass_at"][0];
    assert_eq!(
        (&pass["problems"], &pass["estimate"]),
        (&json!(5), &json!(1.0))
    );
    assert_eq!(result["results"][2]["rollouts"], json!([]));
    assert!(
        messages.contains("1 of 6 rollouts is left out") && messages.contains("status 400"),
        "{messages}"
    );
    let tries = *asked.lock().expect("lock");
    // Three while others succeed, and up to three between them when only this one was left.
    assert!((3..=6).contains(&tries), "{tries}");
    // It is in the record, and neither right nor wrong.
    let list = |more: &[&str]| -> Value {
        let arguments = [
            "trajectories",
            "list",
            "--json",
            "--run",
            "evaluations/small-seed0",
        ];
        let output = place.command(&[&arguments[..], more].concat()).output();
        serde_json::from_slice(&output.expect("runs").stdout).expect("JSON")
    };
    let count = |more: &[&str]| list(more).as_array().expect("a list").len();
    assert_eq!(count(&["--exit", "infrastructure"]), 1);
    assert_eq!(
        (
            count(&["--outcome", "wrong"]),
            count(&["--outcome", "correct"])
        ),
        (0, 5)
    );
    // The same command tries it again.
    is_mended.store(true, Ordering::Relaxed);
    let (result, messages, _) = eval(&place);
    assert_eq!(
        (&result["left_out"], &result["exits"]),
        (&json!(0), &json!({"answered": 6})),
        "{messages}"
    );
}

#[test]
fn an_outage_is_waited_for_and_costs_nothing() {
    // One answer, and then none for three seconds.
    let began = Mutex::new(None);
    let url = serve(move |request| {
        let mut began = began.lock().expect("lock");
        match *began {
            None if number(request) == 0 => {
                *began = Some(Instant::now());
                right(request)
            }
            Some(began) if began.elapsed() > Duration::from_secs(3) => right(request),
            _ => Answer::Status(401, ""),
        }
    });
    let place = place(&url, QUICK);
    let (result, messages, code) = eval(&place);
    assert_eq!(code, Some(0), "{messages}");
    assert_eq!(
        (&result["left_out"], &result["exits"]),
        (&json!(0), &json!({"answered": 6}))
    );
    for part in [
        "no rollout succeeds (",
        "status 401",
        "the run stops when",
        "rollouts succeed again, after",
    ] {
        assert!(messages.contains(part), "{part} in {messages}");
    }
    // Politely: a pause at a time, not each rollout's failure.
    let pauses = messages.matches("no rollout succeeds").count();
    assert!((3..20).contains(&pauses), "{messages}");
}

/// A server that takes requests for three seconds and answers none: replies come in one piece, so that
/// nothing but their time-out shows it.
#[test]
fn a_server_that_hangs_is_waited_for_and_makes_no_answer_wrong() {
    const HANGS: Duration = Duration::from_secs(3);
    let began = Mutex::new(None);
    let url = serve(move |request| {
        let began = *began.lock().expect("lock").get_or_insert_with(Instant::now);
        let left = HANGS.saturating_sub(began.elapsed());
        if left.is_zero() {
            return right(request);
        }
        std::thread::sleep(left);
        Answer::Cut
    });
    let place = Place::new();
    place.write("eval.jsonl", &tasks(6));
    let config = config(&url, SPLITS, QUICK);
    let short = config.replace("seconds_per_problem: 60", "seconds_per_problem: 2");
    place.write("run.yaml", &short);
    let (result, messages, code) = eval(&place);
    assert_eq!(code, Some(0), "{messages}");
    assert_eq!(
        (&result["left_out"], &result["exits"]),
        (&json!(0), &json!({"answered": 6})),
        "{messages}"
    );
    for part in ["no rollout succeeds (", "nothing came from it for "] {
        assert!(messages.contains(part), "{part} in {messages}");
    }
}

#[test]
fn a_server_that_is_down_for_good_stops_the_run_with_all_that_was_finished() {
    let began = Mutex::new(None);
    let is_mended = Arc::new(AtomicBool::new(false));
    let mended = Arc::clone(&is_mended);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let url = serve(move |request| {
        began.lock().expect("lock").get_or_insert_with(Instant::now);
        let number = number(request);
        if number < 2 || mended.load(Ordering::Relaxed) {
            log.lock().expect("lock").push(number);
            right(request)
        } else {
            Answer::Status(401, "")
        }
    });
    let impatient = "faults: {first_pause_ms: 10, longest_pause_s: 1, patience_s: 2}\n";
    // The canary is one of those that succeed: only the whole server's being down stops a run. So
    // these rollouts are left out.
    let place = place(&url, impatient);
    let (result, messages, code) = eval(&place);
    assert_eq!(
        (code, &result["left_out"]),
        (Some(0), &json!(4)),
        "{messages}"
    );

    // Nothing at all succeeds: the run stops, and goes on under the same command.
    let place = Place::new();
    place.write(
        "eval.jsonl",
        &tasks(12).lines().skip(2).collect::<Vec<_>>().join("\n"),
    );
    place.write("run.yaml", &config(&url, SPLITS, impatient));
    let (_, messages, code) = eval(&place);
    assert_eq!(code, Some(3), "{messages}");
    for part in [
        "error: rollouts can't be finished: ",
        "status 401",
        "hint: Check that the server runs",
    ] {
        assert!(messages.contains(part), "{part} in {messages}");
    }
    // A wrong key isn't waited for.
    assert!(!messages.contains("no rollout succeeds"), "{messages}");
    is_mended.store(true, Ordering::Relaxed);
    let (result, messages, code) = eval(&place);
    assert_eq!(
        (code, &result["left_out"]),
        (Some(0), &json!(0)),
        "{messages}"
    );
    asked.lock().expect("lock").clear();
    eval(&place);
    assert!(
        asked.lock().expect("lock").is_empty(),
        "nothing is done twice"
    );
}

/// A server that goes away after a few answers, for longer than the patience.
#[test]
fn patience_ends_and_what_was_finished_stays() {
    let answered = Mutex::new(0);
    let is_mended = Arc::new(AtomicBool::new(false));
    let mended = Arc::clone(&is_mended);
    let url = serve(move |request| {
        let mut answered = answered.lock().expect("lock");
        if *answered < 2 || mended.load(Ordering::Relaxed) {
            *answered += 1;
            right(request)
        } else {
            Answer::Status(401, "")
        }
    });
    let place = place(
        &url,
        "faults: {first_pause_ms: 10, longest_pause_s: 1, patience_s: 2}\n",
    );
    let started = Instant::now();
    let (_, messages, code) = eval(&place);
    assert_eq!(code, Some(3), "{messages}");
    assert!(messages.contains("no rollout succeeds (") && messages.contains("can't be finished"));
    assert!(started.elapsed() < Duration::from_secs(60));
    is_mended.store(true, Ordering::Relaxed);
    let (result, messages, code) = eval(&place);
    assert_eq!(
        (code, &result["exits"]),
        (Some(0), &json!({"answered": 6})),
        "{messages}"
    );
}

/// A whole run in which one problem of every split can't be rolled out: it ends, and each of its
/// numbers says on how many problems it rests.
#[test]
fn a_run_goes_on_without_the_problems_that_fail() {
    let bad = |number: u32| number.is_multiple_of(5);
    let url = serve(move |request| {
        let number = number(request);
        if bad(number) {
            return Answer::Status(400, "");
        }
        // The tool is never called, which the critic has patches for.
        let answer = number + 1 + u32::from(number.is_multiple_of(3));
        Answer::Says(format!("I think it is \\boxed{{{answer}}}."))
    });
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(30));
    let more = format!(
        "{QUICK}gate: {{mode: paper, tasks: 4}}
harness_loop: {{iterations: 1, diagnose_tasks: 10, candidates: 1}}
"
    );
    place.write(
        "run.yaml",
        &config(&url, "{evolve: 10, gate: 10, test: 10}", &more),
    );
    let run = |place: &Place| {
        let output = place
            .command(&["run", "--config", "run.yaml", "--json"])
            .output()
            .expect("runs");
        assert!(output.status.success(), "{}", place.transcript(&output));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        report
    };
    let report = run(&place);
    assert_eq!(report["is_finished"], true);
    let left_out = report["left_out"].as_u64().expect("a count");
    assert!(left_out > 0, "{report}");
    // Of thirty problems six are bad; those of the test split are missing from its rate.
    let n = report["test"]["baseline"]["n"].as_u64().expect("a count");
    assert!((4..10).contains(&n), "{report}");
    assert_eq!(report["test"]["rounds"][0]["n"], n);
    let decisions = report["patch_decisions"].as_array().expect("a list");
    assert!(!decisions.is_empty(), "{report}");
    for decision in decisions {
        for stage in decision["stages"].as_array().expect("a list") {
            let pairs = |side: &str| stage[side]["pairs"].as_u64().expect("a count");
            assert!(pairs("delta_in") + pairs("delta_out") <= 8, "{decision}");
        }
    }
    // What was left out stays so: a run that goes on comes to the same end.
    assert_eq!(run(&place), report);
}

/// A tool that this machine's sandbox can't run is told before anything is asked.
#[test]
fn a_harness_whose_tool_cannot_run_doesnt_start() {
    let url = serve(|_| panic!("nothing is to be asked"));
    let place = place(&url, QUICK);
    write_harness(&place, "small", |text| {
        text.replace("memory_mib: 512", "memory_mib: 32")
    });
    let output = place.run(&[&EVAL[..], &["--harness", "small"]].concat());
    assert!(
        output.contains("small: tools/python.yaml: limits.memory_mib: memory limit of 32 MiB"),
        "{output}"
    );
    assert!(output.ends_with("--- exit 2\n"), "{output}");
}
