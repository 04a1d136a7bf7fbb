//! What a harness's folder may hold, and what is said of one that can't be used.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use registry::{Registry, Rejection};
use serde_json::json;

use crate::scene::earlier_decision;
use crate::server::{Answer, config, serve, serve_all};
use crate::{CONFIG, Place, tasks, write_harness};

const PLAN: [&str; 4] = ["run", "--config", "run.yaml", "--dry-run"];
const RUN: &str = ".coharness/runs/small-seed0";
const SYSTEM: &str = "prompts/system.md";

/// A place with a harness in the folder `h`, which the configuration names.
fn place() -> Place {
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(8));
    place.write("model.gguf", "not read by a plan");
    place.write(
        "run.yaml",
        &CONFIG.replace("harness: naive", "harness: h\ngate: {mode: confirmed}"),
    );
    write_harness(&place, "h", str::to_owned);
    place
}

/// A file or folder of the harness.
fn inside(place: &Place, name: &str) -> PathBuf {
    place.path().join("h").join(name)
}

/// Why the harness is refused, after its folder's name.
fn refused(place: &Place) -> String {
    let said = place.run(&PLAN);
    let reason = said
        .strip_prefix("--- stderr\nerror: harness: ./h: ")
        .and_then(|rest| rest.strip_suffix("\n--- exit 2\n"));
    reason.unwrap_or_else(|| panic!("{said}")).to_owned()
}

/// The plan's line on the harness.
fn planned(place: &Place) -> String {
    let said = place.run(&PLAN);
    assert!(said.ends_with("--- stderr\n--- exit 0\n"), "{said}");
    let line = said.lines().find(|line| line.starts_with("harness "));
    line.unwrap_or_else(|| panic!("{said}")).to_owned()
}

fn pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo").success());
}

#[test]
fn what_has_no_place_in_a_harness_is_named_unread() {
    type Make = fn(&Path);
    let stray: [(&str, Make, &str); 5] = [
        (
            ".system.md.swp",
            |at| fs::write(at, b"\x80").expect("a file"),
            "file",
        ),
        ("tools/pipe", pipe, "file"),
        (
            "old.md",
            |at| symlink("nowhere", at).expect("a link"),
            "file",
        ),
        ("loop", |at| symlink("..", at).expect("a link"), "folder"),
        (".git", |at| fs::create_dir(at).expect("a folder"), "folder"),
    ];
    for (name, make, kind) in stray {
        let place = place();
        make(&inside(&place, name));
        assert_eq!(
            refused(&place),
            format!("{name} isn't part of a harness: no {kind} of this name is read")
        );
    }
    let place = place();
    let odd = place.path().join("h").join(OsStr::from_bytes(b"note\xff"));
    fs::write(odd, "x").expect("a file");
    let reason = refused(&place);
    assert!(
        reason.ends_with(" isn't part of a harness: its name isn't UTF-8"),
        "{reason}"
    );
}

#[test]
fn a_file_with_a_place_that_cannot_be_read_is_named_with_the_reason() {
    let name = "prompts/system.md";
    let place = place();
    let file = inside(&place, name);
    fs::write(&file, b"Solve it.\nBy \x80.\n").expect("a file");
    assert_eq!(refused(&place), format!("{name} isn't UTF-8, line 2"));

    fs::remove_file(&file).expect("a file");
    symlink("nowhere", &file).expect("a link");
    assert_eq!(
        refused(&place),
        format!("cannot read {name}: No such file or directory (os error 2)")
    );

    fs::remove_file(&file).expect("a link");
    pipe(&file);
    assert_eq!(refused(&place), format!("{name} isn't a regular file"));
}

#[test]
fn a_tool_without_room_for_an_interpreter_is_refused_before_anything_is_made() {
    let place = place();
    write_harness(&place, "h", |text| {
        text.replace("memory_mib: 512", "memory_mib: 32")
    });
    let reason = "error: harness: ./h: tools/python.yaml: limits.memory_mib: memory limit of 32 MiB is below \
                  the interpreter's 64 MiB\n";
    for arguments in [&PLAN[..], &PLAN[..3]] {
        let said = place.run(arguments);
        assert!(said.contains(reason), "{said}");
        assert!(said.ends_with("--- exit 2\n"), "{said}");
    }
    assert!(!place.path().join(".coharness").exists());
}

