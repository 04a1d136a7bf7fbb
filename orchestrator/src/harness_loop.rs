//! The harness loop: roll out, diagnose, propose, decide, commit.

use std::sync::Arc;

use critic::{Critic, LeakGuard, Proposal, RulesCritic, TriedPatch, cluster};
use harness::Harness;
use registry::{Acceptance, Entry, ModelId, Rejection, RunId, Version};
use rollout::policy::Policy;
use rollout::task::{Split, Task};
use rollout::trajectory::Trajectory;

use crate::clock::unix_seconds;
use crate::error::RunError;
use crate::gate::contest::Decision;
use crate::gate::decide::Verdict;
use crate::gate::evidence::Delta;
use crate::gate::martingale::Discoveries;
use crate::observer::Notice;
use crate::report::{ClusterRow, DiagnoseRow, PatchRow, kind};
use crate::rollouts::{Arm, draw};
use crate::workshop::Workshop;

/// A harness version with its document.
#[derive(Clone, Debug)]
pub struct Head {
    /// The version.
    pub version: Version,
    /// The document.
    pub harness: Arc<Harness>,
}

impl Head {
    /// `v3`.
    pub fn name(&self) -> String {
        self.version.name.to_string()
    }
}

/// What the run has tried so far.
#[derive(Debug)]
pub struct History {
    /// Patches that the gate decided on.
    pub tried: Vec<TriedPatch>,
    /// The gate's count of decisions and acceptances, weights included.
    pub discoveries: Discoveries,
}

/// A candidate in one cycle.
struct Candidate {
    proposal: Proposal,
    /// Highest severity of the cluster it answers.
    severity: String,
    harness: Arc<Harness>,
    number: u32,
}

impl Workshop {
    /// One round's harness loop: cycles until the configured number, or until two in a row accept
    /// nothing or there is nothing left to propose.
    ///
    /// # Errors
    /// When the run is to stop or a part fails; what was finished is stored.
    pub async fn harness_loop(
        &self,
        round: u32,
        mut head: Head,
        policy: &Arc<dyn Policy>,
        history: &mut History,
    ) -> Result<Head, RunError> {
        let config = self.loaded.config.harness_loop;
        let mut fruitless = 0;
        let mut number = 0;
        for iteration in 1..=config.iterations {
            let proposals = self
                .diagnose(round, iteration, &head, policy, &history.tried)
                .await?;
            if proposals.is_empty() {
                self.line(format!(
                    "round {round} cycle {iteration}: nothing left to propose for {}",
                    head.name()
                ));
                break;
            }
            let mut candidates = Vec::new();
            for (proposal, severity, harness) in proposals.into_iter().take(config.candidates) {
                number += 1;
                let harness = Arc::new(harness);
                candidates.push(Candidate {
                    proposal,
                    severity,
                    harness,
                    number,
                });
            }
            let next = self
                .decide(round, iteration, &head, policy, &candidates, history)
                .await?;
            match next {
                Some(next) => {
                    head = next;
                    fruitless = 0;
                }
                None => fruitless += 1,
            }
            if fruitless == 2 {
                break;
            }
        }
        Ok(head)
    }

