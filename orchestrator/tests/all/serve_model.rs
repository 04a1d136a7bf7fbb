//! `coharness serve-model` on a tiny model: the chat API as clients see it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

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

#[test]
fn a_conversation_gets_the_reference_reply_plain_and_streamed() {
    let server = Server::start(&[], &[]);
    let rows = std::fs::read_to_string(golden().join("greedy.json")).expect("greedy");
    let rows: Value = serde_json::from_str(&rows).expect("JSON");
    let row = &rows[1];
    let reply = server.good(&ask(json!({"logprobs": true, "return_token_ids": true})));
    assert_eq!(reply["prompt_token_ids"], row["ids"]);
    let choice = &reply["choices"][0];
    assert_eq!(choice["token_ids"], row["base"]["ids"]);
    assert_eq!(
        (&choice["finish_reason"], &reply["object"]),
        (&json!("length"), &json!("chat.completion"))
    );
    let entries = choice["logprobs"]["content"].as_array().expect("entries");
    for (entry, expected) in entries
        .iter()
        .zip(row["base"]["logprobs"].as_array().expect("list"))
    {
        let gap = entry["logprob"].as_f64().expect("number") - expected.as_f64().expect("number");
        assert!(gap.abs() < 1e-4, "{entry} {expected}");
    }
    let usage = &reply["usage"];
    assert_eq!(usage["completion_tokens"], 24);
    assert_eq!(
        usage["prompt_tokens"],
        row["ids"].as_array().expect("list").len()
    );

    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let chunks = server.stream(&ask(options));
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, choice["message"]["content"].as_str().expect("text"));
    let ends: Vec<&Value> = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["finish_reason"])
        .filter(|reason| !reason.is_null())
        .collect();
    assert_eq!(ends, [&json!("length")]);
    let last = chunks.last().expect("chunks");
    assert_eq!(
        (&last["choices"], &last["usage"]["completion_tokens"]),
        (&json!([]), &json!(24))
    );
    // The prompt's one full block but the last token was there already.
    assert!(last["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64() > Some(0));
}

#[test]
fn likeliest_tokens_are_told_of_plain_and_streamed() {
    let server = Server::start(&[], &[]);
    let rows = std::fs::read_to_string(golden().join("greedy.json")).expect("greedy");
    let rows: Value = serde_json::from_str(&rows).expect("JSON");
    let gaps = rows[1]["base"]["gaps"].as_array().expect("list");
    let reply = server.good(&ask(json!({"logprobs": true, "top_logprobs": 20})));
    let content = &reply["choices"][0]["logprobs"]["content"];
    let entries = content.as_array().expect("entries");
    assert_eq!((entries.len(), gaps.len()), (24, 24));
    for (entry, gap) in entries.iter().zip(gaps) {
        let top = entry["top_logprobs"].as_array().expect("list");
        assert_eq!(top.len(), 20);
        // Greedy decoding takes the first.
        for part in ["token", "logprob", "bytes"] {
            assert_eq!(top[0][part], entry[part]);
        }
        let logprobs: Vec<f64> = top
            .iter()
            .map(|one| one["logprob"].as_f64().expect("a number"))
            .collect();
        assert!(logprobs.is_sorted_by(|a, b| a >= b), "{logprobs:?}");
        // The reference knows the distance to the second.
        let expected = gap.as_f64().expect("a number");
        assert!((logprobs[0] - logprobs[1] - expected).abs() < 1e-4);
        let keys: Vec<&str> = top[1]
            .as_object()
            .expect("object")
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(keys, ["token", "logprob", "bytes"]);
    }
    let chunks = server.stream(&ask(
        json!({"logprobs": true, "top_logprobs": 20, "stream": true}),
    ));
    let streamed: Vec<&Value> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array())
        .flatten()
        .collect();
    assert_eq!(streamed, entries.iter().collect::<Vec<_>>());
    // Without them, the list is there and empty.
    let reply = server.good(&ask(json!({"logprobs": true})));
    let entry = &reply["choices"][0]["logprobs"]["content"][0];
    assert_eq!(entry["top_logprobs"], json!([]));
    assert_eq!(entry["logprob"], entries[0]["logprob"]);
}

/// What the golden model says to [`ask`], token by token.
fn continuation() -> Vec<Value> {
    let rows = std::fs::read_to_string(golden().join("greedy.json")).expect("greedy");
    let rows: Value = serde_json::from_str(&rows).expect("JSON");
    rows[1]["base"]["ids"].as_array().expect("list").clone()
}

