//! Which problems a decision uses, how often, and in which batches.
//!
//! A plan is made of indices of problems; seeds come later ([`super::measure`]) or never
//! ([`super::simulate`]).

use crate::config::{GateConfig, GateMode};

/// Most samples of one problem in a stage of the fixed modes, where a side has few problems.
const MAX_FIXED_SAMPLES: usize = 4;

/// Fewest problems that the incumbent solved that make a side of their own. With fewer, one problem
/// that it solved by luck could hold up every change for good; they are V_in's then, where losing them
/// counts against what is gained.
pub const LEAST_SOLVED: usize = 5;

/// One pair: a problem and which sample of it, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Draw {
    /// Index of the problem.
    pub problem: usize,
    /// Number of the sample.
    pub sample: usize,
}

/// Pairs that are made before the next look: on problems the incumbent failed, and on those it solved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// V_in.
    pub failed: Vec<Draw>,
    /// V_out.
    pub solved: Vec<Draw>,
}

impl Stage {
    /// All pairs, V_in first.
    pub fn draws(&self) -> impl Iterator<Item = Draw> {
        self.failed.iter().chain(&self.solved).copied()
    }
}

/// Stages of a decision on problems whose earlier outcomes are `solved`.
///
/// Mode `paper` has one stage, `confirmed` two that share no problem; a side with fewer problems than
/// `gate.tasks` samples each several times. In mode `sequential` stages are looks: each takes the next
/// `gate.tasks` problems of either side in turn, or all of a side that has fewer, and begins again with new
/// samples when a side is through, until there were `gate.max_samples` looks. Greedy decoding gives the
/// same reply every time, so there each problem is used once.
pub fn stages(solved: &[bool], gate: &GateConfig, is_greedy: bool) -> Vec<Stage> {
    let has_out = has_out(solved);
    let side = |wanted: bool| -> Vec<usize> {
        (0..solved.len())
            .filter(|i| (solved[*i] && has_out) == wanted)
            .collect()
    };
    let deal = |wanted: bool| {
        let problems = side(wanted);
        match gate.mode {
            GateMode::Paper => fixed(&problems, 1, gate.tasks, is_greedy),
            GateMode::Confirmed => fixed(&problems, 2, gate.tasks, is_greedy),
            GateMode::Sequential => looks(&problems, gate, is_greedy),
        }
    };
    let (mut failed, mut solved) = (deal(false).into_iter(), deal(true).into_iter());
    let mut stages = Vec::new();
    loop {
        match (failed.next(), solved.next()) {
            (None, None) => return stages,
            (failed, solved) => stages.push(Stage {
                failed: failed.unwrap_or_default(),
                solved: solved.unwrap_or_default(),
            }),
        }
    }
}

/// Whether what was solved is a side of its own.
fn has_out(solved: &[bool]) -> bool {
    solved.iter().filter(|is_solved| **is_solved).count() >= LEAST_SOLVED
}

/// Share of the problems that are V_in's; 1 without any.
pub fn share_in(solved: &[bool]) -> f64 {
    if !has_out(solved) {
        return 1.0;
    }
    let failed = solved.iter().filter(|is_solved| !**is_solved).count();
    failed as f64 / solved.len() as f64
}

/// One side of `count` stages that share no problem: problems are dealt to them in turn.
fn fixed(problems: &[usize], count: usize, per_side: usize, is_greedy: bool) -> Vec<Vec<Draw>> {
    (0..count)
        .map(|stage| {
            let dealt: Vec<usize> = problems
                .iter()
                .copied()
                .skip(stage)
                .step_by(count)
                .take(per_side)
                .collect();
            let most = if is_greedy { 1 } else { MAX_FIXED_SAMPLES };
            let samples = (per_side / dealt.len().max(1)).clamp(1, most);
            (0..samples)
                .flat_map(|sample| dealt.iter().map(move |&problem| Draw { problem, sample }))
                .collect()
        })
        .collect()
}

/// Looks at all of `problems` problems alike, each at as many as both sides of a decision have: a whole
/// pass, or the next ones in turn. All are V_out's.
pub fn looks_at_all(problems: usize, gate: &GateConfig, is_greedy: bool) -> Vec<Stage> {
    let both_sides = GateConfig {
        tasks: 2 * gate.tasks,
        ..*gate
    };
    let all: Vec<usize> = (0..problems).collect();
    let look = |solved| Stage {
        failed: Vec::new(),
        solved,
    };
    let looks = looks(&all, &both_sides, is_greedy);
    looks.into_iter().map(look).collect()
}

