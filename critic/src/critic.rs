//! The critic: failed trajectories in, records and proposals out.

use harness::{Harness, PatchOp};
use rollout::Trajectory;

use crate::cluster::Cluster;
use crate::mining::mine;
use crate::propose::{Proposal, TriedPatch, propose};
use crate::record::{Record, check_evidence};
use crate::rules::{Rule, is_failure, rules};

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
    /// The records, by trajectory in the order given, then by rule; then those of [`mine`].
    pub records: Vec<Record>,
    /// Records that were dropped because their evidence isn't there.
    pub dropped: usize,
    /// Failed trajectories that were read.
    pub failures: usize,
    /// Failed trajectories without a record.
    pub undiagnosed: usize,
}

/// The critic that works without a language model: [`rules`] and their repairs, and [`mine`].
#[derive(Clone, Copy, Debug, Default)]
pub struct RulesCritic;

impl Critic for RulesCritic {
    fn diagnose(&self, harness: &Harness, trajectories: &[Trajectory]) -> Diagnosis {
        let mut diagnosis = Diagnosis::default();
        let mut rules: Vec<(&Rule, Option<Vec<PatchOp>>)> = rules().map(|r| (r, None)).collect();
        for trajectory in trajectories.iter().filter(|t| is_failure(t)) {
            diagnosis.failures += 1;
            let before = diagnosis.records.len();
            let found = rules.iter_mut().filter_map(|(rule, first_repair)| {
                rule.detect_with(harness, trajectory, first_repair)
            });
            for record in found {
                match check_evidence(&record, trajectory) {
                    Ok(()) => diagnosis.records.push(record),
                    Err(_) => diagnosis.dropped += 1,
                }
            }
            if diagnosis.records.len() == before {
                diagnosis.undiagnosed += 1;
            }
        }
        let mined = mine(harness, trajectories);
        let by_id = |record: &Record| {
            let id = &record.evidence.trajectory;
            trajectories.iter().find(|trajectory| trajectory.id == *id)
        };
        for record in mined {
            match by_id(&record).map(|trajectory| check_evidence(&record, trajectory)) {
                Some(Ok(())) => diagnosis.records.push(record),
                _ => diagnosis.dropped += 1,
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
