//! Paired outcomes, their differences and intervals.

use serde::{Deserialize, Serialize};

/// z of a two-sided 95% interval.
const Z95: f64 = 1.959_963_984_540_054;

/// What became of one arm's rollout of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It solved the problem.
    Solved,
    /// It didn't.
    Failed,
    /// The verifier couldn't decide its answer.
    Undecided,
    /// There is none, since policy or sandbox failed each time.
    LeftOut,
}

impl Outcome {
    /// Of an answer that the verifier could decide.
    pub fn decided(is_solved: bool) -> Self {
        match is_solved {
            true => Self::Solved,
            false => Self::Failed,
        }
    }
}

/// Outcome of both arms on one problem and seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Under the incumbent.
    pub incumbent: Outcome,
    /// Under the candidate.
    pub candidate: Outcome,
}

/// Outcomes of pairs, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pairs only the candidate solved.
    pub gained: u32,
    /// Pairs only the incumbent solved.
    pub lost: u32,
    /// All pairs that both verdicts decide.
    pub pairs: u32,
    /// Pairs beside them of which the verifier couldn't decide an answer: no evidence for either arm.
    pub undecided: u32,
    /// Those of them that the incumbent solved and the candidate leaves undecided.
    pub withheld: u32,
    /// Those of them that the incumbent leaves undecided itself: they say nothing about the candidate.
    pub undecided_before: u32,
    /// Further pairs, that the incumbent solved and the candidate was left out of, since policy or sandbox
    /// failed under it each time.
    pub gone: u32,
    /// Pairs that the candidate solved and the incumbent left undecided or was left out of: they are
    /// among `undecided` or `unmade`.
    pub found: u32,
    /// Pairs of which an arm was left out, but for those that are gone.
    pub unmade: u32,
}

impl Counts {
    /// Count pairs. One with an undecided verdict is counted apart, and so is one that the incumbent solved
    /// and the candidate was left out of: that its texts have become too much for server or sandbox is a loss
    /// too. Any other pair of which an arm was left out is no evidence in a decision.
    pub fn of(pairs: impl IntoIterator<Item = Pair>) -> Self {
        use Outcome::{LeftOut, Solved, Undecided};
        let mut counts = Self::default();
        for Pair {
            incumbent,
            candidate,
        } in pairs
        {
            let (was_solved, is_solved) = (incumbent == Solved, candidate == Solved);
            match (incumbent, candidate) {
                (Solved, LeftOut) => counts.gone += 1,
                (LeftOut, _) | (_, LeftOut) => {
                    counts.unmade += 1;
                    counts.found += u32::from(is_solved);
                }
                (Undecided, _) | (_, Undecided) => {
                    counts.undecided += 1;
                    counts.withheld += u32::from(was_solved);
                    counts.undecided_before += u32::from(incumbent == Undecided);
                    counts.found += u32::from(is_solved);
                }
                _ => {
                    counts.pairs += 1;
                    counts.gained += u32::from(is_solved && !was_solved);
                    counts.lost += u32::from(was_solved && !is_solved);
                }
            }
        }
        counts
    }

    /// Gained and lost pairs as numbers.
    pub fn differing(self) -> (f64, f64) {
        (f64::from(self.gained), f64::from(self.lost))
    }

    /// Pairs whose arms came to the same, as a number.
    pub fn same(self) -> f64 {
        f64::from(self.pairs) - f64::from(self.gained) - f64::from(self.lost)
    }

    /// The same with withheld and gone pairs as lost ones: what can't be judged, or rolled out, isn't kept. A
    /// candidate that has to stand this can't win by answers that nobody can judge, nor by prompts that the
    /// server doesn't take.
    #[must_use]
    pub fn at_worst(self) -> Self {
        Self {
            lost: self.lost + self.withheld + self.gone,
            pairs: self.pairs + self.withheld + self.gone,
            undecided: self.undecided - self.withheld,
            withheld: 0,
            gone: 0,
            ..self
        }
    }

    /// The same where an arm hasn't solved what it has no outcome for, undecided or left out. Unlike
    /// [`Self::at_worst`] this is the same for both arms: if they are equally good, and as often without an
    /// outcome, they gain and lose as much.
    #[must_use]
    pub fn as_unsolved(self) -> Self {
        Self {
            gained: self.gained + self.found,
            lost: self.lost + self.withheld + self.gone,
            pairs: self.pairs + self.undecided + self.gone + self.unmade,
            ..Self::default()
        }
    }
}

