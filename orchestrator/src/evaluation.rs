//! Scoring one harness and one set of weights on a file of problems: pass@1, pass@k, cost, and why
//! rollouts ended.
//!
//! Rollouts are kept below `evaluations/` beside the runs, by the same keys as a run's: an evaluation
//! that was interrupted goes on under the same command, and asked for again it only shows its result.
//! Under other gold answers or another verifier the kept rollouts are judged anew (`rechecking.rs`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::Harness;
use registry::Registry;
use rollout::task::{Split, Task, load_tasks};
use rollout::trajectory::{Trajectory, Usage};
use serde::Serialize;

use crate::config::Loaded;
use crate::error::RunError;
use crate::gate::evidence::wilson;
use crate::golds;
use crate::observer::Observer;
use crate::rollouts::{Arm, Rolled, Trial};
use crate::run::{hold, registry_path};
use crate::splits::{SplitError, Splits};
use crate::stop::Stop;
use crate::store::Store;
use crate::trained_weights;
use crate::workshop::{
    Environment, Parts, Workshop, built_in_names, check_asked, read_built_in, read_harness,
    read_harness_folder, run_name,
};

/// Folder of evaluations, beside the runs.
pub const FOLDER: &str = "evaluations";

/// What is to be scored.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// A folder, the name of a built-in harness, or a version of the configuration's run, such as `v3`;
    /// none is the configuration's own starting harness.
    pub harness: Option<String>,
    /// Beginning of the id of weights of the configuration's run; none is the base model.
    pub adapter: Option<String>,
    /// A file of problems; none means the configuration's sealed test problems.
    pub tasks: Option<PathBuf>,
    /// Rollouts of each problem.
    pub samples: u32,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// The harness as it was asked for, or its version's name.
    pub harness: String,
    /// Its content id.
    pub harness_id: String,
    /// The policy: model and adapter.
    pub policy: String,
    /// Where the problems came from.
    pub tasks: String,
    /// Problems.
    pub problems: usize,
    /// Rollouts of each.
    pub samples: u32,
    /// Rollouts that count nowhere below, since policy or sandbox failed on each attempt.
    pub left_out: usize,
    /// pass@k for k = 1, 2, 4, … up to `samples`.
    pub pass_at: Vec<PassAt>,
    /// What it took.
    pub cost: Cost,
    /// How often each exit reason occurred.
    pub exits: BTreeMap<String, usize>,
    /// In how many rollouts each event occurred: anomalies, and hooks that fired.
    pub events: BTreeMap<String, usize>,
    /// Each problem's own result, in the file's order.
    pub results: Vec<ProblemResult>,
}

/// An estimate of pass@k.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PassAt {
    /// Attempts of which one has to be right.
    pub k: u32,
    /// Problems with at least `k` samples: those that the estimate is made of.
    pub problems: usize,
    /// Mean over the problems of the unbiased estimate from the samples of each.
    pub estimate: f64,
    /// 95% interval.
    pub ci95: [f64; 2],
}

/// What an evaluation took, over all rollouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Rollouts.
    pub rollouts: usize,
    /// Prompt tokens; those of every turn count.
    pub prompt_tokens: u64,
    /// Generated tokens.
    pub completion_tokens: u64,
    /// Those of them that are reasoning.
    pub reasoning_tokens: u64,
    /// Whether a server left counts to be estimated.
    pub is_estimated: bool,
    /// Seconds of all rollouts together, as if one ran after the other.
    pub rollout_seconds: f64,
    /// Seconds of the median rollout.
    pub median_seconds: f64,
    /// Seconds that 95% of the rollouts don't exceed.
    pub p95_seconds: f64,
    /// Seconds of this evaluation; short for rollouts that were kept from an earlier one.
    pub wall_seconds: f64,
}

/// Samples of one problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProblemResult {
    /// The problem.
    pub task: String,
    /// Right answers among its samples.
    pub correct: u32,
    /// Ids of the rollouts, for `coharness trajectories show`; without those that were left out.
    pub rollouts: Vec<String>,
}

