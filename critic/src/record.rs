//! The critic's record of one fault: `<root_cause, harness_dim, severity, evidence,
//! diff_suggestion>` of Co-Harness (arXiv:2607.22688), and the rule that found it.

use std::fmt;

use harness::{Dimension, PatchOp};
use rollout::{RolloutId, Trajectory};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One fault of one trajectory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Why the rollout failed.
    pub root_cause: RootCause,
    /// The part of the harness that is at fault.
    pub harness_dim: HarnessDim,
    /// How surely the fault alone makes a rollout fail.
    pub severity: Severity,
    /// Where to see it.
    pub evidence: Evidence,
    /// Operations that may repair it; empty if there is nothing to suggest.
    pub diff_suggestion: Vec<PatchOp>,
    /// Name of the rule that found it.
    pub rule: String,
}

impl Record {
    /// The record's content id.
    pub fn id(&self) -> RecordId {
        let value = serde_json::to_value(self).expect("a record is plain data with string keys");
        let hash = blake3::hash(harness::canonical_json(&value).as_bytes());
        RecordId(hash.to_hex()[..16].to_owned())
    }
}

/// Content id of a [`Record`]: 16 hexadecimal digits.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct RecordId(String);

impl RecordId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The failure taxonomy of the paper. Each cause belongs to one dimension.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RootCause {
    /// The prompts leave open what to do.
    PromptAmbiguity,
    /// A tool's description, schema or limits mislead.
    ToolSchemaError,
    /// Know-how is missing.
    SkillMissing,
    /// The agent loop doesn't fit the model.
    MiddlewareMismatch,
    /// Memory is full, or holds what it shouldn't.
    MemoryOverflow,
    /// The model's own limit. Feeds the training pool, never a patch.
    AgentError,
}

impl RootCause {
    /// All causes, in the order of the dimensions.
    pub const ALL: [RootCause; 6] = [
        RootCause::PromptAmbiguity,
        RootCause::ToolSchemaError,
        RootCause::SkillMissing,
        RootCause::MiddlewareMismatch,
        RootCause::MemoryOverflow,
        RootCause::AgentError,
    ];

    /// The dimension that the cause belongs to.
    pub fn harness_dim(self) -> HarnessDim {
        match self {
            RootCause::PromptAmbiguity => HarnessDim::P,
            RootCause::ToolSchemaError => HarnessDim::T,
            RootCause::SkillMissing => HarnessDim::S,
            RootCause::MiddlewareMismatch => HarnessDim::Mid,
            RootCause::MemoryOverflow => HarnessDim::M,
            RootCause::AgentError => HarnessDim::None,
        }
    }

    /// The cause as serde writes it.
    pub fn name(self) -> &'static str {
        match self {
            RootCause::PromptAmbiguity => "prompt_ambiguity",
            RootCause::ToolSchemaError => "tool_schema_error",
            RootCause::SkillMissing => "skill_missing",
            RootCause::MiddlewareMismatch => "middleware_mismatch",
            RootCause::MemoryOverflow => "memory_overflow",
            RootCause::AgentError => "agent_error",
        }
    }
}

impl fmt::Display for RootCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A dimension of the harness, or none.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum HarnessDim {
    /// Prompts.
    P,
    /// Tools.
    T,
    /// Skills.
    S,
    /// Middleware.
    Mid,
    /// Memory.
    M,
    /// No part of the harness.
    #[serde(rename = "none")]
    None,
}

impl HarnessDim {
    /// The dimension; `None` for [`HarnessDim::None`].
    pub fn dimension(self) -> Option<Dimension> {
        match self {
            HarnessDim::P => Some(Dimension::P),
            HarnessDim::T => Some(Dimension::T),
            HarnessDim::S => Some(Dimension::S),
            HarnessDim::Mid => Some(Dimension::Mid),
            HarnessDim::M => Some(Dimension::M),
            HarnessDim::None => None,
        }
    }
}

impl fmt::Display for HarnessDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dimension() {
            Some(dimension) => dimension.fmt(f),
            None => f.write_str("none"),
        }
    }
}

/// How surely a fault alone makes a rollout fail.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It may have contributed.
    Low,
    /// It probably contributed.
    Medium,
    /// The rollout could hardly succeed with it.
    High,
}

impl Severity {
    /// Weight in the order of clusters: 1, 2 or 3.
    pub fn weight(self) -> u32 {
        match self {
            Severity::Low => 1,
            Severity::Medium => 2,
            Severity::High => 3,
        }
    }
}

