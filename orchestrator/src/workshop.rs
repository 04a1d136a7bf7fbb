//! What every step of a run works with: problems, store, registry, model, sandbox, verifier.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use critic::LeakGuard;
use critic::llm::Chat;
use harness::{CallFormat, Harness, Hook, ToolState};
use model::decode::EngineOptions;
use registry::Registry;
use rollout::policy::{LocalPolicy, LocalPolicyOptions, Policy, PolicyId, Renderer};
use rollout::task::Task;
use rollout::tools::ToolRunner;
use rollout::trajectory::RolloutBudget;
use rollout::verifier::{Verifier, VerifierKind};
use sandbox::{HelperCommand, Sandbox, SandboxError, SandboxOptions, SandboxPolicy};

use crate::base_model::BaseModel;
use crate::config::{Loaded, PolicyConfig, RunConfig};
use crate::engines::{Decoder, Engines};
use crate::error::RunError;
use crate::judges;
use crate::observer::{Notice, Observer};
use crate::retention::judge_of;
use crate::rollouts::{Ahead, Judge};
use crate::seed::Seed;
use crate::serving::{self, Reloading};
use crate::splits::{Splits, Suite};
use crate::stop::Stop;
use crate::store::Store;
use crate::trained_weights::{self, TrainedWeights};

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

/// Policies kept ready: the incumbent weights and the ones they are compared with.
const READY_POLICIES: usize = 2;

