//! Conversations as JSON lines, `{"messages": [...]}`: reading the forms in use, writing ours.
//!
//! Reading loses nothing without a word. What a row says beside its conversation stays in it; what
//! would change what it teaches, and has no meaning here, is an error that names line and field.
//!
//! Parts: `message` reads one message, `sharegpt` one turn of that form, `offered` tools and calls,
//! `written` makes a row of a rollout.

mod message;
mod offered;
mod sharegpt;
mod written;

use serde_json::{Map, Value, json};

pub use written::of_trajectory;

/// A form of training data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// Whatever each row's fields say.
    Auto,
    /// `{"messages": [{"role", "content"}]}`.
    Messages,
    /// `{"prompt", "completion"}`, each a text or a list of messages.
    PromptCompletion,
    /// `{"conversations": [{"from", "value"}]}`.
    Sharegpt,
    /// `{"instruction", "input"?, "output", "history"?}`.
    Alpaca,
}

/// Fields of a row that would change what it teaches, and that have no meaning here: pairs to prefer
/// one of, what isn't text, ways to render it, how much it counts, other conversations.
const REFUSED: [&str; 20] = [
    "audio",
    "audios",
    "chat_template",
    "chat_template_kwargs",
    "chosen",
    "conversations",
    "documents",
    "function_call",
    "functions",
    "history",
    "image",
    "images",
    "kto_tag",
    "label",
    "messages",
    "rejected",
    "sample_weight",
    "video",
    "videos",
    "weight",
];

/// Fields that are a conversation of another form where both are there. One alone is a note on the row.
const OTHER_FORMS: [[&str; 2]; 2] = [["prompt", "completion"], ["instruction", "output"]];

/// A line that is no conversation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct RowError {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

/// Conversations of a JSON lines text, each as `{"id"?, "tools"?, "messages"}` and whatever else its
/// line says; empty lines are read over.
///
/// # Errors
/// Names the first line that is none, and the field that is wrong.
pub fn read(text: &str, form: Form) -> Result<Vec<Value>, RowError> {
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let fail = |reason: String| RowError {
            line: index + 1,
            reason,
        };
        let row = harness::json::parse_line(line).map_err(|error| fail(error.to_string()))?;
        if let Some(row) = row {
            rows.push(read_row(row, form).map_err(fail)?);
        }
    }
    Ok(rows)
}

fn read_row(row: Value, form: Form) -> Result<Value, String> {
    let Value::Object(mut row) = row else {
        return Err("it is no JSON object".into());
    };
    // Tables give every row every field.
    row.retain(|_, value| !value.is_null());
    let form = form_of(&row, form)?;
    let tools = offered::tools(row.shift_remove("tools"))?;
    let system = text(&mut row, "system")?;
    let mut messages = match form {
        Form::Auto | Form::Messages => read_all(&mut row, "messages", message::read)?,
        Form::Sharegpt => read_all(&mut row, "conversations", sharegpt::turn)?,
        Form::PromptCompletion => {
            // Only the completion is what the row teaches.
            if row.get("prompt").is_some_and(is_to_be_learnt) {
                return Err(
                    "a message of the prompt is to be trained on; only the completion can be"
                        .into(),
                );
            }
            let mut messages = side(&mut row, "prompt", "user")?;
            for message in messages.iter_mut().filter(|m| m["role"] == "assistant") {
                message["train"] = json!(false);
            }
            messages.extend(side(&mut row, "completion", "assistant")?);
            messages
        }
        Form::Alpaca => alpaca(&mut row)?,
    };
    put_system(&mut messages, system)?;
    row.retain(|name, value| !(REFUSED.contains(&name.as_str()) && says_nothing(value)));
    if let Some(name) = row.keys().find(|name| REFUSED.contains(&name.as_str())) {
        return Err(format!(
            "{name} would change what the row teaches, and has no meaning in this form"
        ));
    }
    let says = |name: &str| row.get(name).is_some_and(|value| !says_nothing(value));
    if let Some([one, other]) = OTHER_FORMS
        .iter()
        .find(|names| names.iter().all(|name| says(name)))
    {
        return Err(format!(
            "{one} and {other} are a conversation of another form beside this one"
        ));
    }
    let mut read = Map::new();
    for (name, value) in [("id", row.shift_remove("id")), ("tools", tools)] {
        if let Some(value) = value {
            read.insert(name.to_owned(), value);
        }
    }
    read.insert("messages".to_owned(), Value::Array(messages));
    read.extend(row);
    Ok(Value::Object(read))
}

