use harness::{Dimension, Harness, Hook, Patch, undo};
use proptest::prelude::*;

use crate::world;

/// `head` without what `change` did to the rich harness.
fn without(change: fn(&mut Harness), head: &Harness) -> Result<Harness, String> {
    let before = world::rich();
    let mut after = before.clone();
    change(&mut after);
    let ops = undo(&before, &after, head).map_err(|error| error.to_string())?;
    let dimension = Dimension::of(&ops[0].path).unwrap();
    let patch = Patch {
        dimension,
        ops,
        summary: String::new(),
    };
    patch.apply(head).map_err(|error| error.to_string())
}

fn hint(message: &str) -> Hook {
    Hook::AppendMessage {
        message: message.to_owned(),
    }
}

const ADD_HOOK: fn(&mut Harness) = |h| h.middleware.hooks.post_tool_call.push(hint("Go on."));
const EDIT_HOOK: fn(&mut Harness) = |h| {
    h.middleware.hooks.post_tool_call[0] = Hook::TruncateOutput {
        max_chars: 900,
        marker: "[cut]".to_owned(),
    };
};
const DROP_NOTES: fn(&mut Harness) = |h| h.memory.entries.clear();
const DROP_SKILL: fn(&mut Harness) = |h| drop(h.skills.remove("unit-check"));
const ADD_SKILL: fn(&mut Harness) = |h| {
    let mut skill = h.skills["unit-check"].clone();
    skill.name = "algebra".to_owned();
    h.skills.insert(skill.name.clone(), skill);
};
const SET_PROMPT: fn(&mut Harness) = |h| h.prompts.system = "Be brief.".to_owned();

#[test]
fn a_change_is_taken_back_from_between_later_ones() {
    let later = |h: &mut Harness| {
        let hooks = &mut h.middleware.hooks;
        hooks.post_tool_call.insert(0, hint("First."));
        h.middleware.protocol.max_turns = 9;
        h.prompts.final_answer = "Box it.".to_owned();
        h.memory.capacity = 5;
    };
    for change in [
        ADD_HOOK, EDIT_HOOK, DROP_NOTES, DROP_SKILL, ADD_SKILL, SET_PROMPT,
    ] {
        let mut head = world::rich();
        change(&mut head);
        assert_eq!(without(change, &head), Ok(world::rich()));
        later(&mut head);
        let mut expected = world::rich();
        later(&mut expected);
        assert_eq!(without(change, &head), Ok(expected));
    }
}

#[test]
fn what_has_changed_again_is_named() {
    let refused = |change: fn(&mut Harness), later: fn(&mut Harness)| {
        let mut head = world::rich();
        change(&mut head);
        later(&mut head);
        without(change, &head).unwrap_err()
    };
    assert_eq!(
        refused(SET_PROMPT, |h| h.prompts.system.push_str(" Please.")),
        "prompts.system: it has changed since"
    );
    let hooks = "middleware.hooks.post_tool_call: it has changed since";
    assert_eq!(
        refused(ADD_HOOK, |h| h.middleware.hooks.post_tool_call.clear()),
        hooks
    );
    // Two that are alike: there is no telling which.
    assert_eq!(refused(ADD_HOOK, ADD_HOOK), hooks);
    assert_eq!(
        refused(ADD_SKILL, |h| drop(h.skills.remove("algebra"))),
        "skills.algebra: it has changed since"
    );
    assert_eq!(
        refused(DROP_SKILL, |h| {
            let other = world::rich().skills["unit-check"].clone();
            h.skills.insert(other.name.clone(), other);
        }),
        "skills.unit-check: it has changed since"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_last_step_can_always_be_taken_back(before in world::harness(), other in world::harness()) {
        let mut after = before.clone();
        after.middleware = other.middleware;
        let ops = undo(&before, &after, &after).unwrap();
        prop_assert_eq!(ops.is_empty(), before == after);
        if !ops.is_empty() {
            let patch = Patch { dimension: Dimension::Mid, ops, summary: String::new() };
            prop_assert_eq!(patch.apply(&after).unwrap(), before);
        }
    }
}
