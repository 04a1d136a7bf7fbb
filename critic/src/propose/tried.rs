//! What the gate has decided on, which isn't proposed again.

use std::collections::BTreeSet;

use harness::{Change, Harness, Patch};
use rollout::PolicyId;

use crate::cluster::Cluster;
use crate::growth::TooLarge;

/// A patch that the gate has decided on.
#[derive(Clone, Debug, PartialEq)]
pub struct TriedPatch {
    /// The patch.
    pub patch: Patch,
    /// What it does, by which it is known on other harnesses.
    pub change: Change,
    /// The policy that it was tried with.
    pub policy: PolicyId,
    /// Whether it was accepted.
    pub is_accepted: bool,
    /// The limit that it would have gone beyond, if that is why it wasn't: there may be room for it later.
    pub too_large: Option<TooLarge>,
}

impl TriedPatch {
    /// A decision on `patch`, which is for `harness`.
    pub fn new(harness: &Harness, patch: Patch, policy: PolicyId, is_accepted: bool) -> Self {
        TriedPatch {
            change: Change::of(harness, &patch.ops),
            patch,
            policy,
            is_accepted,
            too_large: None,
        }
    }

    /// Whether `patch`, which does this `change` to `harness`, needn't be tried with one of `policies`.
    fn bars(
        &self,
        harness: &Harness,
        patch: &Patch,
        change: &Change,
        policies: &BTreeSet<PolicyId>,
    ) -> bool {
        let is_it = !self.is_accepted && self.change == *change && policies.contains(&self.policy);
        let still = |limit: TooLarge| {
            let after = patch.apply(harness);
            after.is_ok_and(|after| limit.holds(harness, &after))
        };
        is_it && self.too_large.is_none_or(still)
    }
}

/// Whether `patch` needn't be tried with one of the policies of `cluster`.
pub(super) fn was_rejected(
    harness: &Harness,
    patch: &Patch,
    cluster: &Cluster,
    history: &[TriedPatch],
) -> bool {
    let change = Change::of(harness, &patch.ops);
    let mut history = history.iter();
    history.any(|tried| tried.bars(harness, patch, &change, &cluster.policies))
}
