//! The section `retention`.

use std::collections::BTreeSet;

use rollout::task::Columns;
use rollout::verifier::VerifierKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::gate::loss::Tolerance;

/// A set of other problems that must not fall while the run gets better at its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SuiteConfig {
    /// Its name in reports and in the reasons of rollbacks.
    pub name: String,
    /// JSONL file, relative to the configuration, or a built-in name (`arithmetic`).
    pub path: String,
    /// Names of the columns.
    #[serde(default)]
    #[schemars(with = "Value")]
    pub columns: Columns,
    /// How answers are compared; as `tasks.verifier` says where left out.
    #[serde(default)]
    #[schemars(with = "Option<Value>")]
    pub verifier: Option<VerifierKind>,
    /// Problems of the file that are used, chosen by their content alone.
    #[serde(default = "tasks")]
    pub tasks: usize,
    /// Passes over them at most: a further one is made only while a loss appears that isn't shown yet.
    #[serde(default = "passes")]
    pub passes: u32,
    /// Points (hundredths of the problems) that a round may lose on it; more than that, shown, takes the
    /// round back.
    #[serde(default = "max_drop_points")]
    pub max_drop_points: f64,
}

fn tasks() -> usize {
    100
}

fn passes() -> u32 {
    4
}

fn max_drop_points() -> f64 {
    5.0
}

impl SuiteConfig {
    /// What it may lose, where `suites` of them are looked at together.
    pub fn tolerance(&self, suites: usize) -> Tolerance {
        Tolerance::shared(self.max_drop_points / 100.0, suites)
    }
}

/// The field that is out of range, and what would be right.
///
/// # Errors
/// When there is one.
pub(super) fn check(suites: &[SuiteConfig]) -> Result<(), (&'static str, String)> {
    let mut names = BTreeSet::new();
    for suite in suites {
        let fail = |reason: &str| Err(("retention", format!("{}: {reason}", suite.name)));
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if suite.name.is_empty() || !suite.name.chars().all(is_name) {
            return fail("letters, digits, '-', '_' and '.' make a name");
        }
        if !names.insert(&suite.name) {
            return fail("two suites have this name");
        }
        if !(0.0..=50.0).contains(&suite.max_drop_points) {
            return fail("max_drop_points must lie between 0 and 50");
        }
        if !(1..=1_000).contains(&suite.passes) {
            return fail("passes must lie between 1 and 1000");
        }
        // Under greedy decoding there is one pass.
        let tolerance = suite.tolerance(suites.len());
        if !tolerance.can_be_exceeded(suite.tasks) {
            let most = (1..).find(|tasks| tolerance.can_be_exceeded(*tasks));
            return fail(&format!(
                "even if all of {} tasks were lost, that would be no evidence of losing more than {} points; \
                 use {} tasks or more, or a smaller max_drop_points",
                suite.tasks,
                suite.max_drop_points,
                most.unwrap_or(usize::MAX)
            ));
        }
    }
    Ok(())
}
