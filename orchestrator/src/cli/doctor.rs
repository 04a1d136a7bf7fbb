//! `coharness doctor`: what this machine can do.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use sandbox::{HelperCommand, Sandbox, SandboxOptions, Status};

use super::{environment, print, say, table};
use crate::builtin::MODELS;
use crate::error::RunError;

/// Check this machine.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn doctor(args: DoctorArgs) -> Result<ExitCode, RunError> {
    let environment = environment::read()?;
    let helper = HelperCommand::new(environment.helper.clone());
    // A weak box is what this command is there to show.
    let options = SandboxOptions {
        allow_degraded: true,
        ..SandboxOptions::default()
    };
    let (python, scratch) = (environment.python.clone(), environment.scratch.clone());
    let sandbox = Sandbox::with_options(helper, python, scratch, options).await?;
    let enforcement = sandbox.enforcement();
    // The table shows the beginning of what was checked, --json all of it.
    if args.json {
        print(&serde_json::to_string_pretty(enforcement).unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    let rows = |statuses: &[(&str, &Status)]| -> Vec<Vec<String>> {
        let row = |(name, status): &(&str, &Status)| {
            let mark = if status.enforced {
                "enforced"
            } else {
                "not enforced"
            };
            let detail = table::shorten(&status.detail, 90);
            vec![(*name).to_owned(), mark.to_owned(), detail]
        };
        statuses.iter().map(row).collect()
    };
    let guarantees = rows(&enforcement.guarantees.all());
    let layers = rows(&enforcement.layers.all());
    print(&format!(
        "sandbox    {} ({})",
        enforcement.level(),
        environment.python.display()
    ));
    print(&table::rows(
        &["guarantee", "state", "checked by"],
        guarantees,
        Some("checked by"),
    ));
    print(&table::rows(
        &["layer", "state", "seen"],
        layers,
        Some("seen"),
    ));
    for known in MODELS {
        let path: PathBuf = environment.cache.join("models").join(known.file);
        let state = if path.is_file() {
            "present"
        } else {
            "absent: run scripts/fetch-model"
        };
        print(&format!(
            "model      {} {state} ({})",
            known.name,
            path.display()
        ));
    }
    let broken = enforcement.broken();
    if broken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    for line in broken {
        say(&format!("warning: {line}"));
    }
    Ok(ExitCode::from(3))
}
