//! A call as a fenced code block: the block's text is the program.

use std::ops::Range;

use serde_json::{Map, Value};

use super::python_strings::long_strings;
use super::{Call, Found, Tools, heading, one_of, tool_lines, tool_of_fence};

const FENCE: &str = "```";

pub(super) fn find(text: &str, tools: &Tools, is_complete: bool) -> Found {
    let fences = LineFences::of(text);
    let mut from = 0;
    while let Some(offset) = text[from..].find(FENCE) {
        let start = from + offset;
        let fence = backquotes(&text[start..]);
        let after = start + fence;
        let line_end = text[after..].find('\n').map(|length| after + length);
        let info = text[after..line_end.unwrap_or(text.len())].trim();
        let tool = tool_of_fence(language(info), tools)
            .and_then(|(name, tool)| Some((name, tool.code_argument()?)));
        let body_start = line_end.map_or(text.len(), |end| end + 1);
        let strings = match tool {
            // A fence inside a string of the program is part of the program.
            Some(_) => long_strings(text, body_start),
            None => Vec::new(),
        };
        let body = fences.body(body_start, fence, &strings);
        let Some((name, argument)) = tool else {
            let word = info.split_whitespace().next().unwrap_or_default();
            if word != info && tool_of_fence(language(word), tools).is_some() {
                return Found::Problem("the code should start on the line after the fence".into());
            }
            // Another language. Its end must not be taken for the start of a block.
            match body {
                Some((_, length)) if line_end.is_some() => from = body_start + length,
                _ => return Found::Nothing,
            }
            continue;
        };
        let (code, end) = match body {
            Some((code, length)) => (code, body_start + length),
            None if is_complete => (&text[body_start..], text.len()),
            None => return Found::Problem("the code block isn't closed".into()),
        };
        if code.trim().is_empty() {
            return Found::Problem("the code block is empty".into());
        }
        let indent = &text[text[..start].rfind('\n').map_or(0, |line| line + 1)..start];
        let code = Value::from(unindent(code, indent).trim_end());
        let call = Call {
            tool: name.to_string(),
            arguments: Map::from_iter([(argument.to_owned(), code)]),
            end,
            is_repaired: false,
            is_extracted: false,
        };
        return Found::Call { start, call };
    }
    Found::Nothing
}

/// The language that a fence names: `{.python}` and `python:main.py` are ways to write it too. One with
/// other words behind it is left alone, since these may be the program.
fn language(info: &str) -> &str {
    if info.contains(char::is_whitespace) {
        return info;
    }
    let start = info.trim_start_matches(['{', '.']);
    let end = start.find([':', ',', ';', '{', '}']);
    &start[..end.unwrap_or(start.len())]
}

/// How many backquotes a text begins with.
fn backquotes(text: &str) -> usize {
    text.bytes().take_while(|byte| *byte == b'`').count()
}

/// The fences that start a line.
struct LineFences<'a> {
    text: &'a str,
    places: Vec<LineFence>,
}

struct LineFence {
    /// Start of the line.
    line: usize,
    end: usize,
    length: usize,
    /// The greatest length from here on.
    longest: usize,
}

impl<'a> LineFences<'a> {
    fn of(text: &'a str) -> Self {
        let mut places = Vec::new();
        let mut position = 0;
        for line in text.split_inclusive('\n') {
            let indent = line.len() - line.trim_start().len();
            let length = backquotes(&line[indent..]);
            if length >= FENCE.len() {
                places.push(LineFence {
                    line: position,
                    end: position + indent + length,
                    length,
                    longest: length,
                });
            }
            position += line.len();
        }
        let mut longest = 0;
        for fence in places.iter_mut().rev() {
            longest = longest.max(fence.length);
            fence.longest = longest;
        }
        LineFences { text, places }
    }

    /// The text from `start` up to the closing fence, and its length with the fence. The fence
    /// starts a line, so that backquotes inside a line of the program are left alone, is no shorter
    /// than the opening one, and stands in none of the strings, unless all do; a fence at the end of a
    /// line is taken where there is no other.
    fn body(
        &self,
        start: usize,
        length: usize,
        strings: &[Range<usize>],
    ) -> Option<(&'a str, usize)> {
        let text = &self.text[start..];
        let next = self.places.partition_point(|fence| fence.line < start);
        let after = &self.places[next..];
        // Without looking through them all where none is long enough.
        if after.first().is_some_and(|fence| fence.longest >= length) {
            let is_outside = |fence: &&LineFence| {
                let next = strings.partition_point(|string| string.end <= fence.line);
                let string = strings.get(next);
                string.is_none_or(|string| string.start > fence.line)
            };
            let mut closing = after.iter().filter(|fence| fence.length >= length);
            let first = closing.clone().next();
            if let Some(fence) = closing.find(is_outside).or(first) {
                return Some((&text[..fence.line - start], fence.end - start));
            }
        }
        let mut position = 0;
        for line in text.split_inclusive('\n') {
            let line_text = line.trim_end();
            let before = line_text.trim_end_matches('`');
            if line_text.len() - before.len() >= length {
                return Some((&text[..position + before.len()], position + line_text.len()));
            }
            position += line.len();
        }
        None
    }
}

/// Takes the fence's own indentation from every line, if all lines have it.
fn unindent(code: &str, indent: &str) -> String {
    let is_blank = !indent.is_empty() && indent.trim().is_empty();
    let has_it = |line: &str| line.trim().is_empty() || line.starts_with(indent);
    if !is_blank || !code.lines().all(has_it) {
        return code.to_owned();
    }
    let lines = code
        .lines()
        .map(|line| line.strip_prefix(indent).unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

/// The word after the fence that calls the tool `name`.
fn word<'a>(name: &'a str, tools: &Tools) -> &'a str {
    match tool_of_fence("python", tools) {
        Some((python, _)) if python.as_str() == name => "python",
        _ => name,
    }
}

pub(super) fn render(name: &str, tools: &Tools, arguments: &Map<String, Value>) -> String {
    let argument = tools.get(name).and_then(|tool| tool.code_argument());
    let code = argument
        .and_then(|argument| arguments.get(argument))
        .and_then(Value::as_str);
    let code = code.unwrap_or_default().trim_end();
    format!("{FENCE}{}\n{code}\n{FENCE}", word(name, tools))
}

pub(super) fn describe(tools: &Tools) -> String {
    let mut text = format!("{}\n{}", heading(tools), tool_lines(tools));
    let words: Vec<String> = tools
        .keys()
        .map(|name| format!("{FENCE}{}", word(name.as_str(), tools)))
        .collect();
    text.push_str(&format!(
        "\nTo call {}, write its code in a block that starts with {} and ends with {FENCE}.",
        one_of(tools),
        words.join(" or ")
    ));
    text
}
