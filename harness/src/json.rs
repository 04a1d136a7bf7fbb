//! Strict JSON, as a whole text or line by line. serde_json alone keeps the last of two equal keys; here that
//! is an error.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::field_path::{FieldPath, Segment};

/// Why a JSON text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON, a number beyond a double, or a key that occurs twice.
    #[error("line {line}, column {column}: {reason}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong there.
        reason: String,
    },
    /// JSON, but not of the expected type.
    #[error("{path}: {reason}")]
    Type {
        /// The field.
        path: FieldPath,
        /// What is wrong with it.
        reason: String,
    },
}

/// Why a line of a text of JSON lines was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: can't be read as JSON: {reason}")]
pub struct LineError {
    /// Column, from 1.
    pub column: usize,
    /// What is wrong there.
    pub reason: String,
}

/// Reads one JSON value; every object's keys must differ.
///
/// # Errors
/// [`JsonError::Syntax`] with line and column.
pub fn parse(text: &str) -> Result<Value, JsonError> {
    read(text).map_err(|error| JsonError::Syntax {
        line: error.line(),
        column: error.column(),
        reason: reason(&error),
    })
}

/// Reads a line of a text of JSON lines, nothing where it is blank; every object's keys must differ. A byte
/// order mark, with which files written on Windows may start, is passed over.
///
/// # Errors
/// What is wrong in which column.
pub fn parse_line(line: &str) -> Result<Option<Value>, LineError> {
    let line = line.trim_start_matches('\u{feff}');
    let content = line.trim();
    if content.is_empty() {
        return Ok(None);
    }
    let indent = line.len() - line.trim_start().len();
    read(content).map(Some).map_err(|error| LineError {
        column: indent + error.column(),
        reason: reason(&error),
    })
}

fn read(text: &str) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = UniqueKeys.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// What is wrong, without the place, which stands beside it.
fn reason(error: &serde_json::Error) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = error.to_string();
    message.strip_suffix(&place).unwrap_or(&message).to_owned()
}

/// Reads a typed value; every object's keys must differ.
///
/// # Errors
/// [`JsonError::Syntax`] with line and column, or [`JsonError::Type`] with the field.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    from_value(parse(text)?)
}

/// Turns a JSON value into a typed one.
///
/// # Errors
/// [`JsonError::Type`] with the field.
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, JsonError> {
    serde_path_to_error::deserialize(value).map_err(|error| JsonError::Type {
        path: field_path(error.path()),
        reason: error.into_inner().to_string(),
    })
}

/// The same path in our own form.
pub(crate) fn field_path(path: &serde_path_to_error::Path) -> FieldPath {
    use serde_path_to_error::Segment as Tracked;
    path.iter()
        .filter_map(|segment| match segment {
            Tracked::Seq { index } => Some(Segment::Index(*index)),
            Tracked::Map { key } => Some(Segment::Key(key.clone())),
            Tracked::Enum { variant } => Some(Segment::Key(variant.clone())),
            Tracked::Unknown => None,
        })
        .collect()
}

/// Builds a [`Value`] and refuses a key that is already there.
#[derive(Clone, Copy)]
struct UniqueKeys;

impl<'de> DeserializeSeed<'de> for UniqueKeys {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value);
        number
            .map(Value::Number)
            .ok_or_else(|| E::custom("expected a finite number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("key {key:?} occurs twice")));
            }
            let value = entries.next_value_seed(self)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
