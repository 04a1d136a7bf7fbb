use harness::{
    Dimension, Eviction, FieldPath, Harness, Hook, Patch, PatchError, PatchOp, PatchOpKind, diff,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world;

fn path(text: &str) -> FieldPath {
    text.parse().unwrap()
}

fn patch(dimension: Dimension, ops: Vec<PatchOp>) -> Patch {
    Patch {
        dimension,
        ops,
        summary: String::new(),
    }
}

fn replace(text: &str, value: Value) -> Result<Harness, PatchError> {
    let path = path(text);
    let dimension = Dimension::of(&path).unwrap();
    patch(dimension, vec![PatchOp::replace(path, value)]).apply(&world::rich())
}

/// Applies one operation to the rich harness in the dimension of its path.
fn apply(op: PatchOp) -> Result<Harness, PatchError> {
    let dimension = Dimension::of(&op.path).unwrap();
    patch(dimension, vec![op]).apply(&world::rich())
}

#[test]
fn add_appends_to_lists_and_creates_keys() {
    let hook = json!({ "type": "append_message", "message": "Go on." });
    let patched = apply(PatchOp::add(path("middleware.hooks.post_tool_call"), hook)).unwrap();
    let hooks = &patched.middleware.hooks.post_tool_call;
    assert_eq!(hooks.len(), 2);
    assert_eq!(
        hooks[1],
        Hook::AppendMessage {
            message: "Go on.".to_owned()
        }
    );

    let skill = json!({ "name": "algebra", "description": "Equations.", "body": "Isolate x." });
    let patched = apply(PatchOp::add(path("skills.algebra"), skill)).unwrap();
    assert_eq!(patched.skills["algebra"].triggers, Vec::<String>::new());
}

#[test]
fn insert_replace_and_remove_work_on_list_positions() {
    let hook = json!({ "type": "empty_output_hint", "message": "Print it." });
    let at = path("middleware.hooks.post_tool_call[0]");
    let patched = apply(PatchOp::insert(at.clone(), hook.clone())).unwrap();
    let kinds = |harness: &Harness| -> Vec<&str> {
        harness
            .middleware
            .hooks
            .post_tool_call
            .iter()
            .map(Hook::kind)
            .collect()
    };
    assert_eq!(kinds(&patched), ["empty_output_hint", "truncate_output"]);
    let end = path("middleware.hooks.post_tool_call[1]");
    let patched = apply(PatchOp::insert(end, hook.clone())).unwrap();
    assert_eq!(kinds(&patched), ["truncate_output", "empty_output_hint"]);
    let patched = apply(PatchOp::replace(at.clone(), hook)).unwrap();
    assert_eq!(kinds(&patched), ["empty_output_hint"]);
    let patched = apply(PatchOp::remove(at)).unwrap();
    assert_eq!(kinds(&patched), Vec::<&str>::new());
    let patched = apply(PatchOp::remove(path("skills.unit-check"))).unwrap();
    assert!(patched.skills.is_empty());
}

#[test]
fn later_operations_see_earlier_ones_and_only_the_result_must_be_valid() {
    let ops = vec![
        PatchOp::replace(path("middleware.protocol.max_tokens_per_turn"), json!(4000)),
        PatchOp::replace(path("middleware.context.max_tokens"), json!(8000)),
        PatchOp::add(path("middleware.protocol.stop"), json!("END")),
        PatchOp::replace(path("middleware.protocol.stop[0]"), json!("STOP")),
    ];
    let patched = patch(Dimension::Mid, ops).apply(&world::rich()).unwrap();
    assert_eq!(patched.middleware.context.max_tokens, 8000);
    assert_eq!(patched.middleware.protocol.stop, ["STOP"]);
}

#[test]
fn a_patch_stays_in_its_dimension() {
    let op = PatchOp::replace(path("prompts.system"), json!("x"));
    let error = patch(Dimension::Mid, vec![op])
        .apply(&world::rich())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "prompts.system: outside dimension Mid (`middleware`)"
    );
    for outside in ["name", "format", "budget.tokens", ".", "splits"] {
        let op = PatchOp::replace(path(outside), json!("x"));
        for dimension in Dimension::ALL {
            let error = patch(dimension, vec![op.clone()])
                .apply(&world::rich())
                .unwrap_err();
            assert!(
                matches!(error, PatchError::OutsideDimension { .. }),
                "{outside}: {error}"
            );
        }
    }
    assert_eq!(
        patch(Dimension::P, Vec::new()).apply(&world::rich()),
        Err(PatchError::Empty)
    );
}

