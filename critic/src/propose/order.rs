//! The order in which the gate should try candidates.

use std::collections::{BTreeMap, BTreeSet};

use harness::{Dimension, Patch};
use rollout::TaskId;

use super::{Proposal, TriedPatch};
use crate::cluster::Cluster;
use crate::effect::Predicted;
use crate::scoreboard::Scoreboard;

/// How many candidates a dimension may be ahead of another that has some left.
const MOST_AHEAD: usize = 2;
/// The first candidates, as many as a cycle measures by default.
const FIRST: usize = 4;
/// How many of them are for what the heaviest cluster fails at.
const FOR_HEAVIEST: usize = 2;

/// A proposal that has no place yet.
pub(super) struct Candidate {
    proposal: Proposal,
    score: f64,
}

impl Candidate {
    pub(super) fn new(patch: Patch, cluster: &Cluster, score: f64) -> Self {
        let proposal = Proposal {
            patch,
            root_cause: cluster.root_cause,
            harness_dim: cluster.harness_dim,
            rule: cluster.rule.clone(),
            summary: cluster.summary(),
            records: cluster.records.iter().cloned().collect(),
            predicted: cluster.predicted.clone(),
        };
        Candidate { proposal, score }
    }

    /// Another cluster asks for the same operations. The higher score counts: the clusters may
    /// stand for the same failures.
    pub(super) fn support(&mut self, cluster: &Cluster, score: f64) {
        self.score = self.score.max(score);
        self.proposal
            .records
            .extend(cluster.records.iter().cloned());
        let Predicted { fixes, at_risk } = &mut self.proposal.predicted;
        fixes.extend(cluster.predicted.fixes.iter().cloned());
        at_risk.extend(cluster.predicted.at_risk.iter().cloned());
    }

    fn dimension(&self) -> Dimension {
        self.proposal.patch.dimension
    }

    /// Whether it should mend half of these tasks or more.
    fn is_for(&self, tasks: &BTreeSet<TaskId>) -> bool {
        let mended = self.proposal.predicted.fixes.intersection(tasks).count();
        2 * mended >= tasks.len()
    }
}

/// Highest averages, with a bound on how far one dimension gets ahead of another and two of the first places
/// for the tasks of the `heaviest` cluster.
pub(super) fn order(
    mut pool: Vec<Candidate>,
    heaviest: &BTreeSet<TaskId>,
    history: &[TriedPatch],
) -> Vec<Proposal> {
    let decisions = history
        .iter()
        .map(|tried| (tried.patch.dimension, tried.is_accepted));
    let board = Scoreboard::of(decisions);
    let mut ordered = Vec::with_capacity(pool.len());
    let mut taken: BTreeMap<Dimension, usize> = BTreeMap::new();
    let candidates = pool.iter().filter(|candidate| candidate.is_for(heaviest));
    let mut wanted = candidates.count().min(FOR_HEAVIEST);
    while !pool.is_empty() {
        let count = |dimension: Dimension| taken.get(&dimension).copied().unwrap_or(0);
        let left = pool.iter().map(|candidate| count(candidate.dimension()));
        let least = left.min().unwrap_or(0);
        // Until the heaviest cluster has its share, the others wait in its candidates' dimensions, so that the
        // bound doesn't keep it from it, and everywhere if no other places are left.
        let places = FIRST.saturating_sub(ordered.len());
        let is_open = (1..=places).contains(&wanted);
        let preferred = pool.iter().filter(|c| is_open && c.is_for(heaviest));
        let preferred: BTreeSet<Dimension> = preferred.map(Candidate::dimension).collect();
        let waits = |candidate: &Candidate| {
            let is_in_the_way = wanted == places || preferred.contains(&candidate.dimension());
            is_open && is_in_the_way && !candidate.is_for(heaviest)
        };
        let value = |candidate: &Candidate| {
            let dimension = candidate.dimension();
            let taken = count(dimension);
            (taken < least + MOST_AHEAD && !waits(candidate))
                .then(|| candidate.score * board.score(dimension).trust() / (taken + 1) as f64)
        };
        let mut best: Option<(usize, f64)> = None;
        for (place, candidate) in pool.iter().enumerate() {
            let Some(value) = value(candidate) else {
                continue;
            };
            // Strictly greater: of equals the first stays, whose cluster is the heavier.
            if best.is_none_or(|(_, most)| value > most) {
                best = Some((place, value));
            }
        }
        let Some((place, _)) = best else { break };
        let candidate = pool.remove(place);
        *taken.entry(candidate.dimension()).or_default() += 1;
        wanted = wanted.saturating_sub(usize::from(candidate.is_for(heaviest)));
        ordered.push(candidate.proposal);
    }
    ordered
}
