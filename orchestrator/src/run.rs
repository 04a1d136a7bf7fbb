//! A whole run: rounds of harness loop and model loop, the sealed test, the end.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use critic::llm::Chat;
use harness::Harness;
use registry::{Provenance, Registry, RunId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::budget::{RunBudget, Spent, Terms};
use crate::clock::unix_seconds;
use crate::config::{Config, Loaded, MatrixKind};
use crate::critic_chat::ServedChat;
use crate::error::RunError;
use crate::gate::outlook;
use crate::golds;
use crate::history::History;
use crate::observer::{Notice, Observer};
use crate::reference::Reference;
use crate::report::{EvaluateRow, Report};
use crate::signs::Signs;
use crate::splits::Splits;
use crate::standing::Standing;
use crate::stop::Stop;
use crate::store::{Store, StoreError};
use crate::workshop::{Environment, Parts, Workshop, check_asked, read_harness, run_name};

/// Where a run keeps its harness versions.
pub fn registry_path(directory: &Path) -> PathBuf {
    directory.join("registry.git")
}

/// Take a directory, made where it is missing, for this process until the file is dropped or the
/// process ends, however it ends.
pub(crate) async fn hold(directory: &Path) -> Result<File, RunError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| RunError::Io { path, source }
    };
    std::fs::create_dir_all(directory).map_err(io(directory))?;
    let path = directory.join("lock");
    let lock = File::create(&path).map_err(io(&path))?;
    // `status` looks at the lock for a moment; whoever works there holds it for good.
    let mut attempts = 0;
    while lock.try_lock().is_err() {
        attempts += 1;
        if attempts == 10 {
            return Err(RunError::Busy {
                directory: directory.to_owned(),
            });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(lock)
}

/// Start a run below `root`, or go on with it.
///
/// # Errors
/// See [`RunError`]; a stopped or failed run goes on when called again.
pub async fn run(
    loaded: Loaded,
    root: &Path,
    environment: Environment,
    observer: Arc<dyn Observer>,
    on_stop: impl FnOnce(Arc<Stop>),
) -> Result<Report, RunError> {
    let splits = Splits::read(&loaded)?;
    golds::check(&loaded, &splits)?;
    let starting = read_harness(&loaded)?;
    let source = loaded.resolve(&loaded.config.harness);
    check_asked(&starting, &source, &loaded.config.policy)?;
    let name = run_name(&loaded.config.run);
    let directory = root.join(&name);
    let lock = hold(&directory).await?;
    let store = Store::open(&directory).await?;
    register(&store, &loaded, &splits, &name, &directory).await?;
    if store
        .run()
        .await?
        .is_some_and(|run| run.finished_at.is_some())
    {
        return Ok(Report::read(&store).await?);
    }
    store.count_prompt_tokens().await?;
    let spent = Spent::read(&store).await?;
    let signs = Signs::begin(&store).await?;
    // After the signs: what the budget takes for running time, they have kept.
    let budget = RunBudget::new(Terms::of(&loaded.config), spent);
    let stop = Arc::new(Stop::new(directory.join("stop"), Some(budget)));
    on_stop(Arc::clone(&stop));
    let observer = signs.watching(observer);
    let is_greedy = starting.middleware.sampling.temperature == 0.0;
    if let Some(warning) = outlook::warning(&loaded.config.gate, splits.gate.len(), is_greedy) {
        observer.notice(Notice::Warning(warning));
    }
    let outcome = async {
        let is_untouched = store.is_untouched().await?;
        let registry = open_registry(&directory, &starting, is_untouched)?;
        {
            let lock = registry.lock()?;
            registry.remove_stale_locks(&lock, Duration::from_secs(1))?;
        }
        if registry.history()?.is_empty() {
            let provenance = Provenance {
                source: loaded.config.harness.clone(),
                run: Some(RunId::new(name.as_str())?),
                unix_seconds: u64::try_from(unix_seconds()).unwrap_or(0),
            };
            registry.create_initial(&starting, &provenance)?;
        }
        let chat = match &loaded.config.critic.llm {
            Some(llm) => Some(Arc::new(ServedChat::new(llm, environment.key)?) as Arc<dyn Chat>),
            None => None,
        };
        let workshop = Workshop::open(Parts {
            loaded,
            splits,
            directory: directory.clone(),
            store: store.clone(),
            registry,
            environment,
            observer,
            stop: Arc::clone(&stop),
        })
        .await?;
        workshop.check_harness(&starting, &source).await?;
        // Later it is what the run began with, however busy the machine is by then.
        if is_untouched {
            workshop.check_skills(&starting, &source).await?;
        }
        workshop.with_chat(chat).rounds().await
    }
    .await;
    let outcome = outcome.map_err(|error| match error {
        RunError::Stopped { reason } => RunError::Stopped {
            reason: stop.settled(reason),
        },
        other => other,
    });
    // The session's end is a courtesy to `status`; its failure must not hide the run's own outcome.
    let ended = signs.end(&outcome).await;
    outcome?;
    ended?;
    store.finish_run(unix_seconds()).await?;
    let report = Report::read(&store).await?;
    store.close().await;
    drop(lock);
    Ok(report)
}

/// What a run was started with: enough to go on without the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// The resolved configuration.
    pub config: Config,
    /// Directory its relative paths start from, absolute.
    pub base: Option<PathBuf>,
    /// Hash of the problems and their answers.
    pub tasks: String,
}

