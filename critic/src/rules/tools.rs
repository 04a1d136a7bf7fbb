//! Rules of dimension T: tool schema errors.

use harness::{Tool, ToolName, ToolState};
use rollout::Event;
use sandbox::Exit;

use super::finding::{At, Finding};
use super::text::{has_word, is_among, is_calculation, mentions, numbers};
use super::told::{self, blamed};
use super::view::View;
use super::{Fault, meaning, obeyed, ways};
use crate::catalogue::program_tool;
use crate::record::Severity::{High, Low, Medium};
use crate::repairs::tools as repair;

/// Below these, a limit is a likely cause of the fault.
const SHORT_TIMEOUT_MS: u64 = 3000;
const LITTLE_MEMORY_MIB: u64 = 256;
const FEW_CHARS: usize = 1000;
/// Words that tell to print.
const PRINTING: [&str; 6] = [
    "print(",
    "print the",
    "print its",
    "prints the",
    "prints its",
    "must print",
];

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "wrong_arguments",
        explain: "A call had wrong, missing or unknown arguments. The parameters' descriptions \
                  don't show what is expected.",
        repairs: &[
            repair::PARAMETER_EXAMPLE,
            repair::PLAIN_SCHEMA,
            repair::PARAMETER_PRINT,
        ],
        look: |view| refused_call(view, |event| matches!(event, Event::BadArguments { .. })),
    },
    Fault {
        name: "program_in_wrong_argument",
        explain: "The tool requires other texts beside the program, what was run isn't a program, and the \
                  call has one in another argument.",
        repairs: &[repair::PLAIN_SCHEMA],
        look: |view| {
            let (_, tool) = program_tool(view.harness)?;
            let required = tool.parameters["required"].as_array()?.len();
            let is_program = |text: &str| text.contains(['(', '=', '*', '+']);
            let wrong = view.calls().find(|call| !is_program(call.text()))?;
            let mut replies = view.replies().filter(|at| at.index < wrong.index);
            let is_elsewhere = replies
                .next_back()
                .is_some_and(|at| at.text().contains("print("));
            let is_met = required > 1 && is_elsewhere;
            wrong.first_line(High).filter(|_| is_met)
        },
    },
    Fault {
        name: "unknown_tool",
        explain: "The model called a tool that the harness doesn't have. The description doesn't \
                  make clear which tools there are.",
        repairs: &[repair::DESCRIPTION_NAME, repair::DESCRIPTION_WHEN],
        look: |view| refused_call(view, |event| matches!(event, Event::UnknownTool { .. })),
    },
    Fault {
        name: "answer_tool",
        explain: "The model gave the number that one tool had printed to another tool and stated no \
                  answer: the loop reads answers in replies, and a tool that takes them keeps them.",
        repairs: &[repair::PROGRAM_TOOL_ALONE],
        look: |view| {
            let (call, name) = answer_receiver(view)?;
            let finding = call.first_line(High)?;
            Some(finding.suggesting(Some(vec![repair::remove(name)])))
        },
    },
    Fault {
        name: "fence_fits_several_tools",
        explain: "A reply has a fenced block for Python, several tools run Python and none has that name, so \
                  that the loop took the block for no call.",
        repairs: &[repair::PROGRAM_TOOL_ALONE, repair::CALL_IT_PYTHON],
        look: |view| {
            let is_met = view.ignores_tool() && view.takes_fences() && !view.answers_with_program();
            let tools = || view.harness.tools.iter();
            let is_unnamed = |word: &str| tools().all(|(name, _)| name.as_str() != word);
            let is_fence = |line: &str| {
                let word = line.trim().strip_prefix("```").unwrap_or_default().trim();
                is_among(&word.to_lowercase(), "python py python3") && is_unnamed(word)
            };
            let mut replies = view.replies().filter(|_| is_met && tools().count() > 1);
            let finding = replies.find_map(|at| at.line(High, is_fence))?;
            let kept = likeliest_tool(view);
            Some(finding.suggesting(kept.and_then(|kept| repair::leave_alone(view.harness, kept))))
        },
    },
    Fault {
        name: "print_not_described",
        explain: "A program printed nothing, and what the model reads of the tool doesn't say that \
                  a program must print its result. In a call format without parameters, that is \
                  the tool's description alone.",
        repairs: &[repair::PARAMETER_PRINT, repair::DESCRIPTION_WHEN],
        look: |view| {
            let (_, tool) = program_tool(view.harness)?;
            let parameter = parameter_description(tool).filter(|_| !view.is_fenced());
            let mut texts = parameter.into_iter().chain([tool.description.as_str()]);
            let is_met = !texts.any(|text| mentions(text, &PRINTING));
            let silent = view.call_before(|event| matches!(event, Event::EmptyOutput))?;
            // Where another text says it or the program does it, this one needn't, and where one says the
            // opposite, that is why.
            let is_said = view.shows_print()
                || meaning::prints(silent.text())
                || told::elsewhere(view, obeyed::misguides_print)
                || told::anywhere(view, |_, sentence| mentions(sentence.text, &PRINTING));
            let severity = if is_said { Low } else { High };
            Some(silent_program(view).filter(|_| is_met)?.rated(severity))
        },
    },
    Fault {
        name: "tool_description_vague",
        explain: "The model never called the tool, and the tool's description doesn't say when to \
                  use it.",
        repairs: &[repair::DESCRIPTION_WHEN, repair::PARAMETER_EXAMPLE],
        look: |view| {
            let tells = [
                "use it",
                "use this",
                "call it",
                "call this",
                "when",
                "whenever",
            ];
            let mut tools = view.harness.tools.values();
            let is_met = view.ignores_tool() && tools.all(|t| !mentions(&t.description, &tells));
            view.first_reply()?.first_line(Low).filter(|_| is_met)
        },
    },
    Fault {
        explain: "A tool's own description speaks against calling it, and the model didn't.",
        look: |view| {
            let finding = blamed(view, obeyed::speaks_against_tool)?;
            // The shipped description says more than what is left without the sentence.
            Some(finding.suggesting(None))
        },
        ..ways::AGAINST_TOOL
    },
    ways::ALTERS_ANSWER,
    ways::MISLEADS,
    ways::NAMES_MISSING_CODE,
    ways::ASKS_FOR_LENGTH,
    ways::ASKS_FOR_WORDS,
    Fault {
        name: "state_lost",
        explain: "A program used a name that an earlier call of the rollout had defined, and the \
                  tool starts every call afresh.",
        repairs: &[repair::STATEFUL],
        look: |view| {
            let (at, name) = view.missing_name()?;
            // A module that can't be imported was never there.
            let is_undefined = at.text().contains("is not defined");
            let (_, tool) = program_tool(view.harness).filter(|_| is_undefined)?;
            let mut earlier = view.calls().filter(|call| call.index < at.index);
            let defines = |line: &str| {
                let line = line.trim();
                let assigns = line
                    .split_once('=')
                    .is_some_and(|(left, right)| !right.starts_with('=') && has_word(left, name));
                let imports = ["import ", "from ", "def "]
                    .iter()
                    .any(|word| line.starts_with(word) && has_word(line, name));
                assigns || imports
            };
            let is_met = tool.state == ToolState::Stateless
                && earlier.any(|call| call.text().lines().any(defines));
            let finding = at.line(High, |line| has_word(line, name));
            finding.filter(|_| is_met)
        },
    },
    Fault {
        name: "tool_missing",
        explain: "The harness has no tool and the problem has numbers, so that the model had to \
                  calculate in its head.",
        repairs: &[repair::PYTHON_TOOL],
        look: |view| {
            let is_met = view.harness.tools.is_empty();
            let calculates = numbers(view.problem()?).len() >= 2
                || view
                    .replies()
                    .any(|at| at.text().lines().any(is_calculation));
            let finding = view.first_reply()?.first_line(High)?;
            (is_met && calculates).then_some(finding)
        },
    },
    Fault {
        name: "tool_timeout_short",
        explain: "A program ran out of time under a short time limit.",
        repairs: &[repair::TIMEOUT_UP],
        look: |view| {
            let (_, tool) = program_tool(view.harness)?;
            let is_met = tool.limits.timeout_ms < SHORT_TIMEOUT_MS;
            failed_result(view, Exit::TimedOut).filter(|_| is_met)
        },
    },
    Fault {
        name: "tool_memory_small",
        explain: "A program ran out of memory under a small memory limit.",
        repairs: &[repair::MEMORY_UP],
        look: |view| {
            let (_, tool) = program_tool(view.harness)?;
            let is_met = tool.limits.memory_mib < LITTLE_MEMORY_MIB;
            failed_result(view, Exit::OutOfMemory).filter(|_| is_met)
        },
    },
    Fault {
        name: "tool_output_cut",
        explain: "A tool's output was cut under a small output limit, so that the model may not \
                  have seen the result.",
        repairs: &[repair::OUTPUT_UP],
        look: |view| {
            let (_, tool) = program_tool(view.harness)?;
            let is_met = tool.limits.output_chars < FEW_CHARS;
            let cut = view.event(|event| matches!(event, Event::OutputTruncated));
            cut?.last_line(High).filter(|_| is_met)
        },
    },
    Fault {
        name: "tool_description_fills_context",
        explain: "The tools' descriptions take more than half of a context that is long enough for what is \
                  needed, and the rollout ran out of it.",
        repairs: &[repair::DESCRIPTION_WHEN, repair::PLAIN_SCHEMA],
        look: fills_context,
    },
];