/// Score a harness on problems.
///
/// # Errors
/// When the harness, the weights, the problems or the model can't be had, the evaluation is stopped,
/// or rollouts fail for reasons that are not the policy's answers.
pub async fn evaluate(
    mut loaded: Loaded,
    root: &Path,
    environment: Environment,
    observer: Arc<dyn Observer>,
    on_stop: impl FnOnce(Arc<Stop>),
    request: &Request,
) -> Result<Evaluation, RunError> {
    // Nothing is trained, so no weights are needed beside the policy's.
    loaded.config.model_loop.is_enabled = false;
    let name = run_name(&loaded.config.run);
    let run = root.join(&name);
    let (harness_name, harness) = find_harness(&loaded, &run, request.harness.as_deref())?;
    check_asked(&harness, Path::new(&harness_name), &loaded.config.policy)?;
    let adapter = request.adapter.as_deref();
    let adapter = adapter
        .map(|prefix| trained_weights::find(&run, prefix))
        .transpose()?;
    let (tasks_name, tasks) = find_tasks(&loaded, request.tasks.as_deref())?;
    let splits = Splits::only_test(tasks);
    golds::check(&loaded, &splits)?;
    let place = root.join(FOLDER).join(&name);
    let lock = hold(&place).await?;
    let store = Store::open(&place).await?;
    let registry = match Registry::open_read_only(&registry_path(&run)) {
        Ok(registry) => registry,
        Err(_) => Registry::open_or_create(&registry_path(&place))?,
    };
    let stop = Arc::new(Stop::new(place.join("stop"), None));
    on_stop(Arc::clone(&stop));
    let workshop = Workshop::open(Parts {
        loaded,
        splits,
        // Trained weights are the run's.
        directory: run,
        store: store.clone(),
        registry,
        environment,
        observer,
        stop,
    })
    .await?;
    let started = Instant::now();
    let policy = workshop.policy(adapter.as_deref()).await?;
    let trials = trials(&workshop, request.samples);
    let source = Path::new(&harness_name);
    workshop.check_harness(&harness, source).await?;
    workshop.check_skills(&harness, source).await?;
    let harness = Arc::new(harness);
    let title = format!("evaluate {harness_name}");
    // Unlike a run's, an evaluation's decisions are nobody's: what failed before gets another try.
    store.forget_left_out().await?;
    let arm = Arm {
        policy: Arc::clone(&policy),
        harness: Arc::clone(&harness),
    };
    let rolled = match workshop.recheck(&arm, &trials).await {
        Ok(()) => {
            workshop
                .roll(&title, &policy, &harness, Split::Test, &trials)
                .await
        }
        Err(error) => Err(error),
    };
    store.close().await;
    drop(lock);
    let rolled = rolled?;
    let samples = request.samples.max(1) as usize;
    let results: Vec<ProblemResult> = rolled
        .chunks(samples)
        .zip(&workshop.splits.test)
        .map(|(rolled, task)| ProblemResult::of(task, rolled))
        .collect();
    let ended: Vec<&Trajectory> = rolled.iter().flatten().collect();
    let mut cost = Cost::of(&ended);
    cost.wall_seconds = started.elapsed().as_secs_f64();
    Ok(Evaluation {
        harness: harness_name,
        harness_id: harness.id().to_hex(),
        policy: policy.id().to_string(),
        tasks: tasks_name,
        problems: results.len(),
        samples: request.samples.max(1),
        left_out: rolled.len() - ended.len(),
        pass_at: pass_at(&results, request.samples.max(1)),
        cost,
        exits: count(&ended, |trajectory| vec![trajectory.exit.name().to_owned()]),
        events: count(&ended, events_of),
        results,
    })
}

/// The trials, problem by problem.
fn trials(workshop: &Workshop, samples: u32) -> Vec<Trial> {
    let seed = workshop.seed().derive("evaluation");
    let samples_of = |task: &Task| {
        let seed = seed.derive(task.content_hash().as_str());
        let task = task.clone();
        (0..samples.max(1)).map(move |sample| Trial {
            task: task.clone(),
            seed: seed.derive(sample).value(),
        })
    };
    workshop.splits.test.iter().flat_map(samples_of).collect()
}

fn find_harness(
    loaded: &Loaded,
    run: &Path,
    wanted: Option<&str>,
) -> Result<(String, Harness), RunError> {
    let Some(wanted) = wanted else {
        return Ok((loaded.config.harness.clone(), read_harness(loaded)?));
    };
    let folder = Path::new(wanted);
    if folder.join("harness.yaml").is_file() {
        return Ok((wanted.to_owned(), read_harness_folder(folder)?));
    }
    if let Some(harness) = read_built_in(wanted)? {
        return Ok((wanted.to_owned(), harness));
    }
    let registry = registry_path(run);
    if !registry.exists() {
        return Err(RunError::Harness {
            path: PathBuf::from(wanted),
            reason: format!(
                "neither a harness folder, nor a built-in harness ({}), nor a version: there is no run {} yet",
                built_in_names(),
                run.display()
            ),
        });
    }
    let (entry, harness) = Registry::open_read_only(&registry)?.load(wanted)?;
    let name = entry
        .version()
        .map_or(wanted.to_owned(), |version| version.name.to_string());
    Ok((name, harness))
}

