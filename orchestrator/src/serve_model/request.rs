//! Chat-completion requests as clients write them, checked and turned into what the engine takes.
//!
//! Fields are those of OpenAI's API reference and the additions that llama.cpp and vLLM share
//! (`top_k`, `min_p`, `ignore_eos`, `return_token_ids`). What would change a reply and isn't
//! supported is refused; `fields` says what is read over.

use model::decode::Adjustment;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::fields;
use super::logits;
use super::refusal::Refusal;
use super::tool_calls::Function;

/// Most replies of one request.
const MOST_CHOICES: u32 = 64;

/// The body of `POST /v1/chat/completions`.
#[derive(Debug, Deserialize)]
pub(super) struct ChatRequest {
    #[serde(default)]
    pub(super) model: Option<String>,
    messages: Vec<Value>,
    #[serde(default)]
    max_tokens: Option<usize>,
    #[serde(default)]
    max_completion_tokens: Option<usize>,
    #[serde(default)]
    temperature: Option<f32>,
    #[serde(default)]
    top_p: Option<f32>,
    #[serde(default)]
    top_k: Option<i64>,
    #[serde(default)]
    min_p: Option<f32>,
    #[serde(default)]
    seed: Option<i64>,
    #[serde(default)]
    n: Option<u32>,
    #[serde(default)]
    stop: Option<Stop>,
    #[serde(default)]
    pub(super) stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    logprobs: Option<bool>,
    #[serde(default)]
    top_logprobs: Option<i64>,
    #[serde(default)]
    tools: Option<Vec<Value>>,
    #[serde(default)]
    tool_choice: Option<Value>,
    #[serde(default)]
    parallel_tool_calls: Option<bool>,
    #[serde(default)]
    response_format: Option<Value>,
    #[serde(default)]
    frequency_penalty: Option<f32>,
    #[serde(default)]
    presence_penalty: Option<f32>,
    #[serde(default)]
    logit_bias: Option<Value>,
    #[serde(default)]
    ignore_eos: Option<bool>,
    #[serde(default)]
    return_token_ids: Option<bool>,
    #[serde(default)]
    chat_template_kwargs: Option<Map<String, Value>>,
    /// Every other field, to be refused or read over by name.
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Many(Vec<String>),
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
    /// Every other field, as in the request itself.
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// What a reply has to look like.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Form {
    /// One JSON value of a schema.
    Json(Value),
    /// One call of one of these.
    Call(Vec<Function>),
}

/// A checked request.
#[derive(Debug, Clone)]
pub(super) struct Chat {
    /// Messages as chat templates read them.
    pub(super) messages: Vec<Value>,
    /// Tools for the template; none if the client wants none called.
    pub(super) tools: Option<Value>,
    /// What the reply has to look like, if not any text will do.
    pub(super) form: Option<Form>,
    /// Further variables of the template.
    pub(super) variables: Map<String, Value>,
    pub(super) max_tokens: Option<usize>,
    pub(super) sampling: model::decode::Sampling,
    pub(super) adjustment: Adjustment,
    /// Of the first reply; the others count on from it.
    pub(super) seed: u64,
    pub(super) choices: u32,
    pub(super) stop: Vec<String>,
    pub(super) wants_usage: bool,
    pub(super) wants_logprobs: bool,
    /// How many of the likeliest tokens are told of beside each.
    pub(super) top_logprobs: usize,
    pub(super) wants_ids: bool,
    pub(super) ignores_end: bool,
}

