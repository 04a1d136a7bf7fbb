//! The written forms of a tool call: reading a reply, and writing calls and tool descriptions.
//!
//! Reasoning between `<think>` and `</think>`, or however else it is marked, is passed over: a call
//! drafted there is none. Of several calls in a text the first counts, since the second was written
//! without its result. A call in another form than the one asked for is an error that the policy gets to
//! know of, never passed over in silence. Whatever a policy writes, reading it takes time in proportion to
//! its length.

mod fenced;
mod grammar;
mod harmony;
mod json;
mod native;
mod python_strings;
mod reasoning;
mod repair;
mod wording;
mod xml;

use std::collections::BTreeMap;

use harness::{Backend, CallFormat, Tool, ToolName};
use serde_json::{Map, Value};

pub use grammar::call_grammar;
pub use native::{NativeArguments, read_arguments, unreadable_arguments};
use reasoning::Reasoning;

/// The tools of a harness.
pub type Tools = BTreeMap<ToolName, Tool>;

/// What hooks allow a parser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leniency {
    /// Almost valid JSON is repaired.
    pub repair_json: bool,
    /// A fenced block counts as a call in any format.
    pub fenced_code: bool,
}

/// A reply, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// The call, if there is one.
    pub call: Option<Call>,
    /// Text before the call, or all text; without reasoning.
    pub before: String,
    /// Why something that looks like a call isn't one. With a call, empty.
    pub problem: Option<String>,
}

/// A call in a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The tool's name as written.
    pub tool: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// Where the call ends in the reply, in bytes.
    pub end: usize,
    /// Whether it took [`Leniency::repair_json`].
    pub is_repaired: bool,
    /// Whether it took [`Leniency::fenced_code`].
    pub is_extracted: bool,
}

/// Outcome of one format's search: a call with its start, or what looked like one and isn't.
enum Found {
    Call { start: usize, call: Call },
    Problem(String),
    Nothing,
}

/// Reads a reply. `is_complete` says that the reply ended by itself, not by the token limit.
pub fn parse(
    reply: &str,
    format: CallFormat,
    tools: &Tools,
    leniency: Leniency,
    is_complete: bool,
) -> Parsed {
    let text = Reasoning::of(reply).masked(reply);
    let found = match harmony::find(reply, tools, leniency) {
        Found::Nothing => match format {
            CallFormat::Json => json::find(&text, tools, leniency),
            CallFormat::Fenced => fenced::find(&text, tools, is_complete),
            CallFormat::Xml => xml::find(&text, tools, leniency),
            CallFormat::Native => native::find(&text),
        },
        found => found,
    };
    let found = match found {
        Found::Call { .. } => found,
        other if leniency.fenced_code && format != CallFormat::Fenced => {
            match fenced::find(&text, tools, is_complete) {
                Found::Call { start, call } => Found::Call {
                    start,
                    call: Call {
                        is_extracted: true,
                        ..call
                    },
                },
                Found::Problem(_) | Found::Nothing => other,
            }
        }
        other => other,
    };
    let found = match found {
        Found::Nothing => in_other_form(&text, format, tools, leniency),
        found => found,
    };
    match found {
        Found::Call { start, call } => Parsed {
            before: text[..start].trim().to_owned(),
            call: Some(call),
            problem: None,
        },
        Found::Problem(problem) => Parsed {
            call: None,
            before: text.trim().to_owned(),
            problem: Some(problem),
        },
        Found::Nothing => Parsed {
            call: None,
            before: text.trim().to_owned(),
            problem: None,
        },
    }
}

/// A call of a tool of the harness that is written as bare JSON although the format is another.
fn in_other_form(text: &str, format: CallFormat, tools: &Tools, leniency: Leniency) -> Found {
    let form = match format {
        CallFormat::Json => return Found::Nothing,
        CallFormat::Fenced => "it is written as JSON, not as a code block",
        CallFormat::Xml => "it doesn't stand between <tool_call> and </tool_call>",
        CallFormat::Native => native::IN_TEXT,
    };
    let is_mended = format == CallFormat::Xml && leniency.repair_json;
    let leniency = Leniency {
        repair_json: is_mended,
        ..leniency
    };
    match json::find(text, tools, leniency) {
        Found::Call { start, call } if tools.contains_key(call.tool.as_str()) => {
            if !is_mended {
                return Found::Problem(form.into());
            }
            let call = Call {
                is_repaired: true,
                ..call
            };
            Found::Call { start, call }
        }
        // A program in a fence may hold such objects, and formulas any number of braces.
        Found::Problem(reason) if format != CallFormat::Fenced && reason != json::TOO_MANY => {
            Found::Problem(reason)
        }
        _ => Found::Nothing,
    }
}

