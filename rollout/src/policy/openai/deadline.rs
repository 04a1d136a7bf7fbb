//! What a call comes to when its rollout's time is up: whether the server is at fault.
//!
//! A server that fails, or has no place for the request, is. One that keeps the first request open may be
//! slow, which is the reply's own matter, or hang. A reply that comes in one piece gives no sign before
//! it is there; so what comes in reply to other requests counts as well, and where nothing does, the
//! server is asked for a few tokens before the time is up.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::{OpenAiPolicy, request};
use crate::policy::{Completion, CompletionRequest, PolicyError};
use crate::trajectory::{Message, Role};

/// Tokens that are asked for to see whether a server works: some servers refuse to write fewer.
const SIGN_TOKENS: u32 = 16;

/// What a call is waiting for.
#[derive(Clone)]
pub(super) enum Waiting {
    /// The end of what keeps it from a reply: failures, or the lack of a place.
    Trouble { attempts: u32, reason: String },
    /// The reply to its first request, which is open since then.
    Reply { since: Instant },
}

/// What a call is waiting for now.
pub(super) struct Standing(Mutex<Waiting>);

impl Standing {
    pub(super) fn set(&self, waiting: Waiting) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = waiting;
    }

    fn get(&self) -> Waiting {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.clone()
    }
}

/// What has come from a server that shows that it works: replies, and parts of them.
#[derive(Debug, Default)]
pub(super) struct Signs {
    last: Mutex<Option<Instant>>,
    /// Held by the call that asks for a sign: one is enough for all.
    turn: tokio::sync::Mutex<()>,
}

impl Signs {
    /// Something has come.
    pub(super) fn came(&self) {
        let now = Instant::now();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// How long nothing has come, as far as a request knows that is open since then.
    fn silence(&self, since: Instant) -> Duration {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.map_or(since, |last| last.max(since)).elapsed()
    }
}

impl OpenAiPolicy {
    /// Asks until there is a reply, or until the deadline if the server is at fault then.
    pub(super) async fn ask_in_time(
        &self,
        request: CompletionRequest,
    ) -> Result<Completion, PolicyError> {
        let standing = Standing(Mutex::new(Waiting::Trouble {
            attempts: 0,
            reason: format!(
                "{} requests were open all the time",
                self.options.most_in_flight
            ),
        }));
        let Some(deadline) = request.deadline.map(Instant::from_std) else {
            return self.ask(request, &standing).await;
        };
        let asking = self.ask(request, &standing);
        tokio::pin!(asking);
        let in_time = timeout_at(deadline, async {
            tokio::select! {
                answered = &mut asking => answered,
                () = self.ask_for_a_sign(&standing, deadline) => asking.as_mut().await,
            }
        });
        if let Ok(answered) = in_time.await {
            return answered;
        }
        match standing.get() {
            Waiting::Trouble { attempts, reason } => {
                Err(PolicyError::Unavailable { attempts, reason })
            }
            Waiting::Reply { since } => {
                let silence = self.signs.silence(since);
                if silence < self.options.unheard {
                    // The server works: the time is the reply's own.
                    return asking.await;
                }
                let seconds = silence.as_secs();
                Err(PolicyError::Unavailable {
                    attempts: 1,
                    reason: format!("nothing came from it for {seconds} s"),
                })
            }
        }
    }

    /// Asks the server for a few tokens when the deadline is near and nothing has come for long. If they
    /// come, the signs show it.
    async fn ask_for_a_sign(&self, standing: &Standing, deadline: Instant) {
        let doubt = self.options.unheard / 2;
        if let Some(near) = deadline.checked_sub(doubt) {
            sleep_until(near).await;
        }
        let _turn = self.signs.turn.lock().await;
        if let Waiting::Reply { since } = standing.get()
            && self.signs.silence(since) >= doubt
        {
            let hello = vec![Message::new(Role::User, "Hello")];
            let few = CompletionRequest::new(hello, SIGN_TOKENS);
            let body = request::body(&self.options, &few, self.limit_field(), SIGN_TOKENS);
            // Anything but a reply is no sign.
            let _ = self.send(&body, &few).await;
        }
    }
}
