//! The section `critic`.

use critic::{GrowthLimits, LlmOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PriceConfig;
use super::policy::is_address;

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
    /// Most tokens of prompt and reply together; what is shown is cut to it.
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
    /// What its tokens cost; none where money is of no interest.
    #[serde(default)]
    pub prices: Option<PriceConfig>,
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
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let Some(llm) = &self.llm else {
            return Ok(());
        };
        llm.check_ranges()
            .map_err(|(field, reason)| (field, reason.to_owned()))?;
        llm.check_context()
            .map_err(|reason| ("critic.llm.context_tokens", reason))
    }
}

impl LlmCriticConfig {
    /// How much the model may be asked and shown.
    pub fn options(&self) -> LlmOptions {
        LlmOptions {
            excerpt_rounds: self.excerpt_rounds,
            retries: self.retries,
            prompt_tokens: self.context_tokens.saturating_sub(self.max_tokens) as usize,
            ..LlmOptions::default()
        }
    }

    /// Whether the context holds all that a critique takes; the numbers, if it doesn't.
    fn check_context(&self) -> Result<(), String> {
        let options = self.options();
        let (fixed, shown) = (options.fixed_tokens(), options.fewest_shown_tokens());
        let fewest = self.max_tokens as usize + fixed + shown;
        if self.context_tokens as usize >= fewest {
            return Ok(());
        }
        Err(format!(
            "must be at least {fewest}: {} for a reply (max_tokens), {fixed} for instructions and schema, and \
             {shown} for a short digest and {} answers with excerpts (excerpt_rounds); it is {}",
            self.max_tokens, self.excerpt_rounds, self.context_tokens
        ))
    }

    fn check_ranges(&self) -> Result<(), (&'static str, &'static str)> {
        if !is_address(&self.base_url) {
            return Err(("critic.llm.base_url", "must start with http:// or https://"));
        }
        if self.model.trim().is_empty() {
            return Err((
                "critic.llm.model",
                "the server has to know which model is meant",
            ));
        }
        if self.max_tokens < 64 {
            return Err((
                "critic.llm.max_tokens",
                "a finding takes at least 64 tokens",
            ));
        }
        if !(0.0..=2.0).contains(&self.temperature) {
            return Err(("critic.llm.temperature", "must lie between 0 and 2"));
        }
        if self.excerpt_rounds > 16 || self.retries > 16 {
            return Err((
                "critic.llm",
                "excerpt_rounds and retries must be at most 16",
            ));
        }
        let fields = [
            "critic.llm.prices.prompt_per_million",
            "critic.llm.prices.completion_per_million",
        ];
        self.prices.map_or(Ok(()), |prices| prices.check(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> CriticConfig {
        let text = format!("{{llm: {{base_url: 'http://127.0.0.1:1/v1', model: m, {more}}}}}");
        harness::yaml::from_str(&text).expect("a section")
    }

    #[test]
    fn prices_are_from_0_on() {
        let priced = |prices: &str| config(&format!("prices: {prices}")).check();
        let free = "{prompt_per_million: 0, completion_per_million: 0}";
        assert_eq!(priced(free), Ok(()));
        let paid = "{prompt_per_million: 2.5, completion_per_million: -10}";
        let (field, reason) = priced(paid).expect_err("out of range");
        assert_eq!(field, "critic.llm.prices.completion_per_million");
        assert_eq!(reason, "must be a number from 0 on");
    }

    #[test]
    fn a_small_context_is_enough_and_a_smaller_one_is_refused_with_the_numbers() {
        for enough in ["retries: 2", "context_tokens: 4096, max_tokens: 1024"] {
            assert_eq!(config(enough).check(), Ok(()), "{enough}");
        }
        let small = config("context_tokens: 3072, max_tokens: 1024");
        let (field, reason) = small.check().expect_err("too small");
        assert_eq!(field, "critic.llm.context_tokens");
        assert!(reason.contains("1024 for a reply") && reason.ends_with("it is 3072"));
        // Enough is what it says is enough, and not one less.
        let word = reason.trim_start_matches("must be at least ");
        let fewest: u32 = word
            .split(':')
            .next()
            .and_then(|n| n.parse().ok())
            .expect("a number");
        for (context_tokens, is_enough) in [(fewest, true), (fewest - 1, false)] {
            let text = format!("context_tokens: {context_tokens}, max_tokens: 1024");
            assert_eq!(config(&text).check().is_ok(), is_enough, "{text}");
        }
        // Fewer answers with excerpts take less.
        let none = format!(
            "context_tokens: {}, max_tokens: 1024, excerpt_rounds: 0",
            fewest - 1
        );
        assert_eq!(config(&none).check(), Ok(()));
    }
}
