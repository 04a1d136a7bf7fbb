//! The reply in the chat-completions format, read tolerantly: servers leave out fields, add their
//! own, and have their own words for why a reply ended.

use serde_json::{Value, json};

use super::super::local::share;
use super::super::{Completion, CompletionRequest, Finish, NativeCall};
use crate::protocol;
use crate::trajectory::Usage;

/// Characters of a token, for servers that don't count.
const CHARACTERS_PER_TOKEN: u64 = 4;

/// More tokens than any reply or prompt has.
const MOST_TOKENS: u64 = u32::MAX as u64;

/// Reads a reply; the error says what is wrong with it.
pub(super) fn completion(reply: &Value, request: &CompletionRequest) -> Result<Completion, String> {
    let choice = first_choice(reply)?;
    let reason = choice["finish_reason"].as_str().unwrap_or_default();
    let end = End::of(reason);
    let error = choice.get("error").filter(|error| !error.is_null());
    if end == End::Failed || error.is_some() {
        let said = error.map_or_else(
            || format!("it ended with {reason}"),
            |error| error_message(&error.to_string()),
        );
        return Err(format!("the choice failed: {said}"));
    }
    let message = choice.get("message").filter(|message| message.is_object());
    let message = message.ok_or("the choice has no message")?;
    let mut parts = Parts::default();
    parts.read(message.get("content").unwrap_or(&Value::Null))?;
    for name in ["reasoning_content", "reasoning"] {
        if parts.reasoning.is_empty() {
            parts.reasoning = said(&message[name]);
        }
    }
    if parts.text.is_empty() {
        // Why a hosted model won't answer: no answer, but the model's own words.
        parts.text = said(&message["refusal"]);
    }
    let Parts { text, reasoning } = parts;
    let finish = match (end, reason) {
        (End::Cut, _) => Finish::Length,
        (End::Filtered, _) => Finish::Filtered,
        (_, "tool_calls" | "function_call") => Finish::ToolCalls,
        // vLLM says which of the stop texts it was.
        _ if choice["stop_reason"].is_string() => Finish::StopString,
        _ => Finish::Stop,
    };
    let is_known = matches!(reason, "stop" | "length" | "tool_calls");
    let ids = Ids::of(reply, choice);
    Ok(Completion {
        usage: usage(&reply["usage"], request, &text, &reasoning),
        tool_calls: tool_calls(message),
        text,
        reasoning,
        finish,
        finish_reason: (!is_known && !reason.is_empty()).then(|| reason.to_owned()),
        prompt_ids: ids.prompt,
        output_ids: ids.output,
        logprobs: ids.logprobs,
    })
}

/// What a server's word for the end of a reply means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A limit cut it.
    Cut,
    /// A filter cut it.
    Filtered,
    /// The server broke it off.
    Failed,
    /// It ended; so do replies with words that nobody knows.
    Ended,
}

impl End {
    /// Servers vary the words, their case and what stands around them.
    fn of(word: &str) -> Self {
        const CUT: [&str; 8] = [
            "length",
            "max_tokens",
            "max_output_tokens",
            "max_new_tokens",
            "token_limit",
            "error_limit",
            "context_window",
            "truncat",
        ];
        const FILTERED: [&str; 9] = [
            "filter",
            "safety",
            "guardrail",
            "recitation",
            "prohibited",
            "blocklist",
            "spii",
            "sensitive",
            "toxic",
        ];
        const FAILED: [&str; 3] = ["error", "insufficient_system_resource", "timeout"];
        let word = word.to_ascii_lowercase();
        let has = |parts: &[&str]| parts.iter().any(|part| word.contains(part));
        if has(&CUT) {
            End::Cut
        } else if has(&FILTERED) {
            End::Filtered
        } else if has(&FAILED) {
            End::Failed
        } else {
            End::Ended
        }
    }
}

/// The choice with index 0: servers may send them in any order.
fn first_choice(reply: &Value) -> Result<&Value, String> {
    let choices = reply["choices"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let first = choices.iter().find(|choice| choice["index"] == json!(0));
    first
        .or(choices.first())
        .ok_or_else(|| "it has no choice".to_owned())
}

/// What a message, or a piece of one, says.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) text: String,
    pub(super) reasoning: String,
}

impl Parts {
    /// Content is text, null, or a list of texts and typed parts, some of which are reasoning.
    pub(super) fn read(&mut self, content: &Value) -> Result<(), String> {
        match content {
            Value::Null => {}
            Value::String(text) => self.text.push_str(text),
            Value::Array(parts) => {
                for part in parts {
                    let is_reasoning =
                        matches!(part["type"].as_str(), Some("thinking" | "reasoning"));
                    let said = text_of(part);
                    if is_reasoning {
                        self.reasoning.push_str(&said);
                    } else {
                        self.text.push_str(&said);
                    }
                }
            }
            _ => return Err("`content` is neither text nor null".into()),
        }
        Ok(())
    }
}