impl Saved {
    /// Read back what [`run`] saved.
    ///
    /// # Errors
    /// When the database fails or holds no run.
    pub async fn read(store: &Store) -> Result<Option<Self>, StoreError> {
        let Some(run) = store.run().await? else {
            return Ok(None);
        };
        let saved = || -> Result<Self, serde_json::Error> {
            let mut saved: Value = serde_json::from_str(&run.config)?;
            // Versions without the field crossed the last round alone, whatever the default is now.
            let fields = saved.pointer_mut("/config/run");
            if let Some(fields) = fields.and_then(Value::as_object_mut) {
                fields.entry("matrix").or_insert_with(|| "last".into());
            }
            serde_json::from_value(saved)
        };
        saved().map(Some).map_err(|source| StoreError::Record {
            key: run.name,
            source,
        })
    }
}

/// Enter the run into its store, or check that it is the same run, perhaps extended.
async fn register(
    store: &Store,
    loaded: &Loaded,
    splits: &Splits,
    name: &str,
    directory: &Path,
) -> Result<(), RunError> {
    let base = match &loaded.base {
        Some(base) => Some(std::path::absolute(base).map_err(|source| RunError::Io {
            path: base.clone(),
            source,
        })?),
        None => None,
    };
    let saved = Saved {
        config: loaded.config.clone(),
        base,
        tasks: splits.hash.clone(),
    };
    let text = serde_json::to_string(&saved).map_err(|source| StoreError::Record {
        key: name.to_owned(),
        source,
    })?;
    let Some(known) = Saved::read(store).await? else {
        return Ok(store.create_run(name, &text, unix_seconds()).await?);
    };
    let (before, now) = (&known.config, &saved.config);
    let value = |config: &Config| serde_json::to_value(config).unwrap_or_default();
    let mut other = difference(&value(before), &value(now), "");
    if now.run.rounds < before.run.rounds {
        other = Some("run.rounds, which can only grow".into());
    } else if known.tasks != saved.tasks {
        other = Some("the problems of tasks.path or retention".into());
    }
    if let Some(field) = other {
        if !store.is_untouched().await? {
            let directory = directory.to_owned();
            return Err(RunError::OtherConfig { directory, field });
        }
        // A first attempt that failed before it did anything may be mended freely; its registry
        // holds at most the harness it would have started from.
        remove_registry(&registry_path(directory))?;
        store.extend_run(&text, true).await?;
    } else if before != now {
        let is_longer = now.run.rounds > before.run.rounds;
        // Cells that were left out can be made afterwards.
        let [old, new] = [before.run.matrix, now.run.matrix];
        let is_fuller = old != new && new == MatrixKind::EachRound;
        store.extend_run(&text, is_longer || is_fuller).await?;
    }
    Ok(())
}

/// The registry of a run, empty or with versions. What a first attempt began with is forgotten if it did nothing
/// under that, and the harness was mended since. One that holds more is of a run whose journal is gone, and stays.
fn open_registry(
    directory: &Path,
    starting: &Harness,
    is_untouched: bool,
) -> Result<Registry, RunError> {
    let path = registry_path(directory);
    let registry = Registry::open_or_create(&path)?;
    let is_other = match &registry.history()?[..] {
        [only] => only.harness != Some(starting.id()),
        _ => false,
    };
    let is_forgotten = is_untouched
        && is_other
        && registry.rejected()?.is_empty()
        && registry.pairings()?.is_empty();
    if !is_forgotten {
        return Ok(registry);
    }
    drop(registry);
    remove_registry(&path)?;
    Ok(Registry::open_or_create(&path)?)
}

/// Remove a registry as a whole. It leaves its place first: a part of one, as a kill would leave it there, could be
/// neither read nor replaced.
fn remove_registry(path: &Path) -> Result<(), RunError> {
    let aside = path.with_extension("removed");
    remove_folder(&aside)?;
    match std::fs::rename(path, &aside) {
        Ok(()) => remove_folder(&aside),
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => {
            let path = path.to_owned();
            Err(RunError::Io { path, source })
        }
    }
}

fn remove_folder(path: &Path) -> Result<(), RunError> {
    match std::fs::remove_dir_all(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            let path = path.to_owned();
            Err(RunError::Io { path, source })
        }
        _ => Ok(()),
    }
}

