//! The reply's own form: excerpts that are asked for, findings that are made.

use std::collections::{BTreeMap, BTreeSet};

use harness::{Harness, PatchOp, PatchOpKind, Segment};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::reading::{Mended, ReplyFault};
use crate::mining::slug;
use crate::record::{HarnessDim, RootCause, Severity};

/// Longest name of a finding.
const NAME_CHARS: usize = 48;

/// A whole reply.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Reply {
    /// Steps of rollouts to be shown before anything is said.
    pub excerpts: Vec<Excerpt>,
    /// Faults, each seen in one rollout or more.
    pub findings: Vec<Finding>,
}

impl Reply {
    /// Whether it only asks for excerpts. One that is empty says that there is nothing to report.
    pub fn is_question(&self) -> bool {
        self.findings.is_empty() && !self.excerpts.is_empty()
    }
}

/// Steps of one rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Excerpt {
    /// The rollout, as in `R3`.
    pub rollout: String,
    /// The first step.
    pub from: usize,
    /// The last step.
    pub to: usize,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Short name, words joined by `_`.
    pub name: String,
    /// Why the rollouts failed.
    pub root_cause: RootCause,
    /// The part of the harness that is at fault.
    pub harness_dim: HarnessDim,
    /// How surely the fault alone makes a rollout fail.
    pub severity: Severity,
    /// Where to see it.
    pub evidence: Vec<Quote>,
    /// Operations that may repair it.
    #[serde(default)]
    pub diff_suggestion: Vec<Operation>,
    /// Failed rollouts that the operations should mend, as in `R3`.
    #[serde(default)]
    pub fixes: Vec<String>,
    /// Solved rollouts that they put at risk, as in `S2`.
    #[serde(default)]
    pub risks: Vec<String>,
}

/// A quote and its place.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quote {
    /// The rollout, as in `R3`.
    pub rollout: String,
    /// Index of the step.
    pub step: usize,
    /// Text that stands in that step, exactly.
    pub quote: String,
}

/// An operation as the model writes it; the critic's own is read from it.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// What to do.
    pub op: PatchOpKind,
    /// The field of the harness.
    pub path: String,
    /// The new value; absent for `remove`.
    #[serde(default)]
    pub value: Option<Value>,
}

/// JSON Schema of a [`Reply`].
pub fn reply_schema() -> Value {
    schemars::schema_for!(Reply).to_value()
}

/// The same without what the instructions say anyway, for the instructions: descriptions, titles,
/// ranges and defaults. It takes a third of the room.
pub(crate) fn terse_schema() -> Value {
    terse(reply_schema(), false)
}

fn terse(schema: Value, are_names: bool) -> Value {
    const SAID: [&str; 6] = [
        "$schema",
        "title",
        "description",
        "format",
        "minimum",
        "default",
    ];
    match schema {
        Value::Object(map) => {
            let kept = map
                .into_iter()
                // A field of the reply may be called as a keyword is.
                .filter(|(key, _)| are_names || !SAID.contains(&key.as_str()))
                .map(|(key, value)| {
                    let are_names = !are_names && matches!(key.as_str(), "properties" | "$defs");
                    (key, terse(value, are_names))
                });
            let map = Map::from_iter(kept);
            match words_of(&map) {
                Some(words) => serde_json::json!({ "enum": words }),
                None => Value::Object(map),
            }
        }
        Value::Array(items) => {
            let items = items.into_iter();
            Value::Array(items.map(|item| terse(item, false)).collect())
        }
        other => other,
    }
}

/// The words of a choice that is written out as one schema for each.
fn words_of(schema: &Map<String, Value>) -> Option<Vec<Value>> {
    let choices = schema.get("oneOf").filter(|_| schema.len() == 1)?;
    let word = |choice: &Value| choice.get("const").cloned();
    choices.as_array()?.iter().map(word).collect()
}

/// Reads a reply from JSON. Words of an enumeration may differ in case and blanks.
///
/// # Errors
/// [`ReplyFault::Shape`] with the field.
pub fn reply(mut value: Value, mended: &mut BTreeSet<Mended>) -> Result<Reply, ReplyFault> {
    if let Value::Array(findings) = value {
        value = Value::Object(Map::from_iter([("findings".into(), findings.into())]));
    }
    let findings = value.get_mut("findings").and_then(Value::as_array_mut);
    for finding in findings.into_iter().flatten() {
        fold(finding, "root_cause", &words_of_causes(), mended);
        fold(finding, "harness_dim", &DIMS, mended);
        fold(finding, "severity", &SEVERITIES, mended);
        let ops = finding
            .get_mut("diff_suggestion")
            .and_then(Value::as_array_mut);
        for op in ops.into_iter().flatten() {
            fold(op, "op", &OPS, mended);
        }
    }
    harness::json::from_value(value).map_err(shape)
}

