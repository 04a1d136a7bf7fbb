//! The record of one rollout, shared by every room of the house: the critic reads its steps and
//! events, the trainer its messages and token ids, the store keeps it whole.

use std::fmt;
use std::time::Duration;

use harness::HarnessId;
use sandbox::Exit;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::policy::{Finish, PolicyId};
use crate::task::{ContentHash, Split, TaskId};

/// Identity of a rollout: equal inputs have equal ids, so a finished one is never done again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RolloutId(String);

/// What determines a rollout.
#[derive(Clone, Copy, Debug)]
pub struct RolloutKey<'a> {
    /// The policy.
    pub policy: &'a PolicyId,
    /// The harness.
    pub harness: &'a HarnessId,
    /// The problem.
    pub task_hash: &'a ContentHash,
    /// The rollout's seed.
    pub seed: u64,
    /// What it may spend.
    pub budget: &'a RolloutBudget,
    /// What the sandbox enforces.
    pub sandbox_level: &'a str,
}

impl RolloutId {
    /// The id of the rollout with these inputs.
    pub fn of(key: &RolloutKey<'_>) -> Self {
        let mut hasher = blake3::Hasher::new();
        let mut text = |part: &str| {
            // With lengths, so that no two lists of parts run together.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        };
        // Changes where the same inputs come to something else.
        text("rollout 4");
        text(key.policy.as_str());
        text(&key.harness.to_hex());
        text(key.task_hash.as_str());
        text(&key.seed.to_string());
        text(&key.budget.max_tokens.to_string());
        text(&key.budget.wall.as_millis().to_string());
        text(key.sandbox_level);
        RolloutId(hasher.finalize().to_hex().to_string())
    }

    /// All 64 hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RolloutId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.get(..12).unwrap_or(&self.0))
    }
}

/// What one rollout may spend. The run's configuration sets it and no patch can change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutBudget {
    /// Generated tokens, over all turns.
    pub max_tokens: u64,
    /// Wall time, tool calls included.
    pub wall: Duration,
}

/// The record of one rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trajectory {
    /// Identity.
    pub id: RolloutId,
    /// The task.
    pub task: TaskId,
    /// Hash of its problem.
    pub task_hash: ContentHash,
    /// Where the task belongs.
    pub split: Split,
    /// The harness it ran under.
    pub harness: HarnessId,
    /// The policy that acted.
    pub policy: PolicyId,
    /// Seed of the rollout; each model call's own is derived from it.
    pub seed: u64,
    /// What the sandbox enforced.
    pub sandbox_level: String,
    /// What happened, in order: the critic's view. The gold answer is in none of them.
    pub steps: Vec<Step>,
    /// The conversation as the policy saw it at the end, its last reply included.
    pub messages: Vec<Message>,
    /// Every call of the policy, in order.
    pub model_calls: Vec<ModelCall>,
    /// The answer, if there is one.
    pub answer: Option<String>,
    /// Whether it is right.
    pub verdict: Verdict,
    /// Why the rollout ended.
    pub exit: ExitReason,
    /// Tokens of all calls together.
    pub usage: Usage,
    /// Wall time.
    pub wall_ms: u64,
}

impl Trajectory {
    /// All events with the index of their step.
    pub fn events(&self) -> impl Iterator<Item = (usize, &Event)> {
        let steps = self.steps.iter().enumerate();
        steps.filter_map(|(index, step)| step.event.as_ref().map(|event| (index, event)))
    }
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The harness, once at the beginning.
    System,
    /// The problem, and messages of hooks.
    User,
    /// The policy.
    Assistant,
    /// A tool's result.
    Tool,
}

/// One message of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// The whole text, a call in its written form included.
    pub content: String,
    /// The calls. They stand in `content` too, unless the message is native.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Whether calls, or the result of one, went through the policy's own tool interface.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_native: bool,
    /// Assistant text that the policy wrote itself: what it may be trained on. Examples are not.
    #[serde(default)]
    pub train: bool,
}

