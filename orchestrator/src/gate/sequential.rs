//! When a sequential decision stops, and with what.
//!
//! [`judge`] is a function of the counts so far, what is still to come, and the decision's level. It
//! looks after every batch. Only acceptance has to be protected against looking often, and it is, by
//! the e-value; stopping early against a candidate can't make it accepted.
//!
//! In all of this, what the incumbent solved and the candidate leaves undecided, or was left out of, is
//! lost. Left out of the e-value, such pairs would take losses out of it and leave the gains: a candidate
//! that loses as much as it gains would be accepted for what can't be seen.

use super::decide::StageResult;
use super::evidence::Counts;
use super::martingale::{Test, log_benefit, log_harm};

/// Harm on V_out ends a decision at this level.
pub(crate) const HARM_LEVEL: f64 = 0.05;
/// A decision is futile when its end stays below the threshold even at this quantile of what is to
/// come (z of 95%).
const Z_FUTILE: f64 = 1.644_853_626_951_472_2;
/// Pairs imagined before the first: gained, lost, the same. They let a candidate live that has shown
/// nothing in few pairs.
const IMAGINED: [f64; 3] = [1.0, 0.5, 1.0];

/// What a look at the counts says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// More pairs are needed.
    Continue,
    /// The e-value reaches the threshold, and the paper's rule holds.
    Accept,
    /// The candidate loses on V_out.
    Harm,
    /// What is left will hardly reach the threshold.
    Futile,
    /// No pairs are left.
    Exhausted,
}

/// Judge a candidate by its totals so far and the pairs still to come on either side.
pub fn judge(totals: &StageResult, left_failed: u32, left_solved: u32, test: &Test) -> Judgement {
    let (failed, solved) = (
        totals.delta_in.counts().at_worst(),
        totals.delta_out.counts().at_worst(),
    );
    let threshold = test.log_threshold();
    if log_harm(solved) >= -HARM_LEVEL.ln() {
        return Judgement::Harm;
    }
    let is_shown = log_benefit(failed.differing(), (failed + solved).differing()) >= threshold;
    if is_shown && totals.holds() {
        return Judgement::Accept;
    }
    if left_failed == 0 && left_solved == 0 {
        return Judgement::Exhausted;
    }
    let alone = hope(failed, left_failed);
    let together = hope(failed + solved, left_failed + left_solved);
    let is_hopeless = alone.0 <= alone.1 || log_benefit(alone, together) < threshold;
    if is_hopeless && !is_shown {
        return Judgement::Futile;
    }
    Judgement::Continue
}

