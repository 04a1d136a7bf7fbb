//! What a run has tried so far, which the next proposals and decisions depend on.

use critic::TriedPatch;

use crate::gate::martingale::Discoveries;
use crate::removal::RemovalHistory;

/// What the run has tried so far.
#[derive(Debug)]
pub struct History {
    /// Patches that the gate decided on.
    pub tried: Vec<TriedPatch>,
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
            discoveries: Discoveries::new(false_discovery_rate),
            removals: RemovalHistory::new(false_discovery_rate),
        }
    }

    /// A version was taken back. To the critic its patch is like a rejected one, so that the same weights
    /// don't lead to it again; a patch that it had removed is needed. The gate's counts stay: they are of
    /// what was accepted.
    pub(crate) fn withdraw(&mut self, decision: &registry::Decision) {
        if let Some(version) = decision.removes {
            self.removals.needs(version);
        }
        for tried in &mut self.tried {
            tried.is_accepted &= tried.patch != decision.patch;
        }
    }
}
