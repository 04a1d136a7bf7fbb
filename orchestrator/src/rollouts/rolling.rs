//! The rollouts of a phase while they are made.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rollout::agent::{Agent, rollout};
use rollout::policy::PolicyId;
use rollout::task::Split;
use rollout::trajectory::{ExitReason, RolloutId, Trajectory};
use tokio::sync::MutexGuard;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::line::{Fate, Fault, Job, Line, Next};
use super::{Ahead, Arm, Judge, Rolled, Trial};
use crate::counted::{are, counted};
use crate::error::RunError;
use crate::observer::Notice;
use crate::workshop::Workshop;

/// Time between looks at whether to stop, while nothing is sent.
pub(super) const STOP_INTERVAL: Duration = Duration::from_millis(200);

/// What has come of them so far.
#[derive(Default)]
struct Tally {
    done: u32,
    correct: u32,
    left_out: u32,
    /// Why the first one was left out.
    reason: Option<String>,
}

/// The rollouts of a phase: the same trials under every arm.
pub(super) struct Rolling<'a> {
    workshop: &'a Workshop,
    judge: &'a Judge,
    split: Split,
    trials: &'a [Trial],
    agents: Vec<Agent>,
    /// One for each policy: what succeeds under one harness shows that a fault under another isn't the
    /// policy's.
    lines: Vec<Line>,
    /// The line of each arm.
    line_of: Vec<usize>,
    /// Most rollouts at a time.
    width: usize,
    /// By index: trial by trial, all arms of one after each other.
    found: Vec<Option<Rolled>>,
    tally: Tally,
    /// Whether it was told that nothing is sent since the server asks for a rest.
    is_rest_told: bool,
    /// What is made ahead of later phases, and the rest that the server asks for.
    ahead: MutexGuard<'a, Ahead>,
    /// Rollouts of this phase that are in flight since an earlier one.
    begun: Vec<(RolloutId, usize)>,
}

impl<'a> Rolling<'a> {
    /// Looks everything up in the journal.
    pub(super) async fn new(
        workshop: &'a Workshop,
        arms: &[Arm],
        split: Split,
        judge: &'a Judge,
        trials: &'a [Trial],
    ) -> Result<Self, RunError> {
        let agents = arms.iter().map(|arm| workshop.agent(arm, judge));
        let agents: Vec<Agent> = agents.collect();
        let mut policies: Vec<&PolicyId> = Vec::new();
        let mut line_of = Vec::new();
        for arm in arms {
            let known = policies.iter().position(|id| *id == arm.policy.id());
            line_of.push(known.unwrap_or(policies.len()));
            if known.is_none() {
                policies.push(arm.policy.id());
            }
        }
        let mut ahead = workshop.ahead.lock().await;
        ahead.settle()?;
        let mut rolling = Rolling {
            workshop,
            judge,
            split,
            trials,
            lines: Vec::new(),
            line_of,
            width: arms.iter().map(Arm::width).max().unwrap_or(1),
            found: Vec::with_capacity(trials.len() * arms.len()),
            tally: Tally::default(),
            is_rest_told: false,
            ahead,
            begun: Vec::new(),
            agents,
        };
        let indices = 0..trials.len() * arms.len();
        let ids = indices.map(|i| workshop.rollout_id(rolling.agent(i), rolling.trial(i)));
        let ids: Vec<RolloutId> = ids.collect();
        rolling.ahead.leave(&ids);
        let made_ahead = workshop.store.made_ahead().await?;
        let mut missing: Vec<VecDeque<usize>> = vec![VecDeque::new(); policies.len()];
        let mut canaries: Vec<Option<usize>> = vec![None; policies.len()];
        for (index, id) in ids.into_iter().enumerate() {
            if rolling.ahead.is_in_flight(&id) {
                rolling.begun.push((id, index));
                rolling.found.push(None);
                continue;
            }
            if made_ahead.contains(id.as_str()) {
                workshop.store.claim(&id, workshop.made().round).await?;
            }
            let stored = workshop.store.trajectory(&id).await?;
            let line = rolling.line_of[index % arms.len()];
            match &stored {
                None => missing[line].push_back(index),
                Some(trajectory) => {
                    if !trajectory.exit.is_infrastructure() {
                        canaries[line] = Some(index);
                    }
                    rolling.advanced(trajectory, None);
                }
            }
            rolling.found.push(stored.map(unless_left_out));
        }
        let config = workshop.loaded.config.faults;
        let has_answered = workshop.has_answered.load(Ordering::Relaxed);
        let lines = missing.into_iter().zip(canaries);
        rolling.lines = lines
            .map(|(fresh, canary)| Line::new(config, has_answered, fresh, canary))
            .collect();
        Ok(rolling)
    }

    fn agent(&self, index: usize) -> &Agent {
        &self.agents[index % self.agents.len()]
    }

