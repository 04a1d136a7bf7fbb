//! Commands on harness versions of a run: history, show, diff, rollback.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use registry::{Entry, Origin, Registry, RegistryError};

use super::{find_run, listed, name_of, read_report};
use crate::cli::{RunName, print, say, table};
use crate::clock::unix_seconds;
use crate::error::RunError;
use crate::report::PatchRow;
use crate::run::registry_path;
use crate::store::Store;

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
    #[arg(long, value_parser = filled)]
    reason: String,
    #[command(flatten)]
    run: RunName,
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
            listed(&entry.name.to_string()).to_owned(),
            entry.commit.short(),
            format!(
                "{} {} ({})",
                patch.dimension, patch.summary, rejection.verdict
            ),
            rejection.delta_in.as_ref().map(points).unwrap_or_default(),
            rejection.delta_out.as_ref().map(points).unwrap_or_default(),
        ]);
    }
    print(&table::listing(
        &["version", "commit", "change", "δ_in", "δ_out"],
        rows,
        Some("change"),
        &["commit"],
    ));
    for row in rollbacks
        .iter()
        .filter(|row| row.from.adapter != row.to.adapter)
    {
        let line = format!("round {}: {}", row.round, row.outline());
        print(&table::sentences(&line));
    }
    Ok(ExitCode::SUCCESS)
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
    let made = registry
        .rollback(version.name, &args.reason, seconds)
        .map_err(|error| match error {
            RegistryError::NothingChanged { .. } => RunError::Harness {
                path: PathBuf::from(&args.version),
                reason: error.to_string(),
            },
            other => other.into(),
        })?;
    say(&format!(
        "{} has the files of {}; nothing was deleted",
        made.name, version.name
    ));
    Ok(ExitCode::SUCCESS)
}

/// A text that says something.
fn filled(text: &str) -> Result<String, &'static str> {
    if text.chars().all(|c| c.is_whitespace() || c.is_control()) {
        return Err("it is empty");
    }
    Ok(text.to_owned())
}

fn open(root: &Path, run: &RunName) -> Result<Registry, RunError> {
    Ok(Registry::open_read_only(&registry_path(&find_run(
        root, run,
    )?))?)
}
