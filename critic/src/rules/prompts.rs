//! Rules of dimension P: prompt ambiguity.

use harness::{Example, PatchOp};
use rollout::Event;

use super::finding::Finding;
use super::meaning::tool_names;
use super::skills::{teaching_example, wrong_program};
use super::text::{is_calculation, mentions, numbers};
use super::told::{self, blamed};
use super::view::View;
use super::{Fault, obeyed, ways};
use crate::record::Severity::{High, Low, Medium};
use crate::repairs::{path, prompts as repair};

/// Examples below this count are few.
const FEW_EXAMPLES: usize = 3;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "example_missing",
        explain: "The harness has a tool, the model never called it, and no example shows a call. \
                  A small model copies what it is shown and rarely follows a description alone.",
        repairs: &[
            repair::ALL_EXAMPLES,
            repair::THREE_EXAMPLES,
            repair::TWO_EXAMPLES,
            repair::ONE_EXAMPLE,
        ],
        look: |view| {
            let is_met = view.ignores_tool() && !view.shows_call();
            let severity = if view.shuns_tool() { High } else { Medium };
            view.first_reply()?.first_line(severity).filter(|_| is_met)
        },
    },
    Fault {
        name: "examples_too_few",
        explain: "One or two examples are shown and the rollout still failed to call the tool, \
                  wrote a call that can't be read, or ended without an answer. One more example \
                  makes the pattern plainer.",
        repairs: &[repair::ALL_EXAMPLES, repair::NEXT_EXAMPLE],
        look: examples_too_few,
    },
    Fault {
        name: "two_step_example_missing",
        explain: "The problem has three or more numbers, the program ran, the model gave its result \
                  as the answer, the answer was wrong, and no example uses more than two numbers. \
                  Examples with one operation teach one operation.",
        repairs: &[repair::NEXT_EXAMPLE, repair::ALL_EXAMPLES],
        look: two_step_example_missing,
    },
    Fault {
        name: "final_answer_instruction_missing",
        explain: "The rollout ended without a recognisable answer, and neither prompts nor \
                  examples show a form in which one is recognised.",
        repairs: &[repair::FINAL_BOXED, repair::FINAL_NUMBER_ONLY],
        look: |view| {
            let is_met = !view.states_answer() && !view.tells_answer_form();
            view.last_words()?.last_line(High).filter(|_| is_met)
        },
    },
    Fault {
        name: "final_answer_ignored",
        explain: "The prompts say how to write the answer, the tool gave a result, and the model \
                  still ended without a recognisable answer. The instruction doesn't say when to \
                  follow it.",
        repairs: &[
            repair::FINAL_BOXED,
            repair::TWO_EXAMPLES,
            repair::FINAL_NUMBER_ONLY,
            repair::NEXT_EXAMPLE,
        ],
        look: |view| {
            let is_met = !view.states_answer()
                && view.last_good_result().is_some()
                && !view.is_output_cut()
                && view.tells_answer_form();
            view.last_words()?.last_line(Medium).filter(|_| is_met)
        },
    },
    Fault {
        name: "answer_has_words",
        explain: "The answer holds words or an equation beside the number that the verifier \
                  compares. Instruction or examples don't ask for a bare number.",
        repairs: &[repair::BARE_EXAMPLES, repair::FINAL_NUMBER_ONLY],
        look: |view| {
            let answer = view.value()?.trim();
            let said = view.replies().rfind(|at| at.text().contains(answer))?;
            // With the tool's own number in it, the words are all that can be wrong with it.
            let printed = view.last_good_result().map(|at| numbers(view.output(at)));
            let is_printed = printed.is_some_and(|printed| {
                let mut answered = numbers(answer).into_iter();
                answered.any(|number| printed.last() == Some(&number))
            });
            let severity = match is_printed {
                // A sentence that asks for it is at fault, wherever it stands.
                true if told::anywhere(view, obeyed::alters_answer) => Medium,
                true => High,
                false => Low,
            };
            let finding = said.line(severity, |line| line.contains(answer))?;
            view.answer_has_words().then_some(finding)
        },
    },
    Fault {
        name: "tool_not_asked_for",
        explain: "The model never called the tool, and the prompts leave it open whether to: neither \
                  task nor final answer speak of it, and the system prompt doesn't name it, or says \
                  `may` or `can`.",
        repairs: &[
            repair::SYSTEM_USE_TOOL,
            repair::TASK_SUFFIX,
            repair::SYSTEM_SHORT,
        ],
        look: |view| {
            let prompts = &view.harness.prompts;
            let system = &prompts.system;
            let is_open = !asks_for_tool(view, system)
                || mentions(system, &["may use", "can use", "if needed"]);
            let is_asked_below =
                asks_for_tool(view, &prompts.task) || asks_for_tool(view, &prompts.final_answer);
            let is_met = view.ignores_tool() && is_open && !is_asked_below;
            view.first_reply()?.first_line(Medium).filter(|_| is_met)
        },
    },
    Fault {
        name: "calculates_in_prose",
        explain: "The model wrote out a calculation instead of calling the tool. The task message \
                  doesn't ask for a program where the model looks last.",
        repairs: &[repair::TASK_SUFFIX, repair::TWO_EXAMPLES],
        look: |view| {
            let is_met = view.ignores_tool() && !asks_for_tool(view, &view.harness.prompts.task);
            let mut replies = view.replies().filter(|_| is_met);
            replies.find_map(|at| at.line(Medium, is_calculation))
        },
    },
    Fault {
        name: "tool_forbidden",
        repairs: &[repair::SYSTEM_USE_TOOL, repair::TASK_PLAIN],
        ..ways::AGAINST_TOOL
    },
    Fault {
        explain: "The answer is what a sentence of the prompts makes of the number that the tool \
                  printed, such as a rounded one, or of what an example's tool printed.",
        repairs: &[repair::TASK_PLAIN, repair::FINAL_BOXED],
        look: |view| blamed(view, obeyed::alters_answer).or_else(|| altering_example(view)),
        ..ways::ALTERS_ANSWER
    },
    Fault {
        explain: "The prompts say or an example shows how to calculate on a topic, and every problem of \
                  that topic fails by a program of the same form.",
        look: |view| blamed(view, obeyed::misleads).or_else(|| misleading_example(view)),
        ..ways::MISLEADS
    },
    ways::NAMES_UNKNOWN_TOOL.repaired_by(&[repair::SYSTEM_USE_TOOL]),
    Fault {
        explain: "A program failed over a name that Python doesn't know and that the prompts give, or \
                  isn't today's Python and the prompts speak of another language or version.",
        repairs: &[repair::SYSTEM_USE_TOOL],
        ..ways::NAMES_MISSING_CODE
    },
    Fault {
        name: "long_text_asked_for",
        repairs: &[repair::SYSTEM_USE_TOOL, repair::SYSTEM_SHORT],
        ..ways::ASKS_FOR_LENGTH
    },
    ways::ASKS_FOR_WORDS.repaired_by(&[repair::FINAL_BOXED, repair::TASK_PLAIN]),
    Fault {
        name: "prompt_fills_context",
        explain: "Prompts and examples take more than half of a context that is long enough for what is \
                  needed, and the rollout ran out of it.",
        repairs: &[
            repair::SYSTEM_SHORT,
            repair::TASK_PLAIN,
            repair::FEWER_EXAMPLES,
        ],
        look: fills_context,
    },
];

