//! Deterministic rules: each looks for one fault in a failed trajectory.
//!
//! A rule reads the trajectory's events and texts and the harness it ran under, never the right
//! answer. What it reports is a quote that anyone can look up, and the first of its repairs that
//! fits the harness. Rules overlap on purpose: one symptom can have its cause in several
//! dimensions, and the gate finds out which repair helps.

mod agent;
mod calls;
mod facts;
mod finding;
mod luck;
mod meaning;
mod memory;
mod middleware;
mod obeyed;
mod prompts;
mod skill_code;
mod skills;
mod text;
mod told;
mod tools;
mod view;
mod ways;

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests;

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod pattern_tests;

use std::sync::LazyLock;

use harness::{Harness, PROBLEM_SLOT, PatchOp};
use rollout::Trajectory;

use crate::record::{Evidence, Record, RootCause};
use crate::repairs::{Repair, checked_patch};
use finding::Finding;
use view::View;

pub use luck::is_lucky;

pub(crate) use facts::Facts;
pub(crate) use text::{has_word, is_among, numbers};

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

/// A rule before its cause, which is that of its dimension.
#[derive(Clone, Copy)]
struct Fault {
    name: &'static str,
    explain: &'static str,
    repairs: &'static [Repair],
    look: fn(&View<'_>) -> Option<Finding>,
}

impl Fault {
    /// The same with other repairs.
    const fn repaired_by(self, repairs: &'static [Repair]) -> Self {
        Fault { repairs, ..self }
    }

    fn rule(self, root_cause: RootCause) -> Rule {
        Rule {
            name: self.name,
            root_cause,
            explain: self.explain,
            repairs: self.repairs,
            look: self.look,
        }
    }
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
        let finding = self.finding(facts, harness, trajectory)?;
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

    fn finding(
        &self,
        facts: &Facts,
        harness: &Harness,
        trajectory: &Trajectory,
    ) -> Option<Finding> {
        (self.look)(&View {
            facts,
            dim: self.root_cause.harness_dim(),
            ..View::new(harness, trajectory)
        })
    }

    /// Whether the rule blames a text for what was made of it, so that what was solved in the same way
    /// speaks for the text.
    pub(crate) fn is_contrasted(&self) -> bool {
        const WAYS: [&str; 2] = ["_misguides_print", "_lends_numbers"];
        let is_by_use = [
            "skill_misleads",
            "skill_code_shapes_result",
            "skill_code_shadows",
            "stale_number",
        ];
        WAYS.iter().any(|way| self.name.ends_with(way)) || is_by_use.contains(&self.name)
    }

    /// What the rule would suggest after a rollout, solved or not.
    pub(crate) fn suggestion(
        &self,
        harness: &Harness,
        trajectory: &Trajectory,
    ) -> Option<Vec<PatchOp>> {
        let finding = self.finding(&Facts::none(), harness, trajectory)?;
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

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let of_texts = ways::TEXTS.iter().flat_map(ways::Text::rules);
    let of_agent = agent::FAULTS.iter();
    let of_agent = of_agent.map(|fault| fault.rule(RootCause::AgentError));
    of_texts.chain(of_agent).collect()
});

/// All rules, by dimension.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    RULES.iter()
}

/// The rule called `name`.
pub fn rule(name: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.name == name)
}
