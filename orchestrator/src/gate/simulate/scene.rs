//! What is simulated: problems with success rates, an earlier rollout that tells them apart, pairs.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::super::evidence::{Outcome, Pair};
use crate::config::{GateConfig, GateMode};

/// How the success rates of problems are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rates {
    /// All alike.
    Same(f64),
    /// From the Beta distribution with these shapes.
    Beta(f64, f64),
}

impl Rates {
    /// One problem's rate.
    fn draw(self, random: &mut ChaCha8Rng) -> f64 {
        match self {
            Rates::Same(rate) => rate,
            Rates::Beta(a, b) => {
                let (x, y) = (gamma(a, random), gamma(b, random));
                x / (x + y)
            }
        }
    }
}

/// A problem's success rates under incumbent and candidates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Problem {
    before: f64,
    after: f64,
}

impl Problem {
    /// One of this success rate, to which candidates add `effect`.
    pub(super) fn of(rate: f64, effect: f64) -> Self {
        Self {
            before: rate,
            after: (rate + effect).clamp(0.0, 1.0),
        }
    }
}

/// What chance makes of one rollout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Luck {
    /// It solves a problem whose success rate is above this.
    success: f64,
    is_undecided: bool,
}

impl Luck {
    /// What the rollout comes to on a problem of this success rate.
    fn outcome(self, rate: f64) -> Outcome {
        match self.is_undecided {
            true => Outcome::Undecided,
            false => Outcome::decided(self.success < rate),
        }
    }
}

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scene {
    /// The gate's settings; its mode is one of those simulated.
    pub gate: GateConfig,
    /// Success rates of problems under the incumbent.
    pub rates: Rates,
    /// Gate problems in all, of which the earlier rollout makes the sides; without this both are filled with
    /// as many as the stages take.
    pub pool: Option<usize>,
    /// Whether both arms decode greedily: a problem has one rollout under each, which solves it with the
    /// chance that is its success rate. The earlier rollout is sampled, as in a run.
    pub is_greedy: bool,
    /// Share of the rollouts, of either arm and of the earlier ones, that the verifier can't decide.
    pub undecided: f64,
    /// Share of the pairs whose arms have the same luck, as common seeds give it where a change doesn't
    /// reach: they differ by the effect alone. The arms of the others are independent.
    pub alike: f64,
    /// Where everything random starts from.
    pub seed: u64,
}

/// Problems drawn for one decision at most, as a multiple of those wanted: rates at 0 or 1 never fill
/// one of the sides.
const MAX_DRAWN: usize = 200;

impl Scene {
    /// What chance makes of a rollout.
    pub(super) fn luck(&self, random: &mut ChaCha8Rng) -> Luck {
        Luck {
            success: random.random(),
            is_undecided: self.undecided > 0.0 && random.random::<f64>() < self.undecided,
        }
    }

    /// A pair on a problem, of a candidate and the incumbent's rollout, whose luck is known.
    pub(super) fn pair(&self, problem: Problem, luck: Luck, random: &mut ChaCha8Rng) -> Pair {
        let is_alike = self.alike > 0.0 && random.random::<f64>() < self.alike;
        let other = match is_alike {
            true => luck,
            false => self.luck(random),
        };
        Pair {
            incumbent: luck.outcome(problem.before),
            candidate: other.outcome(problem.after),
        }
    }

    /// Success rates of so many problems.
    pub(super) fn all(&self, problems: usize, random: &mut ChaCha8Rng) -> Vec<f64> {
        (0..problems).map(|_| self.rates.draw(random)).collect()
    }

    /// Success rates of problems and what one earlier rollout of the incumbent made of each. Those of which it
    /// is undecided are on no side.
    pub(super) fn classified(&self, random: &mut ChaCha8Rng) -> (Vec<f64>, Vec<bool>) {
        match self.pool {
            Some(problems) => self.all_classified(problems, random),
            None => self.filled(random),
        }
    }

    /// Of so many problems, however many are solved.
    fn all_classified(&self, problems: usize, random: &mut ChaCha8Rng) -> (Vec<f64>, Vec<bool>) {
        let rates = self.all(problems, random).into_iter();
        let classified = rates.filter_map(|rate| match self.luck(random).outcome(rate) {
            Outcome::Undecided => None,
            outcome => Some((rate, outcome == Outcome::Solved)),
        });
        classified.unzip()
    }

