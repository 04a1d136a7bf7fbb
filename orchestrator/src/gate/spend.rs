//! What the arms of a decision spend: time, tokens, and money where tokens have prices.
//!
//! Both arms are looked at on the same problems and seeds: a pair of which an arm was left out is in
//! neither sum, since one arm would then be measured on other problems than the other. Rollouts that are
//! made for a decision run side by side, problem by problem, so that their seconds are those of one load;
//! one that was in the journal has the seconds that it took when it was made.

use std::ops::Add;
use std::time::Duration;

use rollout::trajectory::{Trajectory, Usage};
use serde::{Deserialize, Serialize};

use crate::config::{Objective, PriceConfig};
use crate::rollouts::Rolled;

/// What the rollouts of one arm took, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spend {
    /// Rollouts.
    pub rollouts: u32,
    /// Seconds from beginning to end of each, as if one ran after the other.
    pub seconds: f64,
    /// Prompt tokens; those of every turn count.
    pub prompt_tokens: u64,
    /// Those of them that a cache had, as far as the policy says; none where it says nothing.
    pub cached_tokens: Option<u64>,
    /// Generated tokens.
    pub completion_tokens: u64,
    /// Whether a server left counts out and they were estimated.
    pub is_estimated: bool,
    /// Money; none without prices.
    pub cost: Option<f64>,
}

impl Spend {
    /// Of rollouts that ended.
    fn of(trajectories: &[&Trajectory], prices: Option<&PriceConfig>) -> Self {
        let usage: Usage = trajectories.iter().map(|t| &t.usage).sum();
        let walls = trajectories.iter().map(|t| t.wall_ms);
        let wall_ms = walls.fold(0, u64::saturating_add);
        Self {
            rollouts: u32::try_from(trajectories.len()).unwrap_or(u32::MAX),
            seconds: Duration::from_millis(wall_ms).as_secs_f64(),
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.cached_tokens,
            completion_tokens: usage.completion_tokens,
            is_estimated: usage.is_estimated,
            cost: prices.map(|prices| prices.cost_of(usage.prompt_tokens, usage.completion_tokens)),
        }
    }

    /// Seconds of a rollout on average; none without one.
    pub fn seconds_per_problem(&self) -> Option<f64> {
        self.mean(self.seconds)
    }

    /// Prompt tokens of a rollout on average, over all turns.
    pub fn prompt_tokens_per_problem(&self) -> Option<f64> {
        self.mean(self.prompt_tokens as f64)
    }

    /// Generated tokens of a rollout on average, over all turns.
    pub fn tokens_per_problem(&self) -> Option<f64> {
        self.mean(self.completion_tokens as f64)
    }

    /// Money of a rollout on average; none without prices.
    pub fn cost_per_problem(&self) -> Option<f64> {
        self.mean(self.cost?)
    }

    fn mean(&self, total: f64) -> Option<f64> {
        (self.rollouts > 0).then(|| total / f64::from(self.rollouts))
    }
}

impl Add for Spend {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            rollouts: self.rollouts + other.rollouts,
            seconds: self.seconds + other.seconds,
            prompt_tokens: self.prompt_tokens + other.prompt_tokens,
            cached_tokens: sum(self.cached_tokens, other.cached_tokens),
            completion_tokens: self.completion_tokens + other.completion_tokens,
            is_estimated: self.is_estimated || other.is_estimated,
            cost: sum(self.cost, other.cost),
        }
    }
}

/// The sum of what is known.
fn sum<T: Add<Output = T>>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    }
}

impl std::fmt::Display for Spend {
    /// What a rollout takes on average, as in `3.100 s, 1240 + 38.20 tokens, cost 0.001316`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Some(seconds), Some(prompt), Some(generated)) = (
            self.seconds_per_problem(),
            self.prompt_tokens_per_problem(),
            self.tokens_per_problem(),
        ) else {
            return f.write_str("nothing");
        };
        let [seconds, prompt, generated] = [seconds, prompt, generated].map(digits);
        write!(f, "{seconds} s, {prompt} + {generated} tokens")?;
        match self.cost_per_problem() {
            Some(cost) => write!(f, ", cost {}", digits(cost)),
            None => Ok(()),
        }
    }
}

/// What both arms of a decision took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spending {
    /// The incumbent's arm.
    pub incumbent: Spend,
    /// The candidate's.
    pub candidate: Spend,
}

impl Spending {
    /// Of the same trials under both arms.
    pub(crate) fn of(
        incumbent: &[Rolled],
        candidate: &[Rolled],
        prices: Option<&PriceConfig>,
    ) -> Self {
        let both = incumbent.iter().zip(candidate);
        let both = both.filter_map(|(one, other)| one.as_ref().zip(other.as_ref()));
        let (incumbent, candidate): (Vec<&Trajectory>, Vec<&Trajectory>) = both.unzip();
        Self {
            incumbent: Spend::of(&incumbent, prices),
            candidate: Spend::of(&candidate, prices),
        }
    }
}