impl ChatRequest {
    /// Checks every field; `fresh_seed` is used where the client names none.
    pub(super) fn check(self, fresh_seed: u64) -> Result<Chat, Refusal> {
        if self.messages.is_empty() {
            return Err(Refusal::invalid("messages", "there is no message"));
        }
        fields::check(&self.others)?;
        if let Some(options) = &self.stream_options {
            fields::check_part("stream_options", &options.others)?;
        }
        let messages = self
            .messages
            .into_iter()
            .enumerate()
            .map(|(index, message)| read_message(message, index))
            .collect::<Result<Vec<_>, _>>()?;
        let temperature = in_range("temperature", self.temperature, 1.0, 0.0..=10.0)?;
        let top_p = in_range("top_p", self.top_p, 1.0, 0.0..=1.0)?;
        let min_p = in_range("min_p", self.min_p, 0.0, 0.0..=1.0)?;
        let penalty = |name, value| in_range(name, value, 0.0, -2.0..=2.0);
        let adjustment = Adjustment {
            bias: logits::read_bias(self.logit_bias.as_ref())?,
            frequency_penalty: penalty("frequency_penalty", self.frequency_penalty)?,
            presence_penalty: penalty("presence_penalty", self.presence_penalty)?,
        };
        let wants_logprobs = self.logprobs.unwrap_or(false);
        let top_logprobs = logits::read_top(self.top_logprobs, wants_logprobs)?;
        let tools = self.tools.unwrap_or_default();
        let functions = read_tools(&tools)?;
        let choice = read_choice(self.tool_choice.as_ref(), functions)?;
        let format = read_format(self.response_format.as_ref())?;
        if format.is_some() && choice.is_some() {
            let reason = "a call can't be demanded together with a response format";
            return Err(Refusal::invalid("tool_choice", reason));
        }
        let may_call = !tools.is_empty() && !is_none(self.tool_choice.as_ref());
        if self.parallel_tool_calls == Some(false) && may_call && choice.is_none() {
            let reason = "a reply may hold several calls unless tool_choice demands one";
            return Err(Refusal::invalid("parallel_tool_calls", reason));
        }
        let choices = self.n.unwrap_or(1);
        if choices == 0 || choices > MOST_CHOICES {
            let reason = format!("it must be from 1 to {MOST_CHOICES}");
            return Err(Refusal::invalid("n", reason));
        }
        let stop = match self.stop {
            None => Vec::new(),
            Some(Stop::One(text)) => vec![text],
            Some(Stop::Many(texts)) => texts,
        };
        if stop.iter().any(String::is_empty) {
            return Err(Refusal::invalid("stop", "a stop text is empty"));
        }
        Ok(Chat {
            messages,
            tools: may_call.then_some(Value::Array(tools)),
            form: choice.or(format),
            variables: self.chat_template_kwargs.unwrap_or_default(),
            max_tokens: self.max_completion_tokens.or(self.max_tokens),
            sampling: model::decode::Sampling {
                temperature,
                top_p: top_p.max(f32::MIN_POSITIVE),
                // Both -1 and 0 are in use for "all tokens".
                top_k: u32::try_from(self.top_k.unwrap_or(0)).unwrap_or(0),
                min_p,
            },
            adjustment,
            seed: self.seed.map_or(fresh_seed, i64::cast_unsigned),
            choices,
            stop,
            wants_usage: self
                .stream_options
                .and_then(|options| options.include_usage)
                .unwrap_or(false),
            wants_logprobs,
            top_logprobs,
            wants_ids: self.return_token_ids.unwrap_or(false),
            ignores_end: self.ignore_eos.unwrap_or(false),
        })
    }
}

fn in_range(
    name: &'static str,
    value: Option<f32>,
    default: f32,
    range: std::ops::RangeInclusive<f32>,
) -> Result<f32, Refusal> {
    match value {
        None => Ok(default),
        Some(value) if range.contains(&value) => Ok(value),
        Some(_) => {
            let reason = format!("it must be from {} to {}", range.start(), range.end());
            Err(Refusal::invalid(name, reason))
        }
    }
}

/// The functions of the tools.
fn read_tools(tools: &[Value]) -> Result<Vec<Function>, Refusal> {
    let read = |(index, tool): (usize, &Value)| {
        let refuse = |reason: String| Refusal::invalid("tools", format!("tool {index}: {reason}"));
        let function = &tool["function"];
        let Some(name) = function["name"].as_str() else {
            return Err(refuse("it has no function.name".into()));
        };
        Function::new(name, &function["parameters"]).map_err(refuse)
    };
    tools.iter().enumerate().map(read).collect()
}

fn is_none(choice: Option<&Value>) -> bool {
    choice.is_some_and(|choice| choice == "none")
}

/// The form of a call, where one is demanded: of any tool or of the one named.
fn read_choice(choice: Option<&Value>, functions: Vec<Function>) -> Result<Option<Form>, Refusal> {
    let refuse = |reason: &str| Refusal::invalid("tool_choice", reason);
    let name = match choice {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(choice)) => match choice.as_str() {
            "auto" | "none" => return Ok(None),
            "required" => None,
            _ => return Err(refuse("it is none of \"auto\", \"none\" and \"required\"")),
        },
        Some(choice) => Some(
            choice["function"]["name"]
                .as_str()
                .ok_or_else(|| refuse("it names no function"))?,
        ),
    };
    let offered: Vec<Function> = functions
        .into_iter()
        .filter(|function| name.is_none_or(|name| function.name == name))
        .collect();
    if offered.is_empty() {
        return Err(refuse("no such tool is offered"));
    }
    Ok(Some(Form::Call(offered)))
}

/// The form that `response_format` asks for.
fn read_format(format: Option<&Value>) -> Result<Option<Form>, Refusal> {
    let refuse = |reason: &str| Refusal::invalid("response_format", reason);
    let Some(format) = format.filter(|format| !format.is_null()) else {
        return Ok(None);
    };
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => {
            // llama.cpp takes a schema here too.
            let schema = match &format["schema"] {
                Value::Null => json!({"type": "object"}),
                schema => schema.clone(),
            };
            Ok(Some(Form::Json(schema)))
        }
        Some("json_schema") => match &format["json_schema"]["schema"] {
            Value::Null => Err(refuse("it has no json_schema.schema")),
            schema => Ok(Some(Form::Json(schema.clone()))),
        },
        _ => Err(refuse(
            "its type is none of text, json_object and json_schema",
        )),
    }
}

