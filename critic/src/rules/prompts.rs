//! Rules of dimension P: prompt ambiguity.

use harness::{Example, PatchOp};
use rollout::Event;

use super::skills::{teaching_example, wrong_program};
use super::view::{View, is_calculation, mentions, numbers};
use super::{Finding, Rule, told};
use crate::record::HarnessDim::P;
use crate::record::RootCause::PromptAmbiguity;
use crate::record::Severity::{High, Low, Medium};
use crate::repairs::{path, prompts as repair};

/// Examples below this count are few.
const FEW_EXAMPLES: usize = 3;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "example_missing",
        root_cause: PromptAmbiguity,
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
            is_met
                .then(|| view.first_reply()?.first_line(severity))
                .flatten()
        },
    },
    Rule {
        name: "examples_too_few",
        root_cause: PromptAmbiguity,
        explain: "One or two examples are shown and the rollout still failed to call the tool, \
                  wrote a call that can't be read, or ended without an answer. One more example \
                  makes the pattern plainer.",
        repairs: &[repair::ALL_EXAMPLES, repair::NEXT_EXAMPLE],
        look: examples_too_few,
    },
    Rule {
        name: "two_step_example_missing",
        root_cause: PromptAmbiguity,
        explain: "The problem has three or more numbers, the program ran, the model gave its result \
                  as the answer, the answer was wrong, and no example uses more than two numbers. \
                  Examples with one operation teach one operation.",
        repairs: &[repair::NEXT_EXAMPLE, repair::ALL_EXAMPLES],
        look: two_step_example_missing,
    },
    Rule {
        name: "final_answer_instruction_missing",
        root_cause: PromptAmbiguity,
        explain: "The rollout ended without a recognisable answer, and neither prompts nor \
                  examples show a form in which one is recognised.",
        repairs: &[repair::FINAL_BOXED, repair::FINAL_NUMBER_ONLY],
        look: |view| {
            let is_met = !view.states_answer() && !view.tells_answer_form();
            is_met.then(|| view.last_words()?.last_line(High)).flatten()
        },
    },
    Rule {
        name: "final_answer_ignored",
        root_cause: PromptAmbiguity,
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
            is_met
                .then(|| view.last_words()?.last_line(Medium))
                .flatten()
        },
    },
    Rule {
        name: "answer_has_words",
        root_cause: PromptAmbiguity,
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
                true if told::has_altering_sentence(view) => Medium,
                true => High,
                false => Low,
            };
            view.answer_has_words()
                .then(|| said.line(severity, |line| line.contains(answer)))
                .flatten()
        },
    },
    Rule {
        name: "tool_not_asked_for",
        root_cause: PromptAmbiguity,
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
            is_met
                .then(|| view.first_reply()?.first_line(Medium))
                .flatten()
        },
    },
    Rule {
        name: "calculates_in_prose",
        root_cause: PromptAmbiguity,
        explain: "The model wrote out a calculation instead of calling the tool. The task message \
                  doesn't ask for a program where the model looks last.",
        repairs: &[repair::TASK_SUFFIX, repair::TWO_EXAMPLES],
        look: |view| {
            let is_met = view.ignores_tool() && !asks_for_tool(view, &view.harness.prompts.task);
            is_met
                .then(|| {
                    view.replies()
                        .find_map(|at| at.line(Medium, is_calculation))
                })
                .flatten()
        },
    },
    Rule {
        name: "tool_forbidden",
        root_cause: PromptAmbiguity,
        explain: "The prompts speak against a tool that the harness offers, and the model didn't \
                  call it.",
        repairs: &[repair::SYSTEM_USE_TOOL, repair::TASK_PLAIN],
        look: |view| told::against_tool(view, P),
    },
    Rule {
        name: "prompt_alters_answer",
        root_cause: PromptAmbiguity,
        explain: "The answer is what a sentence of the prompts makes of the number that the tool \
                  printed, such as a rounded one, or of what an example's tool printed.",
        repairs: &[repair::TASK_PLAIN, repair::FINAL_BOXED],
        look: |view| told::altering_answer(view, P).or_else(|| altering_example(view)),
    },
    Rule {
        name: "prompt_misleads",
        root_cause: PromptAmbiguity,
        explain: "The prompts say or an example shows how to calculate on a topic, and every problem of \
                  that topic fails by a program of the same form.",
        repairs: &[repair::TASK_PLAIN, repair::SYSTEM_USE_TOOL],
        look: |view| {
            let shown = || {
                let (index, _) = teaching_example(view)?;
                let field = path("prompts.examples").join(index);
                Some(Finding {
                    severity: High,
                    ops: Some(vec![PatchOp::remove(field)]),
                    ..wrong_program(view)?
                })
            };
            told::misleading(view, P).or_else(shown)
        },
    },
    Rule {
        name: "prompt_names_unknown_tool",
        root_cause: PromptAmbiguity,
        explain: "The model called a tool or gave an argument that doesn't exist, by a name that the \
                  prompts give.",
        repairs: &[repair::SYSTEM_USE_TOOL],
        look: |view| told::naming_unknown_tool(view, P),
    },
    Rule {
        name: "prompt_names_missing_code",
        root_cause: PromptAmbiguity,
        explain: "A program failed over a name that Python doesn't know and that the prompts give, or \
                  isn't today's Python and the prompts speak of another language or version.",
        repairs: &[repair::SYSTEM_USE_TOOL],
        look: |view| told::naming_missing_code(view, P),
    },
    Rule {
        name: "long_text_asked_for",
        root_cause: PromptAmbiguity,
        explain: "The prompts ask for a long text, and a reply reached its token limit before it \
                  came to a call or an answer.",
        repairs: &[repair::SYSTEM_USE_TOOL, repair::SYSTEM_SHORT],
        look: |view| told::asking_for_length(view, P),
    },
    Rule {
        name: "prompt_asks_for_words",
        root_cause: PromptAmbiguity,
        explain: "The prompts ask for the answer in words, and no answer could be read.",
        repairs: &[repair::FINAL_BOXED, repair::TASK_PLAIN],
        look: |view| told::asking_for_words(view, P),
    },
    Rule {
        name: "prompt_fills_context",
        root_cause: PromptAmbiguity,
        explain: "Prompts and examples take more than half of a context that is long enough for what is \
                  needed, and the rollout ran out of it.",
        repairs: &[
            repair::SYSTEM_SHORT,
            repair::TASK_PLAIN,
            repair::FEWER_EXAMPLES,
        ],
        look: fills_context,
    },
    Rule {
        name: "prompt_asks_for_more",
        root_cause: PromptAmbiguity,
        explain: "The prompts ask for further calls, and the rollout had a result and went on calling without an \
                  answer.",
        repairs: &[repair::TASK_PLAIN, repair::SYSTEM_USE_TOOL],
        look: |view| told::asking_for_more(view, P),
    },
    Rule {
        name: "prompt_gives_unread_marks",
        root_cause: PromptAmbiguity,
        explain: "The prompts give marks for programs that the loop doesn't read, and the model put its \
                  program between them instead of calling the tool.",
        repairs: &[repair::TASK_PLAIN, repair::SYSTEM_USE_TOOL],
        look: |view| told::giving_unread_mark(view, P),
    },
    Rule {
        name: "prompt_misguides_print",
        root_cause: PromptAmbiguity,
        explain: "The prompts say that a program needn't print, and one printed nothing; or to print more \
                  than the result, and the answer is the last of several numbers.",
        repairs: &[repair::TASK_PLAIN, repair::SYSTEM_USE_TOOL],
        look: |view| told::misguiding_print(view, P),
    },
    Rule {
        name: "prompt_suspected",
        root_cause: PromptAmbiguity,
        explain: "Most rollouts fail, nothing explains this one, and the prompts may be why: the gate can tell, with \
                  the shipped text or none in their place.",
        repairs: &[
            repair::FINAL_BOXED,
            repair::TASK_PLAIN,
            repair::SYSTEM_USE_TOOL,
        ],
        look: |view| told::suspected(view, P),
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
    let names = view.harness.tools.keys();
    let mut words: Vec<String> = names.map(|name| name.as_str().to_lowercase()).collect();
    words.push("program".to_owned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    mentions(text, &words)
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
        .map(|(index, _)| PatchOp::remove(path("prompts.examples").join(index)))
        .collect();
    let finding = view.last_good_result()?.last_line(High)?;
    (!ops.is_empty()).then_some(Finding {
        ops: Some(ops),
        ..finding
    })
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
    is_met.then(|| result.last_line(Medium)).flatten()
}
