//! Tools and calls in OpenAI's form, from the ways in which they are written.

use serde_json::{Map, Value, json};

/// A row's tools: a list, or a text that is one; none where it is empty.
pub(super) fn tools(tools: Option<Value>) -> Result<Option<Value>, String> {
    let tools = match tools {
        Some(Value::String(text)) if text.trim().is_empty() => None,
        Some(Value::String(text)) => Some(
            harness::json::parse(&text)
                .map_err(|error| format!("tools is a text that is no JSON: {error}"))?,
        ),
        tools => tools,
    };
    match tools {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(tools)) if tools.is_empty() => Ok(None),
        Some(Value::Array(tools)) => {
            let tools = tools.into_iter().map(tool);
            Ok(Some(Value::Array(tools.collect::<Result<_, String>>()?)))
        }
        Some(_) => Err("tools is not a list".into()),
    }
}

fn tool(tool: Value) -> Result<Value, String> {
    if tool["function"]["name"].is_string() {
        return Ok(tool);
    }
    // Some write the function without what is around it.
    if tool["name"].is_string() && tool.get("function").is_none() {
        return Ok(json!({"type": "function", "function": tool}));
    }
    Err("tools: one of them has no function.name".into())
}

/// A call, its arguments as an object.
pub(super) fn call(call: Value) -> Result<Value, String> {
    let Value::Object(mut call) = call else {
        return Err("tool_calls: one of them is no JSON object".into());
    };
    call.retain(|_, value| !value.is_null());
    let mut function = match call.shift_remove("function") {
        Some(Value::Object(function)) => function,
        Some(_) => return Err("tool_calls: the function of one is no JSON object".into()),
        None => ["name", "arguments"]
            .into_iter()
            .filter_map(|key| call.shift_remove_entry(key))
            .collect(),
    };
    let name = match function.get("name") {
        Some(Value::String(name)) => name.clone(),
        _ => return Err("tool_calls: one of them has no function.name".into()),
    };
    let wrong = |reason: &str| format!("the arguments of a call of {name} are {reason}");
    let arguments = match function.shift_remove("arguments") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(Value::String(text)) if text.trim().is_empty() => Map::new(),
        Some(Value::String(text)) => match harness::json::parse(&text) {
            Ok(Value::Object(arguments)) => arguments,
            Ok(_) => return Err(wrong("a text that is no JSON object")),
            Err(error) => return Err(wrong(&format!("a text that is no JSON object: {error}"))),
        },
        Some(_) => return Err(wrong("no object")),
    };
    function.insert("arguments".to_owned(), Value::Object(arguments));
    match call.get("type") {
        None => {
            call.insert("type".to_owned(), Value::from("function"));
        }
        Some(kind) if kind == "function" => {}
        Some(kind) => return Err(format!("tool_calls: one of them is of type {kind}")),
    }
    call.insert("function".to_owned(), Value::Object(function));
    Ok(Value::Object(call))
}
