//! The public entry.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use crate::enforcement::{EnforcementReport, Isolation};
use crate::execution::Execution;
use crate::forks::{Pool, Session};
use crate::interpreter::{Interpreter, InterpreterError};
use crate::launch::{HelperCommand, HelperProcess, LaunchError, Run};
use crate::policy::{PolicyError, SandboxPolicy};
use crate::probe;
use crate::protocol::{Limits, Purpose, Request, Setting};

/// Where the scratch directory appears in a private file system.
const SCRATCH_IN_VIEW: &str = "/box/scratch";

/// Numbers the boxes of this process, for the labels of their programs.
static BOXES: AtomicU64 = AtomicU64::new(0);

/// A box whose strength has been tested on this machine. Runs are independent of each other and
/// may happen at the same time.
#[derive(Debug)]
pub struct Sandbox {
    // First, so that servers are told to go before their directories do.
    pool: Option<Arc<Pool>>,
    workshop: Arc<Workshop>,
    setting: Setting,
    report: EnforcementReport,
}

/// How to create a [`Sandbox`]. The default asks for the strongest box and accepts no weak one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxOptions {
    /// Accept a box with broken guarantees. Whoever sets this must carry
    /// [`EnforcementReport::level`] along with everything that is computed in the box.
    pub allow_degraded: bool,
    /// Use this separation and no other; by default the strongest that works.
    pub isolation: Option<Isolation>,
    /// How programs get their interpreter.
    pub start: Start,
}

/// How a program gets its interpreter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// From a fork server where that is possible, otherwise as if cold. What the program may do is
    /// the same.
    #[default]
    Warm,
    /// Each program starts an interpreter of its own.
    Cold,
}

/// Why there is no box, or why a run could not take place. What the program inside does wrong is
/// never an error.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The configured interpreter cannot be used.
    #[error(transparent)]
    Interpreter(#[from] InterpreterError),
    /// The policy cannot be carried out.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The helper failed.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A directory for scratch files could not be created or removed.
    #[error("cannot use {} for scratch files", path.display())]
    Scratch {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A path that has to be sent to the helper is not UTF-8.
    #[error("the path {} is not UTF-8", path.display())]
    NotUnicode {
        /// The path.
        path: PathBuf,
    },
    /// The program does not start under any separation.
    #[error("no kind of sandbox works here: {}", attempts.join("; "))]
    Unusable {
        /// Each separation with what went wrong.
        attempts: Vec<String>,
    },
    /// Programs with state need a fork server, and there is none.
    #[error("the sandbox has no fork server, which programs with state need: {detail}")]
    NoForkServer {
        /// Why not.
        detail: String,
    },
    /// The box can be built, but it does not hold.
    #[error(
        "the sandbox does not hold here ({}); running anyway has to be allowed explicitly",
        missing.join("; ")
    )]
    Degraded {
        /// Each broken guarantee and each absent layer, with what was seen.
        missing: Vec<String>,
    },
}

impl Sandbox {
    /// Builds a box and attacks it from inside to learn what it enforces.
    ///
    /// `helper` is re-executed for every run, `python` is a path or a command name, and scratch
    /// files go below `scratch_root`, which is created if need be.
    ///
    /// # Errors
    ///
    /// [`SandboxError::Interpreter`] without a usable interpreter, [`SandboxError::Degraded`] where
    /// the kernel lacks what the box needs.
    pub async fn new(
        helper: HelperCommand,
        python: PathBuf,
        scratch_root: PathBuf,
    ) -> Result<Self, SandboxError> {
        Self::with_options(helper, python, scratch_root, SandboxOptions::default()).await
    }

    /// The same with a choice of strength.
    ///
    /// # Errors
    ///
    /// As for [`Sandbox::new`]; with `allow_degraded` a weak box is not an error.
    pub async fn with_options(
        helper: HelperCommand,
        python: PathBuf,
        scratch_root: PathBuf,
        options: SandboxOptions,
    ) -> Result<Self, SandboxError> {
        let interpreter = Interpreter::find(&python).await?;
        let workshop = Arc::new(Workshop::new(helper, scratch_root)?);
        let (setting, mut report) =
            probe::probe(&workshop, &interpreter, options.isolation).await?;
        let missing = report.broken();
        if !missing.is_empty() && !options.allow_degraded {
            let missing = missing
                .into_iter()
                .chain(probe::absent_layers(&report))
                .collect();
            return Err(SandboxError::Degraded { missing });
        }
        let pool = match options.start {
            Start::Warm => {
                let pool = Pool::new(Arc::clone(&workshop), setting.clone());
                report.layers.fork_server = probe::probe_pool(&workshop, &pool, &report).await?;
                report.layers.fork_server.enforced.then(|| Arc::new(pool))
            }
            Start::Cold => None,
        };
        Ok(Sandbox {
            pool,
            workshop,
            setting,
            report,
        })
    }