#[test]
fn an_operation_that_does_not_fit_says_where_and_why() {
    let tool = json!({});
    let cases = [
        (
            PatchOp::add(path("prompts.system"), json!("x")),
            "exists already",
        ),
        (
            PatchOp::add(path("prompts.examples[0]"), tool),
            "use insert",
        ),
        (
            PatchOp::replace(path("tools.sage.description"), json!("x")),
            "`tools.sage`: there is no",
        ),
        (
            PatchOp::replace(path("memory.entries[7]"), json!("x")),
            "the list has 1 entries",
        ),
        (
            PatchOp::insert(path("memory.entries[2]"), json!("x")),
            "the list has 1 entries",
        ),
        (
            PatchOp::insert(path("memory.capacity"), json!(1)),
            "must end in a list position",
        ),
        (
            PatchOp::insert(path("memory.capacity[0]"), json!(1)),
            "a number isn't a list",
        ),
        (
            PatchOp::remove(path("skills.algebra")),
            "there is no \"algebra\"",
        ),
        (
            PatchOp::remove(path("prompts.system.text")),
            "a text has no \"text\"",
        ),
    ];
    for (op, expected) in cases {
        let named = op.path.clone();
        let error = apply(op).unwrap_err();
        assert!(matches!(error, PatchError::CannotApply { .. }), "{error}");
        assert_eq!(error.path(), Some(&named));
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn values_are_present_exactly_where_they_are_needed() {
    let at = path("memory.entries[0]");
    let removal = PatchOp {
        op: PatchOpKind::Remove,
        path: at.clone(),
        value: Some(json!(1)),
    };
    assert!(
        apply(removal)
            .unwrap_err()
            .to_string()
            .contains("takes no value")
    );
    let empty = PatchOp {
        op: PatchOpKind::Replace,
        path: at,
        value: None,
    };
    assert!(
        apply(empty)
            .unwrap_err()
            .to_string()
            .contains("the value is missing")
    );
}

#[test]
fn values_follow_the_document_s_types() {
    let cases = [
        (
            "middleware.protocol.max_turns",
            json!("8"),
            "invalid type: string",
        ),
        (
            "middleware.protocol.max_turns",
            json!(8.0),
            "invalid type: floating point",
        ),
        (
            "middleware.protocol.max_turns",
            json!(-1),
            "invalid value: integer `-1`",
        ),
        (
            "middleware.protocol.max_turns",
            json!(5_000_000_000u64),
            "5000000000",
        ),
        (
            "middleware.protocol.call_format",
            json!("yaml"),
            "unknown variant `yaml`",
        ),
        (
            "middleware.sampling.temperature",
            Value::Null,
            "invalid type: null",
        ),
        ("prompts.system", json!(12), "invalid type: integer `12`"),
        ("prompts.system", json!(["a"]), "invalid type: sequence"),
        (
            "tools.python.parameters",
            json!("x"),
            "invalid type: string",
        ),
        ("memory.entries[0]", json!(true), "invalid type: boolean"),
    ];
    for (field, value, expected) in cases {
        let error = replace(field, value).unwrap_err();
        assert!(matches!(error, PatchError::Type { .. }), "{field}: {error}");
        assert_eq!(error.path(), Some(&path(field)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = replace("middleware.hooks.post_tool_call[0].max_chars", json!("9")).unwrap_err();
    assert_eq!(
        error.path(),
        Some(&path("middleware.hooks.post_tool_call[0]"))
    );
    assert!(
        error
            .to_string()
            .contains("field `max_chars` of `truncate_output`"),
        "{error}"
    );
    let error = apply(PatchOp::add(path("memory.recency"), json!("lru"))).unwrap_err();
    assert!(
        error.to_string().contains("unknown field `recency`"),
        "{error}"
    );
}

#[test]
fn the_result_is_validated() {
    let cases = [
        ("middleware.protocol.max_turns", json!(0), "outside 1..=64"),
        (
            "middleware.sampling.temperature",
            json!(2.5),
            "outside 0..=2",
        ),
        ("prompts.task", json!("Solve it."), "exactly once"),
        (
            "prompts.system",
            json!("\u{c}rac"),
            "control character U+000C",
        ),
        ("memory.entries[0]", json!(" "), "the text is empty"),
    ];
    for (field, value, expected) in cases {
        let error = replace(field, value).unwrap_err();
        assert!(
            matches!(error, PatchError::Invalid { .. }),
            "{field}: {error}"
        );
        assert_eq!(error.path(), Some(&path(field)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = replace(
        "middleware.hooks.post_tool_call[0].type",
        json!("repair_json"),
    );
    assert!(error.unwrap_err().to_string().contains("post_tool_call[0]"));
}

#[test]
fn a_full_memory_refuses_an_entry_or_makes_room_for_it() {
    let note = |text: &str| PatchOp::add(path("memory.entries"), json!(text));
    let mut harness = world::rich();
    harness.memory.capacity = 2;
    let notes = patch(Dimension::M, vec![note("b"), note("c")]);
    let patched = notes.apply(&harness).unwrap();
    assert_eq!(patched.memory.entries, ["b", "c"]);
    // What one patch brings is more than there is room for: its own oldest go too.
    let notes = patch(Dimension::M, vec![note("d"), note("e"), note("f")]);
    let patched = notes.apply(&patched).unwrap();
    assert_eq!(patched.memory.entries, ["e", "f"]);
    // A smaller capacity makes room as well.
    let smaller = patch(
        Dimension::M,
        vec![PatchOp::replace(path("memory.capacity"), json!(1))],
    );
    assert_eq!(smaller.apply(&patched).unwrap().memory.entries, ["f"]);
    harness.memory.eviction = Eviction::Refuse;
    let error = patch(Dimension::M, vec![note("b"), note("c")])
        .apply(&harness)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("3 entries, and the capacity is 2"),
        "{error}"
    );
}

#[test]
fn a_tool_that_an_example_calls_cannot_be_removed() {
    let error = apply(PatchOp::remove(path("tools.python"))).unwrap_err();
    assert_eq!(
        error.path(),
        Some(&path("prompts.examples[0].steps[0].tool"))
    );
}

#[test]
fn patches_read_from_json_and_keep_an_explicit_null() {
    let text = r#"{ "dimension": "T", "summary": "s", "ops": [
        { "op": "add", "path": "tools.python.parameters.properties.code.default", "value": null },
        { "op": "remove", "path": "tools.python.parameters.properties.code.description" } ] }"#;
    let patch = Patch::from_json(text).unwrap();
    assert_eq!(patch.ops[0].value, Some(Value::Null));
    assert_eq!(patch.ops[1].value, None);
    let patched = patch.apply(&world::rich()).unwrap();
    let code = &patched.tools["python"].parameters["properties"]["code"];
    assert_eq!(code, &json!({ "type": "string", "default": null }));
    let written = serde_json::to_string(&patch).unwrap();
    assert_eq!(Patch::from_json(&written).unwrap(), patch);
}

#[test]
fn a_patch_in_json_is_read_strictly() {
    let reason = |text: &str| Patch::from_json(text).unwrap_err().to_string();
    let twice =
        "{\"dimension\":\"M\",\n \"ops\":[{\"op\":\"remove\",\"path\":\"a\",\"path\":\"b\"}]}";
    let error = reason(twice);
    assert!(
        error.starts_with("line 2, ") && error.contains("\"path\" occurs twice"),
        "{error}"
    );
    let op = |op: &str| reason(&format!(r#"{{"dimension":"M","ops":[{op}]}}"#));
    assert!(
        op(r#"{"op":"move","path":"memory"}"#).starts_with("ops[0].op: unknown variant `move`")
    );
    assert!(op(r#"{"op":"add","path":"memory..x"}"#).starts_with("ops[0].path: "));
    assert!(op(r#"{"op":"add","path":"memory","from":"x"}"#).contains("unknown field `from`"));
    assert!(op(r#"{"op":"add","path":"memory.capacity","value":NaN}"#).starts_with("line 1, "));
    assert!(op(r#"{"op":"add","path":"memory.capacity","value":1e400}"#).contains("out of range"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn apply_is_pure_and_repeatable(harness in world::harness(), turns in 0u32..130, text in world::text()) {
        let before = harness.clone();
        let patch = patch(Dimension::Mid, vec![
            PatchOp::replace(path("middleware.protocol.max_turns"), json!(turns)),
            PatchOp::add(path("middleware.hooks.on_tool_error"), json!({"type": "error_hint", "message": text})),
        ]);
        let first = patch.apply(&harness);
        prop_assert_eq!(&harness, &before);
        prop_assert_eq!(harness.id(), before.id());
        prop_assert_eq!(&first, &patch.apply(&harness));
        let is_valid = (1..=64).contains(&turns) && !text.trim().is_empty();
        prop_assert_eq!(first.is_ok(), is_valid);
        match first {
            Ok(patched) => {
                let changes = diff(&harness, &patched);
                let is_inside = changes.iter().all(|c| c.dimension() == Some(Dimension::Mid));
                prop_assert!(is_inside, "{:?}", changes);
            }
            Err(error) => prop_assert!(Dimension::of(error.path().unwrap()) == Some(Dimension::Mid)),
        }
    }

    #[test]
    fn an_insertion_is_undone_by_a_removal(harness in world::harness(), text in world::text()) {
        let at = path("middleware.hooks.pre_tool_call[0]");
        let hook = json!({ "type": "detect_repeat", "message": format!("x{text}") });
        let patched = patch(Dimension::Mid, vec![PatchOp::insert(at.clone(), hook)]).apply(&harness).unwrap();
        prop_assert_ne!(patched.id(), harness.id());
        let back = patch(Dimension::Mid, vec![PatchOp::remove(at)]).apply(&patched).unwrap();
        prop_assert_eq!(back.id(), harness.id());
        prop_assert_eq!(back, harness);
    }
}
