//! What counts as the answer of a text, and whether it is right.
//!
//! A [`Verifier`] does both, and says how: [`ExtractionRule`] names the rule that found the
//! answer, [`Allowance`] what the comparison passed over. There is one for each [`VerifierKind`].
//! `docs/verifier.md` states every policy; they are the same for all kinds.

mod command;
mod digits;
mod exact;
mod extract;
mod extract_math;
mod math;
mod number;
mod numeric;
mod symbolic;

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::trajectory::Verdict;

/// How an answer was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtractionRule {
    /// `<answer>…</answer>`.
    AnswerTag,
    /// `\boxed{…}`.
    Boxed,
    /// "answer is …".
    AnswerIs,
    /// The text is the answer and nothing else.
    Whole,
    /// The formula with which the last line ends.
    LastFormula,
    /// The last number of the last line.
    LastNumber,
    /// The last line, for texts.
    LastLine,
}

impl ExtractionRule {
    /// The rule's name in [`Verdict::rule`].
    pub fn name(self) -> &'static str {
        match self {
            ExtractionRule::AnswerTag => "answer_tag",
            ExtractionRule::Boxed => "boxed",
            ExtractionRule::AnswerIs => "answer_is",
            ExtractionRule::Whole => "whole",
            ExtractionRule::LastFormula => "last_formula",
            ExtractionRule::LastNumber => "last_number",
            ExtractionRule::LastLine => "last_line",
        }
    }

    /// Whether the text itself calls it the answer.
    pub fn is_explicit(self) -> bool {
        matches!(
            self,
            ExtractionRule::AnswerTag | ExtractionRule::Boxed | ExtractionRule::AnswerIs
        )
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
    /// can't be read.
    fn compare(&self, gold: &str, answer: &str) -> Option<Comparison>;

    /// Judges a whole text.
    fn assess(&self, gold: &str, text: &str) -> Assessment {
        let Some(extracted) = self.extract(text) else {
            return Assessment {
                outcome: None,
                rule: "none".into(),
                answer: None,
            };
        };
        let comparison = self.compare(gold, &extracted.answer).unwrap_or_default();
        Assessment {
            outcome: Some(comparison.outcome),
            rule: comparison.rule(extracted.rule.name()),
            answer: Some(extracted.answer),
        }
    }

    /// Judges a whole text, for a trajectory.
    fn verify(&self, gold: &str, text: &str) -> Verdict {
        let Assessment { outcome, rule, .. } = self.assess(gold, text);
        verdict(outcome, rule)
    }

    /// Judges an answer that was found by the rule of this name.
    fn judge(&self, gold: &str, answer: &str, rule: &str) -> Verdict {
        let comparison = self.compare(gold, answer).unwrap_or_default();
        verdict(Some(comparison.outcome), comparison.rule(rule))
    }

    /// Whether a gold answer can be matched at all. A run checks its tasks with this before it
    /// starts.
    fn can_read(&self, gold: &str) -> bool {
        self.compare(gold, gold)
            .is_some_and(|comparison| comparison.outcome == Outcome::Equal)
            && self.verify(gold, &format!("\\boxed{{{gold}}}")).correct
    }
}

fn verdict(outcome: Option<Outcome>, rule: String) -> Verdict {
    Verdict {
        correct: outcome == Some(Outcome::Equal),
        undecided: outcome == Some(Outcome::Undecided),
        rule,
    }
}

/// What a verifier says of a whole text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment {
    /// `None` for a text without an answer.
    pub outcome: Option<Outcome>,
    /// The extraction rule, with what the comparison passed over; `none` without an answer.
    pub rule: String,
    /// The answer that was found.
    pub answer: Option<String>,
}

impl Assessment {
    /// The outcome in one word: `equal`, `different`, `unreadable`, `undecided` or `no_answer`.
    pub fn name(&self) -> &'static str {
        match self.outcome {
            Some(Outcome::Equal) => "equal",
            Some(Outcome::Different) => "different",
            Some(Outcome::Unreadable) => "unreadable",
            Some(Outcome::Undecided) => "undecided",
            None => "no_answer",
        }
    }
}

/// Whether an answer equals the gold answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// It does.
    Equal,
    /// It doesn't.
    #[default]
    Different,
    /// The answer can't be read from beginning to end; it counts as wrong.
    Unreadable,
    /// Not known within the budget. Scores nothing, and is counted apart from wrong answers.
    Undecided,
}

/// What a comparison passed over to find two answers equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// A percent sign that only one side has.
    Percent,
    /// A unit that only one side has, or a word that is no unit of measurement.
    Units,
    /// The answer is a long decimal that rounds the exact value, or the other way round.
    Rounding,
}

/// Outcome of [`Verifier::compare`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Whether the two are equal.
    pub outcome: Outcome,
    /// What that took.
    pub allowance: Option<Allowance>,
}

impl From<Outcome> for Comparison {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            allowance: None,
        }
    }
}

impl Comparison {
    /// The rule with what was passed over, such as `boxed+percent`.
    fn rule(self, rule: &str) -> String {
        let suffix = match self.allowance {
            None => "",
            Some(Allowance::Percent) => "+percent",
            Some(Allowance::Units) => "+units",
            Some(Allowance::Rounding) => "+rounding",
        };
        format!("{rule}{suffix}")
    }
}

/// Kinds of verifier, as a configuration names them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Expressions, sets, intervals, points, matrices, equations and words, compared by what they
    /// say.
    Math,
    /// The same text, but for blanks, dollar signs and a full stop.
    Exact,
    /// A program of the user's that is given `{"gold": …, "pred": …}` on its standard input.
    Command {
        /// The program; looked up on `PATH` if it is a bare name.
        program: PathBuf,
        /// Its arguments.
        #[serde(default)]
        arguments: Vec<String>,
        /// Wall time of one comparison in milliseconds, after which it is undecided.
        #[serde(default = "command::default_timeout_ms")]
        timeout_ms: u64,
    },
}

/// The verifier of a kind.
pub fn build(kind: &VerifierKind) -> Arc<dyn Verifier> {
    match kind {
        VerifierKind::Integer => Arc::new(numeric::NumberVerifier { tolerance: None }),
        VerifierKind::Numeric { tolerance } => Arc::new(numeric::NumberVerifier {
            tolerance: Some(*tolerance),
        }),
        VerifierKind::Math => Arc::new(symbolic::MathVerifier),
        VerifierKind::Exact => Arc::new(exact::ExactVerifier),
        VerifierKind::Command {
            program,
            arguments,
            timeout_ms,
        } => Arc::new(command::CommandVerifier::new(
            program,
            arguments,
            std::time::Duration::from_millis(*timeout_ms),
        )),
    }
}

#[cfg(test)]
mod tests;
