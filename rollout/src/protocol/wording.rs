//! Calls in other words than `name` and `arguments`: what models take from other interfaces.
//!
//! An object counts as such a call only where it names a tool of the harness: any other object may be
//! about anything.

use harness::Tool;
use serde_json::{Map, Value};

use super::Tools;

/// Other words for `name`.
const NAMES: [&str; 6] = [
    "tool",
    "tool_name",
    "function",
    "function_name",
    "action",
    "recipient_name",
];
/// Other words for `arguments`.
const ARGUMENTS: [&str; 7] = [
    "parameters",
    "args",
    "kwargs",
    "params",
    "input",
    "tool_input",
    "action_input",
];
/// What an object or a list around a call is called.
const AROUND: [&str; 6] = [
    "function",
    "tool_call",
    "tool_calls",
    "function_call",
    "call",
    "tool",
];

/// Most objects and lists around a call.
const WRAPPINGS: usize = 4;

/// Brings an object that is a call in other words to `name` and `arguments`, and says what was wrong
/// with it. `None` leaves the object as it is.
pub(super) fn settle(object: &mut Map<String, Value>, tools: &Tools) -> Option<String> {
    if object.contains_key("name") && object.contains_key("arguments") {
        return None;
    }
    if let Some(key) = AROUND
        .iter()
        .find(|key| is_around(object, key, tools, WRAPPINGS))
    {
        let inner = object.remove(*key).and_then(only_object)?;
        *object = inner;
        // The object itself may have other words too.
        let _ = settle(object, tools);
        return Some(format!(
            "the call stands inside `{key}`: write its object alone"
        ));
    }
    // `name` and `parameters` together are Llama's words, whatever they name.
    let is_llamas = object.contains_key("parameters");
    let is_tool = |key: &str| {
        let name = object.get(key).and_then(Value::as_str);
        name.is_some_and(|name| tools.contains_key(name) || is_llamas && key == "name")
    };
    let mut names = ["name"].into_iter().chain(NAMES);
    let Some(name) = names.find(|key| is_tool(key)) else {
        return nameless(object, tools);
    };
    let arguments = ["arguments"]
        .iter()
        .chain(&ARGUMENTS)
        .find(|key| **key != name && object.contains_key(**key));
    let (given, wrong) = match arguments {
        Some(key) => (object.remove(*key)?, *key),
        None => (own_arguments(object, name, tools)?, ""),
    };
    let tool = object.remove(name)?;
    object.insert("name".into(), tool);
    object.insert("arguments".into(), given);
    Some(match (name, wrong) {
        (_, "") => "`arguments` is missing: they stand beside the name".into(),
        ("name", key) => format!("`arguments` is missing: they stand under `{key}`"),
        (name, _) => format!("`name` is missing: it stands under `{name}`"),
    })
}

/// Brings arguments without a name to a call, where only one tool can be meant.
fn nameless(object: &mut Map<String, Value>, tools: &Tools) -> Option<String> {
    if ["name"]
        .iter()
        .chain(&NAMES)
        .any(|key| object.contains_key(*key))
    {
        return None;
    }
    let key = ["arguments"]
        .iter()
        .chain(&ARGUMENTS)
        .find(|key| object.contains_key(**key));
    let given = match key {
        Some(key) if object.len() == 1 => object.get(*key)?.as_object()?,
        Some(_) => return None,
        None => &*object,
    };
    let mut fitting = tools.iter().filter(|(_, tool)| fits(given, tool));
    let (tool, _) = fitting.next()?;
    if fitting.next().is_some() {
        return None;
    }
    let (tool, given) = (tool.as_str().to_owned(), given.clone());
    object.clear();
    object.insert("name".into(), tool.into());
    object.insert("arguments".into(), Value::Object(given));
    Some("`name` is missing".into())
}

/// Whether these are all the arguments that a tool needs, and no others.
fn fits(given: &Map<String, Value>, tool: &Tool) -> bool {
    let properties = tool.parameters.get("properties").and_then(Value::as_object);
    let required = tool.parameters.get("required").and_then(Value::as_array);
    let is_own = |key: &String| properties.is_some_and(|own| own.contains_key(key));
    let mut required = required.into_iter().flatten().filter_map(Value::as_str);
    !given.is_empty() && given.keys().all(is_own) && required.all(|name| given.contains_key(name))
}

/// Whether a word is one for a part of a call, or for what is around one.
pub(super) fn is_known(word: &str) -> bool {
    let others = NAMES.iter().chain(&ARGUMENTS).chain(&AROUND);
    ["name", "arguments"]
        .iter()
        .chain(others)
        .any(|known| *known == word)
}

/// Whether a call stands inside `key`, with at most `most` others around it.
fn is_around(object: &Map<String, Value>, key: &str, tools: &Tools, most: usize) -> bool {
    let inner = match object.get(key) {
        Some(Value::Array(items)) if items.len() == 1 => items.first(),
        other => other,
    };
    let Some(Value::Object(inner)) = inner else {
        return false;
    };
    let name = inner.get("name").and_then(Value::as_str);
    name.is_some_and(|name| tools.contains_key(name) || inner.contains_key("arguments"))
        || most > 1
            && AROUND
                .iter()
                .any(|key| is_around(inner, key, tools, most - 1))
}

fn only_object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(object) => Some(object),
        Value::Array(items) => items.into_iter().next().and_then(only_object),
        _ => None,
    }
}

/// The tool's arguments, where they stand beside its name and nothing else does.
fn own_arguments(object: &Map<String, Value>, name: &str, tools: &Tools) -> Option<Value> {
    let tool = tools.get(object.get(name)?.as_str()?)?;
    let properties = tool.parameters.get("properties")?.as_object()?;
    let is_own = |key: &String| key == name || properties.contains_key(key);
    if object.len() < 2 || !object.keys().all(is_own) {
        return None;
    }
    let entries = object.iter().filter(|(key, _)| *key != name);
    let arguments = entries.map(|(key, value)| (key.clone(), value.clone()));
    Some(Value::Object(arguments.collect()))
}
