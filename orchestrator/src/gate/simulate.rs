//! How often the gate accepts what, and what that costs, by simulation.
//!
//! Success rates of problems, an earlier rollout that tells V_in from V_out, and fresh pairs are
//! simulated ([`scene`]); plans, contests, looks at losses and levels are the ones a run uses
//! ([`decision`]). A change of effect e moves every problem's success rate p to p + e, cut off at 0 and 1: the
//! mean effect is then smaller than e where rates lie near the end it moves to.

mod decision;
mod scene;
mod threads;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use self::decision::{End, gain, loss, removal};
use self::threads::parallel;
use super::loss::Tolerance;
use super::martingale::{Discoveries, Test};
use crate::seed::Seed;

pub use self::scene::{Rates, Scene};

/// What is decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Case {
    /// Whether patches gain, or weights do, in the gate's mode; in mode `sequential` at this level.
    Gain {
        /// αₜ of each.
        level: f64,
        /// Candidates of a cycle, beside one arm of the incumbent.
        candidates: usize,
        /// What they add to problems that the incumbent's earlier rollout solved, where that isn't the effect.
        effect_out: Option<f64>,
    },
    /// Whether the removals of patches lose less than the gate's margin.
    Removal {
        /// All gate problems.
        problems: usize,
        /// αₜ of each.
        level: f64,
        /// Candidates, beside one arm of the incumbent.
        candidates: usize,
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

/// Shares of outcomes over many decisions, or cycles of several candidates, on changes of one effect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// What the change adds to each problem's success rate, or to that of V_in's alone.
    pub effect: f64,
    /// Share accepted, or share of the cycles in which one candidate is; of looks at losses, share without a
    /// sign of too large a loss.
    pub accepted: f64,
    /// Share rejected, or share of the cycles in which all candidates are; of looks at losses, share in which
    /// such a loss is shown.
    pub rejected: f64,
    /// Share that used up its pairs without an answer.
    pub inconclusive: f64,
    /// Mean rollouts of all arms.
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

/// `decisions` decisions that stand alone, or cycles, on changes of one effect.
pub fn cell(scene: &Scene, case: Case, effect: f64, decisions: u32) -> Cell {
    let seed = Seed::new(scene.seed).derive("decision");
    let outcomes = parallel(decisions, |number| {
        // The same problems and the same luck for every mode and effect.
        let mut random = ChaCha8Rng::seed_from_u64(seed.derive(number).value());
        let random = &mut random;
        match case {
            Case::Gain {
                level,
                candidates,
                effect_out,
            } => {
                let effects = [effect, effect_out.unwrap_or(effect)];
                gain(scene, effects, vec![Test::alone(level); candidates], random)
            }
            Case::Removal {
                problems,
                level,
                candidates,
            } => {
                let tests = vec![Test::alone(level); candidates];
                removal(scene, problems, effect, tests, random)
            }
            Case::Loss {
                problems,
                passes,
                tolerance,
            } => loss(scene, problems, passes, tolerance, effect, random),
        }
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
            let effects = [if is_real { effect } else { 0.0 }; 2];
            let mut next = state;
            let (end, spent) = gain(scene, effects, next.enter(1), &mut random);
            // As in a run, what there is nothing to measure on takes no level.
            if spent > 0 {
                state = next;
            }
            rollouts += spent;
            if end == End::Accepted {
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

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

#[cfg(test)]
mod tests;
