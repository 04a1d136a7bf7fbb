//! What counts as the answer of a text, and whether it is right.
//!
//! Rules, the first that finds something: the last well-formed `\boxed{…}`; the last "answer is …"
//! (also `answer:` and GSM8K's `####`); the last number of the last line. A text that offers
//! alternatives, as in "203 or 204", has no answer. Reasoning in `<think>` is passed over.
//!
//! Policies of the number verifiers, the same everywhere: values are compared exactly, as
//! rationals; a dollar sign, a unit and a percent sign of the answer are passed over; where the
//! gold answer itself has a percent sign, `50\%`, the answers 50, 50% and 0.5 are right and the
//! verdict's rule says so, but 0.5 is never 50 otherwise. What can't be read whole is wrong.

mod digits;
mod extract;
mod number;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::protocol::without_reasoning;
use crate::trajectory::Verdict;
use number::Number;

/// How an answer was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtractionRule {
    /// `\boxed{…}`.
    Boxed,
    /// "answer is …".
    AnswerIs,
    /// The last number of the last line.
    LastNumber,
    /// The last line, for texts.
    LastLine,
}

impl ExtractionRule {
    /// The rule's name in [`Verdict::rule`].
    pub fn name(self) -> &'static str {
        match self {
            ExtractionRule::Boxed => "boxed",
            ExtractionRule::AnswerIs => "answer_is",
            ExtractionRule::LastNumber => "last_number",
            ExtractionRule::LastLine => "last_line",
        }
    }

    /// Whether the text itself calls it the answer.
    pub fn is_explicit(self) -> bool {
        matches!(self, ExtractionRule::Boxed | ExtractionRule::AnswerIs)
    }
}

/// An answer found in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extracted {
    /// The answer as it is written there.
    pub answer: String,
    /// How it was found.
    pub rule: ExtractionRule,
}

/// Finds answers and judges them. Never reads anything but its arguments.
pub trait Verifier: Send + Sync {
    /// The answer of a text, if it has one.
    fn extract(&self, text: &str) -> Option<Extracted>;

    /// Whether `answer`, as [`extract`](Self::extract) gives it, equals `gold`. `None` where `gold`
    /// can't be read; `Some` carries whether a percent sign was passed over.
    fn compare(&self, gold: &str, answer: &str) -> Option<Comparison>;

    /// Judges a whole text.
    fn verify(&self, gold: &str, text: &str) -> Verdict {
        let Some(extracted) = self.extract(text) else {
            return Verdict {
                correct: false,
                rule: "none".into(),
            };
        };
        self.judge(gold, &extracted.answer, extracted.rule.name())
    }

    /// Judges an answer that was found by the rule of this name.
    fn judge(&self, gold: &str, answer: &str, rule: &str) -> Verdict {
        let comparison = self.compare(gold, answer).unwrap_or_default();
        let suffix = if comparison.passed_over_percent {
            "+percent"
        } else {
            ""
        };
        Verdict {
            correct: comparison.is_equal,
            rule: format!("{rule}{suffix}"),
        }
    }

    /// Whether a gold answer can be matched at all. A run checks its tasks with this before it
    /// starts.
    fn can_read(&self, gold: &str) -> bool {
        self.compare(gold, gold)
            .is_some_and(|comparison| comparison.is_equal)
            && self.verify(gold, &format!("\\boxed{{{gold}}}")).correct
    }
}

/// Outcome of [`Verifier::compare`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Whether the two are equal.
    pub is_equal: bool,
    /// Whether that took passing over the gold answer's percent sign.
    pub passed_over_percent: bool,
}

/// Kinds of verifier, as a configuration names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum VerifierKind {
    /// Whole numbers; `42.0` and `042` are 42.
    #[default]
    Integer,
    /// Decimals and fractions.
    Numeric {
        /// Largest error relative to the gold answer. Two whole numbers must be equal.
        tolerance: f64,
    },
    /// The same text, but for blanks, dollar signs and a full stop.
    Exact,
}

/// The verifier of a kind.
pub fn build(kind: VerifierKind) -> Arc<dyn Verifier> {
    match kind {
        VerifierKind::Integer => Arc::new(NumberVerifier { tolerance: None }),
        VerifierKind::Numeric { tolerance } => Arc::new(NumberVerifier {
            tolerance: Some(tolerance),
        }),
        VerifierKind::Exact => Arc::new(ExactVerifier),
    }
}

/// Compares numbers: whole ones only without a tolerance.
struct NumberVerifier {
    tolerance: Option<f64>,
}

impl Verifier for NumberVerifier {
    fn extract(&self, text: &str) -> Option<Extracted> {
        extract::number_of(&without_reasoning(text))
    }

    fn compare(&self, gold: &str, answer: &str) -> Option<Comparison> {
        let gold = Number::parse(gold)?;
        if self.tolerance.is_none() && !gold.is_integer() {
            return None;
        }
        let Some(answer) = Number::parse(answer) else {
            return Some(Comparison::default());
        };
        let is_equal = |gold: &Number, answer: &Number| {
            gold.equals(answer)
                || self
                    .tolerance
                    .is_some_and(|tolerance| gold.is_near(answer, tolerance))
        };
        if is_equal(&gold, &answer) {
            return Some(Comparison {
                is_equal: true,
                passed_over_percent: gold.is_percent() && !answer.is_percent(),
            });
        }
        let is_share =
            gold.is_percent() && !answer.is_percent() && is_equal(&gold.hundredth(), &answer);
        Some(Comparison {
            is_equal: is_share,
            passed_over_percent: is_share,
        })
    }
}

/// Compares texts.
struct ExactVerifier;

impl ExactVerifier {
    fn normalise(text: &str) -> String {
        let text = text.trim().trim_matches('$').trim().trim_end_matches('.');
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl Verifier for ExactVerifier {
    fn extract(&self, text: &str) -> Option<Extracted> {
        extract::text_of(&without_reasoning(text))
    }

    fn compare(&self, gold: &str, answer: &str) -> Option<Comparison> {
        let gold = Self::normalise(gold);
        (!gold.is_empty()).then(|| Comparison {
            is_equal: gold == Self::normalise(answer),
            passed_over_percent: false,
        })
    }
}

#[cfg(test)]
mod tests;
