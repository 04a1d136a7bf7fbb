//! An adapter that a server is to have: vLLM's runtime LoRA loading.
//!
//! A server that is started again has only its base model. So the policy under an adapter has it loaded
//! once more when the server refuses a request; the rollout that met the refusal is tried again like
//! any other ([`crate::rollouts`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::Client;
use rollout::policy::{BoxFuture, Completion, CompletionRequest, Policy, PolicyError, PolicyId};
use tokio::sync::Mutex;

use super::{ServerFault, client, list_models, not_reached, send};
use crate::error::RunError;

/// Characters of a server's words that are shown.
const SHOWN: usize = 200;

/// An adapter, and the server that is to have it.
pub(crate) struct ServedAdapter {
    client: Client,
    base_url: String,
    key: Option<String>,
    id: String,
    /// Absolute: the server has directories of its own.
    directory: PathBuf,
}

impl ServedAdapter {
    pub(super) fn new(
        base_url: &str,
        key: Option<&str>,
        id: &str,
        directory: &Path,
    ) -> Result<Self, RunError> {
        let absolute = std::path::absolute(directory).map_err(|source| RunError::Io {
            path: directory.to_owned(),
            source,
        })?;
        Ok(ServedAdapter {
            client: client(base_url)?,
            base_url: base_url.to_owned(),
            key: key.map(|key| key.trim().to_owned()),
            id: id.to_owned(),
            directory: absolute,
        })
    }

    /// Its name on the server.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The server's address.
    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Has the server load it, unless it has it.
    pub(crate) async fn load(&self) -> Result<(), ServerFault> {
        let key = self.key.as_deref();
        let known = match list_models(&self.client, &self.base_url, key).await {
            // A proxy may not pass the question on; what the server says to the request counts.
            Err(ServerFault::Refused { .. }) => Vec::new(),
            known => known?,
        };
        if known.contains(&self.id) {
            return Ok(());
        }
        let url = format!("{}/load_lora_adapter", self.base_url.trim_end_matches('/'));
        let body = serde_json::json!({"lora_name": self.id, "lora_path": self.directory});
        let response = send(self.client.post(url).json(&body), key).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let fault =
            ServerFault::of_status(&response, format!("load_lora_adapter answers {status}"));
        let ServerFault::Refused { reason } = fault else {
            return Err(fault);
        };
        let text = response.text().await.map_err(|e| not_reached(&e))?;
        // Another request was quicker.
        if text.contains("already been loaded") {
            return Ok(());
        }
        Err(ServerFault::Declined {
            reason: format!(
                "{reason}: {}; the server needs --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True",
                self.shown(&text)
            ),
        })
    }

    /// A text of the server's, short and without the key that some servers repeat.
    fn shown(&self, text: &str) -> String {
        let text = match self.key.as_deref() {
            Some(key) if !key.is_empty() => text.replace(key, "…"),
            _ => text.to_owned(),
        };
        text.chars().take(SHOWN).collect()
    }
}

/// The policy under an adapter.
pub(crate) struct Reloading {
    policy: Arc<dyn Policy>,
    adapter: Arc<ServedAdapter>,
    /// Held while the adapter is loaded: once is enough for all who miss it.
    loading: Arc<Mutex<()>>,
}

impl Reloading {
    pub(crate) fn new(policy: Arc<dyn Policy>, adapter: ServedAdapter) -> Self {
        Reloading {
            policy,
            adapter: Arc::new(adapter),
            loading: Arc::default(),
        }
    }

    /// Has the adapter loaded. Nobody waits for that: a rollout's time is its own.
    fn reload(&self) {
        let Ok(turn) = Arc::clone(&self.loading).try_lock_owned() else {
            return;
        };
        let adapter = Arc::clone(&self.adapter);
        tokio::spawn(async move {
            if let Err(fault) = adapter.load().await {
                tracing::warn!(
                    ?fault,
                    id = adapter.id(),
                    "the adapter can't be loaded again"
                );
            }
            drop(turn);
        });
    }
}

impl Policy for Reloading {
    fn id(&self) -> &PolicyId {
        self.policy.id()
    }

    fn has_tool_interface(&self) -> bool {
        self.policy.has_tool_interface()
    }

    fn follows_grammars(&self) -> bool {
        self.policy.follows_grammars()
    }

    fn complete(
        &self,
        request: CompletionRequest,
    ) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        Box::pin(async move {
            let outcome = self.policy.complete(request).await;
            if let Err(PolicyError::Refused { .. }) = &outcome {
                self.reload();
            }
            outcome
        })
    }

    fn ids_of(&self, output_ids: &[u32], kept: &str) -> Option<usize> {
        self.policy.ids_of(output_ids, kept)
    }
}