/// The problems and where they come from.
fn find_tasks(loaded: &Loaded, file: Option<&Path>) -> Result<(String, Vec<Task>), RunError> {
    let Some(file) = file else {
        let splits = Splits::read(loaded)?;
        let name = format!("the sealed test of {}", loaded.config.tasks.path);
        return Ok((name, splits.test));
    };
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|source| RunError::Named {
        path: file.to_owned(),
        source,
    })?;
    let columns = &loaded.config.tasks.columns;
    let tasks = load_tasks(&text, &name, columns).map_err(SplitError::from)?;
    if tasks.is_empty() {
        return Err(SplitError::Empty { path: name }.into());
    }
    Splits::check_distinct(&tasks)?;
    Ok((name, tasks))
}

impl ProblemResult {
    fn of(task: &Task, rolled: &[Rolled]) -> Self {
        let samples = || rolled.iter().flatten();
        let correct = samples().filter(|sample| sample.verdict.correct).count();
        ProblemResult {
            task: task.id.to_string(),
            correct: u32::try_from(correct).unwrap_or(u32::MAX),
            rollouts: samples()
                .map(|sample| sample.id.as_str().to_owned())
                .collect(),
        }
    }

    /// Samples that ended.
    fn samples(&self) -> u32 {
        u32::try_from(self.rollouts.len()).unwrap_or(u32::MAX)
    }
}

impl Cost {
    fn of(trajectories: &[&Trajectory]) -> Self {
        let usage: Usage = trajectories.iter().map(|t| &t.usage).sum();
        let walls = trajectories.iter().map(|t| t.wall_ms);
        let mut seconds: Vec<f64> = walls
            .map(|wall_ms| Duration::from_millis(wall_ms).as_secs_f64())
            .collect();
        seconds.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (seconds.len() * percent).div_ceil(100).max(1) - 1;
            seconds.get(rank).copied().unwrap_or_default()
        };
        Cost {
            rollouts: trajectories.len(),
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            is_estimated: usage.is_estimated,
            rollout_seconds: seconds.iter().sum(),
            median_seconds: at(50),
            p95_seconds: at(95),
            wall_seconds: 0.0,
        }
    }
}

