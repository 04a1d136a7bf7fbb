//! `coharness gate`: what the gate accepts and what that costs, by simulation.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{print, table};
use crate::config::{ConfigError, GateConfig, GateMode};
use crate::error::RunError;
use crate::gate::simulate::{Cell, Rates, RunCell, Scene, cell, run};

/// Decisions for each effect and mode.
const DECISIONS: u32 = 10_000;
/// Runs, where runs are simulated.
const RUNS: u32 = 500;

/// Questions about the gate.
#[derive(Debug, Subcommand)]
pub(crate) enum GateCommand {
    /// Simulate decisions on patches of known effect: how often each mode accepts them, and what it
    /// spends.
    Simulate(SimulateArgs),
}

/// Simulate decisions with the code that a run decides with.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Decisions simulated for each effect and mode, 10000 without this; with --proposals, runs, 500
    /// without this.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    decisions: Option<u32>,
    /// Where everything random starts from.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// What the patch adds to each problem's success rate, which is cut off at 0 and 1.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        allow_negative_numbers = true,
        default_values_t = [-0.05, 0.0, 0.05, 0.1, 0.2, 0.4]
    )]
    effects: Vec<f64>,
    /// Problems of each side: V_in and V_out are filled by one earlier rollout of the incumbent.
    #[arg(long, value_name = "N", default_value_t = GateConfig::default().tasks)]
    tasks: usize,
    /// Samples of each problem at most, in mode sequential.
    #[arg(long, value_name = "N", default_value_t = GateConfig::default().max_samples)]
    max_samples: usize,
    /// Shapes of the Beta distribution of success rates.
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1, default_values_t = [0.8, 0.8])]
    spread: Vec<f64>,
    /// One success rate for all problems instead.
    #[arg(long, value_name = "P", conflicts_with = "spread")]
    rate: Option<f64>,
    /// Only these modes.
    #[arg(long, value_name = "MODE", value_delimiter = ',', value_enum)]
    mode: Vec<GateMode>,
    /// Level of a decision in mode sequential; with --proposals, the run's false discovery rate.
    #[arg(long, value_name = "P", default_value_t = GateConfig::default().false_discovery_rate)]
    level: f64,
    /// Simulate whole runs in mode sequential, with this many proposals each.
    #[arg(long, value_name = "N", conflicts_with_all = ["effects", "mode"])]
    proposals: Option<u32>,
    /// Proposals of a run that have an effect, anywhere in it.
    #[arg(long, value_name = "N", default_value_t = 20, requires = "proposals")]
    real: u32,
    /// Their effect.
    #[arg(long, value_name = "E", default_value_t = 0.2, requires = "proposals")]
    effect: f64,
    /// As JSON: for each mode a list of {effect, accepted, rejected, inconclusive, rollouts}.
    #[arg(long)]
    json: bool,
}

pub(crate) fn gate(command: GateCommand) -> Result<ExitCode, RunError> {
    match command {
        GateCommand::Simulate(args) => simulate(&args),
    }
}

fn simulate(args: &SimulateArgs) -> Result<ExitCode, RunError> {
    let scene = scene(args)?;
    if let Some(proposals) = args.proposals {
        let runs = args.decisions.unwrap_or(RUNS);
        let result = run(&scene, proposals, args.real, args.effect, runs);
        print(&if args.json {
            serde_json::to_string_pretty(&result).unwrap_or_default()
        } else {
            describe_run(&result)
        });
        return Ok(ExitCode::SUCCESS);
    }
    let decisions = args.decisions.unwrap_or(DECISIONS);
    let all = GateMode::ALL;
    let modes = all
        .into_iter()
        .filter(|mode| args.mode.is_empty() || args.mode.contains(mode));
    let cells: Vec<(GateMode, Vec<Cell>)> = modes
        .map(|mode| {
            let mut scene = scene;
            scene.gate.mode = mode;
            let cells = args.effects.iter();
            let cells = cells.map(|effect| cell(&scene, *effect, args.level, decisions));
            (mode, cells.collect())
        })
        .collect();
    if args.json {
        let by_name: BTreeMap<&str, &Vec<Cell>> = cells
            .iter()
            .map(|(mode, cells)| (mode.name(), cells))
            .collect();
        print(&serde_json::to_string_pretty(&by_name).unwrap_or_default());
    } else {
        print(&overview(&scene, decisions, &cells));
    }
    Ok(ExitCode::SUCCESS)
}

