//! Skills with Python: what they define can be called, in every way that a program is run.

use serde_json::{Value, json};

use crate::server::{Answer, config, number, serve};
use crate::{Place, tasks, write_harness};

const SKILL: &str = "---
name: counting
description: Counting on.
triggers:
  - what is
---

`add_one(n)` is n + 1.
";
const PYTHON: &str = "calls = 0

def add_one(n):
    global calls
    calls += 1
    return n + 1
";

/// Evaluates a harness with the skill against a model that writes `programs` in turn, `N` for the
/// problem's number, and then answers with the first number of the last result. Gives how many of the
/// three problems are solved, and the result as JSON.
fn solved(programs: &'static [&str], skill: &str, change: impl Fn(&str) -> String) -> (u64, Value) {
    let url = serve(move |request| {
        let messages = request["messages"].to_string();
        let results: Vec<&str> = messages.split("Tool output:\\n").skip(1).collect();
        match programs.get(results.len()) {
            Some(program) => {
                let code = program.replace('N', &number(request).to_string());
                let call = json!({"name": "python", "arguments": {"code": code}});
                Answer::Says(call.to_string())
            }
            None => {
                let last = results.last().copied().unwrap_or_default();
                let digits: String = last.chars().take_while(char::is_ascii_digit).collect();
                Answer::Says(format!("The answer is \\boxed{{{digits}}}."))
            }
        }
    });
    let place = Place::new();
    write_harness(&place, "skilled", change);
    place.write("skilled/skills/counting/SKILL.md", skill);
    place.write("skilled/skills/counting/skill.py", PYTHON);
    place.write("eval.jsonl", &tasks(3));
    place.write(
        "run.yaml",
        &config(&url, "{evolve: 2, gate: 4, test: 2}", ""),
    );
    let arguments = [
        "eval",
        "--config",
        "run.yaml",
        "--tasks",
        "eval.jsonl",
        "--harness",
        "skilled",
        "--json",
    ];
    let output = place.command(&arguments).output().expect("runs");
    assert!(output.status.success(), "{}", place.transcript(&output));
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = result["results"].as_array().expect("a list");
    let correct = rows.iter().filter_map(|row| row["correct"].as_u64()).sum();
    (correct, result)
}

fn stateful(text: &str) -> String {
    text.replace("backend: python", "backend: python\nstate: stateful")
}

fn printing(text: &str) -> String {
    text.replace(
        "pre_tool_call: []",
        "pre_tool_call: [{type: auto_print_last_expression}]",
    )
}

#[test]
fn programs_find_what_the_skills_of_their_problem_define() {
    assert_eq!(solved(&["print(add_one(N))"], SKILL, str::to_owned).0, 3);
    assert_eq!(solved(&["add_one(N)"], SKILL, printing).0, 3);
    // Each program starts afresh.
    let fresh = &[
        "add_one(7)",
        "x = add_one(N)\nprint(x if calls == 1 else 0)",
    ];
    assert_eq!(solved(fresh, SKILL, str::to_owned).0, 3);
}

#[test]
fn an_interpreter_that_keeps_its_state_has_them_once() {
    let programs = &["x = add_one(N)", "print(x if calls == 1 else 0)"];
    assert_eq!(solved(programs, SKILL, stateful).0, 3);
    let both = |text: &str| printing(&stateful(text));
    let programs = &["x = add_one(N)", "x if calls == 1 else 0"];
    assert_eq!(solved(programs, SKILL, both).0, 3);
}

#[test]
fn a_harness_with_a_skill_that_does_not_run_doesnt_start() {
    let url = serve(|_| panic!("nothing is to be asked"));
    let place = Place::new();
    write_harness(&place, "skilled", str::to_owned);
    place.write("skilled/skills/counting/SKILL.md", SKILL);
    place.write("tasks.jsonl", &tasks(8));
    let config = config(&url, "{evolve: 2, gate: 4, test: 2}", "");
    let config = config.replace("harness: naive", "harness: skilled");
    place.write("run.yaml", &config);
    for (python, error) in [
        ("def f(:\n", "SyntaxError: "),
        ("1 / 0\n", "ZeroDivisionError: "),
    ] {
        place.write("skilled/skills/counting/skill.py", python);
        for command in ["run", "eval"] {
            let said = place.run(&[command, "--config", "run.yaml"]);
            let reason = format!("skilled: skills/counting/skill.py fails: {error}");
            assert!(said.contains(&reason), "{said}");
            assert!(said.ends_with("--- exit 2\n"), "{said}");
        }
    }
}

#[test]
fn a_skill_may_build_on_one_before_it_and_take_what_its_tool_gives() {
    let url = serve(|_| Answer::Says("The answer is \\boxed{1}.".into()));
    let place = Place::new();
    write_harness(&place, "skilled", |text| {
        text.replace("memory_mib: 512", "memory_mib: 1024")
    });
    for (name, python) in [
        ("counting", PYTHON),
        ("further", "two = add_one(1)\n"),
        ("large", "room = bytes(700 << 20)\n"),
    ] {
        let skill = SKILL.replace("name: counting", &format!("name: {name}"));
        place.write(&format!("skilled/skills/{name}/SKILL.md"), &skill);
        place.write(&format!("skilled/skills/{name}/skill.py"), python);
    }
    place.write("eval.jsonl", &tasks(3));
    let config = config(&url, "{evolve: 2, gate: 4, test: 2}", "");
    place.write("run.yaml", &config);
    let eval = ["eval", "--config", "run.yaml", "--tasks", "eval.jsonl"];
    let said = place.run(&[&eval[..], &["--harness", "skilled"]].concat());
    assert!(said.ends_with("--- exit 0\n"), "{said}");
}

#[test]
fn a_skill_that_is_off_defines_nothing() {
    let off = SKILL.replace("what is", "percent");
    let (correct, result) = solved(&["print(add_one(N))"], &off, str::to_owned);
    assert_eq!((correct, &result["events"]["tool_error"]), (0, &json!(3)));
}