    /// Runs a program and returns what it printed. Cancelling the future kills the program.
    ///
    /// # Errors
    ///
    /// Only when the run could not take place as it should. Whatever the program does, time out
    /// or crash, is an [`Execution`].
    pub async fn run_python(
        &self,
        code: &str,
        policy: &SandboxPolicy,
    ) -> Result<Execution, SandboxError> {
        policy.validate(self.setting.counts_processes)?;
        if let Some(pool) = &self.pool
            && Pool::takes(code, policy)
            && let Some(run) = pool.run(code, policy).await
        {
            return Ok(run.execution);
        }
        let run = self
            .workshop
            .run(&self.setting, code, policy, false)
            .await?;
        Ok(run.execution)
    }

    /// An interpreter for one rollout, in which variables live on from call to call. Waits while
    /// very many are open.
    ///
    /// # Errors
    ///
    /// [`SandboxError::NoForkServer`] where the box has no fork server.
    pub async fn open_session(&self) -> Result<Session, SandboxError> {
        let pool = self
            .pool
            .as_ref()
            .ok_or_else(|| SandboxError::NoForkServer {
                detail: self.report.layers.fork_server.detail.clone(),
            })?;
        Ok(Session::open(Arc::clone(pool)).await)
    }

    /// What the box enforces here.
    pub fn enforcement(&self) -> &EnforcementReport {
        &self.report
    }

    /// A text that the command line of every program of this box contains while it runs, and that
    /// of every fork server while it is kept.
    pub fn process_label(&self) -> &str {
        &self.workshop.label
    }
}

/// What it takes to run something, before and after the box has been tested.
#[derive(Debug)]
pub(crate) struct Workshop {
    pub(crate) helper: HelperCommand,
    label: String,
    home: TempDir,
    runs: AtomicU64,
}

impl Workshop {
    fn new(helper: HelperCommand, scratch_root: PathBuf) -> Result<Self, SandboxError> {
        let unusable = |source| SandboxError::Scratch {
            path: scratch_root.clone(),
            source,
        };
        std::fs::create_dir_all(&scratch_root).map_err(unusable)?;
        // Landlock and mounts work on real places.
        let real = scratch_root.canonicalize().map_err(unusable)?;
        let home = tempfile::Builder::new()
            .prefix("box-")
            .tempdir_in(real)
            .map_err(unusable)?;
        std::fs::create_dir(home.path().join("view")).map_err(unusable)?;
        let number = BOXES.fetch_add(1, Ordering::Relaxed);
        let label = format!("coharness-box-{}-{number}.", std::process::id());
        Ok(Workshop {
            helper,
            label,
            home,
            runs: AtomicU64::new(0),
        })
    }

    /// An empty directory for mounting the private file system on.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.home.path().join("view")
    }

    /// Runs one program.
    pub(crate) async fn run(
        &self,
        setting: &Setting,
        code: &str,
        policy: &SandboxPolicy,
        is_probe: bool,
    ) -> Result<Run, SandboxError> {
        // In a private file system the scratch directory is memory that vanishes by itself.
        let on_disk = if setting.isolation.has_view() {
            None
        } else {
            Some(self.directory("run-")?)
        };
        let on_disk_path = on_disk.as_ref().map(TempDir::path);
        let purpose = Purpose::Program {
            code: code.to_owned(),
        };
        let request = Request {
            is_probe,
            ..self.request(setting, purpose, on_disk_path, Limits::of(policy))
        };
        let run = HelperProcess::launch(&self.helper, Stdio::piped())?
            .run(&request, policy, on_disk_path)
            .await;
        if let Some(directory) = on_disk {
            remove(directory).await?;
        }
        Ok(run?)
    }

    /// What a helper is asked for. `on_disk` is the scratch directory outside a private file system.
    pub(crate) fn request(
        &self,
        setting: &Setting,
        purpose: Purpose,
        on_disk: Option<&Path>,
        limits: Limits,
    ) -> Request {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        Request {
            label: format!("{}{number}", self.label),
            purpose,
            setting: setting.clone(),
            scratch: on_disk.map_or_else(|| PathBuf::from(SCRATCH_IN_VIEW), PathBuf::from),
            limits,
            is_probe: false,
        }
    }

    /// An empty directory.
    pub(crate) fn directory(&self, prefix: &str) -> Result<TempDir, SandboxError> {
        tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(self.home.path())
            .map_err(|source| SandboxError::Scratch {
                path: self.home.path().into(),
                source,
            })
    }
}

/// Removes a directory that may hold many files, off the async threads.
async fn remove(directory: TempDir) -> Result<(), SandboxError> {
    let path = directory.path().to_owned();
    let removed = tokio::task::spawn_blocking(move || directory.close()).await;
    removed
        .map_err(io::Error::from)
        .and_then(std::convert::identity)
        .map_err(|source| SandboxError::Scratch { path, source })
}

/// Removes what is in a directory, and keeps the directory.
pub(crate) fn empty(directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            // One without permissions can hold nothing, as it could not be entered.
            std::fs::remove_dir(entry.path()).or_else(|_| std::fs::remove_dir_all(entry.path()))?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
