//! Decisions as a run makes them, on simulated rollouts.

use rand_chacha::ChaCha8Rng;

use super::super::contest::Contest;
use super::super::decide::{StageResult, Verdict};
use super::super::decision::Decision;
use super::super::evidence::Counts;
use super::super::loss::{Tolerance, Watch};
use super::super::martingale::Test;
use super::super::plan::{Stage, looks_at_all, stages};
use super::super::question::Question;
use super::Scene;
use super::scene::{Luck, Problem};

/// How a cycle, or a look at a loss, ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    Accepted,
    Rejected,
    Inconclusive,
}

impl End {
    /// Of the decisions on all candidates of a cycle, of which at most one is accepted.
    fn of(decisions: &[Decision]) -> Self {
        let is_accepted = |decision: &Decision| decision.verdict == Verdict::Accepted;
        let is_rejected =
            |decision: &Decision| matches!(decision.verdict, Verdict::Rejected { .. });
        if decisions.iter().any(is_accepted) {
            End::Accepted
        } else if decisions.iter().all(is_rejected) {
            End::Rejected
        } else {
            End::Inconclusive
        }
    }
}

/// A cycle of patches, one for each of `tests`: how it ended, and the rollouts of all arms. Its effects are
/// those on problems that the incumbent failed before, and on those it solved.
pub(super) fn gain(
    scene: &Scene,
    effects: [f64; 2],
    tests: Vec<Test>,
    random: &mut ChaCha8Rng,
) -> (End, u32) {
    let (rates, solved) = scene.classified(random);
    let plan = stages(&solved, &scene.gate, scene.is_greedy);
    let problems = rates.iter().zip(&solved);
    let problems: Vec<Problem> = problems
        .map(|(rate, is_solved)| Problem::of(*rate, effects[usize::from(*is_solved)]))
        .collect();
    let contest = Contest::new(Question::Gain(scene.gate.mode), &plan, tests);
    compete(scene, &problems, &plan, contest, random)
}

/// The same of removals, measured on so many problems.
pub(super) fn removal(
    scene: &Scene,
    problems: usize,
    effect: f64,
    tests: Vec<Test>,
    random: &mut ChaCha8Rng,
) -> (End, u32) {
    let problems = changed(&scene.all(problems, random), effect);
    let plan = looks_at_all(problems.len(), &scene.gate, scene.is_greedy);
    let question = Question::Harmless(scene.gate.retest_margin_points / 100.0);
    let contest = Contest::new(question, &plan, tests);
    compete(scene, &problems, &plan, contest, random)
}

/// Problems of these success rates, with the same effect on each.
fn changed(rates: &[f64], effect: f64) -> Vec<Problem> {
    let rates = rates.iter();
    rates.map(|rate| Problem::of(*rate, effect)).collect()
}

/// Roll out what a contest asks for until it has decided. One arm of the incumbent serves all candidates,
/// also those that come to a stage after others.
fn compete(
    scene: &Scene,
    problems: &[Problem],
    plan: &[Stage],
    mut contest: Contest,
    random: &mut ChaCha8Rng,
) -> (End, u32) {
    let mut incumbent: Vec<Vec<Luck>> = vec![Vec::new(); plan.len()];
    while let Some(turn) = contest.turn() {
        let (stage, arm) = (&plan[turn.stage], &mut incumbent[turn.stage]);
        let mut seen = vec![[Counts::default(); 2]; turn.candidates.len()];
        for (number, draw) in stage.draws().enumerate() {
            if number == arm.len() {
                arm.push(scene.luck(random));
            }
            let side = usize::from(number >= stage.failed.len());
            for counts in &mut seen {
                let pair = scene.pair(problems[draw.problem], arm[number], random);
                counts[side] = counts[side] + Counts::of([pair]);
            }
        }
        let results = seen.into_iter();
        let results: Vec<StageResult> = results
            .map(|[failed, solved]| StageResult::of(failed, solved))
            .collect();
        contest.record(&turn, &results);
    }
    let decisions = contest.finish();
    let of_candidates: u32 = decisions.iter().map(|decision| decision.rollouts).sum();
    let of_incumbent: usize = incumbent.iter().map(Vec::len).sum();
    let of_incumbent = u32::try_from(of_incumbent).unwrap_or(u32::MAX);
    (
        End::of(&decisions),
        of_candidates.saturating_add(of_incumbent),
    )
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
    let problems = changed(&scene.all(problems, random), effect);
    let mut watch = Watch::new(tolerance);
    let (mut pairs, mut is_suspected) = (0, false);
    // Another pass would be of the same rollouts.
    let passes = if scene.is_greedy { 1 } else { passes };
    for _ in 0..passes {
        let pass = problems.iter().map(|problem| {
            let luck = scene.luck(random);
            scene.pair(*problem, luck, random)
        });
        let pass = Counts::of(pass);
        pairs += pass.pairs + pass.undecided;
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

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::seq::SliceRandom;

    use super::*;
    use crate::config::GateMode;
    use crate::gate::simulate::Rates;
    use crate::gate::simulate::tests::scene;

    /// A look takes a part of such a side, and the problems that gain may come first.
    #[test]
    fn what_helps_half_of_a_large_side_and_hurts_the_other_half_isnt_taken_for_a_gain() {
        let mut random = ChaCha8Rng::seed_from_u64(8);
        let scene = scene(GateMode::Sequential, Rates::Same(0.5));
        let decisions = 600;
        for count in [60, 90] {
            let plan = stages(&vec![false; count], &scene.gate, false);
            let mut problems: Vec<Problem> = (0..count)
                .map(|i| Problem::of(0.5, if i % 2 == 0 { 0.4 } else { -0.4 }))
                .collect();
            let mut is_accepted = || {
                problems.shuffle(&mut random);
                let question = Question::Gain(GateMode::Sequential);
                let contest = Contest::new(question, &plan, vec![Test::alone(0.05)]);
                compete(&scene, &problems, &plan, contest, &mut random).0 == End::Accepted
            };
            let accepted = (0..decisions).filter(|_| is_accepted()).count();
            assert!(accepted as f64 <= 0.05 * f64::from(decisions), "{accepted}");
        }
    }
}
