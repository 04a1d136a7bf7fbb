//! Policies behind a server, and how new weights reach it.

use std::path::Path;
use std::time::Duration;

use rollout::policy::{ApiKey, OpenAiOptions, OpenAiPolicy};
use serde_json::Value;

use crate::config::{AdapterDelivery, Config, PolicyConfig};
use crate::error::RunError;

/// Whether the run trains weights: it needs somewhere to try them.
pub fn trains(config: &Config) -> bool {
    config.model_loop.is_enabled
        && match &config.policy {
            PolicyConfig::Local => true,
            PolicyConfig::Openai { adapters, .. } => *adapters == AdapterDelivery::Vllm,
        }
}

/// The served policy: the plain model, or adapter `id` from its directory, loaded into the server
/// first.
///
/// # Errors
/// When the key is missing, or the server can't be reached or refuses the adapter.
pub(crate) async fn policy(
    config: &Config,
    adapter: Option<(&str, &Path)>,
    key: fn(&str) -> Option<String>,
) -> Result<OpenAiPolicy, RunError> {
    let PolicyConfig::Openai {
        base_url,
        model,
        api_key_env,
        stream,
        token_ids,
        in_flight,
        adapters: _,
    } = &config.policy
    else {
        return Err(RunError::Server {
            url: String::new(),
            reason: "policy.kind is local".into(),
        });
    };
    let api_key = match api_key_env {
        Some(name) => Some(key(name).ok_or_else(|| RunError::NoKey {
            field: "policy.api_key_env",
            name: name.clone(),
        })?),
        None => None,
    };
    if let Some((id, directory)) = adapter {
        load_adapter(base_url, api_key.as_deref(), id, directory).await?;
    }
    let name = adapter.map_or(model.as_str(), |(id, _)| id);
    let mut options = OpenAiOptions::new(base_url.clone(), name);
    options.api_key = api_key.map(ApiKey::new);
    options.is_streaming = *stream;
    options.wants_token_ids = *token_ids;
    options.most_in_flight = *in_flight;
    Ok(OpenAiPolicy::new(options)?)
}

/// Models a server says it has (`GET /v1/models`).
///
/// # Errors
/// When the server can't be reached or answers with something else.
pub async fn models(base_url: &str, key: Option<&str>) -> Result<Vec<String>, RunError> {
    let fail = |reason: String| RunError::Server {
        url: base_url.to_owned(),
        reason,
    };
    let url = format!("{}/models", base_url.trim_end_matches('/'));
    let mut request = client(base_url)?.get(url);
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    let response = request.send().await.map_err(|e| fail(explain(&e)))?;
    if !response.status().is_success() {
        return Err(fail(format!("GET /models answers {}", response.status())));
    }
    let body: Value = response.json().await.map_err(|e| fail(explain(&e)))?;
    let entries = body["data"]
        .as_array()
        .ok_or_else(|| fail("GET /models has no list".into()))?;
    Ok(entries
        .iter()
        .filter_map(|entry| entry["id"].as_str().map(str::to_owned))
        .collect())
}

/// vLLM's runtime LoRA loading; an adapter that is there already is fine.
async fn load_adapter(
    base_url: &str,
    key: Option<&str>,
    id: &str,
    directory: &Path,
) -> Result<(), RunError> {
    let fail = |reason: String| RunError::Server {
        url: base_url.to_owned(),
        reason,
    };
    if models(base_url, key).await?.iter().any(|name| name == id) {
        return Ok(());
    }
    let path = std::path::absolute(directory).map_err(|source| RunError::Io {
        path: directory.to_owned(),
        source,
    })?;
    let url = format!("{}/load_lora_adapter", base_url.trim_end_matches('/'));
    let body = serde_json::json!({"lora_name": id, "lora_path": path});
    let mut request = client(base_url)?.post(url).json(&body);
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    let response = request.send().await.map_err(|e| fail(explain(&e)))?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let text: String = response
        .text()
        .await
        .unwrap_or_default()
        .chars()
        .take(200)
        .collect();
    Err(fail(format!(
        "load_lora_adapter answers {status}: {text}; the server needs --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
    )))
}

fn client(base_url: &str) -> Result<reqwest::Client, RunError> {
    reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(60))
        .build()
        .map_err(|e| RunError::Server {
            url: base_url.to_owned(),
            reason: explain(&e),
        })
}

/// The last cause is what a person can act on ("connection refused").
fn explain(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
