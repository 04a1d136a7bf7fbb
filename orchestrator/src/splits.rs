//! Three disjoint sets of problems, told apart by content, and retention suites beside them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rollout::task::{ContentHash, Split, Task, TaskError, TaskId, load_tasks, load_tasks_by_line};

use crate::builtin;
use crate::config::{Loaded, SuiteConfig};
use crate::store::Basis;

/// Why the problems can't be split.
#[derive(Debug, thiserror::Error)]
pub enum SplitError {
    /// A problem file could not be read.
    #[error("{field}: cannot read {path} (built-in sets: {})", builtin::TASKS.map(|t| t.0).join(", "))]
    Read {
        /// The field that names it.
        field: String,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A problem file has a bad line.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// No problem at all.
    #[error("{path} has no problems")]
    Empty {
        /// The file.
        path: String,
    },
    /// Two problems have the same text, so they could land in two sets.
    #[error(
        "problems {first} and {second} have the same text; remove one, or a split would leak into another"
    )]
    Duplicate {
        /// The earlier one.
        first: String,
        /// The later one.
        second: String,
    },
    /// Problems of two files have the same id, by which a run's problems are told apart.
    #[error("{second}: id {id} was used in {first} already")]
    SharedId {
        /// The id.
        id: TaskId,
        /// File and line of the earlier one.
        first: String,
        /// File and line of the later one.
        second: String,
    },
    /// Fewer problems than the splits ask for.
    #[error(
        "tasks.splits ask for {wanted} problems ({evolve} evolve, {gate} gate, {test} test), {path} has {found}"
    )]
    TooFew {
        /// Sum of the splits.
        wanted: usize,
        /// Evolve problems wanted.
        evolve: usize,
        /// Gate problems wanted.
        gate: usize,
        /// Test problems wanted.
        test: usize,
        /// The file.
        path: String,
        /// Problems there.
        found: usize,
    },
    /// Fewer problems than a retention suite asks for.
    #[error(
        "retention: {suite} asks for {wanted} tasks, {path} has {found}; lower tasks, or name a larger file"
    )]
    SmallSuite {
        /// The suite.
        suite: String,
        /// Problems wanted.
        wanted: usize,
        /// The file.
        path: String,
        /// Problems there.
        found: usize,
    },
}

/// A retention suite with its problems.
#[derive(Clone, Debug)]
pub struct Suite {
    /// What the configuration says of it.
    pub config: SuiteConfig,
    /// The problems that are used.
    pub tasks: Vec<Task>,
}

impl Suite {
    /// Read a suite's file and take the problems with the smallest hashes: a choice that depends on
    /// nothing but the problems.
    fn read(loaded: &Loaded, config: &SuiteConfig) -> Result<Self, SplitError> {
        let field = format!("retention: {}: path", config.name);
        let (text, path) = source(loaded, &field, &config.path)?;
        let mut tasks = load_tasks(&text, &path, &config.columns)?;
        if tasks.len() < config.tasks {
            return Err(SplitError::SmallSuite {
                suite: config.name.clone(),
                wanted: config.tasks,
                path,
                found: tasks.len(),
            });
        }
        by_hash(&mut tasks);
        tasks.truncate(config.tasks);
        Ok(Self {
            config: config.clone(),
            tasks,
        })
    }
}

/// The three sets.
#[derive(Clone, Debug)]
pub struct Splits {
    /// Critic and trainer see these.
    pub evolve: Vec<Task>,
    /// Only the gate uses these.
    pub gate: Vec<Task>,
    /// Scored for reports only.
    pub test: Vec<Task>,
    /// Other problems that must not fall; neither critic nor trainer sees them.
    pub suites: Vec<Suite>,
    /// How many problems the files have.
    pub available: usize,
    /// Hash of all problems with their answers: a run goes on only with the same ones.
    pub hash: String,
}

