//! A call as JSON between `<tool_call>` and `</tool_call>`.

use serde_json::{Map, Value};

use super::{
    Call, Found, Leniency, Tools, call_json, example_arguments, heading, json, one_of, tool_schemas,
};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const FENCE: &str = "```";

pub(super) fn find(text: &str, tools: &Tools, leniency: Leniency) -> Found {
    let mut patience = json::Patience::default();
    let mut problem = None;
    let mut from = 0;
    while let Some(offset) = text[from..].find(OPEN) {
        let start = from + offset;
        match read(text, start, tools, leniency, &mut patience) {
            Ok(call) => return Found::Call { start, call },
            // A tag that is only spoken of must not hide the call after it.
            Err(reason) => problem = problem.or(Some(reason)),
        }
        if patience.is_over() {
            break;
        }
        from = start + OPEN.len();
    }
    problem.map_or(Found::Nothing, Found::Problem)
}

/// The call whose opening tag is at `start`.
fn read(
    text: &str,
    start: usize,
    tools: &Tools,
    leniency: Leniency,
    patience: &mut json::Patience,
) -> Result<Call, String> {
    let object = start + OPEN.len() + length_of_lead(&text[start + OPEN.len()..]);
    if !text[object..].starts_with('{') {
        return Err(format!("{OPEN} isn't followed by a JSON object"));
    }
    // The object is read first and the closing tag looked for after it: the tag may also stand in
    // a string of the object.
    match json::read(text, object, tools, leniency, patience) {
        json::Object::Call(read) => {
            let after = &text[read.end..];
            let rest = after.trim_start();
            let rest = rest.strip_prefix(FENCE).unwrap_or(rest).trim_start();
            let end = match rest.strip_prefix(CLOSE) {
                Some(rest) => text.len() - rest.len(),
                // A whole object is a whole call: the tag may have been a stop text.
                None => read.end,
            };
            Ok(Call {
                tool: read.tool,
                arguments: read.arguments,
                end,
                is_repaired: read.is_repaired,
                is_extracted: false,
            })
        }
        json::Object::Other { .. } => Err("the object has no `name` or no `arguments`".into()),
        json::Object::Misworded { reason } | json::Object::Broken { reason } => Err(reason),
    }
}

/// What may stand between the tag and the object: blanks, line breaks that were written out, and
/// the start of a fence.
fn length_of_lead(text: &str) -> usize {
    let mut rest = text.trim_start();
    while let Some(after) = rest.strip_prefix("\\n") {
        rest = after.trim_start();
    }
    if let Some(after) = rest.strip_prefix(FENCE) {
        rest = after
            .trim_start_matches(|c: char| c.is_ascii_alphanumeric())
            .trim_start();
    }
    text.len() - rest.len()
}

pub(super) fn render(name: &str, arguments: &Map<String, Value>) -> String {
    format!("{OPEN}\n{}\n{CLOSE}", call_json(name, arguments))
}

pub(super) fn describe(tools: &Tools) -> String {
    let mut text = format!("{}\n{}", heading(tools), tool_schemas(tools));
    if let Some((name, arguments)) = example_arguments(tools) {
        text.push_str(&format!("\nTo call {}, write:\n", one_of(tools)));
        text.push_str(&render(name, &arguments));
    }
    text
}
