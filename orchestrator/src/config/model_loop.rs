//! The section `model_loop`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SftConfig;

/// The loop over weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelLoopConfig {
    /// Whether weights are trained at all.
    pub is_enabled: bool,
    /// Evolve problems rolled out for trajectories in each round.
    pub gather_tasks: usize,
    /// Most rollouts of each: a problem that has given `max_per_task` is not rolled out again.
    pub samples: u32,
    /// Sampling temperature of these rollouts, the harness's own where left out. What a model
    /// already says at temperature 0 teaches it little; verified answers it finds by sampling do.
    pub temperature: Option<f64>,
    /// With fewer trajectories of its own to learn from a round trains nothing.
    pub min_trajectories: usize,
    /// Most trajectories of one problem.
    pub max_per_task: usize,
    /// Whether right answers are left out that no result of a tool gave, where tools were called.
    pub drop_lucky: bool,
    /// What a trajectory counts whose problem hardly any rollout solves, where 1 is what one counts
    /// that every rollout solves; the share of failures decides between the two.
    pub hard_weight: f64,
    /// Share of the trajectories that are earlier rounds', on other problems than the round's own.
    pub replay: f64,
    /// Supervised fine-tuning.
    pub sft: SftConfig,
}

impl Default for ModelLoopConfig {
    fn default() -> Self {
        Self {
            is_enabled: true,
            gather_tasks: 256,
            samples: 1,
            temperature: None,
            min_trajectories: 8,
            max_per_task: 2,
            drop_lucky: true,
            hard_weight: 1.0,
            replay: 0.0,
            sft: SftConfig::default(),
        }
    }
}

impl ModelLoopConfig {
    /// The field that is out of range, and what would be right; those of `sft` are its own.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if let Some(temperature) = self.temperature
            && !(0.0..=2.0).contains(&temperature)
        {
            return Err(("model_loop.temperature", "must lie between 0 and 2"));
        }
        if self.is_enabled && self.gather_tasks == 0 {
            return Err((
                "model_loop.gather_tasks",
                "must be at least 1; is_enabled: false leaves the loop out",
            ));
        }
        if self.samples == 0 {
            return Err(("model_loop.samples", "must be at least 1"));
        }
        if self.max_per_task == 0 {
            return Err(("model_loop.max_per_task", "must be at least 1"));
        }
        if !(1.0..=100.0).contains(&self.hard_weight) {
            return Err(("model_loop.hard_weight", "must lie between 1 and 100"));
        }
        if !(0.0..1.0).contains(&self.replay) {
            return Err(("model_loop.replay", "must be at least 0 and below 1"));
        }
        Ok(())
    }
}