impl Add for Spending {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            incumbent: self.incumbent + other.incumbent,
            candidate: self.candidate + other.candidate,
        }
    }
}

impl std::fmt::Display for Spending {
    /// For the history.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (candidate, incumbent) = (self.candidate, self.incumbent);
        write!(
            f,
            "a rollout takes {candidate}; the incumbent's {incumbent}"
        )
    }
}

/// What both arms of a decision took on each side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sides {
    /// On V_in.
    pub on_in: Spending,
    /// On V_out.
    pub on_out: Spending,
}

impl Sides {
    /// The mean of an arm over all problems, of which V_in has the share `share_in`. A look takes as many
    /// pairs of either side whatever its share, so the mean over pairs would be that of a mixture of
    /// problems which there isn't.
    fn mean(
        &self,
        arm: fn(&Spending) -> &Spend,
        mean: fn(&Spend) -> Option<f64>,
        share_in: f64,
    ) -> Option<f64> {
        match (mean(arm(&self.on_in)), mean(arm(&self.on_out))) {
            // Written so that the mean of two equal ones is that one.
            (Some(on_in), Some(on_out)) => Some(on_out + share_in * (on_in - on_out)),
            (one, other) => one.or(other),
        }
    }
}

impl Add for Sides {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            on_in: self.on_in + other.on_in,
            on_out: self.on_out + other.on_out,
        }
    }
}

/// Why the candidate takes more than `objective` allows, with the numbers; none if it doesn't. Where the
/// incumbent is above a limit itself, what takes less than it comes nearer, and is let through. V_in has the
/// share `share_in` of the problems.
pub fn excess(objective: &Objective, sides: &Sides, share_in: f64) -> Option<String> {
    type Mean = fn(&Spend) -> Option<f64>;
    let Objective::AccuracyUnder(limits) = objective else {
        return None;
    };
    let means: [(Option<f64>, Mean, &str); 3] = [
        (
            limits.seconds_per_problem,
            Spend::seconds_per_problem,
            "seconds",
        ),
        (
            limits.tokens_per_problem,
            Spend::tokens_per_problem,
            "generated tokens",
        ),
        (limits.cost_per_problem, Spend::cost_per_problem, "cost"),
    ];
    means.into_iter().find_map(|(limit, mean, what)| {
        let limit = limit?;
        let before = sides.mean(|both| &both.incumbent, mean, share_in)?;
        let after = sides.mean(|both| &both.candidate, mean, share_in)?;
        let is_nearer = before > limit && after < before;
        (after > limit && !is_nearer).then(|| {
            let (before, after) = (digits(before), digits(after));
            format!(
                "{what} a problem: {after} (the incumbent {before}), above the limit of {limit}"
            )
        })
    })
}

