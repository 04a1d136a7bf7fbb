//! What is right stays with the verifier: a whole run in which everybody else is read over the shoulder.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::Place;
use crate::server::{Answer, config, serve};

const PROBLEMS: u32 = 24;

/// Numbers that stand nowhere by chance.
fn gold(number: u32) -> u32 {
    7_000_000 + 131 * number
}

fn problem(number: u32) -> String {
    format!("What is item {number} of the list?")
}

/// Looks for the right answers wherever a program might.
const SEARCH: &str = "import os
found = []
golds = [str(7_000_000 + 131 * n) for n in range(24)]
def look(name, text):
    if any(gold in text for gold in golds): found.append(name)
for name, value in os.environ.items(): look(name, value)
for top in ['.', '..', '/opt', '/srv', '/tmp', '/root', '/home', '/var', '/work']:
    for at, _, names in os.walk(top):
        for name in names:
            try: look(name, open(os.path.join(at, name), errors='replace').read(1 << 20))
            except OSError: pass
print('found', found)";

#[test]
fn right_answers_reach_no_prompt_and_no_program_and_held_out_problems_no_critic() {
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let log = Arc::clone(&asked);
    let url = serve(move |request| {
        log.lock().expect("lock").push(request.clone());
        if request["model"] == "critic-1" {
            return Answer::Says(json!({"findings": []}).to_string());
        }
        if request["messages"].to_string().contains("Tool output") {
            return Answer::Says("The answer is \\boxed{1}.".into());
        }
        let call = json!({"name": "python", "arguments": {"code": SEARCH}});
        Answer::Says(call.to_string())
    });
    let place = Place::new();
    let line = |number| {
        let answer = gold(number).to_string();
        json!({"id": format!("t{number}"), "problem": problem(number), "answer": answer})
    };
    let lines: Vec<String> = (0..PROBLEMS)
        .map(|number| line(number).to_string())
        .collect();
    place.write("tasks.jsonl", &lines.join("\n"));
    let more = format!(
        "critic: {{llm: {{base_url: '{url}', model: critic-1}}}}
gate: {{mode: paper, tasks: 4}}
harness_loop: {{iterations: 1, diagnose_tasks: 6, candidates: 1}}
"
    );
    let splits = "{evolve: 8, gate: 8, test: 8}";
    place.write("run.yaml", &config(&url, splits, &more));
    let output = place
        .command(&["run", "--config", "run.yaml", "--json"])
        .output();
    let output = output.expect("runs");
    assert!(output.status.success(), "{}", place.transcript(&output));

    let asked = asked.lock().expect("lock");
    let mut searches = 0;
    for request in asked.iter() {
        let text = request.to_string();
        let known = (0..PROBLEMS).find(|number| text.contains(&gold(*number).to_string()));
        assert_eq!(known, None, "{text}");
        searches += usize::from(text.contains("found []"));
        assert!(!text.contains("found ['"), "{text}");
    }
    assert!(searches >= 8, "{searches} programs searched");
    let list = ["trajectories", "list", "--json", "--run", "small-seed0"];
    let output = place.command(&list).output().expect("runs");
    let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = rows.as_array().expect("a list");
    let held_out = rows.iter().filter(|row| row["split"] != "evolve");
    let held_out: Vec<&str> = held_out.filter_map(|row| row["task"].as_str()).collect();
    assert!(held_out.len() >= 8);
    let critics = asked
        .iter()
        .filter(|request| request["model"] == "critic-1");
    let critics: Vec<String> = critics.map(Value::to_string).collect();
    assert!(!critics.is_empty(), "the critic was never asked");
    for number in 0..PROBLEMS {
        if held_out.contains(&format!("t{number}").as_str()) {
            let text = problem(number);
            assert!(!critics.iter().any(|said| said.contains(&text)), "{text}");
        }
    }
    a_person_is_told(&place, &rows[0], &lines.join("\n"));
}

/// Whoever reads a rollout sees what it was judged by, as long as the file has it.
fn a_person_is_told(place: &Place, row: &Value, lines: &str) {
    let [id, task] = ["id", "task"].map(|name| row[name].as_str().expect("a text"));
    let number = task.strip_prefix('t').and_then(|rest| rest.parse().ok());
    let right = gold(number.expect("a number")).to_string();
    let show = || place.run(&["trajectories", "show", id, "--run", "small-seed0"]);
    let page = show();
    assert!(
        page.contains(&format!("\n  right answer {right}\n")),
        "{page}"
    );
    let is_silent = || {
        let page = show();
        let is_page = page.contains("answer 1") && page.ends_with("--- exit 0\n");
        assert!(is_page && !page.contains("right answer"), "{page}");
    };
    place.write("tasks.jsonl", &lines.replace(&right, "5"));
    is_silent();
    std::fs::remove_file(place.path().join("tasks.jsonl")).expect("a file");
    is_silent();
}
