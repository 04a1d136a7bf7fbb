//! A call as a JSON object, `{"name": …, "arguments": {…}}`, anywhere in the reply.

use serde_json::{Map, Value};

use super::{
    Call, Found, Leniency, Tools, call_json, example_arguments, heading, one_of, repair,
    tool_schemas, wording,
};

/// An object that was read from a text.
pub(super) struct Read {
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
    /// Where the object ends.
    pub(super) end: usize,
    pub(super) is_repaired: bool,
}

/// Bytes that may be read of objects that turn out to be broken. A reply may hold any number of
/// braces, and each could begin an object that breaks off only at the reply's end.
const BROKEN_BYTES: usize = 256 * 1024;

/// What an attempt costs beside the bytes that it reads.
const ATTEMPT: usize = 8;

/// Why a reply isn't read to its end.
pub(super) const TOO_MANY: &str = "the reply has too many objects that break off";

/// What may still be spent on broken objects of one reply.
pub(super) struct Patience(usize);

impl Default for Patience {
    fn default() -> Self {
        Patience(BROKEN_BYTES)
    }
}

impl Patience {
    fn spend(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes + ATTEMPT);
    }

    pub(super) fn is_over(&self) -> bool {
        self.0 == 0
    }
}

/// What starts at a brace.
pub(super) enum Object {
    Call(Read),
    /// JSON, but no call.
    Other {
        end: usize,
    },
    /// A call in other words, which would take leniency.
    Misworded {
        reason: String,
    },
    Broken {
        reason: String,
    },
}

pub(super) fn find(text: &str, tools: &Tools, leniency: Leniency) -> Found {
    let mut patience = Patience::default();
    let mut from = 0;
    while let Some(offset) = text[from..].find('{') {
        let start = from + offset;
        match read(text, start, tools, leniency, &mut patience) {
            Object::Call(read) => {
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
            // Objects inside it are its own affair.
            Object::Other { end } => from = end,
            Object::Misworded { reason } => return Found::Problem(reason),
            // Of `{{…}}` only the outer brace is a mistake; what follows may be copied from it.
            Object::Broken { reason } if resembles_call(&text[start..], tools) => {
                return Found::Problem(reason);
            }
            Object::Broken { .. } => from = start + 1,
        }
        if patience.is_over() {
            return Found::Problem(TOO_MANY.into());
        }
    }
    Found::Nothing
}

/// Reads the object that starts at `start`.
pub(super) fn read(
    text: &str,
    start: usize,
    tools: &Tools,
    leniency: Leniency,
    patience: &mut Patience,
) -> Object {
    let (read, end) = match strict(&text[start..]) {
        Ok((value, length)) => {
            let (value, wrong) = settled(value, tools);
            match wrong {
                Some(reason) if !leniency.repair_json => return Object::Misworded { reason },
                wrong => {
                    let call = as_call(value, tools, leniency, wrong.is_some());
                    (call, start + length)
                }
            }
        }
        Err((reason, reached)) => {
            patience.spend(reached);
            if !leniency.repair_json {
                return Object::Broken { reason };
            }
            match repair::object(&text[start..]) {
                Ok((value, length)) => {
                    let (value, _) = settled(value, tools);
                    match as_call(value, tools, leniency, true) {
                        // What had to be mended and is no call tells nothing: the call that it was
                        // meant to be may have been swallowed.
                        Ok(None) => {
                            patience.spend(length);
                            return Object::Broken { reason };
                        }
                        call => (call, start + length),
                    }
                }
                Err(reached) => {
                    patience.spend(reached);
                    return Object::Broken { reason };
                }
            }
        }
    };
    match read {
        Ok(Some(call)) => Object::Call(Read {
            tool: call.tool,
            arguments: call.arguments,
            end,
            is_repaired: call.is_repaired,
        }),
        Ok(None) => Object::Other { end },
        Err(reason) => {
            // The objects inside it are read next, each as far as this one was.
            patience.spend(end - start);
            Object::Broken { reason }
        }
    }
}

/// The object at the start of a text and its length, or what is wrong and how far it was read.
fn strict(text: &str) -> Result<(Value, usize), (String, usize)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let length = match values.next() {
        Some(Err(error)) => return Err((error.to_string(), offset_of(text, &error))),
        Some(Ok(_)) | None => values.byte_offset(),
    };
    // Again through the strict reader, which refuses a key that occurs twice.
    match harness::json::parse(&text[..length]) {
        Ok(value) => Ok((value, length)),
        Err(error) => Err((error.to_string(), length)),
    }
}

