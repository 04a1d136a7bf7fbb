//! What is simulated, from a command's arguments.

use super::{Mode, SUITE, SimulateArgs};
use crate::config::{ConfigError, GateConfig, GateMode};
use crate::error::RunError;
use crate::gate::loss::Tolerance;
use crate::gate::simulate::{Case, Rates, Scene};

/// The settings, checked.
pub(super) fn scene(args: &SimulateArgs) -> Result<Scene, RunError> {
    let gate = GateConfig {
        mode: GateMode::Sequential,
        tasks: args.tasks,
        max_samples: args.max_samples,
        false_discovery_rate: args.level,
        ..GateConfig::default()
    };
    check_margin(args)?;
    gate.check().map_err(|(field, reason)| match field {
        "gate.tasks" => impossible("--tasks", reason),
        "gate.max_samples" => impossible("--max-samples", reason),
        _ => impossible("--level", reason),
    })?;
    let is_effect = |effect: &f64| (-1.0..=1.0).contains(effect);
    if !args.effects.iter().all(is_effect) || !is_effect(&args.effect) {
        return Err(impossible("--effects", "an effect lies between -1 and 1"));
    }
    if !args.effect_out.iter().all(is_effect) {
        return Err(impossible(
            "--effect-out",
            "an effect lies between -1 and 1",
        ));
    }
    if !(0.0..=1.0).contains(&args.alike) {
        return Err(impossible("--alike", "a share lies between 0 and 1"));
    }
    if !(0.0..=1.0).contains(&args.undecided) {
        return Err(impossible("--undecided", "a share lies between 0 and 1"));
    }
    let rates = match (args.rate, args.spread.as_slice()) {
        (Some(rate), _) if (0.0..=1.0).contains(&rate) => Rates::Same(rate),
        (Some(_), _) => return Err(impossible("--rate", "a success rate lies between 0 and 1")),
        (None, &[a, b]) if a > 0.0 && b > 0.0 && a.is_finite() && b.is_finite() => {
            Rates::Beta(a, b)
        }
        (None, _) => {
            return Err(impossible(
                "--spread",
                "expected two shapes above 0, as in 0.8,0.8",
            ));
        }
    };
    Ok(Scene {
        gate,
        rates,
        pool: args.pool.map(|problems| problems as usize),
        is_greedy: args.greedy,
        undecided: args.undecided,
        alike: args.alike,
        seed: args.seed,
    })
}

/// Check the margin by what it is in the modes that are asked for.
fn check_margin(args: &SimulateArgs) -> Result<(), RunError> {
    let removals = GateConfig {
        retest_margin_points: args.margin,
        ..GateConfig::default()
    };
    let is_asked = |mode| args.mode.is_empty() || args.mode.contains(&mode);
    if let (true, Err((_, reason))) = (is_asked(Mode::Removal), removals.check()) {
        return Err(impossible("--margin", &format!("mode removal: {reason}")));
    }
    // As `retention.max_drop_points`.
    if !(0.0..=50.0).contains(&args.margin) {
        return Err(impossible("--margin", "must lie between 0 and 50"));
    }
    Ok(())
}

/// A setting that only some modes can have.
struct Limit {
    is_given: bool,
    field: &'static str,
    fits: fn(Mode) -> bool,
    /// What the other modes lack.
    lack: &'static str,
}

/// The modes that are asked for: of all, where none is named, those that every setting is for.
pub(super) fn modes(args: &SimulateArgs) -> Result<Vec<Mode>, RunError> {
    let limits = [
        Limit {
            is_given: args.candidates > 1,
            field: "--candidates",
            fits: Mode::has_candidates,
            lack: "has no cycles of candidates",
        },
        Limit {
            is_given: args.effect_out.is_some(),
            field: "--effect-out",
            fits: Mode::has_sides,
            lack: "doesn't tell V_in from V_out",
        },
        Limit {
            is_given: args.pool.is_some(),
            field: "--pool",
            fits: Mode::has_sides,
            lack: "doesn't tell V_in from V_out; it takes --problems",
        },
    ];
    let given: Vec<Limit> = limits.into_iter().filter(|limit| limit.is_given).collect();
    for limit in &given {
        if let Some(mode) = args.mode.iter().find(|mode| !(limit.fits)(**mode)) {
            let reason = format!("mode {} {}", mode.name(), limit.lack);
            return Err(impossible(limit.field, &reason));
        }
    }
    let is_meant = |mode: &Mode| {
        let is_named = args.mode.is_empty() || args.mode.contains(mode);
        is_named && given.iter().all(|limit| (limit.fits)(*mode))
    };
    Ok(Mode::ALL.into_iter().filter(is_meant).collect())
}

/// Proposals of a run that have an effect.
pub(super) fn real(args: &SimulateArgs, proposals: u32) -> u32 {
    args.real.unwrap_or(proposals.div_ceil(10))
}

/// Check what whole runs of so many proposals are asked to be like.
pub(super) fn check_runs(args: &SimulateArgs, proposals: u32) -> Result<(), RunError> {
    let real = real(args, proposals);
    if real > proposals {
        let reason = format!("{real} of {proposals} proposals can't have an effect");
        return Err(impossible("--real", &reason));
    }
    if args.candidates > 1 {
        let reason = "simulated runs decide on their proposals one by one";
        return Err(impossible("--candidates", reason));
    }
    if args.effect_out.is_some() {
        let reason = "simulated runs have one effect on both sides, --effect";
        return Err(impossible("--effect-out", reason));
    }
    if args.greedy {
        let reason =
            "simulated runs draw problems for each decision; a greedy run meets its rollouts again";
        return Err(impossible("--greedy", reason));
    }
    Ok(())
}

/// Problems that a mode looks at alike.
pub(super) fn problems(args: &SimulateArgs, mode: Mode) -> usize {
    match (args.problems, mode) {
        (Some(problems), _) => problems as usize,
        (None, Mode::Retention) => SUITE,
        (None, _) => 2 * args.tasks,
    }
}

/// What a mode decides.
pub(super) fn case(args: &SimulateArgs, mode: Mode) -> Case {
    let (level, problems) = (args.level, problems(args, mode));
    let candidates = args.candidates as usize;
    let loss = |margin| Case::Loss {
        problems,
        passes: args.passes,
        tolerance: Tolerance::shared(margin, args.comparisons as usize),
    };
    match mode {
        Mode::Paper | Mode::Confirmed | Mode::Sequential => Case::Gain {
            level,
            candidates,
            effect_out: args.effect_out,
        },
        Mode::Removal => Case::Removal {
            problems,
            level,
            candidates,
        },
        Mode::Retention => loss(args.margin / 100.0),
        Mode::Reference => loss(0.0),
    }
}

/// A setting that can't be simulated.
fn impossible(field: &'static str, reason: &str) -> RunError {
    RunError::from(ConfigError::Invalid {
        path: "coharness gate simulate".into(),
        field,
        reason: reason.into(),
    })
}
