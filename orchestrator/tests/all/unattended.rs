//! Runs that nobody watches: what they do without, and what they say of themselves.

use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use coharness::clock::unix_seconds;
use coharness::error::RunError;
use coharness::history::History;
use coharness::splits::Splits;
use model::decode::EngineError;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rollout::{BoxFuture, Completion, CompletionRequest, Policy, PolicyError, PolicyId};
use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use crate::scene::{FortyTwo, Scene, Scripted, numbered, small};
use crate::server::{Answer, config, number, serve};
use crate::{Place, forget_times, tasks, write_harness};

/// A critic's model that talks, and one that can't be had.
#[test]
fn a_run_goes_on_without_its_critics_model() {
    for (answer, reason) in [
        (
            Answer::Says("I'm sorry, I can't do that.".into()),
            "the reply holds no JSON object",
        ),
        (Answer::Status(401, ""), "status 401"),
    ] {
        let critic = serve(move |_| answer.clone());
        // The tool is never called, which the rules have patches for.
        let policy = serve(|request| {
            let number = number(request);
            let answer = number + 1 + u32::from(number.is_multiple_of(3));
            Answer::Says(format!("I think it is \\boxed{{{answer}}}."))
        });
        let place = Place::new();
        place.write("tasks.jsonl", &tasks(30));
        let more = format!(
            "gate: {{mode: paper, tasks: 4, retest_every: 0, reference_every: 0}}
harness_loop: {{iterations: 1, diagnose_tasks: 10, candidates: 1}}
critic:
  llm: {{base_url: '{critic}', model: c, prices: {{prompt_per_million: 200, completion_per_million: 1000}}}}
"
        );
        let splits = "{evolve: 10, gate: 10, test: 10}";
        place.write("run.yaml", &config(&policy, splits, &more));
        let output = place
            .command(&["run", "--config", "run.yaml", "--json"])
            .output()
            .expect("runs");
        let messages = place.transcript(&output);
        assert!(output.status.success(), "{messages}");
        let told = "the critic's model is passed over: ";
        assert!(
            messages.contains(told) && messages.contains(reason),
            "{messages}"
        );
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let critic = &report["critic"];
        assert_eq!(
            (&critic["critiques"], &critic["skipped"]),
            (&json!(1), &json!(1))
        );
        let tokens = |field: &str| critic[field].as_f64().expect("a count");
        let cost = 2e-4 * tokens("prompt_tokens") + 1e-3 * tokens("completion_tokens");
        let told = critic["cost"].as_f64().expect("there are prices");
        assert!((told - cost).abs() < 1e-9, "{critic}");
        let shown = place.run(&["report"]);
        assert!(shown.contains(" written, cost "), "{shown}");
        let decided = report["patch_decisions"].as_array().expect("a list");
        assert!(!decided.is_empty(), "{report}");
    }
}

/// The run as `status` tells of it.
fn status(place: &Place) -> Value {
    let output = place.command(&["status", "--json"]).output().expect("runs");
    let runs: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    runs[0].clone()
}

