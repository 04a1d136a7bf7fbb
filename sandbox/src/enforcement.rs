//! What the box really enforces on this machine.
//!
//! Layers are mechanisms, as the helper saw them take hold. Guarantees are what callers rely on,
//! each tested by attacking the box from inside ([`crate::Sandbox::new`]). A guarantee may rest on
//! any of several layers; a layer without its guarantee proves nothing.

use serde::{Deserialize, Serialize};

/// Separation from the machine, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// For root: namespaces, a private file system, and an own user id for each run.
    FreshUser,
    /// For others: the same inside a user namespace.
    UserNamespace,
    /// Namespaces without a private file system, where mounting is not allowed.
    NamespacesOnly,
    /// No namespaces: Landlock, seccomp and resource limits carry everything.
    Process,
}

impl Isolation {
    /// Every kind, strongest first.
    pub(crate) const ALL: [Isolation; 4] = [
        Isolation::FreshUser,
        Isolation::UserNamespace,
        Isolation::NamespacesOnly,
        Isolation::Process,
    ];

    /// Whether the program runs in its own process and network namespaces.
    pub(crate) fn has_namespaces(self) -> bool {
        self != Isolation::Process
    }

    /// Whether the program sees a private file system.
    pub(crate) fn has_view(self) -> bool {
        matches!(self, Isolation::FreshUser | Isolation::UserNamespace)
    }

    /// Whether a user namespace is created.
    pub(crate) fn has_user_namespace(self) -> bool {
        matches!(self, Isolation::UserNamespace | Isolation::NamespacesOnly)
    }
}

/// Whether something holds, and on what evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// Whether it is in force.
    pub enforced: bool,
    /// What was seen, or why it is not in force.
    pub detail: String,
}

impl Status {
    /// A status from a fact and its evidence.
    pub(crate) fn new(enforced: bool, detail: impl Into<String>) -> Self {
        Status {
            enforced,
            detail: detail.into(),
        }
    }
}

/// Mechanisms of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layers {
    /// File, network and signal access rights; the detail gives the ABI.
    pub landlock: Status,
    /// List of allowed system calls.
    pub seccomp: Status,
    /// Own user namespace, or for root an own user id.
    pub user_namespace: Status,
    /// Own process numbers; the kernel kills everything inside with its first process.
    pub pid_namespace: Status,
    /// Own, empty network.
    pub network_namespace: Status,
    /// Private file system that holds only what the interpreter needs.
    pub mount_namespace: Status,
    /// No privilege can be gained by executing a file.
    pub no_new_privs: Status,
    /// CPU, memory, file, descriptor and task limits.
    pub rlimits: Status,
    /// Control group limits.
    pub cgroup: Status,
    /// Warm interpreters: whether they are used, tested by the same attacks as the box. Without
    /// them programs start cold, which is as safe.
    #[serde(default)]
    pub fork_server: Status,
}

/// What callers rely on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guarantees {
    /// Files outside the interpreter and the scratch directory cannot be read or listed.
    pub reading: Status,
    /// Nothing outside the scratch directory can be created, changed or removed.
    pub writing: Status,
    /// No socket that reaches anything, loopback and name resolution included.
    pub network: Status,
    /// Children and threads are bounded, so that a kill reaches all of them.
    pub processes: Status,
    /// Tracing, mounting, namespaces, `io_uring` and the like are refused.
    pub system_calls: Status,
    /// Allocation beyond the limit fails.
    pub memory: Status,
    /// CPU time is limited.
    pub cpu: Status,
    /// The scratch directory cannot fill the disk.
    pub disk: Status,
    /// No variable of the parent's environment is visible.
    pub environment: Status,
}

