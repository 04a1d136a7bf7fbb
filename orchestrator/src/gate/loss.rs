//! Whether an arm is shown to solve less than an earlier one, by more than is tolerated.
//!
//! The gate lets changes in; this looks at what is in. Both arms are rolled out on the same problems with
//! the same seeds, pass by pass over all of them. A loss beyond the margin is *shown* when the e-value
//! against "no more than the margin is lost" reaches the inverse of the level: the mathematics of the
//! gate's harm test ([`super::martingale`]), with a margin. An arm that keeps within the margin is said
//! to lose with probability at most the level, however many passes are made. A further pass is made only
//! while more than the margin seems lost: whoever is not suspected costs one pass.
//!
//! What is undecided, or can't be rolled out, isn't solved, under either arm: what is so now and was solved
//! before is lost, and what was so before and is solved now is gained. To count the former alone, as decisions
//! do to be sure of a gain, would show losses that there aren't, since two arms that are equally good have
//! their share of both. That no loss is shown doesn't prove that there is none.

use serde::{Deserialize, Serialize};

use super::evidence::{Counts, Delta};
use super::martingale::{e_value, log_e_value_above, rounded};
use super::sequential::HARM_LEVEL;

/// How much may be lost, and how sure one has to be that more is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Share of the problems.
    margin: f64,
    /// Chance that an arm which loses no more is said to.
    level: f64,
}

impl Tolerance {
    /// With as many comparisons side by side as `count`: one that stands for an arm which keeps within
    /// all margins says otherwise with probability [`HARM_LEVEL`] at most (Bonferroni).
    pub fn shared(margin: f64, count: usize) -> Self {
        Self {
            margin,
            level: HARM_LEVEL / count.max(1) as f64,
        }
    }

    /// Logarithm of the e-value for a loss beyond the margin.
    fn log_e_value(self, counts: Counts) -> f64 {
        let all = counts.as_unsolved();
        let (gained, lost) = all.differing();
        log_e_value_above(self.margin, [lost, gained, all.same()])
    }

    /// Logarithm of the e-value that shows it.
    fn log_threshold(self) -> f64 {
        -self.level.ln()
    }

    /// Whether as many problems, all of them lost, would show a loss.
    pub fn can_be_exceeded(self, tasks: usize) -> bool {
        let lost = u32::try_from(tasks).unwrap_or(u32::MAX);
        let all = Counts {
            lost,
            pairs: lost,
            ..Counts::default()
        };
        self.log_e_value(all) >= self.log_threshold()
    }
}

/// What a comparison has come to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Later arm minus earlier arm.
    pub delta: Delta,
    /// e-value for a loss beyond the margin after each pass.
    pub e_values: Vec<f64>,
    /// The e-value that shows it.
    pub threshold: f64,
    /// Whether it is shown.
    pub is_shown: bool,
}

impl Loss {
    /// The counts in words, with what they show.
    pub fn figures(&self) -> String {
        let last = self.e_values.last().copied().unwrap_or(1.0);
        format!(
            "{} points ({}), e-value {} of {:.0}",
            self.delta,
            self.delta.counts(),
            rounded(last),
            self.threshold
        )
    }
}

/// A comparison while passes are made.
#[derive(Clone, Debug)]
pub struct Watch {
    tolerance: Tolerance,
    counts: Counts,
    e_values: Vec<f64>,
}

impl Watch {
    /// Before the first pass.
    pub fn new(tolerance: Tolerance) -> Self {
        Self {
            tolerance,
            counts: Counts::default(),
            e_values: Vec::new(),
        }
    }

    /// Enter a pass; whether another one is wanted.
    pub fn record(&mut self, pass: Counts) -> bool {
        self.counts = self.counts + pass;
        let log = self.tolerance.log_e_value(self.counts);
        self.e_values.push(e_value(log));
        let all = self.counts.as_unsolved();
        let (gained, lost) = all.differing();
        let is_suspected = lost - gained > self.tolerance.margin * f64::from(all.pairs);
        is_suspected && !self.is_shown()
    }

    fn is_shown(&self) -> bool {
        self.tolerance.log_e_value(self.counts) >= self.tolerance.log_threshold()
    }

    /// After the last pass.
    pub fn finish(self) -> Loss {
        Loss {
            is_shown: self.is_shown(),
            delta: Delta::of(self.counts),
            threshold: e_value(self.tolerance.log_threshold()),
            e_values: self.e_values,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_suites_share_the_level() {
        let (one, four) = (Tolerance::shared(0.05, 1), Tolerance::shared(0.05, 4));
        let least = |tolerance: Tolerance| (1..).find(|tasks| tolerance.can_be_exceeded(*tasks));
        assert!(least(one) < least(four));
        assert!(least(one).is_some_and(|tasks| (5..12).contains(&tasks)));
        assert!(!one.can_be_exceeded(0));
    }

    #[test]
    fn a_pass_more_is_wanted_only_while_a_loss_appears_that_isnt_shown() {
        let counts = |gained, lost| Counts {
            gained,
            lost,
            pairs: 40,
            ..Counts::default()
        };
        let wants = |gained, lost| {
            let mut watch = Watch::new(Tolerance::shared(0.05, 1));
            (watch.record(counts(gained, lost)), watch.finish().is_shown)
        };
        assert_eq!(wants(0, 0), (false, false));
        assert_eq!(wants(1, 3), (false, false), "five points are tolerated");
        assert_eq!(wants(1, 5), (true, false));
        assert_eq!(wants(0, 30), (false, true));
        let undecided = Counts {
            undecided: 30,
            withheld: 30,
            pairs: 10,
            ..Counts::default()
        };
        let mut watch = Watch::new(Tolerance::shared(0.05, 1));
        watch.record(undecided);
        assert!(watch.finish().is_shown, "what can't be judged isn't kept");
        let mut watch = Watch::new(Tolerance::shared(0.05, 1));
        watch.record(counts(0, 30));
        let figures = watch.finish().figures();
        assert!(
            figures.starts_with("-75.0 [") && figures.contains("(+0 -30 of 40), e-value "),
            "{figures}"
        );
    }
}
