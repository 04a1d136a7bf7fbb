use std::collections::BTreeSet;

use harness::{Dimension, Hook, diff};
use proptest::prelude::*;
use serde_json::json;

use crate::world;

#[test]
fn a_change_names_field_and_both_values() {
    let before = world::rich();
    let mut after = before.clone();
    after.middleware.protocol.max_turns = 8;
    let changes = diff(&before, &after);
    assert_eq!(changes.len(), 1);
    assert_eq!(
        changes[0].to_string(),
        "middleware.protocol.max_turns: 4 -> 8"
    );
    assert_eq!(changes[0].dimension(), Some(Dimension::Mid));
}

#[test]
fn one_inserted_list_entry_is_one_change() {
    let mut before = world::rich();
    before.memory.entries = vec!["a".to_owned(), "b".to_owned()];
    let mut after = before.clone();
    after.memory.entries.insert(1, "new".to_owned());
    let changes = diff(&before, &after);
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].path.to_string(), "memory.entries[1]");
    assert_eq!(
        (&changes[0].before, &changes[0].after),
        (&None, &Some(json!("new")))
    );
    let back = diff(&after, &before);
    assert_eq!(
        (&back[0].before, &back[0].after),
        (&Some(json!("new")), &None)
    );
}

#[test]
fn a_change_inside_a_list_entry_names_the_field_inside() {
    let before = world::rich();
    let mut after = before.clone();
    after.middleware.hooks.post_tool_call[0] = Hook::TruncateOutput {
        max_chars: 900,
        marker: "[cut]".to_owned(),
    };
    let paths: Vec<_> = diff(&before, &after)
        .iter()
        .map(|c| c.path.to_string())
        .collect();
    assert_eq!(paths, ["middleware.hooks.post_tool_call[0].max_chars"]);
}

#[test]
fn new_and_removed_map_keys_are_whole_changes() {
    let before = world::rich();
    let mut after = before.clone();
    let skill = after.skills.remove("unit-check").unwrap();
    after.skills.insert(
        "other".to_owned(),
        harness::Skill {
            name: "other".to_owned(),
            ..skill
        },
    );
    let changes = diff(&before, &after);
    let paths: Vec<_> = changes
        .iter()
        .map(|change| change.path.to_string())
        .collect();
    assert_eq!(paths, ["skills.other", "skills.unit-check"]);
    assert!(changes[0].before.is_none() && changes[1].after.is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn exactly_the_changed_fields_are_listed(before in world::harness(), chosen in any::<u8>()) {
        let mut after = before.clone();
        let mut expected = BTreeSet::new();
        let mut change = |bit: u8, path: &str, change: &mut dyn FnMut()| {
            if chosen & (1 << bit) != 0 {
                change();
                expected.insert(path.to_owned());
            }
        };
        change(0, "name", &mut || after.name.push('!'));
        change(1, "prompts.system", &mut || after.prompts.system.push('!'));
        change(2, "prompts.final_answer", &mut || after.prompts.final_answer.push('!'));
        change(3, "middleware.protocol.max_turns", &mut || after.middleware.protocol.max_turns += 1);
        change(4, "middleware.sampling.temperature", &mut || {
            after.middleware.sampling.temperature += 1.0;
        });
        change(5, "middleware.runtime.parallel_rollouts", &mut || {
            after.middleware.runtime.parallel_rollouts += 1;
        });
        change(6, "memory.capacity", &mut || after.memory.capacity += 1);
        // Off, it isn't in the document at all.
        change(7, "middleware.sampling.min_p", &mut || {
            let min_p = &mut after.middleware.sampling.min_p;
            *min_p = if *min_p == 0.0 { 0.5 } else { 0.0 };
        });
        let changes = diff(&before, &after);
        let listed: BTreeSet<String> = changes.iter().map(|c| c.path.to_string()).collect();
        prop_assert_eq!(changes.len(), listed.len());
        prop_assert_eq!(listed, expected);
    }

    #[test]
    fn no_change_is_listed_exactly_for_equal_harnesses(
        one in world::harness(),
        two in world::harness(),
    ) {
        prop_assert!(diff(&one, &one).is_empty());
        prop_assert_eq!(diff(&one, &two).is_empty(), one.id() == two.id());
        prop_assert!(diff(&one, &two).iter().all(|change| change.before != change.after));
    }
}