impl Layers {
    /// Every layer with its name.
    pub fn all(&self) -> [(&'static str, &Status); 10] {
        [
            ("landlock", &self.landlock),
            ("seccomp", &self.seccomp),
            ("user_namespace", &self.user_namespace),
            ("pid_namespace", &self.pid_namespace),
            ("network_namespace", &self.network_namespace),
            ("mount_namespace", &self.mount_namespace),
            ("no_new_privs", &self.no_new_privs),
            ("rlimits", &self.rlimits),
            ("cgroup", &self.cgroup),
            ("fork_server", &self.fork_server),
        ]
    }
}

impl Guarantees {
    /// Every guarantee with its name.
    pub fn all(&self) -> [(&'static str, &Status); 9] {
        [
            ("reading", &self.reading),
            ("writing", &self.writing),
            ("network", &self.network),
            ("processes", &self.processes),
            ("system_calls", &self.system_calls),
            ("memory", &self.memory),
            ("cpu", &self.cpu),
            ("disk", &self.disk),
            ("environment", &self.environment),
        ]
    }
}

/// What a probe of the box found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnforcementReport {
    /// The strongest separation that works here.
    pub isolation: Isolation,
    /// Version of the interpreter inside.
    pub python: String,
    /// Mechanisms in force.
    pub layers: Layers,
    /// What they amount to.
    pub guarantees: Guarantees,
    /// Stronger separations that were tried first, and why they failed.
    pub rejected: Vec<String>,
}

impl EnforcementReport {
    /// A word for trajectories and status lines.
    ///
    /// * `full`: every guarantee holds, and Landlock, seccomp and namespaces all carry it.
    /// * `partial`: every guarantee holds but on fewer layers, or a lesser one is missing.
    /// * `none`: files or the network of the machine are within the program's reach.
    pub fn level(&self) -> &'static str {
        let Guarantees {
            reading,
            writing,
            network,
            ..
        } = &self.guarantees;
        if [reading, writing, network]
            .iter()
            .any(|status| !status.enforced)
        {
            return "none";
        }
        let Layers {
            landlock,
            seccomp,
            pid_namespace,
            network_namespace,
            mount_namespace,
            no_new_privs,
            rlimits,
            ..
        } = &self.layers;
        let layers = [
            landlock,
            seccomp,
            pid_namespace,
            network_namespace,
            mount_namespace,
            no_new_privs,
            rlimits,
        ];
        let is_full = layers.iter().all(|layer| layer.enforced) && self.broken().is_empty();
        if is_full { "full" } else { "partial" }
    }

    /// Guarantees that do not hold, each as `name: what was seen`.
    pub fn broken(&self) -> Vec<String> {
        self.guarantees
            .all()
            .iter()
            .filter(|(_, status)| !status.enforced)
            .map(|(name, status)| format!("{name}: {}", status.detail))
            .collect()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use super::*;

    fn report() -> EnforcementReport {
        let held = || Status::new(true, "seen");
        EnforcementReport {
            isolation: Isolation::FreshUser,
            python: "3.11.7".to_owned(),
            layers: Layers {
                landlock: held(),
                seccomp: held(),
                user_namespace: held(),
                pid_namespace: held(),
                network_namespace: held(),
                mount_namespace: held(),
                no_new_privs: held(),
                rlimits: held(),
                cgroup: Status::new(false, "not used"),
                fork_server: held(),
            },
            guarantees: Guarantees {
                reading: held(),
                writing: held(),
                network: held(),
                processes: held(),
                system_calls: held(),
                memory: held(),
                cpu: held(),
                disk: held(),
                environment: held(),
            },
            rejected: Vec::new(),
        }
    }

    #[test]
    fn level_follows_guarantees_and_layers() {
        assert_eq!(report().level(), "full");
        let mut fewer_layers = report();
        fewer_layers.layers.pid_namespace.enforced = false;
        assert_eq!(fewer_layers.level(), "partial");
        assert!(fewer_layers.broken().is_empty());
        let mut unbounded_disk = report();
        unbounded_disk.guarantees.disk = Status::new(false, "wrote 40 MiB");
        assert_eq!(unbounded_disk.level(), "partial");
        assert_eq!(unbounded_disk.broken(), ["disk: wrote 40 MiB"]);
        let mut open = report();
        open.guarantees.network.enforced = false;
        assert_eq!(open.level(), "none");
    }

    #[test]
    fn report_survives_serialisation() {
        let text = serde_json::to_string(&report()).unwrap();
        assert_eq!(
            serde_json::from_str::<EnforcementReport>(&text).unwrap(),
            report()
        );
    }
}
