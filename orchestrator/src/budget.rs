//! What a whole run may spend, and what it has spent: seconds, rollouts, tokens, money.
//!
//! It is counted from the journal, so that a run goes on after a kill with what it had spent before: every rollout
//! that is stored, also one made ahead that no phase has asked for, and what the critic's language model read
//! and wrote. Whatever isn't stored isn't counted: rollouts that a kill, or a fault of policy or sandbox, kept
//! from ending.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use critic::Critique;
use rollout::Usage;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::config::{BudgetConfig, Config, PriceConfig};
use crate::counted::counted;
use crate::gate::spend::digits;
use crate::report::{kind, rows_of, wall_seconds};
use crate::store::{RunRow, Store, StoreError};

/// What a limit of a whole run is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// Seconds of running.
    Seconds,
    /// Rollouts.
    Rollouts,
    /// Prompt and generated tokens.
    Tokens,
    /// Money.
    Cost,
}

impl Cap {
    const ALL: [Self; 4] = [Self::Seconds, Self::Rollouts, Self::Tokens, Self::Cost];

    /// Its field in the configuration.
    pub fn field(self) -> &'static str {
        match self {
            Self::Seconds => "budget.run_seconds",
            Self::Rollouts => "budget.run_rollouts",
            Self::Tokens => "budget.run_tokens",
            Self::Cost => "budget.run_cost",
        }
    }

    /// So much of it, as in `3 rollouts`. Counts beyond 2^53 are rounded.
    fn shown(self, amount: f64) -> String {
        match self {
            Self::Seconds => format!("{amount:.0} s"),
            Self::Rollouts => counted(format!("{amount:.0}"), "rollout"),
            Self::Tokens => counted(format!("{amount:.0}"), "token"),
            Self::Cost => format!("cost {}", digits(amount)),
        }
    }
}

/// A limit of a run, and what is spent of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CapUse {
    /// What the limit is on.
    pub cap: Cap,
    /// The limit.
    pub limit: f64,
    /// What is spent.
    pub spent: f64,
}

impl CapUse {
    /// Whether nothing is left.
    pub fn is_reached(&self) -> bool {
        self.spent >= self.limit
    }

    /// Why the run stops: the field, the numbers, and by how much the limit was exceeded.
    pub fn used_up(&self) -> String {
        let field = self.cap.field();
        let over = self.spent - self.limit;
        if over > 0.0 {
            let over = self.cap.shown(over);
            return format!("{field} is used up: {self}, {over} beyond it");
        }
        format!("{field} is used up: {self}")
    }
}

impl fmt::Display for CapUse {
    /// As in `7 of 10 rollouts`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.cap.shown(self.limit);
        match self.cap {
            Cap::Cost => {
                let limit = digits(self.limit);
                write!(f, "cost {} of {limit}", digits(self.spent))
            }
            _ => write!(f, "{:.0} of {limit}", self.spent),
        }
    }
}

/// Tokens that a model read and wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Prompt tokens of every request, cached ones included.
    pub prompt: u64,
    /// Generated tokens.
    pub completion: u64,
}

impl Tokens {
    fn add(&mut self, usage: &Usage) {
        self.prompt += usage.prompt_tokens;
        self.completion += usage.completion_tokens;
    }

    fn total(self) -> u64 {
        self.prompt + self.completion
    }