/// The settings, checked.
fn scene(args: &SimulateArgs) -> Result<Scene, RunError> {
    let fail = |field: &'static str, reason: &str| {
        RunError::from(ConfigError::Invalid {
            path: "coharness gate simulate".into(),
            field,
            reason: reason.into(),
        })
    };
    let gate = GateConfig {
        mode: GateMode::Sequential,
        tasks: args.tasks,
        max_samples: args.max_samples,
        false_discovery_rate: args.level,
        ..GateConfig::default()
    };
    gate.check().map_err(|(field, reason)| match field {
        "gate.tasks" => fail("--tasks", reason),
        "gate.max_samples" => fail("--max-samples", reason),
        _ => fail("--level", reason),
    })?;
    let is_effect = |effect: &f64| (-1.0..=1.0).contains(effect);
    if !args.effects.iter().all(is_effect) || !is_effect(&args.effect) {
        return Err(fail("--effects", "an effect lies between -1 and 1"));
    }
    let rates = match (args.rate, args.spread.as_slice()) {
        (Some(rate), _) if (0.0..=1.0).contains(&rate) => Rates::Same(rate),
        (Some(_), _) => return Err(fail("--rate", "a success rate lies between 0 and 1")),
        (None, &[a, b]) if a > 0.0 && b > 0.0 && a.is_finite() && b.is_finite() => {
            Rates::Beta(a, b)
        }
        (None, _) => {
            return Err(fail(
                "--spread",
                "expected two shapes above 0, as in 0.8,0.8",
            ));
        }
    };
    Ok(Scene {
        gate,
        rates,
        seed: args.seed,
    })
}

fn overview(scene: &Scene, decisions: u32, cells: &[(GateMode, Vec<Cell>)]) -> String {
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    let mut rows = Vec::new();
    for (mode, cells) in cells {
        for cell in cells {
            rows.push(vec![
                mode.name().to_owned(),
                format!("{:+.0} points", 100.0 * cell.effect),
                percent(cell.accepted),
                percent(cell.rejected),
                percent(cell.inconclusive),
                format!("{:.0}", cell.rollouts),
            ]);
        }
    }
    let header = [
        "mode",
        "effect",
        "accepted",
        "rejected",
        "inconclusive",
        "rollouts",
    ];
    let rates = match scene.rates {
        Rates::Same(rate) => format!("success rate {rate}"),
        Rates::Beta(a, b) => format!("success rates from Beta({a}, {b})"),
    };
    format!(
        "{}\n\n{decisions} decisions a row; {} problems a side, {rates}; mode sequential: at most {} \
         samples, level {}",
        table::rows(&header, rows),
        scene.gate.tasks,
        scene.gate.max_samples,
        scene.gate.false_discovery_rate
    )
}

fn describe_run(result: &RunCell) -> String {
    let RunCell {
        runs,
        proposals,
        real,
        effect,
        false_discovery_rate,
        found,
        rollouts,
    } = result;
    format!(
        "{runs} runs of {proposals} proposals, {real} of them real ({:+.0} points):\n  \
         false discoveries   {:.2}% of the accepted, on average\n  \
         found               {:.1}% of the real ones\n  \
         rollouts            {rollouts:.0} a proposal",
        100.0 * effect,
        100.0 * false_discovery_rate,
        100.0 * found
    )
}
