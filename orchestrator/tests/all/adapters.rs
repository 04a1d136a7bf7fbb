//! Adapters and the servers that are to load them: down just then, failing, declining, started again.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{Answer, config, number, serve_all};
use crate::{Place, tasks};

const ADAPTER: &str = "0123456789abcdef";
/// Pauses that a test can wait for.
const QUICK: &str = "faults: {first_pause_ms: 10, longest_pause_s: 1, patience_s: 60}\n";

/// A server as vLLM is one.
#[derive(Default)]
struct Server {
    adapters: Vec<String>,
    loads: usize,
    answers: usize,
    /// Models that were asked.
    asked: Vec<String>,
}

impl Server {
    fn answer(&mut self, path: &str, request: &Value) -> Answer {
        match path {
            "/models" => {
                let entry = |id: &String| json!({"id": id});
                let data: Vec<Value> = self.adapters.iter().map(entry).collect();
                Answer::Body(json!({"data": data}))
            }
            "/load_lora_adapter" => {
                self.loads += 1;
                let name = request["lora_name"].as_str().expect("a name");
                let path = request["lora_path"].as_str().expect("a path");
                assert!(path.starts_with('/') && path.ends_with(name), "{path}");
                self.adapters.push(name.to_owned());
                Answer::Body(json!({}))
            }
            _ => {
                let model = request["model"].as_str().expect("a model");
                self.asked.push(model.to_owned());
                if !self.adapters.iter().any(|known| known == model) {
                    return Answer::Status(404, "");
                }
                self.answers += 1;
                Answer::Says(format!("It is \\boxed{{{}}}.", number(request) + 1))
            }
        }
    }
}

/// A place with a run's adapter and a server, in front of which `before` may answer.
fn place(
    more: &str,
    before: impl Fn(&mut Server, &str) -> Option<Answer> + Send + Sync + 'static,
) -> (Place, Arc<Mutex<Server>>) {
    let server = Arc::new(Mutex::new(Server::default()));
    let served = Arc::clone(&server);
    let url = serve_all(move |path, request| {
        let mut server = served.lock().expect("lock");
        before(&mut server, path).unwrap_or_else(|| server.answer(path, request))
    });
    let place = Place::new();
    place.write("eval.jsonl", &tasks(6));
    let splits = "{evolve: 2, gate: 4, test: 2}";
    let config = config(&url, splits, more).replace("model: m}", "model: m, adapters: vllm}");
    place.write("run.yaml", &config);
    let folder = format!(".coharness/runs/small-seed0/adapters/{ADAPTER}/adapter_config.json");
    place.write(&folder, "{}");
    (place, server)
}

/// Output as JSON, messages, exit code.
fn eval(place: &Place) -> (Value, String, Option<i32>) {
    let arguments = [
        "eval",
        "--config",
        "run.yaml",
        "--tasks",
        "eval.jsonl",
        "--adapter",
        "0123",
        "--json",
    ];
    let output = place.command(&arguments).output().expect("runs");
    let result = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    (result, messages, output.status.code())
}

/// Counts down to the answers of a server that works.
fn failing(answers: Vec<Answer>) -> impl Fn(&mut Server, &str) -> Option<Answer> {
    let answers = Mutex::new(answers.into_iter());
    move |_, path| {
        let is_chat = path == "/chat/completions";
        let mut answers = answers.lock().expect("lock");
        if is_chat { None } else { answers.next() }
    }
}

#[test]
fn a_server_that_is_down_when_an_adapter_comes_is_waited_for() {
    for answers in [
        vec![Answer::Cut; 4],
        vec![Answer::Status(503, ""); 3],
        vec![Answer::Status(429, "retry-after: 1\r\n")],
        // The list can be had, and loading fails.
        vec![
            Answer::Body(json!({"data": []})),
            Answer::Status(500, ""),
            Answer::Body(json!({"data": []})),
            Answer::Cut,
        ],
        // What a proxy says while the server behind it is started again.
        vec![Answer::Body(json!("starting")); 2],
    ] {
        let (place, server) = place(QUICK, failing(answers.clone()));
        let (result, messages, code) = eval(&place);
        assert_eq!(code, Some(0), "{answers:?}: {messages}");
        assert_eq!(result["exits"], json!({"answered": 6}), "{messages}");
        for part in [
            "adapter 0123456789abcdef can't be loaded (",
            "the run stops when that has gone on for 60 s",
            "the adapter is loaded, after",
        ] {
            assert!(messages.contains(part), "{part} in {messages}");
        }
        let server = server.lock().expect("lock");
        assert_eq!(server.loads, 1);
        assert!(server.asked.iter().all(|model| model == ADAPTER));
    }
}

#[test]
fn a_server_that_stays_down_stops_the_command_which_goes_on_later() {
    let since = Instant::now();
    let is_mended = Arc::new(Mutex::new(false));
    let mended = Arc::clone(&is_mended);
    let impatient = "faults: {first_pause_ms: 10, longest_pause_s: 1, patience_s: 2}\n";
    let (place, server) = place(impatient, move |_, _| {
        (!*mended.lock().expect("lock")).then_some(Answer::Cut)
    });
    let (_, messages, code) = eval(&place);
    assert_eq!(code, Some(3), "{messages}");
    assert!(messages.contains("error: policy.base_url: "), "{messages}");
    assert!(messages.contains("hint: Check that the server runs"));
    assert!((Duration::from_secs(2)..Duration::from_secs(60)).contains(&since.elapsed()));
    *is_mended.lock().expect("lock") = true;
    let (result, messages, code) = eval(&place);
    assert_eq!(code, Some(0), "{messages}");
    assert_eq!(result["exits"], json!({"answered": 6}));
    assert_eq!(server.lock().expect("lock").loads, 1);
}

#[test]
fn a_server_that_wont_load_adapters_isnt_waited_for() {
    let (place, _) = place(QUICK, |server, path| {
        let is_load = path == "/load_lora_adapter";
        server.loads += usize::from(is_load);
        is_load.then_some(Answer::Status(404, ""))
    });
    let (_, messages, code) = eval(&place);
    assert_eq!(code, Some(3), "{messages}");
    assert!(
        messages.contains("answers 404") && messages.contains("--enable-lora"),
        "{messages}"
    );
    assert!(!messages.contains("nothing is sent"), "{messages}");
}

/// Started again, a server has its base model alone.
#[test]
fn an_adapter_that_a_server_has_lost_is_loaded_again() {
    let (place, server) = place(QUICK, |server, _| {
        if server.answers == 3 && server.loads == 1 {
            server.adapters.clear();
        }
        None
    });
    let (result, messages, code) = eval(&place);
    assert_eq!(code, Some(0), "{messages}");
    assert_eq!(
        (&result["exits"], &result["left_out"]),
        (&json!({"answered": 6}), &json!(0)),
        "{messages}"
    );
    assert_eq!(server.lock().expect("lock").loads, 2);
}
