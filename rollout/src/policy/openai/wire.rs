//! The chat-completions format, written strictly and read tolerantly: servers leave out fields,
//! add their own, and have their own words for why a reply ended.

use serde_json::{Map, Value, json};

use super::super::local::tool_output;
use super::super::{Completion, CompletionRequest, Finish};
use crate::trajectory::{Message, Role, ToolCall, Usage};

/// Characters of a token, for servers that don't count.
const CHARACTERS_PER_TOKEN: u64 = 4;

/// The request.
pub(super) fn body(model: &str, request: &CompletionRequest) -> Value {
    let mut body = json!({
        "model": model,
        "messages": messages(&request.messages),
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        // Servers read a signed integer.
        "seed": request.seed >> 1,
    });
    if request.top_k > 0 {
        body["top_k"] = json!(request.top_k);
    }
    if !request.stop.is_empty() {
        body["stop"] = json!(request.stop);
    }
    if !request.tools.is_empty() {
        let tool = |tool| json!({"type": "function", "function": tool});
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body
}

/// The messages. Tool results are user messages, since the calls they answer were made in the
/// text. Neighbours of one role are joined: some chat templates insist that roles alternate.
fn messages(messages: &[Message]) -> Vec<Value> {
    let mut joined: Vec<(&str, String)> = Vec::new();
    for message in messages {
        let (role, content) = match message.role {
            Role::System => ("system", message.content.clone()),
            Role::User => ("user", message.content.clone()),
            Role::Assistant => ("assistant", message.content.clone()),
            Role::Tool => ("user", tool_output(&message.content)),
        };
        match joined.last_mut() {
            Some((last, text)) if *last == role => {
                text.push_str("\n\n");
                text.push_str(&content);
            }
            _ => joined.push((role, content)),
        }
    }
    let message = |(role, content)| json!({"role": role, "content": content});
    joined.into_iter().map(message).collect()
}

/// Reads a reply; the error says what is wrong with it.
pub(super) fn completion(reply: &Value, request: &CompletionRequest) -> Result<Completion, String> {
    let choice = reply.pointer("/choices/0").ok_or("it has no choice")?;
    let message = choice.get("message").ok_or("the choice has no message")?;
    let text = match message.get("content") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        Some(_) => return Err("`content` is neither text nor null".into()),
    };
    let reasoning = ["reasoning_content", "reasoning"].iter();
    let reasoning = reasoning
        .filter_map(|name| message[*name].as_str())
        .next()
        .unwrap_or_default();
    let reason = choice["finish_reason"].as_str().unwrap_or_default();
    // vLLM says which of the stop texts it was.
    let finish = match reason {
        "length" => Finish::Length,
        "tool_calls" | "function_call" => Finish::ToolCalls,
        _ if choice["stop_reason"].is_string() => Finish::StopString,
        _ => Finish::Stop,
    };
    Ok(Completion {
        usage: usage(&reply["usage"], request, text.len() + reasoning.len()),
        is_reasoning_cut: finish == Finish::Length && text.is_empty() && !reasoning.is_empty(),
        tool_calls: tool_calls(&message["tool_calls"])?,
        text,
        finish,
        prompt_ids: Vec::new(),
        output_ids: Vec::new(),
        logprobs: Vec::new(),
    })
}

fn usage(usage: &Value, request: &CompletionRequest, reply_length: usize) -> Usage {
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
    let (prompt, completion) = (
        usage["prompt_tokens"].as_u64(),
        usage["completion_tokens"].as_u64(),
    );
    Usage {
        prompt_tokens: prompt.unwrap_or_else(|| tokens(prompt_length)),
        completion_tokens: completion.unwrap_or_else(|| tokens(reply_length)),
        is_estimated: prompt.is_none() || completion.is_none(),
    }
}

fn tool_calls(calls: &Value) -> Result<Vec<ToolCall>, String> {
    let calls = calls.as_array().map(Vec::as_slice).unwrap_or_default();
    let read = |(index, call): (usize, &Value)| {
        let function = &call["function"];
        let tool = function["name"].as_str().ok_or("a tool call has no name")?;
        Ok(ToolCall {
            id: call["id"]
                .as_str()
                .map_or_else(|| format!("call_{}", index + 1), str::to_owned),
            tool: tool.to_owned(),
            arguments: arguments(&function["arguments"])?,
        })
    };
    calls.iter().enumerate().map(read).collect()
}

/// The interface wants arguments as text; some servers send the object. Anything else would run
/// the tool with arguments that nobody gave.
fn arguments(arguments: &Value) -> Result<Map<String, Value>, String> {
    let parsed = match arguments {
        Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
        other => other.clone(),
    };
    match parsed {
        Value::Object(arguments) => Ok(arguments),
        _ => Err(format!(
            "the arguments of a tool call are no object: {arguments}"
        )),
    }
}