    fn trial(&self, index: usize) -> &'a Trial {
        &self.trials[index / self.agents.len()]
    }

    /// Makes what is missing. After an error, what was in flight is stored all the same; else what is made
    /// ahead may still be in flight.
    pub(super) async fn run(&mut self) -> Result<(), RunError> {
        let stop = Arc::clone(&self.workshop.stop);
        let mut running = JoinSet::new();
        let mut failure = None;
        loop {
            let mut wake = None;
            while failure.is_none() && running.len() + self.ahead.in_flight() < self.width {
                if let Some(reason) = stop.reason() {
                    failure = Some(RunError::Stopped { reason });
                    break;
                }
                match self.next(Instant::now(), running.is_empty()) {
                    Next::Run(job) => {
                        if let Some(reason) = stop.reason_to_save() {
                            failure = Some(RunError::Stopped { reason });
                            break;
                        }
                        let (Job::Rollout(index) | Job::Canary(index)) = job;
                        let in_flight = running.len() + self.ahead.in_flight();
                        if stop.budget().is_full(in_flight) {
                            // It is made if one of those in flight comes to nothing.
                            let line = self.line_of[index % self.agents.len()];
                            self.lines[line].postponed(job, Duration::ZERO);
                            break;
                        }
                        let agent = self.agent(index).clone();
                        let (trial, split) = (self.trial(index).clone(), self.split);
                        running.spawn(async move {
                            let trajectory = rollout(&agent, &trial.task, split, trial.seed);
                            (job, trajectory.await)
                        });
                    }
                    Next::At(until) => {
                        wake = Some(until.min(Instant::now() + STOP_INTERVAL));
                        break;
                    }
                    Next::Later | Next::Done => match self.begin_ahead(running.len()).await {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(error) => failure = Some(error),
                    },
                }
            }
            let is_over = match failure {
                None => self.begun.is_empty() && self.lines.iter().all(Line::is_done),
                // What is in flight is still finished and stored.
                Some(_) => running.is_empty() && self.ahead.in_flight() == 0,
            };
            if is_over {
                break;
            }
            let ended = tokio::select! {
                Some(ended) = running.join_next() => match ended {
                    Ok((job, trajectory)) => self.ended(job, trajectory).await,
                    Err(error) => {
                        let reason = error.to_string();
                        Err(RunError::Panic { reason })
                    }
                },
                Some(landed) = self.ahead.landed() => match landed {
                    Ok(trajectory) => self.landed(trajectory).await,
                    Err(error) => Err(error),
                },
                () = sleep_until(wake.unwrap_or_else(Instant::now).into()), if wake.is_some() => {
                    continue;
                }
            };
            if let Err(error) = ended {
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Begins a rollout of a later phase beside `running` ones, if there is one and nothing is amiss;
    /// whether it did. A policy that has answered nobody yet isn't asked for more than a phase needs.
    async fn begin_ahead(&mut self, running: usize) -> Result<bool, RunError> {
        let all = running + self.ahead.in_flight();
        let stop = &self.workshop.stop;
        let is_affordable = stop.reason_to_save().is_none() && !stop.budget().is_full(all);
        let is_well = self.ahead.rest.until(Instant::now()).is_none()
            && self.workshop.has_answered.load(Ordering::Relaxed)
            && self.lines.iter().all(Line::is_well);
        if !is_well || !is_affordable {
            return Ok(false);
        }
        let workshop = self.workshop;
        Ok(self
            .ahead
            .begin(&workshop.store, &workshop.stop, all)
            .await?)
    }

    /// What to do next, problem by problem over all arms.
    fn next(&mut self, now: Instant, is_idle: bool) -> Next {
        match self.ahead.rest.until(now) {
            // Nobody waits for it where nothing is left to send.
            Some(_) if self.lines.iter().all(Line::is_done) => {}
            Some(until) if is_idle => {
                if !std::mem::replace(&mut self.is_rest_told, true) {
                    self.workshop.tell_rest(until);
                }
                return Next::At(until);
            }
            // What is in flight may end before the rest begins.
            Some(_) => return Next::Later,
            None => self.is_rest_told = false,
        }
        let mut order: Vec<usize> = (0..self.lines.len()).collect();
        order.sort_by_key(|line| self.lines[*line].place());
        let (mut soonest, mut is_over) = (None, true);
        for line in order {
            match self.lines[line].next(now) {
                Next::Run(job) => return Next::Run(job),
                Next::At(until) => {
                    soonest = Some(soonest.map_or(until, |other: Instant| other.min(until)));
                }
                Next::Later => is_over = false,
                Next::Done => {}
            }
        }
        match soonest {
            Some(until) => Next::At(until),
            None if is_over => Next::Done,
            None => Next::Later,
        }
    }

    /// Takes what a rollout came to.
    async fn ended(&mut self, job: Job, trajectory: Trajectory) -> Result<(), RunError> {
        let (Job::Rollout(index) | Job::Canary(index)) = job;
        let now = Instant::now();
        let ExitReason::Infrastructure {
            reason,
            is_retryable,
            wait_s,
        } = &trajectory.exit
        else {
            self.workshop.has_answered.store(true, Ordering::Relaxed);
            self.succeeded(job, now);
            return match job {
                Job::Rollout(_) => self.keep(index, trajectory).await,
                Job::Canary(_) => Ok(()),
            };
        };
        self.check_policy(index, reason)?;
        let line = &mut self.lines[self.line_of[index % self.agents.len()]];
        if let Some(seconds) = wait_s {
            line.postponed(job, Duration::from_secs(*seconds));
            self.ahead.rest.heed(&trajectory.exit);
            return Ok(());
        }
        let fault = if *is_retryable {
            Fault::Passing
        } else {
            Fault::Refused
        };
        match line.failed(job, fault, now) {
            Fate::Again => Ok(()),
            Fate::Held(until) => {
                let seconds = until.saturating_duration_since(now).as_secs_f64();
                let patience = self.workshop.loaded.config.faults.shown_patience();
                self.workshop.notice(Notice::Waiting(format!(
                    "no rollout succeeds ({reason}): nothing is sent for {seconds:.0} s; the run stops when \
                     that has gone on for {patience}"
                )));
                Ok(())
            }
            Fate::LeftOut => self.keep(index, trajectory).await,
            Fate::GaveUp => Err(RunError::Infrastructure {
                reason: reason.clone(),
            }),
        }
    }

    /// Nothing is waited for from a policy that has broken down, as an engine of this process can.
    fn check_policy(&self, index: usize, reason: &str) -> Result<(), RunError> {
        if self.agent(index).policy.has_stopped() {
            let reason = reason.to_owned();
            return Err(RunError::PolicyStopped { reason });
        }
        Ok(())
    }

    /// Takes what a rollout came to that was made ahead, of this phase or of a later one.
    async fn landed(&mut self, trajectory: Trajectory) -> Result<(), RunError> {
        let now = Instant::now();
        let own = self.begun.iter().position(|(id, _)| *id == trajectory.id);
        let own = own.map(|place| self.begun.swap_remove(place).1);
        if trajectory.exit.is_infrastructure() {
            self.ahead.leave_all();
            if let Some(index) = own {
                self.lines[self.line_of[index % self.agents.len()]].add(index);
            }
            return Ok(());
        }
        self.workshop.has_answered.store(true, Ordering::Relaxed);
        let Some(index) = own else { return Ok(()) };
        self.succeeded(Job::Rollout(index), now);
        let round = self.workshop.made().round;
        self.workshop.store.claim(&trajectory.id, round).await?;
        self.advanced(&trajectory, None);
        self.found[index] = Some(unless_left_out(trajectory));
        Ok(())
    }

    /// Lets a line know of a success.
    fn succeeded(&mut self, job: Job, now: Instant) {
        let (Job::Rollout(index) | Job::Canary(index)) = job;
        let line = &mut self.lines[self.line_of[index % self.agents.len()]];
        if let Some(held) = line.succeeded(job, now) {
            let seconds = held.as_secs();
            self.workshop
                .line(format!("rollouts succeed again, after {seconds} s"));
        }
    }

    /// Stores a rollout that is over.
    async fn keep(&mut self, index: usize, trajectory: Trajectory) -> Result<(), RunError> {
        let workshop = self.workshop;
        let basis = self.judge.basis(&self.trial(index).task);
        workshop
            .store
            .record_trajectory(&trajectory, &basis, workshop.made())
            .await?;
        workshop.stop.budget().rolled_out(&trajectory.usage);
        self.advanced(&trajectory, Some(trajectory.usage.completion_tokens));
        self.found[index] = Some(unless_left_out(trajectory));
        Ok(())
    }

    fn advanced(&mut self, trajectory: &Trajectory, tokens: Option<u64>) {
        let tally = &mut self.tally;
        if let ExitReason::Infrastructure { reason, .. } = &trajectory.exit {
            tally.left_out += 1;
            tally.reason.get_or_insert_with(|| reason.clone());
        } else {
            tally.done += 1;
            tally.correct += u32::from(trajectory.verdict.correct);
        }
        let mut figure = format!("{}/{} solved", tally.correct, tally.done);
        if tally.left_out > 0 {
            figure.push_str(&format!(", {} left out", tally.left_out));
        }
        self.workshop.notice(Notice::Advanced {
            by: 1,
            tokens,
            figure,
        });
    }

    /// A warning about what was left out.
    pub(super) fn warning(&self) -> Option<String> {
        let reason = self.tally.reason.as_ref()?;
        Some(format!(
            "{} of {} {} left out, since policy or sandbox failed each time; the first: {reason}",
            self.tally.left_out,
            counted(self.found.len(), "rollout"),
            are(self.tally.left_out),
        ))
    }

    /// One list for each arm.
    pub(super) fn into_lists(self) -> Vec<Vec<Rolled>> {
        let arms = self.agents.len();
        let mut lists: Vec<Vec<Rolled>> = (0..arms).map(|_| Vec::new()).collect();
        for (index, rolled) in self.found.into_iter().enumerate() {
            lists[index % arms].push(rolled.flatten());
        }
        lists
    }
}

/// A rollout that is over, as it counts.
fn unless_left_out(trajectory: Trajectory) -> Rolled {
    (!trajectory.exit.is_infrastructure()).then_some(trajectory)
}
