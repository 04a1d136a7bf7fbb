//! The section `tasks`.

use rollout::task::Columns;
use rollout::verifier::VerifierKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The problems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskConfig {
    /// JSONL file, relative to the configuration, or a built-in name (`arithmetic`).
    pub path: String,
    /// More files to read after it.
    #[serde(default)]
    pub also: Vec<String>,
    /// Names of the columns.
    #[serde(default)]
    #[schemars(with = "Value")]
    pub columns: Columns,
    /// How answers are compared.
    #[schemars(with = "Value")]
    pub verifier: VerifierKind,
    /// Sizes of the disjoint sets.
    pub splits: SplitConfig,
}

impl TaskConfig {
    /// The field that is out of range, and what would be right.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let SplitConfig {
            evolve, gate, test, ..
        } = self.splits;
        if evolve == 0 || gate < 4 || test == 0 {
            return Err((
                "tasks.splits",
                "evolve and test need at least 1 problem, gate at least 4",
            ));
        }
        if let VerifierKind::Numeric { tolerance } = self.verifier
            && !(0.0..1.0).contains(&tolerance)
        {
            return Err((
                "tasks.verifier",
                "numeric needs a tolerance of at least 0 and below 1",
            ));
        }
        if let VerifierKind::Code(limits) = self.verifier
            && (limits.timeout_ms == 0 || limits.memory_mib < 64)
        {
            return Err((
                "tasks.verifier",
                "code needs a timeout_ms of at least 1 and a memory_mib of at least 64",
            ));
        }
        Ok(())
    }
}

/// Sizes of the disjoint sets; problems beyond their sum are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitConfig {
    /// Problems that critic and trainer see.
    pub evolve: usize,
    /// Problems the gate decides on; neither critic nor trainer reads them.
    pub gate: usize,
    /// Problems scored for reports only.
    pub test: usize,
    /// With fewer problems than the sum, shrink all three in proportion instead of refusing.
    #[serde(default)]
    pub shrink: bool,
}

impl SplitConfig {
    /// Sum of the three sizes.
    pub fn total(&self) -> usize {
        self.evolve
            .saturating_add(self.gate)
            .saturating_add(self.test)
    }

    /// The sizes for `available` problems: these, or smaller ones in the same proportion if that is
    /// wanted and leaves every set enough.
    pub fn fitted(self, available: usize) -> Self {
        if !self.shrink || self.total() <= available {
            return self;
        }
        let share = available as f64 / self.total() as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a size, rounded down"
        )]
        let shrunk = |size: usize| (size as f64 * share) as usize;
        let smaller = Self {
            evolve: shrunk(self.evolve),
            gate: shrunk(self.gate),
            test: shrunk(self.test),
            ..self
        };
        let is_enough = smaller.evolve > 0 && smaller.gate >= 4 && smaller.test > 0;
        if is_enough { smaller } else { self }
    }
}
