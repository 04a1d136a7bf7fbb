//! seccomp: which system calls the program may make.
//!
//! A list of allowed calls, not of forbidden ones: a kernel gains calls every year, and on x86-64
//! every call has a second number (the x32 ones) that a list of forbidden numbers would miss.
//! Anything else fails with `EPERM`, which Python turns into a `PermissionError`.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use nix::unistd::Pid;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use super::system_calls::{
    ALLOWED, ALLOWED_HERE, DESCRIPTOR_COMMANDS, FORKS, METADATA, PROCESS_ATTRIBUTES, REQUESTS,
    SERVING, SERVING_ATTRIBUTES, UNKNOWN,
};
use super::{At, Failure};

/// Decisions that depend on the other layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permissions {
    /// Starting child processes.
    pub(super) children: bool,
    /// Starting threads.
    pub(super) threads: bool,
    /// The only process that may be signalled, where the machine's processes are in reach.
    pub(super) only_signals_to: Option<Pid>,
    /// Changing mode, times and length of files by path.
    pub(super) metadata: bool,
}

/// Stands for the process itself in [`forked`], which is made before there is one. Above the
/// largest process number of any kernel.
pub(super) const OWN_PID: u32 = 0x7FFF_FFF1;

/// Restricts a fork server for good: what its programs may do, and what it takes to fork and
/// confine them.
pub(super) fn apply_to_server(permissions: Permissions) -> Result<bool, Failure> {
    const STAGE: &str = "applying seccomp";
    for program in server_rules(permissions).and_then(filters).at(STAGE)? {
        seccompiler::apply_filter(&program).at(STAGE)?;
    }
    Ok(true)
}

/// What a child of a fork server gives up before it runs a program, as the kernel takes it: on top
/// of the server's filters everything that [`server_rules`] adds. Every [`OWN_PID`] in it has to be
/// replaced by the child's process number.
pub(super) fn forked(permissions: Permissions) -> Result<Vec<u8>, BackendError> {
    let program = forked_filter(permissions)?;
    Ok(program.iter().flat_map(instruction).collect())
}

/// `struct sock_filter`.
fn instruction(filter: &seccompiler::sock_filter) -> [u8; 8] {
    let ([c0, c1], [k0, k1, k2, k3]) = (filter.code.to_ne_bytes(), filter.k.to_ne_bytes());
    [c0, c1, filter.jt, filter.jf, k0, k1, k2, k3]
}

fn forked_filter(permissions: Permissions) -> Result<BpfProgram, BackendError> {
    let refused = SERVING.iter().chain(FORKS);
    let mut refused: Rules = refused.map(|&call| (call, Vec::new())).collect();
    let other = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Ne,
        u64::from(OWN_PID),
    )?;
    for call in [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_tkill] {
        refused.insert(call, vec![SeccompRule::new(vec![other.clone()])?]);
    }
    let children = if permissions.threads {
        let no_thread = masked(0, number(libc::CLONE_THREAD), 0)?;
        vec![SeccompRule::new(vec![no_thread])?]
    } else {
        Vec::new()
    };
    refused.insert(libc::SYS_clone, children);
    refused.insert(libc::SYS_prctl, one_of(0, SERVING_ATTRIBUTES.map(number))?);
    let filter = SeccompFilter::new(
        refused,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM.unsigned_abs()),
        std::env::consts::ARCH.try_into()?,
    )?;
    filter.try_into()
}

/// Rules of a program and of its server together. Signals may go anywhere: where process numbers
/// are the machine's, the server is still the only one to send them.
fn server_rules(permissions: Permissions) -> Result<Rules, BackendError> {
    let mut rules = rules(Permissions {
        children: true,
        only_signals_to: None,
        ..permissions
    })?;
    rules.extend(SERVING.iter().map(|&call| (call, Vec::new())));
    let attributes = PROCESS_ATTRIBUTES.iter().chain(&SERVING_ATTRIBUTES);
    let attributes =
        attributes.map(|&attribute| SeccompRule::new(vec![equal(0, number(attribute))?]));
    rules.insert(libc::SYS_prctl, attributes.collect::<Result<_, _>>()?);
    Ok(rules)
}

/// Restricts this process for good. Returns whether the filters are in force; they may only be
/// missing where the kernel has no seccomp and that is acceptable.
pub(super) fn apply(permissions: Permissions, is_optional: bool) -> Result<bool, Failure> {
    const STAGE: &str = "applying seccomp";
    for program in rules(permissions).and_then(filters).at(STAGE)? {
        match seccompiler::apply_filter(&program) {
            Err(seccompiler::Error::Seccomp(error)) if is_optional && is_missing(&error) => {
                return Ok(false);
            }
            result => result.at(STAGE)?,
        }
    }
    Ok(true)
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL))
}