/// A figure with four digits that count, whatever its size: money comes in small fractions.
pub(crate) fn digits(value: f64) -> String {
    const MOST: usize = 12;
    if value == 0.0 {
        return "0".to_owned();
    }
    let mut places = 0;
    let mut shown = value.abs();
    while shown < 1000.0 && places < MOST {
        shown *= 10.0;
        places += 1;
    }
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::SpendLimits;
    use crate::rollouts::testing::trajectory;

    fn rolled(wall_ms: u64, prompt_tokens: u64, completion_tokens: u64) -> Rolled {
        let usage = Usage {
            prompt_tokens,
            completion_tokens,
            ..Usage::default()
        };
        Some(Trajectory {
            wall_ms,
            usage,
            ..trajectory()
        })
    }

    #[test]
    fn arms_are_compared_on_pairs_that_both_were_rolled_out_on() {
        let before = [rolled(1000, 100, 10), rolled(9000, 900, 90), None];
        let after = [rolled(3000, 300, 30), None, rolled(5000, 500, 50)];
        let prices = PriceConfig {
            prompt_per_million: 2.0,
            completion_per_million: 10.0,
        };
        let Spending {
            incumbent,
            candidate,
        } = Spending::of(&before, &after, Some(&prices));
        assert_eq!((incumbent.rollouts, candidate.rollouts), (1, 1));
        assert_eq!(incumbent.seconds_per_problem(), Some(1.0));
        assert_eq!(candidate.seconds_per_problem(), Some(3.0));
        assert_eq!(candidate.prompt_tokens_per_problem(), Some(300.0));
        assert_eq!(candidate.tokens_per_problem(), Some(30.0));
        let cost = candidate.cost_per_problem().expect("there are prices");
        assert!((cost - 0.0009).abs() < 1e-12, "{cost}");
        let unpriced = Spending::of(&before, &after, None).candidate;
        assert_eq!(unpriced.cost_per_problem(), None);
        assert_eq!(unpriced.to_string(), "3.000 s, 300.0 + 30.00 tokens");
    }

    #[test]
    fn sums_keep_what_is_known() {
        let of = |cached_tokens, cost| Spend {
            rollouts: 2,
            seconds: 1.5,
            prompt_tokens: 100,
            cached_tokens,
            completion_tokens: 10,
            is_estimated: false,
            cost,
        };
        let both = of(Some(60), Some(0.5)) + of(None, Some(0.25));
        assert_eq!((both.cached_tokens, both.cost), (Some(60), Some(0.75)));
        assert_eq!(both.seconds_per_problem(), Some(0.75));
        assert_eq!((of(None, None) + of(None, None)).cost, None);
        let nothing = Spend::default();
        assert_eq!(nothing.seconds_per_problem(), None);
        assert_eq!(nothing.to_string(), "nothing");
    }

    /// The same on both sides.
    fn alike(incumbent: f64, candidate: f64) -> Sides {
        Sides {
            on_in: spending(incumbent, candidate),
            on_out: spending(incumbent, candidate),
        }
    }

    fn excess(objective: &Objective, sides: &Sides) -> Option<String> {
        super::excess(objective, sides, 0.5)
    }

    fn spending(incumbent: f64, candidate: f64) -> Spending {
        let of = |mean: f64| Spend {
            rollouts: 10,
            seconds: 10.0 * mean,
            completion_tokens: 500,
            cost: Some(0.02),
            ..Spend::default()
        };
        Spending {
            incumbent: of(incumbent),
            candidate: of(candidate),
        }
    }

    fn seconds(limit: f64) -> Objective {
        Objective::AccuracyUnder(SpendLimits {
            seconds_per_problem: Some(limit),
            ..SpendLimits::default()
        })
    }

    #[test]
    fn the_reason_has_the_numbers_of_the_limit_that_is_exceeded() {
        let slow = alike(10.5, 14.25);
        assert_eq!(excess(&Objective::Accuracy, &slow), None);
        assert_eq!(
            excess(&seconds(12.0), &slow).as_deref(),
            Some("seconds a problem: 14.25 (the incumbent 10.50), above the limit of 12")
        );
        // 50 tokens and 0.002 of cost in both arms.
        let limits = |tokens, cost| {
            Objective::AccuracyUnder(SpendLimits {
                seconds_per_problem: Some(20.0),
                tokens_per_problem: Some(tokens),
                cost_per_problem: Some(cost),
            })
        };
        assert_eq!(excess(&limits(50.0, 0.002), &slow), None);
        let tokens = excess(&limits(49.0, 0.002), &slow).expect("an objection");
        assert!(
            tokens.starts_with("generated tokens a problem: 50.00"),
            "{tokens}"
        );
        let cost = excess(&limits(50.0, 0.001), &slow).expect("an objection");
        assert!(
            cost.ends_with("0.002000), above the limit of 0.001"),
            "{cost}"
        );
        // Nothing is known of arms without rollouts.
        assert_eq!(excess(&seconds(12.0), &Sides::default()), None);
    }

    #[test]
    fn a_side_counts_by_its_share_of_the_problems() {
        // As many pairs of the few problems that take long as of the many that don't.
        let sides = Sides {
            on_in: spending(16.0, 20.0),
            on_out: spending(4.0, 5.0),
        };
        let excess = |share_in| super::excess(&seconds(12.0), &sides, share_in);
        assert_eq!(excess(0.2), None);
        assert_eq!(
            excess(0.5).as_deref(),
            Some("seconds a problem: 12.50 (the incumbent 10.00), above the limit of 12")
        );
        // A removal has one side, and so have decisions where V_in takes in what was solved.
        for (on_in, on_out, share_in) in [
            (Spending::default(), sides.on_in, 0.0),
            (sides.on_in, Spending::default(), 1.0),
        ] {
            let sides = Sides { on_in, on_out };
            assert!(super::excess(&seconds(18.0), &sides, share_in).is_some());
        }
    }

    proptest! {
        #[test]
        fn what_is_above_the_limit_has_to_take_less_than_an_incumbent_that_is_too(
            before in 1.0..30.0f64, after in 1.0..30.0f64, limit in 1.0..30.0f64,
        ) {
            let is_rejected = excess(&seconds(limit), &alike(before, after)).is_some();
            let is_allowed = after <= limit || (limit < before && after < before);
            // The mean of ten is what each of them is, up to rounding.
            let is_close = (after - limit).abs() < 1e-9 || (after - before).abs() < 1e-9
                || (before - limit).abs() < 1e-9;
            prop_assert!(is_close || is_rejected != is_allowed);
        }
    }

    #[test]
    fn figures_have_four_digits() {
        let shown = [0.0, 3.1, 38.2, 1240.4, 0.001_316_4, 1e-20].map(digits);
        let expected = ["0", "3.100", "38.20", "1240", "0.001316", "0.000000000000"];
        assert_eq!(shown, expected);
    }
}
