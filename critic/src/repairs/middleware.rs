//! Repairs of dimension Mid.

use harness::{CallFormat, Harness, Hook, HookPoint, PatchOp, RetryExit};

use super::{Repair, path, set, value};
use crate::catalogue::{catalogue, with_tool_name};

const MOST_TURNS: u32 = 8;
const MOST_TOKENS_PER_TURN: u32 = 2048;
const LEAST_TOKENS_PER_TURN: u32 = 48;
/// A call and an answer need about this many; fewer are never worth trying on the way up.
const ENOUGH_TOKENS_PER_TURN: u32 = 128;
const MOST_CONTEXT: u32 = 32_768;
/// Room for a system prompt, a few examples and some turns.
const ENOUGH_CONTEXT: u32 = 2048;
/// Whether calls are decoded under a grammar.
const CONSTRAINED_FIELD: &str = "middleware.protocol.constrained";
/// Characters of a tool's output that a repair leaves.
const OUTPUT_CHARS: usize = 1000;
/// Samples of a vote: few enough for the budget of a problem, and an odd number.
const VOTES: u32 = 5;

pub(crate) const FENCED: Repair = Repair {
    name: "fenced",
    summary: "call tools with a fenced code block",
    ops: fenced,
};

pub(crate) const XML: Repair = Repair {
    name: "xml",
    summary: "call tools with tags",
    ops: |harness| {
        let old = harness.middleware.protocol.call_format;
        set("middleware.protocol.call_format", &old, CallFormat::Xml)
    },
};

pub(crate) const FENCED_GREEDY: Repair = Repair {
    name: "fenced_greedy",
    summary: "call tools with a fenced code block and decode greedily",
    ops: |harness| both(fenced(harness), greedy(harness)),
};

pub(crate) const GREEDY: Repair = Repair {
    name: "greedy",
    summary: "decode greedily",
    ops: greedy,
};

pub(crate) const COOLER: Repair = Repair {
    name: "cooler",
    summary: "lower the sampling temperature",
    ops: |harness| {
        let old = harness.middleware.sampling.temperature;
        (old > 0.3).then(|| {
            vec![PatchOp::replace(
                path("middleware.sampling.temperature"),
                value(0.2),
            )]
        })
    },
};

pub(crate) const WARMER: Repair = Repair {
    name: "warmer",
    summary: "sample a little, so that a repeated mistake isn't certain",
    ops: |harness| {
        let old = harness.middleware.sampling.temperature;
        (old < 0.1).then(|| {
            vec![PatchOp::replace(
                path("middleware.sampling.temperature"),
                value(0.3),
            )]
        })
    },
};

pub(crate) const TOKENS_DOWN: Repair = Repair {
    name: "tokens_down",
    summary: "cut the tokens of one reply to a quarter",
    ops: |harness| {
        let old = harness.middleware.protocol.max_tokens_per_turn;
        let new = (old / 4).max(LEAST_TOKENS_PER_TURN);
        (new < old).then(|| vec![set_tokens(new)])
    },
};

pub(crate) const TOKENS_UP: Repair = Repair {
    name: "tokens_up",
    summary: "allow more tokens in one reply",
    ops: |harness| {
        let old = harness.middleware.protocol.max_tokens_per_turn;
        let room = harness.middleware.context.max_tokens / 2;
        let new = old
            .saturating_mul(2)
            .clamp(ENOUGH_TOKENS_PER_TURN, MOST_TOKENS_PER_TURN)
            .min(room);
        (new > old).then(|| vec![set_tokens(new)])
    },
};

pub(crate) const TURNS_UP: Repair = Repair {
    name: "turns_up",
    summary: "allow more turns",
    ops: |harness| {
        let old = harness.middleware.protocol.max_turns;
        let new = old.saturating_mul(2).clamp(3, MOST_TURNS);
        (new > old).then(|| {
            vec![PatchOp::replace(
                path("middleware.protocol.max_turns"),
                value(new),
            )]
        })
    },
};

pub(crate) const CONTEXT_UP: Repair = Repair {
    name: "context_up",
    summary: "allow a longer context",
    ops: |harness| {
        let old = harness.middleware.context.max_tokens;
        let new = old.saturating_mul(2).clamp(ENOUGH_CONTEXT, MOST_CONTEXT);
        (new > old).then(|| {
            vec![PatchOp::replace(
                path("middleware.context.max_tokens"),
                value(new),
            )]
        })
    },
};

pub(crate) const REPAIR_JSON: Repair = Repair {
    name: "repair_json",
    summary: "repair almost valid JSON in calls",
    ops: repair_json,
};

pub(crate) const REPAIR_JSON_GREEDY: Repair = Repair {
    name: "repair_json_greedy",
    summary: "repair almost valid JSON in calls and decode greedily",
    ops: |harness| both(repair_json(harness), greedy(harness)),
};

