//! Resource limits of the program.

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

use super::{At, Failure};
use crate::enforcement::Isolation;
use crate::protocol::{Limits, Request, Setting};

/// Descriptors: enough for any calculation, too few to hold much kernel memory in pipes.
const OPEN_FILES: rlim_t = 64;

/// The usual stack. Deep recursion ends in a `RecursionError` well within it.
const STACK_BYTES: rlim_t = 8 << 20;

/// Processes and threads of a program that may not have children.
const TASKS: rlim_t = 64;

/// One limit: what it bounds, the value that counts, and the value up to which it can be raised.
pub(crate) type ResourceLimit = (Resource, rlim_t, rlim_t);

/// Limits of every process of a box, a fork server included.
fn common() -> Vec<ResourceLimit> {
    vec![
        (Resource::RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES),
        (Resource::RLIMIT_STACK, STACK_BYTES, STACK_BYTES),
        // Not 0, which the kernel ignores where core dumps go to a program; 1 stops both kinds.
        (Resource::RLIMIT_CORE, 1, 1),
        (Resource::RLIMIT_MEMLOCK, 0, 0),
        (Resource::RLIMIT_MSGQUEUE, 0, 0),
    ]
}

/// Limits of one program. `is_forked` says that it has its server's limits already, and that the
/// server is there beside it.
pub(crate) fn of_program(
    limits: &Limits,
    setting: &Setting,
    is_forked: bool,
) -> Vec<ResourceLimit> {
    let mut wanted = vec![
        // One second between the signal and the kill, which a program cannot catch.
        (
            Resource::RLIMIT_CPU,
            limits.cpu_seconds,
            limits.cpu_seconds + 1,
        ),
        (Resource::RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes),
    ];
    if setting.counts_processes {
        let tasks = match limits.processes {
            1 => TASKS,
            several => rlim_t::from(several),
        };
        // Inside a user namespace process 1 belongs to the same user and is counted, and so is a
        // server.
        let init = matches!(
            setting.isolation,
            Isolation::UserNamespace | Isolation::NamespacesOnly
        );
        let tasks = tasks + rlim_t::from(init) + rlim_t::from(is_forked);
        wanted.push((Resource::RLIMIT_NPROC, tasks, tasks));
    }
    if !is_forked {
        wanted.extend(common());
    }
    // Last, since setting the others may take memory.
    wanted.push((
        Resource::RLIMIT_AS,
        limits.memory_bytes,
        limits.memory_bytes,
    ));
    wanted
}

/// Sets all limits, so that they cannot be raised again, and says whether they read back.
pub(super) fn apply(request: &Request) -> Result<bool, Failure> {
    let wanted = if request.purpose.is_server() {
        common()
    } else {
        of_program(&request.limits, &request.setting, false)
    };
    let mut is_confirmed = true;
    for (resource, soft, hard) in wanted {
        // A limit that was lower already can only be kept.
        let (_, ceiling) = getrlimit(resource).at("reading resource limits")?;
        let (soft, hard) = (soft.min(ceiling), hard.min(ceiling));
        setrlimit(resource, soft, hard).at("setting resource limits")?;
        is_confirmed &= getrlimit(resource) == Ok((soft, hard));
    }
    Ok(is_confirmed)
}
