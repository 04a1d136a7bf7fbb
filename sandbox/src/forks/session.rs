//! Interpreters whose variables live on between calls.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::follow::{Outcome, Text, follow};
use super::pool::{Freshness, Kind, Pool, kind};
use super::server::{ForkServer, Forked, Order, ServerMessage};
use crate::execution::{Execution, Exit};
use crate::launch::{KILL_WITHIN, LaunchError};
use crate::policy::SandboxPolicy;
use crate::sandbox::SandboxError;

/// The kernel counts CPU time over the whole life of an interpreter: this many calls' worth. Each
/// call is bounded by its wall time.
const CPU_LIMIT_CALLS: u64 = 64;

/// An interpreter for one rollout: what a call defines is there for the next. Nothing is shared
/// with other sessions. Between calls the interpreter is stopped, threads included.
///
/// Dropping it kills the interpreter.
#[derive(Debug)]
pub struct Session {
    pool: Arc<Pool>,
    interpreter: Option<Interpreter>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// What one call of a session did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCall {
    /// Output and end of this call. A call that raised has exit code 1.
    pub execution: Execution,
    /// Whether the interpreter is gone, and every variable with it: it ran out of time, wrote too
    /// much, exited or crashed. The next call starts a new one.
    pub is_state_lost: bool,
}

/// A live interpreter.
#[derive(Debug)]
struct Interpreter {
    kind: Kind,
    server: ForkServer,
    program: Forked,
    calls: u64,
}

impl Session {
    /// A session without an interpreter yet. Waits while too many are alive.
    pub(crate) async fn open(pool: Arc<Pool>) -> Self {
        let permit = pool.session_permit().await;
        Session {
            pool,
            interpreter: None,
            _permit: permit,
        }
    }

    /// Runs a text in the interpreter. `policy` bounds this call; memory, files and processes are
    /// those of the call that started the interpreter.
    ///
    /// # Errors
    /// When no interpreter can be started. Whatever the text does is a [`SessionCall`]. Cancelling
    /// the future kills the interpreter.
    pub async fn call(
        &mut self,
        code: &str,
        policy: &SandboxPolicy,
    ) -> Result<SessionCall, SandboxError> {
        if let Some(interpreter) = self.interpreter.take() {
            let outcome = interpreter.call(code, policy).await;
            // Nobody can say what was lost, so nothing is repeated.
            let killed = || lost(Exit::Signal(nix::libc::SIGKILL));
            return Ok(self.settle(outcome).await.unwrap_or_else(|_| killed()));
        }
        // Before the first call there is no state, so that a server that has died can be replaced.
        let interpreter = self.start(code, policy, Freshness::Any).await?;
        let outcome = interpreter.call(code, policy).await;
        if let Ok(first) = self.settle(outcome).await {
            return Ok(first);
        }
        let interpreter = self.start(code, policy, Freshness::New).await?;
        let outcome = interpreter.call(code, policy).await;
        Ok(self.settle(outcome).await?)
    }

    /// Keeps the interpreter if it lives.
    async fn settle(
        &mut self,
        outcome: Result<(Outcome, Interpreter), LaunchError>,
    ) -> Result<SessionCall, LaunchError> {
        let (outcome, interpreter) = outcome?;
        match outcome {
            Outcome::Returned(execution) => {
                self.interpreter = Some(interpreter);
                Ok(SessionCall {
                    execution,
                    is_state_lost: false,
                })
            }
            Outcome::Over(execution) => {
                interpreter.end(&self.pool).await;
                Ok(SessionCall {
                    execution,
                    is_state_lost: true,
                })
            }
            Outcome::TooSmall => {
                interpreter.end(&self.pool).await;
                Ok(lost(Exit::OutOfMemory))
            }
        }
    }

    async fn start(
        &self,
        code: &str,
        policy: &SandboxPolicy,
        freshness: Freshness,
    ) -> Result<Interpreter, SandboxError> {
        let kind = kind(code, policy);
        let cpu_seconds = policy.cpu_seconds() * CPU_LIMIT_CALLS;
        let limits = self.pool.limits(policy, cpu_seconds);
        let (server, program) = self.pool.open(&kind, &limits, freshness).await?;
        Ok(Interpreter {
            kind,
            server,
            program,
            calls: 0,
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Its server has its imports done and can serve others. Without a runtime everything is
        // killed.
        if let (Some(interpreter), Ok(runtime)) = (
            self.interpreter.take(),
            tokio::runtime::Handle::try_current(),
        ) {
            let pool = Arc::clone(&self.pool);
            runtime.spawn(async move { interpreter.end(&pool).await });
        }
    }
}

impl Interpreter {
    /// Runs one call. An interpreter that fails to do so is gone.
    async fn call(
        mut self,
        code: &str,
        policy: &SandboxPolicy,
    ) -> Result<(Outcome, Self), LaunchError> {
        if self.calls > 0 {
            self.order(Order::Thaw).await?;
        }
        self.calls += 1;
        let text = Text {
            source: code,
            policy,
            call: self.calls,
        };
        let outcome = match follow(&mut self.server, &mut self.program, text).await? {
            // It may have ended right after it returned.
            Outcome::Returned(execution) if self.order(Order::Freeze).await.is_err() => {
                Outcome::Over(execution)
            }
            outcome => outcome,
        };
        Ok((outcome, self))
    }

    /// Gives an order and waits until it is carried out.
    async fn order(&mut self, order: Order) -> Result<(), LaunchError> {
        self.server.order(order).await?;
        let done = async {
            loop {
                match self.server.message().await? {
                    ServerMessage::Done(done) if done == order => return Ok(()),
                    ServerMessage::Done(_) => {}
                    ServerMessage::Ended(_) | ServerMessage::Ready { .. } => {
                        let detail = "the interpreter ended between two calls".to_owned();
                        return Err(LaunchError::Lost { detail });
                    }
                }
            }
        };
        tokio::time::timeout(KILL_WITHIN, done)
            .await
            .unwrap_or(Err(LaunchError::Stuck))
    }

    /// Kills the program and gives its server back.
    async fn end(self, pool: &Pool) {
        let Interpreter {
            kind,
            mut server,
            program,
            ..
        } = self;
        if server.kill().await.is_ok() {
            drop(program);
            pool.give_back(kind, server).await;
        }
    }
}

/// The result of a call whose interpreter is gone without a word.
fn lost(exit: Exit) -> SessionCall {
    SessionCall {
        execution: Execution {
            stdout: String::new(),
            stderr: String::new(),
            exit,
            is_truncated: false,
            duration: std::time::Duration::ZERO,
        },
        is_state_lost: true,
    }
}
