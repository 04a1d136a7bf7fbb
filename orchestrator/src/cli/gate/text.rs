//! What simulations came to, as text for a person.

use super::settings::problems;
use super::{Mode, SimulateArgs};
use crate::cli::table;
use crate::counted::counted;
use crate::gate::simulate::{Cell, Rates, RunCell, Scene};

/// Decisions, a row for each mode and effect.
pub(super) fn overview(
    args: &SimulateArgs,
    scene: &Scene,
    decisions: u32,
    cells: &[(Mode, Vec<Cell>)],
) -> String {
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    let points = |effect: f64| match args.effect_out {
        None => format!("{:+.0} points", 100.0 * effect),
        Some(out) => format!("in {:+.0}, out {:+.0} points", 100.0 * effect, 100.0 * out),
    };
    let mut rows = Vec::new();
    for (mode, cells) in cells {
        for cell in cells {
            rows.push(vec![
                mode.name().to_owned(),
                points(cell.effect),
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
    let luck = match scene.alike {
        alike if alike > 0.0 => format!(", the same luck for both arms in {}", percent(alike)),
        _ => String::new(),
    };
    let what = match args.candidates {
        1 => counted(decisions, "decision"),
        several => format!("{} of {several} candidates", counted(decisions, "cycle")),
    };
    let unclear = match scene.undecided {
        share if share > 0.0 => format!(", {} of the rollouts undecided", percent(share)),
        _ => String::new(),
    };
    let decoding = if args.greedy { ", greedy decoding" } else { "" };
    let mut text = format!(
        "{}\n\n{what} a row; {rates}{luck}{unclear}{decoding}",
        table::rows(&header, rows, None),
    );
    let (samples, passes) = match args.greedy {
        true => (1, 1),
        false => (scene.gate.max_samples, args.passes),
    };
    let (samples, passes) = (counted(samples, "sample"), counted(passes, "pass"));
    let (margin, level) = (
        counted(args.margin, "point"),
        scene.gate.false_discovery_rate,
    );
    let sides = match args.pool {
        None => format!("{} problems a side", args.tasks),
        Some(pool) => format!(
            "{pool} problems on both sides, at most {} of each at a time",
            args.tasks
        ),
    };
    for (mode, _) in cells {
        let problems = problems(args, *mode);
        let settings = match mode {
            Mode::Paper | Mode::Confirmed => sides.clone(),
            Mode::Sequential => format!("{sides}, at most {samples}, level {level}"),
            Mode::Removal => format!(
                "{problems} problems, at most {samples}, a margin of {margin}, level {level}"
            ),
            Mode::Retention => format!(
                "{problems} problems, at most {passes}; accepted where no more than {margin} seem lost, \
                 rejected where more are shown to be"
            ),
            Mode::Reference => format!(
                "{problems} problems, at most {passes}; accepted where nothing seems lost, rejected where a loss \
                 is shown"
            ),
        };
        text.push_str(&format!("\n{}: {settings}", mode.name()));
    }
    text
}

/// Whole runs.
pub(super) fn describe_run(result: &RunCell) -> String {
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
        "{} of {}, {real} of them real ({:+.0} points):\n  \
         false discoveries   {:.2}% of the accepted, on average\n  \
         found               {:.1}% of the real ones\n  \
         rollouts            {rollouts:.0} a proposal",
        counted(runs, "run"),
        counted(proposals, "proposal"),
        100.0 * effect,
        100.0 * false_discovery_rate,
        100.0 * found
    )
}
