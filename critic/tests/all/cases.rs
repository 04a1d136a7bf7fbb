//! Faults of critics' replies that were reported for other projects, where their list lies beside this
//! one: each input must come to what is right. A case without a test here is an error.

use std::collections::BTreeSet;
use std::path::Path;

use critic::llm::{Mended, ReplyFault, operations, read};
use harness::{Dimension, Harness, Patch, PatchOp, PatchOpKind};
use serde_json::{Value, json};

/// The cases by their id.
fn cases() -> Vec<(String, Value)> {
    let file = "../../shared/cases/critic_json.jsonl";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let Ok(text) = std::fs::read_to_string(path) else {
        println!("skipped: the cases of critics' replies are not here");
        return Vec::new();
    };
    let case = |line: &str| {
        let case: Value = serde_json::from_str(line).expect("JSON");
        let id = case["id"].as_str().expect("id").to_owned();
        (id, case["input"].clone())
    };
    text.lines().map(case).collect()
}

fn texts(values: &Value) -> Vec<&str> {
    let values = values.as_array().expect("a list").iter();
    values
        .map(|value| value.as_str().expect("a text"))
        .collect()
}

fn start() -> Harness {
    harness::naive().expect("the shipped harness")
}

/// Reads one operation and applies it; the harness it is applied to never changes.
fn try_operation(value: Value) -> Result<(PatchOp, BTreeSet<Mended>), String> {
    let harness = start();
    let mut mended = BTreeSet::new();
    let ops = operations(value, &harness, &mut mended).map_err(|fault| fault.to_string())?;
    let dimension = Dimension::of(&ops[0].path).ok_or("the path leads nowhere")?;
    let patch = Patch {
        dimension,
        ops: ops.clone(),
        summary: String::new(),
    };
    let applied = patch.apply(&harness);
    assert_eq!(harness, start());
    applied.map_err(|error| error.to_string())?;
    Ok((ops[0].clone(), mended))
}

#[test]
fn reported_faults_of_replies_come_to_what_is_right() {
    for (id, input) in cases() {
        match id.as_str() {
            "crt-01" => a_reply_in_a_fence_is_one_record(&input),
            "crt-03" => macros_never_become_control_characters(&input),
            "crt-04" => what_is_cut_is_never_completed(&input),
            "crt-05" => words_types_ranges_and_paths_are_checked(&input),
            other => panic!("no test for {other}"),
        }
    }
}

fn a_reply_in_a_fence_is_one_record(input: &Value) {
    let reading = read(input["reply"].as_str().expect("a text")).expect("readable");
    assert_eq!(reading.mended, BTreeSet::from([Mended::Surroundings]));
    let (op, _) = try_operation(reading.value).expect("an operation");
    assert_eq!(
        (op.op, op.path.to_string().as_str()),
        (PatchOpKind::Replace, "prompts.system")
    );
}

fn macros_never_become_control_characters(input: &Value) {
    let replies = texts(&input["replies"]);
    let (last, macros) = replies.split_last().expect("replies");
    for reply in macros {
        let reading = read(reply).expect("readable");
        let text = reading.value["value"].as_str().expect("a text").to_owned();
        assert!(!text.contains(|c: char| c.is_control()), "{text:?}");
        assert!(text.contains('\\'), "{text}");
        assert!(reading.mended.contains(&Mended::Backslash));
    }
    let reading = read(last).expect("readable");
    assert_eq!(reading.value["value"], "line1\nline2");
    assert!(reading.mended.is_empty());
}

fn what_is_cut_is_never_completed(input: &Value) {
    let replies = texts(&input["replies"]);
    let mended = |reply: &str| read(reply).expect("readable");
    let first = mended(replies[0]);
    assert_eq!(first.value, json!({"path": "a", "tags": ["x"]}));
    assert_eq!(first.mended, BTreeSet::from([Mended::TrailingComma]));
    assert_eq!(read(replies[1]), Err(ReplyFault::Truncated));
    assert_eq!(read(replies[2]), Err(ReplyFault::Truncated));
    assert_eq!(mended(replies[3]).value, json!({"note": "keep ,] as is"}));
}

fn words_types_ranges_and_paths_are_checked(input: &Value) {
    let replies = texts(&input["replies"]);
    let complete = |reply: &str, path: &str| {
        let mut value = read(reply).expect("readable").value;
        if value.get("path").is_none() {
            value["path"] = "prompts.system".into();
            value["value"] = "x".into();
        } else if !path.is_empty() {
            value["path"] = path.into();
        }
        try_operation(value)
    };
    for reply in &replies[..2] {
        let (op, mended) = complete(reply, "").expect("folded");
        assert_eq!(op.op, PatchOpKind::Replace);
        assert_eq!(mended, BTreeSet::from([Mended::Spelling]));
    }
    assert!(
        complete(replies[2], "")
            .expect_err("refused")
            .starts_with("op:")
    );
    // The limit has another place in our document; at the reported one there is nothing.
    assert!(complete(replies[3], "").is_err());
    let turns = "middleware.protocol.max_turns";
    let (op, mended) = complete(replies[3], turns).expect("a lossless conversion");
    assert_eq!(
        (op.value, mended),
        (Some(json!(8)), BTreeSet::from([Mended::Type]))
    );
    assert!(
        complete(replies[4], turns)
            .expect_err("refused")
            .contains(turns)
    );
    assert!(
        complete(replies[5], "")
            .expect_err("refused")
            .contains("etc")
    );
}
