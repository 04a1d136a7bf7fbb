//! What a contest asks of its candidates: to gain something, or to lose nothing that matters.
//!
//! A *removal* takes an accepted patch out again. It needn't gain: what it takes out is text to read and
//! rules to keep, paid for in every rollout. It mustn't lose. "No loss at all" can't be shown by any
//! sample, "less than a margin" can (non-inferiority): the e-value against "the margin or more is lost"
//! ([`log_e_value_above`]) has to reach the decision's threshold, and what was counted mustn't be a loss.
//! All gate problems are looked at alike, whatever became of them before. What was solved with the patch
//! and is undecided without it, or can't be rolled out, counts as lost.

use super::decide::{StageResult, told};
use super::evidence::Counts;
use super::martingale::{Test, log_benefit, log_e_value_above, log_harm};
use super::plan::Stage;
use super::sequential::{HARM_LEVEL, Judgement, hope, judge};
use crate::config::GateMode;

/// Fewest pairs of V_in in each stage of the fixed modes: of one, luck alone gains a quarter at a success rate
/// of one half. Looks have their e-value, which takes more.
const LEAST_FAILED: usize = 2;

/// What has to be shown for an acceptance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Question {
    /// That the candidate gains, as the mode has it.
    Gain(GateMode),
    /// That it loses less than this share of the problems, and nothing in what was counted. V_out holds
    /// all problems.
    Harmless(f64),
}

/// What a look says of a candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// Logarithm of the e-value for what has to be shown.
    pub benefit: f64,
    /// Logarithm of the e-value for harm.
    pub harm: f64,
    /// What follows.
    pub judgement: Judgement,
    /// Why it can't be accepted whatever the evidence, if so.
    pub objection: Option<String>,
}

impl Question {
    /// Whether it is answered by looks that may end early.
    pub fn is_sequential(self) -> bool {
        !matches!(self, Self::Gain(GateMode::Paper | GateMode::Confirmed))
    }

    /// Why nothing, or too little, can be measured by this plan, if so.
    pub fn objection_to(self, plan: &[Stage]) -> Option<&'static str> {
        match self {
            // Without a problem the incumbent failed, or any at all, there is nothing to gain.
            Self::Gain(_) if plan.iter().all(|stage| stage.failed.is_empty()) => {
                Some("there is no gate problem that the incumbent fails")
            }
            Self::Gain(_) if self.is_sequential() => None,
            // It is enough to look at the plan: of two or three pairs all have to count for an acceptance.
            Self::Gain(_) => plan
                .iter()
                .any(|stage| stage.failed.len() < LEAST_FAILED)
                .then_some(
                    "a stage has fewer than two pairs on gate problems that the incumbent fails",
                ),
            Self::Harmless(_) => plan
                .iter()
                .all(|stage| stage.solved.is_empty())
                .then_some("there is no gate problem"),
        }
    }

    /// Judge totals, with so many pairs to come on V_in and V_out.
    pub fn assess(self, totals: &StageResult, left: (u32, u32), test: &Test) -> Assessment {
        let worst = totals.delta_out.counts().at_worst();
        match self {
            Self::Gain(_) => {
                let failed = totals.delta_in.counts().at_worst();
                Assessment {
                    benefit: log_benefit(failed.differing(), (failed + worst).differing()),
                    harm: log_harm(worst),
                    judgement: judge(totals, left.0, left.1, test),
                    objection: totals.objection(),
                }
            }
            Self::Harmless(margin) => {
                let delta = &totals.delta_out;
                Assessment {
                    benefit: log_harmless(worst, margin),
                    harm: log_harm(worst),
                    judgement: judge_removal(worst, left.1, margin, test),
                    objection: is_loss(worst).then(|| format!("δ is {}", told(delta, "below 0"))),
                }
            }
        }
    }

    /// Where pairs are, as in ` on V_in`; a removal has no sides.
    pub fn on(self, side: &str) -> String {
        match self {
            Self::Gain(_) => format!(" on {side}"),
            Self::Harmless(_) => String::new(),
        }
    }

    /// What a look that shows harm says.
    pub fn harm(self) -> &'static str {
        match self {
            Self::Gain(_) => "harm on V_out",
            Self::Harmless(_) => "it is missed",
        }
    }

    /// Something of V_in and of V_out in one text; a removal has no sides.
    pub fn sides(
        self,
        delta: &str,
        of_in: impl std::fmt::Display,
        of_out: impl std::fmt::Display,
    ) -> String {
        match (self, delta) {
            (Self::Gain(_), "") => format!("in {of_in}, out {of_out}"),
            (Self::Gain(_), delta) => format!("{delta}_in {of_in}, {delta}_out {of_out}"),
            (Self::Harmless(_), "") => of_out.to_string(),
            (Self::Harmless(_), delta) => format!("{delta} {of_out}"),
        }
    }
}