impl std::fmt::Display for Counts {
    /// As in `+9 -1 of 40`, and `+9 -1 of 37, 2 undecided, 1 left out`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "+{} -{} of {}", self.gained, self.lost, self.pairs)?;
        for (count, what) in [(self.undecided, "undecided"), (self.gone, "left out")] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            gained: self.gained + other.gained,
            lost: self.lost + other.lost,
            pairs: self.pairs + other.pairs,
            undecided: self.undecided + other.undecided,
            withheld: self.withheld + other.withheld,
            undecided_before: self.undecided_before + other.undecided_before,
            gone: self.gone + other.gone,
            found: self.found + other.found,
            unmade: self.unmade + other.unmade,
        }
    }
}

/// A paired difference in solved problems, with a 95% interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// (gained − lost) / pairs; 0 without pairs.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Pairs only the candidate solved.
    pub gained: u32,
    /// Pairs only the incumbent solved.
    pub lost: u32,
    /// All pairs that both verdicts decide.
    pub pairs: u32,
    /// Pairs beside them with an undecided verdict.
    #[serde(default)]
    pub undecided: u32,
    /// Those of them that the incumbent solved and the candidate leaves undecided.
    #[serde(default)]
    pub withheld: u32,
    /// Those of them that the incumbent leaves undecided itself.
    #[serde(default)]
    pub undecided_before: u32,
    /// Further pairs, that the incumbent solved and the candidate was left out of.
    #[serde(default)]
    pub gone: u32,
    /// Pairs that the candidate solved and the incumbent left undecided or was left out of; 0 in runs made
    /// before they were counted.
    #[serde(default)]
    pub found: u32,
    /// Pairs of which an arm was left out, but for those that are gone; 0 in runs made before they were
    /// counted.
    #[serde(default)]
    pub unmade: u32,
}

impl Delta {
    /// The difference and its interval: the adjusted Wald interval for paired proportions (Agresti and
    /// Min, "Simple improved confidence intervals for comparing matched proportions", Statistics in
    /// Medicine 2005): half a pair is added to each of the four outcomes, which keeps it honest for
    /// few pairs and for counts of zero.
    pub fn of(counts: Counts) -> Self {
        let Counts {
            gained,
            lost,
            pairs,
            undecided,
            withheld,
            undecided_before,
            gone,
            found,
            unmade,
        } = counts;
        let n = f64::from(pairs) + 2.0;
        let (b, c) = (f64::from(gained) + 0.5, f64::from(lost) + 0.5);
        let centre = (b - c) / n;
        let spread = Z95 * ((b + c) - (b - c).powi(2) / n).max(0.0).sqrt() / n;
        let estimate = if pairs == 0 {
            0.0
        } else {
            (f64::from(gained) - f64::from(lost)) / f64::from(pairs)
        };
        Self {
            estimate,
            low: (centre - spread).clamp(-1.0, 1.0),
            high: (centre + spread).clamp(-1.0, 1.0),
            gained,
            lost,
            pairs,
            undecided,
            withheld,
            undecided_before,
            gone,
            found,
            unmade,
        }
    }

    /// What it was made of.
    pub fn counts(&self) -> Counts {
        Counts {
            gained: self.gained,
            lost: self.lost,
            pairs: self.pairs,
            undecided: self.undecided,
            withheld: self.withheld,
            undecided_before: self.undecided_before,
            gone: self.gone,
            found: self.found,
            unmade: self.unmade,
        }
    }
}

impl std::fmt::Display for Delta {
    /// In points, as in `+12.5 [+1.1, +22.8]`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.pairs == 0 {
            return f.write_str("nothing to compare");
        }
        write!(
            f,
            "{:+.1} [{:+.1}, {:+.1}]",
            100.0 * self.estimate,
            100.0 * self.low,
            100.0 * self.high
        )
    }
}

/// A share of solved problems, with its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PassRate {
    /// Share solved by one attempt.
    pub pass_at_1: f64,
    /// Wilson score interval (Wilson 1927) at 95%.
    pub ci95: [f64; 2],
    /// Solved problems.
    pub correct: u32,
    /// Problems.
    pub n: u32,
}

impl PassRate {
    /// `correct` of `n` solved.
    pub fn of(correct: u32, n: u32) -> Self {
        if n == 0 {
            return Self {
                pass_at_1: 0.0,
                ci95: [0.0, 1.0],
                correct,
                n,
            };
        }
        let p = f64::from(correct) / f64::from(n);
        Self {
            pass_at_1: p,
            ci95: wilson(p, f64::from(n)),
            correct,
            n,
        }
    }
}

