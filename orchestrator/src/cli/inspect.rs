//! Commands that look at a run: status, report, history, show, diff, rollback.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use registry::{Entry, Origin, Registry};

use super::{RunName, print, say, table};
use crate::budget::{Spent, Terms};
use crate::clock::unix_seconds;
use crate::error::{RunError, told};
use crate::report::{PatchRow, Report, wall_seconds};
use crate::run::registry_path;
use crate::signs::HEARTBEAT;
use crate::store::{SessionRow, Store, StoreError};

/// Show where runs stand.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Show what a run measured.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    run: RunName,
    /// As JSON; docs/report.md documents it.
    #[arg(long)]
    json: bool,
}

/// List the harness versions of a run.
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    run: RunName,
    /// List rejected candidates too.
    #[arg(long)]
    rejected: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Show one harness version.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// v3, head, rejected/<run>/<round>-<n>, or at least four digits of a commit or harness id.
    #[arg(default_value = "head")]
    version: String,
    #[command(flatten)]
    run: RunName,
    /// Only this file of the harness, as in prompts/system.md.
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
}

/// Show which fields differ between two harness versions.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The older version.
    from: String,
    /// The newer version.
    #[arg(default_value = "head")]
    to: String,
    #[command(flatten)]
    run: RunName,
}

/// Make an earlier harness version current again.
#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    /// The version to go back to, as in v1.
    version: String,
    /// Why; it is kept in the history.
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    run: RunName,
}

