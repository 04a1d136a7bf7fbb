//! Running a program of a cheap check in a sandbox that may fail just then, with the patience that
//! rollouts have.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rollout::tools::ToolFault;
use sandbox::{Execution, Exit, SandboxError, SandboxPolicy};
use tokio::time::sleep_until;

use super::line::{Fate, Fault, Job, Line, Next};
use super::rolling::STOP_INTERVAL;
use crate::error::RunError;
use crate::observer::Notice;
use crate::workshop::Workshop;

/// The program in its line, and another one that tells whether the sandbox works at all.
const PROGRAM: usize = 0;
const CANARY: usize = 1;

/// How much longer a program may take that ran out of time. Its processor time stays what it was: what
/// was kept waiting gets it, and what doesn't end doesn't end.
const SECOND_CHANCE: u32 = 4;

impl Workshop {
    /// What becomes of a program, or why the sandbox can't run it while it runs others. One that runs
    /// out of time is run once more.
    ///
    /// # Errors
    /// When the run is to stop, or the sandbox has run nothing for longer than `faults` allow.
    pub(crate) async fn run_checked(
        &self,
        source: &str,
        limits: &SandboxPolicy,
    ) -> Result<Result<Execution, String>, RunError> {
        let first = self.run_patiently(source, limits).await?;
        if !matches!(&first, Ok(execution) if execution.exit == Exit::TimedOut) {
            return Ok(first);
        }
        let longer = SandboxPolicy {
            wall: limits.wall.saturating_mul(SECOND_CHANCE),
            ..limits.clone()
        };
        self.run_patiently(source, &longer).await
    }

    /// The same without a second run. A program that the sandbox fails at is tried again; between, an
    /// empty one shows whether it is the program's fault.
    async fn run_patiently(
        &self,
        source: &str,
        limits: &SandboxPolicy,
    ) -> Result<Result<Execution, String>, RunError> {
        let faults = self.loaded.config.faults;
        let mut line = Line::new(faults, true, VecDeque::from([PROGRAM]), Some(CANARY));
        let usual = SandboxPolicy::default();
        loop {
            if let Some(reason) = self.stop.reason() {
                return Err(RunError::Stopped { reason });
            }
            let now = Instant::now();
            let job = match line.next(now) {
                Next::Run(job) => job,
                Next::At(until) => {
                    sleep_until(until.min(now + STOP_INTERVAL).into()).await;
                    continue;
                }
                // A line of one ends with its program, which comes back below.
                Next::Later | Next::Done => return Ok(Err("it was not run".to_owned())),
            };
            let outcome = match job {
                Job::Rollout(_) => self.tools.run_python(source, limits).await,
                Job::Canary(_) => self.tools.run_python("", &usual).await,
            };
            let now = Instant::now();
            let fault = match outcome {
                Ok(execution) => {
                    if let Some(held) = line.succeeded(job, now) {
                        let seconds = held.as_secs();
                        self.line(format!("programs run again, after {seconds} s"));
                    }
                    match job {
                        Job::Rollout(_) => return Ok(Ok(execution)),
                        Job::Canary(_) => continue,
                    }
                }
                Err(fault) => fault,
            };
            let reason = format!("{fault}: {}", fault.source);
            if matches!(job, Job::Rollout(_)) && is_asked_too_much(&fault) {
                return Ok(Err(reason));
            }
            match line.failed(job, Fault::Passing, now) {
                Fate::Again => {}
                Fate::Held(until) => {
                    let seconds = until.saturating_duration_since(now).as_secs_f64();
                    self.notice(Notice::Waiting(format!(
                        "no program can be run ({reason}): nothing is run for {seconds:.0} s; the run stops when \
                         that has gone on for {}",
                        faults.shown_patience()
                    )));
                }
                Fate::LeftOut => return Ok(Err(reason)),
                Fate::GaveUp => return Err(RunError::Infrastructure { reason }),
            }
        }
    }

    /// Waits; comes back early when the run is to stop.
    ///
    /// # Errors
    /// When the run is to stop.
    pub(crate) async fn pause(&self, pause: Duration) -> Result<(), RunError> {
        let until = Instant::now() + pause;
        loop {
            if let Some(reason) = self.stop.reason() {
                return Err(RunError::Stopped { reason });
            }
            let now = Instant::now();
            if now >= until {
                return Ok(());
            }
            sleep_until(until.min(now + STOP_INTERVAL).into()).await;
        }
    }
}

/// Whether the sandbox can't give what the harness asks for, which no waiting changes.
fn is_asked_too_much(fault: &ToolFault) -> bool {
    matches!(
        fault.source.downcast_ref::<SandboxError>(),
        Some(SandboxError::Policy(_) | SandboxError::NoForkServer { .. })
    )
}
