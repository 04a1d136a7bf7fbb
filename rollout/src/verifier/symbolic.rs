//! Answers as mathematics.

use super::{Comparison, Extracted, PureVerifier, extract_math, math};

/// Compares expressions, sets, points, relations and words by what they say.
pub(super) struct MathVerifier;

impl PureVerifier for MathVerifier {
    fn extract(&self, text: &str) -> Option<Extracted> {
        extract_math::answer_of(text)
    }

    fn compare(&self, gold: &str, answer: &str) -> Option<Comparison> {
        let gold = extract_math::gold_of(gold);
        (!gold.is_empty()).then(|| math::compare(&gold, answer))
    }
}
