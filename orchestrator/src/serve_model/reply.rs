//! Replies in the API's shapes: one object, or chunks of one.

use model::decode::{Finish, Generation, TokenLogprob};
use model::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::tool_calls;

/// What all parts of one answer carry.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) id: String,
    pub(super) created: i64,
    pub(super) model: String,
}

impl Header {
    fn object(&self, kind: &str) -> Value {
        json!({"id": self.id, "object": kind, "created": self.created, "model": self.model})
    }

    /// The whole answer.
    pub(super) fn completion(&self, choices: Vec<Value>, usage: Value) -> Value {
        let mut body = self.object("chat.completion");
        body["choices"] = Value::Array(choices);
        body["usage"] = usage;
        body
    }

    /// A chunk for one choice.
    pub(super) fn chunk(&self, index: u32, delta: Value, finish: Option<&str>) -> Value {
        let mut body = self.object("chat.completion.chunk");
        body["choices"] = json!([{
            "index": index,
            "delta": delta,
            "logprobs": null,
            "finish_reason": finish,
        }]);
        body
    }

    /// The last chunk, with counts and no choice.
    pub(super) fn usage_chunk(&self, usage: Value) -> Value {
        let mut body = self.object("chat.completion.chunk");
        body["choices"] = json!([]);
        body["usage"] = usage;
        body
    }
}

/// Tokens of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) prompt: usize,
    pub(super) cached: usize,
    pub(super) completion: usize,
}

impl Counts {
    pub(super) fn add(&mut self, generation: &Generation) {
        self.completion += generation.tokens.len();
        // Further replies to a prompt find it cached by the first; the first tells what it cost.
        if self.cached == 0 {
            self.cached = generation.cached_tokens;
        }
    }

    pub(super) fn usage(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        })
    }
}

/// One reply as text and calls, with the reason for its end.
pub(super) struct Answer {
    pub(super) content: String,
    pub(super) calls: Vec<Value>,
    pub(super) finish: &'static str,
}

impl Answer {
    /// Calls are looked for if the request offered tools.
    pub(super) fn new(generation: &Generation, has_tools: bool, id: &str) -> Self {
        let (content, calls) = if has_tools {
            tool_calls::split(&generation.text, id)
        } else {
            (generation.text.clone(), Vec::new())
        };
        let finish = match generation.finish {
            Finish::Length => "length",
            Finish::StopToken | Finish::StopString if !calls.is_empty() => "tool_calls",
            Finish::StopToken | Finish::StopString => "stop",
        };
        Self {
            content,
            calls,
            finish,
        }
    }

    /// The message of a whole answer.
    pub(super) fn message(&self) -> Value {
        if self.calls.is_empty() {
            return json!({"role": "assistant", "content": self.content});
        }
        let content = match self.content.as_str() {
            "" => Value::Null,
            text => Value::from(text),
        };
        let mut calls = self.calls.clone();
        for call in &mut calls {
            // Only chunks number their calls.
            if let Value::Object(call) = call {
                call.remove("index");
            }
        }
        json!({"role": "assistant", "content": content, "tool_calls": calls})
    }
}

/// Log-probabilities of tokens, as the API gives them: of each token, and of those that were most likely in
/// its place where they were asked for.
pub(super) fn logprobs(
    tokenizer: &Tokenizer,
    tokens: &[u32],
    logprobs: &[f32],
    top_logprobs: &[Vec<TokenLogprob>],
) -> Value {
    let entry = |token: u32, logprob: f32| {
        let bytes = tokenizer.token_bytes(token).unwrap_or_default();
        json!({
            "token": String::from_utf8_lossy(bytes),
            "logprob": logprob,
            "bytes": bytes,
        })
    };
    let entries: Vec<Value> = tokens
        .iter()
        .zip(logprobs)
        .enumerate()
        .map(|(index, (token, logprob))| {
            let top = top_logprobs.get(index).into_iter().flatten();
            let mut chosen = entry(*token, *logprob);
            chosen["top_logprobs"] = top.map(|one| entry(one.token, one.logprob)).collect();
            chosen
        })
        .collect();
    json!({"content": entries, "refusal": null})
}
