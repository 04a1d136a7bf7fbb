//! Rules of dimension Mid: an agent loop that doesn't fit the model.

use harness::{CallFormat, Hook, HookPoint};
use rollout::{Event, ExitReason, Finish, StepKind};

use super::meaning::speaks_of_tool;
use super::memory::notes_fill_context;
use super::tools::silent_program;
use super::view::{At, NOISY, View, ends_in_circles, is_rounding, last_line, numbers, values};
use super::{Finding, Rule, prompts, skills, told, tools};
use crate::catalogue::catalogue;
use crate::record::HarnessDim::Mid;
use crate::record::RootCause::MiddlewareMismatch;
use crate::record::Severity::{High, Low, Medium};
use crate::repairs::middleware as repair;

/// Above this, a small model's replies vary from sample to sample.
const HOT: f64 = 0.3;
/// Below this, a tool result is likely to lose its end.
const FEW_CHARS: usize = 1000;
/// Characters of one token, roughly.
const CHARS_PER_TOKEN: usize = 4;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "call_format_unused",
        root_cause: MiddlewareMismatch,
        explain: "The model never called the tool, and calls are written as JSON or XML. Models \
                  that have seen much code write a fenced block more readily.",
        repairs: &[
            repair::FENCED_GREEDY,
            repair::XML,
            repair::FENCED,
            repair::EXTRACT_FENCED_CODE,
        ],
        look: |view| {
            let is_met = view.ignores_tool() && !is_fenced(view);
            let is_format = view.shuns_tool() || view.tries_call();
            // A call that the loop couldn't read is another matter.
            let is_unread = view.has_event(|event| matches!(event, Event::UnparsableCall { .. }));
            let severity = if is_format && !is_unread {
                High
            } else {
                Medium
            };
            is_met
                .then(|| view.first_reply()?.first_line(severity))
                .flatten()
        },
    },
    Rule {
        name: "call_unparsable",
        root_cause: MiddlewareMismatch,
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
    Rule {
        name: "call_without_grammar",
        root_cause: MiddlewareMismatch,
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
            (is_free && opens_call(protocol.call_format, reply.text()))
                .then(|| reply.first_line(severity))
                .flatten()
        },
    },
    Rule {
        name: "fenced_code_ignored",
        root_cause: MiddlewareMismatch,
        explain: "The model wrote a fenced code block, and the loop didn't take it as a call.",
        repairs: &[repair::EXTRACT_FENCED_CODE, repair::FENCED],
        look: |view| {
            let is_met = !is_fenced(view)
                && !view.has_call()
                && !view.answers_with_program()
                && !view.has_hook(|hook| matches!(hook, Hook::ExtractFencedCode {}));
            let has_fence = |line: &str| line.trim_start().starts_with("```");
            is_met
                .then(|| view.replies().find_map(|at| at.line(High, has_fence)))
                .flatten()
        },
    },
    Rule {
        name: "neither_call_nor_answer",
        root_cause: MiddlewareMismatch,
        explain: "A reply had neither call nor answer, and the loop ended there instead of asking \
                  again.",
        repairs: &[repair::NUDGE, repair::FORCE_FINAL_ANSWER, repair::RETRY],
        look: |view| {
            let is_met = view.has_event(|event| matches!(event, Event::NoToolCall))
                && !view.states_answer()
                && !view.has_hook(|hook| matches!(hook, Hook::Nudge { .. }));
            is_met
                .then(|| view.last_words()?.last_line(Medium))
                .flatten()
        },
    },
    Rule {
        name: "prints_nothing",
        root_cause: MiddlewareMismatch,
        explain: "A program calculated a value and printed nothing, and the loop neither printed \
                  the value nor told the model.",
        repairs: &[repair::AUTO_PRINT, repair::EMPTY_OUTPUT_HINT],
        look: |view| {
            let is_told = view.has_hook(|hook| matches!(hook, Hook::EmptyOutputHint { .. }));
            silent_program(view).filter(|_| !is_told)
        },
    },
    Rule {
        name: "error_without_hint",
        root_cause: MiddlewareMismatch,
        explain: "A program failed, and the loop didn't say what to do about it.",
        repairs: &[repair::ERROR_HINT, repair::AUTO_PRINT],
        look: |view| {
            let is_met = !view.has_hook(|hook| matches!(hook, Hook::ErrorHint { .. }));
            let error = view.event(|event| matches!(event, Event::ToolError { .. }));
            is_met.then(|| error?.last_line(Medium)).flatten()
        },
    },
    Rule {
        name: "turn_limit",
        root_cause: MiddlewareMismatch,
        explain: "The rollout ended at the turn limit before an answer.",
        repairs: &[
            repair::TURNS_UP,
            repair::FORCE_FINAL_ANSWER,
            repair::ANSWER_FROM_LAST_RESULT,
            repair::APPEND_ANSWER_REMINDER,
        ],
        look: |view| {
            let is_met = view.trajectory.exit == ExitReason::TurnLimit
                || view.has_event(|event| matches!(event, Event::TurnLimit));
            let turns = view.harness.middleware.protocol.max_turns;
            let severity = if turns <= 2 { High } else { Medium };
            is_met
                .then(|| view.last_words()?.last_line(severity))
                .flatten()
        },
    },
    Rule {
        name: "no_answer_after_result",
        root_cause: MiddlewareMismatch,
        explain: "The tool gave a result, and the rollout ended without an answer. The loop could \
                  have taken the result, or asked for the answer.",
        repairs: &[
            repair::ANSWER_FROM_LAST_RESULT,
            repair::APPEND_ANSWER_REMINDER,
            repair::FORCE_FINAL_ANSWER,
            repair::NUDGE,
        ],
        look: |view| {
            let result = view.last_good_result()?;
            let is_met = !view.has_answer();
            // What kept the model from seeing the result, or from knowing how to give it, is a
            // fault of its own.
            let is_plain = view.tells_answer_form()
                && !view.is_output_cut()
                && !told::is_asked_for_words(view);
            let severity = if is_plain { High } else { Medium };
            is_met
                .then(|| result.quote(severity, last_line(view.output(result))?))
                .flatten()
        },
    },
    Rule {
        name: "answer_differs_from_result",
        root_cause: MiddlewareMismatch,
        explain: "The answer isn't the number that the tool printed last: the model went on \
                  calculating in its head.",
        repairs: &[
            repair::APPEND_ANSWER_REMINDER,
            repair::DROP_APPEND,
            repair::GREEDY,
            repair::FORCE_FINAL_ANSWER,
            repair::VERIFY,
        ],
        look: |view| {
            let result = view.last_good_result()?;
            let printed = numbers(last_line(view.output(result))?);
            let answer = values(view.value()?);
            let is_from = |exact: &f64| answer.iter().any(|value| is_rounding(*exact, *value));
            let is_met = !printed.is_empty() && !printed.iter().any(is_from);
            let severity = match told::has_altering_sentence(view) {
                true => Low,
                false => Medium,
            };
            is_met
                .then(|| result.quote(severity, last_line(view.output(result))?))
                .flatten()
        },
    },
    Rule {
        name: "repeated_call",
        root_cause: MiddlewareMismatch,
        explain: "The model made the same call again, and the loop let it spend its turns.",
        repairs: &[
            repair::DETECT_REPEAT,
            repair::APPEND_ANSWER_REMINDER,
            repair::ANSWER_FROM_LAST_RESULT,
            repair::WARMER,
        ],
        look: |view| repeated_call(view)?.last_line(Medium),
    },
    Rule {
        name: "output_cut",
        root_cause: MiddlewareMismatch,
        explain: "A hook cut the tool's output to a few characters, so that the model may not \
                  have seen the result.",
        repairs: &[repair::TRUNCATE_LESS],
        look: |view| {
            let is_met = view.has_hook(|hook| {
                matches!(hook, Hook::TruncateOutput { max_chars, .. } if *max_chars < FEW_CHARS)
            });
            let cut = view.event(
                |event| matches!(event, Event::HookFired { hook } if hook == "truncate_output"),
            );
            is_met.then(|| cut?.last_line(High)).flatten()
        },
    },
    Rule {
        name: "reply_cut",
        root_cause: MiddlewareMismatch,
        explain: "A reply ended at the token limit in the middle of a call.",
        repairs: &[repair::TOKENS_UP, repair::GREEDY],
        look: |view| {
            let reply = view.event(|event| matches!(event, Event::LengthLimit))?;
            has_open_call(reply.text())
                .then(|| reply.last_line(High))
                .flatten()
        },
    },
    Rule {
        name: "reasoning_cut",
        root_cause: MiddlewareMismatch,
        explain: "A reply ended at the token limit before its reasoning did, so that nothing was \
                  left for a call or an answer.",
        repairs: &[repair::TOKENS_UP, repair::CONTEXT_UP],
        look: |view| {
            view.event(|event| matches!(event, Event::ReasoningLimit))?
                .last_line(High)
        },
    },
    Rule {
        name: "reply_rambles",
        root_cause: MiddlewareMismatch,
        explain: "A reply ran to the token limit saying the same over and over. More tokens would only \
                  buy more of it.",
        repairs: &[repair::GREEDY, repair::TOKENS_DOWN, repair::COOLER],
        look: |view| {
            let reply = view.event(|event| matches!(event, Event::LengthLimit))?;
            let is_met = !has_open_call(reply.text()) && ends_in_circles(reply.text());
            is_met.then(|| reply.last_line(Medium)).flatten()
        },
    },
    Rule {
        name: "solution_cut",
        root_cause: MiddlewareMismatch,
        explain: "A reply reached the token limit while it was still getting on, without a call.",
        repairs: &[
            repair::TOKENS_UP,
            repair::GREEDY,
            repair::TOKENS_DOWN,
            repair::CONTEXT_UP,
        ],
        look: |view| {
            let reply = view.event(|event| matches!(event, Event::LengthLimit))?;
            let is_met = !has_open_call(reply.text()) && !ends_in_circles(reply.text());
            is_met.then(|| reply.last_line(Medium)).flatten()
        },
    },
    Rule {
        name: "sampling_hot",
        root_cause: MiddlewareMismatch,
        explain: "The temperature is high, and the rollout failed in a way that careful decoding \
                  avoids: no call, an unreadable call, a program that fails, a reply without end, \
                  or a wrong answer.",
        repairs: &[
            repair::GREEDY,
            repair::COOLER,
            repair::VOTE,
            repair::FENCED_GREEDY,
        ],
        look: |view| {
            let temperature = view.harness.middleware.sampling.temperature;
            let is_met = temperature > HOT;
            let severity = match view.has_fault() {
                true if temperature > NOISY => High,
                true => Medium,
                false => Low,
            };
            is_met
                .then(|| view.first_reply()?.first_line(severity))
                .flatten()
        },
    },
    Rule {
        name: "context_full",
        root_cause: MiddlewareMismatch,
        explain: "The conversation reached the size of the context.",
        repairs: &[repair::CONTEXT_UP, repair::COMPACT, repair::TOKENS_DOWN],
        look: |view| {
            let is_met = view.trajectory.exit == ExitReason::ContextLimit;
            // Texts that take the room are the fault.
            let mut texts = [
                prompts::fills_context(view),
                tools::fills_context(view),
                skills::fills_context(view),
            ]
            .into_iter();
            let is_by_text = notes_fill_context(view) || texts.any(|finding| finding.is_some());
            let severity = if is_by_text { Medium } else { High };
            is_met
                .then(|| view.last_words()?.last_line(severity))
                .flatten()
        },
    },
    Rule {
        name: "output_floods_context",
        root_cause: MiddlewareMismatch,
        explain: "The conversation reached the size of the context, and a tool's output takes more \
                  than a quarter of it.",
        repairs: &[repair::TRUNCATE_OUTPUT, repair::COMPACT, repair::CONTEXT_UP],
        look: |view| {
            let context = view.harness.middleware.context.max_tokens as usize;
            let flood = view.results().find(|at| {
                let characters = at.text().chars().count();
                characters / CHARS_PER_TOKEN > context / 4
            });
            let is_met = view.trajectory.exit == ExitReason::ContextLimit;
            is_met.then(|| flood?.first_line(High)).flatten()
        },
    },
    Rule {
        name: "compaction_hides_result",
        root_cause: MiddlewareMismatch,
        explain: "A tool's result was taken out of the conversation, and the rollout ended without \
                  an answer or with one that isn't the printed number.",
        repairs: &[repair::COMPACT_LESS, repair::DROP_COMPACT],
        look: |view| {
            let is_met = view.has_fired("compact")
                && (!view.states_answer() || view.differing_numbers().is_some());
            let result = view.last_good_result();
            is_met.then(|| result?.last_line(High)).flatten()
        },
    },
    Rule {
        name: "check_overturns_result",
        root_cause: MiddlewareMismatch,
        explain: "A check doubted an answer that was the number the tool had printed, and the \
                  answer after it is another one.",
        repairs: &[repair::SOBER_VERIFY, repair::DROP_VERIFY],
        look: |view| {
            let (printed, _) = view.differing_numbers()?;
            let doubt = view.fired("verify")?;
            let before = view.replies().rfind(|at| at.index < doubt.index)?;
            let is_met = numbers(before.text()).last() == Some(&printed);
            is_met.then(|| doubt.first_line(High)).flatten()
        },
    },
    Rule {
        name: "stop_cuts_call",
        root_cause: MiddlewareMismatch,
        explain: "A stop text of the harness ended a reply in the middle of a call, or before it came to a \
                  call or an answer.",
        repairs: &[repair::DROP_STOP],
        look: |view| {
            let calls = &view.trajectory.model_calls;
            let is_stopped = calls.iter().any(|call| call.finish == Finish::StopString);
            let is_met = is_stopped && !view.harness.middleware.protocol.stop.is_empty();
            let open = view.replies().find(|at| has_open_call(at.text()));
            let is_mute = !view.states_answer() || view.ignores_tool();
            let cut = open.or_else(|| view.last_words().filter(|_| is_mute));
            is_met.then(|| cut?.last_line(High)).flatten()
        },
    },
    Rule {
        name: "message_against_tool",
        root_cause: MiddlewareMismatch,
        explain: "A message that a hook sends speaks against a tool that the harness offers, and the \
                  model didn't call it.",
        repairs: &[repair::DROP_APPEND, repair::NUDGE],
        look: |view| told::against_tool(view, Mid),
    },
    Rule {
        name: "message_before_guess",
        root_cause: MiddlewareMismatch,
        explain: "A hook's message came before any result, and the reply to it was an answer without a \
                  call.",
        repairs: &[
            repair::SHIPPED_MESSAGES,
            repair::TURNS_UP,
            repair::DROP_PLAN,
            repair::DROP_MESSAGES,
        ],
        look: message_before_guess,
    },
    Rule {
        name: "message_misleads",
        root_cause: MiddlewareMismatch,
        explain: "A hook's message says how to calculate on a topic, and every problem of that topic fails \
                  by a program of the same form.",
        repairs: &[repair::DROP_APPEND],
        look: |view| told::misleading(view, Mid),
    },
    Rule {
        name: "message_alters_answer",
        root_cause: MiddlewareMismatch,
        explain: "The answer is what a hook's message makes of the number that the tool printed.",
        repairs: &[repair::DROP_APPEND],
        look: |view| told::altering_answer(view, Mid),
    },
    Rule {
        name: "message_names_unknown_tool",
        root_cause: MiddlewareMismatch,
        explain: "The model called a tool that doesn't exist, by a name that a hook's message gives.",
        repairs: &[repair::DROP_APPEND],
        look: |view| told::naming_unknown_tool(view, Mid),
    },
    Rule {
        name: "message_names_missing_code",
        root_cause: MiddlewareMismatch,
        explain: "A program failed over a name that Python doesn't know and that a hook's message gives.",
        repairs: &[repair::DROP_APPEND],
        look: |view| told::naming_missing_code(view, Mid),
    },
    Rule {
        name: "message_asks_for_length",
        root_cause: MiddlewareMismatch,
        explain: "A hook's message asks for a long text, and a reply reached its token limit before it \
                  came to a call or an answer.",
        repairs: &[repair::DROP_APPEND],
        look: |view| told::asking_for_length(view, Mid),
    },
    Rule {
        name: "message_asks_for_words",
        root_cause: MiddlewareMismatch,
        explain: "A hook's message asks for the answer in words, and no answer could be read.",
        repairs: &[repair::DROP_APPEND],
        look: |view| told::asking_for_words(view, Mid),
    },
    Rule {
        name: "budget_spent",
        root_cause: MiddlewareMismatch,
        explain: "The problem's budget of tokens or time was spent before an answer: the replies \
                  are too long or too many.",
        repairs: &[
            repair::TOKENS_DOWN,
            repair::GREEDY,
            repair::FORCE_FINAL_ANSWER,
        ],
        look: |view| {
            let is_met = matches!(
                view.trajectory.exit,
                ExitReason::TokenBudget | ExitReason::WallBudget
            );
            is_met
                .then(|| view.last_words()?.last_line(Medium))
                .flatten()
        },
    },
    Rule {
        name: "invents_result",
        root_cause: MiddlewareMismatch,
        explain: "The model wrote on after a call, such as the tool's output as it imagines it, \
                  instead of waiting for the result.",
        repairs: &[repair::STOP_AT_INVENTED_RESULT, repair::TOKENS_DOWN],
        look: |view| {
            view.event(|event| matches!(event, Event::TextAfterCall { .. }))?
                .last_line(Low)
        },
    },
    Rule {
        name: "message_asks_for_more",
        root_cause: MiddlewareMismatch,
        explain: "A hook's message asks for further calls, and the rollout had a result and went on calling without an \
                  answer.",
        repairs: &[repair::SHIPPED_MESSAGES, repair::DROP_MESSAGES],
        look: |view| told::asking_for_more(view, Mid),
    },
    Rule {
        name: "message_gives_unread_marks",
        root_cause: MiddlewareMismatch,
        explain: "A hook's message gives marks for programs that the loop doesn't read, and the model put its \
                  program between them instead of calling the tool.",
        repairs: &[repair::SHIPPED_MESSAGES, repair::DROP_MESSAGES],
        look: |view| told::giving_unread_mark(view, Mid),
    },
    Rule {
        name: "message_misguides_print",
        root_cause: MiddlewareMismatch,
        explain: "A hook's message says that a program needn't print, and one printed nothing; or to print more \
                  than the result, and the answer is the last of several numbers.",
        repairs: &[repair::SHIPPED_MESSAGES, repair::DROP_MESSAGES],
        look: |view| told::misguiding_print(view, Mid),
    },
    Rule {
        name: "message_suspected",
        root_cause: MiddlewareMismatch,
        explain: "Most rollouts fail, nothing explains this one, and a hook's message may be why: the gate can tell, with \
                  the shipped text or none in its place.",
        repairs: &[repair::SHIPPED_MESSAGES, repair::DROP_MESSAGES],
        look: |view| told::suspected(view, Mid),
    },
];

