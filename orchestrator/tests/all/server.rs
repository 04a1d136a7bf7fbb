//! A chat server whose replies a test decides on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use serde_json::{Value, json};

/// What the server does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A whole reply.
    Says(String),
    /// The same, with these fields of the response beside the choices.
    Body(Value),
    /// A status and further headers, each with its line end.
    Status(u16, &'static str),
    /// The end of the connection.
    Cut,
}

/// Serves chat completions until the test process ends; gives the address up to `/v1`.
pub(crate) fn serve(decide: impl Fn(&Value) -> Answer + Send + Sync + 'static) -> String {
    serve_all(move |_, request| decide(request))
}

/// Serves whatever is asked for: the decision is on the path below `/v1` and the body, which is null
/// where there is none.
pub(crate) fn serve_all(decide: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let url = format!("http://{}/v1", listener.local_addr().expect("address"));
    let decide = Arc::new(decide);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let decide = Arc::clone(&decide);
            std::thread::spawn(move || answer(&stream, decide.as_ref()));
        }
    });
    url
}

fn answer(stream: &TcpStream, decide: &dyn Fn(&str, &Value) -> Answer) {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut line = String::new();
    if reader.read_line(&mut line).is_err() {
        return;
    }
    let path = line.split(' ').nth(1).unwrap_or_default();
    let path = path.strip_prefix("/v1").unwrap_or(path).to_owned();
    line.clear();
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        line.clear();
    }
    let mut body = vec![0; length];
    // A connection that was only tried has no path.
    if reader.read_exact(&mut body).is_err() || path.is_empty() {
        return;
    }
    let request: Value = match body.as_slice() {
        [] => Value::Null,
        body => serde_json::from_slice(body).expect("JSON"),
    };
    let (status, headers, reply) = match decide(&path, &request) {
        Answer::Says(text) => {
            let choice = json!({"message": {"content": text}, "finish_reason": "stop"});
            (200, "", json!({"choices": [choice]}).to_string())
        }
        Answer::Body(body) => (200, "", body.to_string()),
        Answer::Status(status, headers) => (status, headers, "{}".into()),
        Answer::Cut => return,
    };
    let mut stream = stream;
    // A client that is gone has no use for the reply.
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{reply}",
        reply.len()
    );
}

/// The number in "What is N + 1?" of a request.
pub(crate) fn number(request: &Value) -> u32 {
    let text = request["messages"].to_string();
    let number = text.split("What is ").nth(1);
    number
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .expect("a problem")
}

/// A configuration for problems like those, on this server. `more` are lines at its end.
pub(crate) fn config(url: &str, splits: &str, more: &str) -> String {
    format!(
        "run: {{name: small, rounds: 1}}
model: {{path: model.gguf}}
policy: {{kind: openai, base_url: '{url}', model: m}}
tasks:
  path: tasks.jsonl
  verifier: integer
  splits: {splits}
harness: naive
budget: {{tokens_per_problem: 2000, seconds_per_problem: 60}}
{more}"
    )
}
