//! Signs of life: what a running process writes of itself into the run's database, for `status`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock::unix_seconds;
use crate::error::{RunError, told};
use crate::observer::{Notice, Observer};
use crate::store::{Sign, Store, StoreError};

/// Time between signs of life of a running process.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// What the run waits for, none while it gets on.
type Wait = Option<String>;

/// The signs of one stretch of running.
pub(crate) struct Signs {
    store: Store,
    session: i64,
    started: Instant,
    waits: Arc<watch::Sender<Wait>>,
    beats: JoinHandle<()>,
}

impl Signs {
    /// Begin a stretch of running.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn begin(store: &Store) -> Result<Self, StoreError> {
        let session = store
            .begin_session(unix_seconds(), std::process::id())
            .await?;
        let started = Instant::now();
        let (waits, wait) = watch::channel(None);
        Ok(Self {
            store: store.clone(),
            session,
            started,
            waits: Arc::new(waits),
            beats: tokio::spawn(beat(store.clone(), session, started, wait)),
        })
    }

    /// An observer that passes everything on to `observer`, and sees from it what the run waits for.
    pub(crate) fn watching(&self, observer: Arc<dyn Observer>) -> Arc<dyn Observer> {
        Arc::new(Watching {
            observer,
            waits: Arc::clone(&self.waits),
        })
    }

    /// End the stretch; `outcome` says why.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn end(self, outcome: &Result<(), RunError>) -> Result<(), StoreError> {
        self.beats.abort();
        // One under way could still come after the last sign, and take it back. That it was aborted is known.
        let _ = self.beats.await;
        let note = outcome.as_ref().err().map(|error| told(error));
        let sign = sign(self.started, note, true);
        self.store.touch_session(self.session, &sign).await
    }
}

/// Writes a sign every few seconds, and at once when a wait begins or is over.
async fn beat(store: Store, session: i64, started: Instant, mut wait: watch::Receiver<Wait>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(HEARTBEAT) => {}
            changed = wait.changed() => {
                // Nobody is left to tell of waits: the stretch is over.
                if changed.is_err() {
                    return;
                }
            }
        }
        let note = wait.borrow_and_update().clone();
        let sign = sign(started, note, false);
        // A missed beat shows as a stale run; the run itself meets the same fault and reports it.
        let _ = store.touch_session(session, &sign).await;
    }
}

fn sign(started: Instant, note: Option<String>, is_end: bool) -> Sign {
    Sign {
        now: unix_seconds(),
        ran_s: i64::try_from(started.elapsed().as_secs()).unwrap_or(i64::MAX),
        note,
        is_end,
    }
}

/// Whatever is told after a wait but a further one, or a warning, shows that the run gets on.
struct Watching {
    observer: Arc<dyn Observer>,
    waits: Arc<watch::Sender<Wait>>,
}

impl Observer for Watching {
    fn notice(&self, notice: Notice) {
        let wait = match &notice {
            Notice::Waiting(what) => Some(Some(what.clone())),
            Notice::Warning(_) => None,
            Notice::Began(_) | Notice::Advanced { .. } | Notice::Ended { .. } | Notice::Line(_) => {
                Some(None)
            }
        };
        if let Some(wait) = wait {
            self.waits.send_if_modified(|known| {
                let is_new = *known != wait;
                *known = wait;
                is_new
            });
        }
        self.observer.notice(notice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::Silent;

    #[test]
    fn what_is_told_after_a_wait_ends_it_unless_it_is_a_warning() {
        let (waits, wait) = watch::channel(None);
        let watching = Watching {
            observer: Arc::new(Silent),
            waits: Arc::new(waits),
        };
        let after = |notice: Notice| {
            watching.notice(notice);
            wait.borrow().clone()
        };
        let down = || Some("no rollout succeeds".to_owned());
        let advanced = Notice::Advanced {
            by: 1,
            tokens: Some(20),
            figure: String::new(),
        };
        assert_eq!(after(Notice::Line("round 1".into())), None);
        assert_eq!(after(Notice::Waiting("no rollout succeeds".into())), down());
        assert_eq!(after(Notice::Warning("look".into())), down());
        assert_eq!(after(advanced), None);
    }
}
