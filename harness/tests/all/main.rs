//! The crate's tests in one binary, since linking dominates on few cores.

#![expect(
    clippy::unwrap_used,
    reason = "a failed unwrap fails the test, with a line"
)]

mod canonical;
mod change;
mod diff;
mod docs;
mod document;
mod field_path;
mod folder;
mod patch;
mod strict_readers;
mod undo;
mod validate;
mod world;

#[test]
fn every_test_file_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all");
    let listed = include_str!("main.rs");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let stem = name.trim_end_matches(".rs");
        assert!(
            stem == "main" || listed.contains(&format!("mod {stem};")),
            "{name} isn't listed"
        );
    }
}
