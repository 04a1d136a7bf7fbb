//! The run's configuration: what a person writes, checked and resolved.
//!
//! Precedence, lowest first: the defaults below, the file, `--set path=value`, the flags that name a
//! field (`--rounds`). Relative paths are relative to the file they stand in.

mod critic;
mod faults;
mod gate;
mod objective;
mod prices;
mod retention;
mod sft;

use std::path::{Path, PathBuf};

use crate::arithmetic::ArithmeticKind;
use crate::builtin;
use rollout::task::Columns;
use rollout::verifier::VerifierKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::critic::{CriticConfig, LlmCriticConfig};
pub use faults::FaultConfig;
pub use gate::{GateConfig, GateMode};
pub use objective::{Objective, SpendLimits};
pub use prices::PriceConfig;
pub use retention::SuiteConfig;
pub use sft::{DeviceKind, MethodKind, SftConfig, StartKind};

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
    /// The starting harness: a folder, or `naive`.
    pub harness: String,
    /// What one problem may cost; equal for everything that is compared.
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

/// Who answers during rollouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PolicyConfig {
    /// The base model and what is trained of it, in this process.
    Local {
        /// Memory for the keys and values of all conversations, in MiB: those with the base model and
        /// its adapters together, and those with each full set of trained weights. What is no longer in
        /// use stays there for later prompts until room is needed; a conversation can't be longer than
        /// it allows.
        #[serde(default = "cache_mib")]
        #[schemars(range(min = 64, max = 1_048_576))]
        cache_mib: usize,
    },
    /// An OpenAI-compatible server (vLLM, SGLang, llama.cpp, mistral.rs).
    Openai {
        /// Up to and including `/v1`.
        base_url: String,
        /// Model name the server knows.
        model: String,
        /// Environment variable with the key, where the server wants one.
        #[serde(default)]
        api_key_env: Option<String>,
        /// How new weights reach the server.
        #[serde(default)]
        adapters: AdapterDelivery,
        /// Whether replies are streamed, so that a server that hangs is noticed early.
        #[serde(default)]
        stream: bool,
        /// Whether token ids are asked for (`return_token_ids`, as vLLM has it).
        #[serde(default)]
        token_ids: bool,
        /// Most requests open at once; further rollouts wait.
        #[serde(default = "in_flight")]
        #[schemars(range(min = 1, max = 16384))]
        in_flight: usize,
    },
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self::Local {
            cache_mib: cache_mib(),
        }
    }
}

fn cache_mib() -> usize {
    1536
}

fn in_flight() -> usize {
    256
}

/// How trained adapters reach a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdapterDelivery {
    /// They don't: the model loop is left out.
    #[default]
    None,
    /// `POST /v1/load_lora_adapter`, as vLLM serves it with runtime LoRA updating on.
    Vllm,
}

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

/// What one problem may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetConfig {
    /// Generated tokens over all turns.
    pub tokens_per_problem: u64,
    /// Seconds over all turns.
    pub seconds_per_problem: u64,
    /// Seconds for the whole run, rests not counted; none means no limit.
    #[serde(default)]
    pub run_seconds: Option<u64>,
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

/// A configuration and where it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// The file, as shown in messages.
    pub origin: String,
    /// Directory that relative paths start from; none for a built-in file.
    pub base: Option<PathBuf>,
}

impl Loaded {
    /// Find and read a configuration, apply `--set` overrides and `--rounds`, and check it.
    ///
    /// # Errors
    /// When there is no such file, or a field is unknown, missing, or out of range.
    pub fn read(
        name: &str,
        overrides: &[String],
        rounds: Option<u32>,
    ) -> Result<Self, ConfigError> {
        let (text, origin, base) = find(name)?;
        let mut config: Config =
            harness::yaml::from_str(&text).map_err(|e| ConfigError::Syntax {
                path: origin.clone(),
                line: e.line,
                column: e.column,
                reason: e.reason,
            })?;
        for setting in overrides {
            config = apply(&config, setting)?;
        }
        if let Some(rounds) = rounds {
            config.run.rounds = rounds;
        }
        let loaded = Self {
            config,
            origin,
            base,
        };
        loaded.check()?;
        Ok(loaded)
    }

