//! Help, plans, and commands without a run.

use std::path::PathBuf;
use std::process::Stdio;

use coharness::report::kind;
use coharness::store::Store;
use insta::assert_snapshot;
use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use crate::{CONFIG, Place, tasks};

#[test]
fn help() {
    assert_snapshot!("help", Place::new().run(&["--help"]));
    for (name, arguments) in [
        ("help_of_run", &["run", "--help"][..]),
        ("help_of_eval", &["eval", "--help"]),
        (
            "help_of_trajectories_list",
            &["trajectories", "list", "--help"],
        ),
        (
            "help_of_trajectories_show",
            &["trajectories", "show", "--help"],
        ),
    ] {
        assert_snapshot!(name, Place::new().run(arguments));
    }
}

#[test]
fn a_mistyped_command() {
    assert_snapshot!(Place::new().run(&["rnu"]));
}

#[test]
fn a_rollback_without_a_reason() {
    assert_snapshot!(Place::new().run(&["rollback", "v1", "--reason", " "]));
    let empty = Place::new().run(&["rollback", "v1", "--reason", ""]);
    assert!(empty.contains("--reason"), "{empty}");
    assert!(empty.ends_with("--- exit 2\n"), "{empty}");
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

/// A run in a place that has nothing but a name.
async fn empty_run(place: &Place, name: &str) -> PathBuf {
    let directory = place.path().join(".coharness/runs").join(name);
    std::fs::create_dir_all(&directory).expect("folder");
    let store = Store::open(&directory).await.expect("a store");
    store.create_run(name, "{}", 0).await.expect("a run");
    store.close().await;
    directory.join("run.db")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cant_be_read_is_named_and_the_others_are_shown() {
    let place = Place::new();
    empty_run(&place, "good-seed0").await;
    let garbage = "this is no database ".repeat(100);
    place.write(".coharness/runs/damaged-seed0/run.db", &garbage);
    let newer = empty_run(&place, "newer-seed0").await;
    let options = SqliteConnectOptions::new().filename(&newer);
    let pool = SqlitePool::connect_with(options).await.expect("a database");
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'of a later version', TRUE, x'00', 0)",
    )
    .execute(&pool)
    .await
    .expect("a migration");
    pool.close().await;

    let shown = place.run(&["status"]);
    for part in [
        "good-seed0     new",
        "damaged-seed0  unreadable",
        "newer-seed0    unreadable",
        "warning: damaged-seed0 can't be read: cannot open the run's database",
        "warning: newer-seed0 can't be read: the run's database",
        "migration 9999 was previously applied but is missing",
    ] {
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (part, text) = (squeezed(part), squeezed(&shown));
        assert!(text.contains(&part), "{part} in {shown}");
    }
    assert!(shown.ends_with("--- exit 0\n"), "{shown}");
    let refused = place.run(&["report", "--run", "newer-seed0"]);
    let hint = "hint: A later version of coharness has written it";
    assert!(refused.contains(hint), "{refused}");

    let output = place.command(&["status", "--json"]).output().expect("runs");
    let runs: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut states: Vec<(&str, &str, bool)> = runs
        .as_array()
        .expect("a list")
        .iter()
        .map(|run| {
            let text = |field: &str| run[field].as_str().expect("a text");
            (text("run"), text("state"), run["error"].is_string())
        })
        .collect();
    states.sort_unstable();
    assert_eq!(
        states,
        [
            ("damaged-seed0", "unreadable", true),
            ("good-seed0", "new", false),
            ("newer-seed0", "unreadable", true),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_that_stay_inconclusive_are_no_accepted_ones() {
    let place = Place::new();
    let run = empty_run(&place, "half-seed0").await;
    let store = Store::open(run.parent().expect("a folder")).await;
    let store = store.expect("a store");
    let reasoned = |verdict: &str| json!({"verdict": verdict, "stage": 1, "reason": "weak"});
    for (number, verdict) in [
        json!({"verdict": "accepted"}),
        reasoned("rejected"),
        reasoned("inconclusive"),
        reasoned("inconclusive"),
        json!({"verdict": "deferred"}),
    ]
    .into_iter()
    .enumerate()
    {
        let row = json!({"round": 1, "iteration": 1, "candidate": number + 1, "parent": "v1", "version": null,
            "dimension": "P", "summary": "s", "root_cause": "r", "ops": [], "stages": [], "evidence": null,
            "rollouts": 8, "verdict": verdict, "policy": "p"});
        let key = format!("decision {number}");
        let recorded = store.record_step(&key, kind::PATCH, 1, &row, 0).await;
        recorded.expect("a step");
    }
    store.close().await;
    let shown = place.run(&["status"]);
    assert!(shown.contains("1 of 4"), "{shown}");
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
fn a_plan_is_not_taken_for_a_report() {
    let plan = ["run", "--config", "run.yaml", "--dry-run", "--json"];
    let said = Place::new().run(&plan);
    let reason = "error: the argument '--dry-run' cannot be used with '--json'\n";
    let turned = "error: the argument '--json' cannot be used with '--dry-run'\n";
    assert!(said.contains(reason) || said.contains(turned), "{said}");
    assert!(said.ends_with("--- exit 2\n"), "{said}");
}

#[test]
fn a_plan_has_the_limits_of_the_whole_run() {
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(8));
    place.write("run.yaml", CONFIG);
    place.write("model.gguf", "not read by a plan");
    let mut plan = vec!["run", "--config", "run.yaml", "--dry-run"];
    for setting in [
        "prices={prompt_per_million: 1, completion_per_million: 2}",
        "budget.run_seconds=3600",
        "budget.run_rollouts=1",
        "budget.run_tokens=1000000",
        "budget.run_cost=2.5",
    ] {
        plan.extend(["--set", setting]);
    }
    let said = place.run(&plan);
    let line = "           the whole run: at most 3600 s, 1 rollout, 1000000 tokens, cost 2.500\n";
    assert!(said.contains(line), "{said}");
}

#[test]
fn a_plan_of_one_of_each_has_no_plurals() {
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(8));
    place.write("run.yaml", CONFIG);
    place.write("model.gguf", "not read by a plan");
    let mut plan = vec!["run", "--config", "run.yaml", "--rounds", "1", "--dry-run"];
    for setting in [
        "tasks.splits={evolve: 1, gate: 4, test: 1}",
        "harness_loop={iterations: 1, diagnose_tasks: 1, candidates: 1}",
        "gate={tasks: 2, max_samples: 1, retest_every: 1}",
        "model_loop.sft.epochs=1",
    ] {
        plan.extend(["--set", setting]);
    }
    let said = place.run(&plan);
    for line in [
        "baseline   1 rollout on the sealed test\none round:\n",
        "  harness loop, up to 1 cycle, gate mode",
        "    diagnose   1 rollout on evolve problems",
        "a look for 1 candidate and the incumbent, at most 1 look\n",
        "    gather     1 rollout on evolve problems\n",
        "LoRA rank 16, 1 epoch, batch",
        "  removal    every round: each",
        "  test       1 rollout on the sealed test\n",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
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
fn data_that_cant_be_written_is_no_success_but_a_reader_may_leave_early() {
    let place = Place::new();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("Linux has it");
    let output = place
        .command(&["schema"])
        .stdout(full)
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(
        said.starts_with("error: cannot access standard output: No space left"),
        "{said}"
    );

    let mut child = place
        .command(&["schema"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn schemas_and_completions_are_printed() {
    let place = Place::new();
    for of in ["config", "harness", "record"] {
        let output = place.command(&["schema", of]).output().expect("runs");
        let schema: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(schema["properties"].is_object());
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = place
            .command(&["completions", shell])
            .output()
            .expect("runs");
        let script = String::from_utf8_lossy(&output.stdout).into_owned();
        for word in ["coharness", "trajectories", "samples", "outcome"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
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
    for unused in [["--tolerance", "0.1"], ["--program", "sh"]] {
        let said = place.run(&["verify-answer", unused[0], unused[1]]);
        let expected = format!("{}: only --kind", unused[0]);
        assert!(said.contains(&expected), "{said}");
        assert!(said.ends_with("--- exit 2\n"), "{said}");
    }
    assert_snapshot!(
        "verify_answer_of_no_file",
        place.run(&["verify-answer", "--jsonl", "none.jsonl"])
    );
    let said = place.run(&["verify-answer", "--jsonl", "."]);
    assert!(said.contains("cannot read .:"), "{said}");
    assert!(said.ends_with("--- exit 2\n"), "{said}");
    assert_snapshot!(
        "help_of_verify_answer",
        place.run(&["verify-answer", "--help"])
    );
}

#[test]
fn verify_answer_says_what_it_cant_read_and_what_it_cant_write() {
    let place = Place::new();
    let lines = "\u{feff}{\"gold\": \"1\", \"pred\": \"1\"}\r\n \n{\"gold\": \"1\", \"pred\": \"1\", \"pred\": \"2\"}\n";
    let judge = ["verify-answer", "--jsonl"];
    place.write("answers.jsonl", lines);
    let said = place.run(&[judge[0], judge[1], "answers.jsonl"]);
    let judged: Vec<&str> = said.lines().collect();
    assert!(judged[0].starts_with(r#"{"equal":true"#), "{said}");
    let twice = "can't be read as JSON: key \\\"pred\\\" occurs twice";
    assert!(judged[1].contains(twice), "{said}");
    assert!(
        said.contains("1 equal, 0 not, 0 undecided, 1 line that"),
        "{said}"
    );

    // A directory can be opened, but not read.
    let directory = std::fs::File::open(place.path()).expect("opens");
    let mut command = place.command(&[judge[0], judge[1], "-"]);
    let said = place.transcript(&command.stdin(directory).output().expect("runs"));
    assert!(said.contains("cannot read standard input: "), "{said}");
    assert!(said.ends_with("--- exit 2\n"), "{said}");
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut command = place.command(&[judge[0], judge[1], "answers.jsonl"]);
    command.stdout(full.expect("Linux has it"));
    let said = place.transcript(&command.output().expect("runs"));
    assert!(
        said.contains("cannot access standard output: No space left"),
        "{said}"
    );
    assert!(said.ends_with("--- exit 5\n"), "{said}");
}

#[test]
fn a_verifier_that_cant_be_started_is_told_of_before_it_is_needed() {
    let place = Place::new();
    let verifier = "{command: {program: ./no-such-check}}";
    let config = CONFIG.replace("{numeric: {tolerance: 1.0e-4}}", verifier);
    place.write("run.yaml", &config);
    place.write("tasks.jsonl", &tasks(8));
    place.write("model.gguf", "not read by then");
    place.write("good.jsonl", "{\"gold\": \"A\", \"pred\": \"A\"}\n");
    let run = ["run", "--config", "run.yaml", "--dry-run"];
    let judge = [
        "verify-answer",
        "--jsonl",
        "good.jsonl",
        "--kind",
        "command",
    ];
    let judge = [&judge[..], &["--program", "./no-such-check"]].concat();
    for arguments in [&run[..], &run[..3], &judge[..]] {
        let said = place.run(arguments);
        assert!(
            said.contains("cannot start ./no-such-check: No such file"),
            "{said}"
        );
        assert!(said.ends_with("--- exit 3\n"), "{said}");
    }
}

#[test]
fn a_verifier_with_a_slash_is_sought_beside_the_configuration_and_a_bare_name_on_the_path() {
    let place = Place::new();
    place.write("set/tasks.jsonl", &tasks(8));
    place.write("set/model.gguf", "not read by a plan");
    let check = place.path().join("set/check");
    std::os::unix::fs::symlink("/bin/sh", check).expect("a link");
    let plan = |program: &str| {
        let verifier = format!("{{command: {{program: {program}}}}}");
        let config = CONFIG.replace("{numeric: {tolerance: 1.0e-4}}", &verifier);
        place.write(
            "set/run.yaml",
            &format!("{config}gate: {{mode: confirmed}}\n"),
        );
        place.run(&["run", "--config", "set/run.yaml", "--dry-run"])
    };
    for there in ["./check", "../set/check", "sh"] {
        let said = plan(there);
        assert!(said.ends_with("--- stderr\n--- exit 0\n"), "{said}");
    }
    for (absent, sought) in [("check", "check"), ("./sh", "set/sh")] {
        let said = plan(absent);
        let reason = format!("tasks.verifier: cannot start {sought}: No such file");
        assert!(said.contains(&reason), "{said}");
        assert!(said.ends_with("--- exit 3\n"), "{said}");
    }
}

/// A verifier that is asked one answer at a time gets each reply before it asks again.
#[test]
fn verify_answer_does_not_wait_for_the_end_of_its_input() {
    use std::io::{BufRead, BufReader, Write};

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
