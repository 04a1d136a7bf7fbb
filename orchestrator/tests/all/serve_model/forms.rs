//! Replies that have to keep to a form: schemas and demanded calls.

use serde_json::{Value, json};

use super::{Server, ask};

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
