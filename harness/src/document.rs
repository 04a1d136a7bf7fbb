//! The harness document: prompts, tools, skills and memory. Middleware has its own module.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::canonical::{self, HarnessId};
use crate::middleware::Middleware;

/// The document format that this version reads and writes.
pub const FORMAT: u32 = 1;

/// Where the problem text goes in [`Prompts::task`].
pub const PROBLEM_SLOT: &str = "{{ problem }}";

/// φ: everything around the model that a run may change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Harness {
    /// Document format, [`FORMAT`].
    pub format: u32,
    /// Short name, one line.
    pub name: String,
    /// What this harness is for, in a sentence or two.
    pub description: String,
    /// Dimension P.
    pub prompts: Prompts,
    /// Dimension T, by the name the model calls a tool by.
    #[serde(default)]
    pub tools: BTreeMap<ToolName, Tool>,
    /// Dimension S; each key equals its skill's `name`.
    #[serde(default)]
    pub skills: BTreeMap<String, Skill>,
    /// Dimension Mid.
    pub middleware: Middleware,
    /// Dimension M.
    pub memory: Memory,
}

impl Harness {
    /// The content id: equal exactly when every field is equal.
    pub fn id(&self) -> HarnessId {
        HarnessId::of(&canonical::canonical_json(&self.to_value()))
    }

    /// The document as JSON, every field present, so that each field has a path.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("a harness is plain data with string keys")
    }
}

/// Dimension P: the texts the model reads before it writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prompts {
    /// System prompt: intent only. How to call a tool is rendered from the call format.
    pub system: String,
    /// Template of the user message; holds [`PROBLEM_SLOT`] exactly once.
    pub task: String,
    /// How to state the final answer; appended to the system prompt. May be empty.
    #[serde(default)]
    pub final_answer: String,
    /// Solved problems shown before the task, in this order.
    #[serde(default)]
    pub examples: Vec<Example>,
}

impl Prompts {
    /// The user message for `problem`. The problem is inserted as it is: nothing inside it is read
    /// as a template.
    pub fn render_task(&self, problem: &str) -> String {
        self.task.replacen(PROBLEM_SLOT, problem, 1)
    }
}

/// One solved problem. It doesn't depend on the protocol: calls are rendered in the current call
/// format, so that a change of format never leaves an example behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// Name of the example: lower-case letters, digits and hyphens.
    pub title: String,
    /// The problem text.
    pub problem: String,
    /// Tool calls, in order.
    #[serde(default)]
    pub steps: Vec<ExampleStep>,
    /// The final assistant text.
    pub answer: String,
}

/// One tool call in an [`Example`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExampleStep {
    /// Assistant text before the call; may be empty.
    #[serde(default)]
    pub say: String,
    /// The tool that is called.
    pub tool: ToolName,
    /// The call's arguments, by name.
    pub arguments: BTreeMap<String, String>,
    /// What the tool answered.
    pub result: String,
}

/// Dimension T: one tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// What the tool does, for the model.
    pub description: String,
    /// JSON Schema of the arguments; an object schema. Reading and writing sort the keys, so that the
    /// text a model or a person sees depends only on the content id.
    #[serde(deserialize_with = "sorted_object", serialize_with = "sorted")]
    #[schemars(extend("type" = "object"))]
    pub parameters: Value,
    /// What runs a call.
    pub backend: Backend,
    /// What a call finds of the calls before it. Left out of the document where it is the default,
    /// so that the content ids of harnesses from before this field stay what they were.
    #[serde(default, skip_serializing_if = "ToolState::is_default")]
    pub state: ToolState,
    /// Limits of one call.
    #[serde(default)]
    pub limits: ToolLimits,
}

impl Tool {
    /// The argument that carries the program for [`Backend::Python`]: the first required string
    /// parameter. Its name is the harness's to choose.
    pub fn code_argument(&self) -> Option<&str> {
        let properties = self.parameters.get("properties")?.as_object()?;
        let required = self.parameters.get("required")?.as_array()?;
        required.iter().filter_map(Value::as_str).find(|name| {
            properties.get(*name).and_then(|schema| schema.get("type"))
                == Some(&Value::from("string"))
        })
    }
}

/// What runs a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// A Python interpreter inside the sandbox.
    Python,
}

/// What a tool call finds of the rollout's earlier calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolState {
    /// Nothing: every call starts afresh.
    #[default]
    Stateless,
    /// Variables, imports and files, in one interpreter for each rollout. One that runs out of time
    /// is discarded, and the result says so.
    Stateful,
}

