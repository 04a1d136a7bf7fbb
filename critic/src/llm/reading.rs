//! Reading what a chat model calls JSON.
//!
//! Strict first; then the content of a fence; then the first object or list that closes. What is read
//! is mended only where nothing can be lost, and every kind of mending is told: trailing commas, line
//! breaks inside strings, and backslashes that were not doubled. A LaTeX macro with one backslash is
//! often a legal escape, so that `"\frac"` silently becomes a form feed and `rac`: macros are taken
//! as they are meant before anything is decoded. A text that breaks off is never completed.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What was mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mended {
    /// The JSON stood in a fence, or in the middle of a text.
    Surroundings,
    /// A comma before a closing bracket.
    TrailingComma,
    /// A line break inside a string.
    LineBreak,
    /// A backslash that wasn't doubled.
    Backslash,
    /// A word in another case, or with blanks around it.
    Spelling,
    /// A number or a truth value that was written as text.
    Type,
    /// The quote stands in another step than the one named.
    Step,
}

/// Why a reply can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyFault {
    /// No JSON in it.
    #[error("the reply holds no JSON object")]
    NoJson,
    /// It breaks off.
    #[error("the reply breaks off before its end")]
    Truncated,
    /// It isn't JSON.
    #[error("the reply isn't valid JSON: {reason}")]
    Invalid {
        /// What is wrong, with line and column.
        reason: String,
    },
    /// A string holds a control character that no text has.
    #[error("a string of the reply holds the control character U+{code:04X}")]
    Control {
        /// Its code.
        code: u32,
    },
    /// JSON, but not what was asked for.
    #[error("{field}: {reason}")]
    Shape {
        /// The field.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It asks for excerpts and says nothing, where no more are to be had.
    #[error("the reply asks for excerpts, and no more can be shown")]
    NoMoreExcerpts,
}

/// JSON that was read, and what that took.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The value.
    pub value: Value,
    /// What was mended.
    pub mended: BTreeSet<Mended>,
}

/// Reads a reply.
///
/// # Errors
/// [`ReplyFault`], of which `Truncated` is never half-read.
pub fn read(text: &str) -> Result<Reading, ReplyFault> {
    let text = rollout::protocol::without_reasoning(text);
    let text = text.trim();
    let whole = value_of(text);
    if whole.is_ok() {
        return whole;
    }
    let mut broken = None;
    for part in fences(text).into_iter().chain([text]) {
        match first_value(part) {
            Ok(mut reading) => {
                reading.mended.insert(Mended::Surroundings);
                return Ok(reading);
            }
            Err(ReplyFault::NoJson) => {}
            Err(fault) => broken = broken.or(Some(fault)),
        }
    }
    Err(broken.unwrap_or(ReplyFault::NoJson))
}

/// The first object or list in a text that is JSON. What is inside of one that breaks off is no
/// reply.
fn first_value(text: &str) -> Result<Reading, ReplyFault> {
    let mut fault = ReplyFault::NoJson;
    let mut from = 0;
    while let Some(offset) = text[from..].find(['{', '[']) {
        let start = from + offset;
        let Some(length) = end_of_value(&text[start..]) else {
            return Err(ReplyFault::Truncated);
        };
        match value_of(&text[start..start + length]) {
            Ok(reading) => return Ok(reading),
            Err(other) if fault == ReplyFault::NoJson => fault = other,
            Err(_) => {}
        }
        from = start + length;
    }
    Err(fault)
}

/// One JSON object or list and nothing else.
fn value_of(text: &str) -> Result<Reading, ReplyFault> {
    let mut mended = BTreeSet::new();
    let text = mend(text, &mut mended);
    let value = harness::json::parse(&text).map_err(|error| ReplyFault::Invalid {
        reason: error.to_string(),
    })?;
    if !value.is_object() && !value.is_array() {
        return Err(ReplyFault::NoJson);
    }
    match control_character(&value) {
        Some(c) => Err(ReplyFault::Control { code: u32::from(c) }),
        None => Ok(Reading { value, mended }),
    }
}

/// The contents of fences, in order.
fn fences(text: &str) -> Vec<&str> {
    const FENCE: &str = "```";
    let mut parts = text.split(FENCE).skip(1);
    let mut found = Vec::new();
    while let Some(inside) = parts.next() {
        found.push(inside);
        parts.next();
    }
    found
}

/// Where the object or list at the start of `text` ends; `None` if it doesn't.
fn end_of_value(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut is_string = false;
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        if is_string {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '"' => is_string = false,
                _ => {}
            }
            continue;
        }
        match c {
            '"' => is_string = true,
            '{' | '[' => depth += 1,
            '}' | ']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + c.len_utf8());
                }
            }
            _ => {}
        }
    }
    None
}

