//! Rules of dimension T: tool schema errors.

use harness::{CallFormat, Tool, ToolState};
use rollout::Event;
use sandbox::Exit;

use super::view::{View, has_word, is_calculation, mentions, numbers};
use super::{Finding, Rule, told};
use crate::catalogue::program_tool;
use crate::record::HarnessDim::T;
use crate::record::RootCause::ToolSchemaError;
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

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "wrong_arguments",
        root_cause: ToolSchemaError,
        explain: "A call had wrong, missing or unknown arguments. The parameters' descriptions \
                  don't show what is expected.",
        repairs: &[
            repair::PARAMETER_EXAMPLE,
            repair::PLAIN_SCHEMA,
            repair::PARAMETER_PRINT,
        ],
        look: |view| {
            // A name that a note or a prompt gave is the fault of that text.
            let is_elsewhere = told::is_unknown_tool_named_elsewhere(view);
            view.event(|event| matches!(event, Event::BadArguments { .. }))?
                .first_line(if is_elsewhere { Medium } else { High })
        },
    },
    Rule {
        name: "program_in_wrong_argument",
        root_cause: ToolSchemaError,
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
            (required > 1 && is_elsewhere)
                .then(|| wrong.first_line(High))
                .flatten()
        },
    },
    Rule {
        name: "unknown_tool",
        root_cause: ToolSchemaError,
        explain: "The model called a tool that the harness doesn't have. The description doesn't \
                  make clear which tools there are.",
        repairs: &[repair::DESCRIPTION_NAME, repair::DESCRIPTION_WHEN],
        look: |view| {
            // A name that a note or a prompt gave is the fault of that text.
            let is_elsewhere = told::is_unknown_tool_named_elsewhere(view);
            view.event(|event| matches!(event, Event::UnknownTool { .. }))?
                .first_line(if is_elsewhere { Medium } else { High })
        },
    },
    Rule {
        name: "print_not_described",
        root_cause: ToolSchemaError,
        explain: "A program printed nothing, and what the model reads of the tool doesn't say that \
                  a program must print its result. In a call format without parameters, that is \
                  the tool's description alone.",
        repairs: &[repair::PARAMETER_PRINT, repair::DESCRIPTION_WHEN],
        look: |view| {
            let (_, tool) = program_tool(view.harness)?;
            let is_fenced = view.harness.middleware.protocol.call_format == CallFormat::Fenced;
            let parameter = parameter_description(tool).filter(|_| !is_fenced);
            let mut texts = parameter.into_iter().chain([tool.description.as_str()]);
            let is_met = !texts.any(|text| mentions(text, &PRINTING));
            // Where another text says it, this one needn't.
            let is_said = view.shows_print() || told::is_said(view, &PRINTING);
            let severity = if is_said { Low } else { High };
            is_met
                .then(|| {
                    Some(Finding {
                        severity,
                        ..silent_program(view)?
                    })
                })
                .flatten()
        },
    },
    Rule {
        name: "tool_description_vague",
        root_cause: ToolSchemaError,
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
            is_met
                .then(|| view.first_reply()?.first_line(Low))
                .flatten()
        },
    },
    Rule {
        name: "tool_description_against_tool",
        root_cause: ToolSchemaError,
        explain: "A tool's own description speaks against calling it, and the model didn't.",
        repairs: &[repair::DESCRIPTION_WHEN],
        look: |view| {
            let finding = told::against_tool(view, T)?;
            // The shipped description says more than what is left without the sentence.
            Some(Finding {
                ops: None,
                ..finding
            })
        },
    },
    Rule {
        name: "tool_description_alters_answer",
        root_cause: ToolSchemaError,
        explain: "The answer is what a tool's description makes of the number that the tool printed.",
        repairs: &[repair::DESCRIPTION_WHEN],
        look: |view| told::altering_answer(view, T),
    },
    Rule {
        name: "tool_description_misleads",
        root_cause: ToolSchemaError,
        explain: "A tool's description says how to calculate on a topic, and every problem of that topic \
                  fails by a program of the same form.",
        repairs: &[repair::DESCRIPTION_WHEN],
        look: |view| told::misleading(view, T),
    },
    Rule {
        name: "tool_description_names_missing_code",
        root_cause: ToolSchemaError,
        explain: "A program failed over a name that Python doesn't know and that a tool's description \
                  gives.",
        repairs: &[repair::DESCRIPTION_WHEN],
        look: |view| told::naming_missing_code(view, T),
    },
    Rule {
        name: "tool_description_asks_for_length",
        root_cause: ToolSchemaError,
        explain: "A tool's description asks for a long text, and a reply reached its token limit before \
                  it came to a call or an answer.",
        repairs: &[repair::DESCRIPTION_WHEN],
        look: |view| told::asking_for_length(view, T),
    },
    Rule {
        name: "tool_description_asks_for_words",
        root_cause: ToolSchemaError,
        explain: "A tool's description asks for the answer in words, and no answer could be read.",
        repairs: &[repair::DESCRIPTION_WHEN],
        look: |view| told::asking_for_words(view, T),
    },
    Rule {
        name: "state_lost",
        root_cause: ToolSchemaError,
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
            is_met
                .then(|| at.line(High, |line| has_word(line, name)))
                .flatten()
        },
    },
    Rule {
        name: "tool_missing",
        root_cause: ToolSchemaError,
        explain: "The harness has no tool and the problem has numbers, so that the model had to \
                  calculate in its head.",
        repairs: &[repair::PYTHON_TOOL],
        look: |view| {
            let is_met = view.harness.tools.is_empty();
            let calculates = numbers(view.problem()?).len() >= 2
                || view
                    .replies()
                    .any(|at| at.text().lines().any(is_calculation));
            (is_met && calculates)
                .then(|| view.first_reply()?.first_line(High))
                .flatten()
        },
    },
    Rule {
        name: "tool_timeout_short",
        root_cause: ToolSchemaError,
        explain: "A program ran out of time under a short time limit.",
        repairs: &[repair::TIMEOUT_UP],
        look: |view| {
            let (_, tool) = program_tool(view.harness)?;
            let is_met = tool.limits.timeout_ms < SHORT_TIMEOUT_MS;
            is_met
                .then(|| failed_result(view, Exit::TimedOut))
                .flatten()
        },
    },
    Rule {
        name: "tool_memory_small",
        root_cause: ToolSchemaError,
        explain: "A program ran out of memory under a small memory limit.",
        repairs: &[repair::MEMORY_UP],
        look: |view| {
            let (_, tool) = program_tool(view.harness)?;
            let is_met = tool.limits.memory_mib < LITTLE_MEMORY_MIB;
            is_met
                .then(|| failed_result(view, Exit::OutOfMemory))
                .flatten()
        },
    },
    Rule {
        name: "tool_output_cut",
        root_cause: ToolSchemaError,
        explain: "A tool's output was cut under a small output limit, so that the model may not \
                  have seen the result.",
        repairs: &[repair::OUTPUT_UP],
        look: |view| {
            let (_, tool) = program_tool(view.harness)?;
            let is_met = tool.limits.output_chars < FEW_CHARS;
            let cut = view.event(|event| matches!(event, Event::OutputTruncated));
            is_met.then(|| cut?.last_line(High)).flatten()
        },
    },
    Rule {
        name: "tool_description_fills_context",
        root_cause: ToolSchemaError,
        explain: "The tools' descriptions take more than half of a context that is long enough for what is \
                  needed, and the rollout ran out of it.",
        repairs: &[repair::DESCRIPTION_WHEN, repair::PLAIN_SCHEMA],
        look: fills_context,
    },
    Rule {
        name: "tool_description_asks_for_more",
        root_cause: ToolSchemaError,
        explain: "A tool's description asks for further calls, and the rollout had a result and went on calling without an \
                  answer.",
        repairs: &[repair::DESCRIPTION_WHEN],
        look: |view| told::asking_for_more(view, T),
    },
    Rule {
        name: "tool_description_gives_unread_marks",
        root_cause: ToolSchemaError,
        explain: "A tool's description gives marks for programs that the loop doesn't read, and the model put its \
                  program between them instead of calling the tool.",
        repairs: &[repair::DESCRIPTION_WHEN],
        look: |view| told::giving_unread_mark(view, T),
    },
    Rule {
        name: "tool_description_misguides_print",
        root_cause: ToolSchemaError,
        explain: "A tool's description says that a program needn't print, and one printed nothing; or to print more \
                  than the result, and the answer is the last of several numbers.",
        repairs: &[repair::DESCRIPTION_WHEN],
        look: |view| told::misguiding_print(view, T),
    },
    Rule {
        name: "tool_description_suspected",
        root_cause: ToolSchemaError,
        explain: "Most rollouts fail, nothing explains this one, and a tool's description may be why: the gate can tell, with \
                  the shipped text or none in its place.",
        repairs: &[repair::DESCRIPTION_WHEN, repair::PLAIN_SCHEMA],
        look: |view| told::suspected(view, T),
    },
];

pub(super) fn fills_context(view: &View<'_>) -> Option<Finding> {
    let tools = view.harness.tools.values();
    let length = |tool: &Tool| tool.description.len() + tool.parameters.to_string().len();
    view.fills_context(tools.map(length).sum())
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