/// One message as chat templates read it: text content, calls with their arguments as objects.
fn read_message(message: Value, index: usize) -> Result<Value, Refusal> {
    let refuse =
        |reason: String| Refusal::invalid("messages", format!("message {index}: {reason}"));
    let Value::Object(mut message) = message else {
        return Err(refuse("it is not an object".into()));
    };
    let role = match message.get("role").and_then(Value::as_str) {
        Some("developer") => "system".to_owned(),
        Some(role @ ("system" | "user" | "assistant" | "tool")) => role.to_owned(),
        Some(role) => return Err(refuse(format!("there is no role {role}"))),
        None => return Err(refuse("it has no role".into())),
    };
    let calls = match message.remove("tool_calls") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(calls)) => calls,
        Some(_) => return Err(refuse("tool_calls is not a list".into())),
    };
    let content = match message.remove("content") {
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => join_parts(&parts).map_err(refuse)?,
        None | Some(Value::Null) if !calls.is_empty() => String::new(),
        None | Some(Value::Null) => return Err(refuse("it has no content".into())),
        Some(_) => return Err(refuse("its content is neither text nor parts".into())),
    };
    let mut read = json!({"role": role, "content": content});
    if !calls.is_empty() {
        let calls = calls.into_iter().map(|call| {
            let function = &call["function"];
            let arguments = match &function["arguments"] {
                Value::String(text) => serde_json::from_str(text)
                    .map_err(|error| refuse(format!("arguments of a call: {error}")))?,
                other => other.clone(),
            };
            let function = json!({"name": function["name"], "arguments": arguments});
            Ok(json!({"id": call["id"], "type": "function", "function": function}))
        });
        read["tool_calls"] = Value::Array(calls.collect::<Result<_, Refusal>>()?);
    }
    for name in ["name", "tool_call_id", "reasoning_content"] {
        if let Some(value) = message.remove(name).filter(|value| !value.is_null()) {
            read[name] = value;
        }
    }
    fields::check_message(&message).map_err(refuse)?;
    Ok(read)
}

