//! Dimension Mid: how the agent loop runs: protocol, sampling, hooks, context and runtime.

use std::fmt;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::canonical;

/// Dimension Mid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Middleware {
    /// How the model calls tools, and for how long.
    pub protocol: Protocol,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Actions at fixed points of the loop.
    #[serde(default)]
    pub hooks: Hooks,
    /// Size of the conversation.
    pub context: Context,
    /// How many rollouts run together.
    pub runtime: Runtime,
}

/// How the model calls tools, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// Written form of a tool call.
    pub call_format: CallFormat,
    /// Most model messages in one rollout.
    pub max_turns: u32,
    /// Most tokens in one model message.
    pub max_tokens_per_turn: u32,
    /// Texts that end a model message.
    #[serde(default)]
    pub stop: Vec<String>,
    /// Whether calls are decoded under a grammar, so that one once begun can't be malformed. Left
    /// out of the document where it is false, so that content ids from before this field stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub constrained: bool,
}

/// Written form of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallFormat {
    /// A JSON object with the tool's name and its arguments.
    Json,
    /// A fenced code block.
    Fenced,
    /// XML-like tags.
    Xml,
    /// The tool interface of the model's server.
    Native,
}

/// How tokens are drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// 0 decodes greedily.
    #[serde(deserialize_with = "finite")]
    pub temperature: f64,
    /// Nucleus sampling; 1 is off.
    #[serde(deserialize_with = "finite")]
    pub top_p: f64,
    /// Tokens kept; 0 is off.
    #[serde(default)]
    pub top_k: u32,
    /// Least probability of a kept token, as a share of the likeliest one's. 0 is off, and is left out
    /// of the document, so that content ids from before this field stay.
    #[serde(default, deserialize_with = "finite", skip_serializing_if = "is_off")]
    pub min_p: f64,
}

fn is_off(share: &f64) -> bool {
    *share == 0.0
}

/// Size of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Most tokens of prompt and reply together.
    pub max_tokens: u32,
}

/// How many rollouts run together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Runtime {
    /// Rollouts in flight at once.
    pub parallel_rollouts: u32,
}

/// Actions by the point at which they run, each list in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hooks {
    /// Before the first model message.
    pub on_start: Vec<Hook>,
    /// Before each model message.
    pub pre_model_call: Vec<Hook>,
    /// After each model message.
    pub post_model_call: Vec<Hook>,
    /// Before each tool call.
    pub pre_tool_call: Vec<Hook>,
    /// After each tool call.
    pub post_tool_call: Vec<Hook>,
    /// After a tool call that failed.
    pub on_tool_error: Vec<Hook>,
    /// Once, when the loop has ended.
    pub on_finish: Vec<Hook>,
}

impl Hooks {
    /// The actions at `point`.
    pub fn at(&self, point: HookPoint) -> &[Hook] {
        match point {
            HookPoint::OnStart => &self.on_start,
            HookPoint::PreModelCall => &self.pre_model_call,
            HookPoint::PostModelCall => &self.post_model_call,
            HookPoint::PreToolCall => &self.pre_tool_call,
            HookPoint::PostToolCall => &self.post_tool_call,
            HookPoint::OnToolError => &self.on_tool_error,
            HookPoint::OnFinish => &self.on_finish,
        }
    }
}

/// A fixed point of the agent loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookPoint {
    /// Before the first model message.
    OnStart,
    /// Before each model message.
    PreModelCall,
    /// After each model message.
    PostModelCall,
    /// Before each tool call.
    PreToolCall,
    /// After each tool call.
    PostToolCall,
    /// After a tool call that failed.
    OnToolError,
    /// Once, when the loop has ended.
    OnFinish,
}

impl HookPoint {
    /// All points, in the order in which a rollout meets them.
    pub const ALL: [HookPoint; 7] = [
        HookPoint::OnStart,
        HookPoint::PreModelCall,
        HookPoint::PostModelCall,
        HookPoint::PreToolCall,
        HookPoint::PostToolCall,
        HookPoint::OnToolError,
        HookPoint::OnFinish,
    ];

