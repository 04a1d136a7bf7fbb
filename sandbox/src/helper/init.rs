//! Process 1 of the box: when it dies, the kernel kills everything in the box.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
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
    let is_keeper = request.purpose.is_server() && request.setting.isolation.has_view();
    let (ours, theirs) = is_keeper
        .then(UnixStream::pair)
        .transpose()
        .at("connecting the server")?
        .unzip();
    let program = match fork_process("starting the program")? {
        ForkResult::Child => {
            drop(ours);
            return program::become_python(assignment, channel, separations, theirs);
        }
        ForkResult::Parent { child } => child,
    };
    drop(theirs);
    if let Some(server) = ours {
        keep_scratch(server, assignment)?;
    }
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

/// Renews the scratch directory whenever the fork server asks for it, until the server is gone. The
/// server has no privilege to mount anything. It asks between two programs.
fn keep_scratch(mut server: UnixStream, assignment: &Assignment<'_>) -> Result<(), Failure> {
    const STAGE: &str = "renewing the scratch directory";
    let mut wish = [0];
    while server.read(&mut wish).at(STAGE)? > 0 {
        file_system::renew_scratch(assignment.request, assignment.supervisor).at(STAGE)?;
        // A server that has just died will be noticed by the next read.
        let _ = server.write_all(&wish);
    }
    Ok(())
}
