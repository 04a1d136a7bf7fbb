//! Commands that look at a run, and the runs that there are to look at.

mod status;
mod versions;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

pub(super) use self::status::{StatusArgs, status};
pub(super) use self::versions::{
    DiffArgs, HistoryArgs, RollbackArgs, ShowArgs, diff, history, rollback, show,
};
use super::{RunName, print, table};
use crate::error::RunError;
use crate::evaluation;
use crate::report::Report;
use crate::store::Store;

/// Show what a run measured.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    run: RunName,
    /// As JSON; docs/report.md documents it.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn report(root: &Path, args: ReportArgs) -> Result<ExitCode, RunError> {
    let report = read_report(&find_run(root, &args.run)?).await?;
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
        print(&table::sentences(&table::report(report)));
    }
}

async fn read_report(directory: &Path) -> Result<Report, RunError> {
    let store = Store::look_at(directory).await?;
    let report = Report::read(&store).await?;
    let is_run = store.run().await?.is_some();
    store.close().await;
    // A run that was killed before it entered its name is none yet either, but lies elsewhere.
    let place = directory.parent().and_then(Path::file_name);
    if !is_run && place.is_some_and(|place| place == evaluation::FOLDER) {
        return Err(RunError::Evaluation {
            name: format!("{}/{}", evaluation::FOLDER, name_of(directory)),
        });
    }
    Ok(report)
}

/// Name of a run from its directory.
pub(crate) fn name_of(directory: &Path) -> String {
    directory
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// A version or a candidate as lists name it; `show` and the like take it so, too.
pub(crate) fn listed(name: &str) -> &str {
    name.strip_prefix("rejected/").unwrap_or(name)
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
