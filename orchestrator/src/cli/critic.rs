//! `coharness critic`: what the rules look for.

use std::process::ExitCode;

use ::critic::{HarnessDim, RootCause, rules};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::print;

/// Ask what the critic looks for.
#[derive(Debug, Subcommand)]
pub(crate) enum CriticCommand {
    /// Explain every rule: what it looks for, why that is a fault, what it may change.
    Rules(RulesArgs),
}

/// Explain every rule.
#[derive(Debug, Args)]
pub(crate) struct RulesArgs {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// A rule as it is shown.
#[derive(Serialize)]
struct Shown {
    name: &'static str,
    root_cause: RootCause,
    harness_dim: HarnessDim,
    explain: &'static str,
    repairs: Vec<ShownRepair>,
}

#[derive(Serialize)]
struct ShownRepair {
    name: &'static str,
    summary: &'static str,
}

pub(crate) fn critic(command: &CriticCommand) -> ExitCode {
    let CriticCommand::Rules(args) = command;
    let shown: Vec<Shown> = rules()
        .map(|rule| Shown {
            name: rule.name,
            root_cause: rule.root_cause,
            harness_dim: rule.root_cause.harness_dim(),
            explain: rule.explain,
            repairs: rule
                .repairs
                .iter()
                .map(|repair| ShownRepair {
                    name: repair.name,
                    summary: repair.summary,
                })
                .collect(),
        })
        .collect();
    if args.json {
        print(&serde_json::to_string_pretty(&shown).unwrap_or_default());
        return ExitCode::SUCCESS;
    }
    for rule in shown {
        let repairs = rule.repairs.iter().map(|repair| {
            let ShownRepair { name, summary } = repair;
            format!("\n    {name}: {summary}")
        });
        print(&format!(
            "{} ({}, {})\n  {}{}\n",
            rule.name,
            rule.harness_dim,
            rule.root_cause,
            rule.explain,
            repairs.collect::<String>()
        ));
    }
    ExitCode::SUCCESS
}
