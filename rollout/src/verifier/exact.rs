//! Answers as texts.

use super::reply::up_to_end;
use super::{Comparison, Extracted, Outcome, PureVerifier, extract};
use crate::protocol::without_reasoning;

/// Compares texts.
pub(super) struct ExactVerifier;

impl ExactVerifier {
    fn normalise(text: &str) -> String {
        let text = text.trim().trim_matches('$').trim().trim_end_matches('.');
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl PureVerifier for ExactVerifier {
    fn extract(&self, text: &str) -> Option<Extracted> {
        extract::text_of(up_to_end(&without_reasoning(text)))
    }

    fn compare(&self, gold: &str, answer: &str) -> Option<Comparison> {
        let gold = Self::normalise(gold);
        (!gold.is_empty()).then(|| {
            Comparison::from(if gold == Self::normalise(answer) {
                Outcome::Equal
            } else {
                Outcome::Different
            })
        })
    }
}
