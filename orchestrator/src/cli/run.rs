//! `coharness run` and `coharness resume`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::progress::Progress;
use super::{RunName, environment, inspect, plan, say};
use crate::config::Loaded;
use crate::counted::counted;
use crate::error::RunError;
use crate::run::Saved;
use crate::stop::Stop;
use crate::workshop::{Environment, run_name};

/// Start a run, or go on with it if it was interrupted.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Configuration: a file, a name in configs/, or a built-in one (quickstart.yaml, aime.yaml).
    #[arg(long, value_name = "FILE")]
    config: String,
    /// Rounds of harness loop and model loop; overrides run.rounds.
    #[arg(long, value_name = "N", overrides_with = "rounds", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Override a field of the configuration, as in --set run.seed=7. May be repeated.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Check configuration, problems, the model's place and the server, and print the plan.
    #[arg(long)]
    dry_run: bool,
    /// Run model-written programs even where the sandbox doesn't hold (see doctor). Every trajectory
    /// is marked with the sandbox's level.
    #[arg(long)]
    allow_weak_sandbox: bool,
    /// Print the report as JSON at the end.
    #[arg(long, conflicts_with = "dry_run")]
    json: bool,
}

/// Go on with an interrupted run.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The run; without it, the one that was active last.
    #[arg(value_name = "RUN")]
    name: Option<String>,
    /// Run model-written programs even where the sandbox doesn't hold (see doctor). Every trajectory
    /// is marked with the sandbox's level.
    #[arg(long)]
    allow_weak_sandbox: bool,
    /// Print the report as JSON at the end.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(root: &Path, args: RunArgs) -> Result<ExitCode, RunError> {
    let loaded = Loaded::read(&args.config, &args.set, args.rounds)?;
    if args.dry_run {
        return plan::dry_run(&loaded, root).await;
    }
    start(loaded, root, args.json, args.allow_weak_sandbox).await
}

pub(crate) async fn resume(root: &Path, args: ResumeArgs) -> Result<ExitCode, RunError> {
    let directory = inspect::find_run(root, &RunName { run: args.name })?;
    let store = crate::store::Store::look_at(&directory).await?;
    let saved = Saved::read(&store).await?;
    store.close().await;
    let Some(Saved { config, base, .. }) = saved else {
        return Err(RunError::NoRun {
            name: inspect::name_of(&directory),
            root: root.to_owned(),
        });
    };
    start(
        Loaded {
            config,
            origin: "the run's own configuration".into(),
            base,
        },
        root,
        args.json,
        args.allow_weak_sandbox,
    )
    .await
}

async fn start(
    loaded: Loaded,
    root: &Path,
    is_json: bool,
    allow_weak_sandbox: bool,
) -> Result<ExitCode, RunError> {
    let environment = Environment {
        allow_weak_sandbox,
        ..environment::read()?
    };
    let name = run_name(&loaded.config.run);
    let rounds = counted(loaded.config.run.rounds, "round");
    say(&format!(
        "run {name} in {}: {rounds}; stop with Ctrl-C, go on with the same command",
        root.join(&name).display()
    ));
    let observer = Arc::new(Progress::new());
    let report = crate::run::run(loaded, root, environment, observer, watch_signals).await?;
    inspect::print_report(&report, is_json);
    Ok(ExitCode::SUCCESS)
}

/// The first SIGINT or SIGTERM stops in an orderly way, a second SIGINT at once.
pub(crate) fn watch_signals(stop: Arc<Stop>) {
    tokio::spawn(async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = (
            signal(SignalKind::interrupt()),
            signal(SignalKind::terminate()),
        ) else {
            say(
                "warning: signals can't be watched; the run can be killed at any time all the same",
            );
            return;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.signal();
        say(
            "stopping: finishing what is in flight (Ctrl-C again to stop at once; nothing finished is lost)",
        );
        interrupt.recv().await;
        std::process::exit(130);
    });
}
