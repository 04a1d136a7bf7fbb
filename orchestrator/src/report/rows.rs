//! What the steps of a run leave for the report: a row for each diagnosis, decision, training and
//! evaluation.

use std::collections::BTreeMap;

use critic::{Disagreement, Effect, Foresight, Predicted};
use serde::{Deserialize, Serialize};
use trainer::Evaluation;

use super::Outcomes;
use crate::counted::{are, counted};
use crate::gate::decide::{StageResult, Verdict};
use crate::gate::decision::Evidence;
use crate::gate::evidence::PassRate;
use crate::gate::spend::Spending;

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
    /// Weights that it ran with; none in runs made before they were kept.
    #[serde(default)]
    pub policy: Option<String>,
    /// Rollouts looked at.
    pub rollouts: usize,
    /// Those that failed.
    pub failed: usize,
    /// Those with an answer that the verifier couldn't decide; 0 in runs made before they were counted.
    #[serde(default)]
    pub undecided: usize,
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

impl DiagnoseRow {
    /// Those with a right answer.
    pub fn solved(&self) -> usize {
        self.rollouts.saturating_sub(self.failed + self.undecided)
    }
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
    /// The same without the share that only the incumbent solved: what is left of a patch that changes nothing
    /// is 0 on average. None in runs made before it was kept.
    #[serde(default)]
    pub net_gain: Option<f64>,
    /// Share of the solved problems that it put at risk.
    pub risk: f64,
    /// Share of V_out's pairs that only the incumbent solved.
    pub measured_loss: f64,
    /// The same without the share that only the candidate solved.
    #[serde(default)]
    pub net_loss: Option<f64>,
}

impl Promise {
    /// Of a prediction about `failed` and `solved` problems, and what the gate measured.
    pub fn of(predicted: &Predicted, failed: usize, solved: usize, totals: &StageResult) -> Self {
        let share = |count: usize, all: usize| count as f64 / all.max(1) as f64;
        let pairs = |count: u32, all: u32| f64::from(count) / f64::from(all.max(1));
        Self {
            gain: share(predicted.fixes.len(), failed),
            measured_gain: pairs(totals.delta_in.gained, totals.delta_in.pairs),
            net_gain: Some(totals.delta_in.estimate),
            risk: share(predicted.at_risk.len(), solved),
            measured_loss: pairs(totals.delta_out.lost, totals.delta_out.pairs),
            net_loss: Some(0.0 - totals.delta_out.estimate),
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
    /// What its version fails of on these tasks, by the rules alone; none unless accepted, and in runs made
    /// before it was kept.
    #[serde(default)]
    pub outcomes: Option<Outcomes>,
    /// Whether it was turned down only since policy or sandbox kept too many of its pairs from being made:
    /// it may be proposed once more with the same weights, and counts in no score.
    #[serde(default)]
    pub is_open: bool,
    /// What both arms took over all stages; none in runs made before it was kept, and where nothing was
    /// measured.
    #[serde(default)]
    pub spending: Option<Spending>,
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
    /// What both arms took over all stages; none in runs made before it was kept, and where nothing was
    /// measured.
    #[serde(default)]
    pub spending: Option<Spending>,
    /// Whether they were turned down only since policy or sandbox kept too many of their pairs from being
    /// made: they are measured once more, and the next row says what came of it.
    #[serde(default)]
    pub is_open: bool,
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
    /// How they were chosen; `None` in runs of older versions.
    #[serde(default)]
    pub selection: Option<SelectionRow>,
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

/// How a round chose what to learn from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectionRow {
    /// Rollouts that were chosen from.
    pub gathered: usize,
    /// Those with a right answer.
    pub verified: usize,
    /// Right ones left out because no result of a tool gave their answer.
    pub lucky: usize,
    /// Right ones left out because another of the problem had said the same.
    pub repeated: usize,
    /// Right ones left out because enough of the problem were kept.
    pub surplus: usize,
    /// What is left.
    pub chosen: usize,
    /// Trajectories of earlier rounds that are learnt from again beside them.
    pub replayed: usize,
}

impl SelectionRow {
    /// What became of the round's own rollouts, in words; `most` are kept of a problem.
    pub(crate) fn told(&self, most: usize) -> String {
        let left_out = [
            (self.lucky, "by luck".to_owned()),
            (self.repeated, "repeated".to_owned()),
            (self.surplus, format!("above {most} a problem")),
        ];
        let left_out: Vec<String> = left_out
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, why)| format!("{count} {why}"))
            .collect();
        let mut told = format!(
            "{} of {} {} right, {} to learn from",
            self.verified,
            counted(self.gathered, "rollout"),
            are(self.verified),
            self.chosen
        );
        if !left_out.is_empty() {
            told.push_str(&format!(" ({} left out)", left_out.join(", ")));
        }
        told
    }
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
    /// Content id of its harness; none in runs of older versions.
    #[serde(default)]
    pub harness: Option<String>,
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

impl EvaluateRow {
    /// Label of the cell that is a round's place in the table.
    pub(crate) fn label_of(round: u32) -> String {
        format!("round {round}")
    }

