//! θ as the agent loop sees it: messages in, one reply out.

mod local;
mod openai;
mod renderer;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use harness::{Tool, ToolName};
use model::chat_template::ChatTemplateError;
use model::decode::EngineError;
use model::grammar::GrammarError;
use model::tokenizer::TokenizerError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::protocol::Tools;
use crate::trajectory::{Message, Usage};

pub use local::{LocalPolicy, LocalPolicyOptions};
pub use openai::{ApiKey, OpenAiOptions, OpenAiPolicy, asked_wait};
pub use renderer::Renderer;

/// A future that can be boxed and sent between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Identity of a policy: model and adapter, by content where that is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PolicyId(String);

impl PolicyId {
    /// Wraps a name.
    pub fn new(id: impl Into<String>) -> Self {
        PolicyId(id.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A tool as it is described to a policy with a tool interface of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSchema {
    /// Name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
}

impl ToolSchema {
    /// The tools of a harness, in their order.
    pub fn of(tools: &Tools) -> Vec<Self> {
        let schema = |(name, tool): (&ToolName, &Tool)| ToolSchema {
            name: name.to_string(),
            description: tool.description.trim().to_owned(),
            parameters: tool.parameters.clone(),
        };
        tools.iter().map(schema).collect()
    }
}

/// What a policy is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRequest {
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// Tools to be announced through the policy's own interface: those of a harness with the call
    /// format `native`. For the other formats they stand in the system prompt, and this is empty.
    pub tools: Vec<ToolSchema>,
    /// Most tokens of the reply.
    pub max_tokens: u32,
    /// Most tokens of prompt and reply together.
    pub context_tokens: u32,
    /// 0 decodes greedily.
    pub temperature: f64,
    /// Nucleus sampling; 1 is off.
    pub top_p: f64,
    /// Tokens kept; 0 is off.
    pub top_k: u32,
    /// Least probability of a kept token, as a share of the likeliest one's; 0 is off.
    pub min_p: f64,
    /// Texts that end the reply.
    pub stop: Vec<String>,
    /// Seed of this reply.
    pub seed: u64,
    /// Ids of the conversation up to and including the previous reply, where they are known. A
    /// policy that takes them keeps them exactly and tokenises only what is new.
    pub prior: Option<Vec<u32>>,
    /// Grammar of the reply, in llguidance's dialect of Lark; only for a policy that
    /// [follows](Policy::follows_grammars) it.
    pub grammar: Option<String>,
    /// When the rollout's time is up. A policy that has been kept from asking until then, by failures of
    /// its server or by other requests, or whose server gives no sign of working, says so; one that is
    /// still waiting for a reply needs to do nothing.
    pub deadline: Option<Instant>,
}

impl CompletionRequest {
    /// Asks for a greedy reply of at most `max_tokens` and for nothing else: no tools, no limit of the
    /// context but the policy's own, seed 0.
    pub fn new(messages: Vec<Message>, max_tokens: u32) -> Self {
        CompletionRequest {
            messages,
            tools: Vec::new(),
            max_tokens,
            context_tokens: u32::MAX,
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            stop: Vec::new(),
            seed: 0,
            prior: None,
            grammar: None,
            deadline: None,
        }
    }
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The policy ended it.
    Stop,
    /// The token limit.
    Length,
    /// One of the request's stop texts.
    StopString,
    /// Calls through the policy's own tool interface.
    ToolCalls,
    /// The server's content filter.
    Filtered,
}

impl Finish {
    /// Whether the reply ended before the policy was done: such a reply is no answer.
    pub fn is_cut(self) -> bool {
        matches!(self, Finish::Length | Finish::Filtered)
    }
}

/// A call through the policy's own tool interface, as it was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeCall {
    /// The tool's name.
    pub tool: String,
    /// The arguments: an object as text, or an object. Anything else is a mistake that the loop
    /// tells the policy.
    pub arguments: Value,
}

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The text, without special tokens and up to a stop text.
    pub text: String,
    /// Reasoning that the backend keeps apart from the text; may be empty.
    pub reasoning: String,
    /// Why it ended.
    pub finish: Finish,
    /// The backend's own word for it, where that is none of the usual ones.
    pub finish_reason: Option<String>,
    /// Ids of the prompt; may be empty.
    pub prompt_ids: Vec<u32>,
    /// Ids of the reply, a stop token included; may be empty.
    pub output_ids: Vec<u32>,
    /// Log-probability of each output id at temperature 1; may be empty.
    pub logprobs: Vec<f32>,
    /// Tokens spent.
    pub usage: Usage,
    /// Calls through the policy's own tool interface.
    pub tool_calls: Vec<NativeCall>,
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// Prompt and reply don't fit the context.
    #[error("the conversation doesn't fit the context: {reason}")]
    ContextOverflow {
        /// The numbers, or the server's words.
        reason: String,
    },
    /// The server couldn't be reached, or failed, every time, or until the rollout's time was up.
    #[error("no reply from the server after {attempts} attempts: {reason}")]
    Unavailable {
        /// Requests made.
        attempts: u32,
        /// What the last one met.
        reason: String,
    },
    /// The server asks for a longer wait than a request may take.
    #[error("the server asks to wait {} s", wait.as_secs())]
    RateLimited {
        /// The wait.
        wait: std::time::Duration,
    },
    /// The server refused the request.
    #[error("the server refused the request with status {status}: {reason}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The server's words, shortened.
        reason: String,
    },
    /// The client can't be set up.
    #[error("cannot set up the HTTP client")]
    Client {
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The chat template can't render the conversation.
    #[error("cannot render the conversation")]
    Template(#[from] ChatTemplateError),
    /// The text can't be tokenised.
    #[error("cannot tokenise the conversation")]
    Tokenizer(#[from] TokenizerError),
    /// The reply's grammar can't be used.
    #[error("cannot constrain the reply")]
    Grammar(#[from] GrammarError),
    /// Decoding failed.
    #[error("cannot decode")]
    Engine(#[from] EngineError),
}

impl PolicyError {
    /// Whether the same request may succeed soon.
    pub fn is_retryable(&self) -> bool {
        match self {
            PolicyError::Unavailable { .. } => true,
            PolicyError::Engine(error) => {
                matches!(error, EngineError::Compute { .. })
            }
            // Asking at once is what the server asked not to do.
            PolicyError::RateLimited { .. }
            | PolicyError::ContextOverflow { .. }
            | PolicyError::Refused { .. }
            | PolicyError::Client { .. }
            | PolicyError::Template(_)
            | PolicyError::Grammar(_)
            | PolicyError::Tokenizer(_) => false,
        }
    }
}

/// The model that acts. Implementations are shared by all rollouts in flight.
pub trait Policy: Send + Sync {
    /// Identity.
    fn id(&self) -> &PolicyId;

    /// Whether it takes [`CompletionRequest::tools`] and answers with
    /// [`Completion::tool_calls`]. One that doesn't gets the call format `xml` in place of `native`.
    fn has_tool_interface(&self) -> bool {
        false
    }

    /// Whether it has broken down for good: whoever asks it again, asks in vain.
    fn has_stopped(&self) -> bool {
        false
    }

    /// Whether it decodes under [`CompletionRequest::grammar`].
    fn follows_grammars(&self) -> bool {
        false
    }

    /// Writes the next message of a conversation.
    fn complete(
        &self,
        request: CompletionRequest,
    ) -> BoxFuture<'_, Result<Completion, PolicyError>>;

    /// How many of a reply's ids stand for exactly `kept`, the start of its text that stays in the
    /// conversation. `None` where no number of ids does, or ids are unknown.
    fn ids_of(&self, output_ids: &[u32], kept: &str) -> Option<usize> {
        let _ = (output_ids, kept);
        None
    }
}
