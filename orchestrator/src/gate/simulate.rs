//! How often the gate accepts what, and what that costs, by simulation.
//!
//! Success rates of problems, an earlier rollout that tells V_in from V_out, and fresh pairs are
//! simulated ([`scene`]); plans, contests, looks at losses and levels are the ones a run uses. A change of
//! effect e moves every problem's success rate p to p + e, cut off at 0 and 1: the mean effect is then
//! smaller than e where rates lie near the end it moves to.

mod scene;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::contest::Contest;
use super::decide::{StageResult, Verdict};
use super::decision::Decision;
use super::evidence::Counts;
use super::loss::{Tolerance, Watch};
use super::martingale::{Discoveries, Test};
use super::plan::{Draw, Stage, looks_at_all, stages};
use super::question::Question;
use crate::seed::Seed;

pub use self::scene::{Rates, Scene};

/// What is decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Case {
    /// Whether a patch gains, or weights do, in the gate's mode; in mode `sequential` at this level.
    Gain {
        /// αₜ.
        level: f64,
    },
    /// Whether the removal of a patch loses less than the gate's margin.
    Removal {
        /// All gate problems.
        problems: usize,
        /// αₜ.
        level: f64,
    },
    /// Whether a later arm has lost more than is tolerated against an earlier one: a retention suite, or
    /// a reference.
    Loss {
        /// Problems of a pass.
        problems: usize,
        /// Passes at most.
        passes: u32,
        /// What is tolerated.
        tolerance: Tolerance,
    },
}

/// Shares of outcomes over many decisions on changes of one effect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// What the change adds to each problem's success rate.
    pub effect: f64,
    /// Share accepted; of looks at losses, share without a sign of too large a loss.
    pub accepted: f64,
    /// Share rejected; of looks at losses, share in which such a loss is shown.
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

/// How a decision ended.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Accepted,
    Rejected,
    Inconclusive,
}

impl End {
    fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Accepted => End::Accepted,
            Verdict::Rejected { .. } => End::Rejected,
            // A single candidate gives way to no other.
            Verdict::Inconclusive { .. } | Verdict::Deferred => End::Inconclusive,
        }
    }
}

