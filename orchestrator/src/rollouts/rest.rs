//! The rest that a server asks for. Nothing is sent before it is over, in the phase that met it and in those
//! after it.

use std::time::{Duration, Instant};

use rollout::trajectory::ExitReason;

use crate::error::RunError;
use crate::observer::Notice;
use crate::workshop::Workshop;

/// Until when the server asked to be left alone.
#[derive(Debug, Default)]
pub(super) struct Rest(Option<Instant>);

impl Rest {
    /// Takes what a rollout ended with just now: it may be that the server asks to wait.
    pub(super) fn heed(&mut self, exit: &ExitReason) {
        if let ExitReason::Infrastructure {
            wait_s: Some(seconds),
            ..
        } = exit
        {
            let until = Instant::now() + Duration::from_secs(*seconds);
            self.0 = self.0.max(Some(until));
        }
    }

    /// Until when nothing is to be sent, if that lies after `now`.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        self.0.filter(|until| now < *until)
    }
}

impl Workshop {
    /// Says that nothing is sent until then, since the server asks for it.
    pub(super) fn tell_rest(&self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        let seconds = left.as_secs_f64();
        let text = format!("the server asks to wait: nothing is sent for {seconds:.0} s");
        self.notice(Notice::Waiting(text));
    }

    /// Waits until a rest is over that the server asked for, between phases.
    ///
    /// # Errors
    /// When the run is to stop, or what landed meanwhile could not be stored.
    pub(super) async fn rested(&self) -> Result<(), RunError> {
        let mut ahead = self.ahead.lock().await;
        ahead.settle()?;
        let now = Instant::now();
        let Some(until) = ahead.rest.until(now) else {
            return Ok(());
        };
        drop(ahead);
        self.tell_rest(until);
        let left = until.saturating_duration_since(now);
        self.pause(left).await?;
        let seconds = left.as_secs_f64();
        self.line(format!("the server is asked again, after {seconds:.0} s"));
        Ok(())
    }
}
