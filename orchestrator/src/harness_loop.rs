//! The harness loop: roll out, diagnose, propose, decide, commit.

use std::sync::Arc;

use critic::{Critic, LeakGuard, Proposal, RulesCritic, TriedPatch, cluster};
use harness::Harness;
use registry::{Acceptance, Decision, Entry, ModelId, Rejection, RunId, Version};
use rollout::policy::Policy;
use rollout::task::{Split, Task};
use rollout::trajectory::Trajectory;

use crate::clock::unix_seconds;
use crate::config::GateMode;
use crate::error::RunError;
use crate::gate::decide::{StageResult, Verdict, verdict};
use crate::gate::evidence::{Delta, Pair};
use crate::gate::plan::{Stage, Trial, stages};
use crate::observer::Notice;
use crate::report::{ClusterRow, DiagnoseRow, PatchRow, kind};
use crate::seed::Seed;
use crate::workshop::Workshop;

/// Lowest temperature of the rollout that chooses a decision's problems.
const CLASSIFY_TEMPERATURE: f64 = 0.7;
/// Most samples of one problem in a stage, where a side has few problems.
const MAX_SAMPLES: usize = 4;

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

/// Patches measured so far in the run.
pub type History = Vec<TriedPatch>;

impl GateMode {
    /// Stages of a decision.
    pub fn stages(self) -> usize {
        match self {
            Self::Paper => 1,
            Self::Confirmed => 2,
        }
    }

    /// As written in trailers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Confirmed => "confirmed",
        }
    }
}

