//! The mathematics of the sequential gate: e-values from pairs, and levels for many decisions.
//!
//! **E-values.** A pair has one of three outcomes for the candidate: gained (+1), lost (−1), or the
//! same as the incumbent (0). Betting the share λ of one's wealth on "gained" multiplies the wealth by
//! 1+λ, 1−λ or 1. If a pair's expected outcome is at most 0, so is the bet's, and the wealth is a
//! supermartingale that starts at 1: a test martingale. Its value is an e-value at every moment, so it
//! may be looked at after every batch, and exceeds 1/α at any time with probability at most α (Ville
//! 1939; Shafer, "Testing by betting", JRSS A 2021; Ramdas, Grünwald, Vovk and Shafer, "Game-theoretic
//! statistics and safe anytime-valid inference", Statistical Science 2023). Since the best λ isn't
//! known, the wealth is spread over many: the mixture of test martingales is one. With θ = (1+λ)/2
//! this is the sign test's likelihood ratio of "gained with probability θ, given that the arms differ"
//! against one half, mixed evenly over the upper half (Robbins, "Statistical methods
//! related to the law of the iterated logarithm", Annals of Mathematical Statistics 1970).
//!
//! **A fixed set of problems.** Problems differ, and a patch may help one and hurt another. Let every
//! problem i of a set be used once in a batch, δᵢ its expected outcome. Pairs are independent given the
//! problems, so the batch multiplies the expected wealth by Π(1+λδᵢ) ≤ (1+λ·mean δᵢ)ⁿ by the inequality
//! of arithmetic and geometric means: at most 1 as soon as the *mean* over the set is at most 0. Looks
//! after whole passes over the set therefore test its mean, not only "no problem gains".
//!
//! **Parts of a pass.** Where a set is larger than a batch, looks end inside a pass. In random order the
//! expected wealth after a part of a pass, over the orders too, is the mean of Π(1+λδᵢ) over all parts of
//! that size: at most (1+λ·mean δᵢ)ⁿ for n pairs by Maclaurin's inequality. Each such look is fair by itself,
//! and so are all that end at the same place of a pass, which are whole passes apart. Stopping at the best of
//! several places isn't covered: problems that gain may come first. What is proved for all looks is the
//! level times the number of places.
//!
//! **A margin.** Betting λ/(1+μ) on how far a pair's outcome exceeds μ, for −1 < μ < 1, multiplies the wealth
//! by 1 + λ(outcome − μ)/(1+μ), which is not below 1 − λ. It isn't expected to grow as long as the mean outcome
//! is at most μ, by the same inequality. With the arms exchanged and μ > 0 this tests whether more is lost than
//! is tolerated, and with μ < 0 whether less is lost than matters (non-inferiority). A tie is evidence then.
//!
//! **Many decisions.** e-LOND (Xu and Ramdas, "Online multiple testing with e-values", AISTATS 2024):
//! decision t is an acceptance only if its e-value reaches 1/αₜ, αₜ = α·γₜ·(D+1), where D counts
//! the acceptances before it and the γₜ sum to 1. The expected share of false acceptances among all is
//! then at most α after every decision, if each e-value is expected to be at most 1 given what its hypothesis
//! was chosen by: an acceptance, at most 1/(D+1) of all, adds no more than αₜ·Eₜ/(D+1) = α·γₜ·Eₜ. Hypotheses
//! chosen side by side may depend on each other in any way.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::evidence::Counts;

/// How many bets λ the wealth is spread over.
const BETS: usize = 16;
/// γₜ ∝ t^−1.7: half of the error budget goes to the first decision, since the critic proposes first what it
/// believes in most and everything else waits for it; where few pairs can be had, a smaller share would let a
/// patch fail that gains ten problems and loses one. The two-hundredth needs about a dozen unanswered gains
/// more than the first, fewer with each acceptance before it.
const GAMMA_EXPONENT: f64 = 1.7;
/// ζ(1.7), which makes the γₜ sum to 1.
const GAMMA_SUM: f64 = 2.054_288_756_837_76;