/// The words of an error.
pub(super) fn error_message(text: &str) -> String {
    let parsed: Value = serde_json::from_str(text).unwrap_or_default();
    let places = ["/error/message", "/error", "/message", "/detail"];
    let message = places
        .iter()
        .find_map(|place| parsed.pointer(place)?.as_str());
    message.unwrap_or(text).to_owned()
}

/// Whether an error says that the conversation is too long, in the words of the servers we know.
pub(super) fn is_context_overflow(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let phrases = [
        "context_length_exceeded",
        "maximum context length",
        "context length exceeded",
        "exceed context limit",
        "exceeds the context",
        "exceed_context_size",
        "exceeds the available context size",
        "longer than the model's context",
        "prompt is too long",
    ];
    phrases.iter().any(|phrase| text.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> CompletionRequest {
        let message = |role, text| Message::new(role, text);
        CompletionRequest {
            messages: vec![
                message(Role::User, "a"),
                message(Role::Assistant, "b"),
                message(Role::Tool, "c"),
                message(Role::User, "d"),
            ],
            tools: Vec::new(),
            max_tokens: 9,
            context_tokens: 99,
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            stop: Vec::new(),
            seed: u64::MAX,
            prior: None,
        }
    }

    fn read(reply: Value) -> Result<Completion, String> {
        completion(&reply, &request())
    }

    fn reply(message: Value, reason: Value) -> Value {
        json!({"choices": [{"message": message, "finish_reason": reason}]})
    }

    #[test]
    fn roles_alternate_and_the_seed_is_signed() {
        let body = body("m", &request());
        assert_eq!(
            body["messages"],
            json!([
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "b"},
                {"role": "user", "content": "Tool output:\nc\n\nd"},
            ])
        );
        assert!(body["seed"].as_i64().is_some());
        assert_eq!((body.get("top_k"), body.get("stop")), (None, None));
    }

    #[test]
    fn unknown_words_for_the_end_are_a_stop() {
        for reason in ["stop", "eos", "eos_token", "", "abort"] {
            let read = read(reply(
                json!({"content": "hi", "refusal": ""}),
                json!(reason),
            ));
            let read = read.expect("reply");
            assert_eq!(
                (read.text.as_str(), read.finish),
                ("hi", Finish::Stop),
                "{reason}"
            );
            assert!(read.usage.is_estimated);
        }
        let finish = |reason| {
            read(reply(json!({"content": "hi"}), reason))
                .expect("reply")
                .finish
        };
        assert_eq!(finish(Value::Null), Finish::Stop);
        assert_eq!(finish(json!("length")), Finish::Length);
        assert_eq!(finish(json!("tool_calls")), Finish::ToolCalls);
    }

    #[test]
    fn a_reply_that_is_all_reasoning_is_marked() {
        let message = json!({"content": null, "reasoning_content": "so"});
        let mut all = reply(message, json!("length"));
        all["usage"] = json!({"prompt_tokens": 3, "completion_tokens": 4096});
        let read = read(all).expect("reply");
        assert!(read.is_reasoning_cut && read.text.is_empty());
        assert_eq!(
            (read.usage.completion_tokens, read.usage.is_estimated),
            (4096, false)
        );
    }

    #[test]
    fn arguments_are_text_or_an_object_and_nothing_else() {
        let call = |arguments: Value| {
            let call = json!({"id": "c", "function": {"name": "python", "arguments": arguments}});
            read(reply(
                json!({"content": null, "tool_calls": [call]}),
                json!("tool_calls"),
            ))
        };
        let expected = Map::from_iter([("code".to_owned(), json!("1"))]);
        for arguments in [json!({"code": "1"}), json!("{\"code\": \"1\"}")] {
            assert_eq!(
                call(arguments).expect("reply").tool_calls[0].arguments,
                expected
            );
        }
        for arguments in [json!(1), json!([]), Value::Null, json!("{"), json!("[]")] {
            assert!(call(arguments).is_err());
        }
    }

    #[test]
    fn long_conversations_are_recognised_in_every_servers_words() {
        for text in [
            "This model's maximum context length is 32768 tokens. However, you requested 0 output",
            "{\"code\":\"context_length_exceeded\"}",
            "input length and `max_tokens` exceed context limit: 91000 + 48000 > 128000",
        ] {
            assert!(is_context_overflow(text), "{text}");
        }
        assert!(!is_context_overflow("rate limit exceeded"));
    }
}
