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

#[test]
fn verify_answer_answers_line_by_line() {
    let place = Place::new();
    let lines = concat!(
        r#"{"gold": "\\frac{1}{2}", "pred": "The answer is $0.5$."}"#,
        "\n",
        r#"{"gold": 12, "pred": "\\boxed{13}"}"#,
        "\n",
        r#"{"gold": "50\\%", "pred": "50"}"#,
        "\n",
        r#"{"gold": "1", "pred": "\\boxed{\\frac{1}{2}"}"#,
        "\n",
        "no JSON\n",
        "\n",
        r#"{"gold": "1"}"#,
        "\n",
        r#"{"gold": "9^{9^{9^{9}}}", "pred": "8^{8^{8^{8}}}"}"#,
    );
    place.write("answers.jsonl", lines);
    assert_snapshot!(place.run(&["verify-answer", "--jsonl", "answers.jsonl"]));
    place.write("good.jsonl", "{\"gold\": \"A\", \"pred\": \"A\"}\n");
    assert_snapshot!(
        "verify_answer_with_a_program",
        place.run(&[
            "verify-answer",
            "--jsonl",
            "good.jsonl",
            "--kind",
            "command",
            "--program",
            "sh",
            "--arg",
            "-c",
            "--arg",
            "exit 1",
        ])
    );
    assert_snapshot!(
        "verify_answer_of_no_file",
        place.run(&["verify-answer", "--jsonl", "none.jsonl"])
    );
    assert_snapshot!(
        "help_of_verify_answer",
        place.run(&["verify-answer", "--help"])
    );
}

/// A verifier that is asked one answer at a time gets each reply before it asks again.
#[test]
fn verify_answer_does_not_wait_for_the_end_of_its_input() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;

    let place = Place::new();
    let mut child = place
        .command(&["verify-answer", "--jsonl", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let mut input = child.stdin.take().expect("input");
    let mut output = BufReader::new(child.stdout.take().expect("output"));
    for (pred, equal) in [("7", true), ("8", false), ("7.0", true)] {
        writeln!(input, r#"{{"gold": "7", "pred": "{pred}"}}"#).expect("a question");
        let mut line = String::new();
        output.read_line(&mut line).expect("an answer");
        let reply: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(reply["equal"], equal, "{pred}");
    }
    drop(input);
    assert!(child.wait().expect("ends").success());
}
