//! What a run measured, from its store alone: the table, the 2×2, and every decision.

mod failures;
mod safeguards;

use std::collections::BTreeMap;

use critic::{Critique, DIMENSIONS, Disagreement, Effect, Foresight, Predicted, Scoreboard};
use serde::{Deserialize, Serialize};
use trainer::Evaluation;

use crate::gate::contest::Evidence;
use crate::gate::decide::{StageResult, Verdict};
use crate::gate::evidence::PassRate;
use crate::store::{SessionRow, Store, StoreError};

pub(crate) use self::failures::causes;
pub use self::safeguards::{
    Cause, Place, Point, ReferenceRow, RemovalRow, RetentionRow, RollbackRow,
};

/// Kinds of steps in the store.
pub mod kind {
    /// A diagnosis: clusters of failures.
    pub const DIAGNOSE: &str = "diagnose";
    /// What the critic's language model said about a diagnosis.
    pub const CRITIQUE: &str = "critique";
    /// A decision on a patch.
    pub const PATCH: &str = "decide_patch";
    /// A decision on weights.
    pub const WEIGHTS: &str = "decide_weights";
    /// A finished fine-tuning.
    pub const TRAIN: &str = "train";
    /// A cell of the table: weights × harness on the test split.
    pub const EVALUATE: &str = "evaluate";
    /// The adapter a finished fine-tuning gave, by data and options.
    pub const TRAINED: &str = "trained";
    /// A retention suite at the end of a round.
    pub const RETENTION: &str = "retention";
    /// A decision on the removal of an accepted patch.
    pub const REMOVAL: &str = "decide_removal";
    /// The head beside the start of the run or the best so far.
    pub const REFERENCE: &str = "reference";
    /// What a round or more had come to was taken back.
    pub const ROLLBACK: &str = "roll_back";
}

/// A cluster of failures, as a diagnosis found it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterRow {
    /// Root cause.
    pub root_cause: String,
    /// Dimension of the harness, or `none`.
    pub harness_dim: String,
    /// The rule that saw it.
    pub rule: String,
    /// Failed trajectories that show it.
    pub trajectories: usize,
}

/// A finished diagnosis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiagnoseRow {
    /// Round; 0 if the run was made before that was kept.
    #[serde(default)]
    pub round: u32,
    /// Harness version that was diagnosed.
    pub version: String,
    /// Rollouts looked at.
    pub rollouts: usize,
    /// Those that failed.
    pub failed: usize,
    /// Records dropped because their quote was not in the trajectory.
    pub dropped_records: usize,
    /// Failed rollouts by root cause; each counts once.
    #[serde(default)]
    pub causes: BTreeMap<String, usize>,
    /// What the failures have in common.
    pub clusters: Vec<ClusterRow>,
    /// Where rules and language model contradict each other.
    #[serde(default)]
    pub disagreements: Vec<Disagreement>,
    /// Proposals that were turned down unmeasured.
    #[serde(default)]
    pub refused: Vec<RefusedRow>,
}

/// A proposal that a cheap check turned down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRow {
    /// Dimension.
    pub dimension: String,
    /// What it would have changed.
    pub summary: String,
    /// Why it was turned down.
    pub reason: String,
}

/// What a patch promised for the problems of its diagnosis and what it measured, as shares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// Share of the failed problems that it should fix.
    pub gain: f64,
    /// Share of V_in's pairs that only the candidate solved.
    pub measured_gain: f64,
    /// Share of the solved problems that it put at risk.
    pub risk: f64,
    /// Share of V_out's pairs that only the incumbent solved.
    pub measured_loss: f64,
}

impl Promise {
    /// Of a prediction about `failed` and `solved` problems, and what the gate measured.
    pub fn of(predicted: &Predicted, failed: usize, solved: usize, totals: &StageResult) -> Self {
        let share = |count: usize, all: usize| count as f64 / all.max(1) as f64;
        let pairs = |count: u32, all: u32| f64::from(count) / f64::from(all.max(1));
        Self {
            gain: share(predicted.fixes.len(), failed),
            measured_gain: pairs(totals.delta_in.gained, totals.delta_in.pairs),
            risk: share(predicted.at_risk.len(), solved),
            measured_loss: pairs(totals.delta_out.lost, totals.delta_out.pairs),
        }
    }
}