/// The filters, in the order in which they have to be installed: the second forbids installing
/// more. A call is refused when either filter refuses it, so the second leaves those to the first
/// that have to fail with another error.
fn filters(mut allowed: Rules) -> Result<[BpfProgram; 2], BackendError> {
    let errno = |errno: i32| SeccompAction::Errno(errno.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into()?;
    let unknown: Rules = UNKNOWN
        .into_iter()
        .flatten()
        .map(|call| (call, Vec::new()))
        .collect();
    allowed.extend(unknown.clone());
    let known = SeccompFilter::new(
        unknown,
        SeccompAction::Allow,
        errno(libc::ENOSYS),
        architecture,
    )?;
    let permitted = SeccompFilter::new(
        allowed,
        errno(libc::EPERM),
        SeccompAction::Allow,
        architecture,
    )?;
    Ok([known.try_into()?, permitted.try_into()?])
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules(permissions: Permissions) -> Result<Rules, BackendError> {
    let mut rules: Rules = ALLOWED
        .iter()
        .chain(ALLOWED_HERE)
        .map(|&call| (call, Vec::new()))
        .collect();
    if permissions.metadata {
        rules.extend(METADATA.iter().map(|&call| (call, Vec::new())));
    }
    rules.insert(libc::SYS_ioctl, one_of(1, REQUESTS)?);
    rules.insert(libc::SYS_fcntl, one_of(1, DESCRIPTOR_COMMANDS.map(number))?);
    rules.insert(libc::SYS_prctl, one_of(0, PROCESS_ATTRIBUTES.map(number))?);
    // Its own limits only.
    rules.insert(libc::SYS_prlimit64, one_of(0, [0])?);
    // A stream pair is connected to itself; a datagram pair could be sent anywhere.
    let stream = masked(1, 0xF, number(libc::SOCK_STREAM))?;
    let local = equal(0, number(libc::AF_UNIX))?;
    rules.insert(
        libc::SYS_socketpair,
        vec![SeccompRule::new(vec![local, stream])?],
    );
    // Without an address.
    rules.insert(libc::SYS_sendto, one_of(4, [0])?);
    add_signals(&mut rules, permissions)?;
    add_tasks(&mut rules, permissions)?;
    Ok(rules)
}

fn add_signals(rules: &mut Rules, permissions: Permissions) -> Result<(), BackendError> {
    for call in [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_tkill] {
        let conditions = match permissions.only_signals_to {
            None => Vec::new(),
            Some(process) => one_of(0, [number(process.as_raw())])?,
        };
        rules.insert(call, conditions);
    }
    Ok(())
}

fn add_tasks(rules: &mut Rules, permissions: Permissions) -> Result<(), BackendError> {
    let namespaces = number(
        libc::CLONE_NEWNS
            | libc::CLONE_NEWCGROUP
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET
            | libc::CLONE_PTRACE,
    );
    let thread = number(libc::CLONE_THREAD);
    if permissions.children {
        rules.insert(
            libc::SYS_clone,
            vec![SeccompRule::new(vec![masked(0, namespaces, 0)?])?],
        );
        rules.extend(FORKS.iter().map(|&call| (call, Vec::new())));
    } else if permissions.threads {
        let only_threads = masked(0, namespaces | thread, thread)?;
        rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![only_threads])?]);
    }
    Ok(())
}

/// A C constant as the register that carries it. The kernel looks at the lower half.
fn number(value: i32) -> u64 {
    u64::from(value.cast_unsigned())
}

/// The lower half of an argument equals `value`.
fn equal(argument: u8, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

/// The bits of an argument under `mask` equal `value`.
fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, BackendError> {
    let operator = SeccompCmpOp::MaskedEq(mask);
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

/// One rule for each permitted value of an argument.
fn one_of<const N: usize>(
    argument: u8,
    values: [u64; N],
) -> Result<Vec<SeccompRule>, BackendError> {
    let rule = |value| SeccompRule::new(vec![equal(argument, value)?]);
    values.into_iter().map(rule).collect()
}

#[cfg(test)]
mod equivalence;

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use super::*;

    const NOTHING: Permissions = Permissions {
        children: false,
        threads: false,
        only_signals_to: None,
        metadata: false,
    };

    #[test]
    fn every_combination_of_permissions_compiles() {
        for bits in 0..16u8 {
            let permissions = Permissions {
                children: bits & 1 != 0,
                threads: bits & 2 != 0,
                only_signals_to: (bits & 4 != 0).then(Pid::this),
                metadata: bits & 8 != 0,
            };
            let [known, permitted] = rules(permissions).and_then(filters).unwrap();
            assert!(!permitted.is_empty() && !known.is_empty());
        }
    }

    #[test]
    fn dangerous_calls_are_never_listed() {
        let everything = Permissions {
            children: true,
            threads: true,
            metadata: true,
            ..NOTHING
        };
        let rules = rules(everything).unwrap();
        for call in [
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_sendmsg,
            libc::SYS_ptrace,
            libc::SYS_mount,
            libc::SYS_setns,
            libc::SYS_unshare,
            libc::SYS_clone3,
            libc::SYS_bpf,
            libc::SYS_keyctl,
            libc::SYS_io_uring_setup,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_pidfd_getfd,
            libc::SYS_process_vm_readv,
            libc::SYS_memfd_create,
            libc::SYS_shmget,
            libc::SYS_execveat,
            libc::SYS_sync,
        ] {
            assert!(!rules.contains_key(&call), "call {call}");
        }
    }

    #[test]
    fn children_and_threads_need_permission() {
        assert!(!rules(NOTHING).unwrap().contains_key(&libc::SYS_clone));
        let threads = rules(Permissions {
            threads: true,
            ..NOTHING
        })
        .unwrap();
        assert_eq!(threads[&libc::SYS_clone].len(), 1);
        assert!(FORKS.iter().all(|call| !threads.contains_key(call)));
    }
}
