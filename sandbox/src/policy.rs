//! What one run may use.

use std::time::Duration;

/// Interpreter start-up alone needs some 20 MiB of address space; below this the loader fails and
/// every program would look broken.
const MINIMUM_MEMORY_MIB: u64 = 64;

/// Bounds of one run. Every bound is hard: what exceeds it is refused or killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPolicy {
    /// Wall-clock time from the start of the interpreter; then everything is killed.
    pub wall: Duration,
    /// CPU time of each process, rounded up to whole seconds.
    pub cpu: Duration,
    /// Address space of each process in MiB; allocation beyond it raises `MemoryError`.
    pub memory_mib: u64,
    /// Bytes kept of each of stdout and stderr; a program that writes more is killed.
    pub output_bytes: usize,
    /// Processes alive at a time. With 1 the program cannot start children at all, and may have
    /// up to 64 threads; with more, processes and threads together stay within this number.
    pub processes: u32,
    /// Bytes of files, in MiB, that the program may have in its scratch directory.
    pub file_mib: u64,
}

/// A policy that cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The interpreter would not start in so little memory.
    #[error("memory limit of {memory_mib} MiB is below the interpreter's {MINIMUM_MEMORY_MIB} MiB")]
    MemoryTooSmall {
        /// The limit that was asked for.
        memory_mib: u64,
    },
    /// A bound of zero leaves nothing to run with.
    #[error("limit `{limit}` is zero")]
    Zero {
        /// Name of the field.
        limit: &'static str,
    },
    /// Several processes can neither be counted nor reliably killed without their own process
    /// namespace and user id.
    #[error("{processes} processes need a process namespace and a user id other than root's")]
    ProcessesUncontrolled {
        /// The number that was asked for.
        processes: u32,
    },
}

impl Default for SandboxPolicy {
    /// Enough for a calculation in an agent's turn.
    fn default() -> Self {
        SandboxPolicy {
            wall: Duration::from_secs(5),
            cpu: Duration::from_secs(5),
            memory_mib: 512,
            output_bytes: 1 << 20,
            processes: 1,
            file_mib: 16,
        }
    }
}

impl SandboxPolicy {
    /// Checks what can be checked before a process is started; `counts_processes` says whether the box
    /// can count the processes of a program.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] names the first bound that can't be kept.
    pub fn validate(&self, counts_processes: bool) -> Result<(), PolicyError> {
        let zero = |limit| Err(PolicyError::Zero { limit });
        if self.wall.is_zero() {
            return zero("wall");
        }
        if self.cpu.is_zero() {
            return zero("cpu");
        }
        if self.output_bytes == 0 {
            return zero("output_bytes");
        }
        if self.processes == 0 {
            return zero("processes");
        }
        if self.file_mib == 0 {
            return zero("file_mib");
        }
        if self.memory_mib < MINIMUM_MEMORY_MIB {
            return Err(PolicyError::MemoryTooSmall {
                memory_mib: self.memory_mib,
            });
        }
        if self.processes > 1 && !counts_processes {
            return Err(PolicyError::ProcessesUncontrolled {
                processes: self.processes,
            });
        }
        Ok(())
    }

    /// CPU limit in the kernel's unit.
    pub(crate) fn cpu_seconds(&self) -> u64 {
        self.cpu.as_secs() + u64::from(self.cpu.subsec_nanos() > 0)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_cannot_work_are_named() {
        let zero_wall = SandboxPolicy {
            wall: Duration::ZERO,
            ..SandboxPolicy::default()
        };
        assert!(
            zero_wall
                .validate(true)
                .unwrap_err()
                .to_string()
                .contains("`wall`")
        );
        let tiny = SandboxPolicy {
            memory_mib: 8,
            ..SandboxPolicy::default()
        };
        assert!(matches!(
            tiny.validate(true),
            Err(PolicyError::MemoryTooSmall { memory_mib: 8 })
        ));
        let many = SandboxPolicy {
            processes: 4,
            ..SandboxPolicy::default()
        };
        assert!(many.validate(true).is_ok());
        assert!(many.validate(false).is_err());
        assert!(SandboxPolicy::default().validate(false).is_ok());
    }

    #[test]
    fn cpu_time_is_rounded_up() {
        let policy = |cpu| SandboxPolicy {
            cpu,
            ..SandboxPolicy::default()
        };
        assert_eq!(policy(Duration::from_millis(1)).cpu_seconds(), 1);
        assert_eq!(policy(Duration::from_secs(2)).cpu_seconds(), 2);
        assert_eq!(policy(Duration::from_millis(2001)).cpu_seconds(), 3);
    }
}
