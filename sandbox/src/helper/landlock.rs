//! Landlock: which files the program may touch, whatever its user id could.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use super::{At, Failure};
use crate::protocol::Request;

/// The newest version these rules were written against. Older kernels enforce what they know, and
/// the probe finds out whether that is enough.
const NEWEST: ABI = ABI::V7;

/// Restricts this process for good. Returns the kernel's version, or nothing where there is no
/// Landlock and that is acceptable.
pub(super) fn apply(request: &Request) -> Result<Option<i32>, Failure> {
    const STAGE: &str = "applying Landlock";
    let status = restrict(request).at(STAGE)?;
    let abi = match status.landlock {
        LandlockStatus::Available {
            effective_abi,
            kernel_abi,
        } => kernel_abi.unwrap_or(effective_abi as i32),
        _ => 0,
    };
    match status.ruleset {
        RulesetStatus::NotEnforced if request.setting.landlock_is_optional => Ok(None),
        RulesetStatus::NotEnforced => Err(Failure {
            stage: STAGE,
            detail: format!("not enforced ({:?})", status.landlock),
        }),
        _ => Ok(Some(abi)),
    }
}

fn restrict(request: &Request) -> Result<RestrictionStatus, RulesetError> {
    let setting = &request.setting;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let read_and_write = AccessFs::ReadFile | AccessFs::WriteFile;
    let scratch = [scratch(request)];
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    rules = allow(rules, &setting.readable, read)?;
    rules = allow(
        rules,
        &setting.executables,
        AccessFs::ReadFile | AccessFs::Execute,
    )?;
    rules = allow(rules, &setting.devices, read_and_write)?;
    rules = allow(rules, &scratch, in_scratch())?;
    rules.restrict_self()
}

/// Where files may be written. A server's scratch directory is mounted anew for every program, and
/// a rule belongs to the directory that it was made for, so there it is made for the one above,
/// which is read-only and holds nothing else.
fn scratch(request: &Request) -> PathBuf {
    match request.scratch.parent() {
        Some(parent) if request.purpose.is_server() && request.setting.isolation.has_view() => {
            parent.to_owned()
        }
        _ => request.scratch.clone(),
    }
}

/// A second domain for the children of a server: they can neither signal nor trace the server,
/// which stays outside. Nothing where the kernel does not know such domains.
///
/// Every domain refuses to move files between directories unless a rule of its own allows it, so the
/// scratch directory is named here once more.
pub(super) fn children_domain(request: &Request) -> Result<Option<OwnedFd>, Failure> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::Refer)
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(|rules| rules.create())
        .and_then(|rules| allow(rules, &[scratch(request)], AccessFs::Refer.into()))
        .at("preparing the children's Landlock domain")?;
    Ok(rules.into())
}

/// Ordinary files and directories, but nothing to execute, no devices and no sockets.
fn in_scratch() -> BitFlags<AccessFs> {
    let refused = AccessFs::Execute
        | AccessFs::MakeChar
        | AccessFs::MakeBlock
        | AccessFs::MakeSock
        | AccessFs::IoctlDev;
    AccessFs::from_all(NEWEST) & !refused
}

fn allow(
    mut rules: RulesetCreated,
    paths: &[PathBuf],
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    for path in paths {
        // What is not there needs no permission.
        let Ok(descriptor) = PathFd::new(path) else {
            continue;
        };
        let access = if path.is_dir() {
            access
        } else {
            access & AccessFs::from_file(NEWEST)
        };
        rules = rules.add_rule(PathBeneath::new(descriptor, access))?;
    }
    Ok(rules)
}
