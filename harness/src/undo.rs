//! Taking an old change back out of a harness that has changed since.
//!
//! Like `git revert`, field by field: what the change left has to stand there still, and what it replaced
//! comes back. Entries of lists are found by what they are, since their positions shift.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::document::Harness;
use crate::field_path::FieldPath;
use crate::patch::PatchOp;

/// Why a change can't be taken back cleanly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct UndoError {
    /// The field.
    pub path: FieldPath,
    /// What stands in the way.
    pub reason: &'static str,
}

/// Operations that take the step from `before` to `after` back out of `head`. They leave alone what the
/// step didn't touch; whether the result is a valid harness is for [`crate::Patch::apply`] to say.
///
/// # Errors
/// [`UndoError`] names the first field that the step changed and that has changed again since.
pub fn undo(before: &Harness, after: &Harness, head: &Harness) -> Result<Vec<PatchOp>, UndoError> {
    let mut ops = Vec::new();
    values(
        &FieldPath::root(),
        &before.to_value(),
        &after.to_value(),
        &head.to_value(),
        &mut ops,
    )?;
    Ok(ops)
}

fn changed(path: &FieldPath) -> UndoError {
    UndoError {
        path: path.clone(),
        reason: "it has changed since",
    }
}

fn values(
    path: &FieldPath,
    before: &Value,
    after: &Value,
    head: &Value,
    ops: &mut Vec<PatchOp>,
) -> Result<(), UndoError> {
    match (before, after, head) {
        _ if before == after => Ok(()),
        (Value::Object(before), Value::Object(after), Value::Object(head)) => {
            maps(path, before, after, head, ops)
        }
        (Value::Array(before), Value::Array(after), Value::Array(head)) => {
            lists(path, before, after, head, ops)
        }
        _ if after == head => {
            ops.push(PatchOp::replace(path.clone(), before.clone()));
            Ok(())
        }
        _ => Err(changed(path)),
    }
}

fn maps(
    path: &FieldPath,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    head: &Map<String, Value>,
    ops: &mut Vec<PatchOp>,
) -> Result<(), UndoError> {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let path = path.join(key.as_str());
        match (before.get(key), after.get(key), head.get(key)) {
            (before, after, _) if before == after => {}
            (Some(before), Some(after), Some(head)) => values(&path, before, after, head, ops)?,
            (None, Some(added), Some(head)) if added == head => ops.push(PatchOp::remove(path)),
            (Some(removed), None, None) => ops.push(PatchOp::add(path, removed.clone())),
            _ => return Err(changed(&path)),
        }
    }
    Ok(())
}

fn lists(
    path: &FieldPath,
    before: &[Value],
    after: &[Value],
    head: &[Value],
    ops: &mut Vec<PatchOp>,
) -> Result<(), UndoError> {
    // A change inside of entries that are where they were.
    if before.len() == after.len() && after.len() == head.len() {
        let mut inside = Vec::new();
        let mut entries = before.iter().zip(after).zip(head).enumerate();
        let done = entries.try_for_each(|(index, ((before, after), head))| {
            values(&path.join(index), before, after, head, &mut inside)
        });
        if done.is_ok() {
            ops.extend(inside);
            return Ok(());
        }
    }
    let start = common(before.iter().zip(after));
    let (old_rest, new_rest) = (&before[start..], &after[start..]);
    let end = common(old_rest.iter().rev().zip(new_rest.iter().rev()));
    let old = &before[start..before.len() - end];
    let new = &after[start..after.len() - end];
    let at = place(head, after, start, new).ok_or_else(|| changed(path))?;
    ops.extend(new.iter().map(|_| PatchOp::remove(path.join(at))));
    let returned = old.iter().enumerate();
    ops.extend(
        returned.map(|(offset, value)| PatchOp::insert(path.join(at + offset), value.clone())),
    );
    Ok(())
}

/// How many pairs are alike before the first that isn't.
fn common<'a>(pairs: impl Iterator<Item = (&'a Value, &'a Value)>) -> usize {
    pairs.take_while(|(left, right)| left == right).count()
}

/// Where in `head` the entries stand that the change put at `start` of `after`; `None` if they aren't
/// there, or in several places.
fn place(head: &[Value], after: &[Value], start: usize, new: &[Value]) -> Option<usize> {
    if head == after {
        return Some(start);
    }
    if new.is_empty() {
        // Nothing to find: what stood before the gap has to stand there still.
        return head.starts_with(&after[..start]).then_some(start);
    }
    let mut places = head
        .windows(new.len())
        .enumerate()
        .filter(|(_, window)| *window == new)
        .map(|(place, _)| place);
    let first = places.next()?;
    places.next().is_none().then_some(first)
}
