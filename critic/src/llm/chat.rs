//! The chat model behind the LLM critic, as the critic sees it.

use rollout::{BoxFuture, Message, Usage};

/// What the model is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// Seed of this reply.
    pub seed: u64,
}

/// What it answered.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatReply {
    /// The whole text.
    pub text: String,
    /// Whether a limit ended it.
    pub is_cut: bool,
    /// Tokens spent.
    pub usage: Usage,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// Question and answer don't fit the model's context.
    #[error("the conversation with the critic's model is too long: {reason}")]
    TooLong {
        /// The numbers, or the server's words.
        reason: String,
    },
    /// The server can't be reached, or refuses.
    #[error("the critic's model gives no reply: {reason}")]
    Failed {
        /// What happened.
        reason: String,
    },
}

/// A chat model: any server, or a script in tests. One that can be held to a JSON Schema is held to
/// [`reply_schema`](super::reply_schema); all are asked for it in words.
pub trait Chat: Send + Sync {
    /// Model and server, for the record.
    fn name(&self) -> &str;

    /// One reply.
    fn ask(&self, request: ChatRequest) -> BoxFuture<'_, Result<ChatReply, ChatError>>;
}
