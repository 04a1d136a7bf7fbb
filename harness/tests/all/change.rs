use harness::{Change, Harness, PatchOp};

use crate::world;

fn noted(notes: &[&str]) -> Harness {
    let mut harness = world::rich();
    harness.memory.capacity = 10;
    harness.memory.entries = notes.iter().map(|note| (*note).to_owned()).collect();
    harness
}

fn change(harness: &Harness, ops: &str) -> Change {
    let ops: Vec<PatchOp> = serde_json::from_str(ops).unwrap();
    Change::of(harness, &ops)
}

const REMOVE_FIRST: &str = r#"[{"op":"remove","path":"memory.entries[0]"}]"#;
const REMOVE_SECOND: &str = r#"[{"op":"remove","path":"memory.entries[1]"}]"#;

#[test]
fn an_entry_is_the_same_wherever_it_stands() {
    let (all, rest) = (noted(&["a", "b", "c"]), noted(&["b", "c"]));
    assert_eq!(change(&all, REMOVE_SECOND), change(&rest, REMOVE_FIRST));
    assert_ne!(change(&all, REMOVE_SECOND), change(&rest, REMOVE_SECOND));
    assert_ne!(change(&all, REMOVE_FIRST), change(&rest, REMOVE_FIRST));
    let replace = |place: usize, value: &str| {
        format!(r#"[{{"op":"replace","path":"memory.entries[{place}]","value":"{value}"}}]"#)
    };
    assert_eq!(
        change(&all, &replace(1, "x")),
        change(&rest, &replace(0, "x"))
    );
    assert_ne!(
        change(&all, &replace(1, "x")),
        change(&rest, &replace(0, "y"))
    );
}

#[test]
fn operations_are_read_one_after_the_other() {
    let twice = r#"[{"op":"remove","path":"memory.entries[0]"},
        {"op":"remove","path":"memory.entries[0]"}]"#;
    let both = r#"[{"op":"remove","path":"memory.entries[1]"},
        {"op":"remove","path":"memory.entries[1]"}]"#;
    let (all, more) = (noted(&["a", "b", "c"]), noted(&["x", "a", "b"]));
    assert_eq!(change(&all, twice), change(&more, both));
    assert_ne!(change(&all, twice), change(&more, twice));
}

#[test]
fn a_field_inside_an_entry_is_that_of_the_entry() {
    let cut =
        r#"[{"op":"replace","path":"middleware.hooks.post_tool_call[0].max_chars","value":9}]"#;
    let moved = cut.replace("[0]", "[1]");
    let before = world::rich();
    let mut after = before.clone();
    let hooks = &mut after.middleware.hooks.post_tool_call;
    hooks.insert(
        0,
        harness::Hook::AppendMessage {
            message: "Go on.".to_owned(),
        },
    );
    assert_eq!(change(&before, cut), change(&after, &moved));
    assert_ne!(change(&before, cut), change(&after, cut));
}

#[test]
fn fields_by_name_and_gaps_in_lists_are_known_by_their_paths() {
    let (one, other) = (noted(&["a", "b"]), noted(&["c", "d", "e"]));
    for ops in [
        r#"[{"op":"replace","path":"memory.entries","value":[]}]"#,
        r#"[{"op":"add","path":"memory.entries","value":"x"}]"#,
        r#"[{"op":"insert","path":"memory.entries[1]","value":"x"}]"#,
        r#"[{"op":"remove","path":"skills.unit-check"}]"#,
    ] {
        assert_eq!(change(&one, ops), change(&other, ops), "{ops}");
    }
    let front = r#"[{"op":"insert","path":"memory.entries[0]","value":"x"}]"#;
    let behind = r#"[{"op":"insert","path":"memory.entries[1]","value":"x"}]"#;
    assert_ne!(change(&one, front), change(&one, behind));
}

#[test]
fn what_cant_be_applied_has_its_place_alone() {
    let (one, other) = (noted(&["a", "b"]), noted(&["c"]));
    let beyond = r#"[{"op":"remove","path":"memory.entries[7]"}]"#;
    assert_eq!(change(&one, beyond), change(&other, beyond));
}
