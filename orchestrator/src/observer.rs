//! What a run tells whoever watches it. The library prints nothing; the binary draws bars and lines
//! from these.

use std::time::Duration;

/// A stretch of work with a known size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What is being done, as in `round 1 · gate`.
    pub title: String,
    /// Units of it: rollouts or training steps.
    pub total: u64,
    /// What a unit is called.
    pub unit: &'static str,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A phase began.
    Began(Phase),
    /// One unit of the current phase is done.
    Advanced {
        /// Units found done in the journal or finished now.
        by: u64,
        /// Tokens generated or trained on, for the rate; none for a unit that this phase found done.
        tokens: Option<u64>,
        /// A short figure to show, such as the loss or the share solved.
        figure: String,
    },
    /// The current phase ended.
    Ended {
        /// Its wall time.
        took: Duration,
    },
    /// A line worth keeping.
    Line(String),
    /// Something the person should look at.
    Warning(String),
    /// The same, and that the run does nothing until it is over: what it waits for, and for how long.
    Waiting(String),
}

/// Receives notices; called from worker threads.
pub trait Observer: Send + Sync {
    /// Take one notice.
    fn notice(&self, notice: Notice);
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn notice(&self, _: Notice) {}
}
