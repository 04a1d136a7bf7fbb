//! The harness that a first run starts from, shipped as `configs/harness/naive`.

use std::collections::BTreeMap;

use crate::document::Harness;
use crate::folder::{self, FolderError};

/// Files of the starting harness, by path inside its folder.
pub const FILES: [(&str, &str); 7] = [
    (
        "harness.yaml",
        include_str!("../../configs/harness/naive/harness.yaml"),
    ),
    (
        "prompts/system.md",
        include_str!("../../configs/harness/naive/prompts/system.md"),
    ),
    (
        "prompts/task.md",
        include_str!("../../configs/harness/naive/prompts/task.md"),
    ),
    (
        "prompts/final_answer.md",
        include_str!("../../configs/harness/naive/prompts/final_answer.md"),
    ),
    (
        "tools/python.yaml",
        include_str!("../../configs/harness/naive/tools/python.yaml"),
    ),
    (
        "middleware.yaml",
        include_str!("../../configs/harness/naive/middleware.yaml"),
    ),
    (
        "memory.yaml",
        include_str!("../../configs/harness/naive/memory.yaml"),
    ),
];

/// The starting harness: a short system prompt, one Python tool, and the plainest middleware.
///
/// # Errors
/// [`FolderError`] if the shipped folder doesn't read, which a test of this crate rules out.
pub fn naive() -> Result<Harness, FolderError> {
    let files: BTreeMap<String, String> = FILES
        .iter()
        .map(|(file, text)| ((*file).to_owned(), (*text).to_owned()))
        .collect();
    folder::from_files(&files)
}
