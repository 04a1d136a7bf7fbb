//! Rules of dimension Mid about calls: how they are written, what becomes of them.

use harness::{CallFormat, Hook};
use rollout::Event;

use super::Fault;
use super::tools::silent_program;
use crate::record::Severity::{High, Medium};
use crate::repairs::{hooks, middleware as repair};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "call_format_unused",
        explain: "The model never called the tool, and calls are written as JSON or XML. Models \
                  that have seen much code write a fenced block more readily.",
        repairs: &[
            repair::FENCED_GREEDY,
            repair::XML,
            repair::FENCED,
            hooks::EXTRACT_FENCED_CODE,
        ],
        look: |view| {
            let is_met = view.ignores_tool() && !view.is_fenced();
            let is_format = view.shuns_tool() || view.tries_call();
            // A call that the loop couldn't read is another matter.
            let is_unread = view.has_event(|event| matches!(event, Event::UnparsableCall { .. }));
            let severity = if is_format && !is_unread {
                High
            } else {
                Medium
            };
            view.first_reply()?.first_line(severity).filter(|_| is_met)
        },
    },
    Fault {
        name: "call_unparsable",
        explain: "The model tried a call and the loop couldn't read it. The call format is too \
                  hard for the model, or the loop too strict.",
        repairs: &[
            repair::REPAIR_JSON_GREEDY,
            repair::REPAIR_JSON,
            repair::XML,
            repair::FENCED,
            repair::GREEDY,
        ],
        look: |view| {
            view.event(|event| matches!(event, Event::UnparsableCall { .. }))?
                .first_line(High)
        },
    },
    Fault {
        name: "call_without_grammar",
        explain: "A reply began a call as the format has it, and what it then wrote can't be read, names \
                  no tool of the harness or doesn't fit the tool's parameters. Decoded under a grammar \
                  it could not have. For policies that can be held to one.",
        repairs: &[repair::CONSTRAINED],
        look: |view| {
            let protocol = &view.harness.middleware.protocol;
            // The token limit cuts a call all the same.
            let is_free = !protocol.constrained && !view.is_cut();
            let broken = view.event(|event| {
                matches!(
                    event,
                    Event::UnparsableCall { .. }
                        | Event::UnknownTool { .. }
                        | Event::BadArguments { .. }
                )
            })?;
            let replies = view.replies();
            let reply = replies.take_while(|at| at.index <= broken.index).last()?;
            let is_unread = view.has_event(|event| matches!(event, Event::UnparsableCall { .. }));
            let severity = if is_unread { High } else { Medium };
            let is_met = is_free && opens_call(protocol.call_format, reply.text());
            reply.first_line(severity).filter(|_| is_met)
        },
    },
    Fault {
        name: "fenced_code_ignored",
        explain: "The model wrote a fenced code block, and the loop didn't take it as a call.",
        repairs: &[hooks::EXTRACT_FENCED_CODE, repair::FENCED],
        look: |view| {
            let is_met = !view.is_fenced()
                && !view.has_call()
                && !view.answers_with_program()
                && !view.has_hook(|hook| matches!(hook, Hook::ExtractFencedCode {}));
            let has_fence = |line: &str| line.trim_start().starts_with("```");
            let mut replies = view.replies().filter(|_| is_met);
            replies.find_map(|at| at.line(High, has_fence))
        },
    },
    Fault {
        name: "neither_call_nor_answer",
        explain: "A reply had neither call nor answer, and the loop ended there instead of asking \
                  again.",
        repairs: &[hooks::NUDGE, hooks::FORCE_FINAL_ANSWER, hooks::RETRY],
        look: |view| {
            let is_met = view.has_event(|event| matches!(event, Event::NoToolCall))
                && !view.states_answer()
                && !view.has_hook(|hook| matches!(hook, Hook::Nudge { .. }));
            view.last_words()?.last_line(Medium).filter(|_| is_met)
        },
    },
    Fault {
        name: "prints_nothing",
        explain: "A program calculated a value and printed nothing, and the loop neither printed \
                  the value nor told the model.",
        repairs: &[hooks::AUTO_PRINT, hooks::EMPTY_OUTPUT_HINT],
        look: |view| {
            let is_told = view.has_hook(|hook| matches!(hook, Hook::EmptyOutputHint { .. }));
            silent_program(view).filter(|_| !is_told)
        },
    },
    Fault {
        name: "error_without_hint",
        explain: "A program failed, and the loop didn't say what to do about it.",
        repairs: &[hooks::ERROR_HINT, hooks::AUTO_PRINT],
        look: |view| {
            let is_met = !view.has_hook(|hook| matches!(hook, Hook::ErrorHint { .. }));
            let error = view.event(|event| matches!(event, Event::ToolError { .. }));
            error?.last_line(Medium).filter(|_| is_met)
        },
    },
];

/// Whether a text has what the grammar of this format takes for the opening of a call.
fn opens_call(format: CallFormat, text: &str) -> bool {
    match format {
        CallFormat::Xml => text.contains("<tool_call>"),
        CallFormat::Json => text.match_indices('{').any(|(at, _)| {
            let name = text[at + 1..].trim_start().strip_prefix("\"name\"");
            name.is_some_and(|rest| rest.trim_start().starts_with(':'))
        }),
        CallFormat::Fenced | CallFormat::Native => false,
    }
}
