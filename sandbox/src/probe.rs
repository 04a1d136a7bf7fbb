//! Finding the strongest box that works here, and testing what it holds against.
//!
//! Each separation is tried by running `controls.py` in it, which attacks the box from inside. The
//! attacks have a target that is known to exist: a canary file beside the box, which is checked
//! afterwards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::libc;
use nix::unistd::geteuid;
use tempfile::TempDir;

use crate::enforcement::{EnforcementReport, Guarantees, Isolation, Layers, Status};
use crate::execution::{Execution, Exit};
use crate::forks::Pool;
use crate::helper;
use crate::interpreter::Interpreter;
use crate::launch::Run;
use crate::policy::SandboxPolicy;
use crate::protocol::{Applied, Setting};
use crate::sandbox::{SandboxError, Workshop};
use crate::view;

const CONTROLS: &str = include_str!("python/controls.py");

/// Content of the file that must stay unread and untouched.
const CANARY: &str = "nobody inside reads this";

/// The attacks take well below a second; a machine under heavy load gets this long.
const PROBE_WALL: Duration = Duration::from_secs(20);

/// Tries the separations in order and reports on the first in which Python runs.
pub(crate) async fn probe(
    workshop: &Workshop,
    interpreter: &Interpreter,
    only: Option<Isolation>,
) -> Result<(Setting, EnforcementReport), SandboxError> {
    let is_root = geteuid().is_root();
    let mut rejected = Vec::new();
    for isolation in Isolation::ALL {
        if only.is_some_and(|only| only != isolation) {
            continue;
        }
        if isolation == Isolation::FreshUser && !is_root {
            rejected.push("fresh_user: only root can change its user id".to_owned());
            continue;
        }
        let mut setting = setting(workshop, interpreter, isolation, is_root)?;
        match attempt(workshop, &setting).await? {
            Ok(evidence) => {
                setting.landlock_is_optional = evidence.applied.landlock_abi.is_none();
                setting.seccomp_is_optional = !evidence.applied.seccomp;
                let report = EnforcementReport {
                    isolation,
                    python: interpreter.version.clone(),
                    layers: layers(&evidence.applied, isolation),
                    guarantees: guarantees(&evidence),
                    rejected,
                };
                return Ok((setting, report));
            }
            Err(reason) => rejected.push(format!("{}: {reason}", name(isolation))),
        }
    }
    Err(SandboxError::Unusable { attempts: rejected })
}

/// Layers that are missing, each with the reason, for the message that refuses a weak box.
pub(crate) fn absent_layers(report: &EnforcementReport) -> impl Iterator<Item = String> + '_ {
    let layers = [
        ("landlock", &report.layers.landlock),
        ("seccomp", &report.layers.seccomp),
        ("namespaces", &report.layers.pid_namespace),
    ];
    let absent = layers.into_iter().filter(|(_, status)| !status.enforced);
    let absent = absent.map(|(name, status)| format!("{name}: {}", status.detail));
    absent.chain(report.rejected.iter().cloned())
}

fn setting(
    workshop: &Workshop,
    interpreter: &Interpreter,
    isolation: Isolation,
    is_root: bool,
) -> Result<Setting, SandboxError> {
    let Interpreter {
        executable,
        module_paths,
        readable,
        executables,
        devices,
        ..
    } = interpreter;
    // Paths travel as JSON.
    let paths = readable.iter().chain(executables).chain(module_paths);
    for path in paths.chain([&workshop.mount_point()]) {
        if path.to_str().is_none() {
            return Err(SandboxError::NotUnicode { path: path.clone() });
        }
    }
    Ok(Setting {
        isolation,
        landlock_is_optional: true,
        seccomp_is_optional: true,
        executable: executable.clone(),
        module_paths: module_paths.clone(),
        readable: readable.clone(),
        executables: executables.clone(),
        devices: devices.clone(),
        view: view::plan(readable.iter().chain(executables).chain(devices)),
        mount_point: workshop.mount_point(),
        // Root's processes are not counted, and without a user namespace of its own a user's
        // limit would be shared with everything else that the user runs.
        counts_processes: match isolation {
            Isolation::FreshUser => true,
            Isolation::UserNamespace | Isolation::NamespacesOnly => !is_root,
            Isolation::Process => false,
        },
    })
}

/// What a probe brought to light.
struct Evidence {
    applied: Applied,
    execution: Execution,
    canary_is_intact: bool,
}