impl ToolState {
    fn is_default(&self) -> bool {
        *self == ToolState::default()
    }
}

/// Limits of one tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolLimits {
    /// Wall time of one call.
    pub timeout_ms: u64,
    /// Memory of one call.
    pub memory_mib: u64,
    /// Characters of output that the model may see; of a longer one, beginning and end.
    pub output_chars: usize,
}

impl Default for ToolLimits {
    fn default() -> Self {
        ToolLimits {
            timeout_ms: 5000,
            memory_mib: 512,
            output_chars: 2000,
        }
    }
}

/// Dimension S: one skill, shown when a problem triggers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Skill {
    /// Lower-case letters, digits and hyphens; equals the key in [`Harness::skills`].
    pub name: String,
    /// When the skill helps, in one sentence.
    pub description: String,
    /// Words in the problem that switch the skill on; empty means always.
    #[serde(default)]
    pub triggers: Vec<String>,
    /// The text that is shown.
    pub body: String,
    /// Python that the interpreter has run before a program, where the skill is on: the functions it
    /// defines can be called. Left out of the document where there is none, so that content ids from
    /// before this field stay.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub python: String,
}

/// Dimension M: what is carried from one problem to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Kind of memory.
    pub kind: MemoryKind,
    /// Most entries it may hold.
    pub capacity: u32,
    /// Most entries shown for one problem: those that share most with it. 0 shows all, and is left out
    /// of the document, so that content ids from before this field stay.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shown: u32,
    /// What becomes of a patch that adds to a full memory. Left out of the document where it is the
    /// default, so that content ids from before this field stay.
    #[serde(default, skip_serializing_if = "Eviction::is_default")]
    pub eviction: Eviction,
    /// The entries, oldest first.
    #[serde(default)]
    pub entries: Vec<String>,
}

impl Memory {
    /// Makes room as [`Memory::eviction`] says.
    pub(crate) fn evict(&mut self) {
        let capacity = usize::try_from(self.capacity).unwrap_or(usize::MAX);
        let surplus = self.entries.len().saturating_sub(capacity);
        if self.eviction == Eviction::Oldest {
            self.entries.drain(..surplus);
        }
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// What becomes of a patch that adds to a full [`Memory`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Eviction {
    /// It is refused.
    #[default]
    Refuse,
    /// The oldest entries go.
    Oldest,
}

impl Eviction {
    fn is_default(&self) -> bool {
        *self == Eviction::default()
    }
}

/// Kind of [`Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Nothing is carried over.
    None,
    /// Notes shown in the system prompt.
    Notes,
}

/// The name a model calls a tool by: an ASCII letter or `_`, then letters, digits, `_` or `-`, at
/// most 64 characters. It is safe as a file name and as a JSON function name.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub struct ToolName(String);

impl ToolName {
    /// Checks and wraps a name.
    ///
    /// # Errors
    /// [`NameError`] if the name breaks the rule stated on [`ToolName`].
    pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
        let name = name.into();
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let is_word = name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if starts_well && is_word && name.len() <= 64 {
            Ok(ToolName(name))
        } else {
            Err(NameError { name })
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that isn't a tool name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} isn't a tool name: a letter or `_`, then letters, digits, `_` or `-`, 64 at most"
)]
pub struct NameError {
    /// The refused text.
    pub name: String,
}

impl TryFrom<String> for ToolName {
    type Error = NameError;

    fn try_from(name: String) -> Result<Self, NameError> {
        ToolName::new(name)
    }
}

impl FromStr for ToolName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        ToolName::new(name)
    }
}

impl From<ToolName> for String {
    fn from(name: ToolName) -> String {
        name.0
    }
}

impl Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ToolName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// JSON Schema of the whole document.
pub fn json_schema() -> Value {
    schemars::schema_for!(Harness).to_value()
}

/// Reads a JSON object and sorts its keys at every level. Map order differs with serde_json's
/// `preserve_order`, which any crate of the build can turn on.
fn sorted_object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let map = serde_json::Map::deserialize(deserializer)?;
    Ok(canonical::sort_keys(Value::Object(map)))
}

fn sorted<S: Serializer>(value: &Value, serializer: S) -> Result<S::Ok, S::Error> {
    canonical::sort_keys(value.clone()).serialize(serializer)
}
