//! The critic: failed trajectories in, records and proposals out.

use harness::Harness;
use rollout::Trajectory;

use crate::cluster::Cluster;
use crate::propose::{Proposal, TriedPatch, propose};
use crate::record::{Record, check_evidence};
use crate::rules::{is_failure, rules};

/// Says why rollouts failed, and what might help.
pub trait Critic {
    /// Records of the failed ones among `trajectories`, which all ran under `harness`.
    fn diagnose(&self, harness: &Harness, trajectories: &[Trajectory]) -> Diagnosis;

    /// Candidate patches for `harness`, most promising first.
    fn propose(
        &self,
        harness: &Harness,
        clusters: &[Cluster],
        history: &[TriedPatch],
    ) -> Vec<Proposal>;
}

/// What a critic found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// The records, by trajectory in the order given, then by rule.
    pub records: Vec<Record>,
    /// Records that were dropped because their evidence isn't there.
    pub dropped: usize,
    /// Failed trajectories that were read.
    pub failures: usize,
    /// Failed trajectories without a record.
    pub undiagnosed: usize,
}

/// The critic that works without a language model: [`rules`] and their repairs.
#[derive(Clone, Copy, Debug, Default)]
pub struct RulesCritic;

impl Critic for RulesCritic {
    fn diagnose(&self, harness: &Harness, trajectories: &[Trajectory]) -> Diagnosis {
        let mut diagnosis = Diagnosis::default();
        for trajectory in trajectories.iter().filter(|t| is_failure(t)) {
            diagnosis.failures += 1;
            let before = diagnosis.records.len();
            for record in rules().filter_map(|rule| rule.detect(harness, trajectory)) {
                match check_evidence(&record, trajectory) {
                    Ok(()) => diagnosis.records.push(record),
                    Err(_) => diagnosis.dropped += 1,
                }
            }
            if diagnosis.records.len() == before {
                diagnosis.undiagnosed += 1;
            }
        }
        diagnosis
    }

    fn propose(
        &self,
        harness: &Harness,
        clusters: &[Cluster],
        history: &[TriedPatch],
    ) -> Vec<Proposal> {
        propose(harness, clusters, history)
    }
}
