//! Integration tests of the binary, one binary.

#![allow(clippy::print_stdout, reason = "tests say aloud what they skip")]

mod adapters;
mod ahead;
mod ahead_of_training;
mod by_hand;
mod cases;
mod code;
mod commands;
mod config;
mod counting;
mod critic;
mod critic_llama;
mod data;
mod decisions;
mod evaluation;
mod export;
mod faults;
mod full_disk;
mod full_training;
mod golds;
mod grammar;
mod local_policies;
mod matrix;
mod plan;
mod planted_faults;
mod rechecking;
mod reference;
mod removal;
mod retention;
mod scene;
mod screening;
mod serve_adapters;
mod serve_model;
mod server;
mod simulate;
mod skills;
mod starting_harness;
mod training_memory;
mod unattended;
mod way_back;
mod whole_run;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A place of its own for one test: no environment, no other runs, no other cache.
pub(crate) struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("directory"),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        std::fs::write(&path, text).expect("file");
        path
    }

    /// The binary in this place, with nothing of the caller's environment but `PATH`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coharness"));
        command
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("COHARNESS_CACHE", self.path().join("cache"));
        command
    }

    /// Stdout, stderr and exit code in one text, with this place's path taken out.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("the binary runs");
        self.transcript(&output)
    }

    pub(crate) fn transcript(&self, output: &Output) -> String {
        let text = |bytes: &[u8]| {
            let here = self.path().display().to_string();
            String::from_utf8_lossy(bytes).replace(&here, "[here]")
        };
        let code = output
            .status
            .code()
            .map_or("killed".into(), |c| c.to_string());
        format!(
            "{}--- stderr\n{}--- exit {code}\n",
            text(&output.stdout),
            text(&output.stderr)
        )
    }
}

/// A valid configuration; tests change lines of it.
pub(crate) const CONFIG: &str = "\
run: {name: small}
model: {path: model.gguf}
tasks:
  path: tasks.jsonl
  verifier: {numeric: {tolerance: 1.0e-4}}
  splits: {evolve: 2, gate: 4, test: 2}
harness: naive
budget: {tokens_per_problem: 64, seconds_per_problem: 60}
";

/// `count` distinct problems.
pub(crate) fn tasks(count: usize) -> String {
    (0..count)
        .map(|i| {
            format!(
                "{{\"id\":\"t{i}\",\"problem\":\"What is {i} + 1?\",\"answer\":\"{}\"}}\n",
                i + 1
            )
        })
        .collect()
}

/// Writes the plainest shipped harness to the folder `name` of a place, with `change` made to every file.
pub(crate) fn write_harness(place: &Place, name: &str, change: impl Fn(&str) -> String) {
    for (file, text) in harness::shipped::NAIVE.files {
        place.write(&format!("{name}/{file}"), &change(text));
    }
}

/// Takes out what the same run may differ in when it is made again: times, and what a cache had.
pub(crate) fn forget_times(report: &mut Value) {
    match report {
        Value::Object(fields) => {
            for name in ["wall_s", "seconds", "cached_tokens"] {
                fields.remove(name);
            }
            fields.values_mut().for_each(forget_times);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_times),
        _ => {}
    }
}

/// The run's history: trees and subjects, newest first.
pub(crate) fn subjects(place: &Place) -> String {
    let registry = ".coharness/runs/small-seed0/registry.git";
    let output = std::process::Command::new("git")
        .args(["--git-dir", registry, "log", "--format=%T %s", "main"])
        .current_dir(place.path())
        .output()
        .expect("git");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The real small model, where `scripts/test` put it.
pub(crate) fn real_model() -> Option<PathBuf> {
    let path = std::env::var_os("COHARNESS_TEST_MODEL").map(PathBuf::from)?;
    path.is_file().then_some(path)
}
