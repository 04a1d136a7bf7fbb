//! Answers as single numbers, compared exactly or within a stated tolerance.

use super::number::Number;
use super::{Allowance, Comparison, Extracted, Outcome, PureVerifier, extract};
use crate::protocol::without_reasoning;

/// Compares numbers: whole ones only without a tolerance.
pub(super) struct NumberVerifier {
    pub(super) tolerance: Option<f64>,
}

impl PureVerifier for NumberVerifier {
    fn extract(&self, text: &str) -> Option<Extracted> {
        extract::number_of(&without_reasoning(text))
    }

    fn compare(&self, gold: &str, answer: &str) -> Option<Comparison> {
        let gold = Number::parse(gold)?;
        if self.tolerance.is_none() && !gold.is_integer() {
            return None;
        }
        let Some(answer) = Number::parse(answer) else {
            return Some(Outcome::Unreadable.into());
        };
        let is_equal = |gold: &Number, answer: &Number| {
            gold.equals(answer)
                || self
                    .tolerance
                    .is_some_and(|tolerance| gold.is_near(answer, tolerance))
        };
        let outcome = |is_equal| {
            if is_equal {
                Outcome::Equal
            } else {
                Outcome::Different
            }
        };
        let passed_over = |is_equal| Comparison {
            outcome: outcome(is_equal),
            allowance: is_equal.then_some(Allowance::Percent),
            ..Comparison::default()
        };
        Some(match (gold.is_percent(), answer.is_percent()) {
            (true, false) => {
                passed_over(is_equal(&gold, &answer) || is_equal(&gold.hundredth(), &answer))
            }
            // A gold answer of at most 1 may be a share: 0.5% isn't 0.5.
            (false, true) if is_equal(&gold, &answer.hundredth()) => Outcome::Equal.into(),
            (false, true) => passed_over(gold.is_above_one() && is_equal(&gold, &answer)),
            (true, true) | (false, false) => outcome(is_equal(&gold, &answer)).into(),
        })
    }
}
