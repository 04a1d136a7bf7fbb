//! Rules of dimension S: missing skills.

use harness::{Example, Skill};
use rollout::Event;

use super::finding::Finding;
use super::memory::{hidden_note, stale_number};
use super::text::{has_word, is_among, mentions, numbers};
use super::told::elsewhere;
use super::view::View;
use super::{Fault, obeyed, ways};
use crate::catalogue::catalogue;
use crate::mining::{form, words};
use crate::record::Severity::{High, Low, Medium};
use crate::repairs::skills as repair;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "equation_skill_missing",
        explain: "The program ran, the model gave its result as the answer, and the answer was \
                  wrong: the words of the problem were turned into the wrong expression, and no \
                  skill tells how.",
        repairs: &[repair::WORDS_TO_EQUATION, repair::ONE_STEP_A_LINE],
        look: |view| {
            let is_met = !has_skill(view, &["equation", "expression"]);
            // Nothing but the wrong answer speaks for it.
            Some(wrong_program(view).filter(|_| is_met)?.rated(Low))
        },
    },
    Fault {
        name: "decomposition_skill_missing",
        explain: "A problem with three or more numbers was answered wrongly by a program that leaves \
                  some of them out, and no skill tells how to take a problem apart.",
        repairs: &[repair::ONE_STEP_A_LINE, repair::WORDS_TO_EQUATION],
        look: |view| {
            let problem = numbers(view.problem()?);
            let call = view.calls().next_back()?;
            let is_met = problem.len() >= 3
                && wrong_program(view).is_some()
                && numbers(call.text()).len() < problem.len()
                && !has_skill(view, &["step"]);
            // Where there was to be no further call, or another number was taken, the rest had no place.
            let is_displaced =
                elsewhere(view, obeyed::limits_calls) || elsewhere(view, obeyed::lends_numbers);
            let severity = if is_displaced { Medium } else { High };
            call.last_line(severity).filter(|_| is_met)
        },
    },
    Fault {
        name: "print_skill_missing",
        explain: "A program printed nothing, and no skill says that a program shows only what it \
                  prints.",
        repairs: &[repair::PRINT_THE_RESULT],
        look: |view| {
            let is_met = !has_skill(view, &["print"]);
            let call = view.call_before(|event| matches!(event, Event::EmptyOutput));
            call?.last_line(Low).filter(|_| is_met)
        },
    },
    Fault {
        name: "debugging_skill_missing",
        explain: "Programs failed twice or more in one rollout, and no skill tells how to read an \
                  error.",
        repairs: &[repair::FIX_THE_NAMED_LINE],
        look: |view| {
            let is_error = |event: &Option<Event>| matches!(event, Some(Event::ToolError { .. }));
            let steps = &view.trajectory.steps;
            let count = steps.iter().filter(|step| is_error(&step.event)).count();
            let is_met = count >= 2 && !has_skill(view, &["error"]);
            let error = view.event(|event| matches!(event, Event::ToolError { .. }));
            error?.last_line(Low).filter(|_| is_met)
        },
    },
    Fault {
        name: "topic_skill_missing",
        explain: "The program ran and its result was wrong, the problem is of a kind that the \
                  catalogue has a skill for, and the model was shown none for it.",
        repairs: &[repair::WORDS_TO_EQUATION],
        look: |view| {
            let problem = view.problem()?;
            let topic = |skill: &&Skill| !skill.triggers.is_empty() && is_about(skill, problem);
            let skill = catalogue().skills.iter().find(topic)?;
            let is_shown = shown(view).any(|known| is_about(known, problem));
            let finding = wrong_program(view).filter(|_| !is_shown)?;
            let hidden = view.harness.skills.contains_key(&skill.name);
            // A wrong number that a note gave is the note's fault.
            let is_by_note = stale_number(view).is_some() || hidden_note(view).is_some();
            let is_explained = is_by_note
                || elsewhere(view, obeyed::misleads)
                || elsewhere(view, obeyed::lends_numbers);
            let finding = finding.rated(if is_explained { Medium } else { High });
            Some(finding.suggesting((!hidden).then(|| repair::add(skill))))
        },
    },
    Fault {
        name: "topic_misunderstood",
        explain: "Every problem of this topic fails by a program of the same form, and no text that the \
                  model was shown says how to calculate there: something has to be known that it \
                  doesn't know.",
        repairs: &[repair::WORDS_TO_EQUATION, repair::ONE_STEP_A_LINE],
        look: |view| {
            view.facts.misunderstanding(view)?;
            let is_explained = is_explained_elsewhere(view);
            Some(wrong_program(view)?.rated(if is_explained { Low } else { High }))
        },
    },
    Fault {
        name: "skill_misleads",
        explain: "The model was shown a skill for this kind of problem, its program ran, and the \
                  result was wrong, as hardly any result was right that came of this skill: what it \
                  says may be wrong.",
        repairs: &[repair::SHIPPED_BODIES, repair::REMOVE_TRIGGERED],
        look: |view| {
            let problem = view.problem()?;
            let skill =
                shown(view).find(|skill| !skill.triggers.is_empty() && is_about(skill, problem))?;
            let finding = wrong_program(view)?.rated(High);
            Some(finding.suggesting(repair::shipped_body(view.harness, skill)))
        },
    },
    Fault {
        explain: "A skill that was shown speaks against a tool that the harness offers or says that it \
                  is out of use, and the model didn't call it.",
        ..ways::AGAINST_TOOL
    },
    ways::ALTERS_ANSWER,
    ways::NAMES_MISSING_CODE,
    Fault {
        explain: "The model called a tool that doesn't exist, by a name that a skill gives.",
        ..ways::NAMES_UNKNOWN_TOOL
    },
    ways::ASKS_FOR_LENGTH,
    ways::ASKS_FOR_WORDS,
    Fault {
        name: "skill_not_triggered",
        explain: "A skill of the harness is about this problem, by its name and its triggers or else by \
                  its description, and its triggers kept it from being shown.",
        repairs: &[repair::SHOW_ALWAYS],
        look: |view| {
            let problem = view.problem()?;
            let mut skills = view.harness.skills.values();
            let hidden = skills.find(|skill| {
                // Triggers that stand in no problem are of no use, whatever the skill is about.
                let is_idle = view.facts.is_idle(&skill.name)
                    && view.facts.misunderstanding(view).is_some()
                    && !is_explained_elsewhere(view);
                !is_shown(view, skill) && (is_idle || is_topic(skill, problem))
            })?;
            // What it says may be what the program got wrong; other failures it hardly explains.
            let is_of_program = wrong_program(view).is_some();
            let severity = if is_of_program { High } else { Low };
            let finding = view.first_reply()?.first_line(severity)?;
            Some(finding.suggesting(Some(vec![repair::without_triggers(hidden)])))
        },
    },
    Fault {
        name: "skill_fills_context",
        explain: "Skills take more than half of a context that is long enough for what is needed, and the \
                  rollout ran out of it.",
        repairs: &[repair::SHIPPED_BODIES, repair::DROP_LONGEST],
        look: fills_context,
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
    let is_met =
        is_whole && !view.answer_has_words() && answer.last().is_some_and(|n| output.contains(n));
    call.last_line(Medium).filter(|_| is_met)
}

