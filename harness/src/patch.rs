//! Patches: typed changes to a harness, confined to one dimension.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::dimension::Dimension;
use crate::document::Harness;
use crate::field_path::{FieldPath, Segment};
use crate::json::{self, JsonError};
use crate::validate::{Problem, validate};

/// A change to one dimension of a harness.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// The dimension that every operation stays in.
    pub dimension: Dimension,
    /// Operations, applied in order; each sees the result of the ones before it.
    pub ops: Vec<PatchOp>,
    /// What the patch does, in one line.
    #[serde(default)]
    pub summary: String,
}

/// One operation of a [`Patch`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchOp {
    /// What to do.
    pub op: PatchOpKind,
    /// Where.
    pub path: FieldPath,
    /// The new value; absent for `remove` and present for all others.
    // Without this, an explicit `null` would read as absent.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub value: Option<Value>,
}

/// What a [`PatchOp`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PatchOpKind {
    /// On a list, appends; on a key that isn't there yet, creates it.
    Add,
    /// Replaces a value that exists.
    Replace,
    /// Inserts before the list position that the path ends in.
    Insert,
    /// Removes a key or a list position.
    Remove,
}

impl PatchOpKind {
    fn name(self) -> &'static str {
        match self {
            PatchOpKind::Add => "add",
            PatchOpKind::Replace => "replace",
            PatchOpKind::Insert => "insert",
            PatchOpKind::Remove => "remove",
        }
    }
}

/// Why a patch can't be applied. Every variant but the first names a field and a reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch has no operation.
    #[error("the patch has no operation")]
    Empty,
    /// A path leaves the dimension that the patch declares.
    #[error("{path}: outside dimension {dimension} (`{}`)", dimension.section())]
    OutsideDimension {
        /// The path.
        path: FieldPath,
        /// The declared dimension.
        dimension: Dimension,
    },
    /// An operation doesn't fit the document.
    #[error("{path}: can't {op}: {reason}")]
    CannotApply {
        /// The operation's path.
        path: FieldPath,
        /// The operation's name.
        op: &'static str,
        /// Why not.
        reason: String,
    },
    /// The result isn't a harness document: an unknown field, or a value of the wrong type.
    #[error("{path}: {reason}")]
    Type {
        /// The field.
        path: FieldPath,
        /// What is wrong with it.
        reason: String,
    },
    /// The result is a harness document that breaks a rule of [`validate`].
    #[error("{}", join_problems(problems))]
    Invalid {
        /// All broken rules, at least one.
        problems: Vec<Problem>,
    },
}

impl PatchError {
    /// The field that the error is about; of several, the first.
    pub fn path(&self) -> Option<&FieldPath> {
        match self {
            PatchError::Empty => None,
            PatchError::OutsideDimension { path, .. }
            | PatchError::CannotApply { path, .. }
            | PatchError::Type { path, .. } => Some(path),
            PatchError::Invalid { problems } => problems.first().map(|problem| &problem.path),
        }
    }
}

impl Patch {
    /// Reads a patch from JSON text; a key that occurs twice is refused.
    ///
    /// # Errors
    /// [`JsonError`] with line and column, or with the field.
    pub fn from_json(text: &str) -> Result<Patch, JsonError> {
        json::from_str(text)
    }

    /// Applies all operations to a copy of `harness`. `harness` itself never changes, and there is
    /// no partly patched result.
    ///
    /// # Errors
    /// [`PatchError`]: the first operation that can't be applied, or what is wrong with the result.
    pub fn apply(&self, harness: &Harness) -> Result<Harness, PatchError> {
        if self.ops.is_empty() {
            return Err(PatchError::Empty);
        }
        for op in &self.ops {
            if Dimension::of(&op.path) != Some(self.dimension) {
                let (path, dimension) = (op.path.clone(), self.dimension);
                return Err(PatchError::OutsideDimension { path, dimension });
            }
        }
        let mut document = harness.to_value();
        for op in &self.ops {
            op.apply(&mut document)
                .map_err(|reason| PatchError::CannotApply {
                    path: op.path.clone(),
                    op: op.op.name(),
                    reason,
                })?;
        }
        let mut patched: Harness = json::from_value(document).map_err(|error| match error {
            JsonError::Type { path, reason } => PatchError::Type { path, reason },
            JsonError::Syntax { reason, .. } => PatchError::Type {
                path: FieldPath::root(),
                reason,
            },
        })?;
        patched.memory.evict();
        validate(&patched).map_err(|problems| PatchError::Invalid { problems })?;
        Ok(patched)
    }
}

