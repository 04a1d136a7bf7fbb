//! The last steps of the process that becomes the program.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::libc;
use nix::sys::personality::{self, Persona};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{
    Gid, Uid, chdir, execve, getpid, getppid, getuid, setgroups, setresgid, setresuid, setsid,
};

use super::channel::Channel;
use super::seccomp::Permissions;
use super::server::Preparation;
use super::supervisor::Assignment;
use super::{At, Failure, landlock, limits, seccomp};
use crate::enforcement::Isolation;
use crate::protocol::{Applied, Purpose, Reply, Request, Separations};

/// A program that is alone in its interpreter.
const BOOTSTRAP: &str = concat!(
    include_str!("../python/program.py"),
    include_str!("../python/bootstrap.py")
);

/// An interpreter that forks programs.
const SERVER: &str = concat!(
    include_str!("../python/program.py"),
    include_str!("../python/server.py")
);

/// User ids from here on belong to nobody on a usual machine; the supervisor's process number
/// makes one that no other live box has.
const FIRST_FRESH_ID: u32 = 0x6000_0000;

/// The program's whole environment, apart from directories. Hash seeds are fixed, so that a
/// program that prints a set prints it the same way when a run is repeated. Native libraries start
/// as many threads as the machine has cores unless told otherwise.
const ENVIRONMENT: [(&str, &str); 7] = [
    ("LANG", "C.UTF-8"),
    ("PYTHONHASHSEED", "0"),
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
    ("MKL_NUM_THREADS", "1"),
    ("NUMEXPR_NUM_THREADS", "1"),
    ("PATH", ""),
];

/// Variables whose value is the scratch directory.
const DIRECTORIES: [&str; 2] = ["HOME", "TMPDIR"];

/// No bytecode is written, no user site, no `site` at all (see the bootstrap), UTF-8 whatever the
/// locale, and integers of any length can be printed, as number puzzles ask for. Isolated mode
/// (`-I`) would ignore the environment, hash seed included; the environment is ours anyway.
const OPTIONS: [&str; 8] = [
    "-B",
    "-s",
    "-S",
    "-X",
    "utf8",
    "-X",
    "int_max_str_digits=0",
    "-c",
];

/// Names of all variables that a program sees.
pub(crate) fn variable_names() -> Vec<&'static str> {
    ENVIRONMENT
        .iter()
        .map(|(name, _)| *name)
        .chain(DIRECTORIES)
        .collect()
}

/// The user id of a box, from its supervisor's process number on the machine.
pub(super) fn fresh_user_id(supervisor: u32) -> u32 {
    FIRST_FRESH_ID + supervisor
}

/// Gives up everything that the program must not have, then executes the interpreter. Returns only
/// when that fails. `scratch_keeper` is a server's, see [`super::init`].
pub(super) fn become_python(
    assignment: &Assignment<'_>,
    channel: &mut Channel,
    separations: Separations,
    scratch_keeper: Option<UnixStream>,
) -> Result<ExitCode, Failure> {
    let Assignment {
        request,
        supervisor,
        ..
    } = assignment;
    // Its own session: no terminal, and a signal to its group reaches nobody else.
    setsid().at("leaving the session")?;
    if request.setting.isolation == Isolation::FreshUser {
        change_user(fresh_user_id(*supervisor))?;
    }
    let permissions = permissions(request);
    let preparation = match &request.purpose {
        Purpose::Program { code } => {
            chdir(&request.scratch).at("entering the scratch directory")?;
            fs::write("main.py", code).at("writing the program")?;
            None
        }
        Purpose::Server { modules } => {
            // Not in the scratch directory, which is replaced under it.
            chdir("/").at("leaving the working directory")?;
            let preparation = Preparation::new(request, permissions, scratch_keeper)?;
            Some((preparation.argument(request, modules)?, preparation))
        }
    };
    // After the change of user, which clears it. In a process namespace init's death is enough.
    prctl::set_pdeathsig(Signal::SIGKILL).at("tying the program to its supervisor")?;
    let is_direct_child = !request.setting.isolation.has_namespaces();
    if is_direct_child && getppid().as_raw().unsigned_abs() != *supervisor {
        // It died before it could be tied to.
        return Ok(ExitCode::FAILURE);
    }
    close_on_exec()?;
    let argument = match &preparation {
        Some((argument, descriptors)) => {
            descriptors.keep_open()?;
            Some(argument.as_str())
        }
        None => None,
    };
    let invocation = Invocation::new(request, argument).at("preparing the command line")?;
    fix_addresses();

    prctl::set_no_new_privs().at("giving up new privileges")?;
    let no_new_privs = prctl::get_no_new_privs().at("giving up new privileges")?;
    let landlock_abi = landlock::apply(request)?;
    let rlimits = limits::apply(request)?;
    let seccomp = if request.purpose.is_server() {
        seccomp::apply_to_server(permissions)?
    } else {
        seccomp::apply(permissions, request.setting.seccomp_is_optional)?
    };
    let user_id = getuid().as_raw();
    let applied = Applied {
        landlock_abi,
        seccomp,
        no_new_privs,
        rlimits,
        user_id,
        separations,
    };
    channel.send(&Reply::Applied(applied))?;
    channel.send(&Reply::Started)?;
    SigSet::empty().thread_set_mask().at("unblocking signals")?;
    match execve(
        &invocation.executable,
        &invocation.arguments,
        &invocation.environment,
    ) {
        Err(error) => Err(error).at("executing the interpreter"),
    }
}

