//! The request in the chat-completions format.

use serde_json::{Value, json};

use super::super::local::tool_output;
use super::super::{CompletionRequest, ToolSchema};
use super::OpenAiOptions;
use crate::trajectory::{Message, Role, ToolCall};

/// Name of the field that limits the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitField {
    /// What nearly all servers read.
    MaxTokens,
    /// What hosted reasoning models insist on.
    MaxCompletionTokens,
}

impl LimitField {
    fn name(self) -> &'static str {
        match self {
            LimitField::MaxTokens => "max_tokens",
            LimitField::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// The request. `max_tokens` goes before the one in `request`.
pub(super) fn body(
    options: &OpenAiOptions,
    request: &CompletionRequest,
    field: LimitField,
    max_tokens: u32,
) -> Value {
    let mut body = json!({
        "model": options.model,
        "messages": messages(&request.messages),
        "temperature": request.temperature,
        "top_p": request.top_p,
        // Some servers read 32 bits, some a signed number.
        "seed": request.seed >> 33,
    });
    body[field.name()] = json!(max_tokens);
    // OpenAI's own interface has neither: a server that doesn't know them meets them only where a
    // harness sets them.
    if request.top_k > 0 {
        body["top_k"] = json!(request.top_k);
    }
    if request.min_p > 0.0 {
        body["min_p"] = json!(request.min_p);
    }
    if !request.stop.is_empty() {
        body["stop"] = json!(request.stop);
    }
    if !request.tools.is_empty() {
        let tool = |tool: &ToolSchema| json!({"type": "function", "function": tool});
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if let Some(schema) = &options.response_schema {
        body["response_format"] = json!({
            "type": "json_schema",
            "json_schema": {"name": "reply", "schema": schema},
        });
    }
    if options.wants_token_ids {
        body["return_token_ids"] = json!(true);
        // llama.cpp refuses log-probabilities for a stream that may hold calls.
        if !options.is_streaming || request.tools.is_empty() {
            body["logprobs"] = json!(true);
        }
    }
    if options.is_streaming {
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

/// One message that goes out.
enum Outgoing {
    Text { role: &'static str, content: String },
    Calls { content: String, calls: Vec<Value> },
    Result { id: String, content: String },
}

/// The messages. Results of calls that were made in the text are user messages. Neighbours of one
/// role are joined: some chat templates insist that roles alternate.
fn messages(messages: &[Message]) -> Vec<Value> {
    let mut outgoing: Vec<Outgoing> = Vec::new();
    let mut ids = CallIds::default();
    for message in messages {
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant if message.is_native && !message.tool_calls.is_empty() => {
                let calls = message.tool_calls.iter().map(|call| ids.announce(call));
                outgoing.push(Outgoing::Calls {
                    content: message.content.clone(),
                    calls: calls.collect(),
                });
                continue;
            }
            // Some servers refuse an empty message, and with it all that comes after.
            Role::Assistant if message.content.trim().is_empty() => continue,
            Role::Assistant => "assistant",
            Role::Tool if message.is_native => {
                outgoing.push(Outgoing::Result {
                    id: ids.answer(),
                    content: message.content.clone(),
                });
                continue;
            }
            Role::Tool => "user",
        };
        let text = match message.role {
            Role::Tool => tool_output(&message.content),
            _ => message.content.clone(),
        };
        match outgoing.last_mut() {
            Some(Outgoing::Text {
                role: last,
                content,
            }) if *last == role => {
                content.push_str("\n\n");
                content.push_str(&text);
            }
            _ => outgoing.push(Outgoing::Text {
                role,
                content: text,
            }),
        }
    }
    outgoing.into_iter().map(written).collect()
}

fn written(message: Outgoing) -> Value {
    match message {
        Outgoing::Text { role, content } => json!({"role": role, "content": content}),
        Outgoing::Calls { content, calls } => {
            let content = match content.as_str() {
                "" => Value::Null,
                text => Value::from(text),
            };
            json!({"role": "assistant", "content": content, "tool_calls": calls})
        }
        Outgoing::Result { id, content } => {
            json!({"role": "tool", "tool_call_id": id, "content": content})
        }
    }
}

/// Ids of calls in one conversation. They are given anew: examples have none, servers repeat theirs,
/// and Mistral's templates insist on nine letters and digits.
#[derive(Default)]
struct CallIds {
    announced: usize,
    answered: usize,
}

impl CallIds {
    fn id(number: usize) -> String {
        format!("call{number:05}")
    }

    fn announce(&mut self, call: &ToolCall) -> Value {
        self.announced += 1;
        // From a map, so that the history never holds broken JSON.
        let arguments = Value::Object(call.arguments.clone()).to_string();
        json!({
            "id": Self::id(self.announced),
            "type": "function",
            "function": {"name": call.tool, "arguments": arguments},
        })
    }

    fn answer(&mut self) -> String {
        self.answered += 1;
        Self::id(self.answered)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    fn request(messages: Vec<Message>) -> CompletionRequest {
        CompletionRequest {
            seed: u64::MAX,
            ..CompletionRequest::new(messages, 9)
        }
    }

    fn written(messages: Vec<Message>) -> Value {
        let options = OpenAiOptions::new("http://localhost/v1", "m");
        body(&options, &request(messages), LimitField::MaxTokens, 7)
    }

    #[test]
    fn roles_alternate_and_the_seed_fits_every_server() {
        let body = written(vec![
            Message::new(Role::User, "a"),
            Message::new(Role::Assistant, "b"),
            Message::new(Role::Tool, "c"),
            Message::new(Role::User, "d"),
        ]);
        assert_eq!(
            body["messages"],
            json!([
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "b"},
                {"role": "user", "content": "Tool output:\nc\n\nd"},
            ])
        );
        assert!(body["seed"].as_i64().is_some_and(|seed| seed < 1 << 31));
        assert_eq!(body["max_tokens"], 7);
        for absent in [
            "top_k",
            "min_p",
            "stop",
            "tools",
            "stream",
            "logprobs",
            "response_format",
        ] {
            assert_eq!(body.get(absent), None);
        }
    }

    #[test]
    fn a_reply_that_said_nothing_is_left_out() {
        let body = written(vec![
            Message::new(Role::User, "a"),
            Message::new(Role::Assistant, " \n"),
            Message::new(Role::User, "b"),
        ]);
        assert_eq!(
            body["messages"],
            json!([{"role": "user", "content": "a\n\nb"}])
        );
    }

    #[test]
    fn replies_can_be_held_to_a_schema() {
        let mut options = OpenAiOptions::new("http://localhost/v1", "m");
        options.response_schema = Some(json!({"type": "object"}));
        let body = body(&options, &request(Vec::new()), LimitField::MaxTokens, 7);
        let format = &body["response_format"];
        assert_eq!(format["type"], "json_schema");
        assert_eq!(format["json_schema"]["schema"]["type"], "object");
    }

    #[test]
    fn native_calls_and_results_are_paired_by_ids_of_our_own() {
        let call = |code: &str| ToolCall {
            id: "call_1".into(),
            tool: "python".into(),
            arguments: Map::from_iter([("code".to_owned(), json!(code))]),
        };
        let native = |role, content: &str, tool_calls| Message {
            tool_calls,
            is_native: true,
            ..Message::new(role, content)
        };
        let body = written(vec![
            Message::new(Role::User, "a"),
            native(Role::Assistant, "", vec![call("1"), call("2")]),
            native(Role::Tool, "1", Vec::new()),
            native(Role::Tool, "2", Vec::new()),
            native(Role::Assistant, "So.", vec![call("{\"")]),
            native(Role::Tool, "3", Vec::new()),
            Message::new(Role::User, "b"),
        ]);
        let messages = &body["messages"];
        assert_eq!(messages[1]["content"], Value::Null);
        assert_eq!(messages[1]["tool_calls"][1]["id"], "call00002");
        assert_eq!(messages[2]["tool_call_id"], "call00001");
        assert_eq!(messages[3]["tool_call_id"], "call00002");
        assert_eq!(messages[4]["content"], "So.");
        assert_eq!(messages[5]["tool_call_id"], "call00003");
        let text = messages[4]["tool_calls"][0]["function"]["arguments"].as_str();
        let arguments: Value = serde_json::from_str(text.expect("text")).expect("JSON");
        assert_eq!(arguments, json!({"code": "{\""}));
    }
}
