//! The run's configuration: what a person writes, checked and resolved.
//!
//! Precedence, lowest first: the defaults below, the file, `--set path=value`, the flags that name a
//! field (`--rounds`). Relative paths are relative to the file they stand in.

mod checks;
mod critic;
mod faults;
mod gate;
mod loaded;
mod model_loop;
mod objective;
mod overrides;
mod policy;
mod prices;
mod retention;
mod sft;
mod tasks;

use std::path::PathBuf;

use crate::arithmetic::ArithmeticKind;
use crate::builtin;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::critic::{CriticConfig, LlmCriticConfig};
pub use faults::FaultConfig;
pub use gate::{GateConfig, GateMode};
pub use loaded::Loaded;
pub use model_loop::ModelLoopConfig;
pub use objective::{Objective, SpendLimits};
pub use policy::{AdapterDelivery, PolicyConfig};
pub use prices::PriceConfig;
pub use retention::SuiteConfig;
pub use sft::{DeviceKind, MethodKind, RecomputeKind, SftConfig, StartKind};
pub use tasks::{SplitConfig, TaskConfig};

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No such file, here, in `configs/` or built in.
    #[error("no configuration {name}: looked for {}, and the built-in ones are {}", looked.join(", "), builtin::CONFIGS.map(|c| c.0).join(", "))]
    NotFound {
        /// What was asked for.
        name: String,
        /// Where it was looked for.
        looked: Vec<String>,
    },
    /// The file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not a configuration.
    #[error("{path}:{line}:{column}: {reason}")]
    Syntax {
        /// The file.
        path: String,
        /// Line, from 1.
        line: u64,
        /// Column, from 1.
        column: u64,
        /// What is wrong there.
        reason: String,
    },
    /// An override on the command line does not fit.
    #[error("--set {setting}: {reason}")]
    Override {
        /// The override.
        setting: String,
        /// What is wrong.
        reason: String,
    },
    /// A value is out of range or two values don't fit together.
    #[error("{path}: {field}: {reason}")]
    Invalid {
        /// The file.
        path: String,
        /// The field.
        field: &'static str,
        /// What is wrong and what would be right.
        reason: String,
    },
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name, seed and length of the run.
    pub run: RunConfig,
    /// θ: where the base model is.
    pub model: ModelSource,
    /// Who answers during rollouts: the local engine or a server.
    #[serde(default)]
    pub policy: PolicyConfig,
    /// The problems and how they are split.
    pub tasks: TaskConfig,
    /// The starting harness: a folder, or a built-in one (`naive`, `reasoning`).
    pub harness: String,
    /// What one problem may cost, equal for everything that is compared; and what the run may.
    pub budget: BudgetConfig,
    /// What the run is to reach: accuracy, or accuracy under a limit.
    #[serde(default)]
    pub objective: Objective,
    /// What the policy's tokens cost; none where money is of no interest.
    #[serde(default)]
    pub prices: Option<PriceConfig>,
    /// What happens when the policy or the sandbox fails.
    #[serde(default)]
    pub faults: FaultConfig,
    /// How patches and weights are accepted.
    #[serde(default)]
    pub gate: GateConfig,
    /// Other sets of problems that must not fall; a round that loses too much on one is taken back.
    #[serde(default)]
    pub retention: Vec<SuiteConfig>,
    /// Who says why rollouts fail.
    #[serde(default)]
    pub critic: CriticConfig,
    /// The loop over harness patches.
    #[serde(default)]
    pub harness_loop: HarnessLoopConfig,
    /// The loop over weights.
    #[serde(default)]
    pub model_loop: ModelLoopConfig,
}

/// Name, seed and length of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Name; the run's directory is `<name>-seed<seed>`.
    pub name: String,
    /// Everything random in the run follows from it.
    #[serde(default)]
    pub seed: u64,
    /// Rounds of harness loop and model loop.
    #[serde(default = "two")]
    pub rounds: u32,
    /// When old and new weights are scored under old and new harness.
    #[serde(default)]
    pub matrix: MatrixKind,
}

/// When the 2×2 of old and new weights under old and new harness is measured on the sealed test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MatrixKind {
    /// After the last round.
    Last,
    /// After each round.
    #[default]
    EachRound,
}

fn two() -> u32 {
    2
}

/// Where the base model is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelSource {
    /// A `.gguf` file, a Hugging Face directory, or a known name (`SmolLM2-135M-Instruct`).
    pub path: String,
    /// What matrix products on the CPU are computed in, for rollouts and for training.
    #[serde(default)]
    pub arithmetic: ArithmeticKind,
}

/// What one problem may cost, and the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetConfig {
    /// Generated tokens over all turns.
    pub tokens_per_problem: u64,
    /// Seconds over all turns.
    pub seconds_per_problem: u64,
    /// Seconds for the whole run, rests not counted; none means no limit.
    #[serde(default)]
    pub run_seconds: Option<u64>,
    /// Rollouts of the whole run; none means no limit.
    #[serde(default)]
    pub run_rollouts: Option<u64>,
    /// Prompt and generated tokens of the whole run, those of the critic's model included; none means no
    /// limit.
    #[serde(default)]
    pub run_tokens: Option<u64>,
    /// Money for the whole run, by `prices`; none means no limit.
    #[serde(default)]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub run_cost: Option<f64>,
}

/// The loop over harness patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HarnessLoopConfig {
    /// Diagnose-propose-decide cycles of one round.
    pub iterations: u32,
    /// Evolve problems rolled out for diagnosis in each cycle.
    pub diagnose_tasks: usize,
    /// Candidate patches measured in each cycle.
    pub candidates: usize,
}

impl Default for HarnessLoopConfig {
    fn default() -> Self {
        Self {
            iterations: 4,
            diagnose_tasks: 48,
            candidates: 4,
        }
    }
}

/// JSON Schema of the configuration, for editors.
pub fn json_schema() -> Value {
    schemars::schema_for!(Config).to_value()
}