/// A place whose run ends before its first rollout.
fn in_vain() -> Place {
    let url = serve(|_| Answer::Status(401, ""));
    let place = place();
    let faults = "faults: {refusals: 1}\n";
    let config = config(&url, "{evolve: 2, gate: 4, test: 2}", faults);
    place.write("run.yaml", &config.replace("harness: naive", "harness: h"));
    place
}

/// Gives the run's command with this system prompt.
fn begin(place: &Place, text: &str) {
    place.write(&format!("h/{SYSTEM}"), text);
    let said = place.run(&PLAN[..3]);
    assert!(said.ends_with("--- exit 3\n"), "{said}");
}

#[test]
fn a_run_that_made_no_rollout_begins_with_the_harness_as_it_is_mended() {
    let place = in_vain();
    let show = ["show", "v1", "--run", "small-seed0", "--file", SYSTEM];
    // What a kill has left of a registry on its way out.
    let left = place.write(&format!("{RUN}/registry.removed/HEAD"), "");
    for text in ["Solve it.", "Solve it by hand."] {
        begin(&place, text);
        assert_eq!(
            place.run(&show),
            format!("{text}\n--- stderr\n--- exit 0\n")
        );
    }
    assert!(!left.exists());
}

/// It is of a run whose journal is gone.
#[test]
fn a_registry_that_holds_a_candidate_is_not_begun_anew() {
    let place = in_vain();
    begin(&place, "Solve it.");
    let path = place.path().join(RUN).join("registry.git");
    let registry = Registry::open_or_create(&path).expect("a registry");
    let (_, harness) = registry.load("v1").expect("v1");
    let decision = earlier_decision("prompts.system", "Solve it twice.");
    let candidate = decision.patch.apply(&harness).expect("a harness");
    let rejection = Rejection {
        decision,
        verdict: "it gains nothing".into(),
        delta_in: None,
        delta_out: None,
    };
    let versions = registry.history().expect("versions");
    let kept = registry
        .record_rejected(&versions[0], &candidate, &rejection)
        .expect("a candidate");
    drop(registry);
    begin(&place, "Solve it by hand.");
    let registry = Registry::open_or_create(&path).expect("a registry");
    assert_eq!(registry.rejected().expect("candidates"), [kept]);
}

#[test]
fn a_built_in_harness_is_taken_by_its_name_under_any_policy_and_a_folder_goes_first() {
    let place = place();
    let url = serve_all(|_, _| Answer::Body(json!({"data": [{"id": "m"}]})));
    let served = config(&url, "{evolve: 2, gate: 4, test: 2}", "");
    // It is sampled, so that few gate problems are no reason for a warning.
    for config in [CONFIG, served.as_str()] {
        place.write(
            "run.yaml",
            &config.replace("harness: naive", "harness: reasoning"),
        );
        let line = planned(&place);
        assert!(
            line.starts_with("harness    reasoning (reasoning), id "),
            "{line}"
        );
    }
    write_harness(&place, "reasoning", |text| {
        text.replace("temperature: 0.0", "temperature: 0.5")
    });
    let line = planned(&place);
    assert!(
        line.starts_with("harness    reasoning (naive), id "),
        "{line}"
    );
}

#[test]
fn windows_line_ends_make_no_other_harness() {
    const SKILL: &str = "---\nname: units\ndescription: Units.\n---\n\nConvert first.\n";
    let place = place();
    let write = |change: fn(&str) -> String| {
        write_harness(&place, "h", change);
        place.write("h/skills/units/SKILL.md", &change(SKILL));
        planned(&place)
    };
    let unix = write(str::to_owned);
    assert_eq!(write(|text| text.replace('\n', "\r\n")), unix);
    // Alone, a carriage return is a control character like any other.
    place.write("h/prompts/system.md", "Solve it.\rBy hand.\n");
    let reason = refused(&place);
    assert!(
        reason.contains("control character U+000D in line 1"),
        "{reason}"
    );
}

#[test]
fn links_to_files_and_folders_with_a_place_are_followed() {
    let place = place();
    let plain = planned(&place);
    for name in ["prompts", "memory.yaml"] {
        let shared = place.path().join("shared").join(name);
        fs::create_dir_all(shared.parent().expect("a folder")).expect("a folder");
        fs::rename(inside(&place, name), &shared).expect("moved");
        symlink(&shared, inside(&place, name)).expect("a link");
    }
    assert_eq!(planned(&place), plain);
}
