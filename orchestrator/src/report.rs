//! What a run measured, from its store alone: the table, the 2×2, and every decision.

mod failures;
mod outcomes;
mod rows;
mod safeguards;
mod sections;

use critic::{Critique, Foresight};
use serde::{Deserialize, Serialize};

use crate::budget::Terms;
use crate::gate::decide::Verdict;
use crate::left_out::LeftOutRow;
use crate::store::{SessionRow, Store, StoreError};

pub use self::failures::{Likeness, SaturationRow};
pub use self::outcomes::{FailureRow, Outcomes, Source};
pub use self::rows::{
    ClusterRow, DiagnoseRow, EvaluateRow, PatchRow, Promise, RefusedRow, SelectionRow, TrainRow,
    ValidationRow, WeightsRow,
};
pub use self::safeguards::{
    BeginRow, Cause, Place, Point, ReferenceRow, RemovalRow, RetentionRow, RollbackRow,
};
pub use self::sections::{
    CriticSection, GateSection, Matrix, RoundCell, ScoreRow, Tally, TestSection,
};

/// Kinds of steps in the store.
pub mod kind {
    /// What a round started from.
    pub const BEGIN: &str = "begin";
    /// A diagnosis: clusters of failures.
    pub const DIAGNOSE: &str = "diagnose";
    /// What the critic's language model said about a diagnosis.
    pub const CRITIQUE: &str = "critique";
    /// What the cheap checks that run something say of a proposal: the reason to turn it down, if any.
    pub const CHECK: &str = "check";
    /// A decision on a patch.
    pub const PATCH: &str = "decide_patch";
    /// A decision on weights.
    pub const WEIGHTS: &str = "decide_weights";
    /// What a round chose to learn from.
    pub const SELECTION: &str = "select";
    /// What a round's training leaves out.
    pub const LEFT_OUT: &str = "left_out";
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

/// Everything a run measured. `docs/report.md` documents the JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Run name.
    pub run: String,
    /// Whether every round is done.
    pub is_finished: bool,
    /// Sealed-test results.
    pub test: TestSection,
    /// The 2×2 of the last round that was scored.
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
    /// Those of them that policy or sandbox kept from ending; they count nowhere else, but in comparisons
    /// of two arms.
    pub left_out: i64,
    /// Tokens generated.
    pub generated_tokens: i64,
    /// Diagnoses in order.
    pub diagnoses: Vec<DiagnoseRow>,
    /// What the rollouts of each version fail of, with each weights that it ran with.
    pub failures: Vec<FailureRow>,
    /// Patch decisions in order.
    pub patch_decisions: Vec<PatchRow>,
    /// Weight decisions in order.
    pub weight_decisions: Vec<WeightsRow>,
    /// Fine-tunings in order.
    pub trainings: Vec<TrainRow>,
    /// What they left out, round by round; nothing of a round that left out nothing.
    pub left_out_rows: Vec<LeftOutRow>,
    /// Rounds that are shown to have begun with the failures of the round before, although weights were
    /// trained between.
    pub saturated: Vec<u32>,
    /// The comparisons behind it, in order.
    pub saturation: Vec<SaturationRow>,
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
        let patch_decisions: Vec<PatchRow> = rows_of(store, kind::PATCH).await?;
        let weight_decisions: Vec<WeightsRow> = rows_of(store, kind::WEIGHTS).await?;
        let cells: Vec<EvaluateRow> = rows_of(store, kind::EVALUATE).await?;
        let rollbacks: Vec<RollbackRow> = rows_of(store, kind::ROLLBACK).await?;
        let critiques: Vec<Critique> = rows_of(store, kind::CRITIQUE).await?;
        let diagnoses: Vec<DiagnoseRow> = rows_of(store, kind::DIAGNOSE).await?;
        let saturation = failures::saturation(&diagnoses, &weight_decisions, &rollbacks);
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
        let baseline = cells.iter().find(|cell| cell.label == "baseline");
        let baseline = baseline.map(|cell| cell.rate);
        let rounds = cells.iter().filter_map(|row| RoundCell::of(row, &cells));
        let rounds: Vec<RoundCell> = rounds.collect();
        let is_finished = run.as_ref().is_some_and(|r| r.finished_at.is_some());
        let critic_prices = run.as_ref().and_then(|run| Terms::saved(run).critic_prices);
        let patches = tally(&mut patch_decisions.iter().map(|p| &p.verdict));
        // Of those that are measured once more the next row says what came of it.
        let settled = weight_decisions.iter().filter(|row| !row.is_open);
        let weights = tally(&mut settled.map(|row| &row.verdict));
        let accepted = patches.accepted + weights.accepted;
        let removals: Vec<RemovalRow> = rows_of(store, kind::REMOVAL).await?;
        let references: Vec<ReferenceRow> = rows_of(store, kind::REFERENCE).await?;
        let measured = patch_decisions.iter().map(|row| &row.stages);
        let measured = measured.chain(weight_decisions.iter().map(|row| &row.stages));
        let measured = measured.chain(removals.iter().map(|row| &row.stages));
        let gate = GateSection {
            rollouts: totals.gate_rollouts,
            rollouts_per_acceptance: (accepted > 0)
                .then(|| totals.gate_rollouts as f64 / f64::from(accepted)),
            decisions: measured.filter(|stages| !stages.is_empty()).count() + references.len(),
        };
        Ok(Self {
            run: run.map(|r| r.name).unwrap_or_default(),
            is_finished,
            matrix: match rounds.last() {
                Some(last) => last.matrix.clone(),
                None => Matrix {
                    old_weights_old_harness: baseline,
                    ..Matrix::default()
                },
            },
            test: TestSection { baseline, rounds },
            patches,
            weights,
            gate,
            critic: (!critiques.is_empty()).then(|| CriticSection::of(&critiques, critic_prices)),
            scoreboard: sections::scores(&patch_decisions),
            foresight: patch_decisions
                .iter()
                .filter_map(PatchRow::foresight)
                .reduce(Foresight::and),
            wall_s: wall_seconds(&store.sessions().await?),
            rollouts: totals.rollouts,
            left_out: totals.left_out,
            generated_tokens: totals.completion_tokens,
            saturated: saturation
                .iter()
                .filter(|row| row.verdict == Likeness::Alike)
                .map(|row| row.round)
                .collect(),
            saturation,
            failures: outcomes::by_version(&diagnoses, &patch_decisions, &cells),
            diagnoses,
            patch_decisions,
            weight_decisions,
            trainings: rows_of(store, kind::TRAIN).await?,
            left_out_rows: rows_of(store, kind::LEFT_OUT).await?,
            removals,
            retention: rows_of(store, kind::RETENTION).await?,
            references,
            rollbacks,
        })
    }
}

