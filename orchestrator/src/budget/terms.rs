//! What a run may spend by its configuration, and how that and what is spent are told.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Cap, CapUse, Spent};
use crate::config::{BudgetConfig, Config, PriceConfig};
use crate::store::RunRow;

/// The limits of a run, and what its tokens cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    /// `budget`; its limits of a single problem don't matter here. None for a run without one.
    pub budget: Option<BudgetConfig>,
    /// `prices`.
    pub prices: Option<PriceConfig>,
    /// `critic.llm.prices`.
    pub critic_prices: Option<PriceConfig>,
}

impl Terms {
    /// Of a configuration.
    pub fn of(config: &Config) -> Self {
        Self {
            budget: Some(config.budget),
            prices: config.prices,
            critic_prices: config.critic.llm.as_ref().and_then(|llm| llm.prices),
        }
    }

    /// Of a run, as far as this version can read what it was started with.
    pub fn saved(run: &RunRow) -> Self {
        let saved: Value = serde_json::from_str(&run.config).unwrap_or_default();
        Self {
            budget: field(&saved, "/config/budget"),
            prices: field(&saved, "/config/prices"),
            critic_prices: field(&saved, "/config/critic/llm/prices"),
        }
    }

    fn limit(&self, cap: Cap) -> Option<f64> {
        let budget = self.budget?;
        match cap {
            Cap::Seconds => budget.run_seconds.map(|limit| limit as f64),
            Cap::Rollouts => budget.run_rollouts.map(|limit| limit as f64),
            Cap::Tokens => budget.run_tokens.map(|limit| limit as f64),
            Cap::Cost => budget.run_cost,
        }
    }

    /// What is spent by the measure of a limit; no money of a model without prices.
    fn amount(&self, cap: Cap, spent: &Spent) -> Option<f64> {
        match cap {
            Cap::Seconds => Some(spent.seconds as f64),
            Cap::Rollouts => Some(spent.rollouts as f64),
            Cap::Tokens => Some((spent.policy.total() + spent.critic.total()) as f64),
            Cap::Cost => {
                let policy = self.prices.map(|prices| spent.policy.cost(&prices));
                let critic = self.critic_prices.map(|prices| spent.critic.cost(&prices));
                match (policy, critic) {
                    (Some(policy), Some(critic)) => Some(policy + critic),
                    (policy, critic) => policy.or(critic),
                }
            }
        }
    }

    pub(super) fn used(&self, cap: Cap, spent: &Spent) -> Option<CapUse> {
        Some(CapUse {
            cap,
            limit: self.limit(cap)?,
            spent: self.amount(cap, spent)?,
        })
    }

    /// The limits that there are, with what is spent of each; none where there is none.
    pub fn outline(&self, spent: &Spent) -> Option<String> {
        let used = Cap::ALL.into_iter().filter_map(|cap| self.used(cap, spent));
        let used: Vec<String> = used.map(|used| used.to_string()).collect();
        (!used.is_empty()).then(|| used.join(", "))
    }

    /// The limits that there are; none where there is none.
    pub fn limits(&self) -> Option<String> {
        let limits = Cap::ALL.into_iter();
        let limits = limits.filter_map(|cap| Some(cap.shown(self.limit(cap)?)));
        let limits: Vec<String> = limits.collect();
        (!limits.is_empty()).then(|| limits.join(", "))
    }

    /// What is spent, and the limits that there are, as `docs/report.md` documents it.
    pub fn to_json(&self, spent: &Spent) -> Value {
        let budget = self.budget;
        let limit = |of: fn(BudgetConfig) -> Option<u64>| budget.and_then(of);
        let cost = self.amount(Cap::Cost, spent);
        json!({
            "seconds": {"spent": spent.seconds, "limit": limit(|budget| budget.run_seconds)},
            "rollouts": {"spent": spent.rollouts, "limit": limit(|budget| budget.run_rollouts)},
            "tokens": {
                "spent": spent.policy.total() + spent.critic.total(),
                "limit": limit(|budget| budget.run_tokens),
            },
            "cost": {"spent": cost, "limit": self.limit(Cap::Cost)},
        })
    }
}

/// A part of a saved configuration, where it is there and can be read.
fn field<T: DeserializeOwned>(saved: &Value, pointer: &str) -> Option<T> {
    let value = saved.pointer(pointer)?;
    serde_json::from_value(value.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_was_started_with_is_read_as_far_as_it_can_be() {
        let run = |config: &str| RunRow {
            name: "small-seed0".into(),
            config: config.into(),
            created_at: 0,
            finished_at: None,
        };
        let limits = r#"{"tokens_per_problem": 1, "seconds_per_problem": 1, "run_rollouts": 7}"#;
        let saved = format!(r#"{{"config": {{"budget": {limits}, "of_another_version": 1}}}}"#);
        let terms = Terms::saved(&run(&saved));
        assert_eq!(terms.limits().as_deref(), Some("7 rollouts"));
        let spent = Spent {
            rollouts: 3,
            ..Spent::default()
        };
        assert_eq!(terms.outline(&spent).as_deref(), Some("3 of 7 rollouts"));
        for unread in ["{}", "no JSON"] {
            let terms = Terms::saved(&run(unread));
            assert_eq!((terms.limits(), terms.outline(&spent)), (None, None));
        }
    }
}
