//! The section `prices`, and the prices of the critic's model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a model's tokens cost, in whatever currency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceConfig {
    /// Price of a million prompt tokens, cached ones included.
    #[schemars(range(min = 0))]
    pub prompt_per_million: f64,
    /// Price of a million generated tokens.
    #[schemars(range(min = 0))]
    pub completion_per_million: f64,
}

impl PriceConfig {
    /// What so many tokens cost.
    pub fn cost_of(&self, prompt_tokens: u64, completion_tokens: u64) -> f64 {
        let cost = |tokens: u64, per_million: f64| tokens as f64 * per_million / 1e6;
        cost(prompt_tokens, self.prompt_per_million)
            + cost(completion_tokens, self.completion_per_million)
    }

    /// The field that is out of range, and what would be right; `fields` are the names of both, the prompt's
    /// first.
    ///
    /// # Errors
    /// When there is one.
    pub fn check(&self, fields: [&'static str; 2]) -> Result<(), (&'static str, &'static str)> {
        let is_price = |price: f64| price.is_finite() && price >= 0.0;
        let prices = [self.prompt_per_million, self.completion_per_million];
        match fields
            .into_iter()
            .zip(prices)
            .find(|(_, price)| !is_price(*price))
        {
            Some((field, _)) => Err((field, "must be a number from 0 on")),
            None => Ok(()),
        }
    }
}