    /// Roll out on evolve problems and turn failures into valid, leak-free patches.
    async fn diagnose(
        &self,
        round: u32,
        iteration: u32,
        head: &Head,
        policy: &Arc<dyn Policy>,
        history: &[TriedPatch],
    ) -> Result<Vec<(Proposal, String, Harness)>, RunError> {
        let seed = self
            .seed()
            .derive("diagnose")
            .derive(round)
            .derive(iteration);
        let count = self.loaded.config.harness_loop.diagnose_tasks;
        let trials = draw(&self.splits.evolve, count, seed);
        let title = format!(
            "round {round} · cycle {iteration} · diagnose {}",
            head.name()
        );
        let rolled = self
            .roll(&title, policy, &head.harness, Split::Evolve, &trials)
            .await?;
        let trajectories: Vec<Trajectory> = rolled.into_iter().flatten().collect();
        let critic = RulesCritic;
        let diagnosis = critic.diagnose(&head.harness, &trajectories);
        let clusters = cluster(&diagnosis.records, &trajectories);
        let row = DiagnoseRow {
            version: head.name(),
            rollouts: trajectories.len(),
            failed: diagnosis.failures,
            dropped_records: diagnosis.dropped,
            clusters: clusters
                .iter()
                .map(|c| ClusterRow {
                    root_cause: c.root_cause.to_string(),
                    harness_dim: c.harness_dim.to_string(),
                    rule: c.rule.clone(),
                    trajectories: c.size,
                })
                .collect(),
        };
        let key = self.key(
            kind::DIAGNOSE,
            &[
                &seed.value().to_string(),
                &head.version.commit.to_string(),
                policy.id().as_str(),
            ],
        );
        self.store
            .record_step(&key, kind::DIAGNOSE, round, &row, unix_seconds())
            .await?;
        let causes: Vec<String> = row
            .clusters
            .iter()
            .take(3)
            .map(|c| format!("{} ×{}", c.rule, c.trajectories))
            .collect();
        self.line(format!(
            "round {round} cycle {iteration}: {} fails {} of {}; {}",
            head.name(),
            row.failed,
            row.rollouts,
            if causes.is_empty() {
                "no common cause".into()
            } else {
                causes.join(", ")
            }
        ));
        let held_out = self.splits.gate.iter().chain(&self.splits.test);
        let held_out: Vec<String> = held_out.flat_map(Task::telling_texts).collect();
        let guard = LeakGuard::new(held_out.iter().map(String::as_str));
        let mut proposals = Vec::new();
        for proposal in critic.propose(&head.harness, &clusters, history) {
            if let Err(leak) = guard.check(&proposal.patch) {
                self.notice(Notice::Warning(format!("patch refused: {leak}")));
                continue;
            }
            // The critic proposes what applies; a patch that does not is a fault worth hearing of.
            match proposal.patch.apply(&head.harness) {
                Ok(harness) => {
                    let severity = clusters
                        .iter()
                        .filter(|c| c.rule == proposal.rule)
                        .map(|c| c.severity)
                        .max()
                        .map(|severity| format!("{severity:?}").to_lowercase())
                        .unwrap_or_default();
                    proposals.push((proposal, severity, harness));
                }
                Err(error) => {
                    self.notice(Notice::Warning(format!("patch does not apply: {error}")))
                }
            }
        }
        Ok(proposals)
    }

    /// Let the gate decide on candidates and commit the one it accepts.
    async fn decide(
        &self,
        round: u32,
        iteration: u32,
        head: &Head,
        policy: &Arc<dyn Policy>,
        candidates: &[Candidate],
        history: &mut History,
    ) -> Result<Option<Head>, RunError> {
        let arm = |harness: &Arc<Harness>| Arm {
            policy: Arc::clone(policy),
            harness: Arc::clone(harness),
        };
        let arms: Vec<Arm> = candidates.iter().map(|c| arm(&c.harness)).collect();
        let place = format!("round {round} · cycle {iteration}");
        let decisions = self
            .contest(&place, &arm(&head.harness), &arms, &mut history.discoveries)
            .await?;
        let mut next = None;
        for (candidate, decision) in candidates.iter().zip(&decisions) {
            let is_accepted = decision.verdict == Verdict::Accepted;
            if is_accepted {
                next = Some(self.commit(round, head, policy, candidate, decision)?);
            }
            let version = next.as_ref().filter(|_| is_accepted);
            self.conclude(round, iteration, head, policy, candidate, decision, version)
                .await?;
            if decision.verdict != Verdict::Deferred {
                history.tried.push(TriedPatch {
                    patch: candidate.proposal.patch.clone(),
                    policy: policy.id().clone(),
                    is_accepted,
                });
            }
        }
        Ok(next)
    }

