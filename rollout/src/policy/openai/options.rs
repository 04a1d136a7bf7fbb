//! Where a server is, how patient its client is, and the credential it takes.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// A credential. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Wraps a key. Blanks around it, such as the line feed of a file, are no part of it.
    pub fn new(key: impl Into<String>) -> Self {
        ApiKey(key.into().trim().to_owned())
    }

    /// The key itself, for the request alone.
    pub(super) fn reveal(&self) -> &str {
        &self.0
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
    /// Time in which a streamed reply must show a sign of life.
    pub silence: Duration,
    /// Time without a reply, or a part of one, to any request, after which one that its deadline finds
    /// open has failed. Before that it is slow.
    pub unheard: Duration,
    /// Whether replies are streamed: a server that hangs is noticed after [`Self::silence`].
    pub is_streaming: bool,
    /// Whether token ids and log-probabilities are asked for, as vLLM gives them
    /// (`return_token_ids`). Servers that refuse unknown fields refuse this one.
    pub wants_token_ids: bool,
    /// JSON Schema that replies are held to (`response_format`). Servers without structured output
    /// refuse the field, or pass over it.
    pub response_schema: Option<Value>,
    /// Most requests open at once.
    pub most_in_flight: usize,
    /// Requests made before giving up.
    pub attempts: u32,
    /// Pause before the second request; doubled before each further one.
    pub first_wait: Duration,
    /// Longest pause.
    pub longest_wait: Duration,
}

impl OpenAiOptions {
    /// The usual patience: five attempts, pauses from half a second to a minute, 256 requests at
    /// once.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        OpenAiOptions {
            base_url: base_url.into(),
            model: model.into(),
            api_key: None,
            proxy: None,
            timeout: Duration::from_secs(600),
            silence: Duration::from_secs(120),
            unheard: Duration::from_secs(120),
            is_streaming: false,
            wants_token_ids: false,
            response_schema: None,
            most_in_flight: 256,
            attempts: 5,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(60),
        }
    }
}