/// A decision on a patch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatchRow {
    /// Round.
    pub round: u32,
    /// Cycle of the round, from 1.
    pub iteration: u32,
    /// Number of the candidate within the round.
    pub candidate: u32,
    /// Version it was to replace.
    pub parent: String,
    /// Version it became, if accepted.
    pub version: Option<String>,
    /// Dimension.
    pub dimension: String,
    /// What it changes.
    pub summary: String,
    /// Root cause it answers.
    pub root_cause: String,
    /// The patch operations.
    pub ops: serde_json::Value,
    /// What each stage or look measured.
    pub stages: Vec<StageResult>,
    /// e-values and level, in gate mode `sequential`.
    pub evidence: Option<Evidence>,
    /// Rollouts of the candidate's arm.
    pub rollouts: u32,
    /// The outcome.
    pub verdict: Verdict,
    /// Weights it was measured with.
    pub policy: String,
    /// Tasks of the diagnosis that it should fix, and those that it puts at risk.
    #[serde(default)]
    pub predicted: Predicted,
    /// The same as shares, beside what the gate measured; none where nothing was measured.
    #[serde(default)]
    pub promise: Option<Promise>,
    /// What became of the tasks of the diagnosis; none unless accepted.
    #[serde(default)]
    pub effect: Option<Effect>,
}

impl PatchRow {
    /// How well its prediction met what happened, if that was looked at.
    pub fn foresight(&self) -> Option<Foresight> {
        let effect = self.effect.as_ref()?;
        Some(Foresight::of(&self.predicted, effect))
    }
}

/// A decision on weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeightsRow {
    /// Round.
    pub round: u32,
    /// The adapter.
    pub adapter: String,
    /// Harness version both arms ran under.
    pub version: String,
    /// What each stage or look measured.
    pub stages: Vec<StageResult>,
    /// e-values and level, in gate mode `sequential`.
    pub evidence: Option<Evidence>,
    /// Rollouts of the candidate's arm.
    pub rollouts: u32,
    /// The outcome.
    pub verdict: Verdict,
}

/// A finished fine-tuning, or why there was none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainRow {
    /// Round.
    pub round: u32,
    /// The adapter, if one was trained.
    pub adapter: Option<String>,
    /// Why there was none.
    pub skipped: Option<String>,
    /// Trajectories trained on.
    pub trajectories: usize,
    /// Rollouts they were chosen from.
    pub gathered: usize,
    /// Optimizer steps.
    pub steps: usize,
    /// Loss of the first and the last step.
    pub loss: Option<(f64, f64)>,
    /// What was validated, where problems were held out for it.
    #[serde(default)]
    pub validation: Option<ValidationRow>,
    /// Tokens of the rows, over all epochs.
    pub tokens: u64,
    /// Tokens computed after sharing prefixes.
    pub computed_tokens: u64,
    /// Wall time of the training steps, in seconds.
    pub wall_s: f64,
}

/// What validation said during a fine-tuning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationRow {
    /// Problems that were held out.
    pub problems: usize,
    /// Rows of theirs.
    pub rows: usize,
    /// Losses on them, in order.
    pub evaluations: Vec<Evaluation>,
    /// Step whose adapter was kept.
    pub best_step: usize,
    /// Whether training ended before its last step.
    pub is_early: bool,
}

/// A cell of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluateRow {
    /// `baseline`, `round 1`, …, or a cell of the 2×2 such as `old_weights_new_harness`.
    pub label: String,
    /// Harness version.
    pub version: String,
    /// Weights.
    pub policy: String,
    /// Their adapter; none for the base model.
    pub adapter: Option<String>,
    /// The result.
    pub rate: PassRate,
    /// How the rollouts ended.
    pub exits: BTreeMap<String, u32>,
    /// Mean generated tokens of a rollout.
    pub mean_tokens: f64,
    /// Answers that the verifier could not decide within its budget; they score nothing.
    #[serde(default)]
    pub undecided: u32,
    /// Problems that aren't in the rate, since policy or sandbox failed on each attempt.
    #[serde(default)]
    pub left_out: u32,
}

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