/// Content parts of type `text`, joined.
fn join_parts(parts: &[Value]) -> Result<String, String> {
    let mut text = String::new();
    for part in parts {
        match (part["type"].as_str(), part["text"].as_str()) {
            (Some("text"), Some(part)) => text.push_str(part),
            (kind, _) => {
                let kind = kind.unwrap_or("of no type");
                return Err(format!("a content part is {kind}, not text"));
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mut body: Value) -> Result<Chat, Refusal> {
        if body.get("messages").is_none() {
            body["messages"] = json!([{"role": "user", "content": "1+1"}]);
        }
        let request: ChatRequest = serde_json::from_value(body).expect("shape");
        request.check(5)
    }

    #[test]
    fn messages_of_all_shapes_are_read() {
        let chat = check(json!({"messages": [
            {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "user", "content": "c", "name": "me"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "python", "arguments": "{\"code\": \"1\"}"}}]},
            {"role": "tool", "content": "1", "tool_call_id": "1"},
        ]}))
        .expect("good");
        assert_eq!(chat.messages[0], json!({"role": "system", "content": "ab"}));
        assert_eq!(chat.messages[1]["name"], "me");
        let call = &chat.messages[2]["tool_calls"][0]["function"];
        assert_eq!(call["arguments"]["code"], "1");
        assert_eq!(chat.messages[3]["tool_call_id"], "1");
    }

    #[test]
    fn defaults_are_those_of_the_api() {
        let chat = check(json!({})).expect("good");
        assert_eq!((chat.sampling.temperature, chat.sampling.top_p), (1.0, 1.0));
        assert_eq!((chat.sampling.top_k, chat.seed, chat.choices), (0, 5, 1));
        assert!(!chat.wants_logprobs && chat.max_tokens.is_none() && chat.stop.is_empty());
        assert_eq!(
            (chat.top_logprobs, chat.adjustment),
            (0, Adjustment::default())
        );
        let chat = check(json!({"top_k": -1, "seed": 7, "stop": "x", "max_tokens": 3,
            "max_completion_tokens": 4, "logprobs": true, "top_logprobs": 20}))
        .expect("good");
        assert_eq!((chat.sampling.top_k, chat.seed), (0, 7));
        assert_eq!((chat.stop, chat.max_tokens), (vec!["x".into()], Some(4)));
        assert_eq!((chat.wants_logprobs, chat.top_logprobs), (true, 20));
        let chat = check(
            json!({"frequency_penalty": -2, "presence_penalty": 0.5, "logit_bias": {"5": 1}}),
        );
        let adjustment = Adjustment {
            bias: [(5, 1.0)].into(),
            frequency_penalty: -2.0,
            presence_penalty: 0.5,
        };
        assert_eq!(chat.expect("good").adjustment, adjustment);
    }

    #[test]
    fn formats_and_demanded_calls_become_schemas() {
        let format = |format| {
            check(json!({"response_format": format}))
                .expect("good")
                .form
        };
        assert_eq!(format(json!({"type": "text"})), None);
        let any = Some(Form::Json(json!({"type": "object"})));
        assert_eq!(format(json!({"type": "json_object"})), any);
        let schema = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}}});
        assert_eq!(format(schema), Some(Form::Json(json!({"type": "integer"}))));
        let tools = json!([
            {"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}},
            {"type": "function", "function": {"name": "b"}},
        ]);
        let choice = |choice| check(json!({"tools": tools, "tool_choice": choice})).expect("good");
        let function = |name: &str| Function {
            name: name.into(),
            parameters: json!({"type": "object"}),
        };
        assert_eq!(
            choice(json!("required")).form,
            Some(Form::Call(vec![function("a"), function("b")]))
        );
        let named = choice(json!({"type": "function", "function": {"name": "a"}}));
        assert_eq!(named.form, Some(Form::Call(vec![function("a")])));
        assert!(choice(json!("none")).tools.is_none() && choice(json!("auto")).tools.is_some());
    }

    #[test]
    fn what_would_change_a_reply_and_is_not_supported_is_refused_by_name() {
        for (field, body) in [
            ("messages", json!({"messages": []})),
            (
                "messages",
                json!({"messages": [{"role": "robot", "content": "x"}]}),
            ),
            (
                "messages",
                json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            ),
            ("messages", json!({"messages": [{"role": "user"}]})),
            ("temperature", json!({"temperature": -1})),
            ("top_p", json!({"top_p": 1.5})),
            ("frequency_penalty", json!({"frequency_penalty": 2.5})),
            ("presence_penalty", json!({"presence_penalty": -2.5})),
            ("logit_bias", json!({"logit_bias": {"5": 101}})),
            (
                "top_logprobs",
                json!({"logprobs": true, "top_logprobs": 21}),
            ),
            (
                "top_logprobs",
                json!({"logprobs": true, "top_logprobs": -1}),
            ),
            ("top_logprobs", json!({"top_logprobs": 5})),
            (
                "response_format",
                json!({"response_format": {"type": "yaml"}}),
            ),
            (
                "response_format",
                json!({"response_format": {"type": "json_schema"}}),
            ),
            ("n", json!({"n": 0})),
            ("stop", json!({"stop": [""]})),
            ("tool_choice", json!({"tool_choice": "required"})),
            ("tool_choice", json!({"tool_choice": "sometimes"})),
            (
                "tool_choice",
                json!({"tool_choice": {"type": "function", "function": {"name": "x"}},
                "tools": [{"type": "function", "function": {"name": "y"}}]}),
            ),
            ("tools", json!({"tools": [{"type": "function"}]})),
            (
                "tools",
                json!({"tools": [{"function": {"name": "x", "parameters": "y"}}]}),
            ),
            (
                "tools",
                json!({"tools": [{"function": {"name": "x", "parameters": {"type": "array"}}}]}),
            ),
            (
                "parallel_tool_calls",
                json!({"parallel_tool_calls": false, "tools": [{"function": {"name": "x"}}]}),
            ),
            ("repetition_penalty", json!({"repetition_penalty": 1.2})),
            ("guided_json", json!({"guided_json": {"type": "object"}})),
            ("functions", json!({"functions": [{"name": "x"}]})),
            (
                "stream_options.continuous_usage_stats",
                json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}}),
            ),
            (
                "messages",
                json!({"messages": [{"role": "assistant", "content": "x", "function_call": {"name": "y"}}]}),
            ),
        ] {
            let refusal = check(body).expect_err(field);
            assert_eq!(refusal.parameter.as_deref(), Some(field));
        }
        // A demanded call is one, and where nothing is offered there is none.
        let demanded = json!({"parallel_tool_calls": false, "tool_choice": "required",
            "tools": [{"function": {"name": "x"}}]});
        assert!(check(demanded).is_ok());
        assert!(check(json!({"parallel_tool_calls": false, "user": "me"})).is_ok());
        let quiet = json!({"include_usage": null, "include_obfuscation": false, "continuous_usage_stats": false});
        let chat =
            check(json!({"stream": true, "stream_options": quiet})).expect("asks for nothing");
        assert!(!chat.wants_usage);
    }
}