    /// What a cell is called while it is made.
    pub(crate) fn title(label: &str) -> String {
        format!("test · {}", label.replace('_', " "))
    }

    /// In one line, under a title.
    pub(crate) fn outline(&self, title: &str) -> String {
        let mut note = String::new();
        for (number, what) in [
            (self.undecided, "undecided"),
            (
                self.left_out,
                "more left out for faults of policy or sandbox",
            ),
        ] {
            if number > 0 {
                note.push_str(&format!(", {number} {what}"));
            }
        }
        let PassRate {
            pass_at_1, ci95, n, ..
        } = self.rate;
        format!(
            "{title}: {:.1}% [{:.1}, {:.1}] of {} under {}{note}",
            100.0 * pass_at_1,
            100.0 * ci95[0],
            100.0 * ci95[1],
            counted(n, "problem"),
            self.version
        )
    }

    /// Whether both were made under the same harness. Of rows of older versions only the names of the
    /// versions tell, which differ after a rollback to the same files.
    pub(super) fn has_harness_of(&self, other: &Self) -> bool {
        match (&self.harness, &other.harness) {
            (Some(own), Some(other)) => own == other,
            _ => self.version == other.version,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gate::evidence::Counts;

    #[test]
    fn a_patch_that_changes_nothing_gains_nothing_net() {
        let counts = |gained, lost| Counts {
            gained,
            lost,
            pairs: 40,
            ..Counts::default()
        };
        let measured = |failed, solved| {
            let totals = StageResult::of(failed, solved);
            Promise::of(&Predicted::default(), 4, 6, &totals)
        };
        // At a rate of one half a quarter of the pairs differ either way.
        let idle = measured(counts(10, 10), counts(10, 10));
        assert_eq!((idle.measured_gain, idle.net_gain), (0.25, Some(0.0)));
        assert_eq!((idle.measured_loss, idle.net_loss), (0.25, Some(0.0)));
        let trade = measured(counts(20, 10), counts(2, 10));
        assert_eq!((trade.net_gain, trade.net_loss), (Some(0.25), Some(0.2)));
    }

    #[test]
    fn rows_of_earlier_versions_are_read() {
        let delta = |gained: u32| json!({"estimate": 0.5, "low": 0.1, "high": 0.8, "gained": gained, "lost": 0, "pairs": 4});
        let stages = json!([{"delta_in": delta(2), "delta_out": delta(0)}]);
        let verdict = json!({"verdict": "accepted"});
        let weights = json!({"round": 1, "adapter": "a", "version": "v1", "stages": stages,
            "evidence": null, "rollouts": 8, "verdict": verdict});
        let weights: WeightsRow = serde_json::from_value(weights).expect("a row");
        assert_eq!((weights.spending, weights.is_open), (None, false));
        let stage = weights.stages[0];
        assert_eq!((stage.delta_in.gained, stage.delta_in.gone), (2, 0));
        assert_eq!((stage.spending, stage.spending_by_side), (None, None));
        let patch = json!({"round": 1, "iteration": 1, "candidate": 1, "parent": "v1",
            "version": "v2", "dimension": "P", "summary": "s", "root_cause": "r", "ops": [],
            "stages": stages, "evidence": null, "rollouts": 8, "verdict": verdict, "policy": "p",
            "promise": {"gain": 0.5, "measured_gain": 0.25, "risk": 0.0, "measured_loss": 0.0}});
        let patch: PatchRow = serde_json::from_value(patch).expect("a row");
        assert_eq!((patch.spending, patch.is_open), (None, false));
        assert_eq!((patch.effect, patch.outcomes), (None, None));
        let promise = patch.promise.expect("a promise");
        assert_eq!((promise.net_gain, promise.net_loss), (None, None));
    }
}
