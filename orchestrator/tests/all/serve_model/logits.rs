//! What is told of logits, and what is added to them.

use serde_json::{Value, json};

use super::{Server, ask, golden};

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
