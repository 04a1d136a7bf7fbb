//! Removal: accepted patches are tried without, since they turn useless or harmful as weights learn and
//! other patches come.
//!
//! Every `gate.retest_every` rounds each patch that is still in the head is taken back out of it, where that
//! can be done cleanly ([`harness::undo`]), and the head without it is compared with the head
//! ([`crate::gate::question`]). One that isn't missed goes: less harness. At most one goes at a time; the
//! others are compared with what is left then. Patches that later ones build on can't be tried so; the report
//! names them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use critic::{GrowthLimits, TriedPatch};
use harness::{Harness, HarnessId, Patch, PatchOp, UndoError, undo};
use registry::{Acceptance, ModelId, Origin, RunId, VersionName};
use rollout::policy::PolicyId;

use crate::clock::unix_seconds;
use crate::error::RunError;
use crate::gate::decide::Verdict;
use crate::gate::decision::Decision;
use crate::gate::martingale::Discoveries;
use crate::harness_loop::{Head, trailer};
use crate::history::History;
use crate::lineage::active;
use crate::report::{RemovalRow, kind};
use crate::rollouts::Arm;
use crate::standing::Standing;
use crate::workshop::Workshop;

/// A patch that was tried without: its version, the harness it was taken out of, the weights.
type Attempt = (VersionName, HarnessId, PolicyId);

/// What the run has tried to remove.
#[derive(Debug)]
pub struct RemovalHistory {
    /// Decisions on removals and their acceptances, counted apart from the gate's own.
    discoveries: Discoveries,
    /// Patches that were missed.
    missed: Vec<Attempt>,
    /// Patches of which policy or sandbox has kept too many pairs from being made, once.
    unmeasured: Vec<Attempt>,
    /// Patches that were removed, as the critic was told of them.
    gone: BTreeMap<VersionName, TriedPatch>,
    /// Patches whose removal was taken back.
    needed: BTreeSet<VersionName>,
}

impl RemovalHistory {
    /// Of a run that tolerates the share `false_discovery_rate` of harmful removals.
    pub(crate) fn new(false_discovery_rate: f64) -> Self {
        Self {
            discoveries: Discoveries::new(false_discovery_rate),
            missed: Vec::new(),
            unmeasured: Vec::new(),
            gone: BTreeMap::new(),
            needed: BTreeSet::new(),
        }
    }

    /// This version's patch was removed, and the critic was told so.
    pub(crate) fn removed(&mut self, version: VersionName, patch: TriedPatch) {
        self.gone.insert(version, patch);
    }

    /// A patch was tried without and stays. If too few of its pairs could be made, it is tried once more; what
    /// can't be measured a second time, while other rollouts succeed, is like one that is missed, as it is for
    /// patches: else it would take rollouts at every time.
    fn stays(&mut self, attempt: Attempt, is_unmeasured: bool) {
        match is_unmeasured && !self.unmeasured.contains(&attempt) {
            true => self.unmeasured.push(attempt),
            false => self.missed.push(attempt),
        }
    }

    /// The removal of this version's patch was taken back: it isn't tried again. What the critic was told
    /// of it.
    pub(crate) fn needs(&mut self, version: VersionName) -> Option<TriedPatch> {
        self.needed.insert(version);
        self.gone.remove(&version)
    }
}

/// A patch that can be taken out of the head.
struct Removable {
    version: VersionName,
    /// What was recorded when it was accepted.
    accepted: registry::Decision,
    /// The harness that it was accepted for.
    before: Harness,
    /// What takes it back.
    patch: Patch,
    /// The head without it.
    harness: Arc<Harness>,
}

/// A patch that can't be taken out of the head.
struct Untested {
    version: VersionName,
    /// What was recorded when it was accepted.
    accepted: registry::Decision,
    /// What stands in the way.
    reason: String,
}

