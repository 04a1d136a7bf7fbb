//! Calls through the policy's own tool interface: the reply's text has none.

use serde_json::{Map, Value};

use super::{Found, Leniency, repair};

/// The arguments of a call, read.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeArguments {
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// Whether it took [`Leniency::repair_json`].
    pub is_repaired: bool,
}

/// Key under which arguments that can't be read stay in the conversation: a server that is sent
/// broken JSON in the history refuses every further turn.
const RAW: &str = "unreadable";

/// What is wrong with a call that is written into the text.
pub(super) const IN_TEXT: &str = "it is written in the text, not made through the tool interface";

/// Reads the arguments of a call. The interface wants them as text; some servers send the object.
/// Anything else would run the tool with arguments that nobody gave.
///
/// # Errors
/// What is wrong with them, for the policy.
pub fn read_arguments(arguments: &Value, leniency: Leniency) -> Result<NativeArguments, String> {
    let sound = |arguments: Map<String, Value>| NativeArguments {
        arguments,
        is_repaired: false,
    };
    let text = match arguments {
        Value::Object(arguments) => return Ok(sound(arguments.clone())),
        Value::String(text) => text,
        other => return Err(format!("the arguments are {}", kind(other))),
    };
    let reason = match harness::json::parse(text) {
        Ok(Value::Object(arguments)) => return Ok(sound(arguments)),
        Ok(other) => return Err(format!("the arguments are {}", kind(&other))),
        Err(error) => error.to_string(),
    };
    let start = text.len() - text.trim_start().len();
    if leniency.repair_json
        && let Ok((Value::Object(arguments), length)) = repair::object(&text[start..])
        && text[start + length..].trim().is_empty()
    {
        return Ok(NativeArguments {
            arguments,
            is_repaired: true,
        });
    }
    Err(format!("the arguments are no JSON object: {reason}"))
}

/// What stands in the conversation for arguments that can't be read.
pub fn unreadable_arguments(arguments: &Value) -> Map<String, Value> {
    let raw = match arguments {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Map::from_iter([(RAW.to_owned(), Value::from(raw))])
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "missing",
        Value::Bool(_) => "a truth value, not an object",
        Value::Number(_) => "a number, not an object",
        Value::String(_) => "a text, not an object",
        Value::Array(_) => "a list, not an object",
        Value::Object(_) => "an object",
    }
}

/// A call written into the text is a mistake to hear of.
pub(super) fn find(text: &str) -> Found {
    if text.contains("<tool_call>") {
        return Found::Problem(IN_TEXT.into());
    }
    Found::Nothing
}
