//! Boxes for tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sandbox::{
    Execution, HelperCommand, Isolation, Sandbox, SandboxError, SandboxOptions, SandboxPolicy,
    Start,
};
use tempfile::TempDir;

/// Every separation, strongest first.
pub(crate) const ISOLATIONS: [Isolation; 4] = [
    Isolation::FreshUser,
    Isolation::UserNamespace,
    Isolation::NamespacesOnly,
    Isolation::Process,
];

/// A box with a scratch root of its own.
pub(crate) struct TestBox {
    pub(crate) sandbox: Sandbox,
    pub(crate) root: TempDir,
}

/// The strongest box that works here.
pub(crate) async fn strongest() -> TestBox {
    with_options(SandboxOptions::default(), &[])
        .await
        .expect("these tests need a machine that can confine programs")
}

/// A box of every kind that works here. Says which do not, so that a pass is not misread.
pub(crate) async fn every_kind() -> Vec<TestBox> {
    every_kind_with(python()).await
}

/// The same with another interpreter.
pub(crate) async fn every_kind_with(python: PathBuf) -> Vec<TestBox> {
    let mut boxes = Vec::new();
    for isolation in ISOLATIONS {
        let options = SandboxOptions {
            isolation: Some(isolation),
            ..SandboxOptions::default()
        };
        match create(HelperCommand::new(helper()), python.clone(), options).await {
            Ok(found) => boxes.push(found),
            Err(error) => eprintln!("SKIPPED {isolation:?}: {error}"),
        }
    }
    assert!(!boxes.is_empty(), "no box at all");
    boxes
}

/// A box of every kind that works here, warm and cold.
pub(crate) async fn every_start() -> Vec<(TestBox, Start)> {
    let mut boxes = Vec::new();
    for start in [Start::Warm, Start::Cold] {
        for isolation in ISOLATIONS {
            let options = SandboxOptions {
                isolation: Some(isolation),
                start,
                ..SandboxOptions::default()
            };
            // A server that does not answer in time leaves a cold box; a busy machine gets more tries.
            for attempt in 1.. {
                match with_options(options.clone(), &[]).await {
                    Ok(found) => {
                        let layer = &found.sandbox.enforcement().layers.fork_server;
                        if layer.enforced != (start == Start::Warm) {
                            assert!(attempt < 4, "{isolation:?} {start:?}: {layer:?}");
                            eprintln!("again, {isolation:?} {start:?}: {layer:?}");
                            continue;
                        }
                        boxes.push((found, start));
                    }
                    Err(error) => eprintln!("SKIPPED {isolation:?} {start:?}: {error}"),
                }
                break;
            }
        }
    }
    assert!(!boxes.is_empty(), "no box at all");
    boxes
}

/// The strongest box in which programs may have children, if there is one.
pub(crate) async fn with_children() -> Option<TestBox> {
    let found = strongest().await;
    let policy = SandboxPolicy {
        processes: 8,
        ..policy()
    };
    match found.sandbox.run_python("", &policy).await {
        Ok(_) => Some(found),
        Err(error) => {
            eprintln!("SKIPPED, no children: {error}");
            None
        }
    }
}

/// A box with options, from a helper that behaves as on a lesser kernel.
pub(crate) async fn with_options(
    options: SandboxOptions,
    helper_arguments: &[&str],
) -> Result<TestBox, SandboxError> {
    let mut helper = HelperCommand::new(helper());
    helper
        .arguments
        .extend(helper_arguments.iter().map(Into::into));
    create(helper, python(), options).await
}

async fn create(
    helper: HelperCommand,
    python: PathBuf,
    options: SandboxOptions,
) -> Result<TestBox, SandboxError> {
    let root = tempfile::tempdir().unwrap();
    let scratch = root.path().join("scratch");
    let sandbox = Sandbox::with_options(helper, python, scratch, options).await?;
    Ok(TestBox { sandbox, root })
}

pub(crate) fn helper() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_coharness-sandbox-helper"))
}

pub(crate) fn python() -> PathBuf {
    PathBuf::from("python3")
}

/// Generous with time, as the machine may be busy.
pub(crate) fn policy() -> SandboxPolicy {
    SandboxPolicy {
        wall: Duration::from_secs(30),
        ..SandboxPolicy::default()
    }
}

impl TestBox {
    pub(crate) async fn run(&self, code: &str) -> Execution {
        self.run_under(code, &policy()).await
    }

    pub(crate) async fn run_under(&self, code: &str, policy: &SandboxPolicy) -> Execution {
        self.sandbox.run_python(code, policy).await.unwrap()
    }

    /// Runs a program whose standard output is of interest and which has to succeed.
    pub(crate) async fn output(&self, code: &str) -> String {
        let execution = self.run(code).await;
        assert_eq!(
            execution.exit,
            sandbox::Exit::Code(0),
            "{execution:?}\n{code}"
        );
        execution.stdout
    }

    pub(crate) fn isolation(&self) -> Isolation {
        self.sandbox.enforcement().isolation
    }

    /// Programs of this box that are alive, by process number, children included: they inherit the
    /// command line that carries the box's label. A fork server that waits is no program.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let labelled = self.labelled();
        let is_child = |pid: u32| parent(pid).is_some_and(|parent| labelled.contains(&parent));
        let is_program = |pid: &u32| is_child(*pid) || !command_line(*pid).contains("_Server()");
        labelled.iter().copied().filter(is_program).collect()
    }

    /// The same with the fork servers.
    pub(crate) fn labelled(&self) -> Vec<u32> {
        std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
            .filter(|pid| command_line(*pid).contains(self.sandbox.process_label()))
            .collect()
    }

    /// Waits until as many programs are alive. Kill tests must have something to kill.
    pub(crate) async fn wait_for_processes(&self, count: usize) {
        for _ in 0..1000 {
            if self.processes().len() >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{:?} instead of {count} processes", self.processes());
    }

    /// Waits until none is alive, but not for long.
    pub(crate) async fn assert_all_gone(&self) {
        for _ in 0..100 {
            if self.processes().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{:?} are left", self.processes());
    }
}

/// The command line of a process; empty for one that is gone.
fn command_line(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

/// The parent of a process that is alive.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything.
    stat.rsplit(')')
        .next()?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}