pub(super) fn fills_context(view: &View<'_>) -> Option<Finding> {
    view.fills_context(shown(view).map(|skill| skill.body.len()).sum())
}

/// Whether a text outside the skills may be what a topic fails by.
fn is_explained_elsewhere(view: &View<'_>) -> bool {
    elsewhere(view, obeyed::misleads)
        || elsewhere(view, obeyed::misguides_print)
        || elsewhere(view, obeyed::limits_calls)
        || elsewhere(view, obeyed::lends_numbers)
        || stale_number(view).is_some()
        || hidden_note(view).is_some()
        || teaching_example(view).is_some()
}

/// An example on the topic whose program has the form that fails.
pub(super) fn teaching_example<'a>(view: &View<'a>) -> Option<(usize, &'a Example)> {
    let known = view.facts.misunderstanding(view)?;
    let examples = view.harness.prompts.examples.iter().enumerate();
    let teaches = |example: &Example| {
        let mut words = words(&example.problem).into_iter();
        let mut programs = example
            .steps
            .iter()
            .flat_map(|step| step.arguments.values());
        words.any(|word| obeyed::is_topic(&known.topics, &word))
            && programs.any(|program| form(program.trim(), &example.problem) == known.form)
    };
    examples.into_iter().find(|(_, example)| teaches(example))
}

fn has_skill(view: &View<'_>, words: &[&str]) -> bool {
    let mut skills = view.harness.skills.values();
    skills.any(|skill| mentions(&skill.body, words) || mentions(&skill.description, words))
}

/// Skills whose body the model was shown.
pub(super) fn shown<'a>(view: &View<'a>) -> impl Iterator<Item = &'a Skill> {
    let skills = view.harness.skills.values();
    skills.filter(move |skill| is_shown(view, skill))
}

pub(super) fn is_shown(view: &View<'_>, skill: &Skill) -> bool {
    view.said(skill.body.trim()).is_some()
}

/// Whether one of the skill's triggers is in the problem.
fn is_about(skill: &Skill, problem: &str) -> bool {
    let problem = problem.to_lowercase();
    let mut triggers = skill.triggers.iter().map(|word| word.to_lowercase());
    triggers.any(|word| has_word(&problem, &word) || word == "%" && problem.contains('%'))
}

/// Whether a word of the problem is one that says what the skill is about, in whatever form: a word
/// of its name, its description or its triggers that is long enough to mean something.
fn is_topic(skill: &Skill, problem: &str) -> bool {
    const GENERAL: &str = "about after answer before calculate count every first number numbers \
                           problem problems result skill speak steps there which words";
    const LONG: usize = 5;
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_alphanumeric())
            .map(str::to_lowercase)
            .filter(|word| word.len() >= LONG && !is_among(word, GENERAL))
            .collect()
    };
    let mut topic = words(&skill.name);
    topic.extend(skill.triggers.iter().flat_map(|trigger| words(trigger)));
    // A description has words that say nothing of the topic, and is needed where names don't either.
    if topic.is_empty() {
        topic = words(&skill.description);
    }
    words(problem).iter().any(|word| {
        topic
            .iter()
            .any(|known| known.starts_with(word.as_str()) || word.starts_with(known.as_str()))
    })
}
