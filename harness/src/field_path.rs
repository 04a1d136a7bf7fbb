//! Paths to single fields of the harness document.
//!
//! Text form: keys joined by `.`, list positions in brackets, as in
//! `middleware.hooks.post_tool_call[0].type`. A key that holds one of `.`, `[`, `]`, `"`, white
//! space or a control character is written as a JSON string in brackets:
//! `tools.python.parameters.properties["a.b"]`. The root is `.` alone.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One step of a [`FieldPath`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// A field of a struct or a key of a map.
    Key(String),
    /// A position in a list, from 0.
    Index(usize),
}

impl From<&str> for Segment {
    fn from(key: &str) -> Self {
        Segment::Key(key.to_owned())
    }
}

impl From<usize> for Segment {
    fn from(index: usize) -> Self {
        Segment::Index(index)
    }
}

/// Names one field of the harness document. `Display` and `FromStr` are inverse to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath {
    segments: Vec<Segment>,
}

impl FieldPath {
    /// The whole document.
    pub fn root() -> FieldPath {
        FieldPath::default()
    }

    /// The steps from the root.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The path one step further.
    #[must_use]
    pub fn join(&self, segment: impl Into<Segment>) -> FieldPath {
        let mut segments = self.segments.clone();
        segments.push(segment.into());
        FieldPath { segments }
    }

    /// Whether `prefix` names this field or one that holds it.
    pub fn starts_with(&self, prefix: &FieldPath) -> bool {
        self.segments.starts_with(&prefix.segments)
    }

    /// The first step, if it is a key.
    pub fn first_key(&self) -> Option<&str> {
        match self.segments.first() {
            Some(Segment::Key(key)) => Some(key),
            _ => None,
        }
    }

    /// The path without its last step, and that step; `None` for the root.
    pub fn split_last(&self) -> Option<(FieldPath, &Segment)> {
        let (last, rest) = self.segments.split_last()?;
        Some((
            FieldPath {
                segments: rest.to_vec(),
            },
            last,
        ))
    }
}

impl FromIterator<Segment> for FieldPath {
    fn from_iter<I: IntoIterator<Item = Segment>>(segments: I) -> Self {
        FieldPath {
            segments: segments.into_iter().collect(),
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.segments.is_empty() {
            return f.write_str(".");
        }
        for (position, segment) in self.segments.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) if is_bare(key) => {
                    if position > 0 {
                        f.write_str(".")?;
                    }
                    f.write_str(key)?;
                }
                Segment::Key(key) => write!(f, "[{}]", serde_json::Value::from(key.as_str()))?,
            }
        }
        Ok(())
    }
}

/// Why a text isn't a field path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} isn't a field path: {reason} at byte {offset}")]
pub struct ParseFieldPathError {
    /// The refused text.
    pub text: String,
    /// Where in the text.
    pub offset: usize,
    /// What is wrong there.
    pub reason: &'static str,
}

impl FromStr for FieldPath {
    type Err = ParseFieldPathError;

    fn from_str(text: &str) -> Result<Self, ParseFieldPathError> {
        if text == "." {
            return Ok(FieldPath::root());
        }
        let mut segments = Vec::new();
        let mut rest = text;
        loop {
            let offset = text.len() - rest.len();
            let fail = |reason| ParseFieldPathError {
                text: text.to_owned(),
                offset,
                reason,
            };
            if let Some(inside) = rest.strip_prefix('[') {
                let (segment, after) = parse_bracket(inside).map_err(fail)?;
                segments.push(segment);
                rest = after;
            } else {
                let named = match rest.strip_prefix('.') {
                    Some(named) if !segments.is_empty() => named,
                    Some(_) => return Err(fail("expected a key or `[`")),
                    None if segments.is_empty() => rest,
                    None => return Err(fail("expected `.` or `[`")),
                };
                let end = named.find(['.', '[']).unwrap_or(named.len());
                let (key, after) = named.split_at(end);
                if !is_bare(key) {
                    return Err(fail("expected a plain key; write others as [\"key\"]"));
                }
                segments.push(Segment::Key(key.to_owned()));
                rest = after;
            }
            if rest.is_empty() {
                return Ok(FieldPath { segments });
            }
        }
    }
}

impl Serialize for FieldPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FieldPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl JsonSchema for FieldPath {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FieldPath".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A field of the harness, such as middleware.hooks.post_tool_call[0].type",
        })
    }
}

/// Reads what follows `[`: a position or a JSON string, then `]`. Returns it and the rest.
fn parse_bracket(inside: &str) -> Result<(Segment, &str), &'static str> {
    if inside.starts_with('"') {
        let mut strings = serde_json::Deserializer::from_str(inside).into_iter::<String>();
        let key = match strings.next() {
            Some(Ok(key)) => key,
            _ => return Err("unfinished quoted key"),
        };
        let rest = &inside[strings.byte_offset()..];
        let after = rest
            .strip_prefix(']')
            .ok_or("expected `]` after a quoted key")?;
        return Ok((Segment::Key(key), after));
    }
    let (digits, after) = inside.split_once(']').ok_or("`[` without `]`")?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || (digits.len() > 1 && digits.starts_with('0')) {
        return Err("expected a list position or a quoted key in brackets");
    }
    let index = digits.parse().map_err(|_| "list position out of range")?;
    Ok((Segment::Index(index), after))
}

fn is_bare(key: &str) -> bool {
    let is_special =
        |c: char| matches!(c, '.' | '[' | ']' | '"') || c.is_whitespace() || c.is_control();
    !key.is_empty() && !key.contains(is_special)
}
