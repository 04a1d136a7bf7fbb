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
mod tests {
    use super::*;

    const CONFIG: FaultConfig = FaultConfig {
        attempts: 3,
        first_pause_ms: 2_000,
        longest_pause_s: 60,
        patience_s: 3_600,
        refusals: 4,
    };

    /// A line under a clock of its own, on which every rollout takes a second.
    struct Test {
        line: Line,
        now: Instant,
        began: Instant,
        made: Vec<Job>,
        left_out: Vec<usize>,
        pauses: Vec<u64>,
    }

    impl Test {
        fn new(count: usize, canary: Option<usize>) -> Self {
            let now = Instant::now();
            Test {
                line: Line::new(CONFIG, true, (0..count).collect(), canary),
                now,
                began: now,
                made: Vec::new(),
                left_out: Vec::new(),
                pauses: Vec::new(),
            }
        }

        /// Seconds since the beginning.
        fn seconds(&self) -> u64 {
            (self.now - self.began).as_secs()
        }

        /// Makes rollouts, `width` at a time, until nothing is left or the line gives up; whether it
        /// gave up. `outcome` says what becomes of a rollout at a second.
        fn run(&mut self, width: usize, outcome: impl Fn(usize, u64) -> Result<(), Fault>) -> bool {
            loop {
                let mut running = Vec::new();
                while running.len() < width {
                    match self.line.next(self.now) {
                        Next::Run(job) => running.push(job),
                        Next::At(until) if running.is_empty() => {
                            assert!(until > self.now);
                            self.now = until;
                        }
                        Next::At(_) => break,
                        Next::Later => {
                            assert!(!running.is_empty(), "nobody to wait for");
                            break;
                        }
                        Next::Done if running.is_empty() => return false,
                        Next::Done => break,
                    }
                }
                self.now += Duration::from_secs(1);
                for job in running {
                    let (Job::Rollout(index) | Job::Canary(index)) = job;
                    self.made.push(job);
                    let fault = match outcome(index, self.seconds()) {
                        Ok(()) => {
                            self.line.succeeded(job, self.now);
                            continue;
                        }
                        Err(fault) => fault,
                    };
                    match self.line.failed(job, fault, self.now) {
                        Fate::Again => {}
                        Fate::Held(until) => self.pauses.push((until - self.now).as_secs()),
                        Fate::LeftOut => self.left_out.push(index),
                        Fate::GaveUp => return true,
                    }
                }
            }
        }

        fn count(&self, job: Job) -> usize {
            self.made.iter().filter(|made| **made == job).count()
        }
    }

    #[test]
    fn without_faults_every_rollout_is_made_once_and_in_order() {
        let mut test = Test::new(10, None);
        assert!(!test.run(4, |_, _| Ok(())));
        assert_eq!(test.made, (0..10).map(Job::Rollout).collect::<Vec<_>>());
        assert!(test.pauses.is_empty());
    }

    #[test]
    fn a_rollout_that_keeps_failing_among_others_is_left_out_after_its_attempts() {
        for width in [1, 3, 8] {
            let mut test = Test::new(40, None);
            let bad = |index, _| {
                if index == 7 {
                    Err(Fault::Passing)
                } else {
                    Ok(())
                }
            };
            assert!(!test.run(width, bad));
            assert_eq!(test.left_out, [7], "{width} at a time");
            let tries = test.count(Job::Rollout(7));
            assert!((3..=4).contains(&tries), "{width} at a time: {tries}");
            assert!((0..40).all(|index| index == 7 || test.count(Job::Rollout(index)) == 1));
            assert!(
                test.seconds() < 120,
                "{width} at a time: {}",
                test.seconds()
            );
        }
    }

    #[test]
    fn what_was_not_made_ahead_is_made_in_its_turn() {
        let mut test = Test::new(3, None);
        test.line.fresh.remove(1);
        let Next::Run(first) = test.line.next(test.now) else {
            panic!("a rollout");
        };
        test.line.add(1);
        test.line.succeeded(first, test.now);
        assert!(test.line.is_well() && !test.line.is_done());
        assert!(!test.run(1, |_, _| Ok(())));
        assert_eq!(test.made, [Job::Rollout(1), Job::Rollout(2)]);
        assert!(test.line.is_done());
        // It may be the last one, after all others have ended; and it may fail.
        test.line.add(0);
        assert!(!test.line.is_done());
        let tries = std::cell::Cell::new(0);
        let once = |_, _| match tries.replace(1) {
            0 => Err(Fault::Passing),
            _ => Ok(()),
        };
        assert!(!test.run(1, once));
        assert!(test.left_out.is_empty() && test.line.is_well());
    }