impl Workshop {
    /// What is left of `standing` once the patches that aren't missed are out of it.
    ///
    /// # Errors
    /// When the run is to stop or a part fails; what was finished is stored.
    pub async fn retest(
        &self,
        round: u32,
        mut standing: Standing,
        history: &mut History,
    ) -> Result<Standing, RunError> {
        let every = self.loaded.config.gate.retest_every;
        if every == 0 || !round.is_multiple_of(every) {
            return Ok(standing);
        }
        let mut settled = BTreeSet::new();
        loop {
            let incumbent = self.arm_of(&standing).await?;
            let policy = incumbent.policy.id();
            let (mut candidates, untested) =
                self.removable(&standing.head, policy, &history.removals)?;
            candidates.retain(|candidate| !settled.contains(&candidate.version));
            if candidates.is_empty() {
                self.leave(round, &standing.head, policy, untested).await?;
                return Ok(standing);
            }
            let arms: Vec<Arm> = candidates
                .iter()
                .map(|candidate| Arm {
                    policy: Arc::clone(&incumbent.policy),
                    harness: Arc::clone(&candidate.harness),
                })
                .collect();
            let place = format!("round {round} · removal");
            let attempt =
                |version: VersionName| (version, standing.head.harness.id(), policy.clone());
            let unmeasured = &history.removals.unmeasured;
            let mut versions = candidates.iter().map(|candidate| candidate.version);
            let is_again = versions.any(|version| unmeasured.contains(&attempt(version)));
            let removals = &mut history.removals.discoveries;
            let decisions = self
                .contest_removals(&place, &incumbent, &arms, removals, is_again)
                .await?;
            let mut next = None;
            for (candidate, decision) in candidates.iter().zip(&decisions) {
                let head = &standing.head;
                let made = match decision.verdict {
                    Verdict::Accepted => {
                        self.store.flush().await?;
                        Some(self.commit_removal(round, head, policy, candidate, decision)?)
                    }
                    _ => None,
                };
                let row = removal_row(round, head, policy, candidate, decision, made.as_ref());
                self.conclude_removal(&row, decision).await?;
                if decision.verdict != Verdict::Deferred {
                    settled.insert(candidate.version);
                }
                if made.is_some() {
                    let patch = candidate.accepted.patch.clone();
                    let tried = TriedPatch::new(&candidate.before, patch, policy.clone(), false);
                    history.remove(candidate.version, tried);
                    next = made;
                } else if decision.verdict != Verdict::Deferred {
                    let attempt = attempt(candidate.version);
                    history.removals.stays(attempt, decision.is_unmeasured);
                }
            }
            match next {
                Some(head) => standing.head = head,
                None => {
                    self.leave(round, &standing.head, policy, untested).await?;
                    return Ok(standing);
                }
            }
        }
    }

    /// The patches of `head` that are to be tried without, and those that should be and can't.
    fn removable(
        &self,
        head: &Head,
        policy: &PolicyId,
        known: &RemovalHistory,
    ) -> Result<(Vec<Removable>, Vec<Untested>), RunError> {
        let mut history = self.with_registry(registry::Registry::history)?;
        // A run that starts again finds what it did later.
        history.retain(|version| version.name <= head.version.name);
        let growth = &self.loaded.config.critic.growth;
        let (mut found, mut untested) = (Vec::new(), Vec::new());
        for version in active(&history) {
            let Origin::Patch(acceptance) = &version.origin else {
                continue;
            };
            let accepted = &acceptance.decision;
            // It was measured against the head without it a moment ago.
            let is_fresh =
                version.name == head.version.name && accepted.model.as_str() == policy.as_str();
            let missed = (version.name, head.harness.id(), policy.clone());
            if is_fresh || known.needed.contains(&version.name) || known.missed.contains(&missed) {
                continue;
            }
            let Some(parent) = version.parent else {
                continue;
            };
            let load = |commit: registry::CommitId| {
                self.with_registry(|registry| registry.load(&commit.to_string()))
            };
            let ((_, before), (_, after)) = (load(parent)?, load(version.commit)?);
            let accepted = accepted.clone();
            let ops = undo(&before, &after, &head.harness);
            match take_out(version.name, &accepted.patch, ops, &head.harness, growth) {
                Ok((patch, harness)) => found.push(Removable {
                    version: version.name,
                    accepted,
                    before,
                    patch,
                    harness: Arc::new(harness),
                }),
                Err(reason) => untested.push(Untested {
                    version: version.name,
                    accepted,
                    reason,
                }),
            }
        }
        Ok((found, untested))
    }

    /// Store and tell which patches of the head that a round ends with could not be tried without.
    async fn leave(
        &self,
        round: u32,
        head: &Head,
        policy: &PolicyId,
        untested: Vec<Untested>,
    ) -> Result<(), RunError> {
        for Untested {
            version,
            accepted,
            reason,
        } in untested
        {
            let patch = accepted.patch;
            self.line(format!(
                "  not tried without {version} ({} {}): {reason}",
                patch.dimension, patch.summary
            ));
            let row = RemovalRow {
                round,
                removes: version.to_string(),
                parent: head.name(),
                version: None,
                dimension: patch.dimension.to_string(),
                summary: patch.summary,
                stages: Vec::new(),
                evidence: None,
                rollouts: 0,
                verdict: Verdict::Rejected { stage: 0, reason },
                policy: policy.to_string(),
                spending: None,
                is_untested: true,
            };
            self.keep_removal(&row).await?;
        }
        Ok(())
    }