/// Wilson's score interval at 95% (Wilson 1927) for a share `p` of `count` outcomes.
pub(crate) fn wilson(p: f64, count: f64) -> [f64; 2] {
    let z2 = Z95 * Z95;
    let centre = (p + z2 / (2.0 * count)) / (1.0 + z2 / count);
    let spread =
        Z95 / (1.0 + z2 / count) * (p * (1.0 - p) / count + z2 / (4.0 * count * count)).sqrt();
    let low = if p <= 0.0 {
        0.0
    } else {
        (centre - spread).max(0.0)
    };
    let high = if p >= 1.0 {
        1.0
    } else {
        (centre + spread).min(1.0)
    };
    [low, high]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(gained: u32, lost: u32, pairs: u32) -> Delta {
        Delta::of(Counts {
            gained,
            lost,
            pairs,
            ..Counts::default()
        })
    }

    #[test]
    fn what_a_candidate_leaves_undecided_or_is_left_out_of_counts_against_it_at_worst() {
        let counts = Counts {
            gained: 5,
            lost: 1,
            pairs: 30,
            undecided: 6,
            withheld: 4,
            undecided_before: 1,
            gone: 3,
            found: 2,
            unmade: 2,
        };
        let worst = counts.at_worst();
        assert_eq!((worst.gained, worst.lost, worst.pairs), (5, 8, 37));
        assert_eq!((worst.undecided, worst.withheld, worst.gone), (2, 0, 0));
        assert_eq!(worst.undecided_before, 1);
        assert_eq!(worst.same(), 24.0);
        assert_eq!(counts.to_string(), "+5 -1 of 30, 6 undecided, 3 left out");
        let sum = counts + counts;
        assert_eq!((sum.undecided, sum.withheld, sum.gone), (12, 8, 6));
        assert_eq!(Delta::of(counts).counts(), counts);
        // The interval is of the pairs that are decided.
        assert_eq!(Delta::of(counts).estimate, delta(5, 1, 30).estimate);
        // Both arms alike.
        let alike = Counts {
            gained: 7,
            lost: 8,
            pairs: 41,
            ..Counts::default()
        };
        assert_eq!((counts.as_unsolved(), worst.as_unsolved()), (alike, alike));
        assert_eq!(alike.as_unsolved(), alike);
    }

    #[test]
    fn delta_counts_discordant_pairs_and_its_interval_never_collapses() {
        let pair = |was_solved, is_solved| Pair {
            incumbent: Outcome::decided(was_solved),
            candidate: Outcome::decided(is_solved),
        };
        let counts = Counts::of([
            pair(false, true),
            pair(true, false),
            pair(false, true),
            pair(true, true),
        ]);
        assert_eq!((counts.gained, counts.lost, counts.pairs), (2, 1, 4));
        let some = delta(6, 2, 20);
        assert!((some.estimate - 0.2).abs() < 1e-12);
        assert!(some.low < 0.0 && some.high > 0.35, "{some:?}");
        let none = delta(0, 0, 10);
        assert!(none.low < 0.0 && none.high > 0.0 && none.estimate == 0.0);
        assert_eq!(delta(0, 0, 0).estimate, 0.0);
        assert_eq!(delta(0, 0, 0).to_string(), "nothing to compare");
    }

    #[test]
    fn the_paired_interval_covers_the_truth_about_as_often_as_it_says() {
        use rand::{RngExt, SeedableRng};
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        let (mut covered, runs) = (0, 2000);
        for _ in 0..runs {
            let sample = (0..40).map(|_| Pair {
                incumbent: Outcome::decided(random.random::<f64>() < 0.3),
                candidate: Outcome::decided(random.random::<f64>() < 0.5),
            });
            let delta = Delta::of(Counts::of(sample));
            covered += u32::from(delta.low <= 0.2 && 0.2 <= delta.high);
        }
        let share = f64::from(covered) / f64::from(runs);
        assert!((0.93..0.98).contains(&share), "{share}");
    }

    #[test]
    fn wilson_matches_published_values() {
        // Newcombe (1998), table I: 81/263 gives 0.2553 to 0.3662, 0/20 gives 0 to 0.1611.
        let rate = PassRate::of(81, 263);
        assert!((rate.ci95[0] - 0.2553).abs() < 1e-4 && (rate.ci95[1] - 0.3662).abs() < 1e-4);
        let zero = PassRate::of(0, 20);
        assert!(zero.ci95[0] == 0.0 && (zero.ci95[1] - 0.1611).abs() < 1e-4);
        assert_eq!(PassRate::of(0, 0).ci95, [0.0, 1.0]);
    }
}
