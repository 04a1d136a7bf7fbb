//! `coharness serve-model` on a tiny model: the chat API as clients see it.

mod forms;
mod logits;
mod models;
mod refusals;
mod replies;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::Place;

pub(crate) fn golden() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trainer/tests/golden/llama_tied");
    root.canonicalize().expect("golden model")
}

pub(crate) struct Server {
    child: Child,
    address: String,
    _place: Place,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    pub(crate) fn start(more: &[&str], variables: &[(&str, &str)]) -> Self {
        let place = Place::new();
        let model = format!("model.path={}", golden().display());
        let mut arguments = vec![
            "serve-model",
            "--port",
            "0",
            "--context",
            "512",
            "--set",
            &model,
            "--set",
            "model.arithmetic=f32",
        ];
        arguments.extend(more);
        let mut child = place
            .command(&arguments)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("http://").expect("an address");
        let address = address.strip_suffix("/v1").expect("a path").to_owned();
        Self {
            child,
            address,
            _place: place,
        }
    }

    /// Status and body.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("connection");
        let body = body.map(Value::to_string).unwrap_or_default();
        let key = key
            .map(|key| format!("authorization: Bearer {key}\r\n"))
            .unwrap_or_default();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{key}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("read");
        let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|s| s.parse().ok())
            .expect("a status");
        let body = if head
            .to_ascii_lowercase()
            .contains("transfer-encoding: chunked")
        {
            dechunk(body)
        } else {
            body.to_owned()
        };
        (status, body)
    }

    pub(crate) fn chat(&self, body: &Value) -> (u16, Value) {
        let (status, text) = self.send("POST", "/v1/chat/completions", Some(body), None);
        (
            status,
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}")),
        )
    }

    pub(crate) fn good(&self, body: &Value) -> Value {
        let (status, reply) = self.chat(body);
        assert_eq!(status, 200, "{reply}");
        reply
    }

    /// The chunks of a streamed answer.
    fn stream(&self, body: &Value) -> Vec<Value> {
        let (status, text) = self.send("POST", "/v1/chat/completions", Some(body), None);
        assert_eq!(status, 200, "{text}");
        let mut lines: Vec<&str> = text
            .lines()
            .filter_map(|l| l.strip_prefix("data: "))
            .collect();
        assert_eq!(lines.pop(), Some("[DONE]"));
        lines
            .iter()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }
}

fn dechunk(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).expect("a length");
        text.push_str(&rest[..length]);
        body = rest[length..].trim_start_matches("\r\n");
    }
    text
}

pub(crate) fn ask(more: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "What is 7 + 5?"}],
        "max_tokens": 24, "temperature": 0, "ignore_eos": true,
    });
    for (name, value) in more.as_object().expect("object") {
        body[name] = value.clone();
    }
    body
}
