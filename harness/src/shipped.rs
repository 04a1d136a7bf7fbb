//! The harnesses that a first run starts from, shipped below `configs/harness`.

use std::collections::BTreeMap;

use crate::document::Harness;
use crate::folder::{self, FolderError};

/// A shipped harness, as its folder has it.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// What it and its folder are called.
    pub name: &'static str,
    /// The texts of its files, by path inside its folder.
    pub files: [(&'static str, &'static str); 7],
}

macro_rules! shipped {
    ($name:literal) => {
        Shipped {
            name: $name,
            files: [
                shipped!($name, "harness.yaml"),
                shipped!($name, "prompts/system.md"),
                shipped!($name, "prompts/task.md"),
                shipped!($name, "prompts/final_answer.md"),
                shipped!($name, "tools/python.yaml"),
                shipped!($name, "middleware.yaml"),
                shipped!($name, "memory.yaml"),
            ],
        }
    };
    ($name:literal, $file:literal) => {
        (
            $file,
            include_str!(concat!("../../configs/harness/", $name, "/", $file)),
        )
    };
}

/// A short system prompt, one Python tool, and the plainest middleware: short replies, decoded greedily.
pub const NAIVE: Shipped = shipped!("naive");

/// The same for a model that reasons at length: sampled, with long replies and calls in tags, as Qwen3 does
/// best.
pub const REASONING: Shipped = shipped!("reasoning");

/// All of them.
pub const ALL: [Shipped; 2] = [NAIVE, REASONING];

impl Shipped {
    /// The one of this name.
    pub fn named(name: &str) -> Option<Shipped> {
        ALL.into_iter().find(|shipped| shipped.name == name)
    }

    /// The document.
    ///
    /// # Errors
    /// [`FolderError`] if the shipped folder doesn't read, which a test of this crate rules out.
    pub fn read(&self) -> Result<Harness, FolderError> {
        let files: BTreeMap<String, String> = self
            .files
            .iter()
            .map(|(file, text)| ((*file).to_owned(), (*text).to_owned()))
            .collect();
        folder::from_files(&files)
    }
}

/// [`NAIVE`], read.
///
/// # Errors
/// As [`Shipped::read`].
pub fn naive() -> Result<Harness, FolderError> {
    NAIVE.read()
}
