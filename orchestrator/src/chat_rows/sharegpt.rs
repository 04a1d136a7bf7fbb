//! Turns of the form of ShareGPT, with the roles that LLaMA-Factory added for tools.

use serde_json::{Value, json};

use super::message;

/// A turn as a message. What it says beside `from` and `value`, a `weight` say, is the message's.
pub(super) fn turn(turn: Value) -> Result<Value, String> {
    let Value::Object(mut turn) = turn else {
        return Err("a turn is no JSON object".into());
    };
    let (from, value) = (turn.shift_remove("from"), turn.shift_remove("value"));
    let (Some(Value::String(from)), Some(Value::String(value))) = (from, value) else {
        return Err("a turn has no from or no value".into());
    };
    if let Some(name) = ["role", "content", "tool_calls"]
        .iter()
        .find(|name| turn.contains_key(**name))
    {
        return Err(format!("a turn has {name} beside from and value"));
    }
    let role = match from.as_str() {
        "system" => "system",
        "human" | "user" => "user",
        "gpt" | "assistant" | "chatgpt" | "bing" | "bard" | "function_call" => "assistant",
        "tool" | "observation" | "function_response" => "tool",
        other => return Err(format!("a turn is from {other}")),
    };
    turn.insert("role".to_owned(), role.into());
    if from == "function_call" {
        turn.insert("content".to_owned(), "".into());
        turn.insert("tool_calls".to_owned(), calls(&value)?);
    } else {
        turn.insert("content".to_owned(), value.into());
    }
    message::read(Value::Object(turn))
}

/// The calls of a turn: one as JSON, or a list of them.
fn calls(value: &str) -> Result<Value, String> {
    let wrong = |reason: &str| format!("a function_call is {reason}");
    match harness::json::parse(value) {
        Ok(Value::Array(calls)) if !calls.is_empty() => Ok(Value::Array(calls)),
        Ok(call @ Value::Object(_)) => Ok(json!([call])),
        Ok(_) => Err(wrong("neither a call nor a list of calls")),
        Err(error) => Err(wrong(&format!("no JSON: {error}"))),
    }
}