pub(super) fn fills_context(view: &View<'_>) -> Option<Finding> {
    let tools = view.harness.tools.values();
    let length = |tool: &Tool| tool.description.len() + tool.parameters.to_string().len();
    view.fills_context(tools.map(length).sum())
}

/// A call that hands an answer over, and the tool that it went to, which isn't the one that the answer is
/// from.
pub(super) fn answer_receiver<'a>(view: &View<'a>) -> Option<(At<'a>, &'a str)> {
    let call = obeyed::handed_over(view)?;
    let result = view.good_results().next()?;
    let first = view.calls().rfind(|call| call.index < result.index)?;
    let name = view.tool_of(call)?;
    (view.tool_of(first)? != name).then_some((call, name))
}

/// Of the tools that run programs the one that the prompts name, or else one that says to print.
fn likeliest_tool<'a>(view: &View<'a>) -> Option<&'a ToolName> {
    let prompts = &view.harness.prompts;
    let texts = [&prompts.system, &prompts.task, &prompts.final_answer];
    let rank = |(name, tool): &(&ToolName, &Tool)| {
        let is_named = texts.iter().any(|text| has_word(text, name.as_str()));
        (is_named, mentions(&tool.description, &PRINTING))
    };
    let tools = view.harness.tools.iter();
    let tools = tools.filter(|(_, tool)| tool.code_argument().is_some());
    // Of equals the first.
    tools.rev().max_by_key(rank).map(|(name, _)| name)
}

/// A call that was refused, for which the tool is to blame unless another text gave it the name.
fn refused_call(view: &View<'_>, is_meant: fn(&Event) -> bool) -> Option<Finding> {
    let is_elsewhere = told::elsewhere(view, obeyed::names_unknown_tool);
    let severity = if is_elsewhere { Medium } else { High };
    view.event(is_meant)?.first_line(severity)
}

/// The program that printed nothing. A program that a limit or an error ended is another matter.
pub(super) fn silent_program(view: &View<'_>) -> Option<Finding> {
    view.call_before(|event| matches!(event, Event::EmptyOutput))?
        .last_line(Medium)
}

fn parameter_description(tool: &Tool) -> Option<&str> {
    let argument = tool.code_argument()?;
    let schema = &tool.parameters["properties"][argument];
    Some(schema["description"].as_str().unwrap_or(""))
}

fn failed_result(view: &View<'_>, exit: Exit) -> Option<Finding> {
    let is_meant = |event: &Event| matches!(event, Event::ToolError { exit: e } if *e == exit);
    view.event(is_meant)?.last_line(High)
}
