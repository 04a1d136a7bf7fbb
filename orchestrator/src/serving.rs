//! Policies behind a server, and how new weights reach it.

mod adapter;

use std::path::Path;
use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response, StatusCode};
use rollout::policy::{ApiKey, OpenAiOptions, OpenAiPolicy, asked_wait};
use serde_json::Value;

pub(crate) use adapter::{Reloading, ServedAdapter};

use crate::config::{AdapterDelivery, Config, PolicyConfig};
use crate::error::RunError;

/// Whether the run trains weights: it needs somewhere to try them.
pub fn trains(config: &Config) -> bool {
    config.model_loop.is_enabled
        && match &config.policy {
            PolicyConfig::Local { .. } => true,
            PolicyConfig::Openai { adapters, .. } => *adapters == AdapterDelivery::Vllm,
        }
}

/// The served policy: the plain model, or adapter `id` from its directory. Nothing is sent yet; the
/// server has to be given the adapter first.
///
/// # Errors
/// When the key is missing, or the client can't be set up.
pub(crate) fn policy(
    config: &Config,
    adapter: Option<(&str, &Path)>,
    key: fn(&str) -> Option<String>,
) -> Result<(OpenAiPolicy, Option<ServedAdapter>), RunError> {
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
    let adapter = match adapter {
        Some((id, directory)) => Some(ServedAdapter::new(
            base_url,
            api_key.as_deref(),
            id,
            directory,
        )?),
        None => None,
    };
    let name = adapter.as_ref().map_or(model.as_str(), ServedAdapter::id);
    let mut options = OpenAiOptions::new(base_url.clone(), name);
    options.api_key = api_key.map(ApiKey::new);
    options.is_streaming = *stream;
    options.wants_token_ids = *token_ids;
    options.most_in_flight = *in_flight;
    fit_patience(&mut options, config.budget.seconds_per_problem);
    Ok((OpenAiPolicy::new(options)?, adapter))
}

/// Makes a server wait as long as a rollout of so many seconds does.
fn fit_patience(options: &mut OpenAiOptions, seconds: u64) {
    let whole = Duration::from_secs(seconds);
    // One reply may take all of a rollout's time.
    options.timeout = options.timeout.max(whole);
    // Of a short rollout two minutes may be all, whatever its server does.
    options.unheard = options.unheard.min(whole / 2);
}

/// Models a server says it has (`GET /v1/models`).
///
/// # Errors
/// When the server can't be reached or answers with something else.
pub async fn models(base_url: &str, key: Option<&str>) -> Result<Vec<String>, RunError> {
    let listed = list_models(&client(base_url)?, base_url, key).await;
    listed.map_err(|fault| fault.into_error(base_url))
}

/// The same, with what the failure means.
async fn list_models(
    client: &Client,
    base_url: &str,
    key: Option<&str>,
) -> Result<Vec<String>, ServerFault> {
    let url = format!("{}/models", base_url.trim_end_matches('/'));
    let response = send(client.get(url), key).await?;
    let status = response.status();
    if !status.is_success() {
        let reason = format!("GET /models answers {status}");
        return Err(ServerFault::of_status(&response, reason));
    }
    let body: Value = response.json().await.map_err(|e| not_reached(&e))?;
    let Some(entries) = body["data"].as_array() else {
        return Err(ServerFault::Passing {
            reason: "GET /models has no list".into(),
            wait: None,
        });
    };
    Ok(entries
        .iter()
        .filter_map(|entry| entry["id"].as_str().map(str::to_owned))
        .collect())
}

/// Why a server didn't do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerFault {
    /// It can't be reached, or fails: that may pass, perhaps after a pause that it asks for.
    #[error("{reason}")]
    Passing {
        reason: String,
        wait: Option<Duration>,
    },
    /// It refuses to answer at all, as with a wrong key.
    #[error("{reason}")]
    Refused { reason: String },
    /// It answers, and won't do this.
    #[error("{reason}")]
    Declined { reason: String },
}

impl ServerFault {
    /// What a response with an error's status means.
    fn of_status(response: &Response, reason: String) -> Self {
        let status = response.status();
        let is_passing = status.is_server_error()
            || matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY
            );
        if is_passing {
            ServerFault::Passing {
                wait: asked_wait(response.headers()),
                reason,
            }
        } else {
            ServerFault::Refused { reason }
        }
    }

    /// The pause that the server asks for.
    pub(crate) fn wait(&self) -> Option<Duration> {
        match self {
            ServerFault::Passing { wait, .. } => *wait,
            ServerFault::Refused { .. } | ServerFault::Declined { .. } => None,
        }
    }

    pub(crate) fn into_error(self, base_url: &str) -> RunError {
        RunError::Server {
            url: base_url.to_owned(),
            reason: self.to_string(),
        }
    }
}

async fn send(request: RequestBuilder, key: Option<&str>) -> Result<Response, ServerFault> {
    let request = match key {
        Some(key) => request.bearer_auth(key),
        None => request,
    };
    request.send().await.map_err(|e| not_reached(&e))
}

fn not_reached(error: &reqwest::Error) -> ServerFault {
    ServerFault::Passing {
        reason: explain(error),
        wait: None,
    }
}

fn client(base_url: &str) -> Result<Client, RunError> {
    Client::builder()
        .no_proxy()
        // A request goes where the configuration says, or nowhere.
        .redirect(reqwest::redirect::Policy::none())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_may_take_as_long_as_its_rollout() {
        for (seconds, timeout, unheard) in [(1800, 1800, 120), (60, 600, 30)] {
            let mut options = OpenAiOptions::new("http://localhost/v1", "m");
            fit_patience(&mut options, seconds);
            assert_eq!(options.timeout, Duration::from_secs(timeout));
            assert_eq!(options.unheard, Duration::from_secs(unheard));
        }
    }
}