/// One of the bets that the wealth is spread over, in equal shares: small effects need bets near 0, and a
/// patch that gains without ever losing is seen after few pairs by bets near 1.
#[derive(Clone, Copy)]
struct Bet {
    /// λ.
    size: f64,
    /// Logarithms of 1+λ and 1−λ.
    up: f64,
    down: f64,
}

static MIXTURE: LazyLock<[Bet; BETS]> = LazyLock::new(|| {
    std::array::from_fn(|slot| {
        let size = (slot as f64 + 0.5) / BETS as f64;
        Bet {
            size,
            up: size.ln_1p(),
            down: (-size).ln_1p(),
        }
    })
});

/// Natural logarithm of the mixture e-value for "gained outweighs lost".
///
/// The counts may be fractions: they are then a projection, not data.
pub fn log_e_value(gained: f64, lost: f64) -> f64 {
    mean_of(&MIXTURE.map(|bet| gained * bet.up + lost * bet.down))
}

/// Natural logarithm of the mixture e-value for "the mean outcome of a pair is above `margin`", from pairs
/// gained, lost and the same; the margin lies between −1 and 1, and at 0 this is [`log_e_value`].
pub fn log_e_value_above(margin: f64, [gained, lost, same]: [f64; 3]) -> f64 {
    mean_of(&MIXTURE.map(|bet| {
        let size = bet.size / (1.0 + margin);
        gained * (size * (1.0 - margin)).ln_1p() + lost * bet.down + same * (-size * margin).ln_1p()
    }))
}

/// Natural logarithm of the e-value for benefit, from gained and lost pairs of V_in alone and of both
/// sides together.
///
/// Half of the wealth bets on V_in alone, half makes the same bets on V_in and V_out. It is an e-value
/// for "the success rate rises neither on V_in nor over V_in and V_out together". The first half
/// finds repairs of failed problems although V_out can hardly rise, the second gains from V_out where
/// the patch helps everywhere.
pub fn log_benefit(alone: (f64, f64), together: (f64, f64)) -> f64 {
    mean_of(&[alone, together].map(|(gained, lost)| log_e_value(gained, lost)))
}

/// Natural logarithm of the e-value for harm on V_out: the same test with the arms exchanged.
pub fn log_harm(solved: Counts) -> f64 {
    log_e_value(f64::from(solved.lost), f64::from(solved.gained))
}

/// An e-value as a number that JSON can hold.
pub fn e_value(log: f64) -> f64 {
    log.exp().min(f64::MAX)
}

/// An e-value in few digits.
pub(crate) fn rounded(e_value: f64) -> String {
    match e_value {
        big if big >= 1e6 => format!("{big:.1e}"),
        middle if middle >= 10.0 => format!("{middle:.0}"),
        small => format!("{small:.2}"),
    }
}

/// Logarithm of the mean of what has these logarithms, without overflow.
fn mean_of(logs: &[f64]) -> f64 {
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logs.iter().map(|log| (log - most).exp()).sum();
    most + (sum / logs.len() as f64).ln()
}

/// Which decision of the run this is, and the level it is made at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// Its number in the run, from 1: every candidate that was measured counts.
    pub number: u32,
    /// Acceptances in the run before it.
    pub discoveries: u32,
    /// αₜ: accepted only with an e-value of at least its inverse.
    pub level: f64,
}

impl Test {
    /// A decision that stands alone, at `level`.
    pub fn alone(level: f64) -> Self {
        Self {
            number: 1,
            discoveries: 0,
            level,
        }
    }

    /// ln(1/level).
    pub fn log_threshold(&self) -> f64 {
        -self.level.ln()
    }
}

/// e-LOND's state: what the run has decided so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Discoveries {
    rate: f64,
    tests: u32,
    discoveries: u32,
}

