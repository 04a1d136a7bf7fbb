//! How often the gate accepts what, and what that costs, by simulation.
//!
//! Success rates of problems, an earlier rollout that tells V_in from V_out, and fresh pairs are
//! simulated; plan, contest and levels are the ones a run uses. A patch of effect e moves every
//! problem's success rate p to p + e, cut off at 0 and 1: the mean effect is then smaller than e where
//! rates lie near the end it moves to.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::contest::Contest;
use super::decide::{StageResult, Verdict};
use super::decision::Decision;
use super::evidence::{Counts, Pair};
use super::martingale::{Discoveries, Test};
use super::plan::{Draw, stages};
use super::question::Question;
use crate::config::{GateConfig, GateMode};
use crate::seed::Seed;

/// How the success rates of problems are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rates {
    /// All alike.
    Same(f64),
    /// From the Beta distribution with these shapes.
    Beta(f64, f64),
}

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scene {
    /// The gate's settings; its mode is one of those simulated.
    pub gate: GateConfig,
    /// Success rates of problems under the incumbent.
    pub rates: Rates,
    /// Where everything random starts from.
    pub seed: u64,
}

/// Shares of outcomes over many decisions on patches of one effect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// What the patch adds to each problem's success rate.
    pub effect: f64,
    /// Share accepted.
    pub accepted: f64,
    /// Share rejected.
    pub rejected: f64,
    /// Share that used up its pairs without an answer.
    pub inconclusive: f64,
    /// Mean rollouts of both arms.
    pub rollouts: f64,
}

/// A run with many proposals, over many such runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunCell {
    /// Runs simulated.
    pub runs: u32,
    /// Proposals of a run.
    pub proposals: u32,
    /// Those with an effect.
    pub real: u32,
    /// Their effect.
    pub effect: f64,
    /// Mean share of acceptances that have no effect; 0 for a run without acceptance.
    pub false_discovery_rate: f64,
    /// Mean share of real proposals that are accepted.
    pub found: f64,
    /// Mean rollouts of a proposal, both arms.
    pub rollouts: f64,
}

/// Problems drawn for one decision at most, as a multiple of those wanted: rates at 0 or 1 never fill
/// one of the sides.
const MAX_DRAWN: usize = 200;

/// `decisions` single decisions on patches of one effect, each at `level` in mode `sequential`.
pub fn cell(scene: &Scene, effect: f64, level: f64, decisions: u32) -> Cell {
    let seed = Seed::new(scene.seed).derive("decision");
    let outcomes = parallel(decisions, |number| {
        // The same problems and the same luck for every mode and effect.
        let mut random = ChaCha8Rng::seed_from_u64(seed.derive(number).value());
        let decision = decide(scene, effect, Test::alone(level), &mut random);
        (decision.verdict, f64::from(2 * decision.rollouts))
    });
    let share = |is_counted: fn(&Verdict) -> bool| {
        let count = outcomes
            .iter()
            .filter(|(verdict, _)| is_counted(verdict))
            .count();
        count as f64 / outcomes.len().max(1) as f64
    };
    Cell {
        effect,
        accepted: share(|v| *v == Verdict::Accepted),
        rejected: share(|v| matches!(v, Verdict::Rejected { .. })),
        inconclusive: share(|v| matches!(v, Verdict::Inconclusive { .. })),
        rollouts: mean(outcomes.iter().map(|(_, rollouts)| *rollouts)),
    }
}

/// `runs` runs of `proposals` decisions each, `real` of them (anywhere) with an effect.
pub fn run(scene: &Scene, proposals: u32, real: u32, effect: f64, runs: u32) -> RunCell {
    let seed = Seed::new(scene.seed).derive("run");
    let outcomes = parallel(runs, |number| {
        let mut random = ChaCha8Rng::seed_from_u64(seed.derive(number).value());
        let mut state = Discoveries::new(scene.gate.false_discovery_rate);
        let (mut left, mut right, mut wrong, mut rollouts) =
            (real.min(proposals), 0u32, 0u32, 0u32);
        for number in 0..proposals {
            // Selection sampling: every order of real and idle proposals is equally likely.
            let is_real = random.random_range(0..proposals - number) < left;
            left -= u32::from(is_real);
            let test = state.enter(1)[0];
            let decision = decide(scene, if is_real { effect } else { 0.0 }, test, &mut random);
            rollouts += 2 * decision.rollouts;
            if decision.verdict == Verdict::Accepted {
                state.accepted();
                right += u32::from(is_real);
                wrong += u32::from(!is_real);
            }
        }
        let false_share = f64::from(wrong) / f64::from((right + wrong).max(1));
        let found = f64::from(right) / f64::from(real.max(1));
        (
            false_share,
            found,
            f64::from(rollouts) / f64::from(proposals.max(1)),
        )
    });
    RunCell {
        runs,
        proposals,
        real,
        effect,
        false_discovery_rate: mean(outcomes.iter().map(|o| o.0)),
        found: mean(outcomes.iter().map(|o| o.1)),
        rollouts: mean(outcomes.iter().map(|o| o.2)),
    }
}

/// One decision on one candidate.
fn decide(scene: &Scene, effect: f64, test: Test, random: &mut ChaCha8Rng) -> Decision {
    let gate = &scene.gate;
    let (rates, solved) = problems(scene, random);
    let plan = stages(&solved, gate, false);
    let mut contest = Contest::new(Question::Gain(gate.mode), &plan, vec![test]);
    while let Some(turn) = contest.turn() {
        let stage = &plan[turn.stage];
        let mut side = |draws: &[Draw]| {
            Counts::of(draws.iter().map(|draw| {
                let rate = rates[draw.problem];
                Pair {
                    incumbent: random.random::<f64>() < rate,
                    candidate: random.random::<f64>() < (rate + effect).clamp(0.0, 1.0),
                }
            }))
        };
        let result = StageResult::of(side(&stage.failed), side(&stage.solved));
        contest.record(&turn, &[result]);
    }
    contest.finish().remove(0)
}