/// A text, or the texts of parts, whatever their type.
pub(super) fn said(value: &Value) -> String {
    match value {
        Value::Array(parts) => parts.iter().map(text_of).collect(),
        value => value.as_str().unwrap_or_default().to_owned(),
    }
}

/// Calls, however many: some servers leave the list out around one.
pub(super) fn listed(calls: &Value) -> &[Value] {
    match calls {
        Value::Array(calls) => calls,
        Value::Object(_) => std::slice::from_ref(calls),
        _ => &[],
    }
}

/// The text of a part, which may hold parts itself.
fn text_of(part: &Value) -> String {
    if let Some(text) = part.as_str() {
        return text.to_owned();
    }
    ["text", "thinking", "reasoning"]
        .iter()
        .map(|name| match &part[*name] {
            Value::String(text) => text.clone(),
            Value::Array(inner) => inner
                .iter()
                .filter_map(|inner| inner["text"].as_str())
                .collect(),
            _ => String::new(),
        })
        .collect()
}

fn usage(usage: &Value, request: &CompletionRequest, text: &str, reasoning: &str) -> Usage {
    let tokens = |length: usize| {
        u64::try_from(length)
            .unwrap_or(u64::MAX)
            .div_ceil(CHARACTERS_PER_TOKEN)
    };
    let prompt_length = request
        .messages
        .iter()
        .map(|message| message.content.len())
        .sum();
    let reply_length = text.len() + reasoning.len();
    // A count of 0 for something that was said is no count, nor is one beyond any context.
    let counted = |name: &str, length: usize| {
        let count = usage[name].as_u64();
        count.filter(|count| (*count > 0 || length == 0) && *count <= MOST_TOKENS)
    };
    let prompt = counted("prompt_tokens", prompt_length);
    let prompt_tokens = prompt.unwrap_or_else(|| tokens(prompt_length));
    // As OpenAI, vLLM and SGLang have it, and as DeepSeek.
    let places = [
        "/prompt_tokens_details/cached_tokens",
        "/prompt_cache_hit_tokens",
    ];
    let cached_tokens = places
        .iter()
        .find_map(|place| usage.pointer(place)?.as_u64())
        .filter(|count| *count <= prompt_tokens);
    let completion = counted("completion_tokens", reply_length);
    let completion_tokens = completion.unwrap_or_else(|| tokens(reply_length));
    let places = [
        "/completion_tokens_details/reasoning_tokens",
        "/reasoning_tokens",
    ];
    let reasoning_tokens = places
        .iter()
        .find_map(|place| usage.pointer(place)?.as_u64())
        .filter(|count| *count <= MOST_TOKENS)
        .unwrap_or_else(|| {
            let inside = protocol::reasoning_of(text).len();
            share(completion_tokens, reasoning.len() + inside, reply_length)
        });
    Usage {
        prompt_tokens,
        cached_tokens,
        completion_tokens,
        reasoning_tokens,
        is_estimated: prompt.is_none() || completion.is_none(),
    }
}

/// The calls as they were sent: what their arguments are worth is the loop's to say.
fn tool_calls(message: &Value) -> Vec<NativeCall> {
    let functions = listed(&message["tool_calls"])
        .iter()
        .map(|call| match call.get("function") {
            Some(function) if function.is_object() => function,
            _ => call,
        });
    // The interface's older form has one call.
    let old = message.get("function_call").filter(|call| call.is_object());
    let read = |function: &Value| NativeCall {
        tool: function["name"]
            .as_str()
            .unwrap_or_default()
            .trim()
            .to_owned(),
        arguments: function["arguments"].clone(),
    };
    let mut calls: Vec<NativeCall> = functions.map(read).collect();
    if calls.is_empty() {
        calls.extend(old.map(read));
    }
    calls
}

/// Token ids, where the server was asked for them and gives them.
#[derive(Default)]
struct Ids {
    prompt: Vec<u32>,
    output: Vec<u32>,
    logprobs: Vec<f32>,
}

