//! One message of a conversation, checked.

use serde_json::{Map, Value};

use super::{offered, says_nothing};

/// Fields of a message that would change what it teaches, and that have no meaning here: other words
/// for `train`, and content that isn't text.
const REFUSED: [&str; 15] = [
    "audio",
    "function_call",
    "image",
    "images",
    "loss",
    "loss_mask",
    "loss_weight",
    "mask",
    "masked",
    "refusal",
    "train_detail",
    "trainable",
    "training",
    "video",
    "videos",
];

/// A message as chat templates and the trainer read it: content as text, calls with their arguments as
/// objects, and `train` for whatever says that it is not learnt from. What else it says stays.
pub(super) fn read(message: Value) -> Result<Value, String> {
    let Value::Object(mut message) = message else {
        return Err("a message is no JSON object".into());
    };
    message.retain(|_, value| !value.is_null());
    let role = match message.get("role") {
        Some(Value::String(role)) => role.clone(),
        _ => return Err("a message has no role".into()),
    };
    if !["system", "user", "assistant", "tool"].contains(&role.as_str()) {
        return Err(format!("there is no role {role}"));
    }
    let calls = match message.shift_remove("tool_calls") {
        None => Vec::new(),
        Some(Value::Array(calls)) => calls
            .into_iter()
            .map(offered::call)
            .collect::<Result<Vec<_>, _>>()?,
        Some(_) => return Err("tool_calls is not a list".into()),
    };
    if role != "assistant" && !calls.is_empty() {
        return Err(format!("a message of the {role} has tool_calls"));
    }
    match message.get("content") {
        Some(Value::String(_)) => {}
        None if !calls.is_empty() => {
            message.insert("content".to_owned(), Value::from(""));
        }
        _ => return Err(format!("a message of the {role} has no text")),
    }
    settle_train(&role, &mut message)?;
    message.retain(|name, value| !(REFUSED.contains(&name.as_str()) && says_nothing(value)));
    if let Some(name) = message.keys().find(|name| REFUSED.contains(&name.as_str())) {
        return Err(format!(
            "a message of the {role} has {name}, which has no meaning here"
        ));
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Ok(Value::Object(message))
}

/// Turns OpenAI's `weight` into `train`.
fn settle_train(role: &str, message: &mut Map<String, Value>) -> Result<(), String> {
    let said = match message.get("train") {
        None => None,
        Some(Value::Bool(train)) => Some(*train),
        Some(_) => return Err("train is neither true nor false".into()),
    };
    let weighed = match message.shift_remove("weight") {
        None => None,
        Some(weight) if weight.as_f64() == Some(0.0) => Some(false),
        Some(weight) if weight.as_f64() == Some(1.0) => Some(true),
        Some(weight) => {
            return Err(format!("weight is {weight}; only 0 and 1 are known here"));
        }
    };
    if said.is_some() && weighed.is_some() && said != weighed {
        return Err("train and weight contradict each other".into());
    }
    let train = said.or(weighed);
    if train == Some(true) && role != "assistant" {
        return Err(format!(
            "a message of the {role} is to be trained on; only the assistant's can be"
        ));
    }
    if train == Some(false) && role == "assistant" {
        message.insert("train".to_owned(), Value::Bool(false));
    }
    Ok(())
}
