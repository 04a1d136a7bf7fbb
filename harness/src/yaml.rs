//! Strict YAML, and the only module that knows which YAML library is used.
//!
//! Strict means: a key that occurs twice, a merge key, an unknown tag, a number that isn't finite and
//! a second document are errors, and only `true` and `false` are booleans. Reading is led by the
//! type: where a text is wanted `1234e56` is that text, and where a number is wanted `"8"` is 8.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_yaml::granit_parser::{Event, Parser, Placement, ScalarStyle};

/// Why a YAML text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {reason}")]
pub struct YamlError {
    /// Line, from 1; 0 if the reader couldn't tell.
    pub line: u64,
    /// Column, from 1; 0 if the reader couldn't tell.
    pub column: u64,
    /// What is wrong there, with the field if one is known.
    pub reason: String,
}

/// A comment that follows a plain text on the same line, where it may have been meant as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostText {
    pub(crate) line: u64,
    pub(crate) column: u64,
    pub(crate) text: String,
}

/// Reads one YAML document.
///
/// # Errors
/// [`YamlError`] with line and column.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    let options = serde_yaml::options! {
        strict_booleans: true,
        merge_keys: serde_yaml::MergeKeyPolicy::Error,
        duplicate_keys: serde_yaml::DuplicateKeyPolicy::Error,
        non_finite_float_policy: serde_yaml::NonFiniteFloatPolicy::Reject,
        reject_unsupported_tags: true,
        reject_tagged_field_names: true,
        with_snippet: false,
    };
    serde_yaml::from_str_with_options(text, options).map_err(|error| {
        let (line, column) = match error.location() {
            Some(location) => (location.line(), location.column()),
            None => (0, 0),
        };
        let message = error.to_string();
        let position = format!(" at line {line}, column {column}");
        let reason = message.strip_suffix(&position).unwrap_or(&message);
        YamlError {
            line,
            column,
            reason: match reason {
                "unexpected end of input" if text.trim().is_empty() => {
                    "the file is empty".to_owned()
                }
                _ => plainly(reason),
            },
        }
    })
}

/// What the library says of its options, its events and Rust's types, in words for who writes YAML.
fn plainly(reason: &str) -> String {
    if let Some(rest) = reason.strip_prefix("duplicate mapping key") {
        let key = rest.strip_prefix(": ");
        let key = key.and_then(|rest| rest.rsplit_once(", set DuplicateKeyPolicy"));
        return match key {
            Some((key, _)) => format!("key \"{key}\" occurs twice"),
            None => "a key occurs twice".to_owned(),
        };
    }
    if reason.starts_with("multiple YAML documents detected") {
        return "a second document begins here, and a file holds one".to_owned();
    }
    let bits = reason.strip_prefix("invalid u");
    if let Some(bits) = bits.and_then(|bits| bits.parse::<u32>().ok()) {
        return format!("expected a whole number, at least 0 and below 2^{bits}");
    }
    let said = match reason {
        "invalid floating point" => "expected a number",
        "invalid boolean (strict mode expects true/false)" => "expected true or false",
        "expected string scalar" => "expected a text",
        "expected sequence start" => "expected a list",
        "expected mapping start" => "expected fields, as in name: value",
        "cannot deserialize null into string; use Option<String>" => {
            "expected a text, but nothing stands there"
        }
        "unexpected end of input" => "the text ends where more is expected",
        "YAML merge keys are not allowed by configured policy" => {
            "`<<` isn't read; write the fields out"
        }
        other => other,
    };
    said.to_owned()
}

/// Writes a value as YAML that [`from_str`] reads back equal.
pub fn to_string<T: Serialize>(value: &T) -> String {
    let options = serde_yaml::ser_options! { compact_list_indent: false };
    serde_yaml::to_string_with_options(value, options).expect("plain data can be written as YAML")
}

/// Comments right of a plain text with a space in it, and comments that start without a space, as
/// in `use step #1`: YAML drops these words without a message.
pub(crate) fn lost_text(text: &str) -> Vec<LostText> {
    let mut lost = Vec::new();
    let mut last_plain: Option<(usize, bool)> = None;
    for event in Parser::new_from_str(text) {
        // A syntax error is reported by `from_str`.
        let Ok((event, span)) = event else { break };
        match event {
            Event::Scalar(value, ScalarStyle::Plain, ..) => {
                last_plain = Some((span.end.line(), value.contains(' ')));
            }
            Event::Comment(comment, Placement::Right) => {
                let has_gap = comment.starts_with(char::is_whitespace);
                if let Some((line, is_phrase)) = last_plain
                    && line == span.start.line()
                    && (is_phrase || !has_gap)
                {
                    lost.push(LostText {
                        line: line as u64,
                        column: span.start.col() as u64 + 1,
                        text: format!("#{comment}"),
                    });
                }
            }
            _ => last_plain = None,
        }
    }
    lost
}
