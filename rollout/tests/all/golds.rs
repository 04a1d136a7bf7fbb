//! Published problem sets, where they lie beside the project: every gold answer equals itself.

use std::path::Path;

use rollout::{Columns, VerifierKind, load_tasks, verifier};

#[test]
fn every_whole_gold_answer_equals_itself() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let verifier = verifier::build(VerifierKind::Integer);
    for name in [
        "aime_2024",
        "aime_2025",
        "gsm8k_test",
        "gsm8k_train_2000",
        "multiarith",
    ] {
        let file = format!("{name}.jsonl");
        let Ok(text) = std::fs::read_to_string(folder.join(&file)) else {
            println!("skipped: {file} is not here");
            continue;
        };
        let tasks = load_tasks(&text, &file, &Columns::default()).expect("tasks");
        let unread: Vec<_> = tasks
            .iter()
            .filter(|task| !verifier.can_read(&task.answer))
            .map(|task| &task.answer)
            .collect();
        assert!(unread.is_empty(), "{name}: {unread:?}");
    }
}

#[test]
fn the_shipped_tasks_can_be_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/tasks/arithmetic.jsonl");
    let text = std::fs::read_to_string(path).expect("the shipped tasks");
    let tasks = load_tasks(&text, "arithmetic.jsonl", &Columns::default()).expect("tasks");
    let verifier = verifier::build(VerifierKind::Integer);
    assert!(!tasks.is_empty() && tasks.iter().all(|task| verifier.can_read(&task.answer)));
}