/// What the gate cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GateSection {
    /// Rollouts on gate problems, for whatever purpose.
    pub rollouts: i64,
    /// Those for each accepted patch or weight update; none without acceptance.
    pub rollouts_per_acceptance: Option<f64>,
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
    /// Records that it gave.
    pub records: usize,
    /// Quotes, findings and suggestions that were dropped.
    pub dropped: usize,
    /// Rollouts about which it contradicts the rules.
    pub disagreements: usize,
}

impl CriticSection {
    fn of(critiques: &[Critique]) -> Self {
        let mut section = Self::default();
        for critique in critiques {
            let usage = &critique.cost.usage;
            section.critiques += 1;
            section.skipped += u32::from(critique.skipped.is_some());
            section.calls += critique.cost.calls;
            section.unusable += critique.cost.unusable;
            section.prompt_tokens += usage.prompt_tokens;
            section.completion_tokens += usage.completion_tokens;
            section.is_estimated |= usage.is_estimated;
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
    /// Mean of the posterior of acceptance, older decisions faded: what the next proposals' order
    /// goes by.
    pub trust: f64,
}

/// The scoreboard after `decisions`.
fn scores(decisions: &[PatchRow]) -> Vec<ScoreRow> {
    let decided = |row: &PatchRow| match row.verdict {
        Verdict::Accepted => Some(true),
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
}

/// Everything a run measured. `docs/report.md` documents the JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Run name.
    pub run: String,
    /// Whether every round is done.
    pub is_finished: bool,
    /// Sealed-test results.
    pub test: TestSection,
    /// The 2×2.
    pub matrix: Matrix,
    /// Patches.
    pub patches: Tally,
    /// Weight updates.
    pub weights: Tally,
    /// What the gate cost.
    pub gate: GateSection,
    /// What the critic's language model cost; none where it was never asked.
    pub critic: Option<CriticSection>,
    /// What the gate made of patches, by dimension.
    pub scoreboard: Vec<ScoreRow>,
    /// How well predictions met what happened, over all accepted patches; none without one.
    pub foresight: Option<Foresight>,
    /// Seconds of running, rests between sessions not counted.
    pub wall_s: i64,
    /// Rollouts made.
    pub rollouts: i64,
    /// Those of them that policy or sandbox kept from ending; they count nowhere else.
    pub left_out: i64,
    /// Tokens generated.
    pub generated_tokens: i64,
    /// Diagnoses in order.
    pub diagnoses: Vec<DiagnoseRow>,
    /// Patch decisions in order.
    pub patch_decisions: Vec<PatchRow>,
    /// Weight decisions in order.
    pub weight_decisions: Vec<WeightsRow>,
    /// Fine-tunings in order.
    pub trainings: Vec<TrainRow>,
    /// Rounds that began with the failures of the round before, although weights were trained between.
    pub saturated: Vec<u32>,
    /// Decisions on the removal of accepted patches, in order.
    pub removals: Vec<RemovalRow>,
    /// Retention suites in order, round by round.
    pub retention: Vec<RetentionRow>,
    /// The head beside the references, in order.
    pub references: Vec<ReferenceRow>,
    /// What was taken back, in order.
    pub rollbacks: Vec<RollbackRow>,
}

impl Report {
    /// Read everything from the store.
    ///
    /// # Errors
    /// When the database fails or a record can't be read.
    pub async fn read(store: &Store) -> Result<Self, StoreError> {
        let run = store.run().await?;
        let patch_decisions: Vec<PatchRow> = rows(store, kind::PATCH).await?;
        let weight_decisions: Vec<WeightsRow> = rows(store, kind::WEIGHTS).await?;
        let cells: Vec<EvaluateRow> = rows(store, kind::EVALUATE).await?;
        let rollbacks: Vec<RollbackRow> = rows(store, kind::ROLLBACK).await?;
        let critiques: Vec<Critique> = rows(store, kind::CRITIQUE).await?;
        let diagnoses: Vec<DiagnoseRow> = rows(store, kind::DIAGNOSE).await?;
        let totals = store.totals().await?;
        let tally = |verdicts: &mut dyn Iterator<Item = &Verdict>| {
            let mut tally = Tally::default();
            for verdict in verdicts {
                match verdict {
                    Verdict::Accepted => tally.accepted += 1,
                    Verdict::Rejected { .. } => tally.rejected += 1,
                    Verdict::Inconclusive { .. } => tally.inconclusive += 1,
                    Verdict::Deferred => {}
                }
            }
            tally
        };
        let cell = |label: &str| {
            cells
                .iter()
                .rev()
                .find(|c| c.label == label)
                .map(|c| c.rate)
        };
        let baseline = cell("baseline");
        let rounds: Vec<RoundCell> = cells.iter().filter_map(round_cell).collect();
        let last = rounds.last().map(|r| PassRate {
            pass_at_1: r.pass_at_1,
            ci95: r.ci95,
            correct: r.correct,
            n: r.n,
        });
        let is_finished = run.as_ref().is_some_and(|r| r.finished_at.is_some());
        let patches = tally(&mut patch_decisions.iter().map(|p| &p.verdict));
        let weights = tally(&mut weight_decisions.iter().map(|w| &w.verdict));
        let accepted = patches.accepted + weights.accepted;
        let gate = GateSection {
            rollouts: totals.gate_rollouts,
            rollouts_per_acceptance: (accepted > 0)
                .then(|| totals.gate_rollouts as f64 / f64::from(accepted)),
        };
        Ok(Self {
            run: run.map(|r| r.name).unwrap_or_default(),
            is_finished,
            matrix: Matrix {
                old_weights_old_harness: baseline,
                old_weights_new_harness: cell("old_weights_new_harness"),
                new_weights_old_harness: cell("new_weights_old_harness"),
                new_weights_new_harness: if is_finished { last } else { None },
            },
            test: TestSection { baseline, rounds },
            patches,
            weights,
            gate,
            critic: (!critiques.is_empty()).then(|| CriticSection::of(&critiques)),
            scoreboard: scores(&patch_decisions),
            foresight: patch_decisions
                .iter()
                .filter_map(PatchRow::foresight)
                .reduce(Foresight::and),
            wall_s: wall_seconds(&store.sessions().await?),
            rollouts: totals.rollouts,
            left_out: totals.left_out,
            generated_tokens: totals.completion_tokens,
            saturated: failures::saturated(&diagnoses, &weight_decisions, &rollbacks),
            diagnoses,
            patch_decisions,
            weight_decisions,
            trainings: rows(store, kind::TRAIN).await?,
            removals: rows(store, kind::REMOVAL).await?,
            retention: rows(store, kind::RETENTION).await?,
            references: rows(store, kind::REFERENCE).await?,
            rollbacks,
        })
    }
}

fn round_cell(row: &EvaluateRow) -> Option<RoundCell> {
    let round = row.label.strip_prefix("round ")?.parse().ok()?;
    let PassRate {
        pass_at_1,
        ci95,
        correct,
        n,
    } = row.rate;
    let (version, policy) = (row.version.clone(), row.policy.clone());
    let adapter = row.adapter.clone();
    Some(RoundCell {
        round,
        version,
        policy,
        adapter,
        pass_at_1,
        ci95,
        correct,
        n,
    })
}

async fn rows<T: serde::de::DeserializeOwned>(
    store: &Store,
    kind: &str,
) -> Result<Vec<T>, StoreError> {
    let parse = |row: crate::store::StepRow| {
        serde_json::from_str(&row.output).map_err(|source| StoreError::Record {
            key: row.key,
            source,
        })
    };
    store.steps(kind).await?.into_iter().map(parse).collect()
}

/// Seconds of running over all sessions.
pub fn wall_seconds(sessions: &[SessionRow]) -> i64 {
    sessions
        .iter()
        .map(|s| (s.ended_at.unwrap_or(s.seen_at) - s.started_at).max(0))
        .sum()
}