impl Ids {
    fn of(reply: &Value, choice: &Value) -> Self {
        let prompt = ids(&reply["prompt_token_ids"]).or_else(|| ids(&choice["prompt_token_ids"]));
        let (Some(prompt), Some(output)) = (prompt, ids(&choice["token_ids"])) else {
            return Ids::default();
        };
        let tokens = choice["logprobs"]["content"].as_array();
        let logprobs: Vec<f32> = tokens
            .into_iter()
            .flatten()
            .filter_map(|token| token["logprob"].as_f64())
            .map(as_f32)
            .collect();
        // Fewer or more than the ids would belong to other tokens.
        let is_whole = logprobs.len() == output.len() && logprobs.iter().all(|l| l.is_finite());
        Ids {
            logprobs: if is_whole { logprobs } else { Vec::new() },
            prompt,
            output,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a log-probability needs no more digits"
)]
fn as_f32(number: f64) -> f32 {
    number as f32
}

/// A list of ids; nothing if any entry is none.
fn ids(list: &Value) -> Option<Vec<u32>> {
    let id = |id: &Value| u32::try_from(id.as_u64()?).ok();
    list.as_array()?.iter().map(id).collect()
}

/// The words of an error.
pub(super) fn error_message(text: &str) -> String {
    let parsed: Value = serde_json::from_str(text).unwrap_or_default();
    let places = [
        "/error/message",
        "/error",
        "/message",
        "/detail",
        "/0/error/message",
    ];
    let message = places
        .iter()
        .find_map(|place| parsed.pointer(place)?.as_str());
    message.unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Map;

    use super::*;
    use crate::trajectory::{Message, Role};

    fn request() -> CompletionRequest {
        CompletionRequest::new(vec![Message::new(Role::User, "hello")], 40)
    }

    /// Names that are read somewhere, so that the values under them are.
    const NAMES: [&str; 26] = [
        "choices",
        "message",
        "content",
        "text",
        "type",
        "thinking",
        "reasoning_content",
        "reasoning",
        "refusal",
        "tool_calls",
        "function_call",
        "function",
        "name",
        "arguments",
        "finish_reason",
        "stop_reason",
        "usage",
        "prompt_tokens",
        "completion_tokens",
        "completion_tokens_details",
        "reasoning_tokens",
        "token_ids",
        "prompt_token_ids",
        "logprobs",
        "logprob",
        "error",
    ];

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-z<>/{} ]{0,12}|stop|length|thinking".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 4, |inner| {
            let name = proptest::sample::select(&NAMES[..]);
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((name, inner), 0..6).prop_map(|fields| {
                    let fields = fields.into_iter();
                    Value::Object(Map::from_iter(
                        fields.map(|(name, value)| (name.to_owned(), value)),
                    ))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_reply_is_read_or_refused(
            message in values(),
            usage in values(),
            choice in values(),
            reason in values(),
        ) {
            let mut whole = choice.as_object().cloned().unwrap_or_default();
            whole.insert("message".into(), message);
            whole.insert("finish_reason".into(), reason);
            let bodies = [
                json!({"choices": [whole], "usage": usage}),
                json!({"choices": [choice]}),
                choice,
                usage,
            ];
            for reply in bodies {
                if let Ok(completion) = completion(&reply, &request()) {
                    let mut all = completion.usage;
                    all.add(&completion.usage);
                    prop_assert!(all.completion_tokens <= 2 * MOST_TOKENS);
                    prop_assert!(completion.logprobs.is_empty()
                        || completion.logprobs.len() == completion.output_ids.len());
                }
                error_message(&reply.to_string());
            }
        }
    }

    #[test]
    fn cached_tokens_are_those_that_the_server_tells_of() {
        let cached = |usage: Value| {
            let choice = json!({"message": {"content": "The answer."}});
            let reply = json!({"choices": [choice], "usage": usage});
            let usage = completion(&reply, &request()).expect("a reply").usage;
            usage.cached_tokens
        };
        let details = json!({"prompt_tokens": 90, "completion_tokens": 5,
                             "prompt_tokens_details": {"cached_tokens": 64}});
        assert_eq!(cached(details), Some(64));
        let hits = json!({"prompt_tokens": 90, "completion_tokens": 5,
                          "prompt_cache_hit_tokens": 0});
        assert_eq!(cached(hits), Some(0));
        let none = json!({"prompt_tokens": 90, "completion_tokens": 5,
                          "prompt_tokens_details": null});
        assert_eq!(cached(none), None);
        let too_many = json!({"prompt_tokens": 9, "completion_tokens": 5,
                              "prompt_tokens_details": {"cached_tokens": 64}});
        assert_eq!(cached(too_many), None);
    }

    #[test]
    fn counts_beyond_any_context_are_none() {
        let reply = json!({
            "choices": [{"message": {"content": "The answer."}}],
            "usage": {"prompt_tokens": u64::MAX, "completion_tokens": u64::MAX,
                      "reasoning_tokens": u64::MAX},
        });
        let usage = completion(&reply, &request()).expect("a reply").usage;
        assert!(usage.is_estimated);
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (2, 3));
        assert_eq!(usage.reasoning_tokens, 0);
    }
}
