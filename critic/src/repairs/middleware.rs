//! Repairs of dimension Mid, but for its hooks.

use harness::{CallFormat, Harness, Hook, PatchOp};

use super::hooks::add_hook;
use super::{Repair, if_any, path, replace, set, value};

const MOST_TURNS: u32 = 8;
const MOST_TOKENS_PER_TURN: u32 = 2048;
const LEAST_TOKENS_PER_TURN: u32 = 48;
/// A call and an answer need about this many; fewer are never worth trying on the way up.
const ENOUGH_TOKENS_PER_TURN: u32 = 128;
const MOST_CONTEXT: u32 = 32_768;
/// Room for a system prompt, a few examples and some turns.
const ENOUGH_CONTEXT: u32 = 2048;
const TEMPERATURE_FIELD: &str = "middleware.sampling.temperature";
const CALL_FORMAT_FIELD: &str = "middleware.protocol.call_format";
/// Whether calls are decoded under a grammar.
const CONSTRAINED_FIELD: &str = "middleware.protocol.constrained";
const TOKENS_FIELD: &str = "middleware.protocol.max_tokens_per_turn";

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
        set(CALL_FORMAT_FIELD, &old, CallFormat::Xml)
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
        (old > 0.3).then(|| replace(TEMPERATURE_FIELD, 0.2))
    },
};

pub(crate) const WARMER: Repair = Repair {
    name: "warmer",
    summary: "sample a little, so that a repeated mistake isn't certain",
    ops: |harness| {
        let old = harness.middleware.sampling.temperature;
        (old < 0.1).then(|| replace(TEMPERATURE_FIELD, 0.3))
    },
};

pub(crate) const TOKENS_DOWN: Repair = Repair {
    name: "tokens_down",
    summary: "cut the tokens of one reply to a quarter",
    ops: |harness| {
        let old = harness.middleware.protocol.max_tokens_per_turn;
        let new = (old / 4).max(LEAST_TOKENS_PER_TURN);
        (new < old).then(|| replace(TOKENS_FIELD, new))
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
        (new > old).then(|| replace(TOKENS_FIELD, new))
    },
};

pub(crate) const TURNS_UP: Repair = Repair {
    name: "turns_up",
    summary: "allow more turns",
    ops: |harness| {
        let old = harness.middleware.protocol.max_turns;
        let new = old.saturating_mul(2).clamp(3, MOST_TURNS);
        (new > old).then(|| replace("middleware.protocol.max_turns", new))
    },
};

pub(crate) const CONTEXT_UP: Repair = Repair {
    name: "context_up",
    summary: "allow a longer context",
    ops: |harness| {
        let old = harness.middleware.context.max_tokens;
        let new = old.saturating_mul(2).clamp(ENOUGH_CONTEXT, MOST_CONTEXT);
        (new > old).then(|| replace("middleware.context.max_tokens", new))
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

pub(crate) const DROP_STOP: Repair = Repair {
    name: "drop_stop",
    summary: "end replies at no text",
    ops: |harness| {
        let count = harness.middleware.protocol.stop.len();
        let first = path("middleware.protocol.stop[0]");
        if_any(vec![PatchOp::remove(first); count])
    },
};

pub(crate) const STOP_AT_INVENTED_RESULT: Repair = Repair {
    name: "stop_at_invented_result",
    summary: "end a reply before it invents a tool result",
    ops: |harness| {
        let stop = &harness.middleware.protocol.stop;
        let new = ["\nOutput:", "\nTool output"].into_iter();
        let new = new.filter(|text| stop.iter().all(|known| known != text));
        if_any(new.map(|text| PatchOp::add(path("middleware.protocol.stop"), value(text))))
    },
};

fn fenced(harness: &Harness) -> Option<Vec<PatchOp>> {
    let protocol = &harness.middleware.protocol;
    let old = protocol.call_format;
    let mut ops = set(CALL_FORMAT_FIELD, &old, CallFormat::Fenced)?;
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
    set(TEMPERATURE_FIELD, &old, 0.0)
}

/// Both lists of operations; `None` unless both have something to do, since half of the pair is
/// another repair's.
fn both(first: Option<Vec<PatchOp>>, second: Option<Vec<PatchOp>>) -> Option<Vec<PatchOp>> {
    let mut ops = first?;
    ops.extend(second?);
    Some(ops)
}
