//! Calls in a reply, written as `<tool_call>{"name": …, "arguments": {…}}</tool_call>` (the form of
//! Hermes and Qwen models).

use serde_json::{Value, json};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// The text around the calls, and the calls as the API gives them. What opens as a call and can't
/// be read stays text.
pub(super) fn split(text: &str, id: &str) -> (String, Vec<Value>) {
    let mut content = String::new();
    let mut calls = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(OPEN) {
        let inside = &rest[start + OPEN.len()..];
        // A reply that ends within its last call has the stop token where the mark should be.
        let (body, after) = match inside.find(CLOSE) {
            Some(end) => (&inside[..end], &inside[end + CLOSE.len()..]),
            None => (inside, ""),
        };
        match read(body) {
            Some((name, arguments)) => {
                content.push_str(&rest[..start]);
                calls.push(json!({
                    "index": calls.len(),
                    "id": format!("call-{id}-{}", calls.len()),
                    "type": "function",
                    "function": {"name": name, "arguments": arguments.to_string()},
                }));
            }
            None => content.push_str(&rest[..rest.len() - after.len()]),
        }
        rest = after;
    }
    content.push_str(rest);
    if calls.is_empty() {
        return (content, calls);
    }
    (content.trim().to_owned(), calls)
}

fn read(body: &str) -> Option<(String, Value)> {
    let call: Value = serde_json::from_str(body.trim()).ok()?;
    let name = call["name"].as_str()?.to_owned();
    let arguments = match call.get("arguments").or_else(|| call.get("parameters")) {
        Some(arguments @ Value::Object(_)) => arguments.clone(),
        None => json!({}),
        Some(_) => return None,
    };
    Some((name, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_taken_out_of_the_text() {
        let (content, calls) = split(
            "I count.\n<tool_call>\n{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}\n</tool_call>\n\
             <tool_call>{\"name\": \"stop\"}",
            "7",
        );
        assert_eq!(content, "I count.");
        assert_eq!(calls.len(), 2);
        assert_eq!(calls[0]["function"]["arguments"], r#"{"code":"1"}"#);
        assert_eq!(
            (&calls[1]["id"], &calls[1]["index"]),
            (&json!("call-7-1"), &json!(1))
        );
    }

    #[test]
    fn what_is_no_call_stays_text() {
        for text in [
            "plain",
            " <tool_call>not json</tool_call> after",
            "<tool_call>{\"name\": 5}</tool_call>",
            "<tool_call>{\"name\": \"x\", \"arguments\": 5}",
            "",
        ] {
            assert_eq!(split(text, "1"), (text.to_owned(), Vec::new()));
        }
    }
}
