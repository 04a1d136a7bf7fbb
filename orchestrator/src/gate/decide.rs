//! The paper's rule, and what a decision can end with.

use serde::{Deserialize, Serialize};

use super::evidence::{Counts, Delta};
use super::spend::{Sides, Spending, excess};
use crate::config::Objective;

/// What one stage measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageResult {
    /// On problems the incumbent failed before.
    pub delta_in: Delta,
    /// On problems the incumbent solved before.
    pub delta_out: Delta,
    /// What both arms took; none in simulations, and in runs made before it was kept.
    #[serde(default)]
    pub spending: Option<Spending>,
    /// The same on V_in and on V_out alone.
    #[serde(default)]
    pub spending_by_side: Option<Sides>,
    /// Rollouts of the candidate's arm, of pairs without the incumbent's too; 0 in runs made before they were
    /// counted.
    #[serde(default)]
    pub rollouts: u32,
}

impl StageResult {
    /// Of counts on V_in and V_out, and of no other rollouts of the candidate than these have.
    pub fn of(failed: Counts, solved: Counts) -> Self {
        let all = failed + solved;
        Self {
            rollouts: all.pairs + all.undecided,
            delta_in: Delta::of(failed),
            delta_out: Delta::of(solved),
            spending: None,
            spending_by_side: None,
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
        let spending = stages.iter().filter_map(|stage| stage.spending);
        let by_side = stages.iter().filter_map(|stage| stage.spending_by_side);
        Self {
            spending: spending.reduce(std::ops::Add::add),
            spending_by_side: by_side.reduce(std::ops::Add::add),
            rollouts: stages.iter().map(|stage| stage.rollouts).sum(),
            ..Self::of(sum(|s| &s.delta_in), sum(|s| &s.delta_out))
        }
    }

    /// δ_in > 0 and δ_out ≥ 0, also if the pairs count as lost that the incumbent solved and the candidate
    /// leaves undecided, or was left out of. Without any solved problem there is nothing to lose and δ_out
    /// is 0; without any failed one there is nothing to gain.
    pub fn holds(&self) -> bool {
        self.objection().is_none()
    }

    /// The failing half of the rule in words, if one fails.
    pub fn objection(&self) -> Option<String> {
        let (failed, solved) = (
            self.delta_in.counts().at_worst(),
            self.delta_out.counts().at_worst(),
        );
        if failed.gained <= failed.lost {
            Some(format!("δ_in is {}", told(&self.delta_in, "not above 0")))
        } else if solved.gained < solved.lost {
            Some(format!("δ_out is {}", told(&self.delta_out, "below 0")))
        } else {
            None
        }
    }

    /// Why the candidate takes more than `objective` allows, with the numbers, if it does, where V_in has
    /// this share of the problems.
    pub fn excess(&self, objective: &Objective, share_in: f64) -> Option<String> {
        excess(objective, self.spending_by_side.as_ref()?, share_in)
    }

    /// With what its arms took on each side.
    #[must_use]
    pub(crate) fn with_spending(self, sides: Sides) -> Self {
        Self {
            spending: Some(sides.on_in + sides.on_out),
            spending_by_side: Some(sides),
            ..self
        }
    }

    /// Net pairs gained over both sides, for ranking candidates.
    pub fn net(&self) -> i64 {
        let all = (self.delta_in.counts() + self.delta_out.counts()).at_worst();
        i64::from(all.gained) - i64::from(all.lost)
    }
}

/// A difference with what is said of it, which also counts as lost what the candidate has no outcome for.
pub(super) fn told(delta: &Delta, verdict: &str) -> String {
    let now = match (delta.withheld, delta.gone) {
        (0, 0) => "",
        (_, 0) => "undecided",
        (0, _) => "left out",
        _ => "undecided or left out",
    };
    let as_lost = match delta.withheld + delta.gone {
        0 => String::new(),
        count => format!(" with {count} solved before and {now} now as lost"),
    };
    let (points, counts) = (100.0 * delta.estimate, delta.counts());
    format!("{points:+.1} points ({counts}), {verdict}{as_lost}")
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
        /// The stage or look, from 1; 0 if there was nothing, or too little, to measure it on.
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
    /// Its name, as in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected { .. } => "rejected",
            Self::Inconclusive { .. } => "inconclusive",
            Self::Deferred => "deferred",
        }
    }

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

    fn counts(gained: u32, lost: u32) -> Counts {
        Counts {
            gained,
            lost,
            pairs: gained + lost,
            ..Counts::default()
        }
    }

    proptest! {
        #[test]
        fn accepted_exactly_when_the_papers_rule_holds_in_every_stage(
            all in prop::collection::vec((0u32..9, 0u32..9, 0u32..9, 0u32..9), 1..4)
        ) {
            let stages: Vec<StageResult> = all
                .iter()
                .map(|(a, b, c, d)| StageResult::of(counts(*a, *b), counts(*c, *d)))
                .collect();
            let holds = all.iter().all(|(a, b, c, d)| a > b && c >= d);
            let verdict = verdict(&stages, stages.len());
            prop_assert_eq!(verdict == Some(Verdict::Accepted), holds);
        }
    }

    #[test]
    fn answers_that_nobody_can_judge_dont_win() {
        let side = |gained, withheld| Counts {
            gained,
            pairs: 20,
            undecided: withheld + 1,
            withheld,
            ..Counts::default()
        };
        let of = StageResult::of;
        assert!(of(side(5, 0), side(0, 0)).holds());
        assert!(of(side(5, 4), side(2, 2)).holds());
        let hidden = of(side(5, 0), side(2, 3));
        assert_eq!((hidden.holds(), hidden.net()), (false, 4));
        let reason = hidden.objection().expect("an objection");
        assert!(
            reason.contains("(+2 -0 of 20, 4 undecided), below 0 with 3 solved before"),
            "{reason}"
        );
        assert!(!of(side(5, 5), side(0, 0)).holds());
    }

    #[test]
    fn problems_that_it_cant_be_rolled_out_on_dont_win() {
        let side = |gained, withheld, gone| Counts {
            gained,
            pairs: 16,
            undecided: withheld,
            withheld,
            gone,
            ..Counts::default()
        };
        let of = StageResult::of;
        assert!(of(side(5, 0, 4), side(2, 0, 2)).holds());
        let lost = of(side(5, 0, 0), side(0, 0, 1));
        assert_eq!((lost.holds(), lost.net()), (false, 4));
        let reason = lost.objection().expect("an objection");
        assert!(
            reason.contains("(+0 -0 of 16, 1 left out), below 0 with 1 solved before and left out"),
            "{reason}"
        );
        let both = of(side(5, 0, 0), side(2, 2, 1)).objection();
        let both = both.expect("an objection");
        assert!(both.contains("3 solved before and undecided or left out"));
    }

    #[test]
    fn what_measured_nothing_gains_nothing() {
        let unjudged = Counts {
            undecided: 9,
            withheld: 4,
            undecided_before: 5,
            ..Counts::default()
        };
        let lost = Counts {
            gone: 3,
            ..Counts::default()
        };
        for nothing in [Counts::default(), unjudged, lost] {
            for solved in [nothing, counts(5, 0)] {
                let stage = StageResult::of(nothing, solved);
                let Delta {
                    estimate,
                    low,
                    high,
                    ..
                } = stage.delta_in;
                assert!(estimate == 0.0 && low.is_finite() && high.is_finite());
                assert!(matches!(
                    verdict(&[stage], 1),
                    Some(Verdict::Rejected { stage: 1, .. })
                ));
            }
        }
    }

    #[test]
    fn a_single_stage_does_not_confirm() {
        let good = StageResult::of(counts(5, 1), counts(0, 0));
        assert_eq!(verdict(&[good], 2), None);
        assert_eq!(verdict(&[good, good], 2), Some(Verdict::Accepted));
        let null = StageResult::of(counts(2, 2), counts(1, 0));
        let Some(Verdict::Rejected { stage, reason }) = verdict(&[good, null], 2) else {
            panic!("must be rejected");
        };
        assert_eq!(stage, 2);
        assert!(
            reason.contains("δ_in is +0.0 points (+2 -2 of 4)"),
            "{reason}"
        );
    }
}
