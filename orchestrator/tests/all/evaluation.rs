//! `coharness eval` and `coharness trajectories` against a server that knows some of the answers.

use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::server::{self, Answer};
use crate::{Place, tasks};

/// Answers "What is i + 1?": with a call first, then rightly for even numbers. Counts requests.
fn serve() -> (String, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let url = server::serve(move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        let number = server::number(request);
        let reply = if request["messages"].to_string().contains("Tool output") {
            format!("The answer is \\boxed{{{}}}.", number + 1 + number % 2)
        } else {
            let code = format!("print({number} + 1)\n# \u{1b}[31m");
            let call = json!({"name": "python", "arguments": {"code": code}});
            format!("I compute it.\n{call}")
        };
        Answer::Body(json!({
            "choices": [{"message": {"content": reply, "reasoning_content": "Easy."}, "finish_reason": "eos"}],
            "usage": {"prompt_tokens": 50, "completion_tokens": 20, "completion_tokens_details": {"reasoning_tokens": 5}},
        }))
    });
    (url, asked)
}

fn place(url: &str) -> Place {
    let place = Place::new();
    place.write("eval.jsonl", &tasks(6));
    let splits = "{evolve: 2, gate: 4, test: 2}";
    place.write("run.yaml", &server::config(url, splits, ""));
    place
}

const EVAL: [&str; 8] = [
    "eval",
    "--config",
    "run.yaml",
    "--tasks",
    "eval.jsonl",
    "--samples",
    "4",
    "--harness",
];
const RUN: [&str; 2] = ["--run", "evaluations/small-seed0"];

