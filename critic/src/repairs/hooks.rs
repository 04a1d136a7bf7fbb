//! Repairs of dimension Mid that add, change or remove hooks.

use harness::{FieldPath, Harness, Hook, HookPoint, PatchOp, RetryExit};

use super::{Repair, if_any, path, value};
use crate::catalogue::{catalogue, with_tool_name};

/// Characters of a tool's output that a repair leaves.
const OUTPUT_CHARS: usize = 1000;
/// Samples of a vote: few enough for the budget of a problem, and an odd number.
const VOTES: u32 = 5;

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
        const MORE_CHARS: usize = 2 * OUTPUT_CHARS;
        let marker = &catalogue().texts.hooks.truncation_marker;
        replace_hooks(harness, |hook| match hook {
            Hook::TruncateOutput { max_chars, .. } if *max_chars < MORE_CHARS => {
                Some(Hook::TruncateOutput {
                    max_chars: MORE_CHARS,
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
        replace_hooks(harness, |hook| {
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
    ops: |harness| remove_hooks(harness, |hook| !messages_of(hook).is_empty()),
};

pub(crate) const SHIPPED_MESSAGES: Repair = Repair {
    name: "shipped_messages",
    summary: "put the shipped texts into the hooks that speak before a result",
    ops: |harness| replace_hooks(harness, |hook| shipped(harness, hook)),
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
        add_hook(harness, Hook::Retry { exits, max: 1 }).filter(|_| is_sampled(harness))
    },
};

pub(crate) const VOTE: Repair = Repair {
    name: "vote",
    summary: "roll out five times and take the answer that most give",
    ops: |harness| add_hook(harness, Hook::Vote { samples: VOTES }).filter(|_| is_sampled(harness)),
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
        replace_hooks(harness, |hook| {
            let mut sober = hook.clone();
            let Hook::Verify {
                prompt, message, ..
            } = &mut sober
            else {
                return None;
            };
            prompt.clone_from(&texts.verify_prompt);
            message.clone_from(&texts.verify_message);
            (sober != *hook).then_some(sober)
        })
    },
};

/// Adds `hook` at its point unless one of its kind stands there.
pub(super) fn add_hook(harness: &Harness, hook: Hook) -> Option<Vec<PatchOp>> {
    let point = hook.point();
    let mut standing = harness.middleware.hooks.at(point).iter();
    let stands = standing.any(|known| known.kind() == hook.kind());
    (!stands).then(|| vec![PatchOp::add(field(point), value(hook))])
}

/// A hook that speaks before a result, with the shipped text; `None` if that is its text already, or there
/// is none for its kind.
pub(crate) fn shipped(harness: &Harness, hook: &Hook) -> Option<Hook> {
    let texts = &catalogue().texts.hooks;
    let mut new = hook.clone();
    match &mut new {
        Hook::Nudge { message, .. } => *message = with_tool_name(&texts.nudge, harness)?,
        Hook::Plan { next, .. } => *next = with_tool_name(&texts.plan_next, harness)?,
        Hook::ErrorHint { message } => message.clone_from(&texts.error),
        Hook::EmptyOutputHint { message } => message.clone_from(&texts.empty_output),
        Hook::DetectRepeat { message } => message.clone_from(&texts.repeat),
        _ => return None,
    }
    (new != *hook).then_some(new)
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

/// What a hook says to the model, as references of the kind that `$hook` is: one list, to read by and to
/// change by.
macro_rules! messages {
    ($hook:expr) => {
        match $hook {
            Hook::Nudge { message, .. }
            | Hook::ForceFinalAnswer { message }
            | Hook::DetectRepeat { message }
            | Hook::EmptyOutputHint { message }
            | Hook::AppendMessage { message }
            | Hook::ErrorHint { message }
            | Hook::Verify { message, .. } => vec![message],
            Hook::Plan { message, next } => vec![message, next],
            Hook::RepairJson {}
            | Hook::ExtractFencedCode {}
            | Hook::AutoPrintLastExpression {}
            | Hook::TruncateOutput { .. }
            | Hook::AnswerFromLastResult {}
            | Hook::Compact { .. }
            | Hook::Retry { .. }
            | Hook::Vote { .. } => Vec::new(),
        }
    };
}

/// What a hook says to the model.
pub(crate) fn messages_of(hook: &Hook) -> Vec<&str> {
    let messages: Vec<&String> = messages!(hook);
    messages.into_iter().map(String::as_str).collect()
}

/// The hook with `new` in the place of `text` in what it says.
pub(crate) fn reworded(hook: &Hook, text: &str, new: &str) -> Hook {
    let mut reworded = hook.clone();
    let messages: Vec<&mut String> = messages!(&mut reworded);
    for message in messages {
        *message = message.replacen(text, new, 1);
    }
    reworded
}

/// Replaces the hooks for which `new` has another one.
fn replace_hooks(harness: &Harness, new: impl Fn(&Hook) -> Option<Hook>) -> Option<Vec<PatchOp>> {
    let mut ops = Vec::new();
    for point in HookPoint::ALL {
        for (index, hook) in harness.middleware.hooks.at(point).iter().enumerate() {
            let new = new(hook);
            ops.extend(new.map(|new| PatchOp::replace(field(point).join(index), value(new))));
        }
    }
    if_any(ops)
}

/// Removes the hooks that `is_meant`, wherever they stand.
fn remove_hooks(harness: &Harness, is_meant: impl Fn(&Hook) -> bool) -> Option<Vec<PatchOp>> {
    let mut ops = Vec::new();
    for point in HookPoint::ALL {
        let hooks = harness.middleware.hooks.at(point).iter().enumerate();
        // From the end, so that no removal moves what is still to go.
        for (index, _) in hooks.rev().filter(|(_, hook)| is_meant(hook)) {
            ops.push(PatchOp::remove(field(point).join(index)));
        }
    }
    if_any(ops)
}

fn field(point: HookPoint) -> FieldPath {
    path("middleware.hooks").join(point.name())
}