impl Splits {
    /// Read the problems of a configuration and deal them out by its seed.
    ///
    /// The test set depends on the problems alone, not on the seed: runs of several seeds are
    /// scored on the same problems and can be compared.
    ///
    /// # Errors
    /// When a file can't be read, has a bad line, a repeated problem or an id of another file, or there are
    /// too few.
    pub fn read(loaded: &Loaded) -> Result<Self, SplitError> {
        let all = own(loaded)?;
        let suites = loaded.config.retention.iter();
        let suites: Vec<Suite> = suites
            .map(|config| Suite::read(loaded, config))
            .collect::<Result<_, _>>()?;
        let of_run = all
            .iter()
            .map(|(task, place)| (task, format!("{} ({place})", task.id)));
        let of_suites = suites.iter().flat_map(|Suite { config, tasks }| {
            let name = &config.name;
            let tasks = tasks.iter();
            tasks.map(move |task| (task, format!("{} of retention suite {name}", task.id)))
        });
        check_distinct(of_run.chain(of_suites))?;
        let all = all.into_iter().map(|(task, _)| task).collect();
        Self::deal(all, suites, loaded)
    }

    /// Check that no two problems have the same text.
    ///
    /// # Errors
    /// [`SplitError::Duplicate`] names the first two that have.
    pub fn check_distinct(tasks: &[Task]) -> Result<(), SplitError> {
        check_distinct(tasks.iter().map(|task| (task, task.id.to_string())))
    }

    /// Problems that are scored, and none to learn from or to decide on.
    pub fn only_test(test: Vec<Task>) -> Self {
        Self {
            evolve: Vec::new(),
            gate: Vec::new(),
            suites: Vec::new(),
            available: test.len(),
            hash: hash(test.iter()),
            test,
        }
    }

    fn deal(mut all: Vec<Task>, suites: Vec<Suite>, loaded: &Loaded) -> Result<Self, SplitError> {
        let available = all.len();
        let sizes = loaded.config.tasks.splits.fitted(available);
        let wanted = sizes.total();
        if wanted > available {
            return Err(SplitError::TooFew {
                wanted,
                evolve: sizes.evolve,
                gate: sizes.gate,
                test: sizes.test,
                path: loaded.config.tasks.path.clone(),
                found: available,
            });
        }
        by_hash(&mut all);
        let hash = hash(
            all.iter()
                .chain(suites.iter().flat_map(|suite| &suite.tasks)),
        );
        let mut rest = all.split_off(sizes.test);
        rest.shuffle(&mut ChaCha8Rng::seed_from_u64(loaded.config.run.seed));
        let mut gate = rest.split_off(sizes.evolve);
        gate.truncate(sizes.gate);
        Ok(Self {
            evolve: rest,
            gate,
            test: all,
            suites,
            available,
            hash,
        })
    }

    /// The tasks of one split.
    pub fn of(&self, split: Split) -> &[Task] {
        match split {
            Split::Evolve => &self.evolve,
            Split::Gate => &self.gate,
            Split::Test => &self.test,
        }
    }

    /// The problems that no patch may carry: what decides or is scored.
    pub fn held_out(&self) -> impl Iterator<Item = &Task> {
        let suites = self.suites.iter().flat_map(|suite| &suite.tasks);
        self.gate.iter().chain(&self.test).chain(suites)
    }
}