/// Only for a policy that decodes under grammars: another can't be run with it.
pub(crate) const CONSTRAINED: Repair = Repair {
    name: "constrained",
    summary: "decode calls under a grammar, so that one once begun is well-formed",
    ops: |harness| {
        let protocol = &harness.middleware.protocol;
        let has_grammar = matches!(protocol.call_format, CallFormat::Json | CallFormat::Xml);
        // The field is left out of the document where it is false.
        (has_grammar && !protocol.constrained)
            .then(|| vec![PatchOp::add(path(CONSTRAINED_FIELD), value(true))])
    },
};

pub(crate) const EXTRACT_FENCED_CODE: Repair = Repair {
    name: "extract_fenced_code",
    summary: "take a fenced code block as a call",
    ops: |harness| add_hook(harness, Hook::ExtractFencedCode {}),
};

pub(crate) const NUDGE: Repair = Repair {
    name: "nudge",
    summary: "ask again when a reply has neither call nor answer",
    ops: |harness| {
        let message = with_tool_name(&catalogue().texts.hooks.nudge, harness)?;
        add_hook(harness, Hook::Nudge { message, max: 1 })
    },
};

pub(crate) const FORCE_FINAL_ANSWER: Repair = Repair {
    name: "force_final_answer",
    summary: "ask for the answer before the last turn",
    ops: |harness| {
        let message = catalogue().texts.hooks.force_final_answer.clone();
        add_hook(harness, Hook::ForceFinalAnswer { message })
    },
};

pub(crate) const AUTO_PRINT: Repair = Repair {
    name: "auto_print_last_expression",
    summary: "print the value of a program's last expression",
    ops: |harness| add_hook(harness, Hook::AutoPrintLastExpression {}),
};

pub(crate) const DETECT_REPEAT: Repair = Repair {
    name: "detect_repeat",
    summary: "answer a repeated call with a reminder",
    ops: |harness| {
        let message = catalogue().texts.hooks.repeat.clone();
        add_hook(harness, Hook::DetectRepeat { message })
    },
};

pub(crate) const EMPTY_OUTPUT_HINT: Repair = Repair {
    name: "empty_output_hint",
    summary: "say so when a program printed nothing",
    ops: |harness| {
        let message = catalogue().texts.hooks.empty_output.clone();
        add_hook(harness, Hook::EmptyOutputHint { message })
    },
};

pub(crate) const ERROR_HINT: Repair = Repair {
    name: "error_hint",
    summary: "say what to do after an error",
    ops: |harness| {
        let message = catalogue().texts.hooks.error.clone();
        add_hook(harness, Hook::ErrorHint { message })
    },
};

pub(crate) const APPEND_ANSWER_REMINDER: Repair = Repair {
    name: "append_answer_reminder",
    summary: "ask for the answer after every tool result",
    ops: |harness| {
        let message = catalogue().texts.hooks.append.clone();
        add_hook(harness, Hook::AppendMessage { message })
    },
};

pub(crate) const ANSWER_FROM_LAST_RESULT: Repair = Repair {
    name: "answer_from_last_result",
    summary: "take the last tool output as the answer when there is no other",
    ops: |harness| add_hook(harness, Hook::AnswerFromLastResult {}),
};

pub(crate) const TRUNCATE_LESS: Repair = Repair {
    name: "truncate_less",
    summary: "cut tool output later",
    ops: |harness| {
        let marker = &catalogue().texts.hooks.truncation_marker;
        replace_hooks(harness, HookPoint::PostToolCall, |hook| match hook {
            Hook::TruncateOutput { max_chars, .. } if *max_chars < 2 * OUTPUT_CHARS => {
                Some(Hook::TruncateOutput {
                    max_chars: 2 * OUTPUT_CHARS,
                    marker: marker.clone(),
                })
            }
            _ => None,
        })
    },
};

pub(crate) const TRUNCATE_OUTPUT: Repair = Repair {
    name: "truncate_output",
    summary: "keep beginning and end of a long tool output",
    ops: |harness| {
        let marker = catalogue().texts.hooks.truncation_marker.clone();
        let max_chars = OUTPUT_CHARS;
        add_hook(harness, Hook::TruncateOutput { max_chars, marker })
    },
};

pub(crate) const COMPACT: Repair = Repair {
    name: "compact",
    summary: "take older tool results out of a long conversation",
    ops: |harness| add_hook(harness, compact(harness)),
};

pub(crate) const COMPACT_LESS: Repair = Repair {
    name: "compact_less",
    summary: "take tool results out later, and never the latest one",
    ops: |harness| {
        let gentle = compact(harness);
        replace_hooks(harness, HookPoint::PreModelCall, |hook| {
            let is_other = matches!(hook, Hook::Compact { .. }) && *hook != gentle;
            is_other.then(|| gentle.clone())
        })
    },
};