const DIMS: [&str; 6] = ["P", "T", "S", "Mid", "M", "none"];
const SEVERITIES: [&str; 3] = ["low", "medium", "high"];
const OPS: [&str; 4] = ["add", "replace", "insert", "remove"];

fn words_of_causes() -> Vec<&'static str> {
    RootCause::ALL.iter().map(|cause| cause.name()).collect()
}

/// Writes the word at `key` as it is written in `words`, if only case and blanks differ.
fn fold(value: &mut Value, key: &str, words: &[&str], mended: &mut BTreeSet<Mended>) {
    let Some(Value::String(word)) = value.get_mut(key) else {
        return;
    };
    if words.contains(&word.as_str()) {
        return;
    }
    let plain = |word: &str| word.trim().to_lowercase().replace([' ', '-'], "_");
    if let Some(known) = words.iter().find(|known| plain(known) == plain(word)) {
        *word = (*known).to_owned();
        mended.insert(Mended::Spelling);
    }
}

fn shape(error: harness::JsonError) -> ReplyFault {
    match error {
        harness::JsonError::Type { path, reason } => ReplyFault::Shape {
            field: path.to_string(),
            reason,
        },
        harness::JsonError::Syntax { reason, .. } => ReplyFault::Invalid { reason },
    }
}

/// Reads operations: one object, or a list of them.
///
/// A number or a truth value that was written as text, in the place of one that isn't text, is taken
/// for what it says. Whether the operations apply is another question, which `Patch::apply` answers.
///
/// # Errors
/// [`ReplyFault::Shape`] for an unknown operation or a path that is none.
pub fn operations(
    value: Value,
    harness: &Harness,
    mended: &mut BTreeSet<Mended>,
) -> Result<Vec<PatchOp>, ReplyFault> {
    let mut items = match value {
        Value::Array(items) => items,
        other => vec![other],
    };
    let mut ops = Vec::with_capacity(items.len());
    for item in &mut items {
        fold(item, "op", &OPS, mended);
        let operation: Operation = harness::json::from_value(item.take()).map_err(shape)?;
        ops.push(operation.read(harness, mended)?);
    }
    Ok(ops)
}

impl Operation {
    /// The operation with its path read and its value in the type of the field.
    ///
    /// # Errors
    /// [`ReplyFault::Shape`] for a path that is none.
    pub fn read(
        self,
        harness: &Harness,
        mended: &mut BTreeSet<Mended>,
    ) -> Result<PatchOp, ReplyFault> {
        let path: harness::FieldPath = self.path.trim().parse().map_err(|error| {
            let error: harness::ParseFieldPathError = error;
            ReplyFault::Shape {
                field: format!("path {:?}", self.path),
                reason: error.to_string(),
            }
        })?;
        let mut value = self.value;
        let document = harness.to_value();
        let old = path
            .segments()
            .iter()
            .try_fold(&document, |at, segment| match segment {
                Segment::Key(key) => at.get(key),
                Segment::Index(index) => at.get(index),
            });
        if let (Some(Value::String(text)), Some(Value::Number(_) | Value::Bool(_))) = (&value, old)
            && let Ok(said @ (Value::Number(_) | Value::Bool(_))) =
                serde_json::from_str(text.trim())
        {
            value = Some(said);
            mended.insert(Mended::Type);
        }
        Ok(PatchOp {
            op: self.op,
            path,
            value: value.filter(|_| self.op != PatchOpKind::Remove),
        })
    }
}

impl Finding {
    /// The name in letters, digits and `_`; of one that has none, the root cause.
    pub fn slug(&self) -> String {
        let slug = slug(&self.name, "_", NAME_CHARS);
        if slug.is_empty() {
            self.root_cause.name().to_owned()
        } else {
            slug
        }
    }
}

