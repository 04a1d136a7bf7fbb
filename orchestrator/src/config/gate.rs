//! The section `gate`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What has to be measured before a patch or new weights are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateMode {
    /// δ_in > 0 and δ_out ≥ 0 on fresh paired rollouts, once.
    Paper,
    /// The same, and again on other tasks with other seeds.
    Confirmed,
    /// The same, and an e-value for benefit that holds against many looks and many candidates.
    #[default]
    Sequential,
}

impl GateMode {
    /// As written in the configuration and in trailers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Confirmed => "confirmed",
            Self::Sequential => "sequential",
        }
    }
}

/// How patches and weights are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GateConfig {
    /// What has to be measured.
    pub mode: GateMode,
    /// Gate problems of each side (failed before, solved before) in one stage or look.
    pub tasks: usize,
    /// Mode sequential: pairs of each side at most, as samples of each of `tasks` problems.
    pub max_samples: usize,
    /// Mode sequential: expected share of false acceptances among all of the run, at most. The same for
    /// removals, in every mode.
    pub false_discovery_rate: f64,
    /// Rounds after which the accepted patches are tried without, one by one; 0 means never.
    pub retest_every: u32,
    /// Points (hundredths of the gate problems) that a removal must be shown not to lose.
    pub retest_margin_points: f64,
    /// Rounds after which the head is compared with the start of the run and with the best so far, and gives
    /// way to what is shown to be better; 0 means never.
    pub reference_every: u32,
}

impl Default for GateConfig {
    fn default() -> Self {
        Self {
            mode: GateMode::default(),
            tasks: 30,
            max_samples: 16,
            false_discovery_rate: 0.05,
            retest_every: 2,
            retest_margin_points: 5.0,
            reference_every: 2,
        }
    }
}

impl GateConfig {
    /// The field that is out of range, and what would be right.
    ///
    /// # Errors
    /// When there is one.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if !(2..=10_000).contains(&self.tasks) {
            return Err(("gate.tasks", "must lie between 2 and 10000"));
        }
        if !(1..=1_000).contains(&self.max_samples) {
            return Err(("gate.max_samples", "must lie between 1 and 1000"));
        }
        if !(self.false_discovery_rate > 0.0 && self.false_discovery_rate < 1.0) {
            return Err((
                "gate.false_discovery_rate",
                "must lie between 0 and 1, both excluded",
            ));
        }
        if !(self.retest_margin_points > 0.0 && self.retest_margin_points <= 50.0) {
            return Err((
                "gate.retest_margin_points",
                "must lie between 0 and 50, 0 excluded",
            ));
        }
        Ok(())
    }
}