/// A candidate in one cycle.
struct Candidate {
    proposal: Proposal,
    /// Highest severity of the cluster it answers.
    severity: String,
    harness: Arc<Harness>,
    number: u32,
    measured: Vec<StageResult>,
    verdict: Option<Verdict>,
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
                .diagnose(round, iteration, &head, policy, history)
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
                    measured: Vec::new(),
                    verdict: None,
                });
            }
            let next = self
                .decide(round, iteration, &head, policy, &mut candidates)
                .await?;
            for candidate in &candidates {
                let is_accepted = candidate.verdict == Some(Verdict::Accepted);
                if is_accepted || matches!(candidate.verdict, Some(Verdict::Rejected { .. })) {
                    let (patch, policy) = (candidate.proposal.patch.clone(), policy.id().clone());
                    history.push(TriedPatch {
                        patch,
                        policy,
                        is_accepted,
                    });
                }
            }
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
        history: &History,
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
        let trajectories = self
            .roll(&title, policy, &head.harness, Split::Evolve, &trials)
            .await?;
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
        let guard = LeakGuard::new(held_out.map(|task| task.problem.as_str()));
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

    /// Measure candidates and commit the best one that holds in every stage.
    async fn decide(
        &self,
        round: u32,
        iteration: u32,
        head: &Head,
        policy: &Arc<dyn Policy>,
        candidates: &mut [Candidate],
    ) -> Result<Option<Head>, RunError> {
        let config = self.loaded.config.harness_loop;
        let title = |what: &str| format!("round {round} · cycle {iteration} · {what}");
        let plan = self
            .gate_plan(&title("classify"), policy, &head.harness, config.gate)
            .await?;
        let total = plan.len();
        let first = &plan[0];
        let count = candidates.len();
        let mut harnesses = vec![Arc::clone(&head.harness)];
        harnesses.extend(candidates.iter().map(|c| Arc::clone(&c.harness)));
        let what = title(&format!("gate, {} and {count} candidates", head.name()));
        let arms = self
            .roll_arms(&what, policy, &harnesses, Split::Gate, &first.trials())
            .await?;
        for (candidate, arm) in candidates.iter_mut().zip(&arms[1..]) {
            candidate.measured.push(compare(first, &arms[0], arm));
            if !candidate.measured[0].holds() {
                candidate.verdict = verdict(&candidate.measured, total);
            }
        }
        // Best first; the first that holds in the remaining stages too is taken.
        let mut order: Vec<usize> = (0..count)
            .filter(|i| candidates[*i].measured[0].holds())
            .collect();
        order.sort_by_key(|i| (-candidates[*i].measured[0].net(), *i));
        let mut winner = None;
        for index in order {
            for (number, stage) in plan.iter().enumerate().skip(1) {
                let what = title(&format!(
                    "gate stage {}, {} and candidate",
                    number + 1,
                    head.name()
                ));
                let pair = [
                    Arc::clone(&head.harness),
                    Arc::clone(&candidates[index].harness),
                ];
                let arms = self
                    .roll_arms(&what, policy, &pair, Split::Gate, &stage.trials())
                    .await?;
                candidates[index]
                    .measured
                    .push(compare(stage, &arms[0], &arms[1]));
                if !candidates[index].measured[number].holds() {
                    break;
                }
            }
            candidates[index].verdict = verdict(&candidates[index].measured, total);
            if candidates[index].verdict == Some(Verdict::Accepted) {
                winner = Some(index);
                break;
            }
        }
        for candidate in candidates.iter_mut() {
            candidate.verdict.get_or_insert(Verdict::Deferred);
        }
        let next = winner
            .map(|index| self.commit(round, head, policy, &candidates[index]))
            .transpose()?;
        for candidate in candidates.iter() {
            let version = next
                .as_ref()
                .filter(|_| candidate.verdict == Some(Verdict::Accepted));
            self.conclude(round, iteration, head, policy, candidate, version)
                .await?;
        }
        Ok(next)
    }

    /// Problems and seeds of a decision's stages, from one earlier rollout of the incumbent.
    ///
    /// That rollout is sampled at [`CLASSIFY_TEMPERATURE`] or more. At a low temperature a fresh
    /// rollout repeats the one that chose the problems: the incumbent's arm would stand at 0% of
    /// V_in and 100% of V_out by construction, and anything that answers differently would fail
    /// δ_out ≥ 0 however much better it is.
    pub(crate) async fn gate_plan(
        &self,
        title: &str,
        policy: &Arc<dyn Policy>,
        harness: &Arc<Harness>,
        mode: GateMode,
    ) -> Result<Vec<Stage>, RunError> {
        let seed = self
            .seed()
            .derive("gate")
            .derive(harness.id().to_hex())
            .derive(policy.id());
        let trials = draw(
            &self.splits.gate,
            self.splits.gate.len(),
            seed.derive("classify"),
        );
        let temperature = harness.middleware.sampling.temperature;
        let mut warm = Harness::clone(harness);
        warm.middleware.sampling.temperature = temperature.max(CLASSIFY_TEMPERATURE);
        let classified = self
            .roll(title, policy, &Arc::new(warm), Split::Gate, &trials)
            .await?;
        let outcomes: Vec<(Task, bool)> = trials
            .into_iter()
            .zip(&classified)
            .map(|(trial, trajectory)| (trial.task, trajectory.verdict.correct))
            .collect();
        let per_side = self.loaded.config.harness_loop.gate_tasks;
        // Greedy decoding gives the same reply every time; more samples would say nothing more.
        let samples = if temperature > 0.0 { MAX_SAMPLES } else { 1 };
        Ok(stages(&outcomes, mode.stages(), per_side, samples, seed))
    }

    fn commit(
        &self,
        round: u32,
        head: &Head,
        policy: &Arc<dyn Policy>,
        candidate: &Candidate,
    ) -> Result<Head, RunError> {
        let decision = self.decision(round, policy, candidate)?;
        let (delta_in, delta_out) = pooled(&candidate.measured);
        let acceptance = Acceptance {
            decision,
            delta_in: trailer(delta_in),
            delta_out: trailer(delta_out),
        };
        let version = self.with_registry(|registry| {
            registry.commit_patch(&head.version, &candidate.harness, &acceptance)
        })?;
        Ok(Head {
            version,
            harness: Arc::clone(&candidate.harness),
        })
    }

    fn decision(
        &self,
        round: u32,
        policy: &Arc<dyn Policy>,
        candidate: &Candidate,
    ) -> Result<Decision, RunError> {
        let Proposal {
            patch,
            root_cause,
            summary,
            ..
        } = &candidate.proposal;
        Ok(Decision {
            run: RunId::new(self.run_name())?,
            round,
            model: ModelId::new(policy.id().as_str())?,
            root_cause: root_cause.to_string(),
            severity: candidate.severity.clone(),
            evidence: summary.clone(),
            patch: patch.clone(),
            gate_mode: self.loaded.config.harness_loop.gate.name().to_owned(),
            gate_detail: describe(&candidate.measured),
            unix_seconds: u64::try_from(unix_seconds()).unwrap_or(0),
        })
    }

    /// Store a decision, keep a rejected candidate in the registry, and tell.
    async fn conclude(
        &self,
        round: u32,
        iteration: u32,
        head: &Head,
        policy: &Arc<dyn Policy>,
        candidate: &Candidate,
        next: Option<&Head>,
    ) -> Result<(), RunError> {
        let Candidate {
            proposal,
            measured,
            number,
            ..
        } = candidate;
        let verdict = candidate.verdict.clone().unwrap_or(Verdict::Deferred);
        let Proposal {
            patch, root_cause, ..
        } = proposal;
        let (delta_in, delta_out) = pooled(measured);
        let what = format!("{} {}", patch.dimension, patch.summary);
        match &verdict {
            Verdict::Accepted => self.line(format!(
                "  accepted {}: {what} (δ_in {}, δ_out {})",
                next.map(Head::name).unwrap_or_default(),
                show(&delta_in),
                show(&delta_out)
            )),
            Verdict::Rejected { stage, reason } => {
                self.line(format!("  rejected: {what} (stage {stage}: {reason})"));
                let rejection = Rejection {
                    decision: self.decision(round, policy, candidate)?,
                    verdict: format!("stage {stage}: {reason}"),
                    delta_in: Some(trailer(delta_in)),
                    delta_out: Some(trailer(delta_out)),
                };
                self.with_registry(|registry| {
                    registry.record_rejected(&head.version, &candidate.harness, &rejection)
                })?;
            }
            Verdict::Deferred => {
                self.line(format!("  deferred: {what} (a better candidate was taken)"))
            }
        }
        let ops = serde_json::to_value(&patch.ops).unwrap_or_default();
        let row = PatchRow {
            round,
            iteration,
            candidate: *number,
            parent: head.name(),
            version: next.map(Head::name),
            dimension: patch.dimension.to_string(),
            summary: patch.summary.clone(),
            root_cause: root_cause.to_string(),
            ops,
            stages: measured.clone(),
            verdict,
            policy: policy.id().to_string(),
        };
        let place = format!("{round}.{iteration}.{number}");
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

/// `count` problems drawn by `seed`, each with a seed of its own.
pub(crate) fn draw(tasks: &[Task], count: usize, seed: Seed) -> Vec<Trial> {
    let mut drawn: Vec<Trial> = tasks
        .iter()
        .map(|task| Trial {
            task: task.clone(),
            seed: seed.derive(task.content_hash().as_str()).value(),
        })
        .collect();
    // A problem's seed is as good a random key as any.
    drawn.sort_by_key(|trial| trial.seed);
    drawn.truncate(count);
    drawn
}

/// Pair both arms of a stage.
pub(crate) fn compare(
    stage: &Stage,
    incumbent: &[Trajectory],
    candidate: &[Trajectory],
) -> StageResult {
    let pairs: Vec<Pair> = incumbent
        .iter()
        .zip(candidate)
        .map(|(a, b)| Pair {
            incumbent: a.verdict.correct,
            candidate: b.verdict.correct,
        })
        .collect();
    let (failed, solved) = pairs.split_at(stage.failed.len().min(pairs.len()));
    StageResult {
        delta_in: Delta::of(failed),
        delta_out: Delta::of(solved),
    }
}

/// Both deltas over all stages together.
pub(crate) fn pooled(stages: &[StageResult]) -> (Delta, Delta) {
    let pool = |side: fn(&StageResult) -> Delta| {
        let mut pairs = Vec::new();
        for delta in stages.iter().map(side) {
            let same = delta.pairs - delta.gained - delta.lost;
            let repeat = |count: u32, incumbent, candidate| {
                std::iter::repeat_n(
                    Pair {
                        incumbent,
                        candidate,
                    },
                    count as usize,
                )
            };
            pairs.extend(repeat(delta.gained, false, true));
            pairs.extend(repeat(delta.lost, true, false));
            pairs.extend(repeat(same, true, true));
        }
        Delta::of(&pairs)
    };
    (pool(|s| s.delta_in), pool(|s| s.delta_out))
}

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

pub(crate) fn show(delta: &Delta) -> String {
    if delta.pairs == 0 {
        return "nothing to compare".into();
    }
    format!(
        "{:+.1} [{:+.1}, {:+.1}]",
        100.0 * delta.estimate,
        100.0 * delta.low,
        100.0 * delta.high
    )
}

fn describe(stages: &[StageResult]) -> String {
    let part = |d: &Delta| format!("+{} −{} of {}", d.gained, d.lost, d.pairs);
    stages
        .iter()
        .enumerate()
        .map(|(i, s)| {
            format!(
                "stage {}: in {}, out {}",
                i + 1,
                part(&s.delta_in),
                part(&s.delta_out)
            )
        })
        .collect::<Vec<_>>()
        .join("; ")
}
