//! Which problems and seeds a decision uses.

use rollout::task::Task;

use crate::seed::Seed;

/// One rollout both arms make: a problem with the seed they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The problem.
    pub task: Task,
    /// The seed.
    pub seed: u64,
}

/// Trials of one stage: those on problems the incumbent failed, and on those it solved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// V_in.
    pub failed: Vec<Trial>,
    /// V_out.
    pub solved: Vec<Trial>,
}

impl Stage {
    /// All trials, V_in first.
    pub fn trials(&self) -> Vec<Trial> {
        self.failed.iter().chain(&self.solved).cloned().collect()
    }
}

/// Stages of a decision: each has its own problems and seeds.
///
/// `classified` are the gate problems with what one earlier rollout of the incumbent made of them;
/// problems are dealt to stages in turn. A side with fewer problems than `per_side` samples each
/// several times, up to `max_samples`.
pub fn stages(
    classified: &[(Task, bool)],
    count: usize,
    per_side: usize,
    max_samples: usize,
    seed: Seed,
) -> Vec<Stage> {
    let side = |wanted: bool, stage: usize| -> Vec<Trial> {
        let tasks: Vec<&Task> = classified
            .iter()
            .filter(|(_, solved)| *solved == wanted)
            .map(|(task, _)| task)
            .skip(stage)
            .step_by(count)
            .take(per_side)
            .collect();
        if tasks.is_empty() {
            return Vec::new();
        }
        let samples = (per_side / tasks.len()).clamp(1, max_samples.max(1));
        let stage_seed = seed.derive("stage").derive(stage);
        (0..samples)
            .flat_map(|sample| {
                tasks.iter().map(move |task| Trial {
                    task: (*task).clone(),
                    seed: stage_seed
                        .derive(sample)
                        .derive(task.content_hash().as_str())
                        .value(),
                })
            })
            .collect()
    };
    (0..count)
        .map(|stage| Stage {
            failed: side(false, stage),
            solved: side(true, stage),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use rollout::task::{Columns, load_tasks};

    fn classified(failed: usize, solved: usize) -> Vec<(Task, bool)> {
        let lines: String = (0..failed + solved)
            .map(|i| {
                format!("{{\"id\":\"t{i}\",\"problem\":\"problem number {i}\",\"answer\":\"1\"}}\n")
            })
            .collect();
        let tasks = load_tasks(&lines, "test", &Columns::default()).expect("tasks");
        tasks
            .into_iter()
            .enumerate()
            .map(|(i, task)| (task, i >= failed))
            .collect()
    }

    #[test]
    fn stages_share_no_problem_and_no_seed() {
        let stages = stages(&classified(50, 20), 2, 16, 4, Seed::new(1));
        let seeds: BTreeSet<u64> = stages
            .iter()
            .flat_map(Stage::trials)
            .map(|trial| trial.seed)
            .collect();
        assert_eq!(
            seeds.len(),
            stages.iter().map(|s| s.trials().len()).sum::<usize>()
        );
        let ids = |stage: &Stage| -> BTreeSet<String> {
            stage
                .trials()
                .iter()
                .map(|t| t.task.id.as_str().to_owned())
                .collect()
        };
        assert!(ids(&stages[0]).is_disjoint(&ids(&stages[1])));
        assert_eq!((stages[0].failed.len(), stages[0].solved.len()), (16, 10));
    }

    #[test]
    fn few_problems_are_sampled_more_often_and_none_give_an_empty_side() {
        let stages = stages(&classified(40, 4), 2, 16, 4, Seed::new(1));
        assert_eq!(stages[0].solved.len(), 8, "2 problems, 4 samples each");
        let stages = super::stages(&classified(40, 0), 1, 16, 4, Seed::new(1));
        assert!(stages[0].solved.is_empty());
    }
}
