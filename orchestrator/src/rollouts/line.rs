//! One policy's rollouts while it or the sandbox may fail: what is tried next, when, and what is given
//! up.
//!
//! A rollout that fails while others succeed is tried again a few times and then left out. Where nothing
//! succeeds, the fault isn't the rollout's: the line is held. One rollout at a time probes whether
//! things work again, with growing pauses between, until the patience is used up. Where only
//! rollouts that failed before are left, one that succeeded earlier is made again for the probe
//! (a canary), so that a single bad rollout can be told from a server that is down.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::config::FaultConfig;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Make this rollout.
    Run(Job),
    /// Nothing before this moment.
    At(Instant),
    /// Nothing before a rollout in flight has ended.
    Later,
    /// Nothing is left.
    Done,
}

/// A rollout to make, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// For its trajectory.
    Rollout(usize),
    /// Once more, only to see whether it succeeds.
    Canary(usize),
}

/// A fault of policy or sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// One that may pass.
    Passing,
    /// The server refused the request.
    Refused,
}

/// What becomes of a line after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The rollout will be tried again.
    Again,
    /// The line is held until then, since nothing succeeds.
    Held(Instant),
    /// The rollout has failed too often while others succeeded: it is left out.
    LeftOut,
    /// Nothing has succeeded for too long.
    GaveUp,
}

/// A rollout that failed.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    /// How often while others succeeded.
    strikes: u32,
    /// Successes of the line when it failed last.
    seen: u64,
    not_before: Instant,
}

/// Nothing has succeeded since.
#[derive(Clone, Copy, Debug)]
struct Hold {
    since: Instant,
    until: Instant,
    failures: u32,
    pauses: u32,
    refusals: u32,
}

/// The rollouts of one policy.
#[derive(Debug)]
pub(super) struct Line {
    config: FaultConfig,
    /// Whether the policy has answered since the process started: a refusal is no mistake of the
    /// configuration then.
    has_answered: bool,
    fresh: VecDeque<usize>,
    suspects: BTreeMap<usize, Suspect>,
    /// Rollouts in flight, with the successes before their start.
    in_flight: BTreeMap<usize, u64>,
    canary: Option<usize>,
    is_canary_out: bool,
    successes: u64,
    hold: Option<Hold>,
}

impl Line {
    /// A line of `fresh` rollouts; `canary` is one that has succeeded before.
    pub(super) fn new(
        config: FaultConfig,
        has_answered: bool,
        fresh: VecDeque<usize>,
        canary: Option<usize>,
    ) -> Self {
        Line {
            config,
            has_answered,
            fresh,
            suspects: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            canary,
            is_canary_out: false,
            successes: 0,
            hold: None,
        }
    }

    /// The rollout that would come next if all goes well, to tell whose turn it is.
    pub(super) fn place(&self) -> Option<usize> {
        let suspect = self.suspects.keys().next();
        self.fresh.front().or(suspect).copied()
    }

    /// Takes over a rollout that was to be made ahead and didn't come about.
    pub(super) fn add(&mut self, index: usize) {
        let place = self.fresh.partition_point(|known| *known < index);
        self.fresh.insert(place, index);
    }

    /// Whether nothing is left, neither to make nor in flight.
    pub(super) fn is_done(&self) -> bool {
        self.is_sent() && !self.is_busy()
    }

    /// Whether something has succeeded since the last time that nothing did.
    pub(super) fn is_well(&self) -> bool {
        self.hold.is_none()
    }