pub(super) fn fills_context(view: &View<'_>) -> Option<Finding> {
    let prompts = &view.harness.prompts;
    let texts = [&prompts.system, &prompts.task, &prompts.final_answer];
    let shown: usize = texts.iter().map(|text| text.len()).sum();
    let examples = prompts.examples.iter().map(|example| {
        let steps = example.steps.iter();
        let called = steps.map(|step| {
            step.arguments.values().map(String::len).sum::<usize>() + step.result.len()
        });
        example.problem.len() + example.answer.len() + called.sum::<usize>()
    });
    view.fills_context(shown + examples.sum::<usize>())
}

/// Whether a text names a tool, or asks for a program.
fn asks_for_tool(view: &View<'_>, text: &str) -> bool {
    let text = text.to_lowercase();
    let mut names = tool_names(view.harness).into_iter();
    text.contains("program") || names.any(|name| text.contains(&name))
}

/// An example whose answer isn't its tool's last number, where the model's isn't either.
fn altering_example(view: &View<'_>) -> Option<Finding> {
    view.differing_numbers()?;
    let examples = view.harness.prompts.examples.iter().enumerate();
    let differs = |example: &Example| {
        let printed = example.steps.last().map(|step| numbers(&step.result));
        let answer = numbers(&example.answer);
        let last = printed.as_ref().and_then(|printed| printed.last());
        last.is_some_and(|last| !answer.is_empty() && !answer.contains(last))
    };
    let ops: Vec<PatchOp> = examples
        .rev()
        .filter(|(_, example)| differs(example))
        .map(|(index, _)| remove_example(index))
        .collect();
    let finding = view.last_good_result()?.last_line(High)?;
    (!ops.is_empty()).then(|| finding.suggesting(Some(ops)))
}

fn misleading_example(view: &View<'_>) -> Option<Finding> {
    let (index, _) = teaching_example(view)?;
    let finding = wrong_program(view)?.rated(High);
    Some(finding.suggesting(Some(vec![remove_example(index)])))
}

fn remove_example(index: usize) -> PatchOp {
    PatchOp::remove(path("prompts.examples").join(index))
}

fn examples_too_few(view: &View<'_>) -> Option<Finding> {
    let count = view.harness.prompts.examples.len();
    if count == 0 || count >= FEW_EXAMPLES || view.harness.tools.is_empty() {
        return None;
    }
    let is_meant = |event: &Event| {
        matches!(
            event,
            Event::NoToolCall | Event::UnparsableCall { .. } | Event::NoFinalAnswer
        )
    };
    view.event(is_meant)?.first_line(Medium)
}

fn two_step_example_missing(view: &View<'_>) -> Option<Finding> {
    let result = view.last_good_result()?;
    let problem = numbers(view.problem()?);
    let examples = &view.harness.prompts.examples;
    let is_met = problem.len() >= 3
        && wrong_program(view).is_some()
        && !examples.is_empty()
        && examples
            .iter()
            .all(|example| numbers(&example.problem).len() <= 2);
    result.last_line(Medium).filter(|_| is_met)
}
