//! Separation from the machine's processes, network, mounts and users.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::path::PathBuf;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid, sethostname};

use super::{At, Failure};
use crate::enforcement::Isolation;
use crate::protocol::Separations;

/// User and group id inside a user namespace. Not 0: executing a file as 0 would bring back every
/// capability inside the namespace.
const INNER_ID: u32 = 1000;

/// Leaves the machine's namespaces. The process namespace takes hold of the next child.
pub(super) fn enter(isolation: Isolation) -> Result<(), Failure> {
    let (user, group) = (geteuid(), getegid());
    let mut flags = CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    if isolation.has_view() {
        flags |= CloneFlags::CLONE_NEWNS;
    }
    if isolation.has_user_namespace() {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    unshare(flags).at("creating namespaces")?;
    if isolation.has_user_namespace() {
        map_ids(user.as_raw(), group.as_raw()).at("mapping user ids")?;
    }
    // The machine's name is none of the program's business.
    sethostname("sandbox").at("setting the host name")
}

/// Maps our own ids, the only ones that an unprivileged process may map.
fn map_ids(user: u32, group: u32) -> io::Result<()> {
    // Giving up `setgroups` is the price for mapping a group without privilege.
    match fs::write("/proc/self/setgroups", "deny") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => result?,
    }
    fs::write("/proc/self/gid_map", format!("{INNER_ID} {group} 1"))?;
    fs::write("/proc/self/uid_map", format!("{INNER_ID} {user} 1"))
}

/// Whether the network of this process leads anywhere. Connecting a datagram socket only looks up
/// a route; nothing is sent.
pub(super) fn has_route() -> bool {
    let connect = |local: &str, remote: &str| UdpSocket::bind(local)?.connect(remote);
    // Addresses reserved for documentation.
    connect("0.0.0.0:0", "192.0.2.1:9").is_ok() || connect("[::]:0", "[2001:db8::1]:9").is_ok()
}

/// The kernel's identities of a process's namespaces.
#[derive(Debug)]
pub(super) struct Identities {
    user: Option<PathBuf>,
    pid: Option<PathBuf>,
    network: Option<PathBuf>,
    ipc: Option<PathBuf>,
    mount: Option<PathBuf>,
}

/// The identities of this process's namespaces.
pub(super) fn identities() -> Identities {
    let identity = |kind: &str| fs::read_link(format!("/proc/self/ns/{kind}")).ok();
    Identities {
        user: identity("user"),
        pid: identity("pid"),
        network: identity("net"),
        ipc: identity("ipc"),
        mount: identity("mnt"),
    }
}

impl Identities {
    /// Which namespaces of the calling process are others than these. What cannot be read counts
    /// as not separated.
    pub(super) fn compare(&self) -> Separations {
        let now = identities();
        let differ = |before: &Option<PathBuf>, after: &Option<PathBuf>| {
            before.is_some() && after.is_some() && before != after
        };
        Separations {
            user: differ(&self.user, &now.user),
            pid: differ(&self.pid, &now.pid),
            network: differ(&self.network, &now.network),
            ipc: differ(&self.ipc, &now.ipc),
            mount: differ(&self.mount, &now.mount),
            has_route: None,
        }
    }
}