/// Whether a message that doesn't speak of the tool is what an answer without a call replies to.
pub(super) fn is_sent_to_guess(view: &View<'_>) -> bool {
    message_before_guess(view).is_some_and(|finding| finding.severity == High)
}

fn message_before_guess(view: &View<'_>) -> Option<Finding> {
    if !view.states_answer() || view.last_good_result().is_some() {
        return None;
    }
    let reply = view.replies().next_back()?;
    let is_message = |at: &At<'_>| matches!(at.step.kind, StepKind::User | StepKind::ToolResult);
    let mut before = view.steps().filter(|at| at.index < reply.index);
    let message = before.rfind(is_message)?;
    let hooks = &view.harness.middleware.hooks;
    let (text, is_telling) = if message.step.kind == StepKind::User {
        // A check doubts an answer that was given before.
        let sender = view.sender(message).filter(|hook| *hook != "verify")?;
        // Asked for it in the last of several turns, it has had its chance.
        let is_late = sender == "force_final_answer" && view.replies().count() > 1;
        let is_call = speaks_of_tool(view.harness, message.text());
        (message.text(), !is_late && !is_call)
    } else {
        let catalogue = &catalogue().texts.hooks;
        let shipped = [&catalogue.error, &catalogue.empty_output, &catalogue.repeat];
        let mut points = HookPoint::ALL.into_iter();
        let said = points.find_map(|point| {
            let messages = hooks.at(point).iter().flat_map(told::messages_of);
            let mut said = messages.filter(|text| message.text().contains(text.trim()));
            said.next()
        })?;
        (said, shipped.iter().all(|text| text.as_str() != said))
    };
    message.quote(if is_telling { High } else { Low }, last_line(text)?)
}

fn is_fenced(view: &View<'_>) -> bool {
    view.harness.middleware.protocol.call_format == CallFormat::Fenced
}

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

fn has_open_call(text: &str) -> bool {
    let has_open_fence = text.matches("```").count() % 2 == 1;
    let has_open_object =
        text.contains("\"arguments\"") && text.matches('{').count() > text.matches('}').count();
    let has_open_tag = text.contains("<python>") && !text.contains("</python>");
    has_open_fence || has_open_object || has_open_tag
}

fn repeated_call<'a>(view: &View<'a>) -> Option<At<'a>> {
    if let Some(at) = view.event(|event| matches!(event, Event::RepeatedCall)) {
        return Some(at);
    }
    let mut seen = std::collections::BTreeSet::new();
    view.calls().find(|call| !seen.insert(call.text()))
}
