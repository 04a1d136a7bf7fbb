//! Process 1 of the box: when it dies, the kernel kills everything in the box.

use std::process::ExitCode;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::ForkResult;

use super::channel::Channel;
use super::supervisor::{Assignment, describe, fork_process};
use super::{At, Failure, file_system, namespaces, program};
use crate::protocol::Reply;

/// Builds the private file system, starts the program and reaps until it is over. Orphans that
/// are left then die with this process.
pub(super) fn run(assignment: &Assignment<'_>, channel: &mut Channel) -> Result<ExitCode, Failure> {
    let Assignment {
        request,
        supervisor,
        origin,
    } = assignment;
    prctl::set_pdeathsig(Signal::SIGKILL).at("tying the box to its supervisor")?;
    // While the machine's /proc is still in sight.
    let mut separations = origin.compare();
    if request.is_probe {
        separations.has_route = Some(namespaces::has_route());
    }
    if request.setting.isolation.has_view() {
        file_system::enter(request, *supervisor)?;
    }
    let program = match fork_process("starting the program")? {
        ForkResult::Child => return program::become_python(assignment, channel, separations),
        ForkResult::Parent { child } => child,
    };
    loop {
        match waitpid(None, None) {
            Ok(status) if status.pid() == Some(program) => {
                channel.send(&Reply::Ended(describe(status)))?;
                return Ok(ExitCode::SUCCESS);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).at("waiting for the program"),
        }
    }
}
