//! Trained weights and the policies that decode them, here or behind a server.

use std::path::PathBuf;
use std::sync::Arc;

use model::decode::EngineOptions;
use rollout::policy::{LocalPolicy, LocalPolicyOptions, Policy, PolicyId, Renderer};

use super::Workshop;
use crate::base_model::BaseModel;
use crate::config::PolicyConfig;
use crate::engines::Decoder;
use crate::error::RunError;
use crate::serving::{self, Reloading};
use crate::trained_weights::{self, TrainedWeights};

/// Policies kept ready: the incumbent weights and the ones they are compared with.
const READY_POLICIES: usize = 2;

/// A policy kept ready, by its trained weights.
pub(super) type Ready = (Option<String>, Arc<dyn Policy>);

impl Workshop {
    /// Where the trained weights `id` are kept.
    pub fn weights_directory(&self, id: &str) -> PathBuf {
        trained_weights::directory_of(&self.directory, id)
    }

    /// Load kept weights.
    ///
    /// # Errors
    /// When they are missing or damaged.
    pub(crate) fn weights(&self, id: &str) -> Result<TrainedWeights, RunError> {
        let model = &self.require_base()?.model;
        TrainedWeights::kept(&self.weights_directory(id), &model.config, model.device())
    }

    /// Let go of a full set of weights, on the disk and in memory. Adapters, which are small, stay.
    ///
    /// # Errors
    /// When the directory can't be removed.
    pub(crate) fn drop_full_weights(&self, id: &str) -> Result<(), RunError> {
        let path = trained_weights::full_directory(&self.directory, id);
        if !path.exists() {
            return Ok(());
        }
        std::fs::remove_dir_all(&path).map_err(|source| RunError::Io { path, source })?;
        let mut ready = self
            .policies
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        ready.retain(|(known, _)| known.as_deref() != Some(id));
        Ok(())
    }

    /// The base model.
    ///
    /// # Errors
    /// When the run has none.
    pub fn require_base(&self) -> Result<&BaseModel, RunError> {
        self.base.as_ref().ok_or_else(|| RunError::NoModel {
            path: PathBuf::from(&self.loaded.config.model.path),
            is_known: false,
        })
    }

    /// The policy with the trained weights `id`, or the plain base model.
    ///
    /// # Errors
    /// When the weights, the engine or the server can't be used.
    pub async fn policy(&self, id: Option<&str>) -> Result<Arc<dyn Policy>, RunError> {
        let key = id.map(str::to_owned);
        {
            let mut ready = self
                .policies
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some(at) = ready.iter().position(|(known, _)| *known == key) {
                let found = ready.remove(at);
                let policy = Arc::clone(&found.1);
                ready.push(found);
                return Ok(policy);
            }
            // The one used longest ago goes before the new one takes memory.
            if ready.len() >= READY_POLICIES {
                ready.remove(0);
            }
        }
        let policy: Arc<dyn Policy> = match &self.loaded.config.policy {
            PolicyConfig::Local { cache_mib } => Arc::new(self.local_policy(id, *cache_mib)?),
            PolicyConfig::Openai { .. } => self.served_policy(id).await?,
        };
        let mut ready = self
            .policies
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        ready.push((key, Arc::clone(&policy)));
        Ok(policy)
    }

    fn local_policy(&self, id: Option<&str>, cache_mib: usize) -> Result<LocalPolicy, RunError> {
        let base = self.require_base()?;
        let weights = id.map(|id| self.weights(id)).transpose()?;
        // The harness says how long a conversation may be; here the model and its memory do.
        let options = EngineOptions {
            cache_mib,
            context: usize::MAX,
            ..EngineOptions::default()
        };
        let Decoder { engine, adapter } = self.engines.open(base, weights, options)?;
        let options = LocalPolicyOptions {
            id: local_id(base, id),
            adapter,
            stop_tokens: base.stop_tokens.clone(),
        };
        let renderer = Renderer::new(&base.tokenizer, &base.template, base.variables.clone())?;
        Ok(LocalPolicy::new(
            engine,
            Arc::clone(&base.tokenizer),
            renderer,
            options,
        ))
    }

    async fn served_policy(&self, id: Option<&str>) -> Result<Arc<dyn Policy>, RunError> {
        let directory = id.map(|id| trained_weights::adapter_directory(&self.directory, id));
        let adapter = id.zip(directory.as_deref());
        let (policy, adapter) =
            serving::policy(&self.loaded.config, adapter, self.environment.key)?;
        let policy: Arc<dyn Policy> = Arc::new(policy);
        let Some(adapter) = adapter else {
            return Ok(policy);
        };
        self.load(&adapter).await?;
        Ok(Arc::new(Reloading::new(policy, adapter)))
    }
}

/// Identity of the base model, or of the trained weights `id`, decoded in this process.
pub(crate) fn local_id(base: &BaseModel, id: Option<&str>) -> PolicyId {
    PolicyId::new(match id {
        Some(id) => format!("{}+{id}", base.id),
        None => base.id.clone(),
    })
}
