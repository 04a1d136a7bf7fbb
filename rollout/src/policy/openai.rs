//! A policy behind any OpenAI-compatible chat server: vLLM, SGLang, llama.cpp, mistral.rs, and the
//! hosted ones.
//!
//! Busy and failing servers are asked again, with growing pauses or the pause that they ask for;
//! a pause longer than the configured one is an error that says so. What can't get better by
//! asking again, such as a conversation that is too long, is never repeated. A reply counts only
//! whole: one that breaks off, or that the server follows with an error, is a failure.
//!
//! No more than [`OpenAiOptions::most_in_flight`] requests are open at once. The others wait, and
//! cost a place in a queue rather than a connection.

mod deadline;
mod options;
mod refusal;
mod reply;
mod request;
mod retry;
mod sse;
mod stream;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Proxy, Response, StatusCode};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::{BoxFuture, Completion, CompletionRequest, Policy, PolicyError, PolicyId};
use deadline::{Signs, Standing, Waiting};
use request::LimitField;
use stream::{Assembly, StreamFault};

pub use options::{ApiKey, OpenAiOptions};

/// Longest reply that is read, in bytes: no chat completion comes near it.
const LONGEST_REPLY: usize = 64 << 20;

/// Time for a connection to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A model behind an OpenAI-compatible server.
#[derive(Debug)]
pub struct OpenAiPolicy {
    id: PolicyId,
    client: Client,
    url: String,
    options: OpenAiOptions,
    places: Semaphore,
    signs: Signs,
    /// Whether the server has asked for the limit's newer name.
    wants_newer_limit: AtomicBool,
}

/// Outcome of one request that didn't succeed.
enum Failure {
    /// Asking again may help, after the pause the server asks for.
    Transient {
        reason: String,
        wait: Option<Duration>,
    },
    /// The conversation is too long; a shorter reply may have room.
    TooLong {
        reason: String,
        room: Option<u32>,
    },
    /// The server reads the reply's limit under its newer name only.
    OtherLimitField {
        reason: String,
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
        let mut builder = Client::builder()
            .no_proxy()
            .timeout(options.timeout)
            .connect_timeout(CONNECT_TIMEOUT.min(options.timeout))
            // A request goes where the configuration says, or nowhere.
            .redirect(reqwest::redirect::Policy::none());
        if let Some(proxy) = &options.proxy {
            builder = builder.proxy(Proxy::all(proxy).map_err(client)?);
        }
        let base = options.base_url.trim_end_matches('/');
        Ok(OpenAiPolicy {
            id: PolicyId::new(format!("openai:{}@{base}", options.model)),
            client: builder.build().map_err(client)?,
            url: format!("{base}/chat/completions"),
            places: Semaphore::new(options.most_in_flight.clamp(1, Semaphore::MAX_PERMITS)),
            signs: Signs::default(),
            wants_newer_limit: AtomicBool::new(false),
            options,
        })
    }

