//! A helper on its own, for this crate's tests.
//!
//! Options before the helper argument make it behave as on a kernel that lacks a feature, so that
//! tests can see what a box does there: `--without-landlock`, `--without-namespaces`,
//! `--without-seccomp`. Each is a seccomp filter that refuses the system call in question.

use std::collections::BTreeMap;
use std::process::ExitCode;

use nix::libc::{ENOSYS, EPERM, SYS_landlock_create_ruleset, SYS_seccomp, SYS_unshare};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        let refused = match argument.to_str() {
            Some(sandbox::helper::ARGUMENT) => return sandbox::helper::main(arguments),
            Some("--without-landlock") => refuse(SYS_landlock_create_ruleset, ENOSYS),
            Some("--without-namespaces") => refuse(SYS_unshare, EPERM),
            Some("--without-seccomp") => refuse(SYS_seccomp, ENOSYS),
            _ => None,
        };
        if refused.is_none() {
            break;
        }
    }
    ExitCode::from(64)
}

/// Makes a system call fail in this process and all that it starts.
fn refuse(call: i64, errno: i32) -> Option<()> {
    let action = SeccompAction::Errno(errno.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into().ok()?;
    let rules = BTreeMap::from([(call, Vec::new())]);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, architecture).ok()?;
    let program: BpfProgram = filter.try_into().ok()?;
    seccompiler::apply_filter(&program).ok()
}