/// `decisions` single decisions on changes of one effect.
pub fn cell(scene: &Scene, case: Case, effect: f64, decisions: u32) -> Cell {
    let seed = Seed::new(scene.seed).derive("decision");
    let outcomes = parallel(decisions, |number| {
        // The same problems and the same luck for every mode and effect.
        let mut random = ChaCha8Rng::seed_from_u64(seed.derive(number).value());
        let random = &mut random;
        let decision = match case {
            Case::Gain { level } => gain(scene, effect, Test::alone(level), random),
            Case::Removal { problems, level } => {
                removal(scene, problems, effect, Test::alone(level), random)
            }
            Case::Loss {
                problems,
                passes,
                tolerance,
            } => return loss(scene, problems, passes, tolerance, effect, random),
        };
        (End::of(&decision.verdict), 2 * decision.rollouts)
    });
    let share = |end: End| {
        let count = outcomes.iter().filter(|outcome| outcome.0 == end).count();
        count as f64 / outcomes.len().max(1) as f64
    };
    Cell {
        effect,
        accepted: share(End::Accepted),
        rejected: share(End::Rejected),
        inconclusive: share(End::Inconclusive),
        rollouts: mean(outcomes.iter().map(|(_, rollouts)| f64::from(*rollouts))),
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
            let decision = gain(scene, if is_real { effect } else { 0.0 }, test, &mut random);
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

/// One decision on a patch.
fn gain(scene: &Scene, effect: f64, test: Test, random: &mut ChaCha8Rng) -> Decision {
    let (rates, solved) = scene.classified(random);
    let plan = stages(&solved, &scene.gate, false);
    let question = Question::Gain(scene.gate.mode);
    decide(scene, &rates, &plan, question, test, effect, random)
}

/// One decision on a removal, measured on so many problems.
fn removal(
    scene: &Scene,
    problems: usize,
    effect: f64,
    test: Test,
    random: &mut ChaCha8Rng,
) -> Decision {
    let rates = scene.all(problems, random);
    let plan = looks_at_all(problems, &scene.gate, false);
    let question = Question::Harmless(scene.gate.retest_margin_points / 100.0);
    decide(scene, &rates, &plan, question, test, effect, random)
}

/// A contest of one candidate over problems of these rates.
fn decide(
    scene: &Scene,
    rates: &[f64],
    plan: &[Stage],
    question: Question,
    test: Test,
    effect: f64,
    random: &mut ChaCha8Rng,
) -> Decision {
    let mut contest = Contest::new(question, plan, vec![test]);
    while let Some(turn) = contest.turn() {
        let stage = &plan[turn.stage];
        let mut side = |draws: &[Draw]| {
            let pair = |draw: &Draw| scene.pair(rates[draw.problem], effect, random);
            Counts::of(draws.iter().map(pair))
        };
        let result = StageResult::of(side(&stage.failed), side(&stage.solved));
        contest.record(&turn, &[result]);
    }
    contest.finish().remove(0)
}

/// One look whether a later arm has lost too much, and the rollouts of both.
fn loss(
    scene: &Scene,
    problems: usize,
    passes: u32,
    tolerance: Tolerance,
    effect: f64,
    random: &mut ChaCha8Rng,
) -> (End, u32) {
    let rates = scene.all(problems, random);
    let mut watch = Watch::new(tolerance);
    let (mut pairs, mut is_suspected) = (0, false);
    for _ in 0..passes {
        let pass = Counts::of(rates.iter().map(|rate| scene.pair(*rate, effect, random)));
        pairs += pass.pairs;
        is_suspected = watch.record(pass);
        if !is_suspected {
            break;
        }
    }
    let end = match (watch.finish().is_shown, is_suspected) {
        (true, _) => End::Rejected,
        (false, true) => End::Inconclusive,
        (false, false) => End::Accepted,
    };
    (end, 2 * pairs)
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
    use crate::config::{GateConfig, GateMode};

    const ALONE: Case = Case::Gain { level: 0.05 };

    fn scene(mode: GateMode, rates: Rates) -> Scene {
        let gate = GateConfig {
            mode,
            ..GateConfig::default()
        };
        Scene {
            gate,
            rates,
            alike: 0.0,
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
            let cell = |effect| cell(&scene, ALONE, effect, 600);
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
        let idle = |mode| cell(&scene(mode, Rates::Beta(0.8, 0.8)), ALONE, 0.0, 2_000).accepted;
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

    /// Exactly the margin, which is the hardest loss to tell, is at most rarely let go of, and the more
    /// the arms share their luck, the surer is what nobody misses.
    #[test]
    fn what_is_missed_stays_and_what_nobody_misses_goes() {
        let case = Case::Removal {
            problems: 60,
            level: 0.05,
        };
        for rates in [Rates::Same(0.5), Rates::Same(0.8)] {
            for (alike, least) in [(0.0, 0.1), (0.5, 0.5), (0.8, 0.65), (1.0, 1.0)] {
                let scene = Scene {
                    alike,
                    ..scene(GateMode::Sequential, rates)
                };
                let cell = |effect| cell(&scene, case, effect, 400);
                let margin = cell(-0.05);
                assert!(margin.accepted <= 0.05, "{rates:?} {alike}: {margin:?}");
                let idle = cell(0.0);
                assert!(idle.accepted >= least, "{rates:?} {alike}: {idle:?}");
                // One that many miss is seen in the first look or two, and one that does harm goes.
                let missed = cell(-0.2);
                assert!(missed.rejected > 0.99, "{rates:?} {alike}: {missed:?}");
                assert!(missed.rollouts < 200.0, "{rates:?} {alike}: {missed:?}");
                let harmful = cell(0.1);
                assert!(harmful.accepted > 0.95, "{rates:?} {alike}: {harmful:?}");
            }
        }
    }

    #[test]
    fn what_is_tolerated_is_hardly_ever_called_a_loss_and_a_collapse_always_is() {
        let cell = |rate, effect, problems, margin| {
            let case = Case::Loss {
                problems,
                passes: 4,
                tolerance: Tolerance::shared(margin, 1),
            };
            cell(
                &scene(GateMode::Sequential, Rates::Same(rate)),
                case,
                effect,
                1_500,
            )
        };
        for rate in [0.3, 0.6, 0.9] {
            for effect in [0.1, 0.0, -0.05] {
                let cell = cell(rate, effect, 100, 0.05);
                assert!(cell.rejected <= 0.05, "{rate}: {cell:?}");
                assert!(cell.rollouts < 600.0, "{rate}: {cell:?}");
            }
        }
        let large = cell(0.6, -0.2, 100, 0.05);
        assert!(large.rejected > 0.8, "{large:?}");
        // From 94% to 32%, as it has happened: the first pass over few problems is enough.
        let collapse = cell(0.94, -0.62, 30, 0.05);
        assert!(
            collapse.rejected > 0.99 && collapse.rollouts < 72.0,
            "{collapse:?}"
        );
        // Without a tolerance, as for references.
        assert!(cell(0.5, 0.0, 80, 0.0).rejected <= 0.05);
        assert!(cell(0.5, -0.15, 80, 0.0).rejected > 0.6);
    }

    #[test]
    fn shares_add_up_and_do_not_depend_on_the_number_of_threads() {
        let scene = scene(GateMode::Sequential, Rates::Beta(2.0, 1.0));
        let cases = [
            ALONE,
            Case::Removal {
                problems: 40,
                level: 0.05,
            },
            Case::Loss {
                problems: 40,
                passes: 2,
                tolerance: Tolerance::shared(0.02, 2),
            },
        ];
        for case in cases {
            let cell = cell(&scene, case, -0.1, 64);
            let sum = cell.accepted + cell.rejected + cell.inconclusive;
            assert!((sum - 1.0).abs() < 1e-12, "{cell:?}");
        }
        let alone: Vec<u32> = (0..5).collect();
        assert_eq!(parallel(5, |n| n), alone);
        assert!(parallel(0, |n| n).is_empty());
    }

    #[test]
    fn problems_that_are_never_solved_leave_v_out_empty_instead_of_searching_for_ever() {
        let scene = scene(GateMode::Sequential, Rates::Same(0.0));
        let cell = cell(&scene, ALONE, 0.4, 8);
        assert!(cell.accepted > 0.5, "{cell:?}");
    }
}