    /// Of enough problems of either side for every stage, and no more.
    fn filled(&self, random: &mut ChaCha8Rng) -> (Vec<f64>, Vec<bool>) {
        let stages = if self.gate.mode == GateMode::Confirmed {
            2
        } else {
            1
        };
        let wanted = self.gate.tasks * stages;
        let (mut rates, mut solved) = (Vec::new(), Vec::new());
        let mut missing = [wanted; 2];
        for _ in 0..MAX_DRAWN * wanted {
            let rate = self.rates.draw(random);
            let is_solved = random.random::<f64>() < rate;
            let side = &mut missing[usize::from(is_solved)];
            if *side > 0 {
                *side -= 1;
                rates.push(rate);
                solved.push(is_solved);
            }
            if missing == [0, 0] {
                break;
            }
        }
        (rates, solved)
    }
}

/// A draw from the gamma distribution of this shape and scale 1 (Marsaglia and Tsang, "A simple method
/// for generating gamma variables", ACM TOMS 2000).
fn gamma(shape: f64, random: &mut ChaCha8Rng) -> f64 {
    if shape < 1.0 {
        let boost = (1.0 - random.random::<f64>()).powf(1.0 / shape);
        return gamma(shape + 1.0, random) * boost;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        // Box and Muller's normal draw.
        let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
        let x = radius * (std::f64::consts::TAU * random.random::<f64>()).cos();
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 {
            let u = 1.0 - random.random::<f64>();
            if u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::super::super::evidence::Counts;
    use super::*;
    use crate::gate::simulate::tests::scene;

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn rates_have_the_mean_and_spread_of_their_distribution_before_they_are_sorted_into_sides() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let (a, b) = (0.8, 2.0);
        let draws: Vec<f64> = (0..20_000)
            .map(|_| Rates::Beta(a, b).draw(&mut random))
            .collect();
        let centre = mean(&draws);
        let squares: Vec<f64> = draws.iter().map(|x| (x - centre).powi(2)).collect();
        let variance = mean(&squares);
        assert!((centre - a / (a + b)).abs() < 0.01, "{centre}");
        assert!(
            (variance - a * b / ((a + b).powi(2) * (a + b + 1.0))).abs() < 0.005,
            "{variance}"
        );
    }

    #[test]
    fn the_sides_of_a_pool_are_as_large_as_its_rates_make_them() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let scene = Scene {
            pool: Some(2_000),
            ..scene(GateMode::Sequential, Rates::Same(0.9))
        };
        let mut sides = |undecided: f64| {
            let scene = Scene { undecided, ..scene };
            let (rates, solved) = scene.classified(&mut random);
            assert_eq!(rates.len(), solved.len());
            let of_out = solved.iter().filter(|is_solved| **is_solved).count();
            [solved.len() - of_out, of_out]
        };
        let [failed, solved] = sides(0.0);
        assert_eq!(failed + solved, 2_000);
        assert!((1_700..1_900).contains(&solved), "{solved}");
        // What is undecided is on neither.
        let [failed, solved] = sides(0.5);
        assert!((900..1_100).contains(&(failed + solved)));
        assert!((800..1_000).contains(&solved), "{solved}");
    }

    #[test]
    fn arms_with_the_same_luck_differ_by_the_effect_and_others_by_chance_too() {
        let mut random = ChaCha8Rng::seed_from_u64(6);
        let mut counts = |alike: f64, effect: f64| {
            let scene = Scene {
                alike,
                ..scene(GateMode::Sequential, Rates::Same(0.5))
            };
            let problem = Problem::of(0.5, effect);
            Counts::of((0..20_000).map(|_| {
                let luck = scene.luck(&mut random);
                scene.pair(problem, luck, &mut random)
            }))
        };
        let share = |count: u32| f64::from(count) / 20_000.0;
        // Of independent arms at 0.5 a quarter differs either way.
        let all = counts(0.0, 0.0);
        assert!((share(all.gained) - 0.25).abs() < 0.015 && (share(all.lost) - 0.25).abs() < 0.015);
        let some = counts(0.8, 0.0);
        assert!((share(some.gained + some.lost) - 0.1).abs() < 0.015);
        let none = counts(1.0, -0.2);
        assert_eq!(none.gained, 0);
        assert!((share(none.lost) - 0.2).abs() < 0.015);
    }
}
