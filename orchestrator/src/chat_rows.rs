//! Conversations as JSON lines, `{"messages": [...]}`: reading the forms in use, writing ours.

use serde_json::{Value, json};

use rollout::trajectory::{Message, Role, ToolCall, Trajectory};

/// A form of training data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// Whatever the first line's fields say.
    Auto,
    /// `{"messages": [{"role", "content"}]}`.
    Messages,
    /// `{"prompt", "completion"}`, each a text or a list of messages.
    PromptCompletion,
    /// `{"conversations": [{"from", "value"}]}`.
    Sharegpt,
    /// `{"instruction", "input"?, "output", "system"?}`.
    Alpaca,
}

/// A line that is no conversation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct RowError {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

/// Conversations of a JSON lines text, each as `{"id"?, "messages", "tools"?}`; empty lines are
/// read over.
///
/// # Errors
/// Names the first line that is none.
pub fn read(text: &str, form: Form) -> Result<Vec<Value>, RowError> {
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let fail = |reason: String| RowError {
            line: index + 1,
            reason,
        };
        let row: Value = serde_json::from_str(line).map_err(|e| fail(e.to_string()))?;
        let messages = messages(&row, form).map_err(fail)?;
        let mut read = json!({});
        for name in ["id", "tools"] {
            if let Some(value) = row.get(name).filter(|value| !value.is_null()) {
                read[name] = value.clone();
            }
        }
        read["messages"] = Value::Array(messages);
        rows.push(read);
    }
    Ok(rows)
}

fn messages(row: &Value, form: Form) -> Result<Vec<Value>, String> {
    let has = |name: &str| row.get(name).is_some();
    let form = match form {
        Form::Auto if has("messages") => Form::Messages,
        Form::Auto if has("conversations") => Form::Sharegpt,
        Form::Auto if has("prompt") && has("completion") => Form::PromptCompletion,
        Form::Auto if has("instruction") && has("output") => Form::Alpaca,
        Form::Auto => {
            return Err(
                "none of messages, conversations, prompt with completion, instruction with output"
                    .into(),
            );
        }
        form => form,
    };
    match form {
        Form::Auto | Form::Messages => list(row, "messages")?.iter().map(checked).collect(),
        Form::PromptCompletion => {
            let mut messages = side(row, "prompt", "user")?;
            // Only the completion is what the row teaches.
            for message in messages.iter_mut().filter(|m| m["role"] == "assistant") {
                message["train"] = json!(false);
            }
            messages.extend(side(row, "completion", "assistant")?);
            Ok(messages)
        }
        Form::Sharegpt => list(row, "conversations")?
            .iter()
            .map(from_sharegpt)
            .collect(),
        Form::Alpaca => {
            let text = |name: &str| match row.get(name) {
                None | Some(Value::Null) => Ok(String::new()),
                Some(Value::String(text)) => Ok(text.clone()),
                Some(_) => Err(format!("{name} is not a text")),
            };
            let (system, input) = (text("system")?, text("input")?);
            let mut question = text("instruction")?;
            if !input.is_empty() {
                question = format!("{question}\n\n{input}");
            }
            let mut messages = Vec::new();
            if !system.is_empty() {
                messages.push(json!({"role": "system", "content": system}));
            }
            messages.push(json!({"role": "user", "content": question}));
            messages.push(json!({"role": "assistant", "content": text("output")?}));
            Ok(messages)
        }
    }
}

fn list<'a>(row: &'a Value, name: &str) -> Result<&'a Vec<Value>, String> {
    match row.get(name) {
        Some(Value::Array(list)) if !list.is_empty() => Ok(list),
        Some(Value::Array(_)) => Err(format!("{name} is empty")),
        Some(_) => Err(format!("{name} is not a list")),
        None => Err(format!("it has no {name}")),
    }
}

fn checked(message: &Value) -> Result<Value, String> {
    let role = message["role"].as_str().ok_or("a message has no role")?;
    if !["system", "user", "assistant", "tool"].contains(&role) {
        return Err(format!("there is no role {role}"));
    }
    let has_calls = message["tool_calls"]
        .as_array()
        .is_some_and(|calls| !calls.is_empty());
    match &message["content"] {
        Value::String(_) => Ok(message.clone()),
        Value::Null if has_calls => {
            let mut message = message.clone();
            message["content"] = json!("");
            Ok(message)
        }
        _ => Err(format!("a message of the {role} has no text")),
    }
}