    /// A path of the configuration, resolved.
    pub fn resolve(&self, path: &str) -> PathBuf {
        match &self.base {
            Some(base) if Path::new(path).is_relative() => base.join(path),
            _ => PathBuf::from(path),
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let Config {
            run,
            tasks,
            budget,
            gate,
            critic,
            harness_loop,
            model_loop,
            ..
        } = &self.config;
        let fail = |field: &'static str, reason: &str| {
            Err(ConfigError::Invalid {
                path: self.origin.clone(),
                field,
                reason: reason.into(),
            })
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_odd =
            run.name.starts_with(['.', '-']) || run.name.contains("..") || run.name.is_empty();
        if is_odd || !run.name.chars().all(is_name) {
            return fail(
                "run.name",
                "a letter or digit, then letters, digits, '-', '_' and single '.' make a name",
            );
        }
        if run.rounds == 0 {
            return fail("run.rounds", "at least 1 round is needed");
        }
        if let PolicyConfig::Local { cache_mib } = &self.config.policy
            && !(64..=1_048_576).contains(cache_mib)
        {
            return fail(
                "policy.cache_mib",
                "keys and values need 64 MiB to 1 TiB (1048576)",
            );
        }
        if let PolicyConfig::Openai { in_flight, .. } = &self.config.policy
            && !(1..=16_384).contains(in_flight)
        {
            return fail(
                "policy.in_flight",
                "1 to 16384 requests can be open at once",
            );
        }
        if tasks.splits.evolve == 0 || tasks.splits.gate < 4 || tasks.splits.test == 0 {
            return fail(
                "tasks.splits",
                "evolve and test need at least 1 problem, gate at least 4",
            );
        }
        if let VerifierKind::Code(limits) = tasks.verifier
            && (limits.timeout_ms == 0 || limits.memory_mib < 64)
        {
            return fail(
                "tasks.verifier",
                "code needs a timeout_ms of at least 1 and a memory_mib of at least 64",
            );
        }
        if budget.tokens_per_problem == 0 || budget.seconds_per_problem == 0 {
            return fail("budget", "a problem needs at least 1 token and 1 second");
        }
        if let Err((field, reason)) = self.config.faults.check() {
            return fail(field, reason);
        }
        let priced = self.config.prices.as_ref().map(PriceConfig::check);
        if let Some(Err((field, reason))) = priced {
            return fail(field, reason);
        }
        if let Err(reason) = self.config.objective.check(self.config.prices.as_ref()) {
            return fail("objective", reason);
        }
        let sections = gate.check().and_then(|()| model_loop.sft.check());
        if let Err((field, reason)) = sections {
            return fail(field, reason);
        }
        if let Err((field, reason)) = critic.check() {
            return fail(field, &reason);
        }
        if let Err((field, reason)) = retention::check(&self.config.retention) {
            return fail(field, &reason);
        }
        if harness_loop.diagnose_tasks == 0 {
            return fail("harness_loop.diagnose_tasks", "must be at least 1");
        }
        if harness_loop.candidates == 0 {
            return fail("harness_loop.candidates", "must be at least 1");
        }
        let is_cuda = model_loop.sft.device == DeviceKind::Cuda;
        if is_cuda && matches!(self.config.policy, PolicyConfig::Local { .. }) {
            return fail(
                "model_loop.sft.device",
                "policy local decodes on the CPU and shares its weights with training; use cpu, or a server as policy",
            );
        }
        let serves_adapters = matches!(
            self.config.policy,
            PolicyConfig::Openai {
                adapters: AdapterDelivery::Vllm,
                ..
            }
        );
        if model_loop.sft.method == MethodKind::Full && serves_adapters {
            return fail(
                "model_loop.sft.method",
                "a server is given adapters, not full sets of weights; use lora, or policy local",
            );
        }
        if let Some(temperature) = self.config.model_loop.temperature
            && !(0.0..=2.0).contains(&temperature)
        {
            return fail("model_loop.temperature", "must lie between 0 and 2");
        }
        if model_loop.samples == 0 || model_loop.max_per_task == 0 {
            let field = match model_loop.samples {
                0 => "model_loop.samples",
                _ => "model_loop.max_per_task",
            };
            return fail(field, "must be at least 1");
        }
        if !(1.0..=100.0).contains(&model_loop.hard_weight) {
            return fail("model_loop.hard_weight", "must lie between 1 and 100");
        }
        if !(0.0..1.0).contains(&model_loop.replay) {
            return fail("model_loop.replay", "must be at least 0 and below 1");
        }
        Ok(())
    }
}

/// Text, name for messages and base directory of a configuration.
fn find(name: &str) -> Result<(String, String, Option<PathBuf>), ConfigError> {
    let candidates = [PathBuf::from(name), Path::new("configs").join(name)];
    for path in &candidates {
        if path.is_file() {
            let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
                path: path.clone(),
                source,
            })?;
            let base = path.parent().filter(|p| !p.as_os_str().is_empty());
            let base = base.unwrap_or(Path::new(".")).to_owned();
            return Ok((text, path.display().to_string(), Some(base)));
        }
    }
    if let Some((_, text)) = builtin::CONFIGS.iter().find(|(known, _)| *known == name) {
        return Ok(((*text).to_owned(), format!("{name} (built in)"), None));
    }
    let looked = candidates.iter().map(|p| p.display().to_string()).collect();
    Err(ConfigError::NotFound {
        name: name.to_owned(),
        looked,
    })
}

