//! The process that the parent knows: outside the box, it starts the box and ends it.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeValLike;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use super::channel::Channel;
use super::namespaces::Identities;
use super::{At, Failure, init, namespaces, program};
use crate::protocol::{Ended, Reply, Request};

/// How often a sweep looks again for what is still alive.
const SWEEP_EVERY: Duration = Duration::from_millis(5);

/// A second's worth: what has not died of `SIGKILL` by then is stuck in the kernel.
const SWEEPS: u32 = 200;

/// What every process of a box knows.
#[derive(Debug)]
pub(super) struct Assignment<'a> {
    /// What is to be run.
    pub(super) request: &'a Request,
    /// The supervisor's process number on the machine.
    pub(super) supervisor: u32,
    /// The namespaces that are to be left.
    pub(super) origin: Identities,
}

/// Runs one request to its end. Returns in each process of the family, with that process's status.
pub(super) fn run(request: &Request, channel: &mut Channel) -> Result<ExitCode, Failure> {
    let signals = block_child_signals()?;
    let isolation = request.setting.isolation;
    let assignment = Assignment {
        request,
        supervisor: std::process::id(),
        origin: namespaces::identities(),
    };
    if isolation.has_namespaces() {
        namespaces::enter(isolation)?;
    } else {
        // Without process numbers of their own, orphans come to us instead of to process 1.
        prctl::set_child_subreaper(true).at("becoming a reaper")?;
    }
    match fork_process("starting the box")? {
        ForkResult::Child if isolation.has_namespaces() => init::run(&assignment, channel),
        ForkResult::Child => {
            program::become_python(&assignment, channel, assignment.origin.compare(), None)
        }
        ForkResult::Parent { child } => {
            let ended = watch(child, channel, &signals)?;
            if let Some(status) = ended.filter(|_| !isolation.has_namespaces()) {
                channel.send(&Reply::Ended(describe(status)))?;
            }
            sweep();
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Forks. Only for processes of this module's family, which have a single thread.
pub(super) fn fork_process(stage: &'static str) -> Result<ForkResult, Failure> {
    #[expect(unsafe_code, reason = "fork has no safe wrapper")]
    // SAFETY: `helper::main` demands to be called before any thread exists, and nothing in this
    // module starts one, so no lock can be held by a thread that the child lacks.
    unsafe { fork() }.at(stage)
}

/// Translates an exit for the parent.
pub(super) fn describe(status: WaitStatus) -> Ended {
    let (code, signal) = match status {
        WaitStatus::Exited(_, code) => (Some(code), None),
        WaitStatus::Signaled(_, signal, _) => (None, Some(signal as i32)),
        _ => (None, None),
    };
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
    let cpu_ms = usage.map_or(0, |usage| {
        usage.user_time().num_milliseconds() + usage.system_time().num_milliseconds()
    });
    let peak_kib = usage.map_or(0, |usage| usage.max_rss());
    Ended {
        code,
        signal,
        cpu_ms: u64::try_from(cpu_ms).unwrap_or(0),
        peak_kib: u64::try_from(peak_kib).unwrap_or(0),
    }
}

/// Makes children's deaths readable from a descriptor.
fn block_child_signals() -> Result<SignalFd, Failure> {
    const STAGE: &str = "preparing to wait";
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.thread_block().at(STAGE)?;
    SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).at(STAGE)
}

/// Waits for the child to end, or for the parent to hang up and then kills the child. Returns the
/// child's status in the first case.
fn watch(
    child: Pid,
    channel: &mut Channel,
    signals: &SignalFd,
) -> Result<Option<WaitStatus>, Failure> {
    const STAGE: &str = "waiting for the program";
    loop {
        let mut descriptors = [
            PollFd::new(channel.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut descriptors, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            result => result.at(STAGE)?,
        };
        let has_message = descriptors[0].any().unwrap_or(false);
        while signals.read_signal().at(STAGE)?.is_some() {}
        let status = waitpid(child, Some(WaitPidFlag::WNOHANG)).at(STAGE)?;
        if status != WaitStatus::StillAlive {
            return Ok(Some(status));
        }
        if has_message && channel.is_closed() {
            kill(child, Signal::SIGKILL).at("killing the program")?;
            // Returns when everything in the box's process namespace is gone.
            waitpid(child, None).at(STAGE)?;
            return Ok(None);
        }
    }
}

/// Kills and reaps whatever has been orphaned to us. After a process namespace there is nothing;
/// elsewhere seccomp denies children, so this only matters where seccomp is missing too.
fn sweep() {
    for _ in 0..SWEEPS {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => {
                for orphan in children() {
                    let _ = kill(orphan, Signal::SIGKILL);
                }
                std::thread::sleep(SWEEP_EVERY);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

/// Our children, orphans included. A grandchild becomes one when its parent dies.
fn children() -> Vec<Pid> {
    let me = Pid::this();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .map(Pid::from_raw)
        .filter(|&pid| parent_of(pid) == Some(me))
        .collect()
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything, so count from its end.
    let fields = stat.rsplit_once(')')?.1;
    fields
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
        .map(Pid::from_raw)
}
