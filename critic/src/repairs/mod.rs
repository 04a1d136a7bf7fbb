//! Repairs: small functions that write patch operations for the harness at hand.
//!
//! A repair answers `None` where it has nothing to do: what it sets is in force already, or the
//! harness lacks what it changes. Whether it helps is not decided here; the gate measures that.

pub(crate) mod hooks;
pub(crate) mod memory;
pub(crate) mod middleware;
pub(crate) mod prompts;
pub(crate) mod skills;
pub(crate) mod tools;

use harness::{Dimension, FieldPath, Harness, Patch, PatchOp};
use serde::Serialize;
use serde_json::Value;

/// One way to repair a fault.
#[derive(Clone, Copy, Debug)]
pub struct Repair {
    /// Short name.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    pub(crate) ops: fn(&Harness) -> Option<Vec<PatchOp>>,
}

impl Repair {
    /// The repair as a patch in `dimension`; `None` if it doesn't apply to `harness` or changes
    /// nothing there.
    pub fn patch(&self, harness: &Harness, dimension: Dimension) -> Option<Patch> {
        checked_patch(harness, dimension, (self.ops)(harness)?, self.summary)
    }
}

/// A patch of `ops`, if it applies cleanly inside `dimension` and changes the harness.
pub(crate) fn checked_patch(
    harness: &Harness,
    dimension: Dimension,
    ops: Vec<PatchOp>,
    summary: &str,
) -> Option<Patch> {
    let patch = Patch {
        dimension,
        ops,
        summary: summary.to_owned(),
    };
    let patched = patch.apply(harness).ok()?;
    (patched != *harness).then_some(patch)
}

/// A path that is written in this crate.
pub(crate) fn path(text: &str) -> FieldPath {
    text.parse().expect("a path that is written in this crate")
}

pub(crate) fn value(of: impl Serialize) -> Value {
    serde_json::to_value(of).expect("plain data with string keys")
}

/// Replaces `field` unless it holds `new` already.
fn set<T: Serialize + PartialEq>(field: &str, old: &T, new: T) -> Option<Vec<PatchOp>> {
    (*old != new).then(|| replace(field, new))
}

fn replace(field: &str, new: impl Serialize) -> Vec<PatchOp> {
    vec![PatchOp::replace(path(field), value(new))]
}

/// The operations, if there are any.
fn if_any(ops: impl IntoIterator<Item = PatchOp>) -> Option<Vec<PatchOp>> {
    let ops: Vec<PatchOp> = ops.into_iter().collect();
    (!ops.is_empty()).then_some(ops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_raises_a_limit_never_lowers_one() {
        let mut generous = harness::shipped::REASONING
            .read()
            .expect("the shipped harness");
        let tool = generous.tools.values_mut().next().expect("a tool");
        tool.limits.memory_mib = 4096;
        tool.limits.output_chars = 20_000;
        for (repair, dimension) in [
            (middleware::TURNS_UP, Dimension::Mid),
            (middleware::TOKENS_UP, Dimension::Mid),
            (middleware::CONTEXT_UP, Dimension::Mid),
            (tools::TIMEOUT_UP, Dimension::T),
            (tools::MEMORY_UP, Dimension::T),
            (tools::OUTPUT_UP, Dimension::T),
        ] {
            assert_eq!(repair.patch(&generous, dimension), None, "{}", repair.name);
        }
    }
}
