//! What a whole run may spend, and what it has spent: seconds, rollouts, tokens, money.
//!
//! `cap` names the limits, `terms` takes them from the configuration, and `spent` counts from the journal;
//! [`RunBudget`] holds them against each other while a process runs the run.

mod cap;
mod spent;
mod terms;

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rollout::Usage;

pub use self::cap::{Cap, CapUse};
pub use self::spent::{Spent, Tokens};
pub use self::terms::Terms;

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
    use super::*;
    use crate::config::{BudgetConfig, PriceConfig};

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
}