    /// The point's field in [`Hooks`].
    pub fn name(self) -> &'static str {
        match self {
            HookPoint::OnStart => "on_start",
            HookPoint::PreModelCall => "pre_model_call",
            HookPoint::PostModelCall => "post_model_call",
            HookPoint::PreToolCall => "pre_tool_call",
            HookPoint::PostToolCall => "post_tool_call",
            HookPoint::OnToolError => "on_tool_error",
            HookPoint::OnFinish => "on_finish",
        }
    }
}

impl fmt::Display for HookPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One typed action, written as a map with the action's name under `type`.
///
/// serde's own internal tagging buffers the fields and then loses which of them was wrong. So the
/// derived code is the externally tagged one (`remote = "Self"`), and the impls below move the tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(tag = "type")]
pub enum Hook {
    /// `post_model_call`: repairs almost valid JSON in a tool call, and reads a call in the words of
    /// another interface.
    RepairJson {},
    /// `post_model_call`: takes a fenced code block as a tool call.
    ExtractFencedCode {},
    /// `post_model_call`: answers a message that has neither call nor answer.
    Nudge {
        /// The user message that is sent.
        message: String,
        /// Most nudges in one rollout.
        max: u32,
    },
    /// `pre_model_call`: sends a message before the last allowed turn.
    ForceFinalAnswer {
        /// The user message that is sent.
        message: String,
    },
    /// `pre_tool_call`: prints the value of a program's last expression.
    AutoPrintLastExpression {},
    /// `pre_tool_call`: answers a call that was made before, instead of running it again.
    DetectRepeat {
        /// The text that stands in for the result.
        message: String,
    },
    /// `post_tool_call`: shortens a tool result.
    TruncateOutput {
        /// Most characters kept.
        max_chars: usize,
        /// Put where text was cut.
        marker: String,
    },
    /// `post_tool_call`: stands in for an empty tool result.
    EmptyOutputHint {
        /// The text that stands in.
        message: String,
    },
    /// `post_tool_call`: is appended to every tool result.
    AppendMessage {
        /// The appended text.
        message: String,
    },
    /// `on_tool_error`: is appended to the result of a failed call.
    ErrorHint {
        /// The appended text.
        message: String,
    },
    /// `on_finish`: with no answer in the final text, takes the last non-empty line of tool output.
    AnswerFromLastResult {},
    /// `pre_model_call`: puts a marker in the place of older tool results once the conversation is
    /// long.
    Compact {
        /// Tokens of the last prompt and reply above which the conversation is long.
        above_tokens: u32,
        /// Latest tool results that stay.
        keep_results: u32,
        /// Put where a result was.
        marker: String,
    },
    /// `on_finish`: begins again from the opening instead of ending in certain ways.
    Retry {
        /// The ways.
        exits: Vec<RetryExit>,
        /// Most new beginnings in one rollout.
        max: u32,
    },
    /// `on_finish`: has the final reply checked by calls of their own, and asks for another one if
    /// most of them doubt it.
    Verify {
        /// System prompt of a check. It asks for a last line that says RIGHT or WRONG.
        prompt: String,
        /// Checks.
        sceptics: u32,
        /// The user message that is sent if more than half of them say WRONG.
        message: String,
        /// Most such messages in one rollout.
        max: u32,
    },
    /// `on_finish`: rolls out several times and takes the answer that most give.
    Vote {
        /// Samples.
        samples: u32,
    },
    /// `on_start`: asks for a plan, in a message that is read for neither calls nor answers and takes
    /// no turn.
    Plan {
        /// The user message that asks for it.
        message: String,
        /// The user message that follows it.
        next: String,
    },
}

/// A way to end in which a rollout may begin again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryExit {
    /// With a reply that has no answer.
    NoAnswer,
    /// With a reply that was cut.
    ReplyCut,
    /// With a reply that was cut within its reasoning.
    ReasoningCut,
    /// At the turn limit.
    TurnLimit,
    /// At the context limit.
    ContextLimit,
}