/// One side of a prompt and completion row.
fn side(row: &Value, name: &str, role: &str) -> Result<Vec<Value>, String> {
    match row.get(name) {
        Some(Value::String(text)) => Ok(vec![json!({"role": role, "content": text})]),
        Some(Value::Array(_)) => list(row, name)?.iter().map(checked).collect(),
        _ => Err(format!("{name} is neither a text nor a list of messages")),
    }
}

fn from_sharegpt(turn: &Value) -> Result<Value, String> {
    let (from, value) = (turn["from"].as_str(), turn["value"].as_str());
    let (Some(from), Some(value)) = (from, value) else {
        return Err("a turn has no from or no value".into());
    };
    let role = match from {
        "system" => "system",
        "human" | "user" => "user",
        "gpt" | "assistant" | "chatgpt" | "bing" | "bard" => "assistant",
        "tool" | "observation" | "function_response" => "tool",
        other => return Err(format!("a turn is from {other}")),
    };
    Ok(json!({"role": role, "content": value}))
}

/// A rollout as a row: the conversation as the policy had it, its own replies marked with `train`.
pub fn of_trajectory(trajectory: &Trajectory) -> Value {
    json!({
        "id": trajectory.id.as_str(),
        "task": trajectory.task.as_str(),
        "correct": trajectory.verdict.correct,
        "messages": trajectory.messages.iter().map(message).collect::<Vec<_>>(),
    })
}

fn message(message: &Message) -> Value {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let mut written = json!({"role": role, "content": message.content});
    if role == "assistant" {
        written["train"] = json!(message.train);
    }
    if !message.tool_calls.is_empty() && message.is_native {
        let call = |call: &ToolCall| json!({"type": "function", "function": {"name": call.tool, "arguments": call.arguments}});
        written["tool_calls"] = message.tool_calls.iter().map(call).collect();
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(row: &Value, form: Form) -> Result<Value, String> {
        read(&row.to_string(), form)
            .map(|rows| rows[0]["messages"].clone())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn all_forms_become_messages() {
        let plain =
            json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]);
        for row in [
            json!({"messages": plain}),
            json!({"prompt": "q", "completion": "a"}),
            json!({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]}),
            json!({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}),
            json!({"instruction": "q", "input": "", "output": "a"}),
        ] {
            assert_eq!(one(&row, Form::Auto).as_ref(), Ok(&plain), "{row}");
        }
        let alpaca = json!({"system": "s", "instruction": "q", "input": "i", "output": "a"});
        let messages = one(&alpaca, Form::Alpaca).expect("row");
        assert_eq!(
            (&messages[0]["content"], &messages[1]["content"]),
            (&json!("s"), &json!("q\n\ni"))
        );
        let earlier = json!({"prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "old"},
            {"role": "user", "content": "r"}], "completion": "a"});
        let messages = one(&earlier, Form::Auto).expect("row");
        assert_eq!(
            (&messages[1]["train"], &messages[3].get("train")),
            (&json!(false), &None)
        );
    }

    #[test]
    fn ids_tools_and_calls_are_kept_and_faults_name_their_line() {
        let text = "\n{\"id\": \"x\", \"tools\": [{\"a\": 1}], \"messages\": [{\"role\": \"assistant\", \"content\": null, \
            \"tool_calls\": [{\"function\": {}}]}]}\n{\"text\": \"no\"}";
        let error = read(text, Form::Auto).expect_err("line 3");
        assert_eq!(
            (error.line, error.reason.starts_with("none of messages")),
            (3, true)
        );
        let rows = read(text.lines().nth(1).expect("line"), Form::Auto).expect("row");
        assert_eq!(
            (&rows[0]["id"], &rows[0]["messages"][0]["content"]),
            (&json!("x"), &json!(""))
        );
        assert_eq!(rows[0]["tools"], json!([{"a": 1}]));
        for wrong in [
            json!({"messages": []}),
            json!({"messages": [{"role": "robot", "content": "x"}]}),
            json!({"messages": [{"role": "user"}]}),
            json!({"conversations": [{"from": "alien", "value": "x"}]}),
            json!({"prompt": 5, "completion": "x"}),
            json!({"instruction": 5, "output": "x"}),
        ] {
            assert!(one(&wrong, Form::Auto).is_err(), "{wrong}");
        }
    }
}
