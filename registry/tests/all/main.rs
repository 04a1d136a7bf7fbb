//! Integration tests of the registry, in one binary.

#![allow(
    clippy::unwrap_used,
    reason = "a test that can't go on should stop right there"
)]

mod concurrency;
mod crash;
mod environment;
mod faults;
mod git_view;
mod opening;
mod oracle;
mod pairings;
mod support;
mod versions;

#[test]
fn every_test_file_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all");
    let source = include_str!("main.rs");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.trim_end_matches(".rs");
        assert!(
            module == "main" || source.contains(&format!("mod {module};")),
            "{name}"
        );
    }
}