fn form_of(row: &Map<String, Value>, form: Form) -> Result<Form, String> {
    let has = |name: &str| row.contains_key(name);
    match form {
        Form::Auto if has("messages") => Ok(Form::Messages),
        Form::Auto if has("conversations") => Ok(Form::Sharegpt),
        Form::Auto if has("prompt") && has("completion") => Ok(Form::PromptCompletion),
        Form::Auto if has("instruction") && has("output") => Ok(Form::Alpaca),
        Form::Auto => Err(
            "none of messages, conversations, prompt with completion, instruction with output"
                .into(),
        ),
        form => Ok(form),
    }
}

/// Whether a value stands for a field that isn't there.
pub(crate) fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A field's text, empty if it isn't there.
fn text(row: &mut Map<String, Value>, name: &str) -> Result<String, String> {
    match row.shift_remove(name) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("{name} is not a text")),
    }
}

/// A field's list, each item read as a message.
fn read_all(
    row: &mut Map<String, Value>,
    name: &str,
    read: fn(Value) -> Result<Value, String>,
) -> Result<Vec<Value>, String> {
    match row.shift_remove(name) {
        Some(Value::Array(list)) if !list.is_empty() => list.into_iter().map(read).collect(),
        Some(Value::Array(_)) => Err(format!("{name} is empty")),
        Some(_) => Err(format!("{name} is not a list")),
        None => Err(format!("it has no {name}")),
    }
}

/// One side of a prompt and completion row.
fn side(row: &mut Map<String, Value>, name: &str, role: &str) -> Result<Vec<Value>, String> {
    match row.get(name) {
        Some(Value::String(_)) => {
            let content = text(row, name)?;
            Ok(vec![json!({"role": role, "content": content})])
        }
        Some(Value::Array(_)) => read_all(row, name, message::read),
        _ => Err(format!("{name} is neither a text nor a list of messages")),
    }
}

/// Whether a list of messages says of one that it is learnt from.
fn is_to_be_learnt(messages: &Value) -> bool {
    let is_learnt =
        |message: &Value| message["train"] == true || message["weight"].as_f64() == Some(1.0);
    messages
        .as_array()
        .is_some_and(|messages| messages.iter().any(is_learnt))
}

/// Earlier turns are learnt from too, as LLaMA-Factory does with this form.
fn alpaca(row: &mut Map<String, Value>) -> Result<Vec<Value>, String> {
    if let Some(name) = ["instruction", "output"]
        .iter()
        .find(|name| !row.contains_key(**name))
    {
        return Err(format!("it has no {name}"));
    }
    let wrong = || "history is not a list of pairs of texts".to_owned();
    let mut pairs: Vec<(String, String)> = match row.shift_remove("history") {
        None => Vec::new(),
        Some(history) => serde_json::from_value(history).map_err(|_| wrong())?,
    };
    let input = text(row, "input")?;
    let mut question = text(row, "instruction")?;
    if !input.is_empty() {
        question = format!("{question}\n\n{input}");
    }
    pairs.push((question, text(row, "output")?));
    let messages = pairs.into_iter().flat_map(|(user, assistant)| {
        [
            json!({"role": "user", "content": user}),
            json!({"role": "assistant", "content": assistant}),
        ]
    });
    Ok(messages.collect())
}

/// Puts a row's own system prompt first.
fn put_system(messages: &mut Vec<Value>, system: String) -> Result<(), String> {
    if system.is_empty() {
        return Ok(());
    }
    match messages.first().filter(|first| first["role"] == "system") {
        Some(first) if first["content"] == system => Ok(()),
        Some(_) => Err("system is another one than that of the first message".into()),
        None => {
            messages.insert(0, json!({"role": "system", "content": system}));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