/// Where a fault can be seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// The trajectory.
    #[schemars(with = "String")]
    pub trajectory: RolloutId,
    /// Index of the step in the trajectory, from 0.
    pub step: usize,
    /// Text that stands in that step, exactly.
    pub quote: String,
}

/// Why a record's evidence doesn't hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvidenceError {
    /// The record is about another trajectory.
    #[error("the evidence names another trajectory")]
    OtherTrajectory,
    /// There is no such step.
    #[error("there is no step {step}; the trajectory has {count}")]
    NoStep {
        /// The index that was named.
        step: usize,
        /// Steps of the trajectory.
        count: usize,
    },
    /// An empty quote stands in every text and shows nothing.
    #[error("the quote is empty")]
    EmptyQuote,
    /// The quote isn't in the step.
    #[error("the quote doesn't stand in step {step}")]
    NotInStep {
        /// The step that was named.
        step: usize,
    },
}

/// Checks that the quote stands in the step that the record names.
///
/// # Errors
/// [`EvidenceError`]; such a record must be dropped.
pub fn check_evidence(record: &Record, trajectory: &Trajectory) -> Result<(), EvidenceError> {
    let Evidence { step, quote, .. } = &record.evidence;
    let step = *step;
    if record.evidence.trajectory != trajectory.id {
        return Err(EvidenceError::OtherTrajectory);
    }
    let count = trajectory.steps.len();
    let text = match trajectory.steps.get(step) {
        Some(found) => &found.text,
        None => return Err(EvidenceError::NoStep { step, count }),
    };
    if quote.trim().is_empty() {
        return Err(EvidenceError::EmptyQuote);
    }
    if text.contains(quote.as_str()) {
        Ok(())
    } else {
        Err(EvidenceError::NotInStep { step })
    }
}

/// JSON Schema of a [`Record`].
pub fn record_schema() -> Value {
    schemars::schema_for!(Record).to_value()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use super::*;
    use crate::testing::{Build, failed};

    fn record(step: usize, quote: &str) -> Record {
        Record {
            root_cause: RootCause::AgentError,
            harness_dim: HarnessDim::None,
            severity: Severity::Low,
            evidence: Evidence {
                trajectory: failed(1).id,
                step,
                quote: quote.to_owned(),
            },
            diff_suggestion: Vec::new(),
            rule: "wrong_answer".to_owned(),
        }
    }

    #[test]
    fn serde_names_are_the_papers() {
        let value = serde_json::to_value(record(2, "So 12.")).unwrap();
        assert_eq!(value["root_cause"], "agent_error");
        assert_eq!(value["harness_dim"], "none");
        assert_eq!(value["severity"], "low");
        assert_eq!(value["evidence"]["step"], 2);
        assert_eq!(value["diff_suggestion"], serde_json::json!([]));
        assert_eq!(
            serde_json::from_value::<Record>(value).unwrap(),
            record(2, "So 12.")
        );
        for cause in RootCause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.name());
        }
    }

    #[test]
    fn schema_lists_every_field() {
        let schema = record_schema();
        let required = schema["required"].as_array().unwrap();
        assert_eq!(required.len(), 6);
        assert_eq!(schema["additionalProperties"], false);
    }

    #[test]
    fn evidence_must_be_there() {
        let trajectory = failed(1).reply("So 12.", None);
        assert_eq!(check_evidence(&record(2, "12"), &trajectory), Ok(()));
        let wrong_step = EvidenceError::NotInStep { step: 1 };
        assert_eq!(
            check_evidence(&record(1, "12"), &trajectory),
            Err(wrong_step)
        );
        let no_step = EvidenceError::NoStep { step: 9, count: 3 };
        assert_eq!(check_evidence(&record(9, "12"), &trajectory), Err(no_step));
        let empty = EvidenceError::EmptyQuote;
        assert_eq!(check_evidence(&record(2, " "), &trajectory), Err(empty));
        let other = EvidenceError::OtherTrajectory;
        assert_eq!(check_evidence(&record(2, "12"), &failed(2)), Err(other));
    }

    #[test]
    fn ids_follow_content() {
        assert_eq!(record(1, "a").id(), record(1, "a").id());
        assert_ne!(record(1, "a").id(), record(1, "b").id());
        assert_eq!(record(1, "a").id().as_str().len(), 16);
    }
}
