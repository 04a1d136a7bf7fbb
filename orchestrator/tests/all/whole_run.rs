//! Whole runs on the real small model: left alone, killed at random moments, out of disk.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Place, forget_times, real_model};

/// A run of a minute: everything the quickstart does, on fewer problems.
fn config(place: &Place, model: &Path) -> PathBuf {
    let tasks = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/tasks/arithmetic.jsonl"),
    )
    .expect("the project's problems");
    let tasks: Vec<&str> = tasks.lines().take(80).collect();
    place.write("tasks.jsonl", &tasks.join("\n"));
    place.write(
        "run.yaml",
        &format!(
            "run: {{name: small, rounds: 1}}
model: {{path: {}}}
tasks:
  path: tasks.jsonl
  verifier: {{numeric: {{tolerance: 1.0e-4}}}}
  splits: {{evolve: 40, gate: 16, test: 10}}
harness: naive
budget: {{tokens_per_problem: 96, seconds_per_problem: 600}}
gate: {{mode: sequential, tasks: 8, false_discovery_rate: 0.9}}
harness_loop: {{iterations: 2, diagnose_tasks: 10, candidates: 3}}
model_loop:
  gather_tasks: 40
  min_trajectories: 1
  sft: {{rank: 4, alpha: 8, epochs: 2, batch: 2, accumulate: 2, dropout: 0.1, validation: 0.2, checkpoint_steps: 1}}
",
            model.display()
        ),
    )
}

/// What must not depend on interruptions: everything but times.
fn outcome(place: &Place) -> Value {
    let output = place
        .command(&["report", "--json"])
        .output()
        .expect("report");
    let mut report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for training in report["trainings"].as_array_mut().into_iter().flatten() {
        // A resumed training reports the steps of its last stretch.
        for field in ["tokens", "computed_tokens"] {
            training[field].take();
        }
    }
    forget_times(&mut report);
    report
}

fn run_to_the_end(place: &Place) {
    let output = place
        .command(&["run", "--config", "run.yaml"])
        .output()
        .expect("run");
    assert!(output.status.success(), "{}", place.transcript(&output));
}

#[test]
fn a_run_killed_at_random_moments_ends_like_one_left_alone() {
    let Some(model) = real_model() else {
        println!("skipped: COHARNESS_TEST_MODEL names no model");
        return;
    };
    let alone = Place::new();
    config(&alone, &model);
    let started = Instant::now();
    run_to_the_end(&alone);
    let took = started.elapsed();
    let expected = outcome(&alone);
    assert_eq!(expected["is_finished"], true);
    assert_eq!(expected["test"]["baseline"]["n"], 10);
    assert!(expected["patches"]["rejected"].as_u64().expect("a count") > 0);
    assert!(
        !expected["diagnoses"]
            .as_array()
            .expect("diagnoses")
            .is_empty()
    );

    let killed = Place::new();
    config(&killed, &model);
    let kills = 3;
    for number in 0..kills {
        // The same moments in every test run, spread over the whole run.
        let share = [0.35, 0.15, 0.4][number];
        let mut child = killed
            .command(&["run", "--config", "run.yaml"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("run");
        std::thread::sleep(took.mul_f64(share).max(Duration::from_secs(2)));
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
    let output = killed.command(&["resume"]).output().expect("resume");
    assert!(output.status.success(), "{}", killed.transcript(&output));
    assert_eq!(outcome(&killed), expected);

    // The registry is a plain git repository, whole after all that.
    let registry = killed
        .path()
        .join(".coharness/runs/small-seed0/registry.git");
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git")
            .arg("--git-dir")
            .arg(&registry)
            .args(arguments)
            .output()
            .expect("git");
        assert!(output.status.success(), "git {arguments:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    git(&["fsck", "--strict"]);
    assert!(git(&["log", "--oneline", "main"]).contains("v1"));

    // Asked again, a finished run only shows what it measured.
    let started = Instant::now();
    run_to_the_end(&killed);
    assert!(started.elapsed() < Duration::from_secs(20));

    // Another configuration under the same name is refused by field.
    let other = killed.run(&[
        "run",
        "--config",
        "run.yaml",
        "--set",
        "budget.tokens_per_problem=97",
    ]);
    assert!(
        other.contains("it differs in budget.tokens_per_problem"),
        "{other}"
    );
    assert!(other.ends_with("--- exit 2\n"), "{other}");

    // So are other problems under the same configuration: they would be dealt anew.
    let path = killed.path().join("tasks.jsonl");
    let edited = std::fs::read_to_string(&path).expect("tasks").replacen(
        "\"answer\": \"",
        "\"answer\": \"1",
        1,
    );
    std::fs::write(&path, edited).expect("tasks");
    let other = killed.run(&["run", "--config", "run.yaml"]);
    assert!(
        other.contains("it differs in the problems of tasks.path"),
        "{other}"
    );
}

#[test]
fn a_full_disk_stops_the_run_with_all_that_was_finished() {
    let Some(model) = real_model() else {
        println!("skipped: COHARNESS_TEST_MODEL names no model");
        return;
    };
    let place = Place::new();
    config(&place, &model);
    let small = place.path().join("small-disk");
    std::fs::create_dir(&small).expect("folder");
    let mount = |arguments: &[&str]| {
        std::process::Command::new("mount")
            .args(arguments)
            .arg(&small)
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if !mount(&["-t", "tmpfs", "-o", "size=400k", "tmpfs"]) {
        println!("skipped: only root can mount a small disk");
        return;
    }
    let unmount = Unmount(small.clone());
    let directory = small.display().to_string();
    let arguments = ["--dir", &directory, "run", "--config", "run.yaml"];
    let full = place.run(&arguments);
    assert!(
        full.contains("no space left") || full.contains("No space left"),
        "{full}"
    );
    assert!(full.ends_with("--- exit 5\n"), "{full}");
    assert!(full.contains("hint"), "{full}");

    assert!(mount(&["-o", "remount,size=200m"]));
    let status = place.run(&["--dir", &directory, "status"]);
    assert!(status.contains("stopped"), "{status}");
    let mut child = place
        .command(&arguments)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("run");
    // Enough to see that it goes on; the run itself is the other test's.
    std::thread::sleep(Duration::from_secs(5));
    assert!(
        child.try_wait().expect("wait").is_none(),
        "the run goes on once there is room"
    );
    child.kill().expect("kill");
    child.wait().expect("wait");
    drop(unmount);
}

/// Takes the small disk away however the test ends.
pub(crate) struct Unmount(pub(crate) PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        // A mount left behind is ugly but harmless; there is nobody to tell.
        let _ = std::process::Command::new("umount")
            .arg("--lazy")
            .arg(&self.0)
            .status();
    }
}