/// Runs the attacks. The inner error says why this separation does not work here.
async fn attempt(
    workshop: &Workshop,
    setting: &Setting,
) -> Result<Result<Evidence, String>, SandboxError> {
    let policy = SandboxPolicy {
        wall: PROBE_WALL,
        cpu: Duration::from_secs(10),
        memory_mib: 256,
        output_bytes: 64 << 10,
        processes: 1,
        file_mib: 1,
    };
    let (outside, canary) = outside(workshop)?;
    let code = attacks(&canary, &policy, false);
    let Run { applied, execution } = match workshop.run(setting, &code, &policy, true).await {
        Ok(run) => run,
        Err(SandboxError::Launch(error)) => return Ok(Err(with_causes(&error))),
        Err(error) => return Err(error),
    };
    if !execution.stdout.contains("environment\t") {
        let words = execution
            .stderr
            .lines()
            .last()
            .unwrap_or("it said nothing")
            .to_owned();
        return Ok(Err(format!(
            "Python does not run ({:?}, {words})",
            execution.exit
        )));
    }
    let canary_is_intact = is_intact(outside.path(), &canary);
    Ok(Ok(Evidence {
        applied,
        execution,
        canary_is_intact,
    }))
}

/// Runs the same attacks in a fork of a server, and some on the server. Says whether everything
/// holds there that holds in `report`.
pub(crate) async fn probe_pool(
    workshop: &Workshop,
    pool: &Pool,
    report: &EnforcementReport,
) -> Result<Status, SandboxError> {
    if !report.layers.seccomp.enforced {
        let detail = "needs seccomp, which keeps programs from their server";
        return Ok(Status::new(false, detail));
    }
    // As the first program will want it, so that the server can be used again.
    let policy = SandboxPolicy {
        wall: PROBE_WALL,
        ..SandboxPolicy::default()
    };
    let (outside, canary) = outside(workshop)?;
    let code = attacks(&canary, &policy, true);
    let Some(Run { applied, execution }) = pool.run(&code, &policy).await else {
        let detail = "this interpreter cannot be one (Python 3.9 with ctypes, resource and mmap)";
        return Ok(Status::new(false, detail));
    };
    let evidence = Evidence {
        applied,
        canary_is_intact: is_intact(outside.path(), &canary),
        execution,
    };
    let expected = report.guarantees.all();
    let found = guarantees(&evidence);
    let weaker: Vec<_> = found
        .all()
        .into_iter()
        .zip(expected)
        .filter(|((_, found), (_, expected))| expected.enforced && !found.enforced)
        .map(|((name, found), _)| format!("{name}: {}", found.detail))
        .collect();
    if weaker.is_empty() {
        let attacks = evidence.execution.stdout.lines().count();
        let detail = format!("{attacks} attacks by a forked program, its server included, failed");
        Ok(Status::new(true, detail))
    } else {
        Ok(Status::new(false, weaker.join("; ")))
    }
}

/// A file that no program may reach, in a directory of its own.
fn outside(workshop: &Workshop) -> Result<(TempDir, PathBuf), SandboxError> {
    let outside = workshop.directory("outside-")?;
    let canary = outside.path().join("canary");
    let unusable = |source| SandboxError::Scratch {
        path: canary.clone(),
        source,
    };
    std::fs::write(&canary, CANARY).map_err(unusable)?;
    Ok((outside, canary))
}

/// The program that attacks the box.
fn attacks(canary: &Path, policy: &SandboxPolicy, is_forked: bool) -> String {
    format!(
        "CANARY = {}\nMEMORY_BYTES = {}\nFILE_BYTES = {}\nVARIABLES = {}\nIS_FORKED = {}\n{CONTROLS}",
        literal(&canary.to_string_lossy()),
        policy.memory_mib << 20,
        policy.file_mib << 20,
        serde_json::json!(helper::variable_names()),
        if is_forked { "True" } else { "False" },
    )
}

/// An error in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn is_intact(outside: &Path, canary: &Path) -> bool {
    let is_alone = std::fs::read_dir(outside).is_ok_and(|entries| entries.count() == 1);
    is_alone && std::fs::read_to_string(canary).is_ok_and(|text| text == CANARY)
}

