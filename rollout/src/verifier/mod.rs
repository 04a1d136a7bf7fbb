//! What counts as the answer of a text, and whether it is right.
//!
//! A [`Verifier`] does both, and says how: [`ExtractionRule`] names the rule that found the
//! answer, [`Allowance`] what the comparison passed over, [`FailedTest`] which test a program
//! failed. There is one for each [`VerifierKind`]. Most kinds compare texts and need nothing else: they
//! implement [`PureVerifier`], and are verifiers thereby. `docs/verifier.md` states every policy.

mod boxes;
pub mod code;
mod command;
mod digits;
mod exact;
mod extract;
mod extract_math;
mod kind;
mod math;
mod number;
mod numeric;
mod reply;
mod symbolic;
mod words;

use crate::policy::BoxFuture;
use crate::trajectory::Verdict;

pub use code::{FailedTest, Failure};
pub use kind::{Reading, VerifierKind, build, pure};

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
    /// The last fenced block that is marked as Python, for programs.
    PythonBlock,
    /// The last fenced block without a mark, for programs.
    CodeBlock,
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
            ExtractionRule::PythonBlock => "python_block",
            ExtractionRule::CodeBlock => "code_block",
        }
    }

    /// Whether the text itself calls it the answer.
    pub fn is_explicit(self) -> bool {
        matches!(
            self,
            ExtractionRule::AnswerTag
                | ExtractionRule::Boxed
                | ExtractionRule::AnswerIs
                | ExtractionRule::PythonBlock
                | ExtractionRule::CodeBlock
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
///
/// Finding is immediate. Judging may have to wait for a program, and waits without holding up other
/// rollouts.
pub trait Verifier: Send + Sync {
    /// The answer of a text, if it has one.
    fn extract(&self, text: &str) -> Option<Extracted>;

    /// Whether `answer`, as [`extract`](Self::extract) gives it, equals `gold`. `None` where `gold`
    /// can't be read.
    fn compare<'a>(&'a self, gold: &'a str, answer: &'a str) -> BoxFuture<'a, Option<Comparison>>;

    /// Whether a gold answer can be matched at all. A run checks its tasks with this before it
    /// starts.
    fn can_read(&self, gold: &str) -> bool;

    /// Judges a whole text.
    fn assess<'a>(&'a self, gold: &'a str, text: &'a str) -> BoxFuture<'a, Assessment> {
        Box::pin(async move {
            let Some(extracted) = self.extract(text) else {
                return Assessment::without_answer();
            };
            let comparison = self.compare(gold, &extracted.answer).await;
            Assessment::of(extracted, comparison.unwrap_or_default())
        })
    }

    /// Judges an answer that was found by the rule of this name.
    fn judge<'a>(
        &'a self,
        gold: &'a str,
        answer: &'a str,
        rule: &'a str,
    ) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let comparison = self.compare(gold, answer).await.unwrap_or_default();
            verdict(Some(comparison.outcome), comparison.rule(rule))
        })
    }
}

/// A verifier that compares texts by computing, and waits for nothing.
pub trait PureVerifier: Send + Sync {
    /// As [`Verifier::extract`].
    fn extract(&self, text: &str) -> Option<Extracted>;

    /// As [`Verifier::compare`].
    fn compare(&self, gold: &str, answer: &str) -> Option<Comparison>;

    /// As [`Verifier::can_read`]: a gold answer that equals itself, also in a box.
    fn can_read(&self, gold: &str) -> bool {
        self.compare(gold, gold)
            .is_some_and(|comparison| comparison.outcome == Outcome::Equal)
            && self.verify(gold, &format!("\\boxed{{{gold}}}")).correct
    }

    /// Judges a whole text, for a trajectory.
    fn verify(&self, gold: &str, text: &str) -> Verdict {
        let assessment = match self.extract(text) {
            Some(extracted) => {
                let comparison = self.compare(gold, &extracted.answer);
                Assessment::of(extracted, comparison.unwrap_or_default())
            }
            None => Assessment::without_answer(),
        };
        verdict(assessment.outcome, assessment.rule)
    }
}

impl<T: PureVerifier> Verifier for T {
    fn extract(&self, text: &str) -> Option<Extracted> {
        PureVerifier::extract(self, text)
    }

    fn compare<'a>(&'a self, gold: &'a str, answer: &'a str) -> BoxFuture<'a, Option<Comparison>> {
        Box::pin(async move { PureVerifier::compare(self, gold, answer) })
    }

    fn can_read(&self, gold: &str) -> bool {
        PureVerifier::can_read(self, gold)
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
    /// The test that the answer failed, where it is a program.
    pub failed_test: Option<FailedTest>,
}

impl Assessment {
    fn of(extracted: Extracted, comparison: Comparison) -> Self {
        Assessment {
            outcome: Some(comparison.outcome),
            rule: comparison.rule(extracted.rule.name()),
            answer: Some(extracted.answer),
            failed_test: comparison.failed_test,
        }
    }

    fn without_answer() -> Self {
        Assessment {
            outcome: None,
            rule: "none".into(),
            answer: None,
            failed_test: None,
        }
    }

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
    /// The test that decided against a program.
    pub failed_test: Option<FailedTest>,
}

impl From<Outcome> for Comparison {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            ..Self::default()
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

#[cfg(test)]
mod tests;