impl Message {
    /// A message that nobody is trained on.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Message {
            role,
            content: content.into(),
            tool_calls: Vec::new(),
            is_native: false,
            train: false,
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// A request to a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// Name within the rollout, `call_1` and so on.
    pub id: String,
    /// The tool's name, as the policy wrote it.
    pub tool: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
}

/// One thing that happened. A step with an event and no text belongs to the step before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What it is.
    pub kind: StepKind,
    /// Its text, as the policy saw or wrote it.
    pub text: String,
    /// What was remarkable about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Event>,
}

/// What a [`Step`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// The system prompt.
    System,
    /// The problem, or a message that a hook sent.
    User,
    /// A reply of the policy, whole, before anything was cut from it.
    Assistant,
    /// The call that was read from the reply; the text is the program.
    ToolCall,
    /// What came back.
    ToolResult,
    /// A hook did something; the text is what it did.
    Hook,
    /// The end; the text is the answer.
    Final,
}

/// Something remarkable: an anomaly, or a hook that fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// A reply without a call although there are tools and none has been called so far.
    NoToolCall,
    /// A reply that looks like a call but can't be read as one.
    UnparsableCall {
        /// Why not.
        reason: String,
    },
    /// A call of a tool that doesn't exist.
    UnknownTool {
        /// The name.
        name: String,
    },
    /// Arguments that don't fit the tool's parameters.
    BadArguments {
        /// What is wrong.
        reason: String,
    },
    /// The tool failed.
    ToolError {
        /// How the program ended.
        exit: Exit,
    },
    /// The tool succeeded and printed nothing.
    EmptyOutput,
    /// The output was longer than the tool's limits allow; the rest was cut.
    OutputTruncated,
    /// The same call was made before.
    RepeatedCall,
    /// Calls of one reply beyond those that are run: the policy didn't wait for a result.
    CallsNotRun {
        /// How many.
        count: usize,
    },
    /// Text after a call, such as an imagined result, was cut.
    TextAfterCall {
        /// Characters cut.
        characters: usize,
    },
    /// No turn was left.
    TurnLimit,
    /// The reply reached its token limit.
    LengthLimit,
    /// The reply reached its token limit before its reasoning ended.
    ReasoningLimit,
    /// The server's content filter cut the reply.
    Filtered,
    /// The conversation no longer fits the context.
    ContextLimit,
    /// The rollout ended without an answer in its final text.
    NoFinalAnswer,
    /// A hook changed something.
    HookFired {
        /// Its kind, as under `type` in the harness.
        hook: String,
    },
}

impl Event {
    /// Its name, as under `type` in JSON; of a hook, the hook's own.
    pub fn name(&self) -> &str {
        match self {
            Event::NoToolCall => "no_tool_call",
            Event::UnparsableCall { .. } => "unparsable_call",
            Event::UnknownTool { .. } => "unknown_tool",
            Event::BadArguments { .. } => "bad_arguments",
            Event::ToolError { .. } => "tool_error",
            Event::EmptyOutput => "empty_output",
            Event::OutputTruncated => "output_truncated",
            Event::RepeatedCall => "repeated_call",
            Event::CallsNotRun { .. } => "calls_not_run",
            Event::TextAfterCall { .. } => "text_after_call",
            Event::TurnLimit => "turn_limit",
            Event::LengthLimit => "length_limit",
            Event::ReasoningLimit => "reasoning_limit",
            Event::Filtered => "filtered",
            Event::ContextLimit => "context_limit",
            Event::NoFinalAnswer => "no_final_answer",
            Event::HookFired { hook } => hook,
        }
    }
}

/// One call of the policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelCall {
    /// Seed of this call.
    pub seed: u64,
    /// Ids of the prompt; empty where the backend gives none.
    pub prompt_ids: Vec<u32>,
    /// Ids of the reply as it stands in the conversation: without what was cut. Empty where the
    /// backend gives none, where the cut falls inside a token, and for a reply that its limit cut,
    /// which nobody is to learn.
    pub output_ids: Vec<u32>,
    /// Log-probability of each output id at temperature 1; empty where the backend gives none.
    pub logprobs: Vec<f32>,
    /// Tokens, those cut included.
    pub usage: Usage,
    /// Why the reply ended.
    pub finish: Finish,
    /// The backend's own word for it, where that is none of the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// Reasoning that the backend keeps apart from the text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
}

