//! Loading an adapter into a server that may be down just then, with the patience that rollouts have.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::line::{Fate, Fault, Line, Next};
use super::rolling::STOP_INTERVAL;
use crate::error::RunError;
use crate::observer::Notice;
use crate::serving::{ServedAdapter, ServerFault};
use crate::workshop::Workshop;

/// A pause that a server asks for and that no patience is spent on. Shorter ones are waited for like
/// those of a policy.
const LONG_WAIT: Duration = Duration::from_secs(60);

impl Workshop {
    /// Has a server load an adapter: again after pauses, while it can't be reached or fails. One that
    /// answers and declines isn't asked again.
    ///
    /// # Errors
    /// When the run is to stop, the server declines, or the patience is used up.
    pub(crate) async fn load(&self, adapter: &ServedAdapter) -> Result<(), RunError> {
        self.rested().await?;
        let faults = self.loaded.config.faults;
        let has_answered = self.has_answered.load(Ordering::Relaxed);
        // A line of one, which nothing can be told from by a canary.
        let mut line = Line::new(faults, has_answered, VecDeque::from([0]), None);
        let mut rest = None;
        let mut waited = Duration::ZERO;
        loop {
            if let Some(reason) = self.stop.reason() {
                return Err(RunError::Stopped { reason });
            }
            let now = Instant::now();
            let next = match rest {
                Some(until) if now < until => Next::At(until),
                _ => line.next(now),
            };
            let job = match next {
                Next::Run(job) => job,
                Next::At(until) => {
                    sleep_until(until.min(now + STOP_INTERVAL).into()).await;
                    continue;
                }
                Next::Later | Next::Done => return Ok(()),
            };
            let outcome = adapter.load().await;
            let now = Instant::now();
            let Err(fault) = outcome else {
                let held = line.succeeded(job, now);
                if held.is_some() || !waited.is_zero() {
                    let seconds = (held.unwrap_or_default() + waited).as_secs();
                    self.line(format!("the adapter is loaded, after {seconds} s"));
                }
                return Ok(());
            };
            let asked = fault.wait();
            rest = asked.map(|wait| now + wait);
            if let Some(wait) = asked.filter(|wait| *wait > LONG_WAIT) {
                let seconds = wait.as_secs_f64();
                self.notice(Notice::Waiting(format!(
                    "the server asks to wait ({fault}): nothing is sent for {seconds:.0} s"
                )));
                line.postponed(job, wait);
                waited += wait;
                continue;
            }
            let kind = match fault {
                ServerFault::Passing { .. } => Fault::Passing,
                ServerFault::Refused { .. } => Fault::Refused,
                ServerFault::Declined { .. } => {
                    return Err(fault.into_error(adapter.base_url()));
                }
            };
            match line.failed(job, kind, now) {
                Fate::Again => {}
                Fate::Held(until) => {
                    let until = rest.map_or(until, |rest| rest.max(until));
                    let seconds = until.saturating_duration_since(now).as_secs_f64();
                    self.notice(Notice::Waiting(format!(
                        "adapter {} can't be loaded ({fault}): nothing is sent for {seconds:.0} s; the run stops when \
                         that has gone on for {}",
                        adapter.id(),
                        faults.shown_patience()
                    )));
                }
                Fate::LeftOut | Fate::GaveUp => {
                    return Err(fault.into_error(adapter.base_url()));
                }
            }
        }
    }
}