/// Macros whose first letter makes a legal JSON escape. Nothing else that is written with one
/// backslash is ambiguous.
const MACROS: [&str; 46] = [
    "backslash",
    "bar",
    "because",
    "begin",
    "beta",
    "big",
    "bigl",
    "bigr",
    "binom",
    "bmod",
    "bot",
    "boxed",
    "boxplus",
    "bullet",
    "fbox",
    "flat",
    "forall",
    "frac",
    "frown",
    "nabla",
    "natural",
    "nearrow",
    "neg",
    "neq",
    "newline",
    "nexists",
    "nmid",
    "norm",
    "not",
    "notin",
    "rangle",
    "rbrace",
    "rceil",
    "rfloor",
    "rho",
    "right",
    "rightarrow",
    "root",
    "tanh",
    "tau",
    "text",
    "textbf",
    "tfrac",
    "therefore",
    "theta",
    "times",
];

/// Macros that may as well be a line break or a tab before a short word. They count where the same
/// string has another macro.
const SHORT_MACROS: [&str; 6] = ["ne", "ni", "nu", "rm", "tan", "to"];

/// `text` with what may be mended mended.
fn mend(text: &str, mended: &mut BTreeSet<Mended>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_string = false;
    let mut is_formula = false;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at + c.len_utf8()..];
        at += c.len_utf8();
        match c {
            '"' => {
                is_string = !is_string;
                is_formula = is_string && has_macro(rest);
                out.push(c);
            }
            '\\' if is_string => match escape(rest, is_formula) {
                Escape::Legal(length) => {
                    out.push('\\');
                    out.push_str(&rest[..length]);
                    at += length;
                }
                Escape::Literal => {
                    mended.insert(Mended::Backslash);
                    out.push_str("\\\\");
                }
            },
            '\n' if is_string => {
                mended.insert(Mended::LineBreak);
                out.push_str("\\n");
            }
            '\r' if is_string && rest.starts_with('\n') => {}
            '\t' if is_string => {
                mended.insert(Mended::LineBreak);
                out.push_str("\\t");
            }
            ',' if !is_string && rest.trim_start().starts_with(['}', ']']) => {
                mended.insert(Mended::TrailingComma);
            }
            c => out.push(c),
        }
    }
    out
}

/// What a backslash inside a string means.
enum Escape {
    /// A JSON escape with this many bytes after the backslash.
    Legal(usize),
    /// The backslash itself.
    Literal,
}

fn escape(rest: &str, is_formula: bool) -> Escape {
    let word: &str = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .map_or(rest, |end| &rest[..end]);
    let is_macro = MACROS.contains(&word) || is_formula && SHORT_MACROS.contains(&word);
    match rest.chars().next() {
        Some('"' | '\\' | '/') => Escape::Legal(1),
        Some('b' | 'f' | 'n' | 'r' | 't') if !is_macro => Escape::Legal(1),
        Some('u') => {
            let digits = rest.get(1..5).unwrap_or_default();
            let is_code = digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            if is_code {
                Escape::Legal(5)
            } else {
                Escape::Literal
            }
        }
        _ => Escape::Literal,
    }
}

/// Whether the string that starts here has a backslash that can only be a macro's.
fn has_macro(string: &str) -> bool {
    let mut at = 0;
    while let Some(c) = string[at..].chars().next() {
        at += c.len_utf8();
        match c {
            '"' => return false,
            '\\' => match escape(&string[at..], false) {
                Escape::Legal(length) => at += length,
                Escape::Literal => return true,
            },
            _ => {}
        }
    }
    false
}