impl PatchOp {
    /// Appends `value` to a list or creates a key.
    pub fn add(path: FieldPath, value: Value) -> PatchOp {
        PatchOp {
            op: PatchOpKind::Add,
            path,
            value: Some(value),
        }
    }

    /// Replaces the value at `path`.
    pub fn replace(path: FieldPath, value: Value) -> PatchOp {
        PatchOp {
            op: PatchOpKind::Replace,
            path,
            value: Some(value),
        }
    }

    /// Inserts `value` before the list position that `path` ends in.
    pub fn insert(path: FieldPath, value: Value) -> PatchOp {
        PatchOp {
            op: PatchOpKind::Insert,
            path,
            value: Some(value),
        }
    }

    /// Removes what is at `path`.
    pub fn remove(path: FieldPath) -> PatchOp {
        PatchOp {
            op: PatchOpKind::Remove,
            path,
            value: None,
        }
    }

    pub(crate) fn apply(&self, document: &mut Value) -> Result<(), String> {
        let (parent_path, last) = self.path.split_last().ok_or("it is the whole document")?;
        let parent = find(document, &parent_path)?;
        match (self.op, &self.value) {
            (PatchOpKind::Add, Some(value)) => add(parent, last, value),
            (PatchOpKind::Replace, Some(value)) => {
                *child(parent, last)? = value.clone();
                Ok(())
            }
            (PatchOpKind::Insert, Some(value)) => insert(parent, last, value),
            (PatchOpKind::Remove, None) => remove(parent, last),
            (PatchOpKind::Remove, Some(_)) => Err("a removal takes no value".to_owned()),
            (_, None) => Err("the value is missing".to_owned()),
        }
    }
}

fn add(parent: &mut Value, last: &Segment, value: &Value) -> Result<(), String> {
    match (child(parent, last), last) {
        (Ok(Value::Array(items)), _) => items.push(value.clone()),
        (_, Segment::Index(_)) => {
            return Err("a position can't be added; use insert, or add to the list".to_owned());
        }
        (Ok(_), Segment::Key(_)) => return Err("it exists already; use replace".to_owned()),
        (Err(reason), Segment::Key(key)) => {
            let map = parent.as_object_mut().ok_or(reason)?;
            map.insert(key.clone(), value.clone());
        }
    }
    Ok(())
}

fn insert(parent: &mut Value, last: &Segment, value: &Value) -> Result<(), String> {
    match (parent, last) {
        (Value::Array(items), Segment::Index(index)) if *index <= items.len() => {
            items.insert(*index, value.clone());
            Ok(())
        }
        (Value::Array(items), Segment::Index(_)) => {
            Err(format!("the list has {} entries", items.len()))
        }
        (parent, Segment::Index(_)) => Err(format!("{} isn't a list", describe(parent))),
        (_, Segment::Key(_)) => Err("the path must end in a list position".to_owned()),
    }
}

fn remove(parent: &mut Value, last: &Segment) -> Result<(), String> {
    child(parent, last)?;
    match (parent, last) {
        (Value::Array(items), Segment::Index(index)) => {
            items.remove(*index);
        }
        (Value::Object(map), Segment::Key(key)) => {
            map.remove(key);
        }
        _ => {}
    }
    Ok(())
}

fn find<'a>(document: &'a mut Value, path: &FieldPath) -> Result<&'a mut Value, String> {
    let mut value = document;
    let mut walked = FieldPath::root();
    for segment in path.segments() {
        walked = walked.join(segment.clone());
        value = child(value, segment).map_err(|reason| format!("`{walked}`: {reason}"))?;
    }
    Ok(value)
}

fn child<'a>(parent: &'a mut Value, segment: &Segment) -> Result<&'a mut Value, String> {
    match (parent, segment) {
        (Value::Object(map), Segment::Key(key)) => map
            .get_mut(key)
            .ok_or_else(|| format!("there is no {key:?}")),
        (Value::Array(items), Segment::Index(index)) => {
            let count = items.len();
            items
                .get_mut(*index)
                .ok_or_else(|| format!("the list has {count} entries"))
        }
        (parent, Segment::Key(key)) => Err(format!("{} has no {key:?}", describe(parent))),
        (parent, Segment::Index(_)) => Err(format!("{} isn't a list", describe(parent))),
    }
}

fn describe(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

fn join_problems(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(Problem::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
