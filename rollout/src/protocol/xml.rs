//! A call as JSON between `<tool_call>` and `</tool_call>`.

use serde_json::{Map, Value};

use super::{
    Call, Found, Leniency, Tools, call_json, example_arguments, heading, json, one_of, tool_schemas,
};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

pub(super) fn find(text: &str, tools: &Tools, leniency: Leniency) -> Found {
    let Some(start) = text.find(OPEN) else {
        return Found::Nothing;
    };
    let inside = start + OPEN.len();
    let blank = text[inside..].len() - text[inside..].trim_start().len();
    let object = inside + blank;
    if !text[object..].starts_with('{') {
        return Found::Problem(format!("{OPEN} isn't followed by a JSON object"));
    }
    // The object is read first and the closing tag looked for after it: the tag may also stand in
    // a string of the object.
    match json::read(text, object, tools, leniency) {
        Ok(Some(read)) => {
            let after = &text[read.end..];
            let blank = after.len() - after.trim_start().len();
            let end = match after[blank..].strip_prefix(CLOSE) {
                Some(_) => read.end + blank + CLOSE.len(),
                // A whole object is a whole call: the tag may have been a stop text.
                None => read.end,
            };
            let call = Call {
                tool: read.tool,
                arguments: read.arguments,
                end,
                is_repaired: read.is_repaired,
                is_extracted: false,
            };
            Found::Call { start, call }
        }
        Ok(None) => Found::Problem("the object has no `name` or no `arguments`".into()),
        Err(reason) => Found::Problem(reason),
    }
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
