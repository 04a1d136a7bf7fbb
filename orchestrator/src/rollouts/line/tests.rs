//! Lines on which rollouts fail by a plan: what is made, what is left out, what is waited for.

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
