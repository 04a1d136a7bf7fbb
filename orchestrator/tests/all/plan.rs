//! What a plan finds that would end a run at once.

use crate::{CONFIG, Place, tasks};

const RUN: [&str; 3] = ["run", "--config", "run.yaml"];

fn place() -> Place {
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(8));
    place.write("model.gguf", "not read by a plan");
    place.write("run.yaml", &config());
    place
}

/// A mode to which a handful of problems is enough: of the other the plan would warn.
fn config() -> String {
    format!("{CONFIG}gate: {{mode: confirmed}}\n")
}

#[test]
fn some_gold_answers_that_cannot_be_read_are_warned_of_and_no_others_are_refused() {
    let place = place();
    let plan = [&RUN[..], &["--dry-run"]].concat();
    let unknown = tasks(8).replace("\"answer\":\"1\"", "\"answer\":\"unknown\"");
    place.write("tasks.jsonl", &unknown);
    let said = place.run(&plan);
    let warning = "--- stderr\nwarning: tasks.verifier can't read 1 gold answer, which nothing will match: t0\n\
                   --- exit 0\n";
    assert!(said.ends_with(warning), "{said}");

    // No problem has tests.
    let code = config().replace("{numeric: {tolerance: 1.0e-4}}", "code");
    place.write("run.yaml", &code);
    let eval = ["eval", "--config", "run.yaml"];
    let reason = "error: tasks.verifier: not one gold answer can be read, such as that of t";
    for arguments in [&plan[..], &RUN[..], &eval[..]] {
        let said = place.run(arguments);
        assert!(said.contains(reason), "{said}");
        assert!(said.ends_with("--- exit 2\n"), "{said}");
    }
    assert!(!place.path().join(".coharness").exists());
}

#[test]
fn what_stands_in_the_models_place_has_to_be_of_a_models_kind() {
    let place = place();
    place.write("notes.txt", "no model");
    place.write("set/notes.txt", "no model either");
    for name in ["notes.txt", "set"] {
        let model = format!("model.path={name}");
        let reason = format!("error: ./{name} is neither a .gguf file nor a directory with");
        for more in [&["--dry-run"][..], &[]] {
            let arguments = [&RUN[..], &["--set", &model], more].concat();
            let said = place.run(&arguments);
            assert!(said.contains(&reason), "{said}");
            assert!(said.ends_with("--- exit 3\n"), "{said}");
        }
    }
}
