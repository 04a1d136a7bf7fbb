//! Servers that are ready, and how many may exist.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::resource::RLIM_INFINITY;
use tempfile::TempDir;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::follow::{Outcome, Text, follow};
use super::server::{ForkServer, Forked};
use crate::helper::limits;
use crate::launch::{LaunchError, Run};
use crate::policy::SandboxPolicy;
use crate::protocol::{Limits, MAXIMUM_FORKED_SOURCE_BYTES, Purpose, Setting};
use crate::sandbox::{SandboxError, Workshop};

/// Packages that take long to import and are often wanted. A program whose text names one is forked
/// from a server that has imported it.
const PRELOADED: [&str; 2] = ["numpy", "sympy"];

/// Servers kept for later, for each processor. The others end with their program.
const IDLE_FOR_EACH_PROCESSOR: usize = 2;

/// Programs without state that run at a time; further ones wait.
const PROGRAMS_AT_ONCE: usize = 64;

/// A program that runs for longer than this makes room for others to begin. Most take a few
/// milliseconds: begun all at once they would want a server each, which is started for them and
/// ended after them, and they would be done no sooner.
const YOUNG: Duration = Duration::from_millis(300);

/// Interpreters with state that live at a time; further rollouts wait. Each takes some ten
/// mebibytes even while nothing happens in it.
const SESSIONS_AT_ONCE: usize = 256;

/// What tells servers apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    modules: Vec<String>,
    file_mib: u64,
}

/// Which server will do. One that has been waiting may have died, and only using it shows that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    Any,
    New,
}

/// Servers that are ready for a program.
#[derive(Debug)]
pub(crate) struct Pool {
    workshop: Arc<Workshop>,
    setting: Setting,
    idle: Mutex<Vec<(Kind, ForkServer)>>,
    most_idle: usize,
    programs: Arc<Semaphore>,
    young: Semaphore,
    sessions: Arc<Semaphore>,
}

