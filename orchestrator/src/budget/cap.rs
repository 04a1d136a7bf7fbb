//! The limits of a whole run one by one, and the words for them.

use std::fmt;

use crate::counted::counted;
use crate::gate::spend::digits;

/// What a limit of a whole run is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// Seconds of running.
    Seconds,
    /// Rollouts.
    Rollouts,
    /// Prompt and generated tokens.
    Tokens,
    /// Money.
    Cost,
}

impl Cap {
    pub(super) const ALL: [Self; 4] = [Self::Seconds, Self::Rollouts, Self::Tokens, Self::Cost];

    /// Its field in the configuration.
    pub fn field(self) -> &'static str {
        match self {
            Self::Seconds => "budget.run_seconds",
            Self::Rollouts => "budget.run_rollouts",
            Self::Tokens => "budget.run_tokens",
            Self::Cost => "budget.run_cost",
        }
    }

    /// So much of it, as in `3 rollouts`. Counts beyond 2^53 are rounded.
    pub(super) fn shown(self, amount: f64) -> String {
        match self {
            Self::Seconds => format!("{amount:.0} s"),
            Self::Rollouts => counted(format!("{amount:.0}"), "rollout"),
            Self::Tokens => counted(format!("{amount:.0}"), "token"),
            Self::Cost => format!("cost {}", digits(amount)),
        }
    }
}

/// A limit of a run, and what is spent of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CapUse {
    /// What the limit is on.
    pub cap: Cap,
    /// The limit.
    pub limit: f64,
    /// What is spent.
    pub spent: f64,
}

impl CapUse {
    /// Whether nothing is left.
    pub fn is_reached(&self) -> bool {
        self.spent >= self.limit
    }

    /// Why the run stops: the field, the numbers, and by how much the limit was exceeded.
    pub fn used_up(&self) -> String {
        let field = self.cap.field();
        let over = self.spent - self.limit;
        if over > 0.0 {
            let over = self.cap.shown(over);
            return format!("{field} is used up: {self}, {over} beyond it");
        }
        format!("{field} is used up: {self}")
    }
}

impl fmt::Display for CapUse {
    /// As in `7 of 10 rollouts`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.cap.shown(self.limit);
        match self.cap {
            Cap::Cost => {
                let limit = digits(self.limit);
                write!(f, "cost {} of {limit}", digits(self.spent))
            }
            _ => write!(f, "{:.0} of {limit}", self.spent),
        }
    }
}
