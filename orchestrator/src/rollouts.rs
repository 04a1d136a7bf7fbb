//! Rolling out many trials at once, each at most once ever.
//!
//! Rollouts that policy or sandbox keep from ending are tried again as [`line`] says. What later phases
//! need in any case is begun in the room that the last ones of a phase leave ([`ahead`]).

mod ahead;
mod line;
mod loading;
mod programs;
mod rest;
mod rolling;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use harness::Harness;
use rollout::agent::{Agent, rollout};
use rollout::policy::Policy;
use rollout::task::{Split, Task};
use rollout::tools::ToolRunner;
use rollout::trajectory::{RolloutId, RolloutKey, Trajectory};
use rollout::verifier::{Verifier, VerifierKind, build};

pub(crate) use self::ahead::{Ahead, Stretch};
use self::rolling::Rolling;
use crate::clock::unix_seconds;
use crate::config::Loaded;
use crate::error::RunError;
use crate::observer::{Notice, Phase};
use crate::seed::Seed;
use crate::store::{Basis, Made};
use crate::workshop::Workshop;

/// A problem with the seed it is rolled out with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The problem.
    pub task: Task,
    /// The seed.
    pub seed: u64,
}

/// Weights and the harness they are run by.
#[derive(Clone)]
pub struct Arm {
    /// θ.
    pub policy: Arc<dyn Policy>,
    /// φ.
    pub harness: Arc<Harness>,
}

impl Arm {
    /// Whether it says the same every time, so that another sample is the same rollout again.
    pub(crate) fn is_greedy(&self) -> bool {
        self.harness.middleware.sampling.temperature == 0.0
    }

    /// Most rollouts at a time.
    fn width(&self) -> usize {
        self.harness.middleware.runtime.parallel_rollouts.max(1) as usize
    }
}

/// Who judges answers.
#[derive(Clone)]
pub(crate) struct Judge {
    /// What the verifier was made of, as the configuration says it.
    pub(crate) kind: VerifierKind,
    /// The verifier.
    pub(crate) verifier: Arc<dyn Verifier>,
}

impl Judge {
    /// A verifier of the configuration, whose programs run on `tools`.
    pub(crate) fn new(loaded: &Loaded, kind: &VerifierKind, tools: &Arc<dyn ToolRunner>) -> Self {
        let resolved = loaded.resolve_verifier(kind);
        Self {
            kind: kind.clone(),
            verifier: build(&resolved, Some(Arc::clone(tools))),
        }
    }

    /// What its verdicts on a task rest on.
    pub(crate) fn basis(&self, task: &Task) -> Basis {
        Basis::of(task, &self.kind)
    }
}

/// `count` problems drawn by `seed`, each with a seed of its own.
pub(crate) fn draw(tasks: &[Task], count: usize, seed: Seed) -> Vec<Trial> {
    let mut drawn: Vec<Trial> = tasks
        .iter()
        .map(|task| Trial {
            task: task.clone(),
            seed: seed.derive(task.content_hash().as_str()).value(),
        })
        .collect();
    // A problem's seed is as good a random key as any.
    drawn.sort_by_key(|trial| trial.seed);
    drawn.truncate(count);
    drawn
}

/// What became of a trial: its trajectory, or none if policy or sandbox failed each time while other
/// rollouts succeeded. Such a trial is left out of whatever is counted, diagnosed or trained on.
pub type Rolled = Option<Trajectory>;

impl Workshop {
    /// What became of `trials` under one harness and policy, in their order.
    ///
    /// # Errors
    /// As [`Self::roll_arms`].
    pub async fn roll(
        &self,
        title: &str,
        policy: &Arc<dyn Policy>,
        harness: &Arc<Harness>,
        split: Split,
        trials: &[Trial],
    ) -> Result<Vec<Rolled>, RunError> {
        let arm = Arm {
            policy: Arc::clone(policy),
            harness: Arc::clone(harness),
        };
        let arms = self.roll_arms(title, &[arm], split, trials).await?;
        Ok(arms.into_iter().flatten().collect())
    }

    /// What became of the same `trials` under several arms, one list each. Those in the journal are
    /// taken from it; the rest run `parallel_rollouts` at a time, problem by problem over all arms,
    /// and are stored as they finish. While nothing succeeds, nothing is sent but a probe now and
    /// then. Room that is left goes to what is foreseen, which may still be in flight afterwards.
    ///
    /// # Errors
    /// When the run is to stop, nothing has succeeded for longer than `faults` allow, or the store
    /// fails. What was in flight is finished and stored in every case.
    pub async fn roll_arms(
        &self,
        title: &str,
        arms: &[Arm],
        split: Split,
        trials: &[Trial],
    ) -> Result<Vec<Vec<Rolled>>, RunError> {
        self.roll_judged(title, arms, split, &self.judge, trials)
            .await
    }