/// The first control character in a key or a string, line feed and tab apart.
fn control_character(value: &Value) -> Option<char> {
    let stray = |text: &str| {
        text.chars()
            .find(|c| c.is_control() && !matches!(c, '\n' | '\t'))
    };
    match value {
        Value::String(text) => stray(text),
        Value::Array(items) => items.iter().find_map(control_character),
        Value::Object(map) => map
            .iter()
            .find_map(|(key, value)| stray(key).or_else(|| control_character(value))),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read_value(text: &str) -> Value {
        read(text).unwrap().value
    }

    #[test]
    fn plain_json_is_read_as_it_is() {
        let reading = read(r#" {"a": ["b", 1, null]} "#).unwrap();
        assert_eq!(reading.value, json!({"a": ["b", 1, null]}));
        assert!(reading.mended.is_empty());
    }

    #[test]
    fn surroundings_are_passed_over() {
        let fenced = "Here:\n```json\n{\"a\": \"x}\"}\n```\nMore {later}.";
        assert_eq!(read_value(fenced), json!({"a": "x}"}));
        assert_eq!(read_value("So {\"a\": 1} it is."), json!({"a": 1}));
        assert_eq!(
            read_value("<think>{\"a\": 0}</think>\n{\"a\": 1}"),
            json!({"a": 1})
        );
        // A brace of the prose isn't taken for the object's.
        assert_eq!(read_value("{see below} {\"a\": 1}"), json!({"a": 1}));
    }

    #[test]
    fn macros_with_one_backslash_are_taken_as_they_are_meant() {
        for (text, meant) in [
            (r#"{"v":"use \frac{1}{2}"}"#, r"use \frac{1}{2}"),
            (r#"{"v":"\times \nu \beta"}"#, r"\times \nu \beta"),
            (r#"{"v":"\sigma and \(x\)"}"#, r"\sigma and \(x\)"),
            (r#"{"v":"\boxed{3}"}"#, r"\boxed{3}"),
            (r#"{"v":"\upsilon"}"#, r"\upsilon"),
        ] {
            let reading = read(text).unwrap();
            assert_eq!(reading.value["v"], meant, "{text}");
            assert!(reading.mended.contains(&Mended::Backslash), "{text}");
        }
        for (text, meant) in [
            (r#"{"v":"line1\nline2"}"#, "line1\nline2"),
            (r#"{"v":"end\nnext\tcolumn"}"#, "end\nnext\tcolumn"),
            (r#"{"v":"\\frac \u00e9 \/"}"#, "\\frac é /"),
            (r#"{"v":"\nu comes after m\to"}"#, "\nu comes after m\to"),
        ] {
            let reading = read(text).unwrap();
            assert_eq!(reading.value["v"], meant, "{text}");
            assert!(reading.mended.is_empty(), "{text}");
        }
    }

    #[test]
    fn control_characters_are_refused() {
        let fault = read(r#"{"v":"a\bb"}"#).unwrap_err();
        assert_eq!(fault, ReplyFault::Control { code: 8 });
        let fault = read(r#"{"v":["\u000c"]}"#).unwrap_err();
        assert_eq!(fault, ReplyFault::Control { code: 12 });
    }

    #[test]
    fn what_breaks_off_is_told_apart_from_what_is_wrong() {
        for text in [
            "{\"path\":\"prompts.sys",
            "[{\"path\":\"a\"},{\"path\":\"b\"",
            "Well: {\"a\": [1, 2",
            "```json\n{\"a\": 1,\n",
        ] {
            assert_eq!(read(text), Err(ReplyFault::Truncated), "{text}");
        }
        assert!(matches!(
            read("{\"a\": b}"),
            Err(ReplyFault::Invalid { .. })
        ));
        assert!(matches!(
            read("{\"a\": 1, \"a\": 2}"),
            Err(ReplyFault::Invalid { .. })
        ));
        assert_eq!(read("I can't help with that."), Err(ReplyFault::NoJson));
    }

    #[test]
    fn commas_and_line_breaks_are_mended_outside_and_inside_strings() {
        let reading = read("{\"note\": \"keep ,] as is\",\n \"list\": [1, 2,],}").unwrap();
        assert_eq!(
            reading.value,
            json!({"note": "keep ,] as is", "list": [1, 2]})
        );
        assert_eq!(reading.mended, BTreeSet::from([Mended::TrailingComma]));
        let reading = read("{\"v\": \"two\nlines\"}").unwrap();
        assert_eq!(reading.value["v"], "two\nlines");
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            // No letters that could make a macro of a line break.
            "[a-d \\\\\"{}\\[\\],:é\n\t]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z]{1,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Whatever a careful writer writes is read without mending, alone, in a fence or in prose;
        /// and no beginning of it is read as something else.
        #[test]
        fn valid_json_is_never_changed_and_never_completed(value in json_value(), cut in 1usize..200) {
            prop_assume!(value.is_object());
            let text = value.to_string();
            let reading = read(&text).unwrap();
            prop_assert_eq!(&reading.value, &value);
            prop_assert!(reading.mended.is_empty());
            let fenced = format!("As asked:\n```json\n{text}\n```\nThat is all.");
            prop_assert_eq!(&read(&fenced).unwrap().value, &value);
            let start: String = text.chars().take(cut).collect();
            if start.len() < text.len() {
                prop_assert_eq!(read(&start), Err(ReplyFault::Truncated));
            }
        }
    }
}
