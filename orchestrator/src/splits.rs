//! Three disjoint sets of problems, told apart by content.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rollout::task::{Split, Task, TaskError, load_tasks};

use crate::builtin;
use crate::config::Loaded;

/// Why the problems can't be split.
#[derive(Debug, thiserror::Error)]
pub enum SplitError {
    /// A problem file could not be read.
    #[error("tasks.path: cannot read {path} (built-in sets: {})", builtin::TASKS.map(|t| t.0).join(", "))]
    Read {
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
    /// When a file can't be read, has a bad line or a repeated problem, or there are too few.
    pub fn read(loaded: &Loaded) -> Result<Self, SplitError> {
        let tasks = &loaded.config.tasks;
        let mut all: Vec<Task> = Vec::new();
        for path in std::iter::once(&tasks.path).chain(&tasks.also) {
            let (text, name) = source(loaded, path)?;
            let read = load_tasks(&text, &name, &tasks.columns)?;
            if read.is_empty() {
                return Err(SplitError::Empty { path: name });
            }
            all.extend(read);
        }
        Self::check_distinct(&all)?;
        Self::deal(all, loaded)
    }

    /// Check that no two problems have the same text.
    ///
    /// # Errors
    /// [`SplitError::Duplicate`] names the first two that have.
    pub fn check_distinct(tasks: &[Task]) -> Result<(), SplitError> {
        let mut seen = BTreeMap::new();
        for task in tasks {
            let hash = task.content_hash();
            if let Some(first) = seen.insert(hash.as_str().to_owned(), task.id.as_str().to_owned())
            {
                let second = task.id.as_str().to_owned();
                return Err(SplitError::Duplicate { first, second });
            }
        }
        Ok(())
    }

    /// Problems that are scored, and none to learn from or to decide on.
    pub fn only_test(test: Vec<Task>) -> Self {
        Self {
            evolve: Vec::new(),
            gate: Vec::new(),
            available: test.len(),
            hash: hash(&test),
            test,
        }
    }

    fn deal(mut all: Vec<Task>, loaded: &Loaded) -> Result<Self, SplitError> {
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
        // By hash: an order that depends on neither the file's order nor on anything else.
        all.sort_by_cached_key(|task| task.content_hash().as_str().to_owned());
        let hash = hash(&all);
        let mut rest = all.split_off(sizes.test);
        rest.shuffle(&mut ChaCha8Rng::seed_from_u64(loaded.config.run.seed));
        let mut gate = rest.split_off(sizes.evolve);
        gate.truncate(sizes.gate);
        Ok(Self {
            evolve: rest,
            gate,
            test: all,
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
}

/// Hash of problems with their answers.
fn hash(tasks: &[Task]) -> String {
    let mut hasher = blake3::Hasher::new();
    for task in tasks {
        hasher.update(task.content_hash().as_str().as_bytes());
        hasher.update(task.answer.as_bytes());
        hasher.update(&[0]);
    }
    hasher.finalize().to_hex().to_string()
}

fn source(loaded: &Loaded, path: &str) -> Result<(String, String), SplitError> {
    if let Some((name, text)) = builtin::TASKS.iter().find(|(name, _)| *name == path) {
        return Ok(((*text).to_owned(), format!("{name} (built in)")));
    }
    let path = loaded.resolve(path);
    let text = std::fs::read_to_string(&path).map_err(|source| SplitError::Read {
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
