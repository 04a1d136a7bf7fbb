//! A call as a JSON object, `{"name": …, "arguments": {…}}`, anywhere in the reply.

use serde_json::{Map, Value};

use super::{
    Call, Found, Leniency, Tools, call_json, example_arguments, heading, one_of, repair,
    tool_schemas,
};

/// An object that was read from a text.
pub(super) struct Read {
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
    /// Where the object ends.
    pub(super) end: usize,
    pub(super) is_repaired: bool,
}

pub(super) fn find(text: &str, tools: &Tools, leniency: Leniency) -> Found {
    let mut problem = None;
    let mut from = 0;
    while let Some(offset) = text[from..].find('{') {
        let start = from + offset;
        match read(text, start, tools, leniency) {
            Ok(Some(read)) => {
                let call = Call {
                    end: end_of_fence(text, start, read.end),
                    tool: read.tool,
                    arguments: read.arguments,
                    is_repaired: read.is_repaired,
                    is_extracted: false,
                };
                return Found::Call {
                    start: start_of_fence(text, start),
                    call,
                };
            }
            // JSON, but no call: objects inside it are its own affair.
            Ok(None) => from = end_of_object(text, start).unwrap_or(start + 1),
            Err(reason) => {
                if problem.is_none() && resembles_call(&text[start..], tools) {
                    problem = Some(reason);
                }
                from = start + 1;
                // Of `{{…}}` only the outer brace is a mistake, and it has been noted.
                if problem.is_some() {
                    break;
                }
            }
        }
    }
    problem.map_or(Found::Nothing, Found::Problem)
}

/// Reads the object that starts at `start`. `None` is an object that isn't a call.
pub(super) fn read(
    text: &str,
    start: usize,
    tools: &Tools,
    leniency: Leniency,
) -> Result<Option<Read>, String> {
    match strict(text, start) {
        Ok((value, end)) => {
            let call = as_call(value, tools, leniency)?;
            Ok(call.map(|(tool, arguments, is_repaired)| Read {
                tool,
                arguments,
                end,
                is_repaired,
            }))
        }
        Err(reason) if leniency.repair_json => {
            let (value, length) = repair::object(&text[start..]).ok_or(reason)?;
            let call = as_call(value, tools, leniency)?;
            Ok(call.map(|(tool, arguments, _)| Read {
                tool,
                arguments,
                end: start + length,
                is_repaired: true,
            }))
        }
        Err(reason) => Err(reason),
    }
}

fn strict(text: &str, start: usize) -> Result<(Value, usize), String> {
    let end = end_of_object(text, start).map_err(|error| error.to_string())?;
    // Again through the strict reader, which refuses a key that occurs twice.
    let value = harness::json::parse(&text[start..end]).map_err(|error| error.to_string())?;
    Ok((value, end))
}

fn end_of_object(text: &str, start: usize) -> Result<usize, serde_json::Error> {
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
    match values.next() {
        Some(Err(error)) => Err(error),
        Some(Ok(_)) | None => Ok(start + values.byte_offset()),
    }
}

type ToolAndArguments = (String, Map<String, Value>, bool);

/// Takes a JSON value as a call. The flag says that it took leniency.
fn as_call(
    value: Value,
    tools: &Tools,
    leniency: Leniency,
) -> Result<Option<ToolAndArguments>, String> {
    let Value::Object(mut object) = value else {
        return Ok(None);
    };
    let Some(name) = object.remove("name") else {
        return Ok(None);
    };
    let mut is_repaired = false;
    let arguments = match object.remove("arguments") {
        Some(arguments) => arguments,
        // Llama's word for it.
        None if leniency.repair_json && object.contains_key("parameters") => {
            is_repaired = true;
            object.remove("parameters").unwrap_or_default()
        }
        None if object.contains_key("parameters")
            || name.as_str().is_some_and(|name| tools.contains_key(name)) =>
        {
            return Err("`arguments` is missing".into());
        }
        // Some object with a name.
        None => return Ok(None),
    };
    let Value::String(tool) = name else {
        return Err("`name` should be text".into());
    };
    let arguments = match arguments {
        Value::Object(arguments) => arguments,
        // The form that OpenAI's interface has. Anything else is an error, never `{}`.
        Value::String(text) => match harness::json::parse(&text) {
            Ok(Value::Object(arguments)) => arguments,
            Ok(_) | Err(_) => return Err("`arguments` should be a JSON object".into()),
        },
        _ => return Err("`arguments` should be a JSON object".into()),
    };
    // `\f` and `\b` are legal JSON for characters no program contains: a backslash of the program
    // that wasn't doubled.
    let is_control = |c: char| c == '\u{8}' || c == '\u{c}';
    if arguments
        .values()
        .filter_map(Value::as_str)
        .any(|text| text.contains(is_control))
    {
        return Err("a string has a control character; double the backslashes".into());
    }
    Ok(Some((tool, arguments, is_repaired)))
}

/// Whether a broken object was probably meant as a call.
fn resembles_call(text: &str, tools: &Tools) -> bool {
    let inner = text.trim_start_matches(|c: char| c == '{' || c.is_whitespace());
    let first: String = inner.chars().take_while(|c| *c != ':').take(20).collect();
    let first = first.trim_matches(|c: char| c == '"' || c == '\'' || c.is_whitespace());
    let names_tool = || tools.keys().any(|name| inner.contains(name.as_str()));
    let is_tool = || tools.contains_key(first);
    is_tool()
        || matches!(first, "name" | "arguments")
            && (inner.contains("arguments") || inner.contains("parameters") || names_tool())
}

/// A fence that is opened directly before the object belongs to the call.
fn start_of_fence(text: &str, start: usize) -> usize {
    let before = text[..start].trim_end();
    let without_word = before.trim_end_matches(|c: char| c.is_ascii_alphanumeric());
    match without_word.strip_suffix("```") {
        Some(rest) => rest.len(),
        None => start,
    }
}

fn end_of_fence(text: &str, start: usize, end: usize) -> usize {
    let is_fenced = start_of_fence(text, start) < start;
    let after = &text[end..];
    let blank = after.len() - after.trim_start().len();
    if is_fenced && after[blank..].starts_with("```") {
        end + blank + 3
    } else {
        end
    }
}

pub(super) fn render(name: &str, arguments: &Map<String, Value>) -> String {
    call_json(name, arguments)
}

pub(super) fn describe(tools: &Tools) -> String {
    let mut text = format!("{}\n{}", heading(tools), tool_schemas(tools));
    if let Some((name, arguments)) = example_arguments(tools) {
        text.push_str(&format!(
            "\nTo call {}, reply with a JSON object: ",
            one_of(tools)
        ));
        text.push_str(&call_json(name, &arguments));
    }
    text
}