    /// What to do at `now`. What it says to run counts as in flight.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        if self.is_sent() {
            return if self.is_busy() {
                Next::Later
            } else {
                Next::Done
            };
        }
        let job = match self.hold {
            Some(_) if self.is_busy() => return Next::Later,
            Some(hold) if now < hold.until => return Next::At(hold.until),
            Some(_) => {
                let fresh = self.fresh.pop_front().map(Job::Rollout);
                let canary = self.canary.map(Job::Canary);
                let waiting = || self.first_suspect().map(|(index, _)| Job::Rollout(index));
                fresh.or(canary).or_else(waiting)
            }
            None => match self.first_suspect() {
                Some((index, suspect)) if suspect.not_before <= now => Some(Job::Rollout(index)),
                suspect => match (self.fresh.pop_front(), suspect) {
                    (Some(index), _) => Some(Job::Rollout(index)),
                    (None, Some((_, suspect))) => return Next::At(suspect.not_before),
                    (None, None) => None,
                },
            },
        };
        match job {
            Some(Job::Rollout(index)) => {
                let seen = self.suspects.get(&index).map(|suspect| suspect.seen);
                self.in_flight.insert(index, seen.unwrap_or(self.successes));
            }
            Some(Job::Canary(_)) => self.is_canary_out = true,
            None => return Next::Done,
        }
        job.map_or(Next::Done, Next::Run)
    }

    /// Whether nothing waits for its turn.
    fn is_sent(&self) -> bool {
        self.fresh.is_empty() && self.first_suspect().is_none()
    }

    /// Whether anything is in flight.
    fn is_busy(&self) -> bool {
        !self.in_flight.is_empty() || self.is_canary_out
    }

    /// The waiting suspect that may run first.
    fn first_suspect(&self) -> Option<(usize, Suspect)> {
        let waiting = self.suspects.iter();
        let waiting = waiting.filter(|(index, _)| !self.in_flight.contains_key(index));
        let first = waiting.min_by_key(|(_, suspect)| suspect.not_before);
        first.map(|(index, suspect)| (*index, *suspect))
    }

    /// A rollout ended by itself. How long the line was held, if it was.
    pub(super) fn succeeded(&mut self, job: Job, now: Instant) -> Option<Duration> {
        match job {
            Job::Rollout(index) => {
                self.in_flight.remove(&index);
                self.suspects.remove(&index);
                self.canary = Some(index);
            }
            Job::Canary(_) => self.is_canary_out = false,
        }
        self.successes += 1;
        self.has_answered = true;
        let hold = self.hold.take().filter(|hold| hold.pauses > 0);
        hold.map(|hold| now.saturating_duration_since(hold.since))
    }

    /// The server asks to wait, and the rollout is to be made after that. Such a wait uses up no
    /// patience.
    pub(super) fn postponed(&mut self, job: Job, wait: Duration) {
        match job {
            Job::Rollout(index) => {
                self.in_flight.remove(&index);
                if !self.suspects.contains_key(&index) {
                    self.fresh.push_front(index);
                }
            }
            Job::Canary(_) => self.is_canary_out = false,
        }
        if let Some(hold) = &mut self.hold {
            hold.since += wait;
        }
    }

    /// A rollout was kept from ending.
    pub(super) fn failed(&mut self, job: Job, fault: Fault, now: Instant) -> Fate {
        let others_succeed = match job {
            Job::Rollout(index) => {
                let seen = self.in_flight.remove(&index).unwrap_or(self.successes);
                let others_succeed = self.successes > seen;
                let config = self.config;
                let suspect = self.suspects.entry(index).or_insert(Suspect {
                    strikes: 0,
                    seen,
                    not_before: now,
                });
                suspect.seen = self.successes;
                suspect.strikes += u32::from(others_succeed);
                suspect.not_before = now + config.pause(suspect.strikes);
                if suspect.strikes >= config.attempts {
                    self.suspects.remove(&index);
                    return Fate::LeftOut;
                }
                others_succeed
            }
            Job::Canary(_) => {
                self.is_canary_out = false;
                false
            }
        };
        if others_succeed {
            return Fate::Again;
        }
        self.nothing_succeeds(fault, now)
    }

    fn nothing_succeeds(&mut self, fault: Fault, now: Instant) -> Fate {
        let is_busy = self.is_busy();
        let hold = self.hold.get_or_insert(Hold {
            since: now,
            until: now,
            failures: 0,
            pauses: 0,
            refusals: 0,
        });
        hold.failures += 1;
        if now.saturating_duration_since(hold.since) >= self.config.patience() {
            return Fate::GaveUp;
        }
        if fault == Fault::Refused && !self.has_answered {
            hold.refusals += 1;
            if hold.refusals >= self.config.refusals {
                return Fate::GaveUp;
            }
            return Fate::Again;
        }
        // One of those in flight may still succeed. After a single failure another rollout is asked
        // at once.
        let is_alone = self.fresh.is_empty() && self.canary.is_none();
        if is_busy || (hold.failures == 1 && !is_alone) {
            return Fate::Again;
        }
        hold.until = now + self.config.pause(hold.pauses);
        hold.pauses += 1;
        Fate::Held(hold.until)
    }
}

#[cfg(test)]
mod tests;
