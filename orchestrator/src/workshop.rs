//! What every step of a run works with: problems, store, registry, model, sandbox, verifier.

mod harness_folder;
mod policies;
mod starting_harness;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use critic::LeakGuard;
use critic::llm::Chat;
use registry::Registry;
use rollout::policy::Policy;
use rollout::tools::ToolRunner;
use rollout::trajectory::RolloutBudget;
use sandbox::{HelperCommand, Sandbox, SandboxError, SandboxOptions};

pub(crate) use self::harness_folder::{built_in_names, read_built_in};
pub use self::harness_folder::{read_harness, read_harness_folder};
use self::policies::Ready;
pub(crate) use self::policies::local_id;
pub(crate) use self::starting_harness::check_asked;
use crate::base_model::BaseModel;
use crate::config::{Loaded, PolicyConfig, RunConfig};
use crate::engines::Engines;
use crate::error::RunError;
use crate::golds;
use crate::judges;
use crate::observer::{Notice, Observer};
use crate::rollouts::{Ahead, Judge};
use crate::seed::Seed;
use crate::serving;
use crate::splits::Splits;
use crate::stop::Stop;
use crate::store::Store;

/// What the binary knows and a library must not look up itself.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Folder of known models.
    pub cache: PathBuf,
    /// Python interpreter of the tool.
    pub python: PathBuf,
    /// This program, re-executed as the sandbox's helper.
    pub helper: PathBuf,
    /// Folder for the sandbox's scratch directories.
    pub scratch: PathBuf,
    /// Whether to run in a sandbox that doesn't hold. Every trajectory carries its level.
    pub allow_weak_sandbox: bool,
    /// Looks up the variable a configuration names for a server's key.
    pub key: fn(&str) -> Option<String>,
}

impl Environment {
    /// The box for programs, tested on this machine.
    ///
    /// # Errors
    /// When there is none, or it doesn't hold and that isn't allowed.
    pub async fn open_sandbox(&self) -> Result<Sandbox, SandboxError> {
        let helper = HelperCommand::new(self.helper.clone());
        let options = SandboxOptions {
            allow_degraded: self.allow_weak_sandbox,
            ..SandboxOptions::default()
        };
        let (python, scratch) = (self.python.clone(), self.scratch.clone());
        Sandbox::with_options(helper, python, scratch, options).await
    }
}

/// What a workshop is made of.
pub struct Parts {
    /// The configuration.
    pub loaded: Loaded,
    /// The problems.
    pub splits: Splits,
    /// The run's directory.
    pub directory: PathBuf,
    /// The run's database.
    pub store: Store,
    /// Harness versions.
    pub registry: Registry,
    /// This machine.
    pub environment: Environment,
    /// Who watches.
    pub observer: Arc<dyn Observer>,
    /// When to stop.
    pub stop: Arc<Stop>,
}

/// Everything a step needs.
pub struct Workshop {
    /// The configuration.
    pub loaded: Loaded,
    /// The problems: the same ones for as long as there is this workshop.
    pub(crate) splits: Splits,
    /// What no patch may carry of them, once a patch was looked at.
    leak_guard: OnceLock<LeakGuard>,
    /// The run's database.
    pub store: Store,
    /// Harness versions.
    pub registry: Mutex<Registry>,
    /// The run's directory.
    pub directory: PathBuf,
    /// The base model, where weights are decoded or trained here.
    pub base: Option<BaseModel>,
    /// What runs the programs of tool calls: the sandbox, but for tests.
    pub(crate) tools: Arc<dyn ToolRunner>,
    pub(crate) sandbox_level: String,
    pub(crate) judge: Judge,
    /// The critic's language model, if it has one.
    pub(crate) chat: Option<Arc<dyn Chat>>,
    pub(crate) stop: Arc<Stop>,
    observer: Arc<dyn Observer>,
    environment: Environment,
    policies: Mutex<Vec<Ready>>,
    engines: Engines,
    /// What is made ahead of later phases; the phase in progress holds it.
    pub(crate) ahead: tokio::sync::Mutex<Ahead>,
    /// The round in progress, 0 before the first one.
    pub(crate) round: AtomicU32,
    /// Whether a rollout has succeeded since the process started.
    pub(crate) has_answered: AtomicBool,
}

