//! Stopping a run in an orderly way: a signal, a stop file, or the run's own time limit.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Why a run stops before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// SIGINT or SIGTERM.
    Signal,
    /// The file `stop` in the run's directory.
    File,
    /// `budget.run_seconds`.
    Time,
}

impl StopReason {
    /// For messages.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Signal => "a signal asked for it",
            Self::File => "the file `stop` stands in the run's directory",
            Self::Time => "budget.run_seconds is used up",
        }
    }
}

/// Asked before every unit of work.
#[derive(Debug)]
pub struct Stop {
    signal: AtomicBool,
    file: PathBuf,
    started: Instant,
    left: Option<Duration>,
}

impl Stop {
    /// Stop for a signal, for `file`, or when `left` has passed from now.
    pub fn new(file: PathBuf, left: Option<Duration>) -> Self {
        Self {
            signal: AtomicBool::new(false),
            file,
            started: Instant::now(),
            left,
        }
    }

    /// A signal arrived.
    pub fn signal(&self) {
        self.signal.store(true, Ordering::SeqCst);
    }

    /// Whether to stop now.
    pub fn reason(&self) -> Option<StopReason> {
        if self.signal.load(Ordering::SeqCst) {
            Some(StopReason::Signal)
        } else if self.left.is_some_and(|left| self.started.elapsed() >= left) {
            Some(StopReason::Time)
        } else if self.file.exists() {
            Some(StopReason::File)
        } else {
            None
        }
    }
}
