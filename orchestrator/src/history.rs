//! What a run has tried so far, which the next proposals and decisions depend on.

use critic::TriedPatch;
use harness::{Change, Harness};
use registry::VersionName;
use rollout::policy::PolicyId;

use crate::gate::martingale::Discoveries;
use crate::removal::RemovalHistory;

/// What the run has tried so far.
#[derive(Debug)]
pub struct History {
    /// Patches that the gate decided on.
    pub tried: Vec<TriedPatch>,
    /// Patches of which policy or sandbox has kept too many pairs from being made, once.
    unmeasured: Vec<TriedPatch>,
    /// The gate's count of decisions and acceptances, weights included.
    pub discoveries: Discoveries,
    /// Accepted patches that were tried without.
    pub removals: RemovalHistory,
}

impl History {
    /// Of a run that tolerates the share `false_discovery_rate` of false acceptances.
    pub fn new(false_discovery_rate: f64) -> Self {
        Self {
            tried: Vec::new(),
            unmeasured: Vec::new(),
            discoveries: Discoveries::new(false_discovery_rate),
            removals: RemovalHistory::new(false_discovery_rate),
        }
    }

    /// Whether this was measured with these weights before and too few of its pairs could be made.
    pub(crate) fn is_unmeasured(&self, change: &Change, policy: &PolicyId) -> bool {
        let is_it = |tried: &TriedPatch| tried.change == *change && tried.policy == *policy;
        self.unmeasured.iter().any(is_it)
    }

    /// The gate has decided on a patch. If too few of its pairs could be made, that says nothing about it: it
    /// may be proposed once more. What can't be measured a second time, while other rollouts succeed, is
    /// like a rejected one: else it would take a candidate's place for good. Whether it stays open.
    pub(crate) fn decided(&mut self, tried: TriedPatch, is_unmeasured: bool) -> bool {
        if is_unmeasured && !self.is_unmeasured(&tried.change, &tried.policy) {
            self.unmeasured.push(tried);
            return true;
        }
        self.tried.push(tried);
        false
    }

    /// The patch of `version` was removed: the weights that don't miss it needn't lead to it again, so it
    /// is like a rejected one to the critic.
    pub(crate) fn remove(&mut self, version: VersionName, patch: TriedPatch) {
        self.removals.removed(version, patch.clone());
        self.tried.push(patch);
    }

    /// A version was taken back. To the critic its patch is like a rejected one, so that the same weights
    /// don't lead to it again; a patch that it had removed is needed, and was not rejected. The gate's
    /// counts stay: they are of what was accepted. `before` is the harness that the version patched.
    pub(crate) fn withdraw(&mut self, decision: &registry::Decision, before: &Harness) {
        let Some(version) = decision.removes else {
            let change = Change::of(before, &decision.patch.ops);
            for tried in &mut self.tried {
                tried.is_accepted &= tried.change != change;
            }
            return;
        };
        let Some(noted) = self.removals.needs(version) else {
            return;
        };
        // Of equal ones the last: a patch that was rejected before it was accepted stays so.
        if let Some(place) = self.tried.iter().rposition(|tried| *tried == noted) {
            self.tried.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use harness::{Dimension, Patch, PatchOp};

    use super::*;
    use crate::lineage::testing::{decision, name};

    fn start() -> Harness {
        harness::naive().expect("the shipped harness")
    }

    fn tried(summary: &str, policy: &str, is_accepted: bool) -> TriedPatch {
        let patch = decision(summary, None).patch;
        TriedPatch::new(&start(), patch, PolicyId::new(policy), is_accepted)
    }

    #[test]
    fn a_patch_that_could_not_be_measured_is_tried_once_more_with_the_same_weights() {
        let mut history = History::new(0.05);
        assert!(history.decided(tried("a", "theta", false), true));
        assert!(!history.decided(tried("b", "theta", false), false));
        // With other weights it is another matter.
        assert!(history.decided(tried("a", "trained", false), true));
        assert_eq!(history.tried, [tried("b", "theta", false)]);
        let (change, policy) = (tried("a", "theta", false).change, PolicyId::new("theta"));
        assert!(history.is_unmeasured(&change, &policy));
        assert!(!history.is_unmeasured(&change, &PolicyId::new("other")));
        assert!(!history.decided(tried("a", "theta", false), true));
        assert_eq!(history.tried[1..], [tried("a", "theta", false)]);
    }

    #[test]
    fn a_removal_that_is_taken_back_rejects_nothing_any_more() {
        // Rejected with the first weights, accepted with the second, removed with the first again.
        let before = vec![
            tried("a", "first", false),
            tried("a", "second", true),
            tried("b", "second", true),
        ];
        let mut history = History::new(0.05);
        history.tried.clone_from(&before);
        history.remove(name(2), tried("a", "first", false));
        assert_eq!(history.tried.len(), 4);
        let removal = decision("remove v2: a", Some(name(2)));
        history.withdraw(&removal, &start());
        assert_eq!(history.tried, before);
        // It can only be taken back once.
        history.withdraw(&removal, &start());
        assert_eq!(history.tried, before);
    }

    #[test]
    fn a_patch_that_is_taken_back_together_with_its_removal_counts_as_rejected() {
        let mut history = History::new(0.05);
        history.tried = vec![tried("a", "theta", true), tried("b", "theta", true)];
        history.remove(name(2), tried("a", "theta", false));
        history.withdraw(&decision("a", None), &start());
        history.withdraw(&decision("remove v2: a", Some(name(2))), &start());
        assert_eq!(
            history.tried,
            [tried("a", "theta", false), tried("b", "theta", true)]
        );
    }

    #[test]
    fn of_patches_that_name_one_place_the_one_that_is_taken_back_counts_as_rejected() {
        let noted = |entries: &[&str]| {
            let mut harness = start();
            harness.memory.kind = harness::MemoryKind::Notes;
            harness.memory.capacity = 4;
            harness.memory.entries = entries.iter().map(|entry| (*entry).to_owned()).collect();
            harness
        };
        let (all, rest) = (noted(&["a", "b", "c"]), noted(&["b", "c"]));
        let mut removal = decision("remove the longest note", None);
        removal.patch = Patch {
            dimension: Dimension::M,
            ops: vec![PatchOp::remove(
                "memory.entries[0]".parse().expect("a path"),
            )],
            ..removal.patch
        };
        let accepted = |before: &Harness| {
            let policy = PolicyId::new("theta");
            TriedPatch::new(before, removal.patch.clone(), policy, true)
        };
        let mut history = History::new(0.05);
        history.tried = vec![accepted(&all), accepted(&rest)];
        history.withdraw(&removal, &rest);
        let kept: Vec<bool> = history
            .tried
            .iter()
            .map(|tried| tried.is_accepted)
            .collect();
        assert_eq!(kept, [true, false]);
    }
}