impl Workshop {
    /// Set everything up; loads the model and probes the sandbox.
    ///
    /// # Errors
    /// When any part can't be had; see [`RunError::hint`].
    pub async fn open(parts: Parts) -> Result<Self, RunError> {
        let (loaded, environment) = (&parts.loaded, &parts.environment);
        judges::try_all(loaded)?;
        let is_local = matches!(loaded.config.policy, PolicyConfig::Local { .. });
        let base = if is_local || serving::trains(&loaded.config) {
            Some(BaseModel::load(loaded, &environment.cache)?)
        } else {
            None
        };
        let sandbox = environment.open_sandbox().await?;
        let level = sandbox.enforcement().level().to_owned();
        let broken = sandbox.enforcement().broken().join("; ");
        let mut workshop = Self::with_tools(parts, Arc::new(sandbox), &level);
        workshop.base = base;
        if !broken.is_empty() {
            workshop.line(format!(
                "warning: the sandbox doesn't hold ({broken}); every trajectory is marked {level}"
            ));
        }
        Ok(workshop)
    }

    /// Set up without a model of its own and without a sandbox: programs of tool calls go to
    /// `tools`, and trajectories are marked with `level`. For policies and tools that are given, as
    /// in tests.
    pub fn with_tools(parts: Parts, tools: Arc<dyn ToolRunner>, level: &str) -> Self {
        let Parts {
            loaded,
            splits,
            directory,
            store,
            registry,
            environment,
            observer,
            stop,
        } = parts;
        let judge = Judge::new(&loaded, &loaded.config.tasks.verifier, &tools);
        for warning in golds::warnings(&loaded, &splits) {
            observer.notice(Notice::Warning(warning));
        }
        Self {
            loaded,
            splits,
            leak_guard: OnceLock::new(),
            store,
            registry: Mutex::new(registry),
            directory,
            base: None,
            tools,
            sandbox_level: level.to_owned(),
            judge,
            chat: None,
            stop,
            observer,
            environment,
            policies: Mutex::new(Vec::new()),
            engines: Engines::default(),
            ahead: tokio::sync::Mutex::default(),
            round: AtomicU32::new(0),
            has_answered: AtomicBool::new(false),
        }
    }

    /// The same workshop with `chat` behind its critic.
    #[must_use]
    pub fn with_chat(mut self, chat: Option<Arc<dyn Chat>>) -> Self {
        self.chat = chat;
        self
    }

    /// The same workshop with `policy` at hand for `adapter`, as in tests.
    #[must_use]
    pub fn with_policy(mut self, adapter: Option<&str>, policy: Arc<dyn Policy>) -> Self {
        let ready = self
            .policies
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        ready.push((adapter.map(str::to_owned), policy));
        self
    }

    /// The problems.
    pub fn splits(&self) -> &Splits {
        &self.splits
    }

    /// The guard against patches that carry problems of the gate, the sealed test or a suite. It is made
    /// when it is first asked for, out of every problem of the run, and then kept.
    pub(crate) fn leak_guard(&self) -> &LeakGuard {
        let splits = &self.splits;
        let made = || LeakGuard::new(splits.held_out(), splits.evolve.iter());
        self.leak_guard.get_or_init(made)
    }

    /// The root of the run's seeds.
    pub fn seed(&self) -> Seed {
        Seed::new(self.loaded.config.run.seed)
    }

    /// What one problem may cost.
    pub fn budget(&self) -> RolloutBudget {
        let budget = self.loaded.config.budget;
        RolloutBudget {
            max_tokens: budget.tokens_per_problem,
            wall: Duration::from_secs(budget.seconds_per_problem),
        }
    }

    /// Tell the observer.
    pub fn notice(&self, notice: Notice) {
        self.observer.notice(notice);
    }

    /// Tell the observer a line.
    pub fn line(&self, text: impl Into<String>) {
        self.notice(Notice::Line(text.into()));
    }

    /// The run's name.
    pub fn run_name(&self) -> String {
        run_name(&self.loaded.config.run)
    }

    /// Key of a journal step: its kind and the hashes of its inputs.
    pub(crate) fn key(&self, kind: &str, parts: &[&str]) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in std::iter::once(&kind).chain(parts) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Work with the registry.
    ///
    /// # Errors
    /// When the registry fails.
    pub fn with_registry<T>(
        &self,
        work: impl FnOnce(&Registry) -> Result<T, registry::RegistryError>,
    ) -> Result<T, RunError> {
        let registry = self
            .registry
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(work(&registry)?)
    }
}

/// Name of a run, and of its directory.
pub fn run_name(run: &RunConfig) -> String {
    format!("{}-seed{}", run.name, run.seed)
}