/// The reply without its reasoning.
pub fn without_reasoning(reply: &str) -> String {
    Reasoning::of(reply).masked(reply).trim().to_owned()
}

/// The reply with blanks in the place of its reasoning: every line keeps its indentation.
pub(crate) fn masking_reasoning(reply: &str) -> String {
    Reasoning::of(reply).masked(reply)
}

/// The reply's reasoning, without its tags; empty where there is none.
pub fn reasoning_of(reply: &str) -> String {
    Reasoning::of(reply).text(reply)
}

/// Whether the reply ends inside its reasoning.
pub fn is_inside_reasoning(reply: &str) -> bool {
    Reasoning::of(reply).is_open
}

/// A call as the policy should write it, for examples.
pub fn render_call(
    format: CallFormat,
    name: &str,
    tools: &Tools,
    arguments: &Map<String, Value>,
) -> String {
    match format {
        // The interface carries it as JSON too; this is for readers of a record.
        CallFormat::Json | CallFormat::Native => json::render(name, arguments),
        CallFormat::Fenced => fenced::render(name, tools, arguments),
        CallFormat::Xml => xml::render(name, arguments),
    }
}

/// The tools and how to call them, for the system prompt; empty without tools, and where they are
/// announced through the policy's own interface.
pub fn render_tools(format: CallFormat, tools: &Tools) -> String {
    if tools.is_empty() {
        return String::new();
    }
    match format {
        CallFormat::Json => json::describe(tools),
        CallFormat::Fenced => fenced::describe(tools),
        CallFormat::Xml => xml::describe(tools),
        // They are announced through the interface.
        CallFormat::Native => String::new(),
    }
}

/// How the list of tools begins. One tool is by far the usual case, and small models are better
/// off without a plural.
fn heading(tools: &Tools) -> &'static str {
    match tools.len() {
        1 => "You can use this tool:",
        _ => "You can use these tools:",
    }
}

/// What to call.
fn one_of(tools: &Tools) -> &'static str {
    match tools.len() {
        1 => "it",
        _ => "one of them",
    }
}

/// Descriptions of all tools, one a line.
fn tool_lines(tools: &Tools) -> String {
    let line = |(name, tool): (&ToolName, &Tool)| format!("{name}: {}", tool.description.trim());
    tools.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Descriptions of all tools as JSON, one a line.
fn tool_schemas(tools: &Tools) -> String {
    let line = |(name, tool): (&ToolName, &Tool)| {
        let name = Value::from(name.as_str());
        let description = Value::from(tool.description.trim());
        let parameters = spaced_json(&tool.parameters);
        format!(
            "{{\"name\": {name}, \"description\": {description}, \"parameters\": {parameters}}}"
        )
    };
    tools.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A call as JSON.
fn call_json(name: &str, arguments: &Map<String, Value>) -> String {
    let arguments = spaced_json(&Value::Object(arguments.clone()));
    format!(
        "{{\"name\": {}, \"arguments\": {arguments}}}",
        Value::from(name)
    )
}

/// JSON with a blank after each comma and colon, as models have seen it most. Keys are sorted: the
/// order must not depend on serde_json's features.
fn spaced_json(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(spaced_json).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            let entries: Vec<String> = entries
                .into_iter()
                .map(|(key, item)| format!("{}: {}", Value::from(key.as_str()), spaced_json(item)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

/// An example of the arguments of the first tool.
fn example_arguments(tools: &Tools) -> Option<(&str, Map<String, Value>)> {
    let (name, tool) = tools.iter().next()?;
    let argument = tool.code_argument()?;
    let arguments = Map::from_iter([(argument.to_owned(), Value::from("..."))]);
    Some((name.as_str(), arguments))
}

/// The tool that a fence with this word calls: one of that name, or for `python` the only tool
/// that runs Python.
fn tool_of_fence<'a>(word: &str, tools: &'a Tools) -> Option<(&'a ToolName, &'a Tool)> {
    if let Some(found) = tools.get_key_value(word) {
        return Some(found);
    }
    if !matches!(
        word.to_ascii_lowercase().as_str(),
        "python" | "py" | "python3"
    ) {
        return None;
    }
    let mut python = tools
        .iter()
        .filter(|(_, tool)| tool.backend == Backend::Python);
    python.next().filter(|_| python.next().is_none())
}

#[cfg(test)]
mod tests;
