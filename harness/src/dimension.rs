//! The five dimensions of a harness.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::field_path::FieldPath;

/// One of the five dimensions of φ, under the short names of the paper (arXiv:2607.22688).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Dimension {
    /// Prompts: system prompt, task template, final-answer instruction, examples.
    P,
    /// Tools: descriptions, parameter schemas, limits.
    T,
    /// Skills: short texts shown when a problem triggers them.
    S,
    /// Middleware: protocol, sampling, hooks, context, runtime.
    Mid,
    /// Memory: notes carried from one problem to the next.
    M,
}

impl Dimension {
    /// All dimensions, in the order of the paper.
    pub const ALL: [Dimension; 5] = [
        Dimension::P,
        Dimension::T,
        Dimension::S,
        Dimension::Mid,
        Dimension::M,
    ];

    /// The dimension that the field at `path` belongs to; `None` for the harness's own `format`,
    /// `name` and `description`, and for names that the document doesn't have.
    pub fn of(path: &FieldPath) -> Option<Dimension> {
        let first = path.first_key()?;
        Dimension::ALL
            .into_iter()
            .find(|dimension| dimension.section() == first)
    }

    /// The dimension's field in the harness document, such as `middleware`.
    pub fn section(self) -> &'static str {
        match self {
            Dimension::P => "prompts",
            Dimension::T => "tools",
            Dimension::S => "skills",
            Dimension::Mid => "middleware",
            Dimension::M => "memory",
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dimension::P => "P",
            Dimension::T => "T",
            Dimension::S => "S",
            Dimension::Mid => "Mid",
            Dimension::M => "M",
        })
    }
}