impl Pool {
    /// A pool without servers; they come with the first programs.
    pub(crate) fn new(workshop: Arc<Workshop>, setting: Setting) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Pool {
            workshop,
            setting,
            idle: Mutex::new(Vec::new()),
            most_idle: processors * IDLE_FOR_EACH_PROCESSOR,
            young: Semaphore::new(processors * IDLE_FOR_EACH_PROCESSOR),
            programs: Arc::new(Semaphore::new(PROGRAMS_AT_ONCE)),
            sessions: Arc::new(Semaphore::new(SESSIONS_AT_ONCE)),
        }
    }

    /// Whether a program can be forked. With children it needs a box that is killed as a whole, and
    /// a long one does not fit into the scratch directory of a server.
    pub(crate) fn takes(code: &str, policy: &SandboxPolicy) -> bool {
        policy.processes == 1 && code.len() <= MAXIMUM_FORKED_SOURCE_BYTES
    }

    /// Runs a program in a fork of a server. `None` means that it has to be started cold: it may
    /// not have as much memory as is in use already, or servers keep dying. Programs leave nothing
    /// behind, so one whose server died can be run again.
    pub(crate) async fn run(&self, code: &str, policy: &SandboxPolicy) -> Option<Run> {
        let _permit = self.programs.acquire().await;
        let mut young = Some(self.young.acquire().await);
        let kind = kind(code, policy);
        for freshness in [Freshness::Any, Freshness::New] {
            // It is ready: only the program's own time makes room for others.
            let Ok(mut server) = self.take(&kind, freshness).await else {
                break;
            };
            let outcome = {
                let mut once = pin!(self.run_once(&mut server, code, policy));
                tokio::select! {
                    outcome = &mut once => outcome,
                    () = tokio::time::sleep(YOUNG) => {
                        young.take();
                        once.await
                    }
                }
            };
            match outcome {
                Ok(Outcome::Over(execution) | Outcome::Returned(execution)) => {
                    let applied = server.applied().clone();
                    self.give_back(kind, server).await;
                    return Some(Run { applied, execution });
                }
                Ok(Outcome::TooSmall) => {
                    self.give_back(kind, server).await;
                    return None;
                }
                Err(_) => drop(server),
            }
        }
        None
    }

    async fn run_once(
        &self,
        server: &mut ForkServer,
        code: &str,
        policy: &SandboxPolicy,
    ) -> Result<Outcome, LaunchError> {
        let limits = self.limits(policy, policy.cpu_seconds());
        let mut program = server.fork(&limits, false).await?;
        let text = Text {
            source: code,
            policy,
            call: 1,
        };
        follow(server, &mut program, text).await
    }

    /// A server for an interpreter that lives on, and the right to have it.
    pub(super) async fn open(
        &self,
        kind: &Kind,
        limits: &[(u32, i64, i64)],
        freshness: Freshness,
    ) -> Result<(ForkServer, Forked), SandboxError> {
        let mut server = self.take(kind, freshness).await?;
        if let Ok(program) = server.fork(limits, true).await {
            return Ok((server, program));
        }
        let mut server = self.take(kind, Freshness::New).await?;
        let program = server.fork(limits, true).await?;
        Ok((server, program))
    }

    /// Waits for the right to keep an interpreter.
    pub(super) async fn session_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.sessions).acquire_owned().await.ok()
    }

    /// The limits of one program as `server.py` reads them.
    pub(super) fn limits(&self, policy: &SandboxPolicy, cpu_seconds: u64) -> Vec<(u32, i64, i64)> {
        let limits = Limits {
            cpu_seconds,
            ..Limits::of(policy)
        };
        let limit = |value: u64| match value {
            RLIM_INFINITY => -1,
            value => i64::try_from(value).unwrap_or(-1),
        };
        limits::of_program(&limits, &self.setting, true)
            .into_iter()
            .map(|(kind, soft, hard)| (kind as u32, limit(soft), limit(hard)))
            .collect()
    }

    /// A server that is ready: one that was kept once its last program is gone, a new one once its imports are
    /// done.
    async fn take(&self, kind: &Kind, freshness: Freshness) -> Result<ForkServer, SandboxError> {
        while freshness == Freshness::Any
            && let Some(mut server) = self.pop(kind)
        {
            if server.wait_until_ready().await.is_ok() {
                return Ok(server);
            }
        }
        let scratch = if self.setting.isolation.has_view() {
            None
        } else {
            Some(self.workshop.directory("forks-")?)
        };
        let limits = Limits::of(&SandboxPolicy {
            file_mib: kind.file_mib,
            ..SandboxPolicy::default()
        });
        let purpose = Purpose::Server {
            modules: kind.modules.clone(),
        };
        let path = scratch.as_ref().map(TempDir::path);
        let request = self.workshop.request(&self.setting, purpose, path, limits);
        Ok(ForkServer::start(&self.workshop.helper, &request, scratch).await?)
    }

    fn pop(&self, kind: &Kind) -> Option<ForkServer> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // The one used last: its memory is warm.
        let at = idle.iter().rposition(|(other, _)| other == kind)?;
        Some(idle.remove(at).1)
    }

    /// Keeps a server whose program is over.
    pub(super) async fn give_back(&self, kind: Kind, server: ForkServer) {
        if let Some(scratch) = server.scratch() {
            let scratch = scratch.to_owned();
            let emptied = tokio::task::spawn_blocking(move || crate::sandbox::empty(&scratch));
            if !matches!(emptied.await, Ok(Ok(()))) {
                return;
            }
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= self.most_idle {
            // The one used longest ago, so that kinds nobody asks for any more go.
            idle.remove(0);
        }
        idle.push((kind, server));
    }
}

/// The kind of server for a program. A text that names a package without importing it costs nothing
/// but the choice of the server.
pub(super) fn kind(code: &str, policy: &SandboxPolicy) -> Kind {
    let named = PRELOADED.iter().filter(|name| code.contains(**name));
    Kind {
        modules: named.map(|name| (*name).to_owned()).collect(),
        file_mib: policy.file_mib,
    }
}
