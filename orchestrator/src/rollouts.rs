//! Rolling out many trials at once, each at most once ever.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use harness::Harness;
use rollout::agent::{Agent, rollout};
use rollout::policy::Policy;
use rollout::task::{Split, Task};
use rollout::trajectory::{ExitReason, RolloutId, RolloutKey, Trajectory};
use tokio::task::JoinSet;

use crate::clock::unix_seconds;
use crate::error::RunError;
use crate::observer::{Notice, Phase};
use crate::seed::Seed;
use crate::store::Made;
use crate::workshop::Workshop;

/// Time between looks at whether to stop, while the server wants a rest.
const STOP_INTERVAL: Duration = Duration::from_millis(200);

/// Attempts at a rollout that infrastructure kept from finishing.
const ATTEMPTS: u32 = 3;

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

impl Workshop {
    /// Trajectories of `trials` under one harness and policy, in their order.
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
    ) -> Result<Vec<Trajectory>, RunError> {
        let arm = Arm {
            policy: Arc::clone(policy),
            harness: Arc::clone(harness),
        };
        let arms = self.roll_arms(title, &[arm], split, trials).await?;
        Ok(arms.into_iter().flatten().collect())
    }

    /// Trajectories of the same `trials` under several arms, one list each. Those in the journal are
    /// taken from it; the rest run `parallel_rollouts` at a time, problem by problem over all arms,
    /// and are stored as they finish.
    ///
    /// # Errors
    /// When the run is to stop, a rollout fails for reasons other than the policy's answers, or the
    /// store fails. Finished rollouts are stored in every case.
    pub async fn roll_arms(
        &self,
        title: &str,
        arms: &[Arm],
        split: Split,
        trials: &[Trial],
    ) -> Result<Vec<Vec<Trajectory>>, RunError> {
        let started = Instant::now();
        let total = (trials.len() * arms.len()) as u64;
        self.notice(Notice::Began(Phase {
            title: title.to_owned(),
            total,
            unit: "rollouts",
        }));
        let agents: Vec<Agent> = arms.iter().map(|arm| self.agent(arm)).collect();
        let jobs: Vec<(&Agent, &Trial)> = trials
            .iter()
            .flat_map(|trial| agents.iter().map(move |agent| (agent, trial)))
            .collect();
        let mut found: Vec<Option<Trajectory>> = Vec::with_capacity(jobs.len());
        let mut tally = Tally::default();
        let mut missing = Vec::new();
        for (index, (agent, trial)) in jobs.iter().enumerate() {
            let stored = self
                .store
                .trajectory(&self.rollout_id(agent, trial))
                .await?;
            match &stored {
                Some(trajectory) => self.advanced(&mut tally, trajectory, 0),
                None => missing.push(index),
            }
            found.push(stored);
        }
        let mut running = JoinSet::new();
        let mut queue: VecDeque<usize> = missing.into();
        let parallel = arms
            .iter()
            .map(|arm| arm.harness.middleware.runtime.parallel_rollouts)
            .max();
        let limit = parallel.unwrap_or(1).max(1) as usize;
        let mut failure = None;
        let mut rest_until = None;
        loop {
            if running.is_empty()
                && let Some(until) = rest_until.take()
                && let Err(stopped) = self.rest(until).await
            {
                failure.get_or_insert(stopped);
            }
            while rest_until.is_none() && failure.is_none() && running.len() < limit {
                if let Some(reason) = self.stop.reason() {
                    failure = Some(RunError::Stopped { reason });
                    break;
                }
                let Some(index) = queue.pop_front() else {
                    break;
                };
                let (agent, trial) = (jobs[index].0.clone(), jobs[index].1.clone());
                running.spawn(async move { (index, attempt(&agent, &trial, split).await) });
            }
            // After a failure, what is in flight is still finished and stored.
            let Some(done) = running.join_next().await else {
                break;
            };
            let (index, trajectory) = match done {
                Ok(done) => done,
                Err(error) => {
                    let reason = error.to_string();
                    failure.get_or_insert(RunError::Panic { reason });
                    continue;
                }
            };
            if let ExitReason::Infrastructure { reason, wait_s, .. } = &trajectory.exit {
                if let Some(seconds) = wait_s {
                    queue.push_front(index);
                    let until = Instant::now() + Duration::from_secs(*seconds);
                    rest_until = rest_until.max(Some(until));
                    continue;
                }
                let reason = reason.clone();
                failure.get_or_insert(RunError::Infrastructure { reason });
                continue;
            }
            if let Err(error) = self.store.record_trajectory(&trajectory, self.made()).await {
                failure.get_or_insert(error.into());
                continue;
            }
            self.advanced(&mut tally, &trajectory, trajectory.usage.completion_tokens);
            found[index] = Some(trajectory);
        }
        self.notice(Notice::Ended {
            took: started.elapsed(),
        });
        match failure {
            Some(failure) => Err(failure),
            None => {
                let mut lists: Vec<Vec<Trajectory>> = arms.iter().map(|_| Vec::new()).collect();
                for (index, trajectory) in found.into_iter().flatten().enumerate() {
                    lists[index % arms.len()].push(trajectory);
                }
                Ok(lists)
            }
        }
    }

    /// Waits because the server asked for it: visibly, and only as long as nobody stops the run.
    async fn rest(&self, until: Instant) -> Result<(), RunError> {
        let seconds = until
            .saturating_duration_since(Instant::now())
            .as_secs_f64();
        let text = format!("the server asks to wait: nothing is sent for {seconds:.0} s");
        self.notice(Notice::Warning(text));
        while Instant::now() < until {
            if let Some(reason) = self.stop.reason() {
                return Err(RunError::Stopped { reason });
            }
            let left = until.saturating_duration_since(Instant::now());
            tokio::time::sleep(left.min(STOP_INTERVAL)).await;
        }
        Ok(())
    }

    fn made(&self) -> Made {
        Made {
            round: self.round.load(Ordering::Relaxed),
            at: unix_seconds(),
        }
    }

    fn agent(&self, arm: &Arm) -> Agent {
        Agent {
            harness: Arc::clone(&arm.harness),
            policy: Arc::clone(&arm.policy),
            sandbox: self.sandbox.clone(),
            verifier: Arc::clone(&self.verifier),
            budget: self.budget(),
            sandbox_level: self.sandbox_level.clone(),
        }
    }

    fn advanced(&self, tally: &mut Tally, trajectory: &Trajectory, tokens: u64) {
        tally.done += 1;
        tally.correct += u32::from(trajectory.verdict.correct);
        let figure = format!("{}/{} solved", tally.correct, tally.done);
        self.notice(Notice::Advanced {
            by: 1,
            tokens,
            figure,
        });
    }

    fn rollout_id(&self, agent: &Agent, trial: &Trial) -> RolloutId {
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

#[derive(Default)]
struct Tally {
    done: u32,
    correct: u32,
}

/// Roll out, again after a fault that may pass.
async fn attempt(agent: &Agent, trial: &Trial, split: Split) -> Trajectory {
    let mut number = 1;
    loop {
        let trajectory = rollout(agent, &trial.task, split, trial.seed).await;
        match &trajectory.exit {
            ExitReason::Infrastructure {
                is_retryable: true, ..
            } if number < ATTEMPTS => {
                tokio::time::sleep(Duration::from_secs(1 << number)).await;
                number += 1;
            }
            _ => return trajectory,
        }
    }
}
