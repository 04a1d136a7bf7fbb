//! Parts of the report that are counted from rows.

use critic::{Critique, DIMENSIONS, Scoreboard};
use rollout::Usage;
use serde::{Deserialize, Serialize};

use super::{EvaluateRow, PatchRow};
use crate::config::PriceConfig;
use crate::gate::decide::Verdict;
use crate::gate::evidence::PassRate;

/// Accepted and rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Accepted.
    pub accepted: u32,
    /// Rejected by measurement.
    pub rejected: u32,
    /// Measured to the end without an answer.
    pub inconclusive: u32,
}

impl Tally {
    /// All that were measured to an end.
    pub fn decided(&self) -> u32 {
        self.accepted + self.rejected + self.inconclusive
    }
}

/// What the gate cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GateSection {
    /// Rollouts on gate problems, for whatever purpose.
    pub rollouts: i64,
    /// Those for each accepted patch or weight update; none without acceptance.
    pub rollouts_per_acceptance: Option<f64>,
    /// Decisions that were measured on the gate's problems: on patches, weights, removals, and the head beside
    /// the references. Each uses the same problems once more.
    #[serde(default)]
    pub decisions: usize,
}

/// What the critic's language model cost and gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CriticSection {
    /// Diagnoses that it was asked about.
    pub critiques: u32,
    /// Those of which no reply could be used.
    pub skipped: u32,
    /// Requests.
    pub calls: u32,
    /// Replies that could not be used.
    pub unusable: u32,
    /// Tokens that it read.
    pub prompt_tokens: u64,
    /// Tokens that it wrote.
    pub completion_tokens: u64,
    /// Whether the server left counts out and they were estimated.
    pub is_estimated: bool,
    /// Money, by `critic.llm.prices`; none without.
    pub cost: Option<f64>,
    /// Records that it gave.
    pub records: usize,
    /// Quotes, findings and suggestions that were dropped.
    pub dropped: usize,
    /// Rollouts about which it contradicts the rules.
    pub disagreements: usize,
}

impl CriticSection {
    pub(super) fn of(critiques: &[Critique], prices: Option<PriceConfig>) -> Self {
        let usage: Usage = critiques.iter().map(|c| &c.cost.usage).sum();
        let mut section = Self {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            is_estimated: usage.is_estimated,
            cost: prices.map(|prices| prices.cost_of(usage.prompt_tokens, usage.completion_tokens)),
            ..Self::default()
        };
        for critique in critiques {
            section.critiques += 1;
            section.skipped += u32::from(critique.skipped.is_some());
            section.calls += critique.cost.calls;
            section.unusable += critique.cost.unusable;
            section.records += critique.records.len();
            section.dropped += critique.dropped.len();
            section.disagreements += critique.disagreements.len();
        }
        section
    }
}

/// What the gate made of one dimension's patches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreRow {
    /// Dimension.
    pub dimension: String,
    /// Accepted patches.
    pub accepted: u32,
    /// Patches that were rejected or stayed inconclusive.
    pub rejected: u32,
    /// Mean of the posterior of acceptance, older decisions faded. The order of the next proposals goes by
    /// the same, with what cheap checks refused, what was removed and what was taken back as rejected.
    pub trust: f64,
}

/// The scoreboard after `decisions`.
pub(super) fn scores(decisions: &[PatchRow]) -> Vec<ScoreRow> {
    let decided = |row: &PatchRow| match row.verdict {
        Verdict::Accepted => Some(true),
        Verdict::Rejected { .. } if row.is_open => None,
        Verdict::Rejected { .. } | Verdict::Inconclusive { .. } => Some(false),
        Verdict::Deferred => None,
    };
    let all: Vec<(harness::Dimension, bool)> = decisions
        .iter()
        .filter_map(|row| {
            let mut dimensions = DIMENSIONS.into_iter();
            let dimension = dimensions.find(|known| known.to_string() == row.dimension)?;
            Some((dimension, decided(row)?))
        })
        .collect();
    let board = Scoreboard::of(all.iter().copied());
    let count = |dimension, is_accepted| {
        let counted = all
            .iter()
            .filter(|known| **known == (dimension, is_accepted));
        u32::try_from(counted.count()).unwrap_or(u32::MAX)
    };
    DIMENSIONS
        .into_iter()
        .map(|dimension| ScoreRow {
            dimension: dimension.to_string(),
            accepted: count(dimension, true),
            rejected: count(dimension, false),
            trust: board.score(dimension).trust(),
        })
        .collect()
}

/// A round in the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundCell {
    /// The round.
    pub round: u32,
    /// Harness version at its end.
    pub version: String,
    /// Weights at its end.
    pub policy: String,
    /// Their adapter; none for the base model.
    pub adapter: Option<String>,
    /// Share of solved problems.
    pub pass_at_1: f64,
    /// 95% interval.
    pub ci95: [f64; 2],
    /// Solved problems.
    pub correct: u32,
    /// Problems.
    pub n: u32,
    /// The round's own 2×2.
    pub matrix: Matrix,
}

impl RoundCell {
    /// Of a cell called `round 3` among all `cells`; none of another one.
    pub(super) fn of(row: &EvaluateRow, cells: &[EvaluateRow]) -> Option<Self> {
        let round = row.label.strip_prefix("round ")?.parse().ok()?;
        let PassRate {
            pass_at_1,
            ci95,
            correct,
            n,
        } = row.rate;
        let (version, policy) = (row.version.clone(), row.policy.clone());
        let adapter = row.adapter.clone();
        Some(Self {
            round,
            version,
            policy,
            adapter,
            pass_at_1,
            ci95,
            correct,
            n,
            matrix: Matrix::of(row, cells),
        })
    }
}

/// Sealed-test results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TestSection {
    /// Starting weights under the starting harness.
    pub baseline: Option<PassRate>,
    /// After each round.
    pub rounds: Vec<RoundCell>,
}

/// Weights × harness, each cell on the same problems.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    /// Starting weights, starting harness.
    pub old_weights_old_harness: Option<PassRate>,
    /// Starting weights, evolved harness.
    pub old_weights_new_harness: Option<PassRate>,
    /// Trained weights, starting harness.
    pub new_weights_old_harness: Option<PassRate>,
    /// Trained weights, evolved harness.
    pub new_weights_new_harness: Option<PassRate>,
    /// What the trained weights solve more under the evolved harness than under the starting one, as a
    /// share of the problems: what they owe to it. None without trained weights.
    pub harness_debt: Option<f64>,
}

impl Matrix {
    /// Of the end of a round, `now`, against the baseline. A cell is known by its harness and its weights,
    /// whatever round it was made in and whatever it was called then.
    fn of(now: &EvaluateRow, cells: &[EvaluateRow]) -> Self {
        let start = cells.iter().find(|cell| cell.label == "baseline");
        let rate = |harness: &EvaluateRow, weights: &EvaluateRow| {
            let mut cells = cells.iter();
            let cell = cells
                .find(|cell| cell.has_harness_of(harness) && cell.adapter == weights.adapter)?;
            Some(cell.rate)
        };
        let new_weights_old_harness = start.and_then(|start| rate(start, now));
        Self {
            old_weights_old_harness: start.map(|start| start.rate),
            old_weights_new_harness: start.and_then(|start| rate(now, start)),
            new_weights_old_harness,
            new_weights_new_harness: Some(now.rate),
            // Weights that weren't trained have come to depend on nothing.
            harness_debt: new_weights_old_harness
                .filter(|_| now.adapter.is_some())
                .map(|old| now.rate.pass_at_1 - old.pass_at_1),
        }
    }
}
