//! One decision as a run makes it, on simulated rollouts.

use rand_chacha::ChaCha8Rng;

use super::super::contest::Contest;
use super::super::decide::{StageResult, Verdict};
use super::super::decision::Decision;
use super::super::evidence::Counts;
use super::super::loss::{Tolerance, Watch};
use super::super::martingale::Test;
use super::super::plan::{Draw, Stage, looks_at_all, stages};
use super::super::question::Question;
use super::Scene;

/// How a decision ended.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum End {
    Accepted,
    Rejected,
    Inconclusive,
}

impl End {
    pub(super) fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Accepted => End::Accepted,
            Verdict::Rejected { .. } => End::Rejected,
            // A single candidate gives way to no other.
            Verdict::Inconclusive { .. } | Verdict::Deferred => End::Inconclusive,
        }
    }
}

/// One decision on a patch.
pub(super) fn gain(scene: &Scene, effect: f64, test: Test, random: &mut ChaCha8Rng) -> Decision {
    let (rates, solved) = scene.classified(random);
    let plan = stages(&solved, &scene.gate, false);
    let question = Question::Gain(scene.gate.mode);
    decide(scene, &rates, &plan, question, test, effect, random)
}

/// One decision on a removal, measured on so many problems.
pub(super) fn removal(
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
pub(super) fn loss(
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