fn json_of(place: &Place, arguments: &[&str]) -> Value {
    let output = place.command(arguments).output().expect("runs");
    assert!(output.status.success(), "{}", place.transcript(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn an_evaluation_gives_rates_cost_and_exits_once() {
    let (url, asked) = serve();
    let place = place(&url);
    let arguments = [&EVAL[..], &["naive", "--json"]].concat();
    let result = json_of(&place, &arguments);
    assert_eq!(
        (&result["problems"], &result["samples"]),
        (&json!(6), &json!(4))
    );
    let ks: Vec<&Value> = result["pass_at"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|p| &p["k"])
        .collect();
    assert_eq!(ks, [1, 2, 4]);
    // Each problem is solved always or never, so that more attempts don't help.
    for pass in result["pass_at"].as_array().expect("a list") {
        assert_eq!(pass["estimate"], 0.5);
        let low = pass["ci95"][0].as_f64().expect("a number");
        assert!((0.1..0.25).contains(&low), "{low}");
    }
    assert_eq!(result["cost"]["rollouts"], 24);
    assert_eq!(result["cost"]["completion_tokens"], 24 * 40);
    assert_eq!(result["cost"]["reasoning_tokens"], 24 * 10);
    assert_eq!(result["exits"], json!({"answered": 24}));
    assert_eq!(asked.load(Ordering::Relaxed), 48);
    // Asked again, nothing is done again.
    let again = json_of(&place, &arguments);
    assert_eq!(again["pass_at"], result["pass_at"]);
    assert_eq!(asked.load(Ordering::Relaxed), 48);

    let text = place.run(&[&EVAL[..], &["naive"]].concat());
    for part in [
        "pass@4",
        "50.0%",
        "answered 24",
        "6 of eval.jsonl, 4 rollouts each",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let report = place.run(&[&["report"][..], &RUN].concat());
    for part in [
        "error: evaluations/small-seed0 is an evaluation, not a run\n",
        "`coharness trajectories list --run evaluations/small-seed0`",
        "--- exit 2\n",
    ] {
        assert!(report.contains(part), "{part} in {report}");
    }
    let missing = place.run(&[&EVAL[..], &["v3"]].concat());
    assert!(
        missing.contains("a built-in harness (naive, reasoning), nor a version: there is no run")
            && missing.ends_with("--- exit 2\n"),
        "{missing}"
    );
    let unread = place.run(&["eval", "--config", "run.yaml", "--tasks", "absent.jsonl"]);
    assert!(
        unread.contains("error: cannot read absent.jsonl: No such file")
            && unread.ends_with("--- exit 2\n"),
        "{unread}"
    );
}

#[test]
fn the_harness_for_reasoning_is_sampled_and_calls_in_tags() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let url = server::serve(move |request| {
        let drawn = json!([request["temperature"], request["top_p"], request["top_k"]]);
        log.lock().expect("lock").push(drawn);
        let number = server::number(request);
        let said = if request["messages"].to_string().contains("Tool output") {
            format!("It is \\boxed{{{}}}.", number + 1)
        } else {
            let code = format!("print({number} + 1)");
            let call = json!({"name": "python", "arguments": {"code": code}});
            format!("<tool_call>\n{call}\n</tool_call>")
        };
        Answer::Says(format!("<think>\nIt is \\boxed{{0}}.\n</think>\n\n{said}"))
    });
    let place = place(&url);
    let result = json_of(&place, &[&EVAL[..], &["reasoning", "--json"]].concat());
    assert_eq!(result["pass_at"][0]["estimate"], 1.0);
    assert_eq!(result["exits"], json!({"answered": 24}));
    assert_eq!(
        *asked.lock().expect("lock"),
        vec![json!([0.6, 0.95, 20]); 48]
    );
}

#[test]
fn a_rollout_can_be_found_and_read() {
    let (url, _) = serve();
    let place = place(&url);
    json_of(&place, &[&EVAL[..], &["naive", "--json"]].concat());
    let list = |more: &[&str]| {
        json_of(
            &place,
            &[&["trajectories", "list", "--json"], &RUN[..], more].concat(),
        )
    };
    let count = |more: &[&str]| list(more).as_array().expect("a list").len();
    assert_eq!(count(&[]), 24);
    assert_eq!(count(&["--limit", "5"]), 5);
    assert_eq!(count(&["--outcome", "correct"]), 12);
    assert_eq!(count(&["--outcome", "wrong", "--task", "t1"]), 4);
    assert_eq!(
        count(&["--split", "test", "--round", "0", "--exit", "answered"]),
        24
    );
    assert_eq!(count(&["--split", "gate"]), 0);
    assert_eq!(count(&["--exit", "turn_limit"]), 0);

    let rows = list(&["--task", "t1"]);
    let id = rows[0]["id"].as_str().expect("an id");
    // As the list shows a harness that is no version.
    let harness = rows[0]["harness"].as_str().expect("an id");
    assert_eq!(count(&["--harness", &harness[..8]]), 24);
    let show = |id: &str, more: &[&str]| {
        place.run(&[&["trajectories", "show", id], &RUN[..], more].concat())
    };
    let page = show(&id[..10], &[]);
    for part in [
        id,
        "system",
        "user",
        "assistant · 20 tokens",
        "┊ Easy.",
        "I compute it.",
        "calls the tool",
        "result",
        "✗ wrong",
        "answer 3",
        "exit answered",
        "the server ended it with eos",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    // Neither colours without a terminal, nor a program's own.
    assert!(!page.contains('\u{1b}') && page.contains('␛'), "{page}");
    assert!(
        page.lines().all(|line| line.chars().count() <= 80),
        "{page}"
    );
    assert!(show(&id[..10], &["--color", "always"]).contains("\u{1b}[31m✗ wrong\u{1b}[0m"));
    assert!(
        show(&id[..10], &["--messages"]).contains("Tool output")
            || show(&id[..10], &["--messages"]).contains("tool")
    );
    let whole: Value = json_of(
        &place,
        &[&["trajectories", "show", id, "--json"], &RUN[..]].concat(),
    );
    assert_eq!(whole["id"], id);

    let ambiguous = show("", &[]);
    assert!(
        ambiguous.contains("24 rollouts have an id") && ambiguous.ends_with("--- exit 2\n"),
        "{ambiguous}"
    );
    let missing = show("xyz", &[]);
    assert!(
        missing.contains("no rollout of small-seed0") && missing.ends_with("--- exit 2\n"),
        "{missing}"
    );
    // What was kept can't be told from its pattern.
    assert!(show("%", &[]).contains("no rollout"));
}

/// Ends a child however the test ends.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // One that has ended is beyond it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_that_asks_for_a_long_pause_gets_it_until_someone_stops() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let url = server::serve(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Answer::Status(429, "retry-after: 3600\r\n")
    });
    let place = place(&url);
    let child = place
        .command(&[&EVAL[..], &["naive"]].concat())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("runs");
    // It would wait for an hour after a failed test.
    let mut child = Killed(child);
    let mut lines = BufReader::new(child.0.stderr.take().expect("stderr")).lines();
    let is_pause = |line: &String| line.contains("the server asks to wait: nothing is sent for 3");
    let pause = lines.by_ref().map_while(Result::ok).find(is_pause);
    assert!(pause.is_some());
    let before = asked.load(Ordering::Relaxed);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(
        asked.load(Ordering::Relaxed),
        before,
        "nothing is sent during the pause"
    );
    let id = child.0.id().to_string();
    let kill = std::process::Command::new("kill")
        .args(["-TERM", &id])
        .status();
    assert!(kill.expect("kill").success());
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(child.0.wait().expect("ends").code(), Some(4), "{rest:?}");
}

/// A program that prints without end is stopped at the sandbox's cap, and the policy reads beginning
/// and end of what came before, with a note of what is left out.
#[test]
fn a_flood_is_stopped_and_shown_by_its_ends() {
    const FLOOD: &str =
        "import os\nos.write(1, b'begin ' * 100)\nb = b'x' * 65536\nwhile True: os.write(1, b)";
    let results = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&results);
    let url = server::serve(move |request| {
        let messages = request["messages"].as_array().expect("messages");
        let last = messages.last().expect("a message")["content"].as_str();
        let last = last.expect("text");
        if last.contains("begin") {
            log.lock().expect("lock").push(last.to_owned());
            return Answer::Says("The answer is \\boxed{1}.".into());
        }
        let call = json!({"name": "python", "arguments": {"code": FLOOD}});
        Answer::Says(call.to_string())
    });
    let place = place(&url);
    place.write("eval.jsonl", &tasks(1));
    let result = json_of(&place, &[&EVAL[..], &["naive", "--json"]].concat());
    assert_eq!(result["events"]["output_truncated"], 4);
    let results = results.lock().expect("lock");
    assert_eq!(results.len(), 4);
    for text in results.iter() {
        assert!(text.len() < 2500, "{} bytes", text.len());
        let cut = "[output cut: 1046576 characters left out here]";
        let (head, tail) = text.split_once(cut).expect("a note");
        assert!(head.contains("begin begin"), "{head}");
        assert!(tail.contains("\nxxx") && tail.contains("[error] printed more than 1048576 bytes"));
    }
}
