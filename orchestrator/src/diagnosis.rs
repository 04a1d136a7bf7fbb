//! Diagnosis: rollouts on evolve problems, and what the critic makes of their failures.

use std::sync::Arc;

use critic::{Cluster, Critic, Proposal, RulesCritic, TriedPatch, cluster};
use rollout::policy::Policy;
use rollout::task::Split;
use rollout::trajectory::Trajectory;

use crate::error::RunError;
use crate::harness_loop::Head;
use crate::report::{ClusterRow, DiagnoseRow, Outcomes, kind};
use crate::rollouts::{Trial, draw};
use crate::seed::Seed;
use crate::workshop::Workshop;

/// One diagnosis: the rollouts, and what the critic makes of them.
pub(crate) struct Diagnosis {
    pub(crate) trials: Vec<Trial>,
    pub(crate) trajectories: Vec<Trajectory>,
    clusters: Vec<Cluster>,
    pub(crate) proposals: Vec<Proposal>,
    pub(crate) row: DiagnoseRow,
    /// Journal key of the row.
    pub(crate) key: String,
}

impl Diagnosis {
    /// Highest severity of what `rule` found, in lower case.
    pub(crate) fn severity_of(&self, rule: &str) -> String {
        let clusters = self.clusters.iter().filter(|c| c.rule == rule);
        clusters
            .map(|c| c.severity)
            .max()
            .map(|severity| format!("{severity:?}").to_lowercase())
            .unwrap_or_default()
    }
}

impl Workshop {
    /// What a cycle is diagnosed on, and the seed that the trials have theirs from.
    pub(crate) fn to_diagnose(&self, round: u32, iteration: u32) -> (Vec<Trial>, Seed) {
        let seed = self.seed().derive("diagnose");
        let seed = seed.derive(round).derive(iteration);
        let count = self.loaded.config.harness_loop.diagnose_tasks;
        (draw(&self.splits.evolve, count, seed), seed)
    }

    /// Roll out on evolve problems and ask the critic about the failures.
    ///
    /// # Errors
    /// When the run is to stop or a part fails; what was finished is stored.
    pub(crate) async fn diagnose(
        &self,
        round: u32,
        iteration: u32,
        head: &Head,
        policy: &Arc<dyn Policy>,
        history: &[TriedPatch],
    ) -> Result<Diagnosis, RunError> {
        let (trials, seed) = self.to_diagnose(round, iteration);
        let title = format!(
            "round {round} · cycle {iteration} · diagnose {}",
            head.name()
        );
        let rolled = self
            .roll(&title, policy, &head.harness, Split::Evolve, &trials)
            .await?;
        // What was left out has no part in what follows.
        let (trials, trajectories): (Vec<Trial>, Vec<Trajectory>) = trials
            .into_iter()
            .zip(rolled)
            .filter_map(|(trial, rolled)| rolled.map(|trajectory| (trial, trajectory)))
            .unzip();
        let critic = RulesCritic {
            follows_grammars: policy.follows_grammars(),
        };
        let mut diagnosis = critic.diagnose(&head.harness, &trajectories);
        let mut clusters = cluster(&diagnosis.records, &trajectories);
        let critique = self
            .critique(round, head, seed, &trajectories, &diagnosis, &clusters)
            .await?
            .unwrap_or_default();
        if !critique.records.is_empty() {
            diagnosis.records.extend(critique.records.iter().cloned());
            clusters = cluster(&diagnosis.records, &trajectories);
            critique.foretell(&mut clusters);
        }
        let Outcomes {
            rollouts,
            failed,
            undecided,
            causes,
        } = Outcomes::of(&trajectories, &diagnosis.records, diagnosis.failures);
        let row = DiagnoseRow {
            round,
            version: head.name(),
            policy: Some(policy.id().to_string()),
            rollouts,
            failed,
            undecided,
            causes,
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
            disagreements: critique.disagreements,
            refused: Vec::new(),
        };
        let key = self.key(
            kind::DIAGNOSE,
            &[
                &seed.value().to_string(),
                &head.version.commit.to_string(),
                policy.id().as_str(),
            ],
        );
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
        let proposals = critic.propose(&head.harness, &clusters, history);
        Ok(Diagnosis {
            trials,
            trajectories,
            clusters,
            proposals,
            row,
            key,
        })
    }
}