#[test]
fn a_bias_bars_a_token_and_forces_one() {
    let server = Server::start(&[], &[]);
    let reply = |more: Value| {
        let mut body = ask(json!({"logprobs": true, "top_logprobs": 2, "return_token_ids": true}));
        body["logit_bias"] = more;
        server.good(&body)["choices"][0].clone()
    };
    let plain = reply(json!({}));
    assert_eq!(plain["token_ids"], json!(continuation()));
    // Without its first token, the reply begins with the one that was next to it.
    let first = plain["token_ids"][0].as_u64().expect("an id").to_string();
    let barred = reply(json!({first.as_str(): -100}));
    let ids = barred["token_ids"].as_array().expect("list");
    assert_eq!(ids.len(), 24);
    assert!(!ids.contains(&plain["token_ids"][0]), "{ids:?}");
    let (before, after) = (
        &plain["logprobs"]["content"][0],
        &barred["logprobs"]["content"][0],
    );
    assert_eq!(after["bytes"], before["top_logprobs"][1]["bytes"]);
    // What is told of is the model's own, whatever is added.
    assert_eq!(after["logprob"], before["top_logprobs"][1]["logprob"]);
    assert_eq!(after["top_logprobs"], before["top_logprobs"]);
    let forced = reply(json!({"65": 100}));
    assert_eq!(forced["message"]["content"], "A".repeat(24));
    // It was for those requests alone.
    assert_eq!(reply(Value::Null), plain);
}

#[test]
fn penalties_keep_a_reply_from_repeating_itself() {
    let server = Server::start(&[], &[]);
    let ids = |more: Value| -> Vec<Value> {
        let mut body = ask(more);
        body["return_token_ids"] = json!(true);
        let reply = server.good(&body);
        let ids = reply["choices"][0]["token_ids"].as_array();
        ids.expect("list").clone()
    };
    let plain = continuation();
    // The first token that comes twice.
    let again = (1..plain.len()).find(|at| plain[..*at].contains(&plain[*at]));
    let again = again.expect("a repetition");
    for penalty in ["presence_penalty", "frequency_penalty"] {
        let other = ids(json!({penalty: 2}));
        assert_eq!(other[..again], plain[..again], "{penalty}");
        assert_ne!(other[again], plain[again], "{penalty}");
        assert_eq!(ids(json!({penalty: 0})), plain, "{penalty}");
    }
    // One is for each time, so that it makes up for any distance in the end, and the other for once.
    let bias = json!({"65": 100, "66": 80});
    let presence = ids(json!({"logit_bias": bias, "presence_penalty": 2}));
    assert!(presence.iter().all(|id| *id == 65), "{presence:?}");
    let frequency = ids(json!({"logit_bias": bias, "frequency_penalty": 2}));
    assert!(frequency[..4].iter().all(|id| *id == 65), "{frequency:?}");
    assert!(frequency.contains(&json!(66)), "{frequency:?}");
    assert!(frequency.iter().all(|id| *id == 65 || *id == 66));
}

