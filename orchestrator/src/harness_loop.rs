//! The harness loop: roll out, diagnose, propose, decide, commit.

use std::sync::Arc;

use critic::{Critic, Effect, Proposal, RulesCritic, TriedPatch};
use harness::{Change, Harness};
use registry::{Acceptance, Entry, ModelId, Rejection, RunId, Version};
use rollout::policy::Policy;
use rollout::task::Split;
use rollout::trajectory::Trajectory;

use crate::clock::unix_seconds;
use crate::diagnosis::Diagnosis;
use crate::error::RunError;
use crate::gate::decide::Verdict;
use crate::gate::decision::Decision;
use crate::gate::evidence::Delta;
use crate::history::History;
use crate::report::{Outcomes, PatchRow, Promise, kind};
use crate::rollouts::{Arm, Stretch};
use crate::screening::{Diagnosed, Screened};
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
            let incumbent = Arm {
                policy: Arc::clone(policy),
                harness: Arc::clone(&head.harness),
            };
            self.foresee(self.cycle(round, iteration, &incumbent)).await;
            let mut diagnosis = self
                .diagnose(round, iteration, &head, policy, &history.tried)
                .await?;
            let proposals = std::mem::take(&mut diagnosis.proposals);
            let diagnosed = Diagnosed {
                round,
                iteration,
                head: &head,
                policy,
                trials: &diagnosis.trials,
                trajectories: &diagnosis.trajectories,
            };
            let (screened, refused) = self
                .screen(&diagnosed, proposals, config.candidates, &mut history.tried)
                .await?;
            diagnosis.row.refused = refused;
            let (key, row) = (&diagnosis.key, &diagnosis.row);
            self.store
                .record_step(key, kind::DIAGNOSE, round, row, unix_seconds())
                .await?;
            if screened.is_empty() {
                self.foresee(Vec::new()).await;
                self.line(format!(
                    "round {round} cycle {iteration}: nothing left to propose for {}",
                    head.name()
                ));
                break;
            }
            let mut candidates = Vec::new();
            for Screened { proposal, harness } in screened {
                number += 1;
                candidates.push(Candidate {
                    severity: diagnosis.severity_of(&proposal.rule),
                    proposal,
                    harness,
                    number,
                });
            }
            let next = self
                .decide(
                    round,
                    iteration,
                    &head,
                    policy,
                    &candidates,
                    &diagnosis,
                    history,
                )
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

    /// What a cycle rolls out before anything of it is decided: the problems that it is diagnosed on, and
    /// the gate problems once, to tell V_in from V_out. Nothing where there is no such cycle.
    ///
    /// The latter isn't needed if nothing is left to propose and neither later cycles nor a decision on
    /// weights come back to this head. It is foreseen all the same: that is rare, costs one rollout of each
    /// gate problem and counts nowhere, whereas a diagnosis alone leaves most of a machine idle.
    pub(crate) fn cycle(&self, round: u32, iteration: u32, incumbent: &Arm) -> Vec<Stretch> {
        if iteration > self.loaded.config.harness_loop.iterations {
            return Vec::new();
        }
        let (trials, _) = self.to_diagnose(round, iteration);
        let diagnosis = Stretch {
            arm: incumbent.clone(),
            split: Split::Evolve,
            trials,
            round,
        };
        let (arm, trials) = self.classification(incumbent);
        let classification = Stretch {
            arm,
            split: Split::Gate,
            trials,
            round,
        };
        vec![diagnosis, classification]
    }

    /// Let the gate decide on candidates, commit the one it accepts, and look what became of the
    /// problems that the critic had seen.
    #[expect(clippy::too_many_arguments, reason = "the facts of a cycle")]
    async fn decide(
        &self,
        round: u32,
        iteration: u32,
        head: &Head,
        policy: &Arc<dyn Policy>,
        candidates: &[Candidate],
        diagnosis: &Diagnosis,
        history: &mut History,
    ) -> Result<Option<Head>, RunError> {
        let arm = |harness: &Arc<Harness>| Arm {
            policy: Arc::clone(policy),
            harness: Arc::clone(harness),
        };
        let arms: Vec<Arm> = candidates.iter().map(|c| arm(&c.harness)).collect();
        let place = format!("round {round} · cycle {iteration}");
        let is_unmeasured = |c: &Candidate| {
            let change = Change::of(&head.harness, &c.proposal.patch.ops);
            history.is_unmeasured(&change, policy.id())
        };
        let is_again = candidates.iter().any(is_unmeasured);
        let incumbent = arm(&head.harness);
        let discoveries = &mut history.discoveries;
        let decisions = self
            .contest(&place, &incumbent, &arms, discoveries, is_again)
            .await?;
        let mut next = None;
        for (candidate, decision) in candidates.iter().zip(&decisions) {
            let is_accepted = decision.verdict == Verdict::Accepted;
            if is_accepted {
                self.store.flush().await?;
                next = Some(self.commit(round, head, policy, candidate, decision)?);
            }
            let version = next.as_ref().filter(|_| is_accepted);
            let seen = match version {
                Some(version) => {
                    let coming = self.cycle(round, iteration + 1, &arm(&version.harness));
                    self.foresee(coming).await;
                    Some(self.effect(&place, version, policy, diagnosis).await?)
                }
                None => None,
            };
            let (effect, outcomes) = seen.unzip();
            let patch = candidate.proposal.patch.clone();
            let tried = TriedPatch::new(&head.harness, patch, policy.id().clone(), is_accepted);
            let is_open = match decision.verdict {
                Verdict::Deferred => false,
                _ => history.decided(tried, decision.is_unmeasured),
            };
            let row = PatchRow {
                round,
                iteration,
                effect,
                outcomes,
                is_open,
                ..row(candidate, decision, head, version, policy, diagnosis)
            };
            self.conclude(head, policy, candidate, decision, row)
                .await?;
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
            removes: None,
            gate_mode: self.loaded.config.gate.mode.name().to_owned(),
            gate_detail: decision.detail(),
            unix_seconds: u64::try_from(unix_seconds()).unwrap_or(0),
        })
    }

    /// What becomes of the diagnosed problems, seeds and all, under the new version, and what it fails of there.
    /// The rules alone say that: no cycle need come that diagnoses the version.
    async fn effect(
        &self,
        place: &str,
        version: &Head,
        policy: &Arc<dyn Policy>,
        diagnosis: &Diagnosis,
    ) -> Result<(Effect, Outcomes), RunError> {
        let title = format!("{place} · effect of {}", version.name());
        let Diagnosis {
            trials,
            trajectories,
            ..
        } = diagnosis;
        let after = self
            .roll(&title, policy, &version.harness, Split::Evolve, trials)
            .await?;
        let effect = Effect::of(trajectories, &after);
        let after: Vec<Trajectory> = after.into_iter().flatten().collect();
        let critic = RulesCritic {
            follows_grammars: policy.follows_grammars(),
        };
        let found = critic.diagnose(&version.harness, &after);
        let outcomes = Outcomes::of(&after, &found.records, found.failures);
        Ok((effect, outcomes))
    }

    /// Store a decision, keep a candidate that was turned down in the registry, and tell.
    async fn conclude(
        &self,
        head: &Head,
        policy: &Arc<dyn Policy>,
        candidate: &Candidate,
        decision: &Decision,
        row: PatchRow,
    ) -> Result<(), RunError> {
        let patch = &candidate.proposal.patch;
        let totals = decision.totals();
        let what = format!("{} {}", patch.dimension, patch.summary);
        match (&decision.verdict, decision.verdict.objection()) {
            (Verdict::Inconclusive { reason }, _) => {
                self.line(format!("  inconclusive: {what} ({reason})"));
            }
            (_, Some(objection)) => self.line(format!("  rejected: {what} ({objection})")),
            (Verdict::Accepted, None) => self.line(format!(
                "  accepted {}: {what} ({})",
                row.version.clone().unwrap_or_default(),
                decision.figures()
            )),
            (_, None) => self.line(format!("  deferred: {what} (a better candidate was taken)")),
        }
        if let Some(objection) = decision.verdict.objection() {
            let rejection = Rejection {
                decision: self.record(row.round, policy, candidate, decision)?,
                verdict: objection,
                delta_in: Some(trailer(totals.delta_in)),
                delta_out: Some(trailer(totals.delta_out)),
            };
            self.with_registry(|registry| {
                registry.record_rejected(&head.version, &candidate.harness, &rejection)
            })?;
        }
        let place = format!("{}.{}.{}", row.round, row.iteration, candidate.number);
        let parts = [
            &place,
            &candidate.harness.id().to_hex(),
            policy.id().as_str(),
        ];
        let key = self.key(kind::PATCH, &parts);
        Ok(self
            .store
            .record_step(&key, kind::PATCH, row.round, &row, unix_seconds())
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

/// A decision as the report shows it, but for its place, its effect, and whether it stays open.
fn row(
    candidate: &Candidate,
    decision: &Decision,
    head: &Head,
    version: Option<&Head>,
    policy: &Arc<dyn Policy>,
    diagnosis: &Diagnosis,
) -> PatchRow {
    let Proposal {
        patch,
        root_cause,
        predicted,
        ..
    } = &candidate.proposal;
    let seen = &diagnosis.row;
    let promise = || Promise::of(predicted, seen.failed, seen.solved(), &decision.totals());
    PatchRow {
        round: 0,
        iteration: 0,
        candidate: candidate.number,
        parent: head.name(),
        version: version.map(Head::name),
        dimension: patch.dimension.to_string(),
        summary: patch.summary.clone(),
        root_cause: root_cause.to_string(),
        ops: serde_json::to_value(&patch.ops).unwrap_or_default(),
        stages: decision.stages.clone(),
        evidence: decision.evidence.clone(),
        rollouts: decision.rollouts,
        verdict: decision.verdict.clone(),
        policy: policy.id().to_string(),
        predicted: predicted.clone(),
        promise: (decision.rollouts > 0).then(promise),
        effect: None,
        outcomes: None,
        is_open: false,
        spending: decision.spending(),
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