/// The problems of `tasks.path` and `tasks.also`, each with its place: file and line.
fn own(loaded: &Loaded) -> Result<Vec<(Task, String)>, SplitError> {
    let tasks = &loaded.config.tasks;
    let mut all: Vec<(Task, String)> = Vec::new();
    let mut known: BTreeMap<TaskId, usize> = BTreeMap::new();
    for path in std::iter::once(&tasks.path).chain(&tasks.also) {
        let (text, name) = source(loaded, "tasks.path", path)?;
        let read = load_tasks_by_line(&text, &name, &tasks.columns)?;
        if read.is_empty() {
            return Err(SplitError::Empty { path: name });
        }
        for (line, task) in read {
            let second = format!("{name}:{line}");
            match known.entry(task.id.clone()) {
                Entry::Vacant(free) => {
                    free.insert(all.len());
                }
                Entry::Occupied(taken) => {
                    let (other, first) = &all[*taken.get()];
                    // One with the same text stands there twice, whatever it is called.
                    if other.content_hash() != task.content_hash() {
                        return Err(SplitError::SharedId {
                            id: task.id,
                            first: first.clone(),
                            second,
                        });
                    }
                }
            }
            all.push((task, second));
        }
    }
    Ok(all)
}

/// An order that depends on neither the file's order nor on anything else.
fn by_hash(tasks: &mut [Task]) {
    tasks.sort_by_cached_key(Task::deal_order);
}

/// The first two tasks with the same text are an error; each comes with what it is called there.
fn check_distinct<'a>(tasks: impl Iterator<Item = (&'a Task, String)>) -> Result<(), SplitError> {
    let mut seen = BTreeMap::new();
    for (task, second) in tasks {
        let hash = task.content_hash().as_str().to_owned();
        if let Some(first) = seen.insert(hash, second.clone()) {
            return Err(SplitError::Duplicate { first, second });
        }
    }
    Ok(())
}

/// Hash of problems with their answers.
fn hash<'a>(tasks: impl Iterator<Item = &'a Task>) -> String {
    let mut hasher = blake3::Hasher::new();
    for task in tasks {
        hasher.update(task.content_hash().as_str().as_bytes());
        hasher.update(task.answer.as_bytes());
        hasher.update(&[0]);
    }
    hasher.finalize().to_hex().to_string()
}

/// The right answer of a problem by which a rollout with this basis was judged, as long as the files of the
/// configuration have it.
pub(crate) fn gold_of(loaded: &Loaded, problem: &ContentHash, basis: &Basis) -> Option<String> {
    let config = &loaded.config;
    let own = std::iter::once(&config.tasks.path).chain(&config.tasks.also);
    let own = own.map(|path| (path, &config.tasks.columns));
    let suites = config.retention.iter();
    let suites = suites.map(|suite| (&suite.path, &suite.columns));
    own.chain(suites).find_map(|(path, columns)| {
        let (text, name) = source(loaded, "tasks.path", path).ok()?;
        let tasks = load_tasks(&text, &name, columns).ok()?;
        let found = tasks
            .into_iter()
            .find(|task| task.content_hash() == *problem && basis.has_answer_of(task));
        Some(found?.answer)
    })
}

/// The text of a problem file that `field` names, and what it is called in messages.
fn source(loaded: &Loaded, field: &str, path: &str) -> Result<(String, String), SplitError> {
    if let Some((name, text)) = builtin::TASKS.iter().find(|(name, _)| *name == path) {
        return Ok(((*text).to_owned(), format!("{name} (built in)")));
    }
    let path = loaded.resolve(path);
    let text = std::fs::read_to_string(&path).map_err(|source| SplitError::Read {
        field: field.to_owned(),
        path: path.clone(),
        source,
    })?;
    Ok((text, path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use crate::config::SplitConfig;

    #[test]
    fn splits_shrink_in_proportion_only_when_asked_and_never_below_what_a_run_needs() {
        let sizes = SplitConfig {
            evolve: 400,
            gate: 80,
            test: 120,
            shrink: true,
        };
        let fitted = sizes.fitted(300);
        assert_eq!((fitted.evolve, fitted.gate, fitted.test), (200, 40, 60));
        assert_eq!(sizes.fitted(600), sizes);
        assert_eq!(sizes.fitted(20), sizes, "a gate of 2 decides nothing");
        let fixed = SplitConfig {
            shrink: false,
            ..sizes
        };
        assert_eq!(fixed.fitted(300), fixed);
    }
}
