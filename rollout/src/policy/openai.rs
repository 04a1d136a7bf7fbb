//! A policy behind any OpenAI-compatible chat server: vLLM, SGLang, llama.cpp, mistral.rs.
//!
//! Busy and failing servers are asked again, with growing pauses or the pause that they ask for;
//! a pause longer than the configured one is an error that says so. What can't get better by
//! asking again, such as a conversation that is too long, is never repeated.

mod retry;
mod wire;

use std::fmt;
use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, RETRY_AFTER};
use reqwest::{Client, Proxy, Response, StatusCode};
use serde_json::Value;

use super::{BoxFuture, Completion, CompletionRequest, Policy, PolicyError, PolicyId};

/// A credential. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Wraps a key.
    pub fn new(key: impl Into<String>) -> Self {
        ApiKey(key.into())
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// Where the server is and how patient the client is.
#[derive(Clone, Debug)]
pub struct OpenAiOptions {
    /// Address up to and including the version, such as `http://localhost:8000/v1`.
    pub base_url: String,
    /// The model's name there.
    pub model: String,
    /// Credential, where the server wants one.
    pub api_key: Option<ApiKey>,
    /// HTTP proxy; the surroundings' own settings are never read.
    pub proxy: Option<String>,
    /// Time for one request.
    pub timeout: Duration,
    /// Requests made before giving up.
    pub attempts: u32,
    /// Pause before the second request; doubled before each further one.
    pub first_wait: Duration,
    /// Longest pause.
    pub longest_wait: Duration,
}

impl OpenAiOptions {
    /// The usual patience: five attempts, pauses from half a second to a minute.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        OpenAiOptions {
            base_url: base_url.into(),
            model: model.into(),
            api_key: None,
            proxy: None,
            timeout: Duration::from_secs(600),
            attempts: 5,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(60),
        }
    }
}

/// A model behind an OpenAI-compatible server.
#[derive(Debug)]
pub struct OpenAiPolicy {
    id: PolicyId,
    client: Client,
    url: String,
    options: OpenAiOptions,
}

/// Outcome of one request that didn't succeed.
enum Failure {
    /// Asking again may help, after the pause the server asks for.
    Transient {
        reason: String,
        wait: Option<Duration>,
    },
    Final(PolicyError),
}

impl OpenAiPolicy {
    /// Sets up the client; nothing is sent.
    ///
    /// # Errors
    /// [`PolicyError::Client`] for an unusable proxy or TLS set-up.
    pub fn new(options: OpenAiOptions) -> Result<Self, PolicyError> {
        let client = |source: reqwest::Error| PolicyError::Client {
            source: source.without_url(),
        };
        let mut builder = Client::builder().no_proxy().timeout(options.timeout);
        if let Some(proxy) = &options.proxy {
            builder = builder.proxy(Proxy::all(proxy).map_err(client)?);
        }
        let base = options.base_url.trim_end_matches('/');
        Ok(OpenAiPolicy {
            id: PolicyId::new(format!("openai:{}@{base}", options.model)),
            client: builder.build().map_err(client)?,
            url: format!("{base}/chat/completions"),
            options,
        })
    }

    async fn ask(&self, request: CompletionRequest) -> Result<Completion, PolicyError> {
        let body = wire::body(&self.options.model, &request);
        let attempts = self.options.attempts.max(1);
        let mut attempt = 1;
        loop {
            let (reason, wait) = match self.send(&body, &request).await {
                Ok(completion) => return Ok(completion),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Transient { reason, wait }) => (reason, wait),
            };
            if attempt == attempts {
                return Err(PolicyError::Unavailable { attempts, reason });
            }
            let longest = self.options.longest_wait;
            if let Some(wait) = wait.filter(|wait| *wait > longest) {
                return Err(PolicyError::RateLimited { wait });
            }
            let backoff =
                || retry::backoff(self.options.first_wait, longest, attempt, request.seed);
            let wait = wait.unwrap_or_else(backoff);
            tracing::debug!(attempt, %reason, ?wait, "asking the server again");
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    async fn send(&self, body: &Value, request: &CompletionRequest) -> Result<Completion, Failure> {
        let mut http = self.client.post(&self.url).json(body);
        if let Some(key) = &self.options.api_key {
            http = http.bearer_auth(&key.0);
        }
        let response = http.send().await.map_err(|error| self.broken(error))?;
        let status = response.status();
        let wait = asked_wait(&response);
        let text = response.text().await.map_err(|error| self.broken(error))?;
        if !status.is_success() {
            return Err(self.refused(status, &text, wait));
        }
        let reply: Value = serde_json::from_str(&text).map_err(|error| Failure::Transient {
            reason: format!("the reply isn't JSON: {error}"),
            wait: None,
        })?;
        // Some servers notice their failure only after they have said 200.
        if reply.get("error").is_some_and(|error| !error.is_null()) {
            return Err(self.refused(StatusCode::INTERNAL_SERVER_ERROR, &text, wait));
        }
        wire::completion(&reply, request)
            .map_err(|reason| Failure::Final(PolicyError::Malformed { reason }))
    }

    /// A request that got no whole reply.
    fn broken(&self, error: reqwest::Error) -> Failure {
        let is_hopeless = error.is_builder() || error.is_redirect();
        let error = error.without_url();
        if is_hopeless {
            return Failure::Final(PolicyError::Client { source: error });
        }
        let mut reason = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            reason = format!("{reason}: {error}");
            cause = error.source();
        }
        Failure::Transient {
            reason: self.shown(&reason),
            wait: None,
        }
    }

    /// A reply that is an error.
    fn refused(&self, status: StatusCode, text: &str, wait: Option<Duration>) -> Failure {
        let reason = self.shown(&wire::error_message(text));
        if wire::is_context_overflow(text) {
            return Failure::Final(PolicyError::ContextOverflow { reason });
        }
        let is_transient = status.is_server_error()
            || matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
            );
        if is_transient {
            let reason = format!("status {}: {reason}", status.as_u16());
            return Failure::Transient { reason, wait };
        }
        Failure::Final(PolicyError::Refused {
            status: status.as_u16(),
            reason,
        })
    }

    /// A text of the server's, short and without the credential that some servers repeat.
    fn shown(&self, text: &str) -> String {
        const MOST: usize = 300;
        let text = match &self.options.api_key {
            Some(ApiKey(key)) if !key.is_empty() => text.replace(key.as_str(), "…"),
            _ => text.to_owned(),
        };
        let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(MOST) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }
}

/// The pause that a reply asks for.
fn asked_wait(response: &Response) -> Option<Duration> {
    let text = |name| {
        response
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    // By the server's own clock where it tells the time: ours may differ.
    let now = text(DATE)
        .and_then(retry::http_date)
        .unwrap_or_else(SystemTime::now);
    retry::after(text(RETRY_AFTER)?, now)
}

impl Policy for OpenAiPolicy {
    fn id(&self) -> &PolicyId {
        &self.id
    }

    fn complete(
        &self,
        request: CompletionRequest,
    ) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        Box::pin(self.ask(request))
    }
}