    /// Asks until there is a reply. `standing` is what it waits for: a place first.
    async fn ask(
        &self,
        request: CompletionRequest,
        standing: &Standing,
    ) -> Result<Completion, PolicyError> {
        // Kept while waiting too: whoever takes the place would meet the same busy server.
        let _place = self.places.acquire().await;
        let attempts = self.options.attempts.max(1);
        let mut attempt = 1;
        let mut max_tokens = request.max_tokens;
        let mut is_renamed = false;
        loop {
            if attempt == 1 {
                let since = Instant::now();
                standing.set(Waiting::Reply { since });
            }
            let body = request::body(&self.options, &request, self.limit_field(), max_tokens);
            let (reason, wait) = match self.send(&body, &request).await {
                Ok(completion) => return Ok(completion),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::TooLong { reason, room }) => {
                    let is_shortened = max_tokens < request.max_tokens;
                    match room.filter(|room| !is_shortened && *room < max_tokens) {
                        Some(room) => max_tokens = room,
                        None => return Err(PolicyError::ContextOverflow { reason }),
                    }
                    continue;
                }
                Err(Failure::OtherLimitField { .. }) if !is_renamed => {
                    is_renamed = true;
                    self.wants_newer_limit.store(true, Ordering::Relaxed);
                    continue;
                }
                Err(Failure::OtherLimitField { reason }) => {
                    let status = StatusCode::BAD_REQUEST.as_u16();
                    return Err(PolicyError::Refused { status, reason });
                }
                Err(Failure::Transient { reason, wait }) => (reason, wait),
            };
            let longest = self.options.longest_wait;
            if let Some(wait) = wait.filter(|wait| *wait > longest) {
                return Err(PolicyError::RateLimited { wait });
            }
            if attempt == attempts {
                return Err(PolicyError::Unavailable { attempts, reason });
            }
            let backoff =
                || retry::backoff(self.options.first_wait, longest, attempt, request.seed);
            let wait = wait.unwrap_or_else(backoff);
            tracing::debug!(attempt, %reason, ?wait, "asking the server again");
            standing.set(Waiting::Trouble {
                attempts: attempt,
                reason,
            });
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    /// What the reply's limit is called in a request.
    fn limit_field(&self) -> LimitField {
        match self.wants_newer_limit.load(Ordering::Relaxed) {
            false => LimitField::MaxTokens,
            true => LimitField::MaxCompletionTokens,
        }
    }

    async fn send(&self, body: &Value, request: &CompletionRequest) -> Result<Completion, Failure> {
        let mut http = self.client.post(&self.url).json(body);
        if let Some(key) = &self.options.api_key {
            http = http.bearer_auth(key.reveal());
        }
        let response = http.send().await.map_err(|error| self.broken(error))?;
        let status = response.status();
        let wait = asked_wait(response.headers());
        let is_stream = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|kind| {
                kind.to_ascii_lowercase()
                    .trim_start()
                    .starts_with("text/event-stream")
            });
        let reply = if is_stream && status.is_success() {
            self.streamed(response, wait).await?
        } else {
            let text = self.whole(response).await?;
            if !status.is_success() {
                return Err(self.refused(status, &text, wait));
            }
            let reply = self.parsed(&text, wait)?;
            // Some servers notice their failure only after they have said 200.
            let has_error = reply.get("error").is_some_and(|error| !error.is_null());
            if has_error || reply["object"] == "error" {
                return Err(self.refused(status_within(&reply), &text, wait));
            }
            self.signs.came();
            reply
        };
        reply::completion(&reply, request).map_err(|reason| self.unreadable(&reason))
    }