#[test]
fn replies_keep_to_their_form_whatever_is_added_to_logits() {
    let server = Server::start(&[], &[]);
    let schema = json!({"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}},
        "required": ["answer"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
    let tools = json!([{"type": "function", "function": {"name": "say", "parameters": schema}}]);
    let free = json!({"temperature": 1.0, "seed": 5, "max_tokens": 200, "frequency_penalty": 2,
        "presence_penalty": -1});
    let with = |more: Value| {
        let mut body = ask(free.clone());
        for (name, value) in more.as_object().expect("object") {
            body[name] = value.clone();
        }
        server.good(&body)["choices"][0].clone()
    };
    // Of the two answers, the one whose first letter is wanted; and no "A", however much it is.
    for (letter, answer) in [(b'y', "yes"), (b'n', "no")] {
        let bias = json!({letter.to_string(): 100, "65": 100});
        let choice = with(json!({"response_format": format, "logit_bias": bias}));
        let text = choice["message"]["content"].as_str().expect("text");
        let value: Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(value, json!({"answer": answer}));
    }
    // A call begins with "<".
    let bias = json!({"60": -100, "65": 100});
    let choice = with(json!({"tools": tools, "tool_choice": "required", "logit_bias": bias}));
    assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
    let function = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(function["name"], "say");
    let arguments = function["arguments"].as_str().expect("text");
    let arguments: Value = serde_json::from_str(arguments).expect("JSON");
    assert!(arguments["answer"] == "yes" || arguments["answer"] == "no");
}

#[test]
fn several_choices_differ_by_seed_and_repeat() {
    let server = Server::start(&[], &[]);
    let body = ask(json!({"n": 3, "temperature": 1.0, "seed": 11}));
    let first = server.good(&body);
    assert_eq!(first["choices"], server.good(&body)["choices"]);
    let texts: Vec<&Value> = (0..3)
        .map(|i| &first["choices"][i]["message"]["content"])
        .collect();
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "{texts:?}");
    let chunks = server.stream(&ask(
        json!({"n": 3, "temperature": 1.0, "seed": 11, "stream": true}),
    ));
    for (index, text) in texts.iter().enumerate() {
        let joined: String = chunks
            .iter()
            .filter(|chunk| chunk["choices"][0]["index"] == index)
            .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
            .collect();
        assert_eq!(&json!(joined), *text);
    }
}

#[test]
fn replies_keep_to_schemas_and_demanded_calls() {
    let server = Server::start(&[], &[]);
    let schema = json!({"type": "object", "properties": {"answer": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["answer"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
    let free = json!({"temperature": 1.0, "ignore_eos": false, "max_tokens": 200});
    let with = |more: Value| {
        let mut body = ask(free.clone());
        for (name, value) in more.as_object().expect("object") {
            body[name] = value.clone();
        }
        body
    };
    for seed in 0..5 {
        let reply = server.good(&with(json!({"response_format": format, "seed": seed})));
        let text = reply["choices"][0]["message"]["content"]
            .as_str()
            .expect("text");
        let value: Value = serde_json::from_str(text).expect("JSON");
        assert!(value["answer"].as_u64().is_some_and(|n| n < 100), "{text}");
        assert_eq!(reply["choices"][0]["finish_reason"], "stop");
        let tools =
            json!([{"type": "function", "function": {"name": "add", "parameters": schema}}]);
        let call = json!({"tools": tools, "tool_choice": "required", "seed": seed});
        let reply = server.good(&with(call.clone()));
        let choice = &reply["choices"][0];
        assert_eq!(
            (&choice["finish_reason"], &choice["message"]["content"]),
            (&json!("tool_calls"), &Value::Null)
        );
        let function = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(function["name"], "add");
        let arguments = function["arguments"].as_str().expect("text");
        let arguments: Value = serde_json::from_str(arguments).expect("JSON");
        assert!(arguments["answer"].as_u64().is_some_and(|n| n < 100));
        let mut streamed = with(call);
        streamed["stream"] = json!(true);
        let chunks = server.stream(&streamed);
        let last = &chunks.last().expect("chunks")["choices"][0];
        assert_eq!(last["delta"]["tool_calls"][0]["function"], *function);
        assert_eq!(last["finish_reason"], "tool_calls");
    }
}

/// The end of what a grammar allows is the end of the reply, whatever is said of the model's own.
#[test]
fn a_bounded_reply_ends_where_its_grammar_does_although_ends_are_ignored() {
    let server = Server::start(&[], &[]);
    let schema = json!({"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}},
        "required": ["answer"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
    let tools = json!([{"type": "function", "function": {"name": "say", "parameters": schema}}]);
    for (more, finish) in [
        (json!({"response_format": format}), "stop"),
        (
            json!({"tools": tools, "tool_choice": "required"}),
            "tool_calls",
        ),
    ] {
        let mut body = ask(json!({"temperature": 1.0, "ignore_eos": true, "max_tokens": 200}));
        for (name, value) in more.as_object().expect("object") {
            body[name] = value.clone();
        }
        let reply = server.good(&body);
        assert_eq!(reply["choices"][0]["finish_reason"], finish, "{reply}");
    }
}

#[test]
fn schemas_with_definitions_of_one_name_are_kept_to_by_every_call() {
    let server = Server::start(&[], &[]);
    let tool = |name: &str, field: &str| {
        let point = json!({"type": "object", "properties": {field: {"type": "integer", "minimum": 0, "maximum": 9}},
            "required": [field], "additionalProperties": false});
        let parameters = json!({"$defs": {"Point": point}, "type": "object",
            "properties": {"at": {"$ref": "#/$defs/Point"}}, "required": ["at"], "additionalProperties": false});
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    for (choice, seed) in [
        (json!("required"), 1),
        (json!("required"), 2),
        (named("row"), 3),
        (named("column"), 4),
    ] {
        let reply = server.good(&ask(json!({
            "tools": [tool("row", "y"), tool("column", "x")], "tool_choice": choice,
            "parallel_tool_calls": false, "temperature": 1.0, "seed": seed, "ignore_eos": false, "max_tokens": 200,
        })));
        let function = &reply["choices"][0]["message"]["tool_calls"][0]["function"];
        let field = match function["name"].as_str() {
            Some("row") => "y",
            Some("column") => "x",
            _ => panic!("{reply}"),
        };
        if let Some(name) = choice["function"]["name"].as_str() {
            assert_eq!(function["name"], name);
        }
        let arguments = function["arguments"].as_str().expect("text");
        let arguments: Value = serde_json::from_str(arguments).expect("JSON");
        assert!(arguments["at"][field].as_u64() < Some(10), "{reply}");
    }
}

#[test]
fn models_are_told_of_one_by_one() {
    let adapter = format!("team/tuned={}", golden().join("adapter").display());
    let server = Server::start(&["--adapter", &adapter], &[]);
    for name in ["llama_tied", "team/tuned", "team%2Ftuned"] {
        let (status, model) = server.send("GET", &format!("/v1/models/{name}"), None, None);
        let model: Value = serde_json::from_str(&model).expect("JSON");
        assert_eq!(
            (status, &model["id"]),
            (200, &json!(name.replace("%2F", "/")))
        );
        assert_eq!(
            (&model["object"], &model["max_model_len"]),
            (&json!("model"), &json!(512))
        );
    }
    let (status, error) = server.send("GET", "/v1/models/gpt", None, None);
    let error: Value = serde_json::from_str(&error).expect("JSON");
    assert_eq!(
        (status, &error["error"]["code"]),
        (404, &json!("model_not_found"))
    );
}

#[test]
fn two_models_of_one_name_are_not_served() {
    let place = Place::new();
    let model = format!("model.path={}", golden().display());
    let adapter = golden().join("adapter").display().to_string();
    for (names, refused) in [
        (
            vec![adapter.clone(), adapter.clone()],
            "\"adapter\": another has it",
        ),
        (
            vec![format!("llama_tied={adapter}")],
            "\"llama_tied\": that is the base model's",
        ),
        (vec![format!("={adapter}")], "\"\": it is empty"),
    ] {
        let mut arguments = vec!["serve-model", "--port", "0", "--set", &model];
        arguments.extend(names.iter().flat_map(|name| ["--adapter", name]));
        let said = place.run(&arguments);
        assert!(
            said.contains(refused) && said.contains("--adapter NAME=DIR"),
            "{said}"
        );
        assert!(said.ends_with("--- exit 2\n"), "{said}");
    }
}

#[test]
fn adapters_answer_under_their_own_names() {
    let adapter = format!("tuned={}", golden().join("adapter").display());
    let server = Server::start(&["--adapter", &adapter], &[]);
    let (status, models) = server.send("GET", "/v1/models", None, None);
    let models: Value = serde_json::from_str(&models).expect("JSON");
    assert_eq!((status, &models["data"][1]["id"]), (200, &json!("tuned")));
    let rows = std::fs::read_to_string(golden().join("greedy.json")).expect("greedy");
    let rows: Value = serde_json::from_str(&rows).expect("JSON");
    for (name, part) in [("tuned", "adapter"), ("llama_tied", "base")] {
        let reply = server.good(&ask(json!({"model": name, "return_token_ids": true})));
        assert_eq!(reply["choices"][0]["token_ids"], rows[1][part]["ids"]);
        assert_eq!(reply["model"], name);
    }
    let (status, error) = server.chat(&ask(json!({"model": "gpt"})));
    assert_eq!(
        (status, &error["error"]["code"]),
        (404, &json!("model_not_found"))
    );
}

#[test]
fn what_cannot_be_answered_is_refused_in_the_apis_own_shape() {
    let server = Server::start(&[], &[]);
    for (body, code, parameter) in [
        (
            json!({"max_tokens": 4000}),
            json!("context_length_exceeded"),
            Value::Null,
        ),
        (json!({"messages": []}), Value::Null, json!("messages")),
        (
            json!({"temperature": 99}),
            Value::Null,
            json!("temperature"),
        ),
        (json!({"messages": "hello"}), Value::Null, Value::Null),
        (
            json!({"guided_json": {"type": "object"}}),
            Value::Null,
            json!("guided_json"),
        ),
        (
            json!({"repetition_penalty": 1.1}),
            Value::Null,
            json!("repetition_penalty"),
        ),
    ] {
        let (status, error) = server.chat(&ask(body));
        assert_eq!(status, 400, "{error}");
        assert_eq!(
            (&error["error"]["code"], &error["error"]["param"]),
            (&code, &parameter)
        );
        assert_eq!(error["error"]["type"], "invalid_request_error");
    }
    let (status, error) = server.chat(&ask(json!({"user": "x".repeat(17 << 20)})));
    assert_eq!(status, 413, "{error}");
    assert_eq!(
        error["error"],
        json!({
            "message": "the request has more than 16 MiB",
            "type": "invalid_request_error",
            "param": null,
            "code": null,
        })
    );
    // What asks for nothing, or only tells of the client, is no hindrance.
    server.good(&ask(json!({"repetition_penalty": 1.0, "guided_json": null, "user": "me", "metadata": {"a": "b"}})));
    assert_eq!(server.send("GET", "/health", None, None).0, 200);
    for (method, path, status) in [
        ("GET", "/nowhere", 404),
        ("POST", "/v1/completions", 404),
        ("GET", "/v1/chat/completions", 405),
    ] {
        let (said, body) = server.send(method, path, None, None);
        assert_eq!(said, status, "{body}");
        let error: Value = serde_json::from_str(&body).expect("JSON");
        let message = error["error"]["message"].as_str().expect("a message");
        assert!(
            message.contains(&format!("no {method} {path}, only")),
            "{body}"
        );
    }
}

#[test]
fn what_cannot_be_asked_of_logits_is_refused_with_the_reason() {
    let server = Server::start(&[], &[]);
    for (body, parameter, reason) in [
        (
            json!({"logprobs": true, "top_logprobs": 21}),
            "top_logprobs",
            "it must be from 0 to 20",
        ),
        (
            json!({"top_logprobs": 5}),
            "top_logprobs",
            "it needs logprobs to be true",
        ),
        (
            json!({"frequency_penalty": 2.1}),
            "frequency_penalty",
            "it must be from -2 to 2",
        ),
        (
            json!({"presence_penalty": -3}),
            "presence_penalty",
            "it must be from -2 to 2",
        ),
        (
            json!({"logit_bias": {"29": 101}}),
            "logit_bias",
            "token 29: it must be a number from -100 to 100",
        ),
        (
            json!({"logit_bias": {"A": 1}}),
            "logit_bias",
            "\"A\" is no token id",
        ),
        (
            json!({"logit_bias": {"29": 1, "260": 1}}),
            "logit_bias",
            "token 260 is outside the vocabulary of 260",
        ),
        (
            json!({"logit_bias": [[29, 1]]}),
            "logit_bias",
            "it is no object of token ids with numbers",
        ),
    ] {
        let (status, error) = server.chat(&ask(body));
        let expected = json!({
            "message": format!("{parameter}: {reason}"),
            "type": "invalid_request_error",
            "param": parameter,
            "code": null,
        });
        assert_eq!((status, &error["error"]), (400, &expected));
    }
}

#[test]
fn a_key_is_asked_for_where_one_is_set() {
    let server = Server::start(&["--api-key-env", "MY_KEY"], &[("MY_KEY", "secret")]);
    for (key, status) in [(None, 401), (Some("wrong"), 401), (Some("secret"), 200)] {
        assert_eq!(server.send("GET", "/v1/models", None, key).0, status);
    }
}

/// The public client, where `scripts/test` has made an environment with it.
#[test]
fn the_openai_client_for_python_understands_the_server() {
    let Some(python) = std::env::var_os("COHARNESS_TEST_OPENAI_PYTHON") else {
        println!("skipped: COHARNESS_TEST_OPENAI_PYTHON is not set");
        return;
    };
    let server = Server::start(&[], &[]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openai_client.py");
    let output = Command::new(python)
        .arg(script)
        .arg(format!("http://{}/v1", server.address))
        .output()
        .expect("Python runs");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
