//! `coharness trajectories`: rollouts of a run, to be read by a person.

mod page;
mod versions;

use std::path::Path;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use rollout::trajectory::{ExitReason, Trajectory};

use self::page::Page;
use self::versions::Versions;
use super::paint::{ColorChoice, Paint, shown};
use super::{RunName, inspect, print, say, table};
use crate::config::Loaded;
use crate::error::RunError;
use crate::run::Saved;
use crate::splits;
use crate::store::{Store, TrajectoryFilter, TrajectoryRow};

/// Rollouts of a run.
#[derive(Debug, Args)]
pub(crate) struct TrajectoriesArgs {
    #[command(subcommand)]
    command: TrajectoriesCommand,
}

#[derive(Debug, Subcommand)]
enum TrajectoriesCommand {
    /// List rollouts.
    List(ListArgs),
    /// Show one rollout: what was said, called and printed, and how it was judged.
    Show(ShowArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    run: RunName,
    /// Only rollouts on problems of this split.
    #[arg(long, value_enum)]
    split: Option<SplitName>,
    /// Only rollouts first made in this round; 0 is the baseline, or an evaluation.
    #[arg(long, value_name = "N")]
    round: Option<u32>,
    /// Only rollouts with this outcome.
    #[arg(long, value_enum)]
    outcome: Option<Outcome>,
    /// Only rollouts that ended like this.
    #[arg(long, value_name = "REASON", value_parser = PossibleValuesParser::new(ExitReason::NAMES))]
    exit: Option<String>,
    /// Only rollouts on this problem.
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Only rollouts under this harness, as the list names it: v3, at whatever temperature, or the beginning of
    /// an id.
    #[arg(long, value_name = "VERSION")]
    harness: Option<String>,
    /// Most rollouts listed; 0 lists all.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// The beginning of a rollout's id.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    run: RunName,
    /// Show the conversation as the policy saw it at the end, examples included.
    #[arg(long)]
    messages: bool,
    /// When to use colours.
    #[arg(long, value_enum, default_value = "auto")]
    color: ColorChoice,
    /// As JSON: the whole record.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SplitName {
    Evolve,
    Gate,
    Test,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Outcome {
    /// The problem was solved.
    Correct,
    /// It wasn't.
    Wrong,
}

pub(crate) async fn trajectories(
    root: &Path,
    args: TrajectoriesArgs,
) -> Result<ExitCode, RunError> {
    match args.command {
        TrajectoriesCommand::List(args) => list(root, args).await,
        TrajectoriesCommand::Show(args) => show(root, args).await,
    }
}

async fn list(root: &Path, args: ListArgs) -> Result<ExitCode, RunError> {
    let directory = inspect::find_run(root, &args.run)?;
    let store = Store::look_at(&directory).await?;
    let versions = Versions::read(&directory, &store).await;
    let harnesses = match &args.harness {
        Some(name) => Some(versions.find(&directory, &store, name).await?),
        None => None,
    };
    let filter = TrajectoryFilter {
        split: args.split.map(|split| format!("{split:?}").to_lowercase()),
        round: args.round,
        correct: args.outcome.map(|outcome| outcome == Outcome::Correct),
        exit: args.exit,
        task: args.task,
        harnesses,
        id_prefix: None,
    };
    let mut rows = store.trajectories(&filter).await?;
    store.close().await;
    let total = rows.len();
    if args.limit > 0 {
        rows.truncate(args.limit);
    }
    if args.json {
        print(&serde_json::to_string_pretty(&rows).unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    if rows.is_empty() {
        say("no such rollouts");
        return Ok(ExitCode::SUCCESS);
    }
    let cells = rows.iter().map(|row| cells(row, &versions)).collect();
    let header = [
        "id", "round", "split", "harness", "weights", "problem", "outcome", "exit", "tokens",
        "seconds",
    ];
    print(&table::listing(
        &header,
        cells,
        Some("problem"),
        &["seconds", "tokens"],
    ));
    if rows.len() < total {
        say(&format!("{} of {total}; --limit 0 lists all", rows.len()));
    }
    Ok(ExitCode::SUCCESS)
}

fn cells(row: &TrajectoryRow, versions: &Versions) -> Vec<String> {
    let outcome = match (row.correct, row.exit.as_str()) {
        (true, _) => "correct",
        (false, "infrastructure") => "left out",
        (false, _) => "wrong",
    };
    vec![
        row.id.chars().take(12).collect(),
        row.round
            .map_or_else(|| "-".to_owned(), |round| round.to_string()),
        row.split.clone(),
        versions.name(&row.harness),
        weights(&row.policy),
        shown(&row.task),
        outcome.to_owned(),
        row.exit.clone(),
        row.completion_tokens.to_string(),
        format!("{:.1}", row.wall_ms as f64 / 1000.0),
    ]
}

/// `base`, or the beginning of the adapter's id; a server's adapter is its model.
fn weights(policy: &str) -> String {
    let adapter = policy.split_once('+').map(|(_, adapter)| adapter);
    let adapter = adapter.or_else(|| {
        let name = policy.strip_prefix("openai:")?.split('@').next()?;
        let is_id = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then_some(name)
    });
    adapter.map_or_else(|| "base".to_owned(), |id| id.chars().take(8).collect())
}

async fn show(root: &Path, args: ShowArgs) -> Result<ExitCode, RunError> {
    let directory = inspect::find_run(root, &args.run)?;
    let store = Store::look_at(&directory).await?;
    let filter = TrajectoryFilter {
        id_prefix: Some(args.id.to_lowercase()),
        ..TrajectoryFilter::default()
    };
    let fitting = store.trajectories(&filter).await?;
    let row = match &fitting[..] {
        [row] => row,
        [] => {
            let reason = format!(
                "no rollout of {} has an id that begins with {}",
                inspect::name_of(&directory),
                shown(&args.id)
            );
            return Err(RunError::NoTrajectory { reason });
        }
        several => {
            let ids: Vec<&str> = several
                .iter()
                .take(8)
                .filter_map(|row| row.id.get(..16))
                .collect();
            let reason = format!(
                "{} rollouts have an id that begins with {}: {}{}",
                several.len(),
                args.id,
                ids.join(", "),
                if several.len() > ids.len() {
                    ", …"
                } else {
                    ""
                }
            );
            return Err(RunError::NoTrajectory { reason });
        }
    };
    let Some(trajectory) = store.trajectory_of(&row.id).await? else {
        let reason = format!("rollout {} is gone", row.id);
        return Err(RunError::NoTrajectory { reason });
    };
    let gold = gold(&store, &trajectory).await;
    let versions = Versions::read(&directory, &store).await;
    store.close().await;
    if args.json {
        print(&serde_json::to_string_pretty(&trajectory).unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    let page = Page {
        paint: Paint::for_stdout(args.color),
        trajectory: &trajectory,
        row,
        harness: versions.name(&row.harness),
        gold,
    };
    print(&page.text(args.messages));
    Ok(ExitCode::SUCCESS)
}

/// What a rollout was judged by, with its name. The run's database has no right answers but in its problem
/// files, which may be gone or have others by now; an evaluation doesn't know its file. The rollout can be
/// read without.
async fn gold(store: &Store, trajectory: &Trajectory) -> Option<String> {
    let Saved { config, base, .. } = Saved::read(store).await.ok()??;
    let basis = store.basis(&trajectory.id).await.ok()??;
    let loaded = Loaded {
        config,
        origin: "the run's own configuration".into(),
        base,
    };
    let gold = splits::gold_of(&loaded, &trajectory.task_hash, &basis)?;
    let name = match basis.verifier.runs_programs() {
        true => "tests",
        false => "right answer",
    };
    Some(format!("{name} {}", table::shorten(&shown(&gold), 60)))
}