    /// The text of a reply that comes in one piece.
    async fn whole(&self, mut response: Response) -> Result<String, Failure> {
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.broken(error))? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > LONGEST_REPLY {
                return Err(self.unreadable("it is longer than any reply"));
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A whole text as a reply: JSON, or the events of a stream under the type of something else.
    fn parsed(&self, text: &str, wait: Option<Duration>) -> Result<Value, Failure> {
        if !text.trim_start().starts_with("data:") {
            return serde_json::from_str(text)
                .map_err(|error| self.unreadable(&format!("it isn't JSON: {error}")));
        }
        let mut events = sse::Events::default();
        let mut all = events.push(text.as_bytes());
        all.extend(events.finish());
        let mut assembly = Assembly::default();
        let mut read = || {
            all.iter().try_for_each(|data| assembly.push(data))?;
            std::mem::take(&mut assembly).finish()
        };
        read().map_err(|fault| self.broken_stream(fault, wait))
    }

    /// What a fault of a stream means.
    fn broken_stream(&self, fault: StreamFault, wait: Option<Duration>) -> Failure {
        match fault {
            StreamFault::Error(text) => {
                let event = serde_json::from_str(&text).unwrap_or_default();
                self.refused(status_within(&event), &text, wait)
            }
            StreamFault::Unreadable(reason) => self.unreadable(&reason),
            StreamFault::Cut => self.unreadable("the stream ended before the reply did"),
        }
    }

    /// A reply that comes as events.
    async fn streamed(
        &self,
        mut response: Response,
        wait: Option<Duration>,
    ) -> Result<Value, Failure> {
        let fault = |fault| self.broken_stream(fault, wait);
        let mut events = sse::Events::default();
        let mut assembly = Assembly::default();
        let mut length = 0;
        loop {
            let piece = tokio::time::timeout(self.options.silence, response.chunk());
            let Ok(piece) = piece.await else {
                let silence = self.options.silence.as_secs_f64();
                return Err(self.unreadable(&format!("the stream was silent for {silence} s")));
            };
            let piece = match piece {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                // Servers that close without ado after the last event have said it all.
                Err(_) if assembly.is_over() => break,
                Err(error) => return Err(self.broken(error)),
            };
            length += piece.len();
            if length > LONGEST_REPLY {
                return Err(self.unreadable("it is longer than any reply"));
            }
            for data in events.push(&piece) {
                assembly.push(&data).map_err(fault)?;
            }
            self.signs.came();
        }
        for data in events.finish() {
            assembly.push(&data).map_err(fault)?;
        }
        assembly.finish().map_err(fault)
    }

    /// A reply that is none. Proxies and servers that are going down send such things.
    fn unreadable(&self, reason: &str) -> Failure {
        Failure::Transient {
            reason: format!("the reply can't be read: {}", self.shown(reason)),
            wait: None,
        }
    }

    /// A request that got no whole reply.
    fn broken(&self, error: reqwest::Error) -> Failure {
        let is_hopeless = error.is_builder();
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
        let reason = self.shown(&reply::error_message(text));
        if let Some(overflow) = refusal::overflow(text) {
            let room = overflow.room;
            return Failure::TooLong { reason, room };
        }
        if refusal::wants_max_completion_tokens(text) {
            return Failure::OtherLimitField { reason };
        }
        let is_transient = status.is_server_error()
            || matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS
                    | StatusCode::REQUEST_TIMEOUT
                    | StatusCode::CONFLICT
                    | StatusCode::TOO_EARLY
            );
        if is_transient && !refusal::is_out_of_money(text) {
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
            Some(key) if !key.reveal().is_empty() => text.replace(key.reveal(), "…"),
            _ => text.to_owned(),
        };
        let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(MOST) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }
}

/// The status that stands in an error which came after a status of 200.
fn status_within(reply: &Value) -> StatusCode {
    let places = [
        "/error/code",
        "/error/status",
        "/code",
        "/error/status_code",
        "/choices/0/error/code",
    ];
    let number = |value: &Value| match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64().and_then(|code| u16::try_from(code).ok()),
    };
    let code = places
        .iter()
        .find_map(|place| number(reply.pointer(place)?));
    code.filter(|code| (400..600).contains(code))
        .and_then(|code| StatusCode::from_u16(code).ok())
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The pause that a reply with these headers asks for, up to a day.
pub fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    if let Some(milliseconds) = text("retry-after-ms").and_then(|text| text.trim().parse().ok()) {
        return Some(Duration::from_millis(milliseconds).min(retry::LONGEST));
    }
    // By the server's own clock where it tells the time: ours may differ.
    let now = text(DATE.as_str())
        .and_then(retry::http_date)
        .unwrap_or_else(SystemTime::now);
    retry::after(text(RETRY_AFTER.as_str())?, now)
}

impl Policy for OpenAiPolicy {
    fn id(&self) -> &PolicyId {
        &self.id
    }

    fn has_tool_interface(&self) -> bool {
        true
    }

    fn complete(
        &self,
        request: CompletionRequest,
    ) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        Box::pin(self.ask_in_time(request))
    }
}