/// First field in which two configurations differ. More rounds, time or money for the same run are no
/// difference: they extend it. Nor is another patience with faults, a fuller report, other memory to train in
/// and what is computed twice for want of it, which change no weights, or what the critic's model costs, by
/// which nothing is decided.
fn difference(a: &Value, b: &Value, path: &str) -> Option<String> {
    const EXTENDS: [&str; 10] = [
        "run.rounds",
        "run.matrix",
        "budget.run_seconds",
        "budget.run_rollouts",
        "budget.run_tokens",
        "budget.run_cost",
        "critic.llm.prices",
        "faults",
        "model_loop.sft.memory_mib",
        "model_loop.sft.recompute",
    ];
    if a == b || EXTENDS.contains(&path) {
        return None;
    }
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => x.keys().chain(y.keys()).find_map(|key| {
            let path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            difference(
                x.get(key).unwrap_or(&Value::Null),
                y.get(key).unwrap_or(&Value::Null),
                &path,
            )
        }),
        _ => Some(path.to_owned()),
    }
}

impl Workshop {
    /// All rounds. What is in flight for a later phase when they end before their time is finished and
    /// stored.
    async fn rounds(&self) -> Result<(), RunError> {
        let outcome = self.all_rounds().await;
        if outcome.is_err() {
            // What ended the rounds is told; the store's faults come of the same.
            let _ = self.ahead.lock().await.finish().await;
        }
        outcome
    }

    /// All rounds, each with its place in the table and, if asked for, its 2×2.
    async fn all_rounds(&self) -> Result<(), RunError> {
        self.foresee_training().await?;
        let start = self.head("v1")?;
        let mut standing = Standing {
            head: start.clone(),
            adapter: None,
        };
        self.foresee_test(0, None, &standing).await?;
        self.evaluate(0, "baseline", &start, None).await?;
        let mut history = History::new(self.loaded.config.gate.false_discovery_rate);
        let mut reference = Reference::new(standing.clone());
        let run = &self.loaded.config.run;
        let last = run.rounds;
        for round in 1..=last {
            self.round.store(round, Ordering::Relaxed);
            standing = self
                .begin(round, standing, &mut reference, &mut history)
                .await?;
            standing = self.one_round(round, standing, &mut history).await?;
            standing = self
                .refer(round, standing, &mut reference, &mut history)
                .await?;
            let is_crossed = round == last || run.matrix == MatrixKind::EachRound;
            self.foresee_test(round, is_crossed.then_some(&start), &standing)
                .await?;
            let label = EvaluateRow::label_of(round);
            self.evaluate(round, &label, &standing.head, standing.adapter.as_deref())
                .await?;
            if is_crossed {
                self.cross(round, &start, &standing).await?;
            }
        }
        Ok(())
    }

    /// Both loops, what is left of the patches, and a look at whether the round has lost what it should
    /// keep.
    async fn one_round(
        &self,
        round: u32,
        before: Standing,
        history: &mut History,
    ) -> Result<Standing, RunError> {
        let policy = self.policy(before.adapter.as_deref()).await?;
        let head = self
            .harness_loop(round, before.head.clone(), &policy, history)
            .await?;
        let adapter = self
            .model_loop(
                round,
                &head,
                before.adapter.clone(),
                &mut history.discoveries,
            )
            .await?;
        // Weights are loaded again below where that is needed; meanwhile they needn't take memory.
        drop(policy);
        let after = Standing { head, adapter };
        let after = self.retest(round, after, history).await?;
        self.retain(round, &before, after, history).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_may_get_longer_more_patient_and_more_fully_reported_and_nothing_else() {
        let config = |rounds: u32, matrix: &str, attempts: u32, seed: u32| {
            json!({
                "run": {"rounds": rounds, "matrix": matrix, "seed": seed},
                "budget": {"tokens_per_problem": 9, "run_tokens": null, "run_cost": 2.5},
                "critic": {"llm": {"model": "m", "prices": null}},
                "faults": {"attempts": attempts},
                "model_loop": {"sft": {"batch": 8, "memory_mib": null}},
            })
        };
        let before = config(2, "last", 3, 0);
        let mut longer = config(3, "each_round", 4, 0);
        let sft = &mut longer["model_loop"]["sft"];
        sft["memory_mib"] = json!(4096);
        sft["recompute"] = json!("always");
        let budget =
            json!({"tokens_per_problem": 9, "run_seconds": 1, "run_rollouts": 2, "run_tokens": 3});
        longer["budget"] = budget;
        longer["critic"]["llm"]["prices"] = json!({"prompt_per_million": 1});
        assert_eq!(difference(&before, &longer, ""), None);
        longer["model_loop"]["sft"]["batch"] = json!(4);
        let other = difference(&before, &longer, "");
        assert_eq!(other.as_deref(), Some("model_loop.sft.batch"));
        let other = difference(&before, &config(3, "last", 3, 1), "");
        assert_eq!(other.as_deref(), Some("run.seed"));
    }
}
