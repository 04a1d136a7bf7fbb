//! What is said: the reference's replies, several choices, and what the public client makes of it.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{Server, ask, golden};

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
