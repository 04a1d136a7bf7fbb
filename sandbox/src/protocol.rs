//! What parent and helper say to each other over the helper's standard input, a socket.
//!
//! The parent sends one [`Request`]: its length (4 bytes, little endian), then JSON. The helper
//! answers with [`Reply`] lines. When the parent closes its side, the helper kills everything and
//! exits: a parent that dies takes its programs along without anyone having to notice.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::enforcement::Isolation;
use crate::policy::SandboxPolicy;

/// Longest request the helper reads, so that a corrupt length cannot make it allocate gigabytes.
pub(crate) const MAXIMUM_REQUEST_BYTES: u32 = 64 << 20;

/// Longest program for a fork server, whose scratch directory has its size before any program.
pub(crate) const MAXIMUM_FORKED_SOURCE_BYTES: usize = 64 << 10;

/// Everything the helper needs to know for one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Goes into the program's command line, so that people and tests find it in a process list.
    pub(crate) label: String,
    /// What the interpreter is for.
    pub(crate) purpose: Purpose,
    /// What was found at creation and is the same for every run.
    pub(crate) setting: Setting,
    /// Working directory of the program, writable.
    pub(crate) scratch: PathBuf,
    /// Bounds of this run; of a server, only the size of the scratch directory counts.
    pub(crate) limits: Limits,
    /// Whether to test namespaces from inside as well, as is done once at creation.
    pub(crate) is_probe: bool,
}

/// What an interpreter is started for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Purpose {
    /// One program, which ends with it.
    Program {
        /// The Python source.
        code: String,
    },
    /// Forking a child for each of many programs. The helper's standard output is a socket then,
    /// see `forks::server`.
    Server {
        /// What to import once for all children, where it is installed.
        modules: Vec<String>,
    },
}

impl Purpose {
    /// Bytes that the program's source takes in the scratch directory.
    pub(crate) fn source_bytes(&self) -> u64 {
        match self {
            Purpose::Program { code } => code.len() as u64,
            Purpose::Server { .. } => MAXIMUM_FORKED_SOURCE_BYTES as u64,
        }
    }

    /// Whether programs are children of the interpreter rather than the interpreter itself.
    pub(crate) fn is_server(&self) -> bool {
        matches!(self, Purpose::Server { .. })
    }
}

/// The part of a request that does not change between runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// How the helper separates itself from the machine.
    pub(crate) isolation: Isolation,
    /// Whether to go on without Landlock where the kernel has none. Only at creation: afterwards a
    /// layer that was in force then must be in force again, or the run fails.
    pub(crate) landlock_is_optional: bool,
    /// The same for seccomp.
    pub(crate) seccomp_is_optional: bool,
    /// Interpreter to execute.
    pub(crate) executable: PathBuf,
    /// Where installed packages are, appended to `sys.path`.
    pub(crate) module_paths: Vec<PathBuf>,
    /// Files and directories that may be read.
    pub(crate) readable: Vec<PathBuf>,
    /// Files that may be executed: the interpreter and the dynamic loader.
    pub(crate) executables: Vec<PathBuf>,
    /// Devices that may be read and written.
    pub(crate) devices: Vec<PathBuf>,
    /// How the private file system is put together.
    pub(crate) view: Vec<ViewEntry>,
    /// An empty directory to mount the private file system on.
    pub(crate) mount_point: PathBuf,
    /// Whether `RLIMIT_NPROC` holds for the program's user id. Where it does not, threads are
    /// denied altogether.
    pub(crate) counts_processes: bool,
}

/// One path of the private file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ViewEntry {
    /// A file or directory of the machine, shown read-only at its own path.
    Bind(PathBuf),
    /// A symbolic link.
    Link {
        /// Where it lies.
        at: PathBuf,
        /// What it says.
        target: PathBuf,
    },
}

/// Bounds of one run in the kernel's units.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) cpu_seconds: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) processes: u32,
}

impl Limits {
    /// A policy in the kernel's units.
    pub(crate) fn of(policy: &SandboxPolicy) -> Self {
        Limits {
            cpu_seconds: policy.cpu_seconds(),
            memory_bytes: policy.memory_mib << 20,
            file_bytes: policy.file_mib << 20,
            processes: policy.processes,
        }
    }
}

/// One line from the helper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// What has been put in force; sent by the program just before it becomes Python.
    Applied(Applied),
    /// The next thing that happens is the interpreter's start.
    Started,
    /// The program is over.
    Ended(Ended),
    /// The box could not be built.
    Failed {
        /// What was being done.
        stage: String,
        /// Why it did not work.
        detail: String,
    },
}

/// Layers as the helper saw them take hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Applied {
    /// Landlock version of the kernel; `None` when it is not in force.
    pub(crate) landlock_abi: Option<i32>,
    pub(crate) seccomp: bool,
    pub(crate) no_new_privs: bool,
    /// Whether the limits read back as they were set.
    pub(crate) rlimits: bool,
    pub(crate) user_id: u32,
    pub(crate) separations: Separations,
}

/// Namespaces that differ from the supervisor's, compared by their kernel identity.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Separations {
    pub(crate) user: bool,
    pub(crate) pid: bool,
    pub(crate) network: bool,
    pub(crate) ipc: bool,
    pub(crate) mount: bool,
    /// Whether a packet could have left: a route to the outside exists. Only tested in a probe.
    pub(crate) has_route: Option<bool>,
}

/// How the program ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// Exit status, when it exited.
    pub(crate) code: Option<i32>,
    /// Signal, when one killed it.
    pub(crate) signal: Option<i32>,
    /// CPU time of the program and its children.
    pub(crate) cpu_ms: u64,
    /// Largest resident size of one process.
    pub(crate) peak_kib: u64,
}