/// A string literal that Python reads as the same text.
fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn guarantees(evidence: &Evidence) -> Guarantees {
    let mut found: BTreeMap<&str, (bool, Vec<&str>)> = BTreeMap::new();
    for line in evidence.execution.stdout.lines() {
        let mut fields = line.splitn(3, '\t');
        if let (Some(guarantee), Some(verdict), Some(detail)) =
            (fields.next(), fields.next(), fields.next())
        {
            let entry = found.entry(guarantee).or_insert((true, Vec::new()));
            entry.0 &= verdict == "held";
            // What broke is what a reader has to see.
            if verdict == "held" {
                entry.1.push(detail)
            } else {
                entry.1.insert(0, detail)
            }
        }
    }
    let status = |guarantee: &str| match found.get(guarantee) {
        Some((held, details)) => Status::new(*held, details.join("; ")),
        None => Status::new(false, "not tested"),
    };
    let mut writing = status("writing");
    if !evidence.canary_is_intact {
        writing = Status::new(false, "a file outside was changed");
    }
    let mut disk = status("disk");
    if evidence.execution.exit == Exit::Signal(libc::SIGXFSZ) {
        disk.detail.push_str("; killed by the parent at the limit");
    } else if !disk.detail.contains("full after") {
        disk.enforced = false;
    }
    Guarantees {
        reading: status("reading"),
        writing,
        network: status("network"),
        processes: status("processes"),
        system_calls: status("system_calls"),
        memory: status("memory"),
        cpu: status("cpu"),
        disk,
        environment: status("environment"),
    }
}

fn layers(applied: &Applied, isolation: Isolation) -> Layers {
    let separations = &applied.separations;
    let separate = |is_separate: bool, kind: &str| {
        let owner = if is_separate { "own" } else { "the machine's" };
        Status::new(is_separate, format!("{owner} {kind}"))
    };
    let mut network_namespace = separate(separations.network, "network");
    if let Some(has_route) = separations.has_route.filter(|_| separations.network) {
        network_namespace.enforced &= !has_route;
        let route = if has_route { "a route" } else { "no route" };
        network_namespace.detail.push_str(&format!(", {route} out"));
    }
    let user_namespace = match isolation {
        Isolation::FreshUser => {
            let detail = format!("own user id for each run, this time {}", applied.user_id);
            Status::new(applied.user_id != 0, detail)
        }
        _ => separate(separations.user, "user ids"),
    };
    let landlock = match applied.landlock_abi {
        Some(abi) => Status::new(true, format!("ABI {abi}")),
        None => Status::new(false, "not offered by this kernel"),
    };
    let seccomp_detail = if applied.seccomp {
        "list of allowed calls"
    } else {
        "not offered by this kernel"
    };
    let no_new_privs_detail = if applied.no_new_privs {
        "set"
    } else {
        "not set"
    };
    Layers {
        landlock,
        seccomp: Status::new(applied.seccomp, seccomp_detail),
        user_namespace,
        pid_namespace: separate(separations.pid, "process numbers"),
        network_namespace,
        mount_namespace: match (separations.mount, isolation.has_view()) {
            (true, true) => Status::new(true, "private file system"),
            _ => Status::new(false, "the machine's file system"),
        },
        no_new_privs: Status::new(applied.no_new_privs, no_new_privs_detail),
        rlimits: Status::new(
            applied.rlimits,
            "CPU, AS, FSIZE, NOFILE, STACK, CORE and others",
        ),
        cgroup: Status::new(false, control_groups()),
        fork_server: Status::new(false, "not used"),
    }
}

/// What control groups this machine has. Boxes don't use any: limits are per process.
fn control_groups() -> String {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // Fields after " - ": the file system's type, and so on. See proc_pid_mountinfo(5).
    let unified = mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let at = mount.split(' ').nth(4)?;
        kind.starts_with("cgroup2 ").then(|| at.to_owned())
    });
    let found = match unified {
        Some(at) => {
            let file = Path::new(&at).join("cgroup.controllers");
            let controllers = std::fs::read_to_string(file).unwrap_or_default();
            format!("v2 at {at} with controllers [{}]", controllers.trim())
        }
        None => "no v2 mounted".to_owned(),
    };
    format!("not used: limits are per process, see rlimits ({found})")
}

fn name(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::FreshUser => "fresh_user",
        Isolation::UserNamespace => "user_namespace",
        Isolation::NamespacesOnly => "namespaces_only",
        Isolation::Process => "process",
    }
}
