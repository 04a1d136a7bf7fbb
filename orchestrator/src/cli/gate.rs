//! `coharness gate`: what the gate accepts and what that costs, by simulation.

mod settings;
mod text;

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use self::settings::{case, check_runs, modes, real, scene};
use self::text::{describe_run, overview};
use super::print;
use crate::config::{GateConfig, GateMode};
use crate::error::RunError;
use crate::gate::simulate::{Cell, cell, run};

/// Decisions for each effect and mode.
const DECISIONS: u32 = 10_000;
/// Runs, where runs are simulated.
const RUNS: u32 = 500;
/// Problems of a retention suite.
const SUITE: usize = 100;

/// What is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Patches: δ_in > 0 and δ_out ≥ 0 on fresh paired rollouts, once.
    Paper,
    /// Patches: the same, and again on other tasks with other seeds.
    Confirmed,
    /// Patches: the same, and an e-value for benefit that holds against many looks and many candidates.
    Sequential,
    /// Removals of patches: accepted if less than the margin is shown to be lost.
    Removal,
    /// Retention suites: rejected if more than the margin is shown to be lost.
    Retention,
    /// The head beside a reference: rejected if anything is shown to be lost.
    Reference,
}

impl Mode {
    const ALL: [Self; 6] = [
        Self::Paper,
        Self::Confirmed,
        Self::Sequential,
        Self::Removal,
        Self::Retention,
        Self::Reference,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Paper | Self::Confirmed | Self::Sequential => self.of_gate().name(),
            Self::Removal => "removal",
            Self::Retention => "retention",
            Self::Reference => "reference",
        }
    }

    /// The gate's, where it decides on patches.
    fn of_gate(self) -> GateMode {
        match self {
            Self::Paper => GateMode::Paper,
            Self::Confirmed => GateMode::Confirmed,
            _ => GateMode::Sequential,
        }
    }

    /// Whether it tells V_in from V_out.
    fn has_sides(self) -> bool {
        matches!(self, Self::Paper | Self::Confirmed | Self::Sequential)
    }

    /// Whether candidates compete in it.
    fn has_candidates(self) -> bool {
        !matches!(self, Self::Retention | Self::Reference)
    }

    /// Effects that tell something of it.
    fn effects(self) -> &'static [f64] {
        match self {
            Self::Paper | Self::Confirmed | Self::Sequential => &[-0.05, 0.0, 0.05, 0.1, 0.2, 0.4],
            Self::Removal => &[-0.2, -0.1, -0.05, 0.0, 0.05],
            Self::Retention | Self::Reference => &[-0.3, -0.2, -0.15, -0.1, -0.05, 0.0],
        }
    }
}

/// Questions about the gate.
#[derive(Debug, Subcommand)]
pub(crate) enum GateCommand {
    /// Simulate decisions on changes of known effect, such as patches: how often each mode accepts them,
    /// and what it spends.
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
    /// What the change adds to each problem's success rate, which is cut off at 0 and 1. Without this,
    /// -0.05,0,0.05,0.1,0.2,0.4 for patches, -0.2,-0.1,-0.05,0,0.05 for removals, and
    /// -0.3,-0.2,-0.15,-0.1,-0.05,0 for retention and reference.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    effects: Vec<f64>,
    /// What it adds to each problem of V_out where that is another effect than on V_in, in modes paper,
    /// confirmed and sequential. V_out's are the problems that the earlier rollout of the incumbent solved.
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    effect_out: Option<f64>,
    /// Problems of each side: V_in and V_out are filled by one earlier rollout of the incumbent.
    #[arg(long, value_name = "N", default_value_t = GateConfig::default().tasks)]
    tasks: usize,
    /// Gate problems in all, of which the earlier rollout makes V_in and V_out, however large these become;
    /// a stage or look takes at most --tasks of each. In modes paper, confirmed and sequential, and with
    /// --proposals.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pool: Option<u32>,
    /// Problems of modes removal, retention and reference, which are all looked at alike; without this,
    /// those of both sides, and 100 of a retention suite.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    problems: Option<u32>,
    /// Samples of each problem at most, in modes sequential and removal.
    #[arg(long, value_name = "N", default_value_t = GateConfig::default().max_samples)]
    max_samples: usize,
    /// Passes over the problems at most, in modes retention and reference.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    passes: u32,
    /// Points that a removal must be shown not to lose, or that a retention suite may lose.
    #[arg(long, value_name = "POINTS", default_value_t = GateConfig::default().retest_margin_points)]
    margin: f64,
    /// Retention suites, or references, that share the level.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    comparisons: u32,
    /// Greedy decoding, in all modes: a problem has one rollout under each arm, which solves it with its
    /// success rate; looks end when the problems do, and there is one pass. V_in and V_out are told apart by a
    /// sampled rollout all the same.
    #[arg(long)]
    greedy: bool,
    /// Candidates of a cycle, all of the same effect, beside one arm of the incumbent, in modes paper,
    /// confirmed, sequential and removal. With several a row counts cycles: accepted where one candidate
    /// is, rejected where all are. Each is decided at --level.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    candidates: u32,
    /// Share of the rollouts that the verifier leaves undecided, under each arm and in all modes; with --pool,
    /// of the earlier rollouts too.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    undecided: f64,
    /// Share of the pairs whose arms have the same luck, as under common seeds where a change doesn't reach.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    alike: f64,
    /// Shapes of the Beta distribution of success rates.
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        num_args = 1,
        default_value = "0.8,0.8"
    )]
    spread: Vec<f64>,
    /// One success rate for all problems instead.
    #[arg(long, value_name = "P", conflicts_with = "spread")]
    rate: Option<f64>,
    /// Only these modes.
    #[arg(long, value_name = "MODE", value_delimiter = ',', value_enum)]
    mode: Vec<Mode>,
    /// Level of a decision in modes sequential and removal; with --proposals, the run's false discovery rate.
    #[arg(long, value_name = "P", default_value_t = GateConfig::default().false_discovery_rate)]
    level: f64,
    /// Simulate whole runs in mode sequential, with this many proposals each.
    #[arg(long, value_name = "N", conflicts_with_all = ["effects", "mode"])]
    proposals: Option<u32>,
    /// Proposals of a run that have an effect, anywhere in it [default: one in ten].
    #[arg(long, value_name = "N", requires = "proposals")]
    real: Option<u32>,
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
        check_runs(args, proposals)?;
        let runs = args.decisions.unwrap_or(RUNS);
        let result = run(&scene, proposals, real(args, proposals), args.effect, runs);
        print(&if args.json {
            serde_json::to_string_pretty(&result).unwrap_or_default()
        } else {
            describe_run(&result)
        });
        return Ok(ExitCode::SUCCESS);
    }
    let decisions = args.decisions.unwrap_or(DECISIONS);
    let cells: Vec<(Mode, Vec<Cell>)> = modes(args)?
        .into_iter()
        .map(|mode| {
            let mut scene = scene;
            scene.gate.mode = mode.of_gate();
            let case = case(args, mode);
            let effects = match args.effects.as_slice() {
                [] => mode.effects(),
                chosen => chosen,
            };
            let cells = effects.iter();
            let cells = cells.map(|effect| cell(&scene, case, *effect, decisions));
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
        print(&overview(args, &scene, decisions, &cells));
    }
    Ok(ExitCode::SUCCESS)
}
