//! A streamed reply, put together to the form of one that comes whole.

use serde_json::{Map, Value, json};

use super::reply::{Parts, listed, said};

/// More calls than any reply has: looking for the call of a part takes time for each.
const MOST_CALLS: usize = 1024;

/// What a stream ends with.
pub(super) const DONE: &str = "[DONE]";

/// Why a stream is no reply.
#[derive(Debug, PartialEq)]
pub(super) enum StreamFault {
    /// The server reported an error after it had begun.
    Error(String),
    /// What came isn't a part of a reply.
    Unreadable(String),
    /// It ended without saying that it was over.
    Cut,
}

/// The parts of a streamed reply so far. Only the choice with index 0 is kept.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    content: String,
    reasoning: String,
    refusal: String,
    calls: Vec<Call>,
    finish_reason: Option<Value>,
    stop_reason: Value,
    prompt_token_ids: Value,
    token_ids: Vec<Value>,
    logprobs: Vec<Value>,
    usage: Value,
    has_choice: bool,
    is_done: bool,
}

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: Value,
}

impl Assembly {
    /// Takes the data of an event.
    pub(super) fn push(&mut self, data: &str) -> Result<(), StreamFault> {
        if data.trim() == DONE {
            self.is_done = true;
            return Ok(());
        }
        let chunk: Value = serde_json::from_str(data)
            .map_err(|error| StreamFault::Unreadable(format!("an event isn't JSON: {error}")))?;
        if chunk.get("error").is_some_and(|error| !error.is_null()) || chunk["object"] == "error" {
            return Err(StreamFault::Error(data.to_owned()));
        }
        if chunk["usage"].is_object() {
            self.usage = chunk["usage"].clone();
        }
        if chunk["prompt_token_ids"].is_array() {
            self.prompt_token_ids = chunk["prompt_token_ids"].clone();
        }
        let choices = chunk["choices"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        for choice in choices {
            if choice["index"].as_u64().unwrap_or(0) == 0 {
                self.choice(choice, data)?;
            }
        }
        Ok(())
    }

    fn choice(&mut self, choice: &Value, data: &str) -> Result<(), StreamFault> {
        self.has_choice = true;
        if choice.get("error").is_some_and(|error| !error.is_null()) {
            return Err(StreamFault::Error(data.to_owned()));
        }
        // Some servers send the last part as a whole message.
        let delta = match &choice["delta"] {
            Value::Null => &choice["message"],
            delta => delta,
        };
        let mut parts = Parts::default();
        parts
            .read(&delta["content"])
            .map_err(StreamFault::Unreadable)?;
        self.content.push_str(&parts.text);
        self.reasoning.push_str(&parts.reasoning);
        let reasoning = match &delta["reasoning_content"] {
            Value::Null => &delta["reasoning"],
            text => text,
        };
        self.reasoning.push_str(&said(reasoning));
        self.refusal.push_str(&said(&delta["refusal"]));
        for call in listed(&delta["tool_calls"]) {
            self.call(call)?;
        }
        if delta["function_call"].is_object() {
            self.call(&json!({"index": 0, "function": delta["function_call"]}))?;
        }
        let extend = |all: &mut Vec<Value>, more: &Value| {
            all.extend(more.as_array().into_iter().flatten().cloned());
        };
        extend(&mut self.token_ids, &choice["token_ids"]);
        extend(&mut self.logprobs, &choice["logprobs"]["content"]);
        if !choice["finish_reason"].is_null() {
            self.finish_reason = Some(choice["finish_reason"].clone());
        }
        if !choice["stop_reason"].is_null() {
            self.stop_reason = choice["stop_reason"].clone();
        }
        Ok(())
    }

    /// A part of a call: it belongs to the call of its index, unless that has another id already.
    fn call(&mut self, part: &Value) -> Result<(), StreamFault> {
        let index = part["index"].as_u64();
        let id = part["id"].as_str().unwrap_or_default();
        let is_same = |call: &Call| {
            let has_index = index.is_none() || call.index.is_none() || call.index == index;
            has_index && (id.is_empty() || call.id.is_empty() || call.id == id)
        };
        let place = match self.calls.iter().rposition(is_same) {
            Some(place) => place,
            None if self.calls.len() == MOST_CALLS => {
                return Err(StreamFault::Unreadable("it has too many calls".into()));
            }
            None => {
                self.calls.push(Call {
                    index,
                    ..Call::default()
                });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[place];
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        let function = &part["function"];
        if call.name.is_empty() {
            function["name"]
                .as_str()
                .unwrap_or_default()
                .clone_into(&mut call.name);
        }
        match (&mut call.arguments, &function["arguments"]) {
            (Value::String(text), Value::String(more)) => text.push_str(more),
            (_, Value::Null) => {}
            (arguments, more) => *arguments = more.clone(),
        }
        Ok(())
    }

    /// Whether the server has said why the reply ended.
    pub(super) fn is_over(&self) -> bool {
        self.is_done || self.finish_reason.is_some()
    }

    /// The reply, if the stream said that it was over.
    pub(super) fn finish(self) -> Result<Value, StreamFault> {
        if !self.is_over() {
            return Err(StreamFault::Cut);
        }
        if !self.has_choice {
            return Err(StreamFault::Unreadable("the stream has no choice".into()));
        }
        let call = |call: Call| {
            json!({"id": call.id, "type": "function",
                   "function": {"name": call.name, "arguments": call.arguments}})
        };
        let calls: Vec<Value> = self.calls.into_iter().map(call).collect();
        let mut choice = json!({
            "index": 0,
            "message": {
                "content": self.content,
                "reasoning_content": self.reasoning,
                "refusal": self.refusal,
                "tool_calls": calls,
            },
            "finish_reason": self.finish_reason,
            "stop_reason": self.stop_reason,
            "logprobs": {"content": self.logprobs},
        });
        if !self.token_ids.is_empty() {
            choice["token_ids"] = self.token_ids.into();
        }
        let mut reply = Map::new();
        reply.insert("choices".into(), json!([choice]));
        reply.insert("usage".into(), self.usage);
        reply.insert("prompt_token_ids".into(), self.prompt_token_ids);
        Ok(Value::Object(reply))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(events: &[&str]) -> Result<Value, StreamFault> {
        let mut assembly = Assembly::default();
        for event in events {
            assembly.push(event)?;
        }
        assembly.finish()
    }

    #[test]
    fn text_reasoning_and_usage_are_put_together() {
        let reply = read(&[
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"prompt_token_ids":[1,2]}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"other"}},{"index":0,"delta":{"reasoning_content":"so"},"token_ids":[3]}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"The "},"logprobs":{"content":[{"logprob":-1.0}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"end"},"finish_reason":"stop","token_ids":[4,5]}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3}}"#,
            "[DONE]",
        ])
        .expect("reply");
        let choice = &reply["choices"][0];
        assert_eq!(choice["message"]["content"], "The end");
        assert_eq!(choice["message"]["reasoning_content"], "so");
        assert_eq!(choice["token_ids"], json!([3, 4, 5]));
        assert_eq!(reply["prompt_token_ids"], json!([1, 2]));
        assert_eq!(reply["usage"]["completion_tokens"], 3);
    }

    #[test]
    fn parts_of_calls_find_their_call() {
        let call = |events: &[&str]| {
            let mut all: Vec<String> = events
                .iter()
                .map(|call| format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{call}]}}}}]}}"#))
                .collect();
            all.push(r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#.into());
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let reply = read(&all).expect("reply");
            let calls = reply["choices"][0]["message"]["tool_calls"].clone();
            let calls = calls.as_array().cloned().expect("calls");
            calls
                .iter()
                .map(|call| call["function"].clone())
                .collect::<Vec<_>>()
        };
        let two = [
            json!({"name": "a", "arguments": "{\"x\": 1}"}),
            json!({"name": "b", "arguments": "{}"}),
        ];
        // By index, in turns.
        assert_eq!(
            call(&[
                r#"{"index":0,"id":"i","function":{"name":"a","arguments":"{\"x\""}}"#,
                r#"{"index":1,"id":"j","function":{"name":"b","arguments":""}}"#,
                r#"{"index":0,"function":{"arguments":": 1}"}}"#,
                r#"{"index":1,"function":{"arguments":"{}"}}"#,
            ]),
            two
        );
        // Everything under index 0, or without one.
        for index in ["\"index\":0,", ""] {
            assert_eq!(
                call(&[
                    &format!(
                        r#"{{{index}"id":"i","function":{{"name":"a","arguments":"{{\"x\""}}}}"#
                    ),
                    &format!(r#"{{{index}"function":{{"arguments":": 1}}"}}}}"#),
                    &format!(r#"{{{index}"id":"j","function":{{"name":"b","arguments":"{{}}"}}}}"#),
                ]),
                two
            );
        }
        // An object in one piece.
        let whole = call(&[r#"{"index":0,"function":{"name":"a","arguments":{"x":1}}}"#]);
        assert_eq!(whole[0]["arguments"], json!({"x": 1}));
    }

    /// Cuts a text into pieces of these lengths, at whole characters.
    fn cut(text: &str, lengths: &[usize]) -> Vec<String> {
        let mut pieces = Vec::new();
        let mut characters = text.chars().peekable();
        for length in lengths.iter().cycle() {
            if characters.peek().is_none() {
                break;
            }
            pieces.push(characters.by_ref().take(*length).collect());
        }
        pieces
    }

    proptest! {
        /// A reply is the same however the server cuts its text, its reasoning and its arguments.
        #[test]
        fn parts_make_no_difference(
            content in "\\PC{0,40}",
            reasoning in "\\PC{0,20}",
            arguments in "\\PC{0,30}",
            lengths in proptest::collection::vec(1usize..7, 1..5),
        ) {
            let event = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]}).to_string();
            let stream = |lengths: &[usize]| {
                let mut events = Vec::new();
                for piece in cut(&reasoning, lengths) {
                    events.push(event(json!({"reasoning_content": piece})));
                }
                for piece in cut(&content, lengths) {
                    events.push(event(json!({"content": piece})));
                }
                let begin = json!({"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}});
                events.push(event(json!({"tool_calls": [begin]})));
                for piece in cut(&arguments, lengths) {
                    let call = json!({"index": 0, "function": {"arguments": piece}});
                    events.push(event(json!({"tool_calls": [call]})));
                }
                events.push(json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}).to_string());
                let events: Vec<&str> = events.iter().map(String::as_str).collect();
                read(&events)
            };
            let whole = stream(&[usize::MAX]).expect("a reply");
            prop_assert_eq!(&whole["choices"][0]["message"]["content"], &json!(content));
            let call = &whole["choices"][0]["message"]["tool_calls"][0];
            prop_assert_eq!(&call["function"]["arguments"], &json!(arguments));
            prop_assert_eq!(stream(&lengths), Ok(whole));
        }

        #[test]
        fn any_event_is_taken_or_refused(text in "\\PC{0,60}|[{}\\[\\]\":,a-z0-9]{0,60}") {
            let mut assembly = Assembly::default();
            let _ = assembly.push(&text);
            let _ = assembly.finish();
        }
    }

    #[test]
    fn calls_without_end_are_no_reply() {
        let mut assembly = Assembly::default();
        let fault = (0..2 * MOST_CALLS).find_map(|id| {
            let call = json!({"id": id.to_string(), "function": {"name": "f"}});
            let event = json!({"choices": [{"delta": {"tool_calls": [call]}}]});
            assembly.push(&event.to_string()).err()
        });
        assert!(matches!(fault, Some(StreamFault::Unreadable(_))));
    }

    #[test]
    fn a_stream_that_fails_is_no_reply() {
        let begun = r#"{"choices":[{"delta":{"content":"The ans"}}]}"#;
        let error = r#"{"error": {"message": "TimeoutError", "code": 504}}"#;
        assert!(matches!(read(&[error, DONE]), Err(StreamFault::Error(_))));
        assert!(matches!(read(&[begun, error]), Err(StreamFault::Error(_))));
        assert_eq!(read(&[begun]), Err(StreamFault::Cut));
        assert_eq!(read(&[]), Err(StreamFault::Cut));
        assert!(matches!(read(&[DONE]), Err(StreamFault::Unreadable(_))));
        assert!(matches!(read(&["{\"cho"]), Err(StreamFault::Unreadable(_))));
    }
}