/// Looks again and again, until something is so.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A run whose server goes away after the baseline: waiting, killed, stopped, out of patience, finished.
#[test]
fn status_says_what_a_run_waits_for_and_why_it_stopped() {
    let left = Arc::new(Mutex::new(2_usize));
    let answers = Arc::clone(&left);
    let url = serve(move |request| {
        let mut left = answers.lock().expect("lock");
        if *left == 0 {
            return Answer::Status(401, "");
        }
        *left -= 1;
        let answer = number(request) + 1;
        Answer::Says(format!("The answer is \\boxed{{{answer}}}."))
    });
    let more = "faults: {first_pause_ms: 10, longest_pause_s: 1, patience_s: 60}
gate: {retest_every: 0, reference_every: 0}
harness_loop: {iterations: 1, diagnose_tasks: 2}
";
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(8));
    let splits = "{evolve: 2, gate: 4, test: 2}";
    place.write("run.yaml", &config(&url, splits, more));
    let run = ["run", "--config", "run.yaml"];
    let mut child = place
        .command(&run)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    wait_until("the baseline is made", || *left.lock().expect("lock") == 0);
    wait_until("the run waits", || status(&place)["state"] == "waiting");
    let note = |status: &Value| status["note"].as_str().unwrap_or_default().to_owned();
    let waits = note(&status(&place));
    assert!(
        waits.starts_with("no rollout succeeds (") && waits.contains("status 401"),
        "{waits}"
    );
    let shown = place.run(&["status"]);
    assert!(
        shown.contains("small-seed0: no rollout succeeds ("),
        "{shown}"
    );

    child.kill().expect("kill");
    child.wait().expect("wait");
    let killed = status(&place);
    assert_eq!(killed["state"], "stopped", "{killed}");
    assert!(note(&killed).contains("without a word"), "{killed}");
    let shown = place.run(&["status"]);
    assert!(shown.contains("hint: `coharness resume RUN`"), "{shown}");

    let file = place.write(".coharness/runs/small-seed0/stop", "");
    let stopped = place.run(&run);
    assert!(stopped.ends_with("--- exit 4\n"), "{stopped}");
    let told = note(&status(&place));
    assert!(told.starts_with("stopped: the file `stop`"), "{told}");
    std::fs::remove_file(file).expect("the file that stops");

    // A new process hasn't been answered yet, and takes refusals for a mistake of the configuration.
    let refused = place.run(&run);
    assert!(refused.ends_with("--- exit 3\n"), "{refused}");
    let refused = status(&place);
    assert_eq!(refused["state"], "stopped", "{refused}");
    let told = note(&refused);
    assert!(
        told.starts_with("rollouts can't be finished: ") && told.contains("status 401"),
        "{told}"
    );

    *left.lock().expect("lock") = usize::MAX;
    let finished = place.run(&run);
    assert!(finished.ends_with("--- exit 0\n"), "{finished}");
    let finished = status(&place);
    assert_eq!(
        (&finished["state"], &finished["note"]),
        (&json!("finished"), &Value::Null)
    );
}

fn send(child: &Child, signal: Signal) {
    let process = i32::try_from(child.id()).expect("a process id");
    kill(Pid::from_raw(process), signal).expect("a signal");
}

