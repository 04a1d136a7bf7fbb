//! The programs of the shared fault cases, where those are present.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sandbox::{Exit, SandboxPolicy};
use serde_json::Value;

use crate::support::{every_start, policy, with_children};

/// Rows by their ids, or nothing in a clone without them.
fn cases() -> Option<Vec<Value>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases/sandbox.jsonl");
    let Ok(text) = std::fs::read_to_string(&file) else {
        eprintln!("SKIPPED: {} is not there", file.display());
        return None;
    };
    let rows = text.lines().filter(|line| !line.trim().is_empty());
    Some(
        rows.map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    )
}

#[tokio::test]
async fn programs_that_hide_flood_and_multiply_are_stopped() {
    let (Some(cases), Some(test)) = (cases(), with_children().await) else {
        return;
    };
    let mut tried = 0;
    for case in &cases {
        let Some(code) = case["input"]["code"].as_str() else {
            continue;
        };
        tried += 1;
        // The box has no other program than the interpreter.
        let sleeper = "[__import__('sys').executable,'-S','-c','import time; time.sleep(600)']";
        let code = code.replace("['sleep','600']", sleeper);
        let name = &case["id"];
        let wall = Duration::from_secs(case["input"]["timeout_s"].as_u64().unwrap_or(2));
        let limit = case["input"]["limit_bytes"].as_u64();
        let policy = SandboxPolicy {
            wall,
            processes: case["input"]["limit"]
                .as_u64()
                .map_or(8, |limit| limit as u32),
            output_bytes: limit.map_or(1 << 20, |limit| limit as usize),
            ..policy()
        };
        let begun = Instant::now();
        // The limit holds for each box: another one works meanwhile.
        let (execution, other) = tokio::join!(test.run_under(&code, &policy), test.run("print(1)"));
        assert_eq!(other.stdout, "1\n", "{name}");
        assert!(
            begun.elapsed() < wall + Duration::from_secs(3),
            "{name}: {:?}",
            begun.elapsed()
        );
        match limit {
            Some(limit) => {
                assert!(execution.is_truncated, "{name}: {execution:?}");
                assert_eq!(execution.stdout.len() as u64, limit, "{name}");
            }
            None => assert_eq!(execution.exit, Exit::TimedOut, "{name}: {execution:?}"),
        }
        if code.contains("print('started'") {
            assert_eq!(execution.stdout, "started\n", "{name}");
        }
        test.assert_all_gone().await;
    }
    assert!(tried > 0);
}

#[tokio::test]
async fn programs_that_print_much_or_badly_end_by_themselves() {
    let Some(cases) = cases() else {
        return;
    };
    let policy = SandboxPolicy {
        output_bytes: 4 << 20,
        ..policy()
    };
    let boxes = every_start().await;
    let programs = cases
        .iter()
        .filter_map(|case| case["input"]["programs"].as_array());
    for code in programs.flatten().filter_map(Value::as_str) {
        for (test, start) in &boxes {
            let execution = test.run_under(code, &policy).await;
            let place = format!("{start:?} {:?} {code}", test.isolation());
            assert_eq!(execution.exit, Exit::Code(0), "{place}");
            assert!(!execution.is_truncated, "{place}");
            assert!(!execution.stdout.is_empty(), "{place}");
            if code.contains("ok") {
                assert_eq!(execution.stdout, "ok\u{fffd}\u{fffd}\0end", "{place}");
            }
        }
    }
}

#[tokio::test]
async fn reference_answers_are_in_no_folder_that_a_program_sees() {
    let Some(cases) = cases() else {
        return;
    };
    let folders = cases
        .iter()
        .filter_map(|case| case["input"]["sandbox_paths"].as_array());
    let mut folders: Vec<PathBuf> = folders
        .flatten()
        .filter_map(Value::as_str)
        .map(|folder| folder.replace("cwd", "."))
        .map(PathBuf::from)
        .collect();
    folders.push(PathBuf::from("/"));
    let needle = format!("planted-{}", std::process::id());
    let planted = tempfile::tempdir().unwrap();
    std::fs::write(planted.path().join(&needle), "").unwrap();
    for (test, _) in every_start().await {
        std::fs::write(test.root.path().join("scratch").join(&needle), "").unwrap();
        let code = format!(
            "import os\nfor top in {folders:?}:\n    for at, _, names in os.walk(top):\n        \
             if any(n == 'planted-' + '{}' for n in names): print(at)\n",
            std::process::id()
        );
        assert_eq!(test.output(&code).await, "", "{:?}", test.isolation());
    }
}
