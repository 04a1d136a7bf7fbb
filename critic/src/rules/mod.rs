//! Deterministic rules: each looks for one fault in a failed trajectory.
//!
//! A rule reads the trajectory's events and texts and the harness it ran under, never the right
//! answer. What it reports is a quote that anyone can look up, and the first of its repairs that
//! fits the harness. Rules overlap on purpose: one symptom can have its cause in several
//! dimensions, and the gate finds out which repair helps.

mod agent;
mod facts;
mod meaning;
mod memory;
mod middleware;
mod prompts;
mod skills;
mod told;
mod tools;
mod view;

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests;

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod pattern_tests;

use harness::{Harness, PROBLEM_SLOT, PatchOp};
use rollout::Trajectory;

use crate::record::{Evidence, Record, RootCause, Severity};
use crate::repairs::{Repair, checked_patch};
use view::View;

pub(crate) use facts::Facts;
pub(crate) use view::numbers;

/// One deterministic rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The rule's name, as in [`Record::rule`].
    pub name: &'static str,
    /// The cause that it reports.
    pub root_cause: RootCause,
    /// What it looks for and why that is a fault.
    pub explain: &'static str,
    /// Its repairs, most promising first.
    pub repairs: &'static [Repair],
    look: fn(&View<'_>) -> Option<Finding>,
}

impl Rule {
    /// The fault, if the failed `trajectory` shows it. A solved trajectory and one that an
    /// infrastructure fault ended show none.
    pub fn detect(&self, harness: &Harness, trajectory: &Trajectory) -> Option<Record> {
        self.detect_beside(&Facts::none(), harness, trajectory, &mut None)
    }

    /// The same beside what all rollouts show, with the rule's first repair for `harness` kept from one
    /// trajectory to the next.
    pub(crate) fn detect_beside(
        &self,
        facts: &Facts,
        harness: &Harness,
        trajectory: &Trajectory,
        first_repair: &mut Option<Vec<PatchOp>>,
    ) -> Option<Record> {
        if !is_failure(trajectory) {
            return None;
        }
        let finding = (self.look)(&View::beside(facts, harness, trajectory))?;
        let diff_suggestion = self.operations(harness, finding.ops, first_repair);
        Some(Record {
            root_cause: self.root_cause,
            harness_dim: self.root_cause.harness_dim(),
            severity: finding.severity,
            evidence: Evidence {
                trajectory: trajectory.id.clone(),
                step: finding.step,
                quote: finding.quote,
            },
            diff_suggestion,
            rule: self.name.to_owned(),
        })
    }

    /// Whether the rule blames a text for what was made of it, so that what was solved in the same way
    /// speaks for the text.
    pub(crate) fn is_contrasted(&self) -> bool {
        let is_by_print = self.name.ends_with("_misguides_print");
        is_by_print || ["skill_misleads", "stale_number"].contains(&self.name)
    }

    /// What the rule would suggest after a rollout, solved or not.
    pub(crate) fn suggestion(
        &self,
        harness: &Harness,
        trajectory: &Trajectory,
    ) -> Option<Vec<PatchOp>> {
        let finding = (self.look)(&View::new(harness, trajectory))?;
        Some(self.operations(harness, finding.ops, &mut None))
    }

    /// A finding's own operations where they make a patch, and otherwise those of the first repair.
    fn operations(
        &self,
        harness: &Harness,
        own: Option<Vec<PatchOp>>,
        first_repair: &mut Option<Vec<PatchOp>>,
    ) -> Vec<PatchOp> {
        let own = own.filter(|ops| self.applies(harness, ops));
        own.unwrap_or_else(|| {
            first_repair
                .get_or_insert_with(|| self.first_repair(harness).unwrap_or_default())
                .clone()
        })
    }

    /// Whether a suggestion made for one trajectory is a patch at all.
    fn applies(&self, harness: &Harness, ops: &[PatchOp]) -> bool {
        let dimension = self.root_cause.harness_dim().dimension();
        dimension
            .is_some_and(|dimension| checked_patch(harness, dimension, ops.to_vec(), "").is_some())
    }

    fn first_repair(&self, harness: &Harness) -> Option<Vec<PatchOp>> {
        let dimension = self.root_cause.harness_dim().dimension()?;
        self.repairs
            .iter()
            .find_map(|repair| repair.patch(harness, dimension))
            .map(|patch| patch.ops)
    }
}

/// Whether the critic looks at `trajectory` at all.
pub(crate) fn is_failure(trajectory: &Trajectory) -> bool {
    let verdict = &trajectory.verdict;
    // An answer that nobody could judge shows no fault of the harness.
    !verdict.correct && !verdict.undecided && !trajectory.exit.is_infrastructure()
}

/// The problem of a trajectory, without what the task template puts around it; `None` if the
/// trajectory wasn't opened with this harness.
pub(crate) fn problem_of<'a>(trajectory: &'a Trajectory, harness: &'a Harness) -> Option<&'a str> {
    let shown = View::new(harness, trajectory).problem()?;
    let (before, after) = harness.prompts.task.split_once(PROBLEM_SLOT)?;
    shown.strip_prefix(before)?.strip_suffix(after)
}

/// All rules, by dimension.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    [
        prompts::RULES,
        tools::RULES,
        skills::RULES,
        middleware::RULES,
        memory::RULES,
        agent::RULES,
    ]
    .into_iter()
    .flatten()
}

/// The rule called `name`.
pub fn rule(name: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.name == name)
}

/// What a rule has seen.
pub(crate) struct Finding {
    severity: Severity,
    step: usize,
    quote: String,
    /// A suggestion made for this trajectory; otherwise the rule's first repair is suggested.
    ops: Option<Vec<PatchOp>>,
}