/// Its sign of life is made older than it is: a minute is long for a test.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_process_is_frozen_is_stale_until_it_goes_on() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let is_over = Mutex::new(is_over);
    // No reply comes before the test is over: the process writes nothing but signs of life.
    let url = serve(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        if let Ok(is_over) = is_over.lock() {
            let _ = is_over.recv();
        }
        Answer::Cut
    });
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(8));
    let splits = "{evolve: 2, gate: 4, test: 2}";
    place.write("run.yaml", &config(&url, splits, ""));
    let mut child = place
        .command(&["run", "--config", "run.yaml"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    wait_until("the run asks", || asked.load(Ordering::SeqCst) > 0);
    assert_eq!(status(&place)["state"], "running");

    send(&child, Signal::SIGSTOP);
    // What was being written is written.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let database = place.path().join(".coharness/runs/small-seed0/run.db");
    let options = SqliteConnectOptions::new().filename(&database);
    let pool = SqlitePool::connect_with(options).await.expect("a database");
    for (silence_s, state) in [(30, "running"), (90, "stale")] {
        sqlx::query("UPDATE session SET seen_at = ?")
            .bind(unix_seconds() - silence_s)
            .execute(&pool)
            .await
            .expect("a sign");
        let frozen = status(&place);
        assert_eq!(frozen["state"], state, "{frozen}");
        let note = frozen["note"].as_str().unwrap_or_default();
        let is_told = note.starts_with("no sign of life for ");
        assert_eq!(is_told, state == "stale", "{frozen}");
    }
    pool.close().await;
    let shown = place.run(&["status"]);
    assert!(
        shown.contains("small-seed0: no sign of life for "),
        "{shown}"
    );

    send(&child, Signal::SIGCONT);
    wait_until("the run gives signs", || {
        status(&place)["state"] == "running"
    });
    child.kill().expect("kill");
    child.wait().expect("wait");
    drop(over);
}

/// Tokens that [`Metered`] counts for a request.
const REQUEST_TOKENS: usize = 110;

/// A policy's server that counts what it is asked for, and takes its time while it is slow.
struct Metered {
    url: String,
    asked: Arc<AtomicUsize>,
    is_slow: Arc<AtomicBool>,
}

impl Metered {
    fn new() -> Self {
        let (asked, is_slow): (Arc<AtomicUsize>, Arc<AtomicBool>) = Default::default();
        let (count, slow) = (Arc::clone(&asked), Arc::clone(&is_slow));
        let url = serve(move |request| {
            count.fetch_add(1, Ordering::SeqCst);
            if slow.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(300));
            }
            // The tool is never called, which the critic has patches for.
            let number = number(request);
            let answer = number + 1 + u32::from(number.is_multiple_of(3));
            let text = format!("I think it is \\boxed{{{answer}}}.");
            let choice = json!({"message": {"content": text}, "finish_reason": "stop"});
            let usage = json!({"prompt_tokens": 100, "completion_tokens": 10});
            Answer::Body(json!({"choices": [choice], "usage": usage}))
        });
        Self {
            url,
            asked,
            is_slow,
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// A place with a run on this server that makes three rollouts at a time, 0.2 of cost each.
    fn place(&self) -> Place {
        let place = Place::new();
        place.write("tasks.jsonl", &tasks(30));
        write_harness(&place, "three", |text| {
            text.replace("parallel_rollouts: 64", "parallel_rollouts: 3")
        });
        let more = "gate: {mode: paper, tasks: 4, retest_every: 0, reference_every: 0}
harness_loop: {iterations: 1, diagnose_tasks: 10, candidates: 1}
prices: {prompt_per_million: 1000, completion_per_million: 10000}
";
        let config = config(&self.url, "{evolve: 10, gate: 10, test: 10}", more);
        let config = config.replace("harness: naive", "harness: three");
        place.write("run.yaml", &config);
        place
    }
}

/// Runs what stands in a place under a limit, if there is one.
fn run_within(place: &Place, limit: Option<&str>) -> Output {
    let mut arguments = vec!["run", "--config", "run.yaml", "--json"];
    arguments.extend(limit.into_iter().flat_map(|limit| ["--set", limit]));
    place.command(&arguments).output().expect("runs")
}

/// The report of a run that has finished.
fn finished(place: &Place, output: &Output) -> Value {
    assert!(output.status.success(), "{}", place.transcript(output));
    let mut report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    forget_times(&mut report);
    report
}

#[test]
fn a_run_stops_at_each_of_its_limits_and_comes_to_the_same_with_more() {
    let server = Metered::new();
    let unlimited = server.place();
    let whole = finished(&unlimited, &run_within(&unlimited, None));
    let decided = whole["patch_decisions"].as_array().expect("a list");
    assert!(!decided.is_empty(), "{whole}");
    // What a request may take too much while two others are in flight; seconds are anybody's guess.
    for (measure, limit, most, more) in [
        ("rollouts", "7", 7.0, "1000"),
        ("tokens", "1000", 1_320.0, "1000000"),
        ("cost", "1.5", 2.1, "1000"),
        ("seconds", "2", f64::INFINITY, "1000000"),
    ] {
        server.asked.store(0, Ordering::SeqCst);
        server.is_slow.store(measure == "seconds", Ordering::SeqCst);
        let place = server.place();
        let field = format!("budget.run_{measure}");
        let limited = format!("{field}={limit}");
        let stopped = run_within(&place, Some(&limited));
        let told = place.transcript(&stopped);
        assert_eq!(stopped.status.code(), Some(4), "{told}");
        for part in [
            format!("error: stopped: {field} is used up: "),
            format!("--set {field}=N"),
        ] {
            assert!(told.contains(&part), "{part} in {told}");
        }
        let left = status(&place);
        let spent = left["budget"][measure]["spent"].as_f64();
        let spent = spent.expect("a number");
        let least: f64 = limit.parse().expect("a number");
        assert!((least..=most).contains(&spent), "{spent} {measure}");
        if measure == "tokens" {
            let over = spent - least;
            let over = format!("{spent:.0} of 1000 tokens, {over:.0} tokens beyond it");
            assert!(told.contains(&over), "{over} in {told}");
        }
        let note = left["note"].as_str().unwrap_or_default();
        let reason = format!("stopped: {field} is used up: ");
        assert!(note.starts_with(&reason), "{left}");
        let shown = place.run(&["status"]);
        assert!(shown.contains(" spent\n"), "{shown}");

        // Another process counts what the first has stored.
        let asked = server.asked();
        let again = run_within(&place, Some(&limited));
        assert_eq!(again.status.code(), Some(4), "{}", place.transcript(&again));
        assert_eq!(server.asked(), asked);

        server.is_slow.store(false, Ordering::SeqCst);
        let extended = run_within(&place, Some(&format!("{field}={more}")));
        assert_eq!(finished(&place, &extended), whole, "{measure}");
        // Nothing was made twice, and all of it is counted.
        let tokens = &status(&place)["budget"]["tokens"]["spent"];
        assert_eq!(*tokens, json!(REQUEST_TOKENS * server.asked()));
    }
}

#[test]
fn what_a_killed_process_has_stored_is_counted() {
    let server = Metered::new();
    server.is_slow.store(true, Ordering::SeqCst);
    let place = server.place();
    let mut child = place
        .command(&["run", "--config", "run.yaml"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    let stored = || status(&place)["budget"]["rollouts"]["spent"].as_u64();
    wait_until("rollouts are stored", || stored() >= Some(4));
    child.kill().expect("kill");
    child.wait().expect("wait");
    let (stored, asked) = (stored().expect("a count"), server.asked());
    let limit = format!("budget.run_rollouts={stored}");
    let stopped = run_within(&place, Some(&limit));
    let told = place.transcript(&stopped);
    assert_eq!(stopped.status.code(), Some(4), "{told}");
    let used = format!("is used up: {stored} of {stored} rollouts\n");
    assert!(told.contains(&used), "{used} in {told}");
    assert_eq!(server.asked(), asked);
}

/// A server that counts no tokens takes none of the limit's meaning.
#[test]
fn tokens_that_a_server_leaves_out_are_estimated() {
    let url = serve(|request| {
        let answer = number(request) + 1;
        Answer::Says(format!("The answer is \\boxed{{{answer}}}."))
    });
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(8));
    let splits = "{evolve: 2, gate: 4, test: 2}";
    place.write("run.yaml", &config(&url, splits, ""));
    let stopped = run_within(&place, Some("budget.run_tokens=20"));
    let told = place.transcript(&stopped);
    assert_eq!(stopped.status.code(), Some(4), "{told}");
    assert!(told.contains("budget.run_tokens is used up: "), "{told}");
}

/// Replies to so many requests and breaks down with the next one, as an engine does whose thread panics.
struct Brittle {
    inner: Arc<dyn Policy>,
    left: AtomicUsize,
}

impl Policy for Brittle {
    fn id(&self) -> &PolicyId {
        self.inner.id()
    }

    fn has_stopped(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    fn complete(
        &self,
        request: CompletionRequest,
    ) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        let one_less = |left: usize| left.checked_sub(1);
        let order = Ordering::Relaxed;
        match self.left.fetch_update(order, order, one_less) {
            Ok(2..) => self.inner.complete(request),
            _ => Box::pin(async { Err(EngineError::Stopped.into()) }),
        }
    }
}

/// In a process of its own the model would come back with the next one; here nothing is left to wait for.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_broke_down_is_not_waited_for() {
    let place = Place::new();
    let mut splits = Splits::only_test(Vec::new());
    splits.evolve = numbered("e", 12, |n| format!("What is {n} and 1?"), |n| n + 1);
    let scene = Scene {
        config: &small([12, 0, 0], ""),
        splits,
        directory: place.path(),
        is_aloud: false,
    };
    let start = harness::naive().expect("the shipped harness");
    let workshop = scene.with_tools(&start, Arc::new(FortyTwo)).await;
    let policy: Arc<dyn Policy> = Arc::new(Brittle {
        inner: Scripted::policy("script", |_| "It is \\boxed{42}.".into()),
        left: AtomicUsize::new(4),
    });
    let head = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let looped = workshop.harness_loop(1, head, &policy, &mut history);
    let looped = tokio::time::timeout(Duration::from_secs(60), looped).await;
    let error = looped.expect("an end").expect_err("no model");
    assert!(matches!(error, RunError::PolicyStopped { .. }), "{error:?}");
    assert_eq!(error.exit_code(), 3);
    // What was finished is kept.
    let totals = workshop.store.totals().await.expect("totals");
    assert_eq!(totals.rollouts, 3);
}