/// A policy kept ready, by its trained weights.
type Ready = (Option<String>, Arc<dyn Policy>);

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
        let own = splits.evolve.iter().chain(&splits.gate).chain(&splits.test);
        let mut warnings = vec![unread_golds("tasks.verifier", own, judge.verifier.as_ref())];
        for Suite { config, tasks } in &splits.suites {
            let judge = judge_of(config, &loaded, &tools);
            let field = format!("retention: {}: the verifier", config.name);
            warnings.push(unread_golds(&field, tasks.iter(), judge.verifier.as_ref()));
        }
        for warning in warnings.into_iter().flatten() {
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

    /// Check a starting harness against the policy, this machine and the verifier. A patch that asks for what can't
    /// be had loses at the gate; a run that starts so would learn nothing.
    ///
    /// # Errors
    /// When it asks for what the policy can't do, or a tool can't run here.
    pub(crate) async fn check_harness(&self, harness: &Harness) -> Result<(), RunError> {
        check_asked(
            harness,
            Path::new(&harness.name),
            &self.loaded.config.policy,
        )?;
        for (name, tool) in &harness.tools {
            let policy = SandboxPolicy {
                memory_mib: tool.limits.memory_mib,
                ..SandboxPolicy::default()
            };
            let mut tried = self.tools.run_python("", &policy).await.map(drop);
            if tool.state == ToolState::Stateful && tried.is_ok() {
                tried = self.tools.open_session().await.map(drop);
            }
            let Err(fault) = tried else {
                continue;
            };
            match fault.source.downcast_ref::<SandboxError>() {
                Some(SandboxError::Policy(_) | SandboxError::NoForkServer { .. }) => {
                    return Err(RunError::Harness {
                        path: PathBuf::from(&harness.name),
                        reason: format!("the tool {name} can't run here: {}", fault.source),
                    });
                }
                _ => return Err(fault.into()),
            }
        }
        self.warn_of_calls(harness);
        Ok(())
    }

    /// Warn where `harness` takes the programs that are asked for as answers for calls.
    fn warn_of_calls(&self, harness: &Harness) {
        let middleware = &harness.middleware;
        let takes_blocks = middleware.protocol.call_format == CallFormat::Fenced
            || middleware
                .hooks
                .post_model_call
                .contains(&Hook::ExtractFencedCode {});
        let is_asked_for = matches!(self.loaded.config.tasks.verifier, VerifierKind::Code(_));
        if is_asked_for && takes_blocks && !harness.tools.is_empty() {
            let text = "tasks.verifier is code, but the harness takes fenced code for a call of its tool: a \
                        program that is meant as the answer is run as a call. Use another call format, \
                        without extract_fenced_code, or no tool";
            self.notice(Notice::Warning(text.into()));
        }
    }

    /// Tell the observer a line.
    pub fn line(&self, text: impl Into<String>) {
        self.notice(Notice::Line(text.into()));
    }

    /// Where the trained weights `id` are kept.
    pub fn weights_directory(&self, id: &str) -> PathBuf {
        trained_weights::directory_of(&self.directory, id)
    }

    /// Load kept weights.
    ///
    /// # Errors
    /// When they are missing or damaged.
    pub(crate) fn weights(&self, id: &str) -> Result<TrainedWeights, RunError> {
        let model = &self.require_base()?.model;
        TrainedWeights::kept(&self.weights_directory(id), &model.config, model.device())
    }

    /// Let go of a full set of weights, on the disk and in memory. Adapters, which are small, stay.
    ///
    /// # Errors
    /// When the directory can't be removed.
    pub(crate) fn drop_full_weights(&self, id: &str) -> Result<(), RunError> {
        let path = trained_weights::full_directory(&self.directory, id);
        if !path.exists() {
            return Ok(());
        }
        std::fs::remove_dir_all(&path).map_err(|source| RunError::Io { path, source })?;
        let mut ready = self
            .policies
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        ready.retain(|(known, _)| known.as_deref() != Some(id));
        Ok(())
    }

    /// The base model.
    ///
    /// # Errors
    /// When the run has none.
    pub fn require_base(&self) -> Result<&BaseModel, RunError> {
        self.base.as_ref().ok_or_else(|| RunError::NoModel {
            path: PathBuf::from(&self.loaded.config.model.path),
            is_known: false,
        })
    }

    /// The policy with the trained weights `id`, or the plain base model.
    ///
    /// # Errors
    /// When the weights, the engine or the server can't be used.
    pub async fn policy(&self, id: Option<&str>) -> Result<Arc<dyn Policy>, RunError> {
        let key = id.map(str::to_owned);
        {
            let mut ready = self
                .policies
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some(at) = ready.iter().position(|(known, _)| *known == key) {
                let found = ready.remove(at);
                let policy = Arc::clone(&found.1);
                ready.push(found);
                return Ok(policy);
            }
            // The one used longest ago goes before the new one takes memory.
            if ready.len() >= READY_POLICIES {
                ready.remove(0);
            }
        }
        let policy: Arc<dyn Policy> = match &self.loaded.config.policy {
            PolicyConfig::Local { cache_mib } => Arc::new(self.local_policy(id, *cache_mib)?),
            PolicyConfig::Openai { .. } => self.served_policy(id).await?,
        };
        let mut ready = self
            .policies
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        ready.push((key, Arc::clone(&policy)));
        Ok(policy)
    }

    fn local_policy(&self, id: Option<&str>, cache_mib: usize) -> Result<LocalPolicy, RunError> {
        let base = self.require_base()?;
        let weights = id.map(|id| self.weights(id)).transpose()?;
        // The harness says how long a conversation may be; here the model and its memory do.
        let options = EngineOptions {
            cache_mib,
            context: usize::MAX,
            ..EngineOptions::default()
        };
        let Decoder { engine, adapter } = self.engines.open(base, weights, options)?;
        let options = LocalPolicyOptions {
            id: local_id(base, id),
            adapter,
            stop_tokens: base.stop_tokens.clone(),
        };
        let renderer = Renderer::new(&base.tokenizer, &base.template, base.variables.clone())?;
        Ok(LocalPolicy::new(
            engine,
            Arc::clone(&base.tokenizer),
            renderer,
            options,
        ))
    }

    async fn served_policy(&self, id: Option<&str>) -> Result<Arc<dyn Policy>, RunError> {
        let directory = id.map(|id| trained_weights::adapter_directory(&self.directory, id));
        let adapter = id.zip(directory.as_deref());
        let (policy, adapter) =
            serving::policy(&self.loaded.config, adapter, self.environment.key)?;
        let policy: Arc<dyn Policy> = Arc::new(policy);
        let Some(adapter) = adapter else {
            return Ok(policy);
        };
        self.load(&adapter).await?;
        Ok(Arc::new(Reloading::new(policy, adapter)))
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

/// Identity of the base model, or of the trained weights `id`, decoded in this process.
pub(crate) fn local_id(base: &BaseModel, id: Option<&str>) -> PolicyId {
    PolicyId::new(match id {
        Some(id) => format!("{}+{id}", base.id),
        None => base.id.clone(),
    })
}

/// Name of a run, and of its directory.
pub fn run_name(run: &RunConfig) -> String {
    format!("{}-seed{}", run.name, run.seed)
}

/// Read a starting harness: a folder, or `naive`.
///
/// # Errors
/// When the folder can't be read or is no harness.
pub fn read_harness(loaded: &Loaded) -> Result<Harness, RunError> {
    let name = &loaded.config.harness;
    let path = loaded.resolve(name);
    if path.is_dir() {
        return read_harness_folder(&path);
    }
    if name == "naive" {
        return harness::naive().map_err(|error| RunError::Harness {
            path: PathBuf::from(name),
            reason: error.to_string(),
        });
    }
    Err(RunError::Harness {
        path,
        reason: "no such folder (the built-in harness is `naive`)".into(),
    })
}

/// Check that `policy` can do what `harness`, named by `path`, asks of it.
///
/// # Errors
/// When it can't, so that every rollout would fail.
pub(crate) fn check_asked(
    harness: &Harness,
    path: &Path,
    policy: &PolicyConfig,
) -> Result<(), RunError> {
    match policy.lacks(harness) {
        Some(reason) => Err(RunError::Harness {
            path: path.to_owned(),
            reason: reason.to_owned(),
        }),
        None => Ok(()),
    }
}

/// Read a harness from its folder.
///
/// # Errors
/// When the folder can't be read or is no harness.
pub fn read_harness_folder(path: &Path) -> Result<Harness, RunError> {
    let mut files = BTreeMap::new();
    collect(path, path, &mut files)?;
    harness::from_files(&files).map_err(|error| RunError::Harness {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

fn collect(root: &Path, at: &Path, files: &mut BTreeMap<String, String>) -> Result<(), RunError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| RunError::Io { path, source }
    };
    for entry in std::fs::read_dir(at).map_err(io(at))? {
        let path = entry.map_err(io(at))?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else {
            let relative = path.strip_prefix(root).unwrap_or(&path);
            let name = relative
                .components()
                .map(|c| c.as_os_str().to_string_lossy())
                .collect::<Vec<_>>();
            files.insert(
                name.join("/"),
                std::fs::read_to_string(&path).map_err(io(&path))?,
            );
        }
    }
    Ok(())
}

/// A warning about problems whose gold answer no answer can match; `field` says whose verifier that is.
fn unread_golds<'a>(
    field: &str,
    tasks: impl Iterator<Item = &'a Task>,
    verifier: &dyn Verifier,
) -> Option<String> {
    const NAMED: usize = 3;
    let unread: Vec<&str> = tasks
        .filter(|task| !verifier.can_read(&task.answer))
        .map(|task| task.id.as_str())
        .collect();
    let more = unread.len().saturating_sub(NAMED);
    let names = unread
        .iter()
        .take(NAMED)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    (!unread.is_empty()).then(|| {
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        format!(
            "{field} can't read {} gold answers, which nothing will match: {names}{more}",
            unread.len()
        )
    })
}