    #[test]
    fn the_last_rollout_is_told_from_a_server_that_is_down_by_a_canary() {
        // Only bad ones are left; the server answers everything else.
        let mut test = Test::new(5, None);
        let bad = |index, _| {
            if index == 4 {
                Err(Fault::Passing)
            } else {
                Ok(())
            }
        };
        assert!(!test.run(1, bad));
        assert_eq!(test.left_out, [4]);
        assert_eq!(test.count(Job::Canary(3)), 3);
        assert!(test.seconds() < 60);
        // So after an interruption, with the others in the journal.
        let mut resumed = Test::new(1, Some(9));
        let bad = |index, _| {
            if index == 0 {
                Err(Fault::Refused)
            } else {
                Ok(())
            }
        };
        assert!(!resumed.run(1, bad));
        assert_eq!(resumed.left_out, [0]);
        assert_eq!(resumed.count(Job::Canary(9)), 3);
    }

    #[test]
    fn an_outage_is_waited_for_and_costs_no_rollout() {
        for width in [1, 8] {
            let mut test = Test::new(60, None);
            let down = |_, second| {
                if (5..1800).contains(&second) {
                    Err(Fault::Passing)
                } else {
                    Ok(())
                }
            };
            assert!(!test.run(width, down), "{width}");
            assert!(test.left_out.is_empty());
            // Pauses grow to the longest, and one rollout at a time asks after each.
            assert_eq!(test.pauses[..6], [2, 4, 8, 16, 32, 60]);
            assert!(test.pauses[6..].iter().all(|pause| *pause == 60));
            let asked = test.made.len() - 60;
            assert!(
                asked <= test.pauses.len() + width + 1,
                "{asked} asked in vain"
            );
            assert!(test.seconds() < 1800 + 120);
        }
    }

    #[test]
    fn a_bad_rollout_is_found_after_an_outage_too() {
        let mut test = Test::new(12, None);
        let outcome = |index, second| {
            if index == 3 || (2..300).contains(&second) {
                Err(Fault::Passing)
            } else {
                Ok(())
            }
        };
        assert!(!test.run(4, outcome));
        assert_eq!(test.left_out, [3]);
    }

    #[test]
    fn patience_ends() {
        for width in [1, 8] {
            // From the beginning, and after a good start.
            for start in [0, 5] {
                let mut test = Test::new(60, None);
                let down = |_, second| {
                    if second > start {
                        Err(Fault::Passing)
                    } else {
                        Ok(())
                    }
                };
                assert!(test.run(width, down));
                assert!(test.left_out.is_empty());
                assert!((3600..3800).contains(&test.seconds()), "{}", test.seconds());
            }
        }
        // With one rollout left there is a canary, which fails as well.
        let mut test = Test::new(2, None);
        let down = |_, second| {
            if second > 1 {
                Err(Fault::Passing)
            } else {
                Ok(())
            }
        };
        assert!(test.run(1, down));
        assert!(test.left_out.is_empty());
    }

    #[test]
    fn waits_that_the_server_asks_for_use_up_no_patience() {
        let mut test = Test::new(1, None);
        let Next::Run(job) = test.line.next(test.now) else {
            panic!("a rollout");
        };
        assert!(matches!(
            test.line.failed(job, Fault::Passing, test.now),
            Fate::Held(_)
        ));
        test.now += Duration::from_secs(60);
        let Next::Run(job) = test.line.next(test.now) else {
            panic!("the rollout again");
        };
        let wait = Duration::from_secs(7200);
        test.line.postponed(job, wait);
        test.now += wait;
        let Next::Run(job) = test.line.next(test.now) else {
            panic!("the rollout once more");
        };
        let fate = test.line.failed(job, Fault::Passing, test.now);
        assert!(matches!(fate, Fate::Held(_)), "{fate:?}");
    }

    #[test]
    fn refusals_of_a_policy_that_never_answered_are_not_waited_for() {
        let mut test = Test::new(60, None);
        test.line.has_answered = false;
        assert!(test.run(1, |_, _| Err(Fault::Refused)));
        assert_eq!((test.made.len(), test.pauses.len()), (4, 0));
        // One that has answered may be refused for a while.
        let mut test = Test::new(60, None);
        let expired = |_, second| {
            if (9..900).contains(&second) {
                Err(Fault::Refused)
            } else {
                Ok(())
            }
        };
        assert!(!test.run(1, expired));
        assert!(test.left_out.is_empty());
        // So does a few of them among answers.
        let mut test = Test::new(60, None);
        test.line.has_answered = false;
        let bad = |index, _| {
            if index < 2 {
                Err(Fault::Refused)
            } else {
                Ok(())
            }
        };
        assert!(!test.run(8, bad));
        assert_eq!(test.left_out, [0, 1]);
    }
}
