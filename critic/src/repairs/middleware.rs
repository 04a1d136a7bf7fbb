//! Repairs of dimension Mid.

use harness::{CallFormat, Harness, Hook, PatchOp};

use super::{Repair, path, set, value};
use crate::catalogue::{catalogue, with_tool_name};

const MOST_TURNS: u32 = 8;
const MOST_TOKENS_PER_TURN: u32 = 2048;
const LEAST_TOKENS_PER_TURN: u32 = 48;
const MOST_CONTEXT: u32 = 32_768;

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
    summary: "double the tokens of one reply",
    ops: |harness| {
        let old = harness.middleware.protocol.max_tokens_per_turn;
        let room = harness.middleware.context.max_tokens / 2;
        let new = old.saturating_mul(2).min(MOST_TOKENS_PER_TURN).min(room);
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
    summary: "double the context",
    ops: |harness| {
        let old = harness.middleware.context.max_tokens;
        let new = old.saturating_mul(2).min(MOST_CONTEXT);
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
        let hooks = harness.middleware.hooks.post_tool_call.iter().enumerate();
        let ops: Vec<PatchOp> = hooks
            .filter_map(|(index, hook)| match hook {
                Hook::TruncateOutput { max_chars, .. } if *max_chars < 2000 => {
                    let new = Hook::TruncateOutput {
                        max_chars: 2000,
                        marker: marker.clone(),
                    };
                    let field = path("middleware.hooks.post_tool_call").join(index);
                    Some(PatchOp::replace(field, value(new)))
                }
                _ => None,
            })
            .collect();
        (!ops.is_empty()).then_some(ops)
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
    let old = harness.middleware.protocol.call_format;
    set("middleware.protocol.call_format", &old, CallFormat::Fenced)
}

fn repair_json(harness: &Harness) -> Option<Vec<PatchOp>> {
    match harness.middleware.protocol.call_format {
        CallFormat::Json | CallFormat::Native => add_hook(harness, Hook::RepairJson {}),
        CallFormat::Fenced | CallFormat::Xml => None,
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
