//! Rules of dimension S: missing skills.

use rollout::Event;

use super::view::{View, mentions, numbers};
use super::{Finding, Rule};
use crate::record::RootCause::SkillMissing;
use crate::record::Severity::{Low, Medium};
use crate::repairs::skills as repair;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "equation_skill_missing",
        root_cause: SkillMissing,
        explain: "The program ran, the model gave its result as the answer, and the answer was \
                  wrong: the words of the problem were turned into the wrong expression, and no \
                  skill tells how.",
        repairs: &[repair::WORDS_TO_EQUATION, repair::ONE_STEP_A_LINE],
        look: |view| {
            let is_met = !has_skill(view, &["equation", "expression"]);
            is_met.then(|| wrong_program(view)).flatten()
        },
    },
    Rule {
        name: "decomposition_skill_missing",
        root_cause: SkillMissing,
        explain: "A problem with three or more numbers was answered wrongly by a program of one \
                  line, and no skill tells how to take a problem apart.",
        repairs: &[repair::ONE_STEP_A_LINE, repair::WORDS_TO_EQUATION],
        look: |view| {
            let problem = numbers(view.problem()?);
            let call = view.calls().next_back()?;
            let is_met = problem.len() >= 3
                && wrong_program(view).is_some()
                && numbers(call.text()).len() < problem.len()
                && !has_skill(view, &["step"]);
            is_met.then(|| call.last_line(Medium)).flatten()
        },
    },
    Rule {
        name: "print_skill_missing",
        root_cause: SkillMissing,
        explain: "A program printed nothing, and no skill says that a program shows only what it \
                  prints.",
        repairs: &[repair::PRINT_THE_RESULT],
        look: |view| {
            let is_met = !has_skill(view, &["print"]);
            let call = view.call_before(|event| matches!(event, Event::EmptyOutput));
            is_met.then(|| call?.last_line(Low)).flatten()
        },
    },
    Rule {
        name: "debugging_skill_missing",
        root_cause: SkillMissing,
        explain: "Programs failed twice or more in one rollout, and no skill tells how to read an \
                  error.",
        repairs: &[repair::FIX_THE_NAMED_LINE],
        look: |view| {
            let is_error = |event: &Option<Event>| matches!(event, Some(Event::ToolError { .. }));
            let steps = &view.trajectory.steps;
            let count = steps.iter().filter(|step| is_error(&step.event)).count();
            let is_met = count >= 2 && !has_skill(view, &["error"]);
            let error = view.event(|event| matches!(event, Event::ToolError { .. }));
            is_met.then(|| error?.last_line(Low)).flatten()
        },
    },
    Rule {
        name: "skill_not_triggered",
        root_cause: SkillMissing,
        explain: "The harness has skills, and not one of their triggers is in the problem, so \
                  that the model saw none of them.",
        repairs: &[repair::SHOW_ALWAYS],
        look: |view| {
            let problem = view.problem()?.to_lowercase();
            let mut skills = view.harness.skills.values().peekable();
            skills.peek()?;
            let is_met = skills.all(|skill| {
                let mut triggers = skill.triggers.iter();
                !skill.triggers.is_empty()
                    && !triggers.any(|word| problem.contains(&word.to_lowercase()))
            });
            is_met
                .then(|| view.first_reply()?.first_line(Medium))
                .flatten()
        },
    },
];

/// The output of a program that the model trusted and that was wrong.
pub(super) fn wrong_program(view: &View<'_>) -> Option<Finding> {
    let call = view.calls().next_back()?;
    let output = numbers(view.output(view.last_good_result()?));
    let answer = numbers(view.value()?);
    let is_whole = !view.has_event(|event| match event {
        Event::HookFired { hook } => hook == "truncate_output",
        event => matches!(event, Event::OutputTruncated),
    });
    let is_met = is_whole && answer.last().is_some_and(|n| output.contains(n));
    is_met.then(|| call.last_line(Medium)).flatten()
}

fn has_skill(view: &View<'_>, words: &[&str]) -> bool {
    view.harness
        .skills
        .values()
        .any(|skill| mentions(&skill.body, words) || mentions(&skill.description, words))
}