pub(crate) const DROP_COMPACT: Repair = Repair {
    name: "drop_compact",
    summary: "leave all tool results in the conversation",
    ops: |harness| remove_hooks(harness, |hook| matches!(hook, Hook::Compact { .. })),
};

pub(crate) const DROP_APPEND: Repair = Repair {
    name: "drop_append",
    summary: "append nothing to tool results",
    ops: |harness| remove_hooks(harness, |hook| matches!(hook, Hook::AppendMessage { .. })),
};

pub(crate) const DROP_PLAN: Repair = Repair {
    name: "drop_plan",
    summary: "ask for no plan",
    ops: |harness| remove_hooks(harness, |hook| matches!(hook, Hook::Plan { .. })),
};

pub(crate) const DROP_MESSAGES: Repair = Repair {
    name: "drop_messages",
    summary: "send the model no messages",
    ops: |harness| {
        remove_hooks(harness, |hook| {
            matches!(
                hook,
                Hook::Nudge { .. }
                    | Hook::ForceFinalAnswer { .. }
                    | Hook::DetectRepeat { .. }
                    | Hook::EmptyOutputHint { .. }
                    | Hook::AppendMessage { .. }
                    | Hook::ErrorHint { .. }
                    | Hook::Verify { .. }
                    | Hook::Plan { .. }
            )
        })
    },
};

pub(crate) const SHIPPED_MESSAGES: Repair = Repair {
    name: "shipped_messages",
    summary: "put the shipped texts into the hooks that speak before a result",
    ops: |harness| {
        let texts = &catalogue().texts.hooks;
        let nudge = with_tool_name(&texts.nudge, harness)?;
        let next = with_tool_name(&texts.plan_next, harness)?;
        let ops: Vec<PatchOp> = HookPoint::ALL
            .into_iter()
            .filter_map(|point| {
                replace_hooks(harness, point, |hook| {
                    let new = match hook {
                        Hook::Nudge { max, .. } => Hook::Nudge {
                            message: nudge.clone(),
                            max: *max,
                        },
                        Hook::Plan { message, .. } => Hook::Plan {
                            message: message.clone(),
                            next: next.clone(),
                        },
                        Hook::ErrorHint { .. } => Hook::ErrorHint {
                            message: texts.error.clone(),
                        },
                        Hook::EmptyOutputHint { .. } => Hook::EmptyOutputHint {
                            message: texts.empty_output.clone(),
                        },
                        Hook::DetectRepeat { .. } => Hook::DetectRepeat {
                            message: texts.repeat.clone(),
                        },
                        _ => return None,
                    };
                    (new != *hook).then_some(new)
                })
            })
            .flatten()
            .collect();
        (!ops.is_empty()).then_some(ops)
    },
};

pub(crate) const RETRY: Repair = Repair {
    name: "retry",
    summary: "begin again where a rollout ends without an answer",
    ops: |harness| {
        // Greedy decoding would write the same again.
        let exits = vec![
            RetryExit::NoAnswer,
            RetryExit::ReplyCut,
            RetryExit::TurnLimit,
        ];
        is_sampled(harness)
            .then(|| add_hook(harness, Hook::Retry { exits, max: 1 }))
            .flatten()
    },
};

pub(crate) const VOTE: Repair = Repair {
    name: "vote",
    summary: "roll out five times and take the answer that most give",
    ops: |harness| {
        is_sampled(harness)
            .then(|| add_hook(harness, Hook::Vote { samples: VOTES }))
            .flatten()
    },
};

pub(crate) const VERIFY: Repair = Repair {
    name: "verify",
    summary: "have the answer checked, and ask again if the check doubts it",
    ops: |harness| {
        let texts = &catalogue().texts.hooks;
        let hook = Hook::Verify {
            prompt: texts.verify_prompt.clone(),
            sceptics: 1,
            message: texts.verify_message.clone(),
            max: 1,
        };
        add_hook(harness, hook)
    },
};

pub(crate) const DROP_VERIFY: Repair = Repair {
    name: "drop_verify",
    summary: "have no answer checked",
    ops: |harness| remove_hooks(harness, |hook| matches!(hook, Hook::Verify { .. })),
};

pub(crate) const SOBER_VERIFY: Repair = Repair {
    name: "sober_verify",
    summary: "give the check a prompt that lets a right answer pass",
    ops: |harness| {
        let texts = &catalogue().texts.hooks;
        replace_hooks(harness, HookPoint::OnFinish, |hook| match hook {
            Hook::Verify {
                prompt,
                sceptics,
                message,
                max,
            } => {
                let is_other = *prompt != texts.verify_prompt || *message != texts.verify_message;
                is_other.then(|| Hook::Verify {
                    prompt: texts.verify_prompt.clone(),
                    sceptics: *sceptics,
                    message: texts.verify_message.clone(),
                    max: *max,
                })
            }
            _ => None,
        })
    },
};

