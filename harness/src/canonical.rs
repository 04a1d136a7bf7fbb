//! Canonical JSON and the content id of a harness.
//!
//! Canonical means: no white space, and the keys of every object sorted by their UTF-8 bytes. So the
//! text depends neither on the order of a file nor on how serde_json keeps its maps.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// Content id of a harness: the blake3 hash of its canonical JSON.
///
/// Displays as the first 12 hex digits; [`HarnessId::to_hex`] and serde use all 64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HarnessId([u8; 32]);

impl HarnessId {
    /// The id of a document with this canonical text.
    pub fn of(canonical: &str) -> HarnessId {
        HarnessId(*blake3::hash(canonical.as_bytes()).as_bytes())
    }

    /// All 64 hex digits.
    pub fn to_hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
}

impl fmt::Display for HarnessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_hex()[..12])
    }
}

impl fmt::Debug for HarnessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HarnessId({self})")
    }
}

/// A text that isn't a full harness id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} isn't a harness id of 64 hex digits")]
pub struct ParseHarnessIdError {
    /// The refused text.
    pub text: String,
}

impl FromStr for HarnessId {
    type Err = ParseHarnessIdError;

    /// Reads the full form of [`HarnessId::to_hex`]. Resolving a prefix needs the set of known ids,
    /// which is the registry's.
    fn from_str(text: &str) -> Result<Self, ParseHarnessIdError> {
        blake3::Hash::from_hex(text)
            .map(|hash| HarnessId(*hash.as_bytes()))
            .map_err(|_| ParseHarnessIdError {
                text: text.to_owned(),
            })
    }
}

impl Serialize for HarnessId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for HarnessId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl JsonSchema for HarnessId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HarnessId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
    }
}

/// The canonical text of a JSON value.
pub fn canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

/// The same value with the keys of every object inserted in sorted order.
pub(crate) fn sort_keys(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(sort_keys).collect()),
        Value::Object(map) => {
            let mut entries: Vec<(String, Value)> = map.into_iter().collect();
            entries.sort_by(|left, right| left.0.cmp(&right.0));
            let sorted = entries
                .into_iter()
                .map(|(key, value)| (key, sort_keys(value)));
            Value::Object(Map::from_iter(sorted))
        }
        scalar => scalar,
    }
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            text.push('{');
            for (index, (key, item)) in entries.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                // Display of a string value is its JSON form, with serde_json's own escapes.
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write_canonical(item, text);
            }
            text.push('}');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}
