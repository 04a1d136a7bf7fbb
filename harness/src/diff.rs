//! Which fields differ between two harnesses.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::dimension::Dimension;
use crate::document::Harness;
use crate::field_path::FieldPath;

/// One field that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldChange {
    /// The field. A removed list entry counts in the old list, an inserted one in the new list.
    pub path: FieldPath,
    /// The old value; `None` if the field is new.
    pub before: Option<Value>,
    /// The new value; `None` if the field is gone.
    pub after: Option<Value>,
}

impl FieldChange {
    /// The dimension of the field; `None` for `format`, `name` and `description`.
    pub fn dimension(&self) -> Option<Dimension> {
        Dimension::of(&self.path)
    }
}

impl fmt::Display for FieldChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, "{}: {before} -> {after}", self.path),
            (None, Some(after)) => write!(f, "{}: added {after}", self.path),
            (Some(before), None) => write!(f, "{}: removed {before}", self.path),
            (None, None) => write!(f, "{}: unchanged", self.path),
        }
    }
}

/// The fields in which `after` differs from `before`, the deepest that say it, ordered by key and
/// position. Lists are compared between their common start and their common end, so that one
/// inserted entry is one change.
pub fn diff(before: &Harness, after: &Harness) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    compare(
        FieldPath::root(),
        &before.to_value(),
        &after.to_value(),
        &mut changes,
    );
    changes
}

fn compare(path: FieldPath, before: &Value, after: &Value, changes: &mut Vec<FieldChange>) {
    match (before, after) {
        _ if before == after => {}
        (Value::Object(old), Value::Object(new)) => {
            let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for key in keys {
                let path = path.join(key.as_str());
                compare_optional(path, old.get(key), new.get(key), changes);
            }
        }
        (Value::Array(old), Value::Array(new)) => compare_lists(&path, old, new, changes),
        _ => compare_optional_leaf(path, Some(before), Some(after), changes),
    }
}

fn compare_lists(path: &FieldPath, old: &[Value], new: &[Value], changes: &mut Vec<FieldChange>) {
    let start = old
        .iter()
        .zip(new)
        .take_while(|(left, right)| left == right)
        .count();
    let (old_rest, new_rest) = (&old[start..], &new[start..]);
    let pairs_from_end = old_rest.iter().rev().zip(new_rest.iter().rev());
    let end = pairs_from_end
        .take_while(|(left, right)| left == right)
        .count();
    let old_middle = &old_rest[..old_rest.len() - end];
    let new_middle = &new_rest[..new_rest.len() - end];
    for offset in 0..old_middle.len().max(new_middle.len()) {
        let path = path.join(start + offset);
        compare_optional(
            path,
            old_middle.get(offset),
            new_middle.get(offset),
            changes,
        );
    }
}

fn compare_optional(
    path: FieldPath,
    before: Option<&Value>,
    after: Option<&Value>,
    changes: &mut Vec<FieldChange>,
) {
    match (before, after) {
        (Some(before), Some(after)) => compare(path, before, after, changes),
        _ => compare_optional_leaf(path, before, after, changes),
    }
}

fn compare_optional_leaf(
    path: FieldPath,
    before: Option<&Value>,
    after: Option<&Value>,
    changes: &mut Vec<FieldChange>,
) {
    changes.push(FieldChange {
        path,
        before: before.cloned(),
        after: after.cloned(),
    });
}