/// Columns of `status`.
const STATUS: [&str; 7] = [
    "run",
    "state",
    "rounds",
    "patches accepted",
    "test pass@1",
    "rollouts",
    "running time",
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
            format!(
                "{} of {}",
                patches.accepted,
                patches.accepted + patches.rejected
            ),
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
        print(&table::rows(&STATUS, rows, None));
        notes.iter().for_each(|note| print(note));
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

pub(crate) async fn report(root: &Path, args: ReportArgs) -> Result<ExitCode, RunError> {
    let store = Store::look_at(&find_run(root, &args.run)?).await?;
    let report = Report::read(&store).await?;
    store.close().await;
    print_report(&report, args.json);
    if let Some(spending) = table::spending(&report).filter(|_| !args.json) {
        print(&format!("\n{spending}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// What a run measured.
pub(super) fn print_report(report: &Report, is_json: bool) {
    if is_json {
        print(&serde_json::to_string_pretty(report).unwrap_or_default());
    } else {
        print(&table::report(report));
    }
}

pub(crate) async fn history(root: &Path, args: HistoryArgs) -> Result<ExitCode, RunError> {
    let directory = find_run(root, &args.run)?;
    // Weights that were taken back leave no commit.
    let rollbacks = read_report(&directory).await?.rollbacks;
    let registry = Registry::open_read_only(&registry_path(&directory))?;
    let versions = registry.history()?;
    let rejected = if args.rejected {
        registry.rejected()?
    } else {
        Vec::new()
    };
    if args.json {
        let value = serde_json::json!({
            "versions": versions,
            "rejected": rejected,
            "rollbacks": rollbacks,
        });
        print(&serde_json::to_string_pretty(&value).unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    let points = |d: &registry::Delta| {
        if d.pairs == 0 {
            return "nothing to compare".to_owned();
        }
        format!(
            "{:+.1} [{:+.1}, {:+.1}]",
            100.0 * d.estimate,
            100.0 * d.low,
            100.0 * d.high
        )
    };
    let mut rows = Vec::new();
    for version in &versions {
        let (what, delta_in, delta_out) = match &version.origin {
            Origin::Initial(_) => (
                "the starting harness".to_owned(),
                String::new(),
                String::new(),
            ),
            Origin::Patch(acceptance) => {
                let patch = &acceptance.decision.patch;
                let what = format!("{} {}", patch.dimension, patch.summary);
                (
                    what,
                    points(&acceptance.delta_in),
                    points(&acceptance.delta_out),
                )
            }
            Origin::Rollback { to, reason } => (
                format!("rollback to {to}: {reason}"),
                String::new(),
                String::new(),
            ),
            Origin::Foreign { reason } => (
                format!("committed by hand: {reason}"),
                String::new(),
                String::new(),
            ),
        };
        rows.push(vec![
            version.name.to_string(),
            version.commit.short(),
            what,
            delta_in,
            delta_out,
        ]);
    }
    for entry in &rejected {
        let rejection = &entry.rejection;
        let patch = &rejection.decision.patch;
        rows.push(vec![
            entry.name.to_string(),
            entry.commit.short(),
            format!(
                "{} {} ({})",
                patch.dimension, patch.summary, rejection.verdict
            ),
            rejection.delta_in.as_ref().map(points).unwrap_or_default(),
            rejection.delta_out.as_ref().map(points).unwrap_or_default(),
        ]);
    }
    print(&table::rows(
        &["version", "commit", "change", "δ_in", "δ_out"],
        rows,
        Some(2),
    ));
    for row in rollbacks
        .iter()
        .filter(|row| row.from.adapter != row.to.adapter)
    {
        print(&format!("round {}: {}", row.round, row.outline()));
    }
    Ok(ExitCode::SUCCESS)
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

async fn read_report(directory: &Path) -> Result<Report, RunError> {
    let store = Store::look_at(directory).await?;
    let report = Report::read(&store).await?;
    store.close().await;
    Ok(report)
}

pub(crate) async fn show(root: &Path, args: ShowArgs) -> Result<ExitCode, RunError> {
    let directory = find_run(root, &args.run)?;
    let registry = Registry::open_read_only(&registry_path(&directory))?;
    let (entry, harness) = registry.load(&args.version)?;
    let files = harness::to_files(&harness);
    if let Some(wanted) = &args.file {
        let Some(text) = files.get(wanted) else {
            let known = files.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(RunError::Harness {
                path: PathBuf::from(wanted),
                reason: format!("no such file; there are: {known}"),
            });
        };
        print(text.trim_end_matches('\n'));
        return Ok(ExitCode::SUCCESS);
    }
    print(&describe(&entry));
    let report = read_report(&directory).await?;
    if let Some(row) = report.patch_decisions.iter().find(|row| is_of(row, &entry)) {
        print(&expectation(row));
    }
    let name = entry.to_string();
    if let Some(row) = report.rollbacks.iter().find(|r| r.undone.contains(&name)) {
        let value = serde_json::json!({ "taken_back": row });
        print(&harness::yaml::to_string(&value));
    }
    for (path, text) in files {
        print(&format!("── {path}\n{}", text.trim_end_matches('\n')));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a decision made this entry. A rollback to a version has a name of its own.
fn is_of(row: &PatchRow, entry: &Entry) -> bool {
    match entry {
        Entry::Version(version) => row.version.as_ref() == Some(&version.name.to_string()),
        Entry::Rejected(rejected) => {
            let decision = &rejected.rejection.decision;
            let ops = serde_json::to_value(&decision.patch.ops).unwrap_or_default();
            row.version.is_none()
                && row.round == decision.round
                && row.policy == decision.model.to_string()
                && row.ops == ops
        }
    }
}

/// What a patch promised and what came of it, as YAML.
fn expectation(row: &PatchRow) -> String {
    let value = serde_json::json!({
        "predicted": row.predicted,
        "promise": row.promise,
        "effect": row.effect,
        "foresight": row.foresight(),
    });
    harness::yaml::to_string(&value)
}

/// Where an entry came from, as YAML a person can read.
fn describe(entry: &Entry) -> String {
    let value = match entry {
        Entry::Version(version) => serde_json::to_value(version),
        Entry::Rejected(rejected) => serde_json::to_value(rejected),
    };
    let value = value.unwrap_or_default();
    harness::yaml::to_string(&value)
}

pub(crate) fn diff(root: &Path, args: DiffArgs) -> Result<ExitCode, RunError> {
    let registry = open(root, &args.run)?;
    let (_, from) = registry.load(&args.from)?;
    let (_, to) = registry.load(&args.to)?;
    let changes = harness::diff(&from, &to);
    if changes.is_empty() {
        say("no field differs");
    }
    for change in changes {
        print(&change.to_string());
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn rollback(root: &Path, args: RollbackArgs) -> Result<ExitCode, RunError> {
    let directory = find_run(root, &args.run)?;
    let store = Store::look_at(&directory).await?;
    let is_finished = store
        .run()
        .await?
        .is_some_and(|run| run.finished_at.is_some());
    store.close().await;
    if !is_finished {
        return Err(RunError::Unfinished {
            name: name_of(&directory),
        });
    }
    let registry = Registry::open(&registry_path(&directory))?;
    let entry = registry.find(&args.version)?;
    let Some(version) = entry.version() else {
        let reason = format!(
            "{} was rejected; only versions can be made current",
            args.version
        );
        return Err(RunError::Harness {
            path: PathBuf::from(&args.version),
            reason,
        });
    };
    let seconds = u64::try_from(unix_seconds()).unwrap_or(0);
    let made = registry.rollback(version.name, &args.reason, seconds)?;
    say(&format!(
        "{} has the files of {}; nothing was deleted",
        made.name, version.name
    ));
    Ok(ExitCode::SUCCESS)
}

fn open(root: &Path, run: &RunName) -> Result<Registry, RunError> {
    Ok(Registry::open_read_only(&registry_path(&find_run(
        root, run,
    )?))?)
}

/// Name of a run from its directory.
pub(crate) fn name_of(directory: &Path) -> String {
    directory
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The named run's directory, or that of the run active last.
pub(crate) fn find_run(root: &Path, run: &RunName) -> Result<PathBuf, RunError> {
    let runs = run_directories(root)?;
    let missing = |name: &str| RunError::NoRun {
        name: name.to_owned(),
        root: root.to_owned(),
    };
    match &run.run {
        None => runs.into_iter().next().ok_or_else(|| missing("at all")),
        Some(name) => {
            let exact = root.join(name);
            // An evaluation is found by its whole name.
            if runs.contains(&exact) || name.contains('/') && Store::exists(&exact) {
                return Ok(exact);
            }
            let mut found: Vec<PathBuf> = runs
                .into_iter()
                .filter(|r| name_of(r).starts_with(name.as_str()))
                .collect();
            if found.len() == 1 {
                Ok(found.remove(0))
            } else {
                Err(missing(name))
            }
        }
    }
}

/// Directories of runs, the one active last first.
fn run_directories(root: &Path) -> Result<Vec<PathBuf>, RunError> {
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(RunError::Io {
                path: root.to_owned(),
                source,
            });
        }
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry
            .map_err(|source| RunError::Io {
                path: root.to_owned(),
                source,
            })?
            .path();
        if Store::exists(&path) {
            let touched = ["lock", "run.db"]
                .iter()
                .filter_map(|name| path.join(name).metadata().and_then(|m| m.modified()).ok())
                .max();
            found.push((touched, path));
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    Ok(found.into_iter().map(|(_, path)| path).collect())
}
