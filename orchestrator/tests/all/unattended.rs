//! Runs that nobody watches: what they do without, and what they say of themselves.

use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use coharness::error::RunError;
use coharness::history::History;
use coharness::splits::Splits;
use model::decode::EngineError;
use rollout::{BoxFuture, Completion, CompletionRequest, Policy, PolicyError, PolicyId};
use serde_json::{Value, json};

use crate::scene::{FortyTwo, Scene, Scripted, numbered, small};
use crate::server::{Answer, config, number, serve};
use crate::{Place, tasks};

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
critic: {{llm: {{base_url: '{critic}', model: c}}}}
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
