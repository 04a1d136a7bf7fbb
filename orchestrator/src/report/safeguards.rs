//! Rows about what guards a run's gains: looks at what it may have lost, and what was taken back.

use serde::{Deserialize, Serialize};

use crate::gate::decide::{StageResult, Verdict};
use crate::gate::decision::Evidence;
use crate::gate::evidence::PassRate;
use crate::gate::loss::Loss;
use crate::gate::spend::Spending;

/// A harness version with weights, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The version.
    pub version: String,
    /// The weights' adapter; none for the base model.
    pub adapter: Option<String>,
}

impl std::fmt::Display for Place {
    /// As in `v3 with the base weights`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.adapter {
            None => write!(f, "{} with the base weights", self.version),
            Some(adapter) => write!(f, "{} with weights {adapter}", self.version),
        }
    }
}

/// A decision on the removal of an accepted patch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemovalRow {
    /// Round.
    pub round: u32,
    /// Version whose patch was tried without.
    pub removes: String,
    /// Version that it was taken out of.
    pub parent: String,
    /// Version that is without it; none unless accepted.
    pub version: Option<String>,
    /// Dimension.
    pub dimension: String,
    /// What the patch had changed.
    pub summary: String,
    /// What each look measured: on all gate problems, as `delta_out`.
    pub stages: Vec<StageResult>,
    /// e-values and level.
    pub evidence: Option<Evidence>,
    /// Rollouts without the patch.
    pub rollouts: u32,
    /// The outcome.
    pub verdict: Verdict,
    /// Weights it was measured with.
    pub policy: String,
    /// What both arms took over all looks; none in runs made before it was kept, and where nothing was
    /// measured.
    #[serde(default)]
    pub spending: Option<Spending>,
    /// Whether it could not be tried at all; the verdict says why.
    #[serde(default)]
    pub is_untested: bool,
}

/// A retention suite at the end of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetentionRow {
    /// Round.
    pub round: u32,
    /// The suite.
    pub suite: String,
    /// What the round started from.
    pub before: Place,
    /// What it came to.
    pub after: Place,
    /// Solved problems under the former.
    pub rate_before: PassRate,
    /// Solved problems under the latter.
    pub rate_after: PassRate,
    /// Share of the problems that may be lost.
    pub max_drop: f64,
    /// Whether more is shown to be.
    pub loss: Loss,
    /// Rollouts of both arms.
    pub rollouts: usize,
}

impl RetentionRow {
    /// In one line.
    pub fn outline(&self) -> String {
        format!(
            "retention suite {}: {:.1}% before, {:.1}% after, {:.1} points may be lost: {}",
            self.suite,
            100.0 * self.rate_before.pass_at_1,
            100.0 * self.rate_after.pass_at_1,
            100.0 * self.max_drop,
            self.loss.figures()
        )
    }
}

/// What a round started from, kept so that it starts from there again when the run goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginRow {
    /// Round.
    pub round: u32,
    /// The version.
    pub version: String,
}

/// What made the run go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A retention suite lost too much in the round.
    Retention,
    /// The head is worse than what the run stood on before.
    Reference,
    /// A person put another harness in its place.
    Hand,
}

/// What the head is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// The best that the run ever stood on.
    Best,
    /// Where it began.
    Start,
}

impl Point {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Start => "start",
        }
    }
}

/// The head beside a reference, on all gate problems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferenceRow {
    /// Round.
    pub round: u32,
    /// Which reference.
    pub point: Point,
    /// What it is.
    pub reference: Place,
    /// What the run stands on.
    pub head: Place,
    /// Solved problems under the reference.
    pub rate_reference: PassRate,
    /// Solved problems under the head.
    pub rate_head: PassRate,
    /// Whether the head is shown to be worse.
    pub loss: Loss,
    /// Whether the head has solved more; `None` in runs made before it was kept.
    #[serde(default)]
    pub has_solved_more: Option<bool>,
    /// Rollouts of both arms.
    pub rollouts: usize,
}

impl ReferenceRow {
    /// In one line.
    pub fn outline(&self) -> String {
        let Self {
            reference, head, ..
        } = self;
        let point = match self.point {
            Point::Best => "the best so far",
            Point::Start => "where the run began",
        };
        format!(
            "{head} beside {point}, {reference}, on gate problems: {:.1}% beside {:.1}%, {}",
            100.0 * self.rate_head.pass_at_1,
            100.0 * self.rate_reference.pass_at_1,
            self.loss.figures()
        )
    }
}

/// The run went back to what it stood on before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RollbackRow {
    /// Round.
    pub round: u32,
    /// What made it.
    pub cause: Cause,
    /// What the run stood on.
    pub from: Place,
    /// What it went back to.
    pub to: Place,
    /// The version that has the old harness again; none if only weights went back.
    pub version: Option<String>,
    /// Versions whose patches were taken back.
    pub undone: Vec<String>,
    /// Why, with the numbers.
    pub reason: String,
}

impl RollbackRow {
    /// In one line.
    pub fn outline(&self) -> String {
        let made = match &self.version {
            Some(version) if *version != self.to.version => format!(" as {version}"),
            _ => String::new(),
        };
        let how = match self.cause {
            Cause::Retention | Cause::Reference => "rolled back",
            // A person's own commit goes back to nothing.
            Cause::Hand if made.is_empty() => "changed by hand",
            Cause::Hand => "rolled back by hand",
        };
        format!(
            "{how} from {} to {}{made}: {}",
            self.from, self.to, self.reason
        )
    }
}