    fn cost(self, prices: &PriceConfig) -> f64 {
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

    fn used(&self, cap: Cap, spent: &Spent) -> Option<CapUse> {
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

/// What a process that runs a run may spend, and keeps count of.
#[derive(Debug)]
pub struct RunBudget {
    terms: Terms,
    started: Instant,
    /// Without the seconds since the start.
    spent: Mutex<Spent>,
}

impl Default for RunBudget {
    fn default() -> Self {
        Self::new(Terms::default(), Spent::default())
    }
}

impl RunBudget {
    /// From now on, after what was `spent` before.
    pub fn new(terms: Terms, spent: Spent) -> Self {
        Self {
            terms,
            started: Instant::now(),
            spent: Mutex::new(spent),
        }
    }

    /// A rollout was stored.
    pub fn rolled_out(&self, usage: &Usage) {
        self.change(|spent| {
            spent.rollouts += 1;
            spent.policy.add(usage);
        });
    }

    /// A critique was stored.
    pub fn criticised(&self, usage: &Usage) {
        self.change(|spent| spent.critic.add(usage));
    }

    fn change(&self, change: impl FnOnce(&mut Spent)) {
        change(&mut self.spent.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn spent(&self) -> Spent {
        let mut spent = *self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.seconds += self.started.elapsed().as_secs();
        spent
    }

    /// What is spent of a limit; none where there isn't one.
    pub fn used(&self, cap: Cap) -> Option<CapUse> {
        self.terms.used(cap, &self.spent())
    }

    /// The first of these limits that is reached.
    pub fn reached(&self, caps: &[Cap]) -> Option<CapUse> {
        let spent = self.spent();
        let mut used = caps.iter().filter_map(|cap| self.terms.used(*cap, &spent));
        used.find(CapUse::is_reached)
    }

    /// Whether so many rollouts in flight take up all that is left of `budget.run_rollouts`. None in flight
    /// never do: one has to end before anything changes.
    pub fn is_full(&self, in_flight: usize) -> bool {
        let is_used_up = |used: CapUse| used.spent + in_flight as f64 >= used.limit;
        in_flight > 0 && self.used(Cap::Rollouts).is_some_and(is_used_up)
    }
}

#[cfg(test)]
mod tests {
    use critic::llm::Cost;

    use super::*;

    fn budget(run_rollouts: u64, run_tokens: u64, run_cost: f64) -> BudgetConfig {
        BudgetConfig {
            tokens_per_problem: 1,
            seconds_per_problem: 1,
            run_seconds: None,
            run_rollouts: Some(run_rollouts),
            run_tokens: Some(run_tokens),
            run_cost: Some(run_cost),
        }
    }

    fn usage(prompt_tokens: u64, completion_tokens: u64) -> Usage {
        Usage {
            prompt_tokens,
            completion_tokens,
            ..Usage::default()
        }
    }

    const PRICES: PriceConfig = PriceConfig {
        prompt_per_million: 1e4,
        completion_per_million: 1e5,
    };

    fn limited(budget: BudgetConfig) -> RunBudget {
        let terms = Terms {
            budget: Some(budget),
            prices: Some(PRICES),
            critic_prices: None,
        };
        RunBudget::new(terms, Spent::default())
    }

    const COUNTED: [Cap; 3] = [Cap::Rollouts, Cap::Tokens, Cap::Cost];

    #[test]
    fn the_limit_that_is_reached_is_told_with_its_numbers() {
        for (limits, told) in [
            (
                budget(2, 1_000, 100.0),
                "budget.run_rollouts is used up: 2 of 2 rollouts",
            ),
            (
                budget(9, 150, 100.0),
                "budget.run_tokens is used up: 220 of 150 tokens, 70 tokens beyond it",
            ),
            (
                budget(9, 1_000, 3.0),
                "budget.run_cost is used up: cost 4.000 of 3.000, cost 1.000 beyond it",
            ),
        ] {
            let budget = limited(limits);
            budget.rolled_out(&usage(100, 10));
            assert_eq!(budget.reached(&COUNTED), None);
            budget.rolled_out(&usage(100, 10));
            let reached = budget.reached(&COUNTED).expect("a limit");
            assert_eq!(reached.used_up(), told);
        }
    }

    #[test]
    fn rollouts_in_flight_may_take_up_what_is_left() {
        let budget = limited(budget(3, 1_000, 100.0));
        assert!(budget.is_full(3) && !budget.is_full(2));
        budget.rolled_out(&usage(1, 1));
        assert!(budget.is_full(2) && !budget.is_full(1) && !budget.is_full(0));
        assert!(!RunBudget::default().is_full(1_000));
    }

    #[test]
    fn tokens_of_the_critics_model_count_and_have_prices_of_their_own() {
        let limits = budget(9, 500, 1.0);
        let budget = limited(limits);
        budget.criticised(&usage(400, 99));
        assert_eq!(budget.reached(&COUNTED), None);
        budget.criticised(&usage(1, 0));
        let reached = budget.reached(&COUNTED).expect("a limit");
        assert_eq!(reached.cap, Cap::Tokens);
        let cost = budget.used(Cap::Cost).expect("a limit");
        assert!(cost.spent.abs() < 1e-12, "{cost:?}");

        let terms = Terms {
            budget: Some(limits),
            prices: Some(PRICES),
            critic_prices: Some(PriceConfig {
                prompt_per_million: 2e3,
                completion_per_million: 4e3,
            }),
        };
        let budget = RunBudget::new(terms, Spent::default());
        budget.rolled_out(&usage(20, 2));
        budget.criticised(&usage(300, 50));
        let reached = budget.reached(&COUNTED).expect("a limit");
        assert_eq!(reached.cap, Cap::Cost);
        assert!((reached.spent - 1.2).abs() < 1e-9, "{reached:?}");
    }

    #[tokio::test]
    async fn critiques_in_the_journal_count() {
        let here = tempfile::tempdir().expect("directory");
        let store = Store::open(here.path()).await.expect("a store");
        for (key, tokens) in [("one", 30), ("other", 12)] {
            let critique = Critique {
                cost: Cost {
                    usage: usage(100, tokens),
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
