//! Help, plans, and commands without a run.

use insta::assert_snapshot;

use crate::{CONFIG, Place, tasks};

#[test]
fn help() {
    assert_snapshot!("help", Place::new().run(&["--help"]));
    assert_snapshot!("help_of_run", Place::new().run(&["run", "--help"]));
}

#[test]
fn a_mistyped_command() {
    assert_snapshot!(Place::new().run(&["rnu"]));
}

#[test]
fn no_run_yet() {
    let place = Place::new();
    assert_snapshot!("status_without_runs", place.run(&["status"]));
    assert_snapshot!("history_without_runs", place.run(&["history"]));
    assert_snapshot!(
        "resume_of_no_run",
        place.run(&["resume", "quickstart-seed0"])
    );
}

#[test]
fn plan_of_a_run_that_could_start() {
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(8));
    place.write("run.yaml", CONFIG);
    place.write("model.gguf", "not read by a plan");
    assert_snapshot!(place.run(&["run", "--rounds", "3", "--config", "run.yaml", "--dry-run"]));
}

#[test]
fn plan_of_the_aime_run_names_all_that_is_missing() {
    // Port 1 is reserved; nothing listens there.
    let set = "policy.base_url=http://127.0.0.1:1/v1";
    let arguments = [
        "run",
        "--rounds",
        "2",
        "--config",
        "aime.yaml",
        "--dry-run",
        "--set",
        set,
    ];
    assert_snapshot!(Place::new().run(&arguments));
}

#[test]
fn schemas_and_completions_are_printed() {
    let place = Place::new();
    for of in ["config", "harness"] {
        let output = place.command(&["schema", of]).output().expect("runs");
        let schema: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(schema["properties"].is_object());
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = place
            .command(&["completions", shell])
            .output()
            .expect("runs");
        assert!(String::from_utf8_lossy(&output.stdout).contains("coharness"));
    }
}

#[test]
fn doctor_checks_the_sandbox_with_attacks() {
    let output = Place::new()
        .command(&["doctor", "--json"])
        .output()
        .expect("runs");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["guarantees"]["environment"]["enforced"], true);
}
