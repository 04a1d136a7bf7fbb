//! Requests that get no answer, and what is said instead.

use serde_json::{Value, json};

use super::{Server, ask};

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
fn a_key_is_asked_for_where_one_is_set() {
    let server = Server::start(&["--api-key-env", "MY_KEY"], &[("MY_KEY", "secret")]);
    for (key, status) in [(None, 401), (Some("wrong"), 401), (Some("secret"), 200)] {
        assert_eq!(server.send("GET", "/v1/models", None, key).0, status);
    }
}