/// The names of a trajectory's events, each once.
fn events_of(trajectory: &Trajectory) -> Vec<String> {
    let events = trajectory.events();
    let mut names: Vec<String> = events.map(|(_, event)| event.name().to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn count(
    trajectories: &[&Trajectory],
    names: impl Fn(&Trajectory) -> Vec<String>,
) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for name in trajectories.iter().flat_map(|trajectory| names(trajectory)) {
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}

/// pass@k for k = 1, 2, 4, … and `samples`, each from the problems that have as many.
fn pass_at(results: &[ProblemResult], samples: u32) -> Vec<PassAt> {
    let mut all: Vec<u32> = (0..u32::BITS)
        .map(|power| 1 << power)
        .take_while(|k| *k < samples)
        .collect();
    all.push(samples);
    all.into_iter()
        .map(|k| {
            let enough = results.iter().filter(|result| result.samples() >= k);
            let values: Vec<f64> = enough
                .map(|result| unbiased(result.samples(), result.correct, k))
                .collect();
            let (estimate, ci95) = mean_with_interval(&values);
            PassAt {
                k,
                problems: values.len(),
                estimate,
                ci95,
            }
        })
        .collect()
}

/// The share of the sets of `k` out of `samples` attempts in which one is right: the unbiased
/// estimate of pass@k (Chen et al., "Evaluating Large Language Models Trained on Code", 2021,
/// section 2.1). `1 - (1 - correct / samples)^k` is too low.
fn unbiased(samples: u32, correct: u32, k: u32) -> f64 {
    if samples - correct < k {
        return 1.0;
    }
    let missed = (samples - correct + 1..=samples).map(|i| 1.0 - f64::from(k) / f64::from(i));
    1.0 - missed.product::<f64>()
}

/// Mean of one value a problem, each between 0 and 1, and its 95% interval.
///
/// The problems are the sample; attempts at one problem aren't independent of each other. So the
/// interval is Wilson's for as many yes-or-no outcomes as would vary as much as these means do. With
/// one attempt a problem that is Wilson's interval itself, and it doesn't collapse where all values
/// are equal.
fn mean_with_interval(values: &[f64]) -> (f64, [f64; 2]) {
    #[expect(clippy::cast_precision_loss, reason = "a count of problems")]
    let count = values.len() as f64;
    if values.is_empty() {
        return (0.0, [0.0, 1.0]);
    }
    let mean = values.iter().sum::<f64>() / count;
    let variance = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / count;
    let spread = mean * (1.0 - mean);
    let effective = if variance > f64::EPSILON {
        count * (spread / variance).max(1.0)
    } else {
        count
    };
    (mean, wilson(mean, effective))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Problems with as many samples each.
    fn results(correct: &[u32], samples: u32) -> Vec<ProblemResult> {
        let of = |correct: &u32| ProblemResult {
            task: String::new(),
            correct: *correct,
            rollouts: (0..samples).map(|sample| sample.to_string()).collect(),
        };
        correct.iter().map(of).collect()
    }

    #[test]
    fn what_was_left_out_counts_neither_as_right_nor_as_wrong() {
        let mut results = results(&[2, 0, 1], 4);
        // Of the first problem two right samples are there, of the last none at all.
        results[0].rollouts.truncate(2);
        results[2].rollouts.clear();
        results[2].correct = 0;
        let pass = pass_at(&results, 4);
        let figures: Vec<(u32, usize, f64)> =
            pass.iter().map(|p| (p.k, p.problems, p.estimate)).collect();
        assert_eq!(figures, [(1, 2, 0.5), (2, 2, 0.5), (4, 1, 0.0)]);
        for result in &mut results {
            result.rollouts.clear();
        }
        assert_eq!(pass_at(&results, 4)[0].ci95, [0.0, 1.0]);
    }

    #[test]
    fn pass_at_k_is_the_share_of_sets_with_a_right_answer() {
        // All sets of k out of n, counted one by one.
        let counted = |n: u32, c: u32, k: u32| {
            let sets = (0_u32..1 << n).filter(|set| set.count_ones() == k);
            let right = sets.clone().filter(|set| set & ((1 << c) - 1) != 0).count();
            right as f64 / sets.count() as f64
        };
        for n in 1..=7 {
            for c in 0..=n {
                for k in 1..=n {
                    let (got, expected) = (unbiased(n, c, k), counted(n, c, k));
                    assert!(
                        (got - expected).abs() < 1e-12,
                        "{n} {c} {k}: {got} {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn ks_are_powers_of_two_and_the_number_of_samples() {
        let ks = |samples| {
            pass_at(&results(&[1], samples), samples)
                .iter()
                .map(|p| p.k)
                .collect::<Vec<_>>()
        };
        assert_eq!(ks(1), [1]);
        assert_eq!(ks(4), [1, 2, 4]);
        assert_eq!(ks(6), [1, 2, 4, 6]);
    }

    #[test]
    fn one_sample_a_problem_has_wilsons_interval() {
        let values: Vec<f64> = (0..120).map(|i| f64::from(u8::from(i < 41))).collect();
        let (mean, [low, high]) = mean_with_interval(&values);
        assert!((mean - 41.0 / 120.0).abs() < 1e-12);
        assert!(
            (low - 0.263).abs() < 5e-4 && (high - 0.430).abs() < 5e-4,
            "{low} {high}"
        );
    }

    #[test]
    fn intervals_cover_the_truth_although_samples_of_a_problem_are_alike() {
        use rand::{RngExt, SeedableRng};
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(3);
        let (runs, problems, samples) = (1500, 60, 4);
        // Half of the problems are solved by 90% of attempts, half by 10%.
        let (mut covered, mut width) = (0, 0.0);
        for _ in 0..runs {
            let correct: Vec<u32> = (0..problems)
                .map(|_| {
                    let p = if random.random::<bool>() { 0.9 } else { 0.1 };
                    (0..samples)
                        .map(|_| u32::from(random.random::<f64>() < p))
                        .sum()
                })
                .collect();
            let [low, high] = pass_at(&results(&correct, samples), samples)[0].ci95;
            covered += u32::from(low <= 0.5 && 0.5 <= high);
            width += high - low;
        }
        let share = f64::from(covered) / f64::from(runs);
        assert!((0.93..0.975).contains(&share), "{share}");
        // All 240 attempts taken as independent would claim 0.126.
        assert!(width / f64::from(runs) > 0.19);
    }

    #[test]
    fn an_interval_never_collapses() {
        for (values, low, high) in [([0.0; 20], 0.0, 0.16), ([1.0; 20], 0.84, 1.0)] {
            let (_, [l, h]) = mean_with_interval(&values);
            assert!((l - low).abs() < 0.01 && (h - high).abs() < 0.01, "{l} {h}");
        }
        assert_eq!(mean_with_interval(&[]), (0.0, [0.0, 1.0]));
    }
}