impl Hook {
    /// The only point at which this action may stand.
    pub fn point(&self) -> HookPoint {
        match self {
            Hook::RepairJson {} | Hook::ExtractFencedCode {} | Hook::Nudge { .. } => {
                HookPoint::PostModelCall
            }
            Hook::Plan { .. } => HookPoint::OnStart,
            Hook::ForceFinalAnswer { .. } | Hook::Compact { .. } => HookPoint::PreModelCall,
            Hook::AutoPrintLastExpression {} | Hook::DetectRepeat { .. } => HookPoint::PreToolCall,
            Hook::TruncateOutput { .. }
            | Hook::EmptyOutputHint { .. }
            | Hook::AppendMessage { .. } => HookPoint::PostToolCall,
            Hook::ErrorHint { .. } => HookPoint::OnToolError,
            Hook::AnswerFromLastResult {}
            | Hook::Retry { .. }
            | Hook::Verify { .. }
            | Hook::Vote { .. } => HookPoint::OnFinish,
        }
    }

    /// The action's name, as under `type`.
    pub fn kind(&self) -> &'static str {
        match self {
            Hook::RepairJson {} => "repair_json",
            Hook::ExtractFencedCode {} => "extract_fenced_code",
            Hook::Nudge { .. } => "nudge",
            Hook::ForceFinalAnswer { .. } => "force_final_answer",
            Hook::AutoPrintLastExpression {} => "auto_print_last_expression",
            Hook::DetectRepeat { .. } => "detect_repeat",
            Hook::TruncateOutput { .. } => "truncate_output",
            Hook::EmptyOutputHint { .. } => "empty_output_hint",
            Hook::AppendMessage { .. } => "append_message",
            Hook::ErrorHint { .. } => "error_hint",
            Hook::AnswerFromLastResult {} => "answer_from_last_result",
            Hook::Compact { .. } => "compact",
            Hook::Retry { .. } => "retry",
            Hook::Verify { .. } => "verify",
            Hook::Vote { .. } => "vote",
            Hook::Plan { .. } => "plan",
        }
    }

    /// Every text of the action, whoever reads it.
    pub fn texts(&self) -> Vec<&str> {
        match self {
            Hook::Nudge { message, .. }
            | Hook::ForceFinalAnswer { message }
            | Hook::DetectRepeat { message }
            | Hook::EmptyOutputHint { message }
            | Hook::AppendMessage { message }
            | Hook::ErrorHint { message } => vec![message.as_str()],
            Hook::TruncateOutput { marker, .. } | Hook::Compact { marker, .. } => {
                vec![marker.as_str()]
            }
            Hook::Verify {
                prompt, message, ..
            } => vec![prompt.as_str(), message.as_str()],
            Hook::Plan { message, next } => vec![message.as_str(), next.as_str()],
            Hook::RepairJson {}
            | Hook::ExtractFencedCode {}
            | Hook::AutoPrintLastExpression {}
            | Hook::AnswerFromLastResult {}
            | Hook::Retry { .. }
            | Hook::Vote { .. } => Vec::new(),
        }
    }
}

impl Serialize for Hook {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tagged = Hook::serialize(self, serde_json::value::Serializer)
            .map(canonical::sort_keys)
            .map_err(|error| S::Error::custom(error.to_string()))?;
        let empty = Map::new();
        let fields = tagged
            .get(self.kind())
            .and_then(Value::as_object)
            .unwrap_or(&empty);
        let mut map = serializer.serialize_map(Some(fields.len() + 1))?;
        map.serialize_entry("type", self.kind())?;
        for (name, value) in fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Hook {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Map::deserialize(deserializer)?;
        let kind = match fields.remove("type") {
            Some(Value::String(kind)) => kind,
            Some(other) => {
                let message = format!("field `type`: expected the name of an action, got {other}");
                return Err(D::Error::custom(message));
            }
            None => return Err(D::Error::missing_field("type")),
        };
        let tagged = Value::Object(Map::from_iter([(kind.clone(), Value::Object(fields))]));
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(tagged, &mut track);
        Hook::deserialize(tracked).map_err(|error| {
            let path = track.path().to_string();
            // Below the tag only: the tag itself is not a field of the document.
            match path.strip_prefix(&format!("{kind}.")) {
                Some(field) => D::Error::custom(format!("field `{field}` of `{kind}`: {error}")),
                None => D::Error::custom(error.to_string()),
            }
        })
    }
}

/// Reads a finite number, and negative zero as zero, so that equal values have equal ids.
fn finite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if number.is_finite() {
        Ok(number + 0.0)
    } else {
        Err(D::Error::custom(format!(
            "expected a finite number, got {number}"
        )))
    }
}