/// Gained and lost pairs at the end, if the `left` pairs go as well as the 95% quantile of their
/// predictive distribution.
///
/// Outcomes have a Dirichlet posterior over [`IMAGINED`] pairs, so the net gain of what is left has the
/// mean and variance of a Dirichlet-multinomial sum; its quantile is that of the normal distribution
/// with these.
pub(super) fn hope(seen: Counts, left: u32) -> (f64, f64) {
    let (gained, lost) = seen.differing();
    let left = f64::from(left);
    let total = f64::from(seen.pairs) + IMAGINED.iter().sum::<f64>();
    let (gain, loss) = ((gained + IMAGINED[0]) / total, (lost + IMAGINED[1]) / total);
    let mean = left * (gain - loss);
    let spread = gain + loss - (gain - loss).powi(2);
    let deviation = (left * spread * (total + left) / (total + 1.0))
        .max(0.0)
        .sqrt();
    let more = (mean + Z_FUTILE * deviation).clamp(-left, left);
    let differing = (left * (gain + loss)).max(more.abs());
    (
        gained + 0.5 * (differing + more),
        lost + 0.5 * (differing - more),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn totals(failed: [u32; 3], solved: [u32; 3]) -> StageResult {
        let counts = |[gained, lost, same]: [u32; 3]| Counts {
            gained,
            lost,
            pairs: gained + lost + same,
            ..Counts::default()
        };
        StageResult::of(counts(failed), counts(solved))
    }

    /// Pairs of which some that the incumbent solved have no outcome under the candidate.
    fn with_missing([gained, lost, same, withheld, gone]: [u32; 5]) -> Counts {
        Counts {
            gained,
            lost,
            pairs: gained + lost + same,
            undecided: withheld,
            withheld,
            gone,
            ..Counts::default()
        }
    }

    proptest! {
        #[test]
        fn acceptance_needs_the_e_value_also_with_what_is_missing_as_lost(
            failed in prop::array::uniform5(0u32..30),
            solved in prop::array::uniform5(0u32..30),
            left in (0u32..200, 0u32..200),
            level in 0.0001..0.05f64,
        ) {
            let totals = StageResult::of(with_missing(failed), with_missing(solved));
            // The same pairs, if they had been made and lost.
            let made = |[gained, lost, same, withheld, gone]: [u32; 5]| {
                with_missing([gained, lost + withheld + gone, same, 0, 0])
            };
            let (a, b) = (made(failed), made(solved));
            let test = Test::alone(level);
            let judgement = judge(&totals, left.0, left.1, &test);
            if judgement == Judgement::Accept {
                let benefit = log_benefit(a.differing(), (a + b).differing());
                prop_assert!(benefit >= test.log_threshold());
            }
            let as_made = judge(&StageResult::of(a, b), left.0, left.1, &test);
            prop_assert_eq!(judgement, as_made);
        }

        #[test]
        fn acceptance_needs_the_papers_rule_and_the_e_value(
            failed in prop::array::uniform3(0u32..60),
            solved in prop::array::uniform3(0u32..60),
            left in (0u32..200, 0u32..200),
            level in 0.0001..0.05f64,
        ) {
            let totals = totals(failed, solved);
            let judgement = judge(&totals, left.0, left.1, &Test::alone(level));
            let (a, b) = (totals.delta_in.counts(), totals.delta_out.counts());
            let benefit = log_benefit(a.differing(), (a + b).differing());
            let is_shown = benefit >= -level.ln();
            if judgement == Judgement::Accept {
                prop_assert!(totals.holds() && is_shown);
            }
            // Evidence that is there is never called futile.
            prop_assert!(!(is_shown && judgement == Judgement::Futile));
            if left == (0, 0) {
                prop_assert!(judgement != Judgement::Continue && judgement != Judgement::Futile);
            }
        }

        #[test]
        fn a_single_pair_never_decides_for_a_candidate(level in 0.0001..0.05f64) {
            let lucky = totals([1, 0, 0], [0, 0, 0]);
            let judgement = judge(&lucky, 100, 100, &Test::alone(level));
            prop_assert_eq!(judgement, Judgement::Continue);
            let last = judge(&lucky, 0, 0, &Test::alone(level));
            prop_assert_eq!(last, Judgement::Exhausted);
        }
    }

    #[test]
    fn each_way_to_stop() {
        let test = Test::alone(0.05);
        let judge = |failed, solved, left| super::judge(&totals(failed, solved), left, left, &test);
        assert_eq!(judge([9, 0, 21], [2, 2, 26], 300), Judgement::Accept);
        assert_eq!(judge([9, 0, 21], [0, 8, 22], 300), Judgement::Harm);
        // Evidence of benefit with δ_out just below 0 waits for more of V_out.
        assert_eq!(judge([20, 0, 10], [1, 2, 27], 300), Judgement::Continue);
        assert_eq!(judge([3, 2, 25], [2, 2, 26], 300), Judgement::Continue);
        assert_eq!(judge([2, 9, 19], [2, 2, 26], 300), Judgement::Futile);
        assert_eq!(judge([0, 0, 30], [0, 0, 30], 30), Judgement::Futile);
        assert_eq!(judge([3, 1, 26], [2, 2, 26], 0), Judgement::Exhausted);
    }

    #[test]
    fn losses_that_are_left_out_are_no_evidence_of_benefit() {
        let test = Test::alone(0.05);
        let judge = |failed, solved| {
            let totals = StageResult::of(with_missing(failed), with_missing(solved));
            super::judge(&totals, 300, 300, &test)
        };
        // Nine gained, and eight that the candidate lost, or was left out of.
        assert_eq!(judge([9, 0, 21, 0, 0], [0; 5]), Judgement::Accept);
        assert_eq!(judge([9, 8, 13, 0, 0], [0; 5]), Judgement::Continue);
        assert_eq!(judge([9, 0, 13, 0, 8], [0; 5]), Judgement::Continue);
        assert_eq!(judge([9, 0, 13, 8, 0], [0; 5]), Judgement::Continue);
        assert_eq!(judge([9, 0, 21, 0, 0], [0, 0, 22, 4, 4]), Judgement::Harm);
    }
}