/// Logarithm of the e-value for losing less than `margin`.
fn log_harmless(seen: Counts, margin: f64) -> f64 {
    let (gained, lost) = seen.differing();
    log_e_value_above(-margin, [gained, lost, seen.same()])
}

fn is_loss(seen: Counts) -> bool {
    seen.gained < seen.lost
}

/// Judge a removal by its pairs so far and those still to come. As for patches, only acceptance has to be
/// protected against looking often.
fn judge_removal(seen: Counts, left: u32, margin: f64, test: &Test) -> Judgement {
    let threshold = test.log_threshold();
    if log_harm(seen) >= -HARM_LEVEL.ln() {
        return Judgement::Harm;
    }
    let is_shown = log_harmless(seen, margin) >= threshold;
    if is_shown && !is_loss(seen) {
        return Judgement::Accept;
    }
    if left == 0 {
        return Judgement::Exhausted;
    }
    let (gained, lost) = hope(seen, left);
    let same = f64::from(seen.pairs) + f64::from(left) - gained - lost;
    if !is_shown && log_e_value_above(-margin, [gained, lost, same]) < threshold {
        return Judgement::Futile;
    }
    Judgement::Continue
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::martingale::{Discoveries, e_value};
    use super::*;

    const MARGIN: f64 = 0.05;

    fn counts([gained, lost, same]: [u32; 3]) -> Counts {
        Counts {
            gained,
            lost,
            pairs: gained + lost + same,
            ..Counts::default()
        }
    }

    #[test]
    fn the_first_removal_of_a_run_takes_as_many_pairs_as_the_page_on_the_gate_says() {
        let first = Discoveries::new(0.05).enter(1)[0];
        let least = |margin: f64| {
            (1..).find(|same| log_harmless(counts([0, 0, *same]), margin) >= first.log_threshold())
        };
        assert_eq!(
            (least(0.05), least(0.1), least(0.2)),
            (Some(106), Some(51), Some(24))
        );
        assert!(e_value(first.log_threshold()) > 40.0);
    }

    #[test]
    fn each_way_to_stop() {
        let test = Test::alone(0.05);
        let judge = |seen, left| judge_removal(counts(seen), left, MARGIN, &test);
        assert_eq!(judge([0, 0, 120], 300), Judgement::Accept);
        assert_eq!(judge([0, 9, 51], 300), Judgement::Harm);
        assert_eq!(judge([2, 9, 49], 60), Judgement::Futile);
        assert_eq!(judge([1, 1, 58], 300), Judgement::Continue);
        assert_eq!(judge([1, 1, 58], 0), Judgement::Exhausted);
        // Enough evidence that less than the margin is lost, and still a loss by count.
        assert_eq!(judge([2, 3, 295], 300), Judgement::Continue);
    }

    #[test]
    fn an_objection_says_what_counts_as_lost() {
        let seen = Counts {
            gone: 1,
            ..counts([0, 0, 119])
        };
        let totals = StageResult::of(Counts::default(), seen);
        let test = Test::alone(0.05);
        let assessed = Question::Harmless(MARGIN).assess(&totals, (0, 0), &test);
        assert_eq!(
            assessed.objection.as_deref(),
            Some(
                "δ is +0.0 points (+0 -0 of 119, 1 left out), below 0 with 1 solved before and \
                 left out now as lost"
            )
        );
    }

    proptest! {
        #[test]
        fn a_removal_is_accepted_only_by_its_e_value_and_never_on_a_loss(
            seen in prop::array::uniform3(0u32..200), left in 0u32..300, level in 0.0001..0.05f64,
        ) {
            let seen = counts(seen);
            let judgement = judge_removal(seen, left, MARGIN, &Test::alone(level));
            let is_shown = log_harmless(seen, MARGIN) >= -level.ln();
            if judgement == Judgement::Accept {
                prop_assert!(is_shown && seen.gained >= seen.lost);
            }
            prop_assert!(!(is_shown && judgement == Judgement::Futile));
            if left == 0 {
                prop_assert!(judgement != Judgement::Continue && judgement != Judgement::Futile);
            }
        }
    }
}
