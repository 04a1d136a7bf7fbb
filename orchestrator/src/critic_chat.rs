//! The critic's language model behind a server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use critic::llm::{Chat, ChatError, ChatReply, ChatRequest, reply_schema};
use rollout::policy::{
    ApiKey, BoxFuture, Completion, CompletionRequest, OpenAiOptions, OpenAiPolicy, Policy,
    PolicyError,
};

use crate::config::LlmCriticConfig;
use crate::error::RunError;

/// Time for one reply, further attempts and the pauses between included. One request may take ten minutes
/// of it; five that a server leaves unanswered would hold up the run for the better part of an hour.
const PATIENCE: Duration = Duration::from_secs(900);

/// Time for the client to say at the end of that what kept it from a reply.
const GRACE: Duration = Duration::from_millis(20);

/// Speaks to the server as the policy does. Replies are held to the schema until the server refuses that;
/// from then on they are only asked for it.
pub struct ServedChat {
    config: LlmCriticConfig,
    name: String,
    held: OpenAiPolicy,
    free: OpenAiPolicy,
    takes_schema: AtomicBool,
    patience: Duration,
}

impl ServedChat {
    /// Sets up the client; nothing is sent.
    ///
    /// # Errors
    /// When the key is missing, or the client can't be set up.
    pub fn new(
        config: &LlmCriticConfig,
        key: fn(&str) -> Option<String>,
    ) -> Result<Self, RunError> {
        let api_key = match &config.api_key_env {
            Some(name) => Some(key(name).ok_or_else(|| RunError::NoKey {
                field: "critic.llm.api_key_env",
                name: name.clone(),
            })?),
            None => None,
        };
        let policy = |schema| {
            let mut options = OpenAiOptions::new(config.base_url.clone(), config.model.as_str());
            options.api_key = api_key.clone().map(ApiKey::new);
            options.response_schema = schema;
            // Nobody asks whether the server hangs or is slow: the critique is skipped in either case.
            options.unheard = Duration::MAX;
            OpenAiPolicy::new(options).map_err(|source| RunError::Critic { source })
        };
        let held = policy(Some(reply_schema()))?;
        Ok(Self {
            name: held.id().to_string(),
            held,
            free: policy(None)?,
            takes_schema: AtomicBool::new(true),
            patience: PATIENCE,
            config: config.clone(),
        })
    }

    /// The same with another time for one reply, as in tests.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    async fn complete(&self, request: ChatRequest) -> Result<Completion, PolicyError> {
        let request = CompletionRequest {
            context_tokens: self.config.context_tokens,
            temperature: self.config.temperature,
            seed: request.seed,
            deadline: Some(Instant::now() + self.patience),
            ..CompletionRequest::new(request.messages, self.config.max_tokens)
        };
        if self.takes_schema.load(Ordering::Relaxed) {
            match self.held.complete(request.clone()).await {
                // Wordings of "no structured output here" are as many as servers. Whatever else is
                // wrong with the request is wrong without the schema too, and then told.
                Err(PolicyError::Refused { .. }) => {}
                outcome => return outcome,
            }
            let outcome = self.free.complete(request).await;
            if outcome.is_ok() {
                self.takes_schema.store(false, Ordering::Relaxed);
            }
            return outcome;
        }
        self.free.complete(request).await
    }
}

impl Chat for ServedChat {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, request: ChatRequest) -> BoxFuture<'_, Result<ChatReply, ChatError>> {
        Box::pin(async move {
            // A request that is open when the patience ends would go on for as long as requests may.
            let limit = self.patience + GRACE;
            let answered = tokio::time::timeout(limit, self.complete(request));
            let Ok(answered) = answered.await else {
                let seconds = self.patience.as_secs_f64();
                return Err(ChatError::Failed {
                    reason: format!("no whole reply within {seconds} s"),
                });
            };
            match answered {
                Ok(completion) => Ok(ChatReply {
                    is_cut: completion.finish.is_cut(),
                    text: completion.text,
                    usage: completion.usage,
                }),
                Err(PolicyError::ContextOverflow { reason }) => Err(ChatError::TooLong { reason }),
                Err(error) => Err(ChatError::Failed {
                    reason: error.to_string(),
                }),
            }
        })
    }
}