/// Success rates of problems and what one earlier rollout of the incumbent made of each: enough of
/// either side for every stage, and no more.
fn problems(scene: &Scene, random: &mut ChaCha8Rng) -> (Vec<f64>, Vec<bool>) {
    let stages = if scene.gate.mode == GateMode::Confirmed {
        2
    } else {
        1
    };
    let wanted = scene.gate.tasks * stages;
    let (mut rates, mut solved) = (Vec::new(), Vec::new());
    let mut missing = [wanted; 2];
    for _ in 0..MAX_DRAWN * wanted {
        let rate = match scene.rates {
            Rates::Same(rate) => rate,
            Rates::Beta(a, b) => {
                let (x, y) = (gamma(a, random), gamma(b, random));
                x / (x + y)
            }
        };
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

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

/// `work(0)` to `work(count - 1)` on all processors; the results don't depend on how many there are.
fn parallel<T: Send>(count: u32, work: impl Fn(u32) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = (count as usize).div_ceil(threads).max(1);
    let numbers: Vec<u32> = (0..count).collect();
    std::thread::scope(|scope| {
        let work = &work;
        let parts: Vec<_> = numbers
            .chunks(share)
            .map(|part| scope.spawn(move || part.iter().map(|n| work(*n)).collect::<Vec<T>>()))
            .collect();
        parts
            .into_iter()
            .flat_map(|part| match part.join() {
                Ok(results) => results,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(mode: GateMode, rates: Rates) -> Scene {
        let gate = GateConfig {
            mode,
            ..GateConfig::default()
        };
        Scene {
            gate,
            rates,
            seed: 0,
        }
    }

    /// Rollouts of both arms on 30 problems a side, 8 samples each.
    const FIXED_DESIGN: f64 = 2.0 * 60.0 * 8.0;

    #[test]
    fn the_sequential_gate_keeps_noise_out_finds_ten_points_and_spends_less_than_a_fixed_design() {
        for rates in [
            Rates::Beta(0.8, 0.8),
            Rates::Same(0.1),
            Rates::Same(0.5),
            Rates::Same(0.9),
        ] {
            let scene = scene(GateMode::Sequential, rates);
            let cell = |effect| cell(&scene, effect, 0.05, 600);
            let cells = [0.0, 0.1, 0.2, 0.4].map(cell);
            assert!(cells[0].accepted <= 0.05, "{rates:?}: {:?}", cells[0]);
            assert!(cell(-0.05).accepted <= 0.01, "{rates:?}");
            assert!(cells[1].accepted >= 0.8, "{rates:?}: {:?}", cells[1]);
            let spent = mean(cells.iter().map(|cell| cell.rollouts));
            assert!(spent <= 0.6 * FIXED_DESIGN, "{rates:?}: {spent}");
        }
    }

    #[test]
    fn the_bare_rule_lets_a_quarter_of_idle_patches_through_and_a_second_stage_most_of_them_out() {
        let idle = |mode| cell(&scene(mode, Rates::Beta(0.8, 0.8)), 0.0, 0.05, 2_000).accepted;
        let (once, twice) = (idle(GateMode::Paper), idle(GateMode::Confirmed));
        assert!((0.2..0.3).contains(&once), "{once}");
        assert!((0.03..0.1).contains(&twice), "{twice}");
    }

    #[test]
    fn a_run_of_many_proposals_finds_the_real_ones_and_few_others() {
        let scene = scene(GateMode::Sequential, Rates::Beta(0.8, 0.8));
        let run = run(&scene, 200, 20, 0.2, 10);
        assert!(run.false_discovery_rate <= 0.05, "{run:?}");
        assert!(run.found >= 0.95, "{run:?}");
    }

    #[test]
    fn shares_add_up_and_do_not_depend_on_the_number_of_threads() {
        let scene = scene(GateMode::Sequential, Rates::Beta(2.0, 1.0));
        let cell = cell(&scene, 0.1, 0.05, 64);
        assert!((cell.accepted + cell.rejected + cell.inconclusive - 1.0).abs() < 1e-12);
        let alone: Vec<u32> = (0..5).collect();
        assert_eq!(parallel(5, |n| n), alone);
        assert!(parallel(0, |n| n).is_empty());
    }

    #[test]
    fn rates_have_the_mean_and_spread_of_their_distribution_before_they_are_sorted_into_sides() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let (a, b) = (0.8, 2.0);
        let draws: Vec<f64> = (0..20_000)
            .map(|_| {
                let (x, y) = (gamma(a, &mut random), gamma(b, &mut random));
                x / (x + y)
            })
            .collect();
        let centre = mean(draws.iter().copied());
        let variance = mean(draws.iter().map(|x| (x - centre).powi(2)));
        assert!((centre - a / (a + b)).abs() < 0.01, "{centre}");
        assert!(
            (variance - a * b / ((a + b).powi(2) * (a + b + 1.0))).abs() < 0.005,
            "{variance}"
        );
    }

    #[test]
    fn problems_that_are_never_solved_leave_v_out_empty_instead_of_searching_for_ever() {
        let scene = scene(GateMode::Sequential, Rates::Same(0.0));
        let cell = cell(&scene, 0.4, 0.05, 8);
        assert!(cell.accepted > 0.5, "{cell:?}");
    }
}