/// Everything of one kind, in the order it was done.
pub(crate) async fn rows_of<T: serde::de::DeserializeOwned>(
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

/// Seconds of running over all sessions; of those that don't say, by the time of day.
pub fn wall_seconds(sessions: &[SessionRow]) -> i64 {
    let by_day = |s: &SessionRow| (s.ended_at.unwrap_or(s.seen_at) - s.started_at).max(0);
    let ran = |s: &SessionRow| s.ran_s.unwrap_or_else(|| by_day(s));
    sessions.iter().map(ran).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn every_decision_that_used_the_gates_problems_is_counted() {
        let here = tempfile::tempdir().expect("directory");
        let store = Store::open(here.path()).await.expect("a store");
        let delta =
            json!({"estimate": 0.5, "low": 0.1, "high": 0.8, "gained": 2, "lost": 0, "pairs": 4});
        let stages = json!([{"delta_in": delta, "delta_out": delta}]);
        let decided = |stages: &serde_json::Value| {
            json!({"round": 1, "iteration": 1, "candidate": 1, "parent": "v1", "version": null, "dimension": "P",
                "summary": "s", "root_cause": "r", "ops": [], "stages": stages, "evidence": null, "rollouts": 8,
                "verdict": {"verdict": "deferred"}, "policy": "p"})
        };
        let weights = json!({"round": 1, "adapter": "a", "version": "v1", "stages": stages, "evidence": null,
            "rollouts": 8, "verdict": {"verdict": "accepted"}});
        let removal = json!({"round": 2, "removes": "v2", "parent": "v2", "version": null, "dimension": "P",
            "summary": "s", "stages": stages, "evidence": null, "rollouts": 8,
            "verdict": {"verdict": "deferred"}, "policy": "p"});
        for (key, kind, row) in [
            ("measured", kind::PATCH, decided(&stages)),
            ("nothing to measure on", kind::PATCH, decided(&json!([]))),
            ("weights", kind::WEIGHTS, weights),
            ("removal", kind::REMOVAL, removal),
        ] {
            let recorded = store.record_step(key, kind, 1, &row, 0).await;
            recorded.expect("a step");
        }
        let report = Report::read(&store).await.expect("a report");
        assert_eq!(report.gate.decisions, 3);
    }

    #[test]
    fn a_clock_that_is_set_makes_no_run_longer_or_shorter() {
        let session = |started_at: i64, seen_at: i64, ran_s: Option<i64>| SessionRow {
            started_at,
            seen_at,
            ended_at: None,
            process: 1,
            note: None,
            ran_s,
        };
        // From 1970 to the right time, back by an hour, and as an earlier version kept it.
        let sessions = [
            session(20, 1_760_000_000, Some(90)),
            session(1_760_003_600, 1_760_000_030, Some(30)),
            session(100, 160, None),
        ];
        assert_eq!(wall_seconds(&sessions), 180);
        assert_eq!(wall_seconds(&sessions[2..]), 60);
    }
}
