//! A decision that was made: its numbers and its end.

use serde::{Deserialize, Serialize};

use super::decide::{StageResult, Verdict};
use super::martingale::{Test, rounded};
use super::question::Question;
use super::spend::Spending;

/// What a decision that looks adds to its stages: mode `sequential`, and removals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The decision's place in the run, and its level.
    pub test: Test,
    /// e-value for benefit after each look; of a removal, for losing less than its margin.
    pub benefit: Vec<f64>,
    /// e-value for harm on V_out after each look.
    pub harm: Vec<f64>,
}

/// A candidate's decision: its numbers and its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What was asked of it.
    pub question: Question,
    /// What each stage measured.
    pub stages: Vec<StageResult>,
    /// e-values and level, in mode `sequential`; none where there was nothing to measure on.
    pub evidence: Option<Evidence>,
    /// The outcome.
    pub verdict: Verdict,
    /// Whether it was turned down since policy or sandbox kept too many of its pairs from being made, or the
    /// incumbent left them undecided, which says little about it.
    pub is_unmeasured: bool,
    /// Rollouts of its own arm.
    pub rollouts: u32,
}

impl Decision {
    /// All stages together.
    pub fn totals(&self) -> StageResult {
        StageResult::pooled(&self.stages)
    }

    /// What both arms took; none in simulations.
    pub fn spending(&self) -> Option<Spending> {
        self.totals().spending
    }

    /// Deltas with intervals, and the e-value where there is one, for a line of progress.
    pub fn figures(&self) -> String {
        let StageResult {
            delta_in,
            delta_out,
            ..
        } = self.totals();
        let deltas = self.question.sides("δ", delta_in, delta_out);
        match self.evidence.as_ref().map(|e| (e, e.benefit.last())) {
            Some((evidence, Some(benefit))) => format!(
                "{deltas}, e-value {} of {:.0}",
                rounded(*benefit),
                1.0 / evidence.test.level
            ),
            _ => deltas,
        }
    }

    /// Counts of every stage, level and e-values, and what both arms took, in one line for the history.
    pub fn detail(&self) -> String {
        let mut parts: Vec<String> = self
            .stages
            .iter()
            .enumerate()
            .map(|(number, stage)| {
                let (failed, solved) = (stage.delta_in.counts(), stage.delta_out.counts());
                let counts = self.question.sides("", failed, solved);
                format!("stage {}: {counts}", number + 1)
            })
            .collect();
        if let Some(Evidence { test, benefit, .. }) = &self.evidence {
            let last = benefit.last().copied().unwrap_or(1.0);
            parts.push(format!(
                "test {} at level {:.2e} after {} acceptances: e-value {}",
                test.number,
                test.level,
                test.discoveries,
                rounded(last)
            ));
        }
        parts.extend(self.spending().map(|spending| spending.to_string()));
        parts.join("; ")
    }
}
