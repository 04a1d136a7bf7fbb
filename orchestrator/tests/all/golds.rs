//! What is right stays with the verifier: whole runs in which everybody else is read over the shoulder.

use std::collections::BTreeSet;
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

/// The problems, one a line.
fn problems() -> String {
    let line = |number| {
        let answer = gold(number).to_string();
        json!({"id": format!("t{number}"), "problem": problem(number), "answer": answer})
            .to_string()
    };
    let lines: Vec<String> = (0..PROBLEMS).map(line).collect();
    lines.join("\n")
}

/// All rollouts of the run.
fn rollouts(place: &Place) -> Vec<Value> {
    let list = [
        "trajectories",
        "list",
        "--json",
        "--limit",
        "0",
        "--run",
        "small-seed0",
    ];
    let output = place.command(&list).output().expect("runs");
    serde_json::from_slice(&output.stdout).expect("a list")
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
    place.write("tasks.jsonl", &problems());
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
    let rows = rollouts(&place);
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
    a_person_is_told(&place, &rows[0], &problems());
}

/// A verifier that gives reasons.
const JUDGE: &str = "import json, sys
asked = json.loads(sys.stdin.readline())
print(json.dumps({'equal': asked['gold'] == asked['pred'], 'why': 'weighed by the judge'}))";

/// Whether the model knows what is right, in whatever split the problem is.
fn is_known(number: u32) -> bool {
    number.is_multiple_of(2)
}

/// The number of the problem that a request is about.
fn asked_for(request: &Value) -> Option<u32> {
    let text = request["messages"].to_string();
    let (_, rest) = text.rsplit_once("What is item ")?;
    rest.split(' ').next()?.parse().ok()
}

/// What the critic's model says: it asks for all that it can see, and then finds nothing.
fn curious(request: &Value) -> Answer {
    let is_first = request["messages"]
        .as_array()
        .is_some_and(|said| said.len() == 2);
    let all = |rollout: &str| json!({"rollout": rollout, "from": 0, "to": 11});
    let wanted = ["R1", "R2", "R3", "R4", "S1", "S2", "S3", "S4"].map(all);
    let reply = match is_first {
        true => json!({"excerpts": wanted}),
        false => json!({"findings": []}),
    };
    Answer::Says(reply.to_string())
}

#[test]
fn a_critic_reads_right_answers_only_where_the_model_gave_them_to_evolve_problems() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&asked);
    let url = serve(move |request| {
        if request["model"] == "critic-1" {
            log.lock().expect("lock").push(request.to_string());
            return curious(request);
        }
        let number = asked_for(request).filter(|number| is_known(*number));
        let answer = number.map_or(1, gold);
        Answer::Says(format!("The answer is \\boxed{{{answer}}}."))
    });
    let place = Place::new();
    place.write("tasks.jsonl", &problems());
    let more = format!(
        "critic: {{llm: {{base_url: '{url}', model: critic-1}}}}
gate: {{mode: paper, tasks: 4}}
harness_loop: {{iterations: 1, diagnose_tasks: 8, candidates: 1}}
model_loop: {{is_enabled: false}}
"
    );
    let judge = Value::from(JUDGE);
    let judge = format!("{{command: {{program: python3, arguments: ['-c', {judge}]}}}}");
    let config = config(&url, "{evolve: 8, gate: 8, test: 8}", &more);
    let judged = config.replace("verifier: integer", &format!("verifier: {judge}"));
    place.write("run.yaml", &judged);
    let output = place
        .command(&["run", "--config", "run.yaml", "--json"])
        .output();
    let output = output.expect("runs");
    assert!(output.status.success(), "{}", place.transcript(&output));

    let rows = rollouts(&place);
    let numbers = |is_wanted: fn(&Value) -> bool| -> BTreeSet<u32> {
        let tasks = rows.iter().filter(|row| is_wanted(row));
        let numbers = tasks.filter_map(|row| row["task"].as_str()?.strip_prefix('t')?.parse().ok());
        numbers.collect()
    };
    let evolve = numbers(|row| row["split"] == "evolve");
    let held_out = numbers(|row| row["split"] != "evolve");
    let solved = numbers(|row| row["correct"] == true);
    assert!(held_out.len() >= 8 && evolve.is_disjoint(&held_out));
    assert!(solved.iter().all(|number| is_known(*number)));
    assert!(!solved.is_disjoint(&evolve) && !solved.is_disjoint(&held_out));

    let asked = asked.lock().expect("lock");
    assert!(
        asked.len() >= 2,
        "the critic was asked {} times",
        asked.len()
    );
    let is_read = |text: &str| asked.iter().any(|said| said.contains(text));
    for number in 0..PROBLEMS {
        let is_open = evolve.contains(&number);
        assert!(is_open || !is_read(&problem(number)), "{number}");
        let may_be_read = is_open && is_known(number);
        assert!(
            may_be_read || !is_read(&gold(number).to_string()),
            "{number}"
        );
    }
    // What would be seen is seen: the model's own answers to evolve problems.
    let mut own = evolve.intersection(&solved);
    assert!(own.any(|number| is_read(&gold(*number).to_string())));
    for word in ["weighed by the judge", "verdict"] {
        assert!(!is_read(word), "{word}");
    }
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
