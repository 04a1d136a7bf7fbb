//! Which rollouts are learnt from, and how much each counts.

use std::collections::{BTreeMap, BTreeSet};

use critic::is_lucky;
use harness::Harness;
use rollout::task::ContentHash;
use rollout::trajectory::Trajectory;
use serde::{Deserialize, Serialize};

use crate::clock::unix_seconds;
use crate::config::ModelLoopConfig;
use crate::error::RunError;
use crate::report::{SelectionRow, kind};
use crate::workshop::Workshop;

/// A trajectory to learn from.
pub(crate) struct Chosen {
    /// The trajectory.
    pub(crate) trajectory: Trajectory,
    /// What each of its supervised tokens counts.
    pub(crate) weight: f32,
}

/// Looks at a round's rollouts one after the other and keeps those to learn from: right ones, by way
/// of the tool where there was one, at most so many of a problem, no two with the same replies.
pub(crate) struct Selector<'a> {
    rules: &'a ModelLoopConfig,
    harness: &'a Harness,
    problems: BTreeMap<ContentHash, Problem>,
    kept: Vec<Trajectory>,
    counts: SelectionRow,
}

/// What a problem's rollouts have come to.
#[derive(Default)]
struct Problem {
    rolled: u32,
    solved: u32,
    /// What the policy wrote in each that was kept. Texts rather than ids: a server gives none.
    replies: Vec<Vec<String>>,
}

impl<'a> Selector<'a> {
    pub(crate) fn new(rules: &'a ModelLoopConfig, harness: &'a Harness) -> Self {
        Self {
            rules,
            harness,
            problems: BTreeMap::new(),
            kept: Vec::new(),
            counts: SelectionRow::default(),
        }
    }

    /// Whether another rollout of a problem could be kept.
    pub(crate) fn wants(&self, problem: &ContentHash) -> bool {
        let kept = |problem: &Problem| problem.replies.len() < self.rules.max_per_task;
        self.problems.get(problem).is_none_or(kept)
    }

    /// Keep a rollout, or not.
    pub(crate) fn offer(&mut self, trajectory: Trajectory) {
        self.counts.gathered += 1;
        let is_full = !self.wants(&trajectory.task_hash);
        let problem = self
            .problems
            .entry(trajectory.task_hash.clone())
            .or_default();
        problem.rolled += 1;
        if !trajectory.verdict.correct {
            return;
        }
        problem.solved += 1;
        self.counts.verified += 1;
        let written = trajectory.messages.iter().filter(|message| message.train);
        let replies: Vec<String> = written.map(|message| message.content.clone()).collect();
        if self.rules.drop_lucky && is_lucky(self.harness, &trajectory) {
            self.counts.lucky += 1;
        } else if problem.replies.contains(&replies) {
            self.counts.repeated += 1;
        } else if is_full {
            self.counts.surplus += 1;
        } else {
            problem.replies.push(replies);
            self.kept.push(trajectory);
        }
    }

    /// What was kept, in the order in which it was offered, and how that came about.
    pub(crate) fn finish(self) -> (Vec<Chosen>, SelectionRow) {
        let Self {
            rules,
            problems,
            kept,
            mut counts,
            ..
        } = self;
        counts.chosen = kept.len();
        let weight = |trajectory: &Trajectory| {
            let problem = problems.get(&trajectory.task_hash);
            problem.map_or(1.0, |problem| problem.weight(rules.hard_weight))
        };
        let chosen = kept.into_iter().map(|trajectory| Chosen {
            weight: weight(&trajectory),
            trajectory,
        });
        (chosen.collect(), counts)
    }
}

impl Problem {
    /// 1 where every rollout solved it, and towards `hard` the fewer did.
    #[expect(clippy::cast_possible_truncation, reason = "a weight of a few digits")]
    fn weight(&self, hard: f64) -> f32 {
        let failed = f64::from(self.rolled - self.solved) / f64::from(self.rolled.max(1));
        (1.0 + (hard - 1.0) * failed) as f32
    }
}

/// Journal entry of a round's own choice, for later rounds to learn from again.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// Ids and weights.
    chosen: Vec<(String, f32)>,
}

impl Workshop {
    /// Record a round's own choice.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn record_choice(
        &self,
        round: u32,
        chosen: &[Chosen],
    ) -> Result<(), RunError> {
        let named = |one: &Chosen| (one.trajectory.id.as_str().to_owned(), one.weight);
        let kept = Kept {
            chosen: chosen.iter().map(named).collect(),
        };
        let key = self.choice_key(round);
        Ok(self
            .store
            .record_step(&key, kind::SELECTION, round, &kept, unix_seconds())
            .await?)
    }

    fn choice_key(&self, round: u32) -> String {
        self.key(kind::SELECTION, &[&round.to_string()])
    }

    /// What is learnt from again beside a round's own choice: of what earlier rounds chose on other
    /// problems, as many as `model_loop.replay` says, drawn by the run's seed.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn replayed(
        &self,
        round: u32,
        own: &[Chosen],
    ) -> Result<Vec<Chosen>, RunError> {
        let count = replay_count(self.loaded.config.model_loop.replay, own.len());
        if count == 0 {
            return Ok(Vec::new());
        }
        let seed = self.seed().derive("replay").derive(round);
        let mut earlier: Vec<(String, f32)> = Vec::new();
        for round in 1..round {
            let kept = self.store.step::<Kept>(&self.choice_key(round)).await?;
            earlier.extend(kept.into_iter().flat_map(|kept| kept.chosen));
        }
        earlier.sort_by_key(|(id, _)| seed.derive(id.as_str()).value());
        let mut problems: BTreeSet<ContentHash> = own
            .iter()
            .map(|chosen| chosen.trajectory.task_hash.clone())
            .collect();
        let mut replayed = Vec::new();
        for (id, weight) in earlier {
            if replayed.len() == count {
                break;
            }
            let found = self.store.trajectory_of(&id).await?;
            // Judged anew since, it may be wrong.
            let right = found.filter(|trajectory| trajectory.verdict.correct);
            if let Some(trajectory) = right
                && problems.insert(trajectory.task_hash.clone())
            {
                replayed.push(Chosen { trajectory, weight });
            }
        }
        Ok(replayed)
    }
}

