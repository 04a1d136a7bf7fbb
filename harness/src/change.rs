//! What operations do to a harness, wherever the entries of its lists stand.
//!
//! A position is another entry's once the list has changed. So operations that were made for different
//! harnesses are compared by the entries that they change, not by their places.

use serde_json::Value;

use crate::document::Harness;
use crate::field_path::Segment;
use crate::patch::{PatchOp, PatchOpKind};

/// What operations do to the harness they are for: two are equal if they do the same.
///
/// An entry of a list is known by what it is, anything else by its path; what stood in a field that is
/// set makes no difference. An insertion is known by its position, which is between entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change(Vec<Step>);

/// What one operation does.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    op: PatchOpKind,
    way: Vec<Place>,
    value: Option<Value>,
}

/// One segment of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Key(String),
    Entry(Value),
    Position(usize),
}

impl Change {
    /// What `ops` do to `harness`, one after the other.
    pub fn of(harness: &Harness, ops: &[PatchOp]) -> Self {
        let mut document = harness.to_value();
        let steps = ops.iter().map(|op| {
            let step = Step {
                op: op.op,
                way: way(&document, op),
                value: op.value.clone(),
            };
            // One that can't be applied changes nothing for those after it.
            let _ = op.apply(&mut document);
            step
        });
        Self(steps.collect())
    }
}

fn way(document: &Value, op: &PatchOp) -> Vec<Place> {
    let segments = op.path.segments();
    let last = segments.len().saturating_sub(1);
    let mut found = Some(document);
    let places = segments.iter().enumerate().map(|(depth, segment)| {
        found = found.and_then(|value| match segment {
            Segment::Key(key) => value.get(key),
            Segment::Index(index) => value.get(*index),
        });
        let is_gap = op.op == PatchOpKind::Insert && depth == last;
        match (segment, found) {
            (Segment::Key(key), _) => Place::Key(key.clone()),
            (Segment::Index(_), Some(entry)) if !is_gap => Place::Entry(entry.clone()),
            (Segment::Index(index), _) => Place::Position(*index),
        }
    });
    places.collect()
}