/// One side of the looks of mode `sequential`.
fn looks(problems: &[usize], gate: &GateConfig, is_greedy: bool) -> Vec<Vec<Draw>> {
    if problems.is_empty() {
        return Vec::new();
    }
    let size = gate.tasks.min(problems.len());
    let most = size * gate.max_samples;
    let pairs = if is_greedy {
        most.min(problems.len())
    } else {
        most
    };
    let draws: Vec<Draw> = (0..pairs)
        .map(|pair| Draw {
            problem: problems[pair % problems.len()],
            sample: pair / problems.len(),
        })
        .collect();
    draws.chunks(size).map(<[Draw]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn gate(mode: GateMode, tasks: usize, max_samples: usize) -> GateConfig {
        GateConfig {
            mode,
            tasks,
            max_samples,
            ..GateConfig::default()
        }
    }

    fn outcomes(failed: usize, solved: usize) -> Vec<bool> {
        (0..failed + solved).map(|i| i >= failed).collect()
    }

    #[test]
    fn confirming_stages_share_no_problem() {
        let stages = stages(&outcomes(50, 20), &gate(GateMode::Confirmed, 16, 16), false);
        let problems =
            |stage: &Stage| -> BTreeSet<usize> { stage.draws().map(|d| d.problem).collect() };
        assert_eq!(stages.len(), 2);
        assert!(problems(&stages[0]).is_disjoint(&problems(&stages[1])));
        assert_eq!((stages[0].failed.len(), stages[0].solved.len()), (16, 10));
    }

    #[test]
    fn few_problems_are_sampled_more_often_and_none_give_an_empty_side() {
        let mode = gate(GateMode::Confirmed, 16, 16);
        let stages = stages(&outcomes(40, 6), &mode, false);
        assert_eq!(stages[0].solved.len(), 12, "3 problems, 4 samples each");
        assert_eq!(
            super::stages(&outcomes(40, 6), &mode, true)[0].solved.len(),
            3
        );
        let paper = super::stages(&outcomes(40, 0), &gate(GateMode::Paper, 16, 16), false);
        assert!(paper[0].solved.is_empty() && paper.len() == 1);
    }

    #[test]
    fn a_handful_of_solved_problems_is_no_side_of_its_own() {
        for mode in [GateMode::Paper, GateMode::Confirmed, GateMode::Sequential] {
            let all = |solved| stages(&outcomes(3, solved), &gate(mode, 20, 1), true);
            let few = all(LEAST_SOLVED - 1);
            assert!(few.iter().all(|stage| stage.solved.is_empty()), "{mode:?}");
            let draws = few.iter().flat_map(Stage::draws);
            assert_eq!(draws.count(), 3 + LEAST_SOLVED - 1, "{mode:?}");
            let share = |solved| share_in(&outcomes(15, solved));
            assert_eq!((share(LEAST_SOLVED - 1), share(LEAST_SOLVED)), (1.0, 0.75));
            let enough = all(LEAST_SOLVED);
            assert!(enough.iter().any(|stage| !stage.solved.is_empty()));
        }
    }

    #[test]
    fn greedy_looks_use_every_problem_once() {
        let stages = stages(&outcomes(50, 8), &gate(GateMode::Sequential, 20, 16), true);
        let sizes: Vec<(usize, usize)> = stages
            .iter()
            .map(|s| (s.failed.len(), s.solved.len()))
            .collect();
        assert_eq!(sizes, [(20, 8), (20, 0), (10, 0)]);
        let used: BTreeSet<Draw> = stages.iter().flat_map(Stage::draws).collect();
        assert_eq!(used.len(), 58);
        assert!(super::stages(&[], &gate(GateMode::Sequential, 20, 16), true).is_empty());
    }

    proptest! {
        #[test]
        fn sequential_looks_repeat_no_pair_and_pass_over_all_problems_alike(
            failed in 0usize..70, solved in 0usize..70, tasks in 1usize..40, samples in 1usize..20,
        ) {
            let gate = gate(GateMode::Sequential, tasks, samples);
            let stages = stages(&outcomes(failed, solved), &gate, false);
            let draws: Vec<Draw> = stages.iter().flat_map(Stage::draws).collect();
            let unique: BTreeSet<Draw> = draws.iter().copied().collect();
            prop_assert_eq!(unique.len(), draws.len());
            // The sides as they are dealt.
            let (failed, solved) = if solved < LEAST_SOLVED { (failed + solved, 0) } else { (failed, solved) };
            prop_assert_eq!(draws.len(), (failed.min(tasks) + solved.min(tasks)) * samples);
            // At every look a problem is at most one sample ahead of another of its side.
            for side in [0..failed, failed..failed + solved] {
                let mut uses = vec![0usize; failed + solved];
                for stage in &stages {
                    stage.draws().for_each(|draw| uses[draw.problem] += 1);
                    let of_side = || uses[side.clone()].iter();
                    prop_assert!(of_side().max() <= of_side().min().map(|least| least + 1).as_ref());
                }
            }
        }
    }
}
