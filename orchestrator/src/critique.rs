//! Asking the critic's language model, once for every diagnosis.

use std::time::{Duration, Instant};

use critic::llm::prompts_hash;
use critic::{Cluster, Critique, Diagnosis, LlmCritic, LlmOptions};
use rollout::trajectory::Trajectory;

use crate::clock::unix_seconds;
use crate::config::LlmCriticConfig;
use crate::counted::counted;
use crate::error::RunError;
use crate::harness_loop::Head;
use crate::observer::{Notice, Phase};
use crate::report::kind;
use crate::seed::Seed;
use crate::workshop::Workshop;

/// Time between looks at whether to stop, while the model writes.
const STOP_INTERVAL: Duration = Duration::from_millis(200);

impl Workshop {
    /// What the critic's language model says about a diagnosis; none where it has no model. Asked
    /// again, it is taken from the journal, also if it was skipped: what came after it built on
    /// that.
    ///
    /// # Errors
    /// When the run is to stop, or the store fails.
    pub(crate) async fn critique(
        &self,
        round: u32,
        head: &Head,
        seed: Seed,
        trajectories: &[Trajectory],
        diagnosis: &Diagnosis,
        clusters: &[Cluster],
    ) -> Result<Option<Critique>, RunError> {
        let Some(chat) = &self.chat else {
            return Ok(None);
        };
        let mut hasher = blake3::Hasher::new();
        for trajectory in trajectories {
            hasher.update(trajectory.id.as_str().as_bytes());
        }
        let rollouts = hasher.finalize().to_hex().to_string();
        let parts = [
            chat.name(),
            &prompts_hash(),
            &head.harness.id().to_hex(),
            &rollouts,
            &seed.value().to_string(),
        ];
        let key = self.key(kind::CRITIQUE, &parts);
        if let Some(known) = self.store.step::<Critique>(&key).await? {
            return Ok(Some(known));
        }
        if let Some(reason) = self.stop.reason_to_save() {
            return Err(RunError::Stopped { reason });
        }
        let started = Instant::now();
        self.notice(Notice::Began(Phase {
            title: format!("round {round} · critique by {}", chat.name()),
            total: 1,
            unit: "critiques",
        }));
        let llm = self.loaded.config.critic.llm.as_ref();
        let critic = LlmCritic {
            chat: chat.as_ref(),
            options: llm.map_or_else(LlmOptions::default, LlmCriticConfig::options),
            seed: seed.derive("critique").value(),
        };
        let asking = critic.critique(&head.harness, trajectories, &diagnosis.records, clusters);
        let critique = tokio::select! {
            critique = asking => critique,
            reason = self.stopped() => return Err(RunError::Stopped { reason }),
        };
        let tokens = critique.cost.usage.completion_tokens;
        self.notice(Notice::Advanced {
            by: 1,
            tokens: Some(tokens),
            figure: counted(critique.records.len(), "record"),
        });
        self.notice(Notice::Ended {
            took: started.elapsed(),
        });
        if let Some(reason) = &critique.skipped {
            let text = format!("the critic's model is passed over: {reason}");
            self.notice(Notice::Warning(text));
        }
        self.store
            .record_step(&key, kind::CRITIQUE, round, &critique, unix_seconds())
            .await?;
        self.stop.budget().criticised(&critique.cost.usage);
        Ok(Some(critique))
    }

    /// Comes back when the run is to stop.
    async fn stopped(&self) -> crate::stop::StopReason {
        loop {
            if let Some(reason) = self.stop.reason() {
                return reason;
            }
            tokio::time::sleep(STOP_INTERVAL).await;
        }
    }
}
