//! `coharness eval` and `coharness trajectories` against a server that knows some of the answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::{Place, tasks};

/// Answers "What is i + 1?": with a call first, then rightly for even numbers. Counts requests.
fn serve() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let url = format!("http://{}/v1", listener.local_addr().expect("address"));
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // Ends with the test process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let count = Arc::clone(&count);
            std::thread::spawn(move || answer(&stream, &count));
        }
    });
    (url, asked)
}

fn answer(stream: &TcpStream, count: &AtomicUsize) {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        line.clear();
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() || length == 0 {
        return;
    }
    count.fetch_add(1, Ordering::Relaxed);
    let request: Value = serde_json::from_slice(&body).expect("JSON");
    let text = request["messages"].to_string();
    let number: u32 = text
        .split("What is ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .expect("a problem");
    let reply = if text.contains("Tool output") {
        format!("The answer is \\boxed{{{}}}.", number + 1 + number % 2)
    } else {
        let call = json!({"name": "python", "arguments": {"code": format!("print({number} + 1)\n# \u{1b}[31m")}});
        format!("I compute it.\n{call}")
    };
    let reply = json!({
        "choices": [{"message": {"content": reply, "reasoning_content": "Easy."}, "finish_reason": "eos"}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 20, "completion_tokens_details": {"reasoning_tokens": 5}},
    })
    .to_string();
    let mut stream = stream;
    // A client that is gone has no use for the reply.
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{reply}",
        reply.len()
    );
}

fn place(url: &str) -> Place {
    let place = Place::new();
    place.write("eval.jsonl", &tasks(6));
    place.write(
        "run.yaml",
        &format!(
            "run: {{name: small}}
model: {{path: model.gguf}}
policy: {{kind: openai, base_url: '{url}', model: m}}
tasks:
  path: tasks.jsonl
  verifier: integer
  splits: {{evolve: 2, gate: 4, test: 2}}
harness: naive
budget: {{tokens_per_problem: 2000, seconds_per_problem: 60}}
"
        ),
    );
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
    let missing = place.run(&[&EVAL[..], &["v3"]].concat());
    assert!(
        missing.contains("there is no run") && missing.ends_with("--- exit 2\n"),
        "{missing}"
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

#[test]
fn a_server_that_asks_for_a_long_pause_gets_it_until_someone_stops() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let url = format!("http://{}/v1", listener.local_addr().expect("address"));
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // Ends with the test process.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // The request is of no interest, and the client may be gone.
            let _ = stream.read(&mut [0; 65_536]);
            count.fetch_add(1, Ordering::Relaxed);
            let _ = stream.write_all(
                b"HTTP/1.1 429 X\r\nconnection: close\r\nretry-after: 3600\r\ncontent-length: 2\r\n\r\n{}",
            );
        }
    });
    let place = place(&url);
    let mut child = place
        .command(&[&EVAL[..], &["naive"]].concat())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("runs");
    let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
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
    let id = child.id().to_string();
    let kill = std::process::Command::new("kill")
        .args(["-TERM", &id])
        .status();
    assert!(kill.expect("kill").success());
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(child.wait().expect("ends").code(), Some(4), "{rest:?}");
}
