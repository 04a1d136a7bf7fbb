//! A registry in a temporary folder, small harnesses and patches, and the real git.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use harness::{Dimension, Harness, Patch, PatchOp};
use registry::{
    Acceptance, Decision, Delta, ModelId, Provenance, Registry, Rejection, RunId, Version,
};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const START: u64 = 1_760_000_000;

pub(crate) struct Fixture {
    folder: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("registry")
    }

    pub(crate) fn open(&self) -> Registry {
        Registry::open_or_create(&self.path()).unwrap()
    }

    /// A registry whose `v1` is [`base`].
    pub(crate) fn started(&self) -> (Registry, Version) {
        let registry = self.open();
        let first = registry.create_initial(&base(), &provenance()).unwrap();
        (registry, first)
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        git(&self.path(), arguments)
    }

    /// The real git finds nothing wrong. Unreachable objects of interrupted writes are fine.
    pub(crate) fn fsck(&self) {
        let report = self.git(&["fsck", "--strict", "--full"]);
        let is_fine = |line: &str| line.starts_with("dangling ") || line.starts_with("notice: ");
        assert!(report.lines().all(is_fine), "{report}");
    }
}

pub(crate) fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = git_output(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn git_output(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(arguments);
    // Nothing of the machine's own configuration takes part.
    for (key, value) in [
        ("HOME", "/nonexistent"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_AUTHOR_NAME", "A Person"),
        ("GIT_AUTHOR_EMAIL", "person@example.org"),
        ("GIT_COMMITTER_NAME", "A Person"),
        ("GIT_COMMITTER_EMAIL", "person@example.org"),
        ("LC_ALL", "C.UTF-8"),
        ("TZ", "UTC"),
    ] {
        command.env(key, value);
    }
    command.output().unwrap()
}

pub(crate) fn base() -> Harness {
    harness::naive().unwrap()
}

pub(crate) fn provenance() -> Provenance {
    Provenance {
        source: "configs/harness/naive".to_owned(),
        run: Some(run("run-1")),
        unix_seconds: START,
    }
}

pub(crate) fn run(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

pub(crate) fn patch(dimension: Dimension, path: &str, value: impl Into<Value>) -> Patch {
    Patch {
        dimension,
        ops: vec![PatchOp::replace(path.parse().unwrap(), value.into())],
        summary: format!("set {path}"),
    }
}

/// One of many small patches, in two dimensions.
pub(crate) fn edit(number: u32) -> Patch {
    if number.is_multiple_of(2) {
        patch(
            Dimension::P,
            "prompts.system",
            format!("Solve the problem. Style {number}."),
        )
    } else {
        patch(
            Dimension::Mid,
            "middleware.protocol.max_turns",
            number % 60 + 5,
        )
    }
}

pub(crate) fn apply(patch: &Patch, harness: &Harness) -> Harness {
    patch.apply(harness).unwrap()
}

pub(crate) fn delta(gained: u32, lost: u32) -> Delta {
    let estimate = (f64::from(gained) - f64::from(lost)) / 64.0;
    Delta {
        estimate,
        low: estimate - 0.0625,
        high: estimate + 0.0625,
        confidence: 0.95,
        gained,
        lost,
        pairs: 64,
    }
}

pub(crate) fn decision(patch: Patch, round: u32) -> Decision {
    Decision {
        run: run("run-1"),
        round,
        model: ModelId::new("smollm2-135m@4d3a").unwrap(),
        root_cause: "middleware_mismatch".to_owned(),
        severity: "high".to_owned(),
        evidence:
            "9 of 16 failed rollouts end without output.\n\n- task-3, turn 2\n- task-8, turn 1"
                .to_owned(),
        patch,
        removes: None,
        gate_mode: "sequential".to_owned(),
        gate_detail: "e-value 41.2, threshold 20".to_owned(),
        unix_seconds: START + 60 * u64::from(round),
    }
}

pub(crate) fn acceptance(patch: Patch, round: u32) -> Acceptance {
    Acceptance {
        decision: decision(patch, round),
        delta_in: delta(10, 1),
        delta_out: delta(1, 1),
    }
}

pub(crate) fn rejection(patch: Patch, round: u32) -> Rejection {
    Rejection {
        decision: decision(patch, round),
        verdict: "harm: 7 tasks lost".to_owned(),
        delta_in: Some(delta(2, 3)),
        delta_out: None,
    }
}

/// Applies `patch` to what `parent` holds and commits the result.
pub(crate) fn commit(registry: &Registry, parent: &Version, patch: Patch, round: u32) -> Version {
    let candidate = apply(&patch, &load(registry, parent));
    registry
        .commit_patch(parent, &candidate, &acceptance(patch, round))
        .unwrap()
}

pub(crate) fn load(registry: &Registry, version: &Version) -> Harness {
    registry.load(&version.commit.to_string()).unwrap().1
}