pub(crate) const DROP_STOP: Repair = Repair {
    name: "drop_stop",
    summary: "end replies at no text",
    ops: |harness| {
        let count = harness.middleware.protocol.stop.len();
        let ops = vec![PatchOp::remove(path("middleware.protocol.stop[0]")); count];
        (count > 0).then_some(ops)
    },
};

pub(crate) const STOP_AT_INVENTED_RESULT: Repair = Repair {
    name: "stop_at_invented_result",
    summary: "end a reply before it invents a tool result",
    ops: |harness| {
        let stop = &harness.middleware.protocol.stop;
        let ops: Vec<PatchOp> = ["\nOutput:", "\nTool output"]
            .into_iter()
            .filter(|text| stop.iter().all(|known| known != text))
            .map(|text| PatchOp::add(path("middleware.protocol.stop"), value(text)))
            .collect();
        (!ops.is_empty()).then_some(ops)
    },
};

fn fenced(harness: &Harness) -> Option<Vec<PatchOp>> {
    let protocol = &harness.middleware.protocol;
    let old = protocol.call_format;
    let mut ops = set("middleware.protocol.call_format", &old, CallFormat::Fenced)?;
    if protocol.constrained {
        // There is no grammar for a fence.
        ops.push(PatchOp::remove(path(CONSTRAINED_FIELD)));
    }
    Some(ops)
}

fn repair_json(harness: &Harness) -> Option<Vec<PatchOp>> {
    match harness.middleware.protocol.call_format {
        CallFormat::Json | CallFormat::Xml | CallFormat::Native => {
            add_hook(harness, Hook::RepairJson {})
        }
        CallFormat::Fenced => None,
    }
}

fn greedy(harness: &Harness) -> Option<Vec<PatchOp>> {
    let old = harness.middleware.sampling.temperature;
    set("middleware.sampling.temperature", &old, 0.0)
}

/// Both lists of operations; `None` unless both have something to do, since half of the pair is
/// another repair's.
fn both(first: Option<Vec<PatchOp>>, second: Option<Vec<PatchOp>>) -> Option<Vec<PatchOp>> {
    let mut ops = first?;
    ops.extend(second?);
    Some(ops)
}

fn set_tokens(tokens: u32) -> PatchOp {
    PatchOp::replace(
        path("middleware.protocol.max_tokens_per_turn"),
        value(tokens),
    )
}

/// Adds `hook` at its point unless one of its kind stands there.
fn add_hook(harness: &Harness, hook: Hook) -> Option<Vec<PatchOp>> {
    let point = hook.point();
    let stands = harness
        .middleware
        .hooks
        .at(point)
        .iter()
        .any(|known| known.kind() == hook.kind());
    let field = path("middleware.hooks").join(point.name());
    (!stands).then(|| vec![PatchOp::add(field, value(hook))])
}

/// Compaction that starts at half of the context and leaves the latest result.
fn compact(harness: &Harness) -> Hook {
    Hook::Compact {
        above_tokens: (harness.middleware.context.max_tokens / 2).max(1),
        keep_results: 1,
        marker: catalogue().texts.hooks.compaction_marker.clone(),
    }
}

fn is_sampled(harness: &Harness) -> bool {
    harness.middleware.sampling.temperature > 0.0
}

/// Replaces the hooks at `point` for which `new` has another one.
fn replace_hooks(
    harness: &Harness,
    point: HookPoint,
    new: impl Fn(&Hook) -> Option<Hook>,
) -> Option<Vec<PatchOp>> {
    let hooks = harness.middleware.hooks.at(point).iter().enumerate();
    let ops: Vec<PatchOp> = hooks
        .filter_map(|(index, hook)| {
            let field = path("middleware.hooks").join(point.name()).join(index);
            Some(PatchOp::replace(field, value(new(hook)?)))
        })
        .collect();
    (!ops.is_empty()).then_some(ops)
}

/// Removes the hooks that `is_meant`, wherever they stand.
fn remove_hooks(harness: &Harness, is_meant: impl Fn(&Hook) -> bool) -> Option<Vec<PatchOp>> {
    let mut ops = Vec::new();
    for point in HookPoint::ALL {
        let hooks = harness.middleware.hooks.at(point).iter().enumerate();
        // From the end, so that no removal moves what is still to go.
        for (index, _) in hooks.rev().filter(|(_, hook)| is_meant(hook)) {
            let field = path("middleware.hooks").join(point.name()).join(index);
            ops.push(PatchOp::remove(field));
        }
    }
    (!ops.is_empty()).then_some(ops)
}
