//! `coharness status`: where runs stand.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;

use super::{name_of, run_directories};
use crate::budget::{Spent, Terms};
use crate::cli::{print, say, table};
use crate::clock::unix_seconds;
use crate::error::{RunError, told};
use crate::report::{Report, wall_seconds};
use crate::signs::HEARTBEAT;
use crate::store::{SessionRow, Store, StoreError};

/// Show where runs stand.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Columns of `status`.
const STATUS: [&str; 7] = [
    "run", "state", "rounds", "patches", "pass@1", "rollouts", "time",
];

pub(crate) async fn status(root: &Path, args: StatusArgs) -> Result<ExitCode, RunError> {
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    let mut json = Vec::new();
    let mut is_any_stopped = false;
    for directory in run_directories(root)? {
        let Look {
            report,
            sessions,
            terms,
            spent,
        } = match read_run(&directory).await {
            Ok(read) => read,
            // One that is damaged, or of a later version, hides nothing of the others.
            Err(error) => {
                let (name, error) = (name_of(&directory), told(&error));
                say(&format!("warning: {name} can't be read: {error}"));
                json.push(serde_json::json!({
                    "run": name,
                    "state": "unreadable",
                    "error": error,
                }));
                let mut row = vec![name, "unreadable".to_owned()];
                row.resize(STATUS.len(), "-".to_owned());
                rows.push(row);
                continue;
            }
        };
        let (state, note) = state(&report, &sessions, &directory);
        is_any_stopped |= state == "stopped";
        let patches = report.patches;
        let last = report
            .test
            .rounds
            .last()
            .map(|r| r.pass_at_1)
            .or(report.test.baseline.map(|b| b.pass_at_1));
        rows.push(vec![
            name_of(&directory),
            state.to_owned(),
            format!("{}", report.test.rounds.len()),
            format!("{} of {}", patches.accepted, patches.decided()),
            last.map_or_else(|| "-".into(), |p| format!("{:.1}%", 100.0 * p)),
            report.rollouts.to_string(),
            table::duration(wall_seconds(&sessions)),
        ]);
        let mut value = serde_json::to_value(&report).unwrap_or_default();
        value["state"] = state.into();
        value["note"] = note.clone().into();
        value["budget"] = terms.to_json(&spent);
        json.push(value);
        let used = terms.outline(&spent).map(|used| format!("{used} spent"));
        for line in [note, used].into_iter().flatten() {
            notes.push(format!("{}: {line}", name_of(&directory)));
        }
    }
    if args.json {
        print(&serde_json::to_string_pretty(&json).unwrap_or_default());
    } else if rows.is_empty() {
        say(&format!(
            "no runs below {}; start one with `coharness run --config quickstart.yaml`",
            root.display()
        ));
    } else {
        print(&table::rows(&STATUS, rows, Some("run")));
        notes.iter().for_each(|note| print(&table::sentences(note)));
        if is_any_stopped {
            say("hint: `coharness resume RUN` goes on with a stopped one.");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `new`, `finished`, `running`, `waiting` (for a server, say), `stopped` (its process is gone), or `stale`
/// for a process that holds the run but gives no sign of life; and what it waits for, or why it stopped.
fn state(
    report: &Report,
    sessions: &[SessionRow],
    directory: &Path,
) -> (&'static str, Option<String>) {
    let Some(last) = sessions.last() else {
        return ("new", None);
    };
    // A process that runs holds the lock, whatever its last sign of life says.
    let is_locked = std::fs::File::open(directory.join("lock"))
        .is_ok_and(|file| matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock)));
    if report.is_finished {
        return ("finished", None);
    }
    if !is_locked {
        let lost = "its process ended without a word: it was killed, there was no room, or the machine went down";
        let note = last.note.clone();
        return match last.ended_at {
            Some(_) => ("stopped", note),
            None => ("stopped", Some(lost.to_owned())),
        };
    }
    // One that is just starting has not begun a stretch of its own.
    if last.ended_at.is_some() {
        return ("running", None);
    }
    let silence = unix_seconds() - last.seen_at;
    if silence > 12 * i64::try_from(HEARTBEAT.as_secs()).unwrap_or(5) {
        let silence = table::duration(silence);
        return ("stale", Some(format!("no sign of life for {silence}")));
    }
    match &last.note {
        Some(note) => ("waiting", Some(note.clone())),
        None => ("running", None),
    }
}

/// Everything that `status` tells of a run.
struct Look {
    report: Report,
    sessions: Vec<SessionRow>,
    terms: Terms,
    spent: Spent,
}

impl Look {
    async fn at(store: &Store) -> Result<Self, StoreError> {
        let run = store.run().await?;
        Ok(Self {
            report: Report::read(store).await?,
            sessions: store.sessions().await?,
            terms: run.as_ref().map(Terms::saved).unwrap_or_default(),
            spent: Spent::read(store).await?,
        })
    }
}

async fn read_run(directory: &Path) -> Result<Look, StoreError> {
    let store = Store::look_at(directory).await?;
    let look = Look::at(&store).await;
    store.close().await;
    look
}
