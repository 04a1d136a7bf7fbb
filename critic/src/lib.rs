//! Failed trajectories → records of what went wrong → candidate patches.
//!
//! The entry is a [`Critic`], here the [`RulesCritic`]: [`Critic::diagnose`] reads failed
//! trajectories and writes [`Record`]s, [`cluster()`] groups them, and [`Critic::propose`] turns the
//! clusters into [`Proposal`]s for the gate. An [`LlmCritic`] may add records to those of the rules. A
//! critic only suggests: whether a patch helps is measured. It works on tasks of the evolve split and
//! knows of right answers only what the agent answered where it solved one, and a [`LeakGuard`] refuses
//! patches that carry a problem of the gate or the test split, or the answer to one.
//!
//! - [`record`]: the record as Co-Harness (arXiv:2607.22688) has it, and the check of its evidence.
//! - [`mod@rules`]: one small detector for each fault, by dimension.
//! - [`mining`]: programs that keep working become skills and examples, those that fail hints.
//! - [`llm`]: a language model that reads what rules can't name; its prompts are in `critic/prompts`.
//! - [`mod@repairs`]: what can be changed about it; the texts are in `critic/catalogue`.
//! - [`mod@cluster`], [`mod@propose`]: from records to an ordered list of patches.
//! - [`scoreboard`], [`growth`], [`leak`]: which dimension's patches the gate likes, how large a
//!   dimension may get, and the leak guard.
//! - [`effect`]: what a patch should do, and what came of it.

mod catalogue;
pub mod cluster;
pub mod critic;
pub mod effect;
pub mod growth;
pub mod leak;
pub mod llm;
pub mod mining;
pub mod propose;
pub mod record;
pub mod repairs;
pub mod rules;
pub mod scoreboard;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod testing;

pub use cluster::{Cluster, FEWEST_FAILURES, cluster};
pub use critic::{Critic, Diagnosis, RulesCritic};
pub use effect::{Effect, Foresight, Predicted, at_risk};
pub use growth::{GrowthLimits, TooLarge};
pub use leak::{Leak, LeakGuard};
pub use llm::{Critique, Disagreement, LlmCritic, LlmOptions};
pub use propose::{MOST_PER_CLUSTER, Proposal, TriedPatch, propose};
pub use record::{
    Evidence, EvidenceError, HarnessDim, Record, RecordId, RootCause, Severity, check_evidence,
    record_schema,
};
pub use repairs::Repair;
pub use rules::{Rule, is_lucky, rule, rules};
pub use scoreboard::{DIMENSIONS, Score, Scoreboard};
