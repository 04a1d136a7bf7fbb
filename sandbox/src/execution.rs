//! What came out of a run.

use std::time::Duration;

use nix::libc;
use serde::{Deserialize, Serialize};

use crate::policy::SandboxPolicy;
use crate::protocol::Ended;

/// Result of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Standard output up to the cap; invalid UTF-8 appears as U+FFFD.
    pub stdout: String,
    /// Standard error up to the cap, likewise.
    pub stderr: String,
    /// How the program ended.
    pub exit: Exit,
    /// Whether either output was longer than the cap. The program was killed then.
    pub is_truncated: bool,
    /// From the start of the interpreter to the end of the program.
    pub duration: Duration,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It exited by itself with this status.
    Code(i32),
    /// It used up its wall-clock or CPU time.
    TimedOut,
    /// It used up its memory.
    OutOfMemory,
    /// A signal ended it: its own, `SIGKILL` at the output cap, or `SIGXFSZ` at the disk limit
    /// where only the parent can watch that.
    Signal(i32),
}

/// Why the parent put an end to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Wall-clock limit.
    Wall,
    /// Output cap.
    Output,
    /// Disk limit.
    Disk,
    /// The program wrote to the channel over which its text came.
    Nonsense,
}

impl Exit {
    /// Classifies the end of a program that nobody stopped.
    pub(crate) fn of(ended: &Ended, stderr: &str, policy: &SandboxPolicy) -> Exit {
        match (ended.code, ended.signal) {
            (Some(1), _) if reports_memory_error(stderr) => Exit::OutOfMemory,
            (Some(code), _) => Exit::Code(code),
            (None, Some(libc::SIGXCPU)) => Exit::TimedOut,
            (None, Some(libc::SIGKILL)) if ended.cpu_ms >= policy.cpu_seconds() * 1000 => {
                Exit::TimedOut
            }
            // The kernel's own out-of-memory kill; a small program that kills itself is no such.
            (None, Some(libc::SIGKILL)) if ended.peak_kib >= policy.memory_mib * 1024 / 2 => {
                Exit::OutOfMemory
            }
            // Native code gives up with an abort or a crash when an allocation fails.
            (None, Some(libc::SIGABRT | libc::SIGSEGV | libc::SIGBUS))
                if reports_failed_allocation(stderr) =>
            {
                Exit::OutOfMemory
            }
            (None, signal) => Exit::Signal(signal.unwrap_or(libc::SIGKILL)),
        }
    }

    /// The exit to report when the parent stopped the program.
    pub(crate) fn stopped(stop: Stop) -> Exit {
        match stop {
            Stop::Wall => Exit::TimedOut,
            Stop::Output | Stop::Nonsense => Exit::Signal(libc::SIGKILL),
            Stop::Disk => Exit::Signal(libc::SIGXFSZ),
        }
    }
}

/// Whether the traceback ends in a `MemoryError`, or in a library's subclass of it.
fn reports_memory_error(stderr: &str) -> bool {
    let last = stderr
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    let exception = last.split(':').next().unwrap_or_default().trim();
    exception == "MemoryError" || exception.ends_with("ArrayMemoryError")
}

/// Whether native code said that it could not allocate.
fn reports_failed_allocation(stderr: &str) -> bool {
    [
        "MemoryError",
        "bad_alloc",
        "Cannot allocate memory",
        "out of memory",
    ]
    .iter()
    .any(|phrase| stderr.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: Option<i32>, signal: Option<i32>) -> Ended {
        Ended {
            code,
            signal,
            cpu_ms: 10,
            peak_kib: 9000,
        }
    }

    #[test]
    fn memory_errors_are_told_from_other_failures() {
        let policy = SandboxPolicy::default();
        let exit = |stderr: &str| Exit::of(&ended(Some(1), None), stderr, &policy);
        assert_eq!(exit("Traceback\n  x\nMemoryError\n"), Exit::OutOfMemory);
        assert_eq!(
            exit("numpy._core._exceptions._ArrayMemoryError: Unable"),
            Exit::OutOfMemory
        );
        assert_eq!(exit("ValueError: not a MemoryError\n"), Exit::Code(1));
        assert_eq!(exit(""), Exit::Code(1));
    }

    #[test]
    fn kills_are_told_apart_by_what_was_used() {
        let policy = SandboxPolicy::default();
        let kill = ended(None, Some(libc::SIGKILL));
        assert_eq!(Exit::of(&kill, "", &policy), Exit::Signal(libc::SIGKILL));
        let large = Ended {
            peak_kib: 500 * 1024,
            ..kill.clone()
        };
        assert_eq!(Exit::of(&large, "", &policy), Exit::OutOfMemory);
        let busy = Ended {
            cpu_ms: 5600,
            ..kill
        };
        assert_eq!(Exit::of(&busy, "", &policy), Exit::TimedOut);
        let xcpu = ended(None, Some(libc::SIGXCPU));
        assert_eq!(Exit::of(&xcpu, "", &policy), Exit::TimedOut);
    }
}
