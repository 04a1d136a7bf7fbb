//! The paper's rule, and what a decision can end with.

use serde::{Deserialize, Serialize};

use super::evidence::{Counts, Delta};

/// What one stage measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageResult {
    /// On problems the incumbent failed before.
    pub delta_in: Delta,
    /// On problems the incumbent solved before.
    pub delta_out: Delta,
}

impl StageResult {
    /// Of counts on V_in and V_out.
    pub fn of(failed: Counts, solved: Counts) -> Self {
        Self {
            delta_in: Delta::of(failed),
            delta_out: Delta::of(solved),
        }
    }

    /// All stages together.
    pub fn pooled(stages: &[Self]) -> Self {
        let sum = |side: fn(&Self) -> &Delta| {
            stages
                .iter()
                .map(|stage| side(stage).counts())
                .fold(Counts::default(), std::ops::Add::add)
        };
        Self::of(sum(|s| &s.delta_in), sum(|s| &s.delta_out))
    }

    /// δ_in > 0 and δ_out ≥ 0. Without any solved problem there is nothing to lose and δ_out is 0;
    /// without any failed one there is nothing to gain.
    pub fn holds(&self) -> bool {
        self.delta_in.gained > self.delta_in.lost && self.delta_out.gained >= self.delta_out.lost
    }

    /// The failing half of the rule in words, if one fails.
    pub fn objection(&self) -> Option<String> {
        let show = |d: &Delta| {
            format!("{:+.1} points ({})", 100.0 * d.estimate, d.counts())
        };
        if self.delta_in.gained <= self.delta_in.lost {
            Some(format!("δ_in is {}, not above 0", show(&self.delta_in)))
        } else if self.delta_out.gained < self.delta_out.lost {
            Some(format!("δ_out is {}, below 0", show(&self.delta_out)))
        } else {
            None
        }
    }

    /// Net pairs gained over both sides, for ranking candidates.
    pub fn net(&self) -> i64 {
        i64::from(self.delta_in.gained) - i64::from(self.delta_in.lost)
            + i64::from(self.delta_out.gained)
            - i64::from(self.delta_out.lost)
    }
}

/// Outcome of a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// The rule held in every stage; in mode `sequential`, the e-value reached its threshold while it
    /// held.
    Accepted,
    /// It failed in a stage, or a look showed harm or no prospect.
    Rejected {
        /// The stage or look, from 1; 0 if there was nothing to measure it on.
        stage: usize,
        /// Why, with the numbers.
        reason: String,
    },
    /// Mode `sequential` made all its pairs: the rule holds, but its evidence is too weak.
    Inconclusive {
        /// The numbers.
        reason: String,
    },
    /// It was not rejected, but a better candidate of the same cycle was accepted. It may be proposed
    /// again.
    Deferred,
}

impl Verdict {
    /// Why it was not accepted, where measurement says so.
    pub fn objection(&self) -> Option<String> {
        match self {
            Self::Rejected { stage: 0, reason } => Some(reason.clone()),
            Self::Rejected { stage, reason } => Some(format!("stage {stage}: {reason}")),
            Self::Inconclusive { reason } => Some(format!("inconclusive: {reason}")),
            Self::Accepted | Self::Deferred => None,
        }
    }
}

/// Apply the rule to stages measured so far: `None` while more stages are to come.
pub fn verdict(measured: &[StageResult], stages: usize) -> Option<Verdict> {
    for (index, stage) in measured.iter().enumerate() {
        if let Some(reason) = stage.objection() {
            return Some(Verdict::Rejected {
                stage: index + 1,
                reason,
            });
        }
    }
    (measured.len() >= stages).then_some(Verdict::Accepted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn delta(gained: u32, lost: u32) -> Delta {
        Delta::of(Counts {
            gained,
            lost,
            pairs: gained + lost,
        })
    }

    proptest! {
        #[test]
        fn accepted_exactly_when_the_papers_rule_holds_in_every_stage(
            counts in prop::collection::vec((0u32..9, 0u32..9, 0u32..9, 0u32..9), 1..4)
        ) {
            let stages: Vec<StageResult> = counts
                .iter()
                .map(|(a, b, c, d)| StageResult { delta_in: delta(*a, *b), delta_out: delta(*c, *d) })
                .collect();
            let holds = counts.iter().all(|(a, b, c, d)| a > b && c >= d);
            let verdict = verdict(&stages, stages.len());
            prop_assert_eq!(verdict == Some(Verdict::Accepted), holds);
        }
    }

    #[test]
    fn a_single_stage_does_not_confirm() {
        let good = StageResult {
            delta_in: delta(5, 1),
            delta_out: delta(0, 0),
        };
        assert_eq!(verdict(&[good], 2), None);
        assert_eq!(verdict(&[good, good], 2), Some(Verdict::Accepted));
        let null = StageResult {
            delta_in: delta(2, 2),
            delta_out: delta(1, 0),
        };
        let Some(Verdict::Rejected { stage, reason }) = verdict(&[good, null], 2) else {
            panic!("must be rejected");
        };
        assert_eq!(stage, 2);
        assert!(
            reason.contains("δ_in is +0.0 points (+2 −2 of 4)"),
            "{reason}"
        );
    }
}