/// Counts of what was mended.
pub type MendedCounts = BTreeMap<Mended, u32>;

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use harness::{Dimension, Patch};
    use serde_json::json;

    use super::*;
    use crate::testing::start;

    fn one(value: Value) -> Result<(PatchOp, BTreeSet<Mended>), ReplyFault> {
        let mut mended = BTreeSet::new();
        let mut ops = operations(value, &start(), &mut mended)?;
        Ok((ops.remove(0), mended))
    }

    fn applies(op: PatchOp) -> Result<(), String> {
        let patch = Patch {
            dimension: Dimension::of(&op.path).ok_or("no dimension")?,
            ops: vec![op],
            summary: String::new(),
        };
        let harness = start();
        let result = patch.apply(&harness).map(drop);
        assert_eq!(harness, start());
        result.map_err(|error| error.to_string())
    }

    #[test]
    fn words_of_operations_may_differ_in_case_and_blanks_alone() {
        for word in ["Replace", "REPLACE ", "replace"] {
            let (op, mended) =
                one(json!({"op": word, "path": "prompts.system", "value": "x"})).unwrap();
            assert_eq!(op.op, PatchOpKind::Replace);
            assert_eq!(mended.is_empty(), word == "replace");
        }
        let fault = one(json!({"op": "rewrite", "path": "prompts.system", "value": "x"}));
        assert!(matches!(fault, Err(ReplyFault::Shape { field, .. }) if field == "op"));
    }

    #[test]
    fn numbers_written_as_text_are_numbers_where_the_field_is_one() {
        let turns = "middleware.protocol.max_turns";
        let (op, mended) = one(json!({"op": "replace", "path": turns, "value": "8"})).unwrap();
        assert_eq!(op.value, Some(json!(8)));
        assert_eq!(mended, BTreeSet::from([Mended::Type]));
        assert_eq!(applies(op), Ok(()));
        // A text that looks like a number stays a text where the field is one.
        let (op, mended) =
            one(json!({"op": "replace", "path": "prompts.system", "value": "8"})).unwrap();
        assert_eq!((op.value, mended.len()), (Some(json!("8")), 0));
        let (op, _) = one(json!({"op": "replace", "path": turns, "value": "eight"})).unwrap();
        assert!(applies(op).unwrap_err().contains(turns));
        let (op, _) = one(json!({"op": "replace", "path": turns, "value": -1})).unwrap();
        assert!(applies(op).unwrap_err().contains(turns));
    }

    #[test]
    fn paths_outside_the_document_change_nothing() {
        for path in [
            "../../etc",
            "limits.max_turns",
            "model.path",
            "prompts.nothing",
        ] {
            match one(json!({"op": "replace", "path": path, "value": 1})) {
                Ok((op, _)) => assert!(applies(op).is_err(), "{path}"),
                Err(fault) => assert!(fault.to_string().contains(path), "{fault}"),
            }
        }
    }

    #[test]
    fn a_reply_is_read_with_its_words_folded() {
        let mut mended = BTreeSet::new();
        let value = json!({"findings": [{
            "name": "Old answer, in a note!", "root_cause": "Memory Overflow", "harness_dim": "m",
            "severity": "HIGH", "evidence": [{"rollout": "R1", "step": 2, "quote": "17"}],
            "diff_suggestion": [{"op": "Remove", "path": "memory.entries[0]"}]}]});
        let reply = reply(value, &mut mended).unwrap();
        let finding = &reply.findings[0];
        assert_eq!(finding.root_cause, RootCause::MemoryOverflow);
        assert_eq!(finding.harness_dim, HarnessDim::M);
        assert_eq!(finding.slug(), "old_answer_in_a_note");
        assert_eq!(mended, BTreeSet::from([Mended::Spelling]));
    }

    #[test]
    fn a_reply_of_another_shape_names_the_field() {
        let fault = |value| reply(value, &mut BTreeSet::new()).unwrap_err().to_string();
        assert!(fault(json!({"finding": []})).contains("finding"));
        let invented = json!([{"name": "x", "root_cause": "bad_luck", "harness_dim": "P",
            "severity": "low", "evidence": []}]);
        assert!(fault(invented).contains("findings[0].root_cause"));
    }

    #[test]
    fn the_schema_names_every_cause_and_operation() {
        let schema = reply_schema().to_string();
        for word in words_of_causes().iter().chain(&OPS).chain(&DIMS) {
            assert!(schema.contains(&format!("\"{word}\"")), "{word}");
        }
    }

    #[test]
    fn the_terse_schema_has_every_field_and_word_and_says_no_more() {
        let (whole, terse) = (reply_schema(), terse_schema());
        let parts = terse["$defs"].as_object().unwrap();
        assert_eq!(parts.len(), whole["$defs"].as_object().unwrap().len());
        for (name, part) in parts {
            let fields = |schema: &Value| {
                let properties = schema.get("properties").and_then(Value::as_object);
                properties.map(|fields| fields.keys().cloned().collect::<Vec<String>>())
            };
            let known = &whole["$defs"][name];
            assert_eq!(fields(part), fields(known), "{name}");
            assert_eq!(part.get("required"), known.get("required"), "{name}");
        }
        let text = terse.to_string();
        for word in words_of_causes().iter().chain(&OPS).chain(&DIMS) {
            assert!(text.contains(&format!("\"{word}\"")), "{word}");
        }
        assert!(!text.contains("description"), "{text}");
        assert!(2 * text.len() < whole.to_string().len(), "{text}");
    }
}