/// So many that they are `share` of all.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a count, rounded"
)]
fn replay_count(share: f64, own: usize) -> usize {
    (share / (1.0 - share) * own as f64).round() as usize
}

#[cfg(test)]
mod tests {
    use rollout::trajectory::{Message, Role, Step, StepKind};

    use super::*;
    use crate::rollouts::testing::trajectory;

    /// A rollout of a problem that says something.
    fn rollout(problem: &str, said: &str, is_right: bool) -> Trajectory {
        let mut trajectory = trajectory();
        trajectory.task_hash = ContentHash::of_problem(problem);
        trajectory.verdict.correct = is_right;
        trajectory.messages = vec![Message {
            train: true,
            ..Message::new(Role::Assistant, said)
        }];
        trajectory
    }

    /// The same, where the tool printed something before the answer.
    fn by_tool(problem: &str, printed: &str, answer: &str) -> Trajectory {
        let mut trajectory = rollout(problem, answer, true);
        trajectory.answer = Some(answer.to_owned());
        let step = |kind, text: &str| Step {
            kind,
            text: text.to_owned(),
            event: None,
        };
        trajectory.steps = vec![
            step(StepKind::ToolCall, "print(x)"),
            step(StepKind::ToolResult, printed),
        ];
        trajectory
    }

    fn rules() -> ModelLoopConfig {
        ModelLoopConfig {
            max_per_task: 2,
            hard_weight: 3.0,
            ..ModelLoopConfig::default()
        }
    }

    fn chosen(rules: &ModelLoopConfig, offered: Vec<Trajectory>) -> (Vec<Chosen>, SelectionRow) {
        let harness = harness::naive().expect("the shipped harness");
        let mut selector = Selector::new(rules, &harness);
        offered.into_iter().for_each(|one| selector.offer(one));
        selector.finish()
    }

    #[test]
    fn right_ones_are_kept_up_to_a_limit_and_once_each() {
        let offered = vec![
            rollout("a", "one", true),
            rollout("a", "one", true),
            rollout("b", "two", false),
            rollout("a", "three", true),
            rollout("a", "four", true),
        ];
        let (kept, counts) = chosen(&rules(), offered);
        let said = kept.iter().map(|one| &one.trajectory.messages[0].content);
        assert_eq!(said.collect::<Vec<_>>(), ["one", "three"]);
        let expected = SelectionRow {
            gathered: 5,
            verified: 4,
            repeated: 1,
            surplus: 1,
            chosen: 2,
            ..SelectionRow::default()
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn answers_that_the_tool_did_not_give_are_left_out_if_asked() {
        let offered = || vec![by_tool("a", "35", "12"), by_tool("b", "35", "35")];
        let (kept, counts) = chosen(&rules(), offered());
        assert_eq!((kept.len(), counts.lucky), (1, 1));
        let lenient = ModelLoopConfig {
            drop_lucky: false,
            ..rules()
        };
        let (kept, counts) = chosen(&lenient, offered());
        assert_eq!((kept.len(), counts.lucky), (2, 0));
    }

    #[test]
    fn a_problem_counts_more_the_fewer_rollouts_solved_it() {
        let offered = vec![
            rollout("hard", "no", false),
            rollout("hard", "nor", false),
            rollout("hard", "yes", true),
            rollout("easy", "yes", true),
        ];
        let (kept, _) = chosen(&rules(), offered);
        let weights: Vec<f32> = kept.iter().map(|one| one.weight).collect();
        assert!((weights[0] - (1.0 + 2.0 * 2.0 / 3.0)).abs() < 1e-6);
        assert!((weights[1] - 1.0).abs() < f32::EPSILON);
    }

    #[test]
    fn a_problem_is_wanted_until_enough_of_it_are_kept() {
        let (rules, harness) = (rules(), harness::naive().expect("the shipped harness"));
        let mut selector = Selector::new(&rules, &harness);
        let problem = ContentHash::of_problem("a");
        for (said, is_right, is_wanted) in [
            ("no", false, true),
            ("yes", true, true),
            ("yes", true, true),
            ("also", true, false),
        ] {
            selector.offer(rollout("a", said, is_right));
            assert_eq!(selector.wants(&problem), is_wanted, "after {said}");
        }
        assert!(selector.wants(&ContentHash::of_problem("b")));
    }

    #[test]
    fn replays_are_a_share_of_all() {
        assert_eq!(replay_count(0.0, 30), 0);
        assert_eq!(replay_count(0.25, 30), 10);
        assert_eq!(replay_count(0.5, 7), 7);
    }
}