/// Tokens spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Those of them that a cache had, where the backend says so. What that was depends on what else was
    /// asked for: it isn't the same every time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Generated tokens.
    pub completion_tokens: u64,
    /// Those of them that are reasoning: as the backend counts them, else in proportion to the
    /// characters.
    #[serde(default)]
    pub reasoning_tokens: u64,
    /// Whether the backend gave no numbers and they were estimated from the length of the text.
    #[serde(default)]
    pub is_estimated: bool,
}

impl Usage {
    /// Adds another call's tokens. Cached ones are those that are known of.
    pub fn add(&mut self, other: &Usage) {
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens = match (self.cached_tokens, other.cached_tokens) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
        self.completion_tokens += other.completion_tokens;
        self.reasoning_tokens += other.reasoning_tokens;
        self.is_estimated |= other.is_estimated;
    }
}

impl<'a> std::iter::Sum<&'a Usage> for Usage {
    fn sum<I: Iterator<Item = &'a Usage>>(usages: I) -> Self {
        let mut total = Usage::default();
        for usage in usages {
            total.add(usage);
        }
        total
    }
}

/// What the verifier says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Whether the answer is right.
    pub correct: bool,
    /// Whether the comparison ran out of its budget: not correct, and not known to be wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undecided: bool,
    /// How the answer was found: the name of an extraction rule, `last_result` or `none`. A suffix
    /// says what the comparison passed over, such as `+percent`.
    pub rule: String,
}

impl Verdict {
    /// Of a rollout without an answer.
    pub fn no_answer() -> Self {
        Verdict {
            correct: false,
            undecided: false,
            rule: "none".into(),
        }
    }
}

/// Why a rollout ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ExitReason {
    /// With a final reply that has an answer.
    Answered,
    /// With a final reply that has none.
    NoAnswer,
    /// With a reply that was cut by its token limit or by the server's content filter. It is no
    /// answer, whatever stands in it, and nobody is trained on it.
    ReplyCut,
    /// With a reply whose token limit came before the end of its reasoning.
    ReasoningCut,
    /// No turn was left.
    TurnLimit,
    /// The token budget was spent.
    TokenBudget,
    /// The wall time was spent.
    WallBudget,
    /// The conversation no longer fitted the context.
    ContextLimit,
    /// Policy or sandbox failed. Such a rollout says nothing about policy or harness: it is
    /// repeated, and neither critic nor trainer sees it.
    Infrastructure {
        /// What failed.
        reason: String,
        /// Whether trying again soon may help.
        is_retryable: bool,
        /// Seconds after which the server wants to be asked again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_s: Option<u64>,
    },
}

impl ExitReason {
    /// The names of all.
    pub const NAMES: [&'static str; 9] = [
        "answered",
        "no_answer",
        "reply_cut",
        "reasoning_cut",
        "turn_limit",
        "token_budget",
        "wall_budget",
        "context_limit",
        "infrastructure",
    ];

    /// Its name, as under `type` in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            ExitReason::Answered => "answered",
            ExitReason::NoAnswer => "no_answer",
            ExitReason::ReplyCut => "reply_cut",
            ExitReason::ReasoningCut => "reasoning_cut",
            ExitReason::TurnLimit => "turn_limit",
            ExitReason::TokenBudget => "token_budget",
            ExitReason::WallBudget => "wall_budget",
            ExitReason::ContextLimit => "context_limit",
            ExitReason::Infrastructure { .. } => "infrastructure",
        }
    }

    /// Whether this is a fault of the surroundings.
    pub fn is_infrastructure(&self) -> bool {
        matches!(self, ExitReason::Infrastructure { .. })
    }
}