    fn commit_removal(
        &self,
        round: u32,
        head: &Head,
        policy: &PolicyId,
        candidate: &Removable,
        decision: &Decision,
    ) -> Result<Head, RunError> {
        let totals = decision.totals();
        let margin = self.loaded.config.gate.retest_margin_points;
        let acceptance = Acceptance {
            decision: registry::Decision {
                run: RunId::new(self.run_name())?,
                round,
                model: ModelId::new(policy.as_str())?,
                evidence: format!(
                    "Without it less than {margin} points are lost: {}.",
                    decision.figures()
                ),
                patch: candidate.patch.clone(),
                removes: Some(candidate.version),
                gate_mode: "removal".to_owned(),
                gate_detail: format!("margin {margin} points; {}", decision.detail()),
                unix_seconds: u64::try_from(unix_seconds()).unwrap_or(0),
                // The fault that it answered, which isn't one any more.
                ..candidate.accepted.clone()
            },
            delta_in: trailer(totals.delta_in),
            delta_out: trailer(totals.delta_out),
        };
        let version = self.with_registry(|registry| {
            registry.commit_patch(&head.version, &candidate.harness, &acceptance)
        })?;
        Ok(Head {
            version,
            harness: Arc::clone(&candidate.harness),
        })
    }

    /// Store a decision, and tell.
    async fn conclude_removal(
        &self,
        row: &RemovalRow,
        decision: &Decision,
    ) -> Result<(), RunError> {
        let what = format!(
            "without {} ({} {})",
            row.removes, row.dimension, row.summary
        );
        self.line(match (&row.version, decision.verdict.objection()) {
            (Some(version), _) => format!("  accepted {version}: {what} ({})", decision.figures()),
            (None, Some(objection)) => format!("  kept: not {what} ({objection})"),
            (None, None) => format!("  deferred: {what} (another one goes first)"),
        });
        self.keep_removal(row).await
    }

    async fn keep_removal(&self, row: &RemovalRow) -> Result<(), RunError> {
        let (round, parent) = (row.round.to_string(), &row.parent);
        let key = self.key(kind::REMOVAL, &[&round, parent, &row.removes, &row.policy]);
        Ok(self
            .store
            .record_step(&key, kind::REMOVAL, row.round, row, unix_seconds())
            .await?)
    }
}

/// The patch that takes the one of `version` back by `ops`, and the head without it; or what stands in the
/// way.
fn take_out(
    version: VersionName,
    accepted: &Patch,
    ops: Result<Vec<PatchOp>, UndoError>,
    head: &Harness,
    growth: &GrowthLimits,
) -> Result<(Patch, Harness), String> {
    let ops = ops.map_err(|error| format!("a later change builds on it ({error})"))?;
    let patch = Patch {
        dimension: accepted.dimension,
        ops,
        summary: format!("remove {version}: {}", accepted.summary),
    };
    let harness = patch
        .apply(head)
        .map_err(|error| format!("what is left is no valid harness ({error})"))?;
    growth
        .check(head, &harness)
        .map_err(|error| format!("what is left is too large ({error})"))?;
    Ok((patch, harness))
}

/// A decision as the report shows it.
fn removal_row(
    round: u32,
    head: &Head,
    policy: &PolicyId,
    candidate: &Removable,
    decision: &Decision,
    made: Option<&Head>,
) -> RemovalRow {
    RemovalRow {
        round,
        removes: candidate.version.to_string(),
        parent: head.name(),
        version: made.map(Head::name),
        dimension: candidate.patch.dimension.to_string(),
        summary: candidate.accepted.patch.summary.clone(),
        stages: decision.stages.clone(),
        evidence: decision.evidence.clone(),
        rollouts: decision.rollouts,
        verdict: decision.verdict.clone(),
        policy: policy.to_string(),
        spending: decision.spending(),
        is_untested: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::testing::name;

    #[test]
    fn a_removal_that_cant_be_measured_is_tried_once_more_and_then_not_again() {
        let mut removals = RemovalHistory::new(0.05);
        let head = harness::naive().expect("the shipped harness").id();
        let attempt = |version, weights: &str| (name(version), head, PolicyId::new(weights));
        removals.stays(attempt(2, "theta"), true);
        removals.stays(attempt(3, "theta"), false);
        assert_eq!(removals.missed, [attempt(3, "theta")]);
        removals.stays(attempt(2, "theta"), true);
        assert_eq!(removals.missed, [attempt(3, "theta"), attempt(2, "theta")]);
        // With other weights it is another matter.
        removals.stays(attempt(2, "trained"), true);
        assert_eq!(removals.missed.len(), 2);
    }
}
