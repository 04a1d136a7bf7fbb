//! Stopping a run in an orderly way: a signal, a stop file, or a limit of the run that is reached.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::budget::{Cap, CapUse, RunBudget};

/// Why a run stops before its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StopReason {
    /// SIGINT or SIGTERM.
    Signal,
    /// The file `stop` in the run's directory.
    File,
    /// A limit of the whole run in `budget`.
    Cap(CapUse),
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal => f.write_str("a signal asked for it"),
            Self::File => f.write_str("the file `stop` stands in the run's directory"),
            Self::Cap(used) => f.write_str(&used.used_up()),
        }
    }
}

/// Asked before every unit of work.
#[derive(Debug)]
pub struct Stop {
    signal: AtomicBool,
    file: PathBuf,
    budget: RunBudget,
}

impl Stop {
    /// Stop for a signal, for `file`, or when the budget is used up; none has no limits.
    pub fn new(file: PathBuf, budget: Option<RunBudget>) -> Self {
        Self {
            signal: AtomicBool::new(false),
            file,
            budget: budget.unwrap_or_default(),
        }
    }

    /// A signal arrived.
    pub fn signal(&self) {
        self.signal.store(true, Ordering::SeqCst);
    }

    /// What the run may spend.
    pub fn budget(&self) -> &RunBudget {
        &self.budget
    }

    /// Whether to stop now, whatever comes next.
    pub fn reason(&self) -> Option<StopReason> {
        if self.signal.load(Ordering::SeqCst) {
            Some(StopReason::Signal)
        } else if let Some(used) = self.budget.reached(&[Cap::Seconds]) {
            Some(StopReason::Cap(used))
        } else if self.file.exists() {
            Some(StopReason::File)
        } else {
            None
        }
    }

    /// Whether to stop before what would take rollouts or tokens. What takes none goes on: a training may still
    /// learn from the last rollouts that could be paid.
    pub fn reason_to_save(&self) -> Option<StopReason> {
        let caps = [Cap::Rollouts, Cap::Tokens, Cap::Cost];
        self.budget.reached(&caps).map(StopReason::Cap)
    }

    /// The same reason with the numbers of now, once what was in flight has been stored.
    pub fn settled(&self, reason: StopReason) -> StopReason {
        match reason {
            StopReason::Cap(known) => StopReason::Cap(self.budget.used(known.cap).unwrap_or(known)),
            StopReason::Signal | StopReason::File => reason,
        }
    }
}
