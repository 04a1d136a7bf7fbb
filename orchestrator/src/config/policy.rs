//! The section `policy`.

use harness::Harness;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who answers during rollouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PolicyConfig {
    /// The base model and what is trained of it, in this process.
    Local {
        /// Memory for the keys and values of all conversations, in MiB: those with the base model and
        /// its adapters together, and those with each full set of trained weights. What is no longer in
        /// use stays there for later prompts until room is needed; a conversation can't be longer than
        /// it allows.
        #[serde(default = "cache_mib")]
        #[schemars(range(min = 64, max = 1_048_576))]
        cache_mib: usize,
    },
    /// An OpenAI-compatible server (vLLM, SGLang, llama.cpp, mistral.rs).
    Openai {
        /// Up to and including `/v1`.
        base_url: String,
        /// Model name the server knows.
        model: String,
        /// Environment variable with the key, where the server wants one.
        #[serde(default)]
        api_key_env: Option<String>,
        /// How new weights reach the server.
        #[serde(default)]
        adapters: AdapterDelivery,
        /// Whether replies are streamed, so that a server that hangs is noticed early.
        #[serde(default)]
        stream: bool,
        /// Whether token ids are asked for (`return_token_ids`, as vLLM has it).
        #[serde(default)]
        token_ids: bool,
        /// Most requests open at once; further rollouts wait.
        #[serde(default = "in_flight")]
        #[schemars(range(min = 1, max = 16384))]
        in_flight: usize,
    },
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self::Local {
            cache_mib: cache_mib(),
        }
    }
}

impl PolicyConfig {
    /// The field that is out of range, and what would be right.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        match self {
            Self::Local { cache_mib } if !(64..=1_048_576).contains(cache_mib) => Err((
                "policy.cache_mib",
                "keys and values need 64 MiB to 1 TiB (1048576)",
            )),
            Self::Openai { base_url, .. } if !is_address(base_url) => {
                Err(("policy.base_url", "must start with http:// or https://"))
            }
            Self::Openai { model, .. } if model.trim().is_empty() => Err((
                "policy.model",
                "the server has to know which model is meant",
            )),
            Self::Openai { in_flight, .. } if !(1..=16_384).contains(in_flight) => Err((
                "policy.in_flight",
                "1 to 16384 requests can be open at once",
            )),
            Self::Local { .. } | Self::Openai { .. } => Ok(()),
        }
    }

    /// What `harness` asks of its policy that this one can't do: the field, and a way out.
    pub(crate) fn lacks(&self, harness: &Harness) -> Option<&'static str> {
        let is_served = matches!(self, Self::Openai { .. });
        (is_served && harness.middleware.protocol.constrained).then_some(
            "middleware.protocol.constrained: a server isn't given grammars; leave the field out of middleware.yaml, or \
             take policy local",
        )
    }
}

/// Whether a request can be sent to a server of this address.
pub(super) fn is_address(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

fn cache_mib() -> usize {
    1536
}

fn in_flight() -> usize {
    256
}

/// How trained adapters reach a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdapterDelivery {
    /// They don't: the model loop is left out.
    #[default]
    None,
    /// `POST /v1/load_lora_adapter`, as vLLM serves it with runtime LoRA updating on.
    Vllm,
}
