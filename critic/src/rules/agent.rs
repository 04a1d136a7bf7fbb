//! Rules of no dimension: the model's own limit. They feed the training pool and never a patch.

use super::Fault;
use super::skills::wrong_program;
use crate::record::Severity::{Low, Medium};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "wrong_program",
        explain: "A program ran and the answer is what it printed, but it calculates something \
                  else than the problem asks.",
        repairs: &[],
        look: wrong_program,
    },
    Fault {
        name: "wrong_answer",
        explain: "The loop ran cleanly, an answer was given without the support of a tool \
                  result, and it is wrong.",
        repairs: &[],
        look: |view| {
            let is_met = view.has_answer() && !view.has_fault() && wrong_program(view).is_none();
            view.last_words()?.last_line(Medium).filter(|_| is_met)
        },
    },
    Fault {
        name: "unexplained",
        explain: "The rollout failed without an answer and without any event that tells of a \
                  fault.",
        repairs: &[],
        look: |view| {
            let is_met = !view.has_answer() && !view.has_fault();
            view.last_words()?.last_line(Low).filter(|_| is_met)
        },
    },
];
