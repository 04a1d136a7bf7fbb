//! What a run has spent.
//!
//! It is counted from the journal, so that a run goes on after a kill with what it had spent before: every rollout
//! that is stored, also one made ahead that no phase has asked for, and what the critic's language model read
//! and wrote. Whatever isn't stored isn't counted: rollouts that a kill, or a fault of policy or sandbox, kept
//! from ending.

use critic::Critique;
use rollout::Usage;

use crate::config::PriceConfig;
use crate::report::{kind, rows_of, wall_seconds};
use crate::store::{Store, StoreError};

/// Tokens that a model read and wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Prompt tokens of every request, cached ones included.
    pub prompt: u64,
    /// Generated tokens.
    pub completion: u64,
}

impl Tokens {
    pub(super) fn add(&mut self, usage: &Usage) {
        self.prompt += usage.prompt_tokens;
        self.completion += usage.completion_tokens;
    }

    pub(super) fn total(self) -> u64 {
        self.prompt + self.completion
    }

    pub(super) fn cost(self, prices: &PriceConfig) -> f64 {
        prices.cost_of(self.prompt, self.completion)
    }
}

/// What a run has spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Seconds of running, rests not counted.
    pub seconds: u64,
    /// Rollouts.
    pub rollouts: u64,
    /// Tokens of these.
    pub policy: Tokens,
    /// Tokens of the critic's language model.
    pub critic: Tokens,
}

impl Spent {
    /// What the journal says.
    ///
    /// # Errors
    /// When the database fails or a record can't be read.
    pub async fn read(store: &Store) -> Result<Self, StoreError> {
        let sums = store.rollout_sums().await?;
        let mut critic = Tokens::default();
        for critique in rows_of::<Critique>(store, kind::CRITIQUE).await? {
            critic.add(&critique.cost.usage);
        }
        Ok(Self {
            seconds: u64::try_from(wall_seconds(&store.sessions().await?)).unwrap_or(0),
            rollouts: sums.rollouts,
            policy: Tokens {
                prompt: sums.prompt_tokens,
                completion: sums.completion_tokens,
            },
            critic,
        })
    }
}

#[cfg(test)]
mod tests {
    use critic::llm::Cost;

    use super::*;

    #[tokio::test]
    async fn critiques_in_the_journal_count() {
        let here = tempfile::tempdir().expect("directory");
        let store = Store::open(here.path()).await.expect("a store");
        for (key, tokens) in [("one", 30), ("other", 12)] {
            let critique = Critique {
                cost: Cost {
                    usage: Usage {
                        prompt_tokens: 100,
                        completion_tokens: tokens,
                        ..Usage::default()
                    },
                    ..Cost::default()
                },
                ..Critique::default()
            };
            let recorded = store
                .record_step(key, kind::CRITIQUE, 1, &critique, 0)
                .await;
            recorded.expect("a step");
        }
        let spent = Spent::read(&store).await.expect("a sum");
        let critic = Tokens {
            prompt: 200,
            completion: 42,
        };
        let known = Spent {
            critic,
            ..Spent::default()
        };
        assert_eq!(spent, known);
    }
}