impl Discoveries {
    /// At the start of a run that tolerates the share `rate` of false acceptances.
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            tests: 0,
            discoveries: 0,
        }
    }

    /// Levels of the next `count` decisions, made side by side: none of them sees another's outcome.
    pub fn enter(&mut self, count: usize) -> Vec<Test> {
        (0..count)
            .map(|_| {
                self.tests += 1;
                let gamma = f64::from(self.tests).powf(-GAMMA_EXPONENT) / GAMMA_SUM;
                Test {
                    number: self.tests,
                    discoveries: self.discoveries,
                    level: self.rate * gamma * (f64::from(self.discoveries) + 1.0),
                }
            })
            .collect()
    }

    /// One of the decisions was an acceptance.
    pub fn accepted(&mut self) {
        self.discoveries += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Probability that the arms differ in favour of the candidate, of the incumbent, or not at all.
    type Outcomes = [f64; 3];

    /// Expected e-value after one batch in which each problem is used once, by enumeration.
    fn expectation(problems: &[Outcomes], e_value: &dyn Fn([f64; 3]) -> f64) -> f64 {
        let mut sums = vec![([0.0, 0.0, 0.0], 1.0)];
        for chances in problems {
            sums = sums
                .iter()
                .flat_map(|(counts, p)| {
                    (0..3).map(move |outcome| {
                        let mut counts: [f64; 3] = *counts;
                        counts[outcome] += 1.0;
                        (counts, p * chances[outcome])
                    })
                })
                .collect();
        }
        sums.iter().map(|(counts, p)| p * e_value(*counts)).sum()
    }

    /// The same problems, with gain and loss exchanged where that is needed to make the mean at most 0: single
    /// ones still gain.
    fn no_better(mut problems: Vec<Outcomes>) -> Vec<Outcomes> {
        let sum: f64 = problems.iter().map(|o| o[0] - o[1]).sum();
        if sum > 0.0 {
            for problem in &mut problems {
                problem.swap(0, 1);
            }
        }
        problems
    }

    fn outcomes() -> impl Strategy<Value = Outcomes> {
        (0.0..1.0f64, 0.0..1.0f64, 0.0..1.0f64).prop_map(|(a, b, c)| {
            let sum = a + b + c + 1e-9;
            [a / sum, b / sum, (c + 1e-9) / sum]
        })
    }

    proptest! {
        #[test]
        fn wealth_is_not_expected_to_grow_when_the_mean_effect_is_not_positive(
            problems in prop::collection::vec(outcomes(), 1..7),
            before in (0u32..30, 0u32..30),
        ) {
            let problems = no_better(problems);
            let (g, l) = (f64::from(before.0), f64::from(before.1));
            let wealth = |[gained, lost, _]: [f64; 3]| log_e_value(g + gained, l + lost).exp();
            prop_assert!(expectation(&problems, &wealth) <= wealth([0.0; 3]) * (1.0 + 1e-9));
        }

        #[test]
        fn nor_after_a_part_of_a_pass_in_random_order(
            problems in prop::collection::vec(outcomes(), 1..6),
            before in (0u32..30, 0u32..30),
        ) {
            let problems = no_better(problems);
            let (g, l) = (f64::from(before.0), f64::from(before.1));
            let wealth = |[gained, lost, _]: [f64; 3]| log_e_value(g + gained, l + lost).exp();
            for size in 0..=problems.len() {
                // In random order all parts of a size are equally likely.
                let parts: Vec<Vec<Outcomes>> = (0..1usize << problems.len())
                    .filter(|part| part.count_ones() as usize == size)
                    .map(|part| {
                        let chosen = (0..problems.len()).filter(|i| (part >> i) & 1 == 1);
                        chosen.map(|i| problems[i]).collect()
                    })
                    .collect();
                let sum: f64 = parts.iter().map(|part| expectation(part, &wealth)).sum();
                let mean = sum / parts.len() as f64;
                prop_assert!(mean <= wealth([0.0; 3]) * (1.0 + 1e-9));
            }
        }

        #[test]
        fn nor_when_the_mean_effect_is_not_above_the_margin(
            problems in prop::collection::vec(outcomes(), 1..6),
            before in prop::array::uniform3(0u32..20),
            slack in 0.0..0.3f64,
        ) {
            // The smallest margin that the mean doesn't exceed, or a larger one.
            let count = problems.len() as f64;
            let mean = problems.iter().map(|o| o[0] - o[1]).sum::<f64>() / count;
            let margin = (mean + slack).clamp(-0.95, 0.95);
            prop_assume!(mean <= margin);
            let wealth = |more: [f64; 3]| {
                let counts = std::array::from_fn(|i| f64::from(before[i]) + more[i]);
                log_e_value_above(margin, counts).exp()
            };
            prop_assert!(expectation(&problems, &wealth) <= wealth([0.0; 3]) * (1.0 + 1e-9));
        }

        #[test]
        fn a_margin_of_zero_is_none_and_a_larger_one_takes_more_evidence(
            counts in prop::array::uniform3(0u32..60), margin in -0.5..0.5f64,
        ) {
            let [gained, lost, same] = counts.map(f64::from);
            let at = |margin| log_e_value_above(margin, [gained, lost, same]);
            prop_assert!((at(0.0) - log_e_value(gained, lost)).abs() < 1e-9);
            prop_assert!(at(margin + 0.05) <= at(margin) + 1e-9);
        }

        #[test]
        fn more_gains_are_more_evidence_and_more_losses_less(
            gained in 0u32..200, lost in 0u32..200,
        ) {
            let (g, l) = (f64::from(gained), f64::from(lost));
            prop_assert!(log_e_value(g + 1.0, l) > log_e_value(g, l));
            prop_assert!(log_e_value(g, l + 1.0) < log_e_value(g, l));
            // Whatever happens on V_out takes at most half of V_in's evidence away.
            let both = log_benefit((g, l), (g, l + 1000.0));
            prop_assert!(both >= log_e_value(g, l) - 2f64.ln() - 1e-9);
        }
    }

    #[test]
    fn the_mixture_starts_at_one_and_stays_near_the_best_single_bet() {
        assert!(log_e_value(0.0, 0.0).abs() < 1e-12);
        assert!(log_benefit((0.0, 0.0), (0.0, 0.0)).abs() < 1e-12);
        for (gained, lost) in [(10.0, 0.0), (30.0, 10.0), (120.0, 80.0)] {
            let share: f64 = gained / (gained + lost);
            let best = gained * (2.0 * share).ln()
                + if lost > 0.0 {
                    lost * (2.0 - 2.0 * share).ln()
                } else {
                    0.0
                };
            let mixed = log_e_value(gained, lost);
            assert!(
                mixed < best && mixed > best - 2.7,
                "{gained} {lost}: {mixed} of {best}"
            );
        }
    }

    #[test]
    fn huge_counts_stay_finite() {
        assert!(log_e_value(1e6, 0.0).is_finite() && log_e_value(0.0, 1e6).is_finite());
        assert!(e_value(log_e_value(1e6, 0.0)).is_finite());
    }

    #[test]
    fn ville_holds_over_many_looks() {
        use rand::{RngExt, SeedableRng};
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(3);
        let (runs, level) = (2_000, 0.05f64);
        let mut crossed = 0;
        for _ in 0..runs {
            let (mut gained, mut lost) = (0.0, 0.0);
            for _ in 0..500 {
                if random.random::<bool>() {
                    gained += 1.0
                } else {
                    lost += 1.0
                }
                if log_e_value(gained, lost) >= -level.ln() {
                    crossed += 1;
                    break;
                }
            }
        }
        let share = f64::from(crossed) / f64::from(runs);
        assert!(
            share <= level + 3.0 * (level * (1.0 - level) / f64::from(runs)).sqrt(),
            "{share}"
        );
        assert!(
            share > 0.01,
            "a test that never rejects proves nothing: {share}"
        );
    }

    #[test]
    fn levels_sum_to_the_rate_and_grow_with_discoveries() {
        // The sum of 100 000 levels and the integral of the rest.
        let mut state = Discoveries::new(0.05);
        let sum: f64 = state.enter(100_000).iter().map(|test| test.level).sum();
        let rest =
            0.05 / GAMMA_SUM * 100_000.5f64.powf(1.0 - GAMMA_EXPONENT) / (GAMMA_EXPONENT - 1.0);
        assert!((sum + rest - 0.05).abs() < 1e-9, "{}", sum + rest);

        let mut state = Discoveries::new(0.05);
        let first = state.enter(2);
        state.accepted();
        let next = state.enter(1)[0];
        assert_eq!((first[1].number, first[1].discoveries), (2, 0));
        assert_eq!((next.number, next.discoveries), (3, 1));
        let plain = Discoveries::new(0.05).enter(3)[2];
        assert!((next.level - 2.0 * plain.level).abs() < 1e-15);
    }
}
