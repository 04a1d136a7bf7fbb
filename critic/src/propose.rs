//! Clusters → candidate patches, in the order in which the gate should try them.

mod order;
mod tried;

use std::collections::{BTreeMap, BTreeSet};

use harness::{Harness, Patch, PatchOp};
use rollout::TaskId;
use serde::Serialize;

use self::order::{Candidate, order};
pub use self::tried::TriedPatch;
use self::tried::was_rejected;
use crate::cluster::{Cluster, ops_key};
use crate::effect::Predicted;
use crate::record::{HarnessDim, RecordId, RootCause};
use crate::repairs::checked_patch;
use crate::rules::rule;

/// Most candidates that one cluster gives at a time.
pub const MOST_PER_CLUSTER: usize = 3;

/// A candidate patch and why it is proposed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proposal {
    /// The patch: it applies to the harness it was proposed for, and changes it.
    pub patch: Patch,
    /// Root cause of the heaviest cluster that asked for it.
    pub root_cause: RootCause,
    /// That cluster's dimension.
    pub harness_dim: HarnessDim,
    /// That cluster's rule.
    pub rule: String,
    /// That cluster in one line.
    pub summary: String,
    /// Records of all clusters that asked for it.
    pub records: BTreeSet<RecordId>,
    /// What it should do by all those clusters, to be compared with what is measured. Further tasks at
    /// risk are found once the patched harness is there ([`at_risk`](crate::at_risk)).
    pub predicted: Predicted,
}

/// Candidate patches for `harness`, most promising first.
///
/// Within a cluster the records' own suggestions come first, the most frequent one leading, then
/// the rule's repairs in their order. Across clusters the heavier goes first, with each further
/// candidate of one dimension counting less, and a dimension never more than two candidates ahead of
/// another that has some left, so that the search doesn't stay on prompts. How much a dimension counts
/// is also a matter of what the gate made of its patches lately ([`Scoreboard`](crate::Scoreboard)).
///
/// Two of the first four are for what the heaviest cluster fails at, if there are as many: its own, or those
/// of clusters with the same tasks.
///
/// A patch that was rejected with one of the cluster's policies is not proposed again, wherever the list
/// entries that it changes stand by then: neither harness nor task makes it new, only another θ does, or
/// room for what was too large.
pub fn propose(harness: &Harness, clusters: &[Cluster], history: &[TriedPatch]) -> Vec<Proposal> {
    let mut pool: Vec<Candidate> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    // The heaviest cluster that gives a candidate comes first.
    let mut heaviest: Option<&BTreeSet<TaskId>> = None;
    for cluster in clusters {
        for (rank, patch) in cluster_patches(harness, cluster, history)
            .into_iter()
            .enumerate()
        {
            heaviest.get_or_insert(&cluster.predicted.fixes);
            let key = ops_key(&patch.ops);
            let score = cluster.weight as f64 / (rank + 1) as f64;
            match places.get(&key) {
                Some(place) => pool[*place].support(cluster, score),
                None => {
                    places.insert(key, pool.len());
                    pool.push(Candidate::new(patch, cluster, score));
                }
            }
        }
    }
    order(pool, heaviest.unwrap_or(&BTreeSet::new()), history)
}

/// At most [`MOST_PER_CLUSTER`] patches for one cluster.
fn cluster_patches(harness: &Harness, cluster: &Cluster, history: &[TriedPatch]) -> Vec<Patch> {
    let Some(dimension) = cluster.harness_dim.dimension() else {
        return Vec::new();
    };
    let repairs = rule(&cluster.rule).map_or(&[][..], |rule| rule.repairs);
    let catalogued: Vec<Patch> = repairs
        .iter()
        .filter_map(|repair| repair.patch(harness, dimension))
        .collect();
    let is_catalogued = |ops: &[PatchOp]| catalogued.iter().any(|patch| patch.ops == *ops);
    // A suggestion that is a repair keeps the repair's place and its better summary.
    let suggested = cluster
        .suggestions
        .iter()
        .filter(|(ops, _)| !is_catalogued(ops))
        .filter_map(|(ops, _)| {
            let summary = format!("as {} suggests: {}", cluster.rule, outline(ops));
            checked_patch(harness, dimension, ops.clone(), &summary)
        });
    let mut patches: Vec<Patch> = Vec::new();
    for patch in suggested.chain(catalogued.iter().cloned()) {
        let is_new = patches.iter().all(|known| known.ops != patch.ops);
        if is_new && !was_rejected(harness, &patch, cluster, history) {
            patches.push(patch);
        }
    }
    patches.truncate(MOST_PER_CLUSTER);
    patches
}

/// Operations in a few words, such as `remove memory.entries[0]`.
fn outline(ops: &[PatchOp]) -> String {
    const MOST: usize = 2;
    let mut words: Vec<String> = ops
        .iter()
        .take(MOST)
        .map(|op| {
            let verb = serde_json::to_value(op.op).unwrap_or_default();
            format!("{} {}", verb.as_str().unwrap_or_default(), op.path)
        })
        .collect();
    if ops.len() > MOST {
        words.push(format!("{} more", ops.len() - MOST));
    }
    words.join(", ")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests;