/// One `path=value` override; the value is JSON, a mapping or list in YAML's short form, or a word that
/// stands for itself.
fn apply(config: &Config, setting: &str) -> Result<Config, ConfigError> {
    let fail = |reason: String| ConfigError::Override {
        setting: setting.to_owned(),
        reason,
    };
    let Some((path, value)) = setting.split_once('=') else {
        return Err(fail("expected path=value, as in run.seed=7".into()));
    };
    let value: Value = match serde_json::from_str(value) {
        Ok(value) => value,
        Err(_) if value.starts_with(['{', '[']) => {
            harness::yaml::from_str(value).map_err(|e| fail(e.to_string()))?
        }
        Err(_) => Value::from(value),
    };
    let mut document = serde_json::to_value(config).map_err(|e| fail(e.to_string()))?;
    let mut slot = &mut document;
    for (depth, key) in path.split('.').enumerate() {
        let known = match slot {
            Value::Object(map) if map.contains_key(key) => None,
            Value::Object(map) => Some(map.keys().cloned().collect::<Vec<_>>().join(", ")),
            other => {
                let place: Vec<&str> = path.split('.').take(depth).collect();
                let place = place.join(".");
                return Err(fail(format!(
                    "{place} is {other} and has no fields; set it as a whole, as in --set '{place}={{{key}: ...}}'"
                )));
            }
        };
        if let Some(known) = known {
            let parent: Vec<&str> = path.split('.').take(depth).collect();
            let place = if parent.is_empty() {
                "the configuration".into()
            } else {
                parent.join(".")
            };
            return Err(fail(format!("{place} has no field {key}; it has: {known}")));
        }
        slot = &mut slot[key];
    }
    *slot = value;
    serde_path_to_error::deserialize(document)
        .map_err(|e| fail(format!("{}: {}", e.path(), e.inner())))
}

/// JSON Schema of the configuration, for editors.
pub fn json_schema() -> Value {
    schemars::schema_for!(Config).to_value()
}
