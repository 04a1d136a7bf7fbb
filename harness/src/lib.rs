//! φ, the harness that runs a model, as a typed document.
//!
//! A [`Harness`] has five dimensions ([`Dimension`]): prompts, tools, skills, middleware and memory.
//! Everything here is pure: reading and writing the disk is left to the callers.
//!
//! - [`document`] and [`middleware`]: the types; unknown keys are refused wherever they are read.
//! - [`field_path`]: names one field, as in `middleware.hooks.post_tool_call[0].type`.
//! - [`patch`]: [`Patch::apply`] makes a new harness from an old one, inside one dimension.
//! - [`mod@validate`]: rules that types alone can't state. A patched or loaded harness has passed them.
//! - [`canonical`]: the byte form whose hash is the [`HarnessId`].
//! - [`folder`]: the harness as a folder of files that a person can read and `git diff`.
//! - [`mod@diff`]: which fields differ between two harnesses; [`mod@undo`]: taking an old change back;
//!   [`change`]: what a patch does, wherever the entries of lists stand.
//! - [`shipped`]: the harnesses that a first run starts from.
//! - [`json`] and [`yaml`]: strict readers; a key that occurs twice is an error in both.

pub mod canonical;
pub mod change;
mod check;
pub mod diff;
pub mod dimension;
pub mod document;
mod example_markdown;
pub mod field_path;
pub mod folder;
pub mod json;
pub mod middleware;
pub mod patch;
pub mod shipped;
mod skill_markdown;
pub mod undo;
pub mod validate;
pub mod yaml;

pub use canonical::{HarnessId, ParseHarnessIdError, canonical_json};
pub use change::Change;
pub use diff::{FieldChange, diff};
pub use dimension::Dimension;
pub use document::{
    Backend, Eviction, Example, ExampleStep, FORMAT, Harness, Memory, MemoryKind, NameError,
    PROBLEM_SLOT, Prompts, Skill, Tool, ToolLimits, ToolName, ToolState, json_schema,
};
pub use field_path::{FieldPath, ParseFieldPathError, Segment};
pub use folder::{FolderError, FolderWarning, from_files, to_files, warnings};
pub use json::JsonError;
pub use middleware::{
    CallFormat, Context, Hook, HookPoint, Hooks, Middleware, Protocol, RetryExit, Runtime, Sampling,
};
pub use patch::{Patch, PatchError, PatchOp, PatchOpKind};
pub use shipped::{Shipped, naive};
pub use undo::{UndoError, undo};
pub use validate::{Problem, validate};
pub use yaml::YamlError;
