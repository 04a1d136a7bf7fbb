//! The field `objective`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PriceConfig;

/// What the run is to reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Accuracy, whatever it takes within the budget of a problem.
    #[default]
    Accuracy,
    /// Accuracy by what stays under these limits.
    AccuracyUnder(SpendLimits),
}

/// What a rollout may take on average; at least one of them. `budget` limits each single one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SpendLimits {
    /// Seconds from beginning to end.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub seconds_per_problem: Option<f64>,
    /// Generated tokens over all turns, as in `budget`.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub tokens_per_problem: Option<f64>,
    /// Money, by `prices`.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub cost_per_problem: Option<f64>,
}

impl std::fmt::Display for SpendLimits {
    /// As in `12 s and 300 generated tokens a problem`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limits = [
            (self.seconds_per_problem, "s"),
            (self.tokens_per_problem, "generated tokens"),
            (self.cost_per_problem, "of cost"),
        ];
        let limits = limits.into_iter();
        let limits = limits.filter_map(|(limit, unit)| Some(format!("{} {unit}", limit?)));
        let limits: Vec<String> = limits.collect();
        write!(f, "{} a problem", limits.join(" and "))
    }
}

impl Objective {
    /// What is wrong with it, where there are these prices.
    ///
    /// # Errors
    /// When something is.
    pub(super) fn check(&self, prices: Option<&PriceConfig>) -> Result<(), &'static str> {
        let Self::AccuracyUnder(limits) = self else {
            return Ok(());
        };
        let SpendLimits {
            seconds_per_problem,
            tokens_per_problem,
            cost_per_problem,
        } = limits;
        let given = [seconds_per_problem, tokens_per_problem, cost_per_problem];
        let mut given = given.into_iter().flatten().peekable();
        if given.peek().is_none() {
            return Err(
                "accuracy_under needs a limit: seconds_per_problem, tokens_per_problem or cost_per_problem",
            );
        }
        if !given.all(|limit| limit.is_finite() && *limit > 0.0) {
            return Err("a limit must be above 0");
        }
        if cost_per_problem.is_some() && prices.is_none() {
            return Err("cost_per_problem needs prices");
        }
        Ok(())
    }
}
