//! Rules of dimension Mid: an agent loop that doesn't fit the model.

use std::collections::BTreeSet;

use harness::{Hook, HookPoint};
use rollout::{Event, ExitReason, Finish, StepKind};

use super::finding::{At, Finding};
use super::meaning::speaks_of_tool;
use super::memory::notes_fill_context;
use super::text::{ends_in_circles, is_rounding, last_line, numbers, values};
use super::told::anywhere;
use super::view::{CHARS_PER_TOKEN, NOISY, View};
use super::{Fault, obeyed, prompts, skill_code, skills, tools, ways};
use crate::catalogue::catalogue;
use crate::record::Severity::{High, Low, Medium};
use crate::repairs::{hooks, middleware as repair};

/// Above this, a small model's replies vary from sample to sample.
const HOT: f64 = 0.3;
/// Below this, a tool result is likely to lose its end.
const FEW_CHARS: usize = 1000;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "turn_limit",
        explain: "The rollout ended at the turn limit before an answer.",
        repairs: &[
            repair::TURNS_UP,
            hooks::FORCE_FINAL_ANSWER,
            hooks::ANSWER_FROM_LAST_RESULT,
            hooks::APPEND_ANSWER_REMINDER,
        ],
        look: |view| {
            let is_met = view.trajectory.exit == ExitReason::TurnLimit
                || view.has_event(|event| matches!(event, Event::TurnLimit));
            let turns = view.harness.middleware.protocol.max_turns;
            let severity = if turns <= 2 { High } else { Medium };
            view.last_words()?.last_line(severity).filter(|_| is_met)
        },
    },
    Fault {
        name: "no_answer_after_result",
        explain: "The tool gave a result, and the rollout ended without an answer. The loop could \
                  have taken the result, or asked for the answer.",
        repairs: &[
            hooks::ANSWER_FROM_LAST_RESULT,
            hooks::APPEND_ANSWER_REMINDER,
            hooks::FORCE_FINAL_ANSWER,
            hooks::NUDGE,
        ],
        look: |view| {
            let result = view.last_good_result()?;
            let is_met = !view.has_answer();
            // What kept the model from seeing the result, or from knowing how to give it, is a
            // fault of its own.
            let is_plain = view.tells_answer_form()
                && !view.is_output_cut()
                && skill_code::shaped_result(view).is_none()
                && tools::answer_receiver(view).is_none()
                && !anywhere(view, obeyed::keeps_answer_back);
            let severity = if is_plain { High } else { Medium };
            let line = last_line(view.output(result))?;
            result.quote(severity, line).filter(|_| is_met)
        },
    },
    Fault {
        name: "answer_differs_from_result",
        explain: "The answer isn't the number that the tool printed last: the model went on \
                  calculating in its head.",
        repairs: &[
            hooks::APPEND_ANSWER_REMINDER,
            hooks::DROP_APPEND,
            repair::GREEDY,
            hooks::FORCE_FINAL_ANSWER,
            hooks::VERIFY,
        ],
        look: |view| {
            let result = view.last_good_result()?;
            let line = last_line(view.output(result))?;
            let printed = numbers(line);
            let answer = values(view.value()?);
            let is_from = |exact: &f64| answer.iter().any(|value| is_rounding(*exact, *value));
            let is_met = !printed.is_empty() && !printed.iter().any(is_from);
            let is_asked_for = anywhere(view, obeyed::alters_answer);
            let severity = if is_asked_for { Low } else { Medium };
            result.quote(severity, line).filter(|_| is_met)
        },
    },
    Fault {
        name: "repeated_call",
        explain: "The model made the same call again, and the loop let it spend its turns.",
        repairs: &[
            hooks::DETECT_REPEAT,
            hooks::APPEND_ANSWER_REMINDER,
            hooks::ANSWER_FROM_LAST_RESULT,
            repair::WARMER,
        ],
        look: |view| repeated_call(view)?.last_line(Medium),
    },
    Fault {
        name: "output_cut",
        explain: "A hook cut the tool's output to a few characters, so that the model may not \
                  have seen the result.",
        repairs: &[hooks::TRUNCATE_LESS],
        look: |view| {
            let is_met = view.has_hook(|hook| {
                matches!(hook, Hook::TruncateOutput { max_chars, .. } if *max_chars < FEW_CHARS)
            });
            let cut = view.fired("truncate_output")?;
            cut.last_line(High).filter(|_| is_met)
        },
    },
    Fault {
        name: "reply_cut",
        explain: "A reply ended at the token limit in the middle of a call.",
        repairs: &[repair::TOKENS_UP, repair::GREEDY],
        look: |view| {
            let reply = view.event(|event| matches!(event, Event::LengthLimit))?;
            let is_met = has_open_call(reply.text());
            reply.last_line(High).filter(|_| is_met)
        },
    },
    Fault {
        name: "reasoning_cut",
        explain: "A reply ended at the token limit before its reasoning did, so that nothing was \
                  left for a call or an answer.",
        repairs: &[repair::TOKENS_UP, repair::CONTEXT_UP],
        look: |view| {
            view.event(|event| matches!(event, Event::ReasoningLimit))?
                .last_line(High)
        },
    },
    Fault {
        name: "reply_rambles",
        explain: "A reply ran to the token limit saying the same over and over. More tokens would only \
                  buy more of it.",
        repairs: &[repair::GREEDY, repair::TOKENS_DOWN, repair::COOLER],
        look: |view| cut_text(view, true),
    },
    Fault {
        name: "solution_cut",
        explain: "A reply reached the token limit while it was still getting on, without a call.",
        repairs: &[
            repair::TOKENS_UP,
            repair::GREEDY,
            repair::TOKENS_DOWN,
            repair::CONTEXT_UP,
        ],
        look: |view| cut_text(view, false),
    },
    Fault {
        name: "sampling_hot",
        explain: "The temperature is high, and the rollout failed in a way that careful decoding \
                  avoids: no call, an unreadable call, a program that fails, a reply without end, \
                  or a wrong answer.",
        repairs: &[
            repair::GREEDY,
            repair::COOLER,
            hooks::VOTE,
            repair::FENCED_GREEDY,
        ],
        look: |view| {
            let temperature = view.harness.middleware.sampling.temperature;
            let is_met = temperature > HOT;
            let is_noise = temperature > NOISY;
            // Noise doesn't come to an end; else long replies have other reasons.
            let is_endless = is_noise && view.trajectory.exit == ExitReason::TokenBudget;
            let severity = match view.has_fault() || is_endless {
                true if is_noise => High,
                true => Medium,
                false => Low,
            };
            view.first_reply()?.first_line(severity).filter(|_| is_met)
        },
    },
    Fault {
        name: "context_full",
        explain: "The conversation reached the size of the context.",
        repairs: &[repair::CONTEXT_UP, hooks::COMPACT, repair::TOKENS_DOWN],
        look: |view| {
            let is_met = view.trajectory.exit == ExitReason::ContextLimit;
            // Texts that take the room are the fault.
            let is_by_text = notes_fill_context(view)
                || prompts::fills_context(view).is_some()
                || tools::fills_context(view).is_some()
                || skills::fills_context(view).is_some();
            let severity = if is_by_text { Medium } else { High };
            view.last_words()?.last_line(severity).filter(|_| is_met)
        },
    },
    Fault {
        name: "output_floods_context",
        explain: "The conversation reached the size of the context, and a tool's output takes more \
                  than a quarter of it.",
        repairs: &[hooks::TRUNCATE_OUTPUT, hooks::COMPACT, repair::CONTEXT_UP],
        look: |view| {
            let flood = view.results().find(|at| {
                let characters = at.text().chars().count();
                characters / CHARS_PER_TOKEN > view.context() / 4
            });
            let is_met = view.trajectory.exit == ExitReason::ContextLimit;
            flood?.first_line(High).filter(|_| is_met)
        },
    },
    Fault {
        name: "compaction_hides_result",
        explain: "A tool's result was taken out of the conversation, and the rollout ended without \
                  an answer or with one that isn't the printed number.",
        repairs: &[hooks::COMPACT_LESS, hooks::DROP_COMPACT],
        look: |view| {
            let is_met = view.has_fired("compact")
                && (!view.states_answer() || view.differing_numbers().is_some());
            let result = view.last_good_result()?;
            result.last_line(High).filter(|_| is_met)
        },
    },
    Fault {
        name: "check_overturns_result",
        explain: "A check doubted an answer that was the number the tool had printed, and the \
                  answer after it is another one.",
        repairs: &[hooks::SOBER_VERIFY, hooks::DROP_VERIFY],
        look: |view| {
            let (printed, _) = view.differing_numbers()?;
            let doubt = view.fired("verify")?;
            let before = view.replies().rfind(|at| at.index < doubt.index)?;
            let is_met = numbers(before.text()).last() == Some(&printed);
            doubt.first_line(High).filter(|_| is_met)
        },
    },
    Fault {
        name: "stop_cuts_call",
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
            cut?.last_line(High).filter(|_| is_met)
        },
    },
    Fault {
        explain: "A message that a hook sends speaks against a tool that the harness offers or says that \
                  it is out of use, and the model didn't call it.",
        repairs: &[hooks::DROP_APPEND, hooks::NUDGE],
        ..ways::AGAINST_TOOL
    },
    Fault {
        name: "message_before_guess",
        explain: "A hook's message came before any result, and the reply to it was an answer without a \
                  call.",
        repairs: &[
            hooks::SHIPPED_MESSAGES,
            repair::TURNS_UP,
            hooks::DROP_PLAN,
            hooks::DROP_MESSAGES,
        ],
        look: message_before_guess,
    },
    ways::MISLEADS.repaired_by(&[hooks::DROP_APPEND]),
    ways::ALTERS_ANSWER.repaired_by(&[hooks::DROP_APPEND]),
    Fault {
        explain: "The model called a tool that doesn't exist, by a name that a hook's message gives.",
        repairs: &[hooks::DROP_APPEND],
        ..ways::NAMES_UNKNOWN_TOOL
    },
    ways::NAMES_MISSING_CODE.repaired_by(&[hooks::DROP_APPEND]),
    ways::ASKS_FOR_LENGTH.repaired_by(&[hooks::DROP_APPEND]),
    ways::ASKS_FOR_WORDS.repaired_by(&[hooks::DROP_APPEND]),
    Fault {
        name: "budget_spent",
        explain: "The problem's budget of tokens or time was spent before an answer: the replies \
                  are too long or too many.",
        repairs: &[
            repair::TOKENS_DOWN,
            repair::GREEDY,
            hooks::FORCE_FINAL_ANSWER,
        ],
        look: |view| {
            let exit = &view.trajectory.exit;
            let is_met = matches!(exit, ExitReason::TokenBudget | ExitReason::WallBudget);
            view.last_words()?.last_line(Medium).filter(|_| is_met)
        },
    },
    Fault {
        name: "invents_result",
        explain: "The model wrote on after a call, such as the tool's output as it imagines it, \
                  instead of waiting for the result.",
        repairs: &[repair::STOP_AT_INVENTED_RESULT, repair::TOKENS_DOWN],
        look: |view| {
            view.event(|event| matches!(event, Event::TextAfterCall { .. }))?
                .last_line(Low)
        },
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
        let sent = HookPoint::ALL.into_iter().flat_map(|point| {
            let standing = view.harness.middleware.hooks.at(point).iter();
            standing.flat_map(hooks::messages_of)
        });
        let mut said = sent.filter(|text| message.text().contains(text.trim()));
        let said = said.next()?;
        (said, shipped.iter().all(|text| text.as_str() != said))
    };
    message.quote(if is_telling { High } else { Low }, last_line(text)?)
}

/// A reply that the token limit cut outside of a call, either in circles or while it was getting on.
fn cut_text(view: &View<'_>, is_circular: bool) -> Option<Finding> {
    let reply = view.event(|event| matches!(event, Event::LengthLimit))?;
    let text = reply.text();
    let is_met = !has_open_call(text) && ends_in_circles(text) == is_circular;
    reply.last_line(Medium).filter(|_| is_met)
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
    let mut seen = BTreeSet::new();
    view.calls().find(|call| !seen.insert(call.text()))
}
