//! Published problem sets, where they lie beside the project: every gold answer equals itself.

use std::path::Path;

use rollout::{Columns, Task, VerifierKind, load_tasks, verifier};

/// Sets whose answers are all whole numbers.
const WHOLE: [&str; 5] = [
    "aime_2024",
    "aime_2025",
    "gsm8k_test",
    "gsm8k_train_2000",
    "multiarith",
];
/// Sets with decimals or LaTeX among their answers.
const OTHER: [&str; 5] = [
    "hmmt_feb_2025",
    "math500_first_250",
    "svamp",
    "asdiv",
    "addsub",
];

fn tasks(name: &str) -> Vec<Task> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let file = format!("{name}.jsonl");
    let Ok(text) = std::fs::read_to_string(folder.join(&file)) else {
        println!("skipped: {file} is not here");
        return Vec::new();
    };
    load_tasks(&text, &file, &Columns::default()).expect("tasks")
}

fn unread(name: &str, kind: &VerifierKind) -> Vec<String> {
    let verifier = verifier::pure(kind).expect("a pure kind");
    let tasks = tasks(name).into_iter();
    tasks
        .map(|task| task.answer)
        .filter(|gold| !verifier.can_read(gold))
        .collect()
}

#[test]
fn every_whole_gold_answer_equals_itself() {
    for name in WHOLE {
        let unread = unread(name, &VerifierKind::Integer);
        assert!(unread.is_empty(), "{name}: {unread:?}");
    }
}

#[test]
fn every_gold_answer_equals_itself_as_mathematics() {
    for name in WHOLE.into_iter().chain(OTHER) {
        let unread = unread(name, &VerifierKind::Math);
        assert!(unread.is_empty(), "{name}: {unread:?}");
    }
}

#[test]
fn no_gold_answer_equals_the_next_number() {
    let verifier = verifier::pure(&VerifierKind::Math).expect("a pure kind");
    for name in WHOLE.into_iter().chain(OTHER) {
        for Task { answer, .. } in tasks(name) {
            assert!(
                !verifier
                    .verify(&answer, &format!("\\boxed{{{answer}+1}}"))
                    .correct,
                "{answer}"
            );
        }
    }
}

#[test]
fn the_shipped_tasks_can_be_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/tasks/arithmetic.jsonl");
    let text = std::fs::read_to_string(path).expect("the shipped tasks");
    let tasks = load_tasks(&text, "arithmetic.jsonl", &Columns::default()).expect("tasks");
    assert!(!tasks.is_empty());
    for kind in [VerifierKind::Integer, VerifierKind::Math] {
        let verifier = verifier::pure(&kind).expect("a pure kind");
        assert!(tasks.iter().all(|task| verifier.can_read(&task.answer)));
    }
}
