//! The section `critic`.

use critic::GrowthLimits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who says why rollouts fail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CriticConfig {
    /// A language model beside the rules; none without.
    pub llm: Option<LlmCriticConfig>,
    /// How large each dimension of the harness may get.
    pub growth: GrowthLimits,
}

/// A language model behind an OpenAI-compatible server that reads what the rules can't name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LlmCriticConfig {
    /// Up to and including `/v1`.
    pub base_url: String,
    /// Model name the server knows.
    pub model: String,
    /// Environment variable with the key, where the server wants one.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// Most tokens of one reply.
    #[serde(default = "max_tokens")]
    pub max_tokens: u32,
    /// Most tokens of prompt and reply together; the digest is cut to it.
    #[serde(default = "context_tokens")]
    pub context_tokens: u32,
    /// Sampling temperature.
    #[serde(default)]
    pub temperature: f64,
    /// Times that the model may ask for excerpts in one critique.
    #[serde(default = "excerpt_rounds")]
    pub excerpt_rounds: u32,
    /// Times that a reply which can't be used is asked for again in one critique.
    #[serde(default = "retries")]
    pub retries: u32,
}

fn max_tokens() -> u32 {
    2048
}

fn context_tokens() -> u32 {
    16_384
}

fn excerpt_rounds() -> u32 {
    2
}

fn retries() -> u32 {
    1
}

impl CriticConfig {
    /// The field that is out of range, and what would be right.
    ///
    /// # Errors
    /// When there is one.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let Some(llm) = &self.llm else {
            return Ok(());
        };
        if !llm.base_url.starts_with("http://") && !llm.base_url.starts_with("https://") {
            return Err(("critic.llm.base_url", "must start with http:// or https://"));
        }
        if llm.model.trim().is_empty() {
            return Err((
                "critic.llm.model",
                "the server has to know which model is meant",
            ));
        }
        if llm.max_tokens < 64 {
            return Err((
                "critic.llm.max_tokens",
                "a finding takes at least 64 tokens",
            ));
        }
        if llm.context_tokens < llm.max_tokens.saturating_add(2048) {
            return Err((
                "critic.llm.context_tokens",
                "must leave at least 2048 tokens beside max_tokens for what the model reads",
            ));
        }
        if !(0.0..=2.0).contains(&llm.temperature) {
            return Err(("critic.llm.temperature", "must lie between 0 and 2"));
        }
        if llm.excerpt_rounds > 16 || llm.retries > 16 {
            return Err((
                "critic.llm",
                "excerpt_rounds and retries must be at most 16",
            ));
        }
        Ok(())
    }
}