    /// The same by another judge than the run's own. Problems keep to one judge each: a
    /// rollout in the journal is found by its problem, not by who judged it.
    ///
    /// # Errors
    /// As [`Self::roll_arms`].
    pub(crate) async fn roll_judged(
        &self,
        title: &str,
        arms: &[Arm],
        split: Split,
        judge: &Judge,
        trials: &[Trial],
    ) -> Result<Vec<Vec<Rolled>>, RunError> {
        let started = Instant::now();
        self.notice(Notice::Began(Phase {
            title: title.to_owned(),
            total: (trials.len() * arms.len()) as u64,
            unit: "rollouts",
        }));
        let mut rolling = Rolling::new(self, arms, split, judge, trials).await?;
        let outcome = rolling.run().await;
        self.notice(Notice::Ended {
            took: started.elapsed(),
        });
        outcome?;
        if let Some(warning) = rolling.warning() {
            self.notice(Notice::Warning(warning));
        }
        Ok(rolling.into_lists())
    }

    /// One rollout of an evolve problem, from the journal if it is there, and else once the server has had
    /// the rest that it asked for. Its exit may be a fault of the surroundings; such a one isn't kept.
    ///
    /// # Errors
    /// When the run is to stop, or the store fails.
    pub(crate) async fn try_rollout(
        &self,
        arm: &Arm,
        trial: &Trial,
    ) -> Result<Trajectory, RunError> {
        let agent = self.agent(arm, &self.judge);
        let id = self.rollout_id(&agent, trial);
        // It may be one of a diagnosis that never came: a person put another harness in the place of this one.
        self.store.claim(&id, self.made().round).await?;
        if let Some(known) = self.store.trajectory(&id).await? {
            return Ok(known);
        }
        let mut ahead = self.ahead.lock().await;
        while self.stop.budget().is_full(ahead.in_flight())
            && let Some(landed) = ahead.landed().await
        {
            landed?;
        }
        drop(ahead);
        self.rested().await?;
        let reason = self.stop.reason();
        if let Some(reason) = reason.or_else(|| self.stop.reason_to_save()) {
            return Err(RunError::Stopped { reason });
        }
        let trajectory = rollout(&agent, &trial.task, Split::Evolve, trial.seed).await;
        self.ahead.lock().await.rest.heed(&trajectory.exit);
        if !trajectory.exit.is_infrastructure() {
            let basis = self.judge.basis(&trial.task);
            self.store
                .record_trajectory(&trajectory, &basis, self.made())
                .await?;
            self.stop.budget().rolled_out(&trajectory.usage);
        }
        Ok(trajectory)
    }

    /// The same without the journal.
    pub(crate) async fn try_rollout_afresh(&self, arm: &Arm, trial: &Trial) -> Trajectory {
        let agent = self.agent(arm, &self.judge);
        let trajectory = rollout(&agent, &trial.task, Split::Evolve, trial.seed).await;
        self.ahead.lock().await.rest.heed(&trajectory.exit);
        trajectory
    }

    fn made(&self) -> Made {
        Made {
            round: self.round.load(Ordering::Relaxed),
            at: unix_seconds(),
        }
    }

    pub(crate) fn agent(&self, arm: &Arm, judge: &Judge) -> Agent {
        Agent {
            harness: Arc::clone(&arm.harness),
            policy: Arc::clone(&arm.policy),
            sandbox: Arc::clone(&self.tools),
            verifier: Arc::clone(&judge.verifier),
            budget: self.budget(),
            sandbox_level: self.sandbox_level.clone(),
        }
    }

    pub(crate) fn rollout_id(&self, agent: &Agent, trial: &Trial) -> RolloutId {
        RolloutId::of(&RolloutKey {
            policy: agent.policy.id(),
            harness: &agent.harness.id(),
            task_hash: &trial.task.content_hash(),
            seed: trial.seed,
            budget: &agent.budget,
            sandbox_level: &agent.sandbox_level,
        })
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A rollout that ended, for tests of what counts them.

    use rollout::policy::PolicyId;
    use rollout::task::{ContentHash, Split, TaskId};
    use rollout::trajectory::{
        ExitReason, RolloutBudget, RolloutId, RolloutKey, Trajectory, Usage, Verdict,
    };

    pub(crate) fn trajectory() -> Trajectory {
        let harness = harness::naive().expect("the shipped harness").id();
        let policy = PolicyId::new("theta");
        let task_hash = ContentHash::of_problem("How many?");
        let budget = RolloutBudget {
            max_tokens: 100,
            wall: std::time::Duration::from_secs(60),
        };
        Trajectory {
            id: RolloutId::of(&RolloutKey {
                policy: &policy,
                harness: &harness,
                task_hash: &task_hash,
                seed: 0,
                budget: &budget,
                sandbox_level: "none",
            }),
            task: TaskId::new("t"),
            task_hash,
            split: Split::Gate,
            harness,
            policy,
            seed: 0,
            sandbox_level: "none".into(),
            steps: Vec::new(),
            messages: Vec::new(),
            model_calls: Vec::new(),
            answer: None,
            verdict: Verdict::no_answer(),
            exit: ExitReason::Answered,
            usage: Usage::default(),
            wall_ms: 1,
        }
    }
}