    fn commit(
        &self,
        round: u32,
        head: &Head,
        policy: &Arc<dyn Policy>,
        candidate: &Candidate,
        decision: &Decision,
    ) -> Result<Head, RunError> {
        let totals = decision.totals();
        let acceptance = Acceptance {
            decision: self.record(round, policy, candidate, decision)?,
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

    /// A decision as the registry keeps it.
    fn record(
        &self,
        round: u32,
        policy: &Arc<dyn Policy>,
        candidate: &Candidate,
        decision: &Decision,
    ) -> Result<registry::Decision, RunError> {
        let Proposal {
            patch,
            root_cause,
            summary,
            ..
        } = &candidate.proposal;
        Ok(registry::Decision {
            run: RunId::new(self.run_name())?,
            round,
            model: ModelId::new(policy.id().as_str())?,
            root_cause: root_cause.to_string(),
            severity: candidate.severity.clone(),
            evidence: summary.clone(),
            patch: patch.clone(),
            gate_mode: self.loaded.config.gate.mode.name().to_owned(),
            gate_detail: decision.detail(),
            unix_seconds: u64::try_from(unix_seconds()).unwrap_or(0),
        })
    }

    /// Store a decision, keep a candidate that was turned down in the registry, and tell.
    #[expect(clippy::too_many_arguments, reason = "the facts of a decision")]
    async fn conclude(
        &self,
        round: u32,
        iteration: u32,
        head: &Head,
        policy: &Arc<dyn Policy>,
        candidate: &Candidate,
        decision: &Decision,
        next: Option<&Head>,
    ) -> Result<(), RunError> {
        let Proposal {
            patch, root_cause, ..
        } = &candidate.proposal;
        let totals = decision.totals();
        let what = format!("{} {}", patch.dimension, patch.summary);
        match (&decision.verdict, decision.verdict.objection()) {
            (Verdict::Inconclusive { reason }, _) => {
                self.line(format!("  inconclusive: {what} ({reason})"));
            }
            (_, Some(objection)) => self.line(format!("  rejected: {what} ({objection})")),
            (Verdict::Accepted, None) => self.line(format!(
                "  accepted {}: {what} ({})",
                next.map(Head::name).unwrap_or_default(),
                decision.figures()
            )),
            (_, None) => self.line(format!("  deferred: {what} (a better candidate was taken)")),
        }
        if let Some(objection) = decision.verdict.objection() {
            let rejection = Rejection {
                decision: self.record(round, policy, candidate, decision)?,
                verdict: objection,
                delta_in: Some(trailer(totals.delta_in)),
                delta_out: Some(trailer(totals.delta_out)),
            };
            self.with_registry(|registry| {
                registry.record_rejected(&head.version, &candidate.harness, &rejection)
            })?;
        }
        let row = PatchRow {
            round,
            iteration,
            candidate: candidate.number,
            parent: head.name(),
            version: next.map(Head::name),
            dimension: patch.dimension.to_string(),
            summary: patch.summary.clone(),
            root_cause: root_cause.to_string(),
            ops: serde_json::to_value(&patch.ops).unwrap_or_default(),
            stages: decision.stages.clone(),
            evidence: decision.evidence.clone(),
            rollouts: decision.rollouts,
            verdict: decision.verdict.clone(),
            policy: policy.id().to_string(),
        };
        let place = format!("{round}.{iteration}.{}", candidate.number);
        let parts = [
            &place,
            &candidate.harness.id().to_hex(),
            policy.id().as_str(),
        ];
        let key = self.key(kind::PATCH, &parts);
        Ok(self
            .store
            .record_step(&key, kind::PATCH, round, &row, unix_seconds())
            .await?)
    }

    /// The registry's head with its document.
    ///
    /// # Errors
    /// When the registry can't be read.
    pub fn head(&self, spec: &str) -> Result<Head, RunError> {
        let (entry, harness) = self.with_registry(|registry| registry.load(spec))?;
        let version = match entry {
            Entry::Version(version) => version,
            Entry::Rejected(_) => self.with_registry(registry::Registry::head)?,
        };
        Ok(Head {
            version,
            harness: Arc::new(harness),
        })
    }
}

/// A delta as the registry keeps it.
pub(crate) fn trailer(delta: Delta) -> registry::Delta {
    registry::Delta {
        estimate: delta.estimate,
        low: delta.low,
        high: delta.high,
        confidence: 0.95,
        gained: delta.gained,
        lost: delta.lost,
        pairs: delta.pairs,
    }
}
