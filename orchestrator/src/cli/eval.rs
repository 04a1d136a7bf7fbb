//! `coharness eval`: one harness and one set of weights on a file of problems.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::progress::Progress;
use super::{environment, print, run, table};
use crate::config::Loaded;
use crate::counted::counted;
use crate::error::RunError;
use crate::evaluation::{Evaluation, Request, evaluate};

/// Score a harness on a file of problems.
#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// Configuration: policy, model, budget and verifier are taken from it.
    #[arg(long, value_name = "FILE")]
    config: String,
    /// A harness folder, a built-in harness (naive, reasoning), or a version of the configuration's run,
    /// as in v3; without it, the configuration's starting harness.
    #[arg(long, value_name = "HARNESS")]
    harness: Option<String>,
    /// Problems as JSON lines; without it, the configuration's sealed test problems.
    #[arg(long, value_name = "FILE")]
    tasks: Option<PathBuf>,
    /// Rollouts of each problem.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    samples: u32,
    /// Trained weights of the configuration's run, an adapter or a full set, by the beginning of their id;
    /// without it, the base weights.
    #[arg(long, visible_alias = "weights", value_name = "ID")]
    adapter: Option<String>,
    /// Override a field of the configuration, as in --set run.seed=7. May be repeated.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Print the result as JSON; docs/report.md documents it.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn eval(root: &Path, args: EvalArgs) -> Result<ExitCode, RunError> {
    let loaded = Loaded::read(&args.config, &args.set, None)?;
    let request = Request {
        harness: args.harness,
        adapter: args.adapter,
        tasks: args.tasks,
        samples: args.samples,
    };
    let observer = Arc::new(Progress::new());
    let environment = environment::read()?;
    let evaluation = evaluate(
        loaded,
        root,
        environment,
        observer,
        run::watch_signals,
        &request,
    )
    .await?;
    if args.json {
        print(&serde_json::to_string_pretty(&evaluation).unwrap_or_default());
    } else {
        print(&text(&evaluation));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(evaluation: &Evaluation) -> String {
    let samples = match evaluation.samples {
        1 => "one rollout each".to_owned(),
        samples => format!("{samples} rollouts each"),
    };
    let id = evaluation.harness_id.get(..12).unwrap_or_default();
    let mut lines = vec![
        format!("harness    {} (id {id})", evaluation.harness),
        format!("policy     {}", evaluation.policy),
        format!(
            "problems   {} of {}, {samples}",
            evaluation.problems, evaluation.tasks
        ),
        String::new(),
    ];
    let percent = |share: f64| format!("{:.1}", 100.0 * share);
    let rows = evaluation.pass_at.iter().map(|pass| {
        let of = match pass.problems {
            all if all == evaluation.problems => String::new(),
            some => format!(" of {}", counted(some, "problem")),
        };
        vec![
            format!("pass@{}{of}", pass.k),
            format!("{}%", percent(pass.estimate)),
            format!("{} to {}", percent(pass.ci95[0]), percent(pass.ci95[1])),
        ]
    });
    lines.push(table::figures(
        &["", "estimate", "95% interval"],
        rows.collect(),
    ));
    lines.push(String::new());
    let cost = &evaluation.cost;
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of rollouts and tokens, for a mean"
    )]
    let mean = |total: u64| total as f64 / cost.rollouts.max(1) as f64;
    let about = if cost.is_estimated { "about " } else { "" };
    lines.push(format!(
        "tokens     {about}{} generated ({:.0} a rollout, {} of them reasoning), {} of prompts",
        cost.completion_tokens,
        mean(cost.completion_tokens),
        cost.reasoning_tokens,
        cost.prompt_tokens
    ));
    lines.push(format!(
        "time       {:.1} s; a rollout takes {:.2} s (median), 95% are within {:.2} s",
        cost.wall_seconds, cost.median_seconds, cost.p95_seconds
    ));
    lines.push(format!("exits      {}", counts(&evaluation.exits)));
    if evaluation.left_out > 0 {
        lines.push(format!(
            "left out   {}, since policy or sandbox failed each time; tried again by the same command",
            counted(evaluation.left_out, "rollout")
        ));
    }
    if !evaluation.events.is_empty() {
        lines.push(format!("events     {}", counts(&evaluation.events)));
    }
    lines.join("\n")
}

/// `name count`, the most frequent first.
fn counts(counts: &std::collections::BTreeMap<String, usize>) -> String {
    let mut counts: Vec<(&String, &usize)> = counts.iter().collect();
    counts.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let counts = counts.iter().map(|(name, count)| format!("{name} {count}"));
    counts.collect::<Vec<_>>().join(", ")
}