/// Where a reader stopped, in bytes.
fn offset_of(text: &str, error: &serde_json::Error) -> usize {
    let before = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1));
    before.map(str::len).sum::<usize>() + error.column()
}

/// A value in the words of a call, and what was wrong with its own.
fn settled(value: Value, tools: &Tools) -> (Value, Option<String>) {
    match value {
        Value::Object(mut object) => {
            let wrong = wording::settle(&mut object, tools);
            (Value::Object(object), wrong)
        }
        other => (other, None),
    }
}

/// A JSON value that was taken as a call.
struct Parts {
    tool: String,
    arguments: Map<String, Value>,
    is_repaired: bool,
}

/// Takes a JSON value as a call; `None` where it isn't one.
fn as_call(
    value: Value,
    tools: &Tools,
    leniency: Leniency,
    mut is_repaired: bool,
) -> Result<Option<Parts>, String> {
    let Value::Object(mut object) = value else {
        return Ok(None);
    };
    let Some(name) = object.remove("name") else {
        let arguments = object.get("arguments").filter(|_| object.len() == 1);
        return match arguments {
            Some(Value::Object(_) | Value::String(_)) => Err("`name` is missing".into()),
            _ => Ok(None),
        };
    };
    let arguments = match object.remove("arguments") {
        Some(arguments) => arguments,
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
            other => {
                let mended = leniency.repair_json.then(|| mended(&text, other.ok()));
                is_repaired = true;
                let mended = mended.flatten();
                mended.ok_or("`arguments` should be a JSON object")?
            }
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
    Ok(Some(Parts {
        tool,
        arguments,
        is_repaired,
    }))
}

/// Arguments in a string that isn't JSON, or in a string within that.
fn mended(text: &str, read: Option<Value>) -> Option<Map<String, Value>> {
    let text = match &read {
        Some(Value::String(inner)) => inner.trim(),
        Some(_) => return None,
        None => text.trim(),
    };
    if let Ok(Value::Object(arguments)) = harness::json::parse(text) {
        return Some(arguments);
    }
    match repair::object(text) {
        Ok((Value::Object(arguments), length)) if length == text.len() => Some(arguments),
        _ => None,
    }
}

/// Whether a broken object was probably meant as a call. Its beginning tells.
fn resembles_call(text: &str, tools: &Tools) -> bool {
    const BEGINNING: usize = 2048;
    const LEAD: usize = 32;
    let text: &str = &text[..text.floor_char_boundary(BEGINNING)];
    let lead = &text[..text.floor_char_boundary(LEAD)];
    let inner = lead.trim_start_matches(|c: char| c == '{' || c.is_whitespace());
    let inner = &text[lead.len() - inner.len()..];
    let inner = inner.trim_start_matches("\\n").trim_start();
    let inner = inner.strip_prefix("&quot;").unwrap_or(inner);
    let first: String = inner.chars().take_while(|c| *c != ':').take(20).collect();
    let is_mark = |c: char| {
        matches!(c, '"' | '\'' | '\\' | '`') || repair::is_typographic(c) || c.is_whitespace()
    };
    let first = first.trim_matches(is_mark).trim_end_matches("&quot;");
    let names_tool = || tools.keys().any(|name| inner.contains(name.as_str()));
    let has_arguments = || inner.contains("arguments") || inner.contains("parameters");
    tools.contains_key(first)
        || matches!(first, "name" | "arguments") && has_arguments()
        || wording::is_known(first) && names_tool()
}

/// A fence that is opened directly before the object belongs to the call.
fn start_of_fence(text: &str, start: usize) -> usize {
    let before = text[..start].trim_end();
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let without_word = before.trim_end_matches(is_word);
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
