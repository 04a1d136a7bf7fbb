//! Rules of no dimension: the model's own limit. They feed the training pool and never a patch.

use super::Rule;
use super::skills::wrong_program;
use crate::record::RootCause::AgentError;
use crate::record::Severity::{Low, Medium};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "wrong_program",
        root_cause: AgentError,
        explain: "A program ran and the answer is what it printed, but it calculates something \
                  else than the problem asks.",
        repairs: &[],
        look: wrong_program,
    },
    Rule {
        name: "wrong_answer",
        root_cause: AgentError,
        explain: "The loop ran cleanly, an answer was given without the support of a tool \
                  result, and it is wrong.",
        repairs: &[],
        look: |view| {
            let is_met = view.has_answer() && !view.has_fault() && wrong_program(view).is_none();
            is_met
                .then(|| view.last_words()?.last_line(Medium))
                .flatten()
        },
    },
    Rule {
        name: "unexplained",
        root_cause: AgentError,
        explain: "The rollout failed without an answer and without any event that tells of a \
                  fault.",
        repairs: &[],
        look: |view| {
            let is_met = !view.has_answer() && !view.has_fault();
            is_met.then(|| view.last_words()?.last_line(Low)).flatten()
        },
    },
];