/// Asks for the same addresses in every interpreter: what hashes by address is in the same order
/// when a run is repeated. Some containers deny it, and then a repeated run may differ there.
fn fix_addresses() {
    if let Ok(persona) = personality::get() {
        let _ = personality::set(persona | Persona::ADDR_NO_RANDOMIZE);
    }
}

fn change_user(id: u32) -> Result<(), Failure> {
    const STAGE: &str = "changing to an own user id";
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    setgroups(&[]).at(STAGE)?;
    setresgid(group, group, group).at(STAGE)?;
    setresuid(user, user, user).at(STAGE)
}

fn permissions(request: &Request) -> Permissions {
    let setting = &request.setting;
    Permissions {
        children: request.limits.processes > 1,
        // Where tasks are not counted, threads cannot be bounded, only denied.
        threads: setting.counts_processes,
        only_signals_to: (!setting.isolation.has_namespaces()).then(getpid),
        // Landlock does not cover a file's mode, owner and times.
        metadata: setting.isolation.has_view(),
    }
}

/// Marks every descriptor but the standard ones, so that nothing the parent's other libraries left
/// open comes along.
fn close_on_exec() -> Result<(), Failure> {
    #[expect(unsafe_code, reason = "close_range has no wrapper")]
    // SAFETY: with this flag nothing is closed now, so no descriptor in use becomes invalid.
    let result = unsafe {
        libc::close_range(
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC as libc::c_int,
        )
    };
    match Errno::result(result) {
        // Before Linux 5.11. Rust opens everything with the mark anyway.
        Err(Errno::ENOSYS | Errno::EINVAL) => Ok(()),
        result => result.map(drop).at("closing descriptors"),
    }
}

/// What `execve` takes.
struct Invocation {
    executable: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Invocation {
    fn new(request: &Request, server: Option<&str>) -> Result<Self, Errno> {
        let setting = &request.setting;
        let executable = c_string(setting.executable.as_os_str())?;
        let mut arguments = vec![executable.clone()];
        let script = if server.is_some() { SERVER } else { BOOTSTRAP };
        let specific = [script, &request.label].into_iter().chain(server);
        for argument in OPTIONS.into_iter().chain(specific) {
            arguments.push(c_string(OsStr::new(argument))?);
        }
        for path in &setting.module_paths {
            arguments.push(c_string(path.as_os_str())?);
        }
        let mut environment = Vec::new();
        for (name, value) in ENVIRONMENT {
            environment.push(c_string(OsStr::new(&format!("{name}={value}")))?);
        }
        for name in DIRECTORIES {
            let mut variable = OsString::from(format!("{name}="));
            variable.push(&request.scratch);
            environment.push(c_string(&variable)?);
        }
        Ok(Invocation {
            executable,
            arguments,
            environment,
        })
    }
}

/// A string for the kernel, which cannot contain NUL.
pub(super) fn c_string(text: &OsStr) -> Result<CString, Errno> {
    CString::new(text.as_bytes()).map_err(|_| Errno::EINVAL)
}
