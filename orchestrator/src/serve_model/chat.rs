//! `POST /v1/chat/completions`.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use model::chat_template::RenderInput;
use model::decode::{
    Cancel, CancelGuard, Constraint, Controls, EngineError, Generation, GenerationRequest, Piece,
    TokenLogprob,
};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::refusal::Refusal;
use super::reply::{Answer, Counts, Header, logprobs};
use super::request::{Chat, ChatRequest, Form};
use super::{ModelServer, Served, tool_calls};
use crate::clock::unix_seconds;

/// Largest request body, bytes.
const MOST_BYTES: usize = 16 << 20;
/// How much of a larger one is read before it is refused, bytes.
const MOST_READ: usize = 4 * MOST_BYTES;

/// What the engine tells about one choice.
enum Told {
    Piece(u32, Piece),
    Ended(u32, Result<Generation, EngineError>),
}

pub(super) async fn completions(
    State(server): State<Arc<ModelServer>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let body = whole(body).await;
    server.authorize(&headers)?;
    let request: ChatRequest = serde_json::from_slice(&body?).map_err(Refusal::unreadable)?;
    let number = server.requests.fetch_add(1, Ordering::Relaxed);
    let is_streaming = request.stream.unwrap_or(false);
    let served = server.find(request.model.as_deref())?;
    let chat = request.check(number)?;
    let prompt = prompt(&server, &chat)?;
    let header = Header {
        id: format!("chatcmpl-{}-{number}", server.started),
        created: unix_seconds(),
        model: served.name.clone(),
    };
    let (told, cancel) = submit(&server, served, &chat, &prompt, is_streaming)?;
    let answer = Assembly {
        counts: Counts {
            prompt: prompt.len(),
            ..Counts::default()
        },
        prompt,
        header,
        chat,
        server,
    };
    if is_streaming {
        let (events, receiver) = unbounded_channel();
        tokio::spawn(answer.stream(told, cancel, events));
        return Ok(Sse::new(Events(receiver)).into_response());
    }
    Ok(Json(answer.collect(told, cancel).await?).into_response())
}

/// All of a body. One that is too large is read on but not kept: a client that can't send it to its end sees
/// a broken connection, and not the reason.
async fn whole(body: Body) -> Result<Vec<u8>, Refusal> {
    let mut parts = body.into_data_stream();
    let mut kept: Vec<u8> = Vec::new();
    let mut read = 0_usize;
    while let Some(part) = poll_fn(|context| Pin::new(&mut parts).poll_next(context)).await {
        let part = part.map_err(Refusal::unreadable)?;
        read += part.len();
        if read <= MOST_BYTES {
            kept.extend_from_slice(&part);
        } else if read > MOST_READ {
            break;
        } else {
            kept = Vec::new();
        }
    }
    if read > MOST_BYTES {
        return Err(Refusal::too_large(MOST_BYTES));
    }
    Ok(kept)
}

fn prompt(server: &ModelServer, chat: &Chat) -> Result<Vec<u32>, Refusal> {
    let mut variables = server.variables.clone();
    variables.extend(chat.variables.clone());
    let input = RenderInput {
        messages: &chat.messages,
        tools: chat.tools.as_ref(),
        add_generation_prompt: true,
        variables: &variables,
        special_tokens: &server.special_tokens,
    };
    let refuse = |reason: String| Refusal::invalid("messages", reason);
    let rendered = server
        .template
        .render_marked(&input)
        .map_err(|error| refuse(format!("the chat template refuses them: {error}")))?;
    let encoded = server.tokenizer.encode_rendered(&rendered);
    let ids = encoded.map_err(|error| refuse(error.to_string()))?.ids;
    server
        .tokenizer
        .check_start(&ids)
        .map_err(|error| refuse(error.to_string()))?;
    Ok(ids)
}

/// Queue all choices. Dropping the guard gives them up.
fn submit(
    server: &ModelServer,
    served: &Served,
    chat: &Chat,
    prompt: &[u32],
    is_streaming: bool,
) -> Result<(UnboundedReceiver<Told>, CancelGuard), Refusal> {
    let room = served.engine.context().saturating_sub(prompt.len());
    if room == 0 {
        return Err(EngineError::TooLong {
            prompt: prompt.len(),
            max_new: 1,
            limit: served.engine.context(),
        }
        .into());
    }
    let max_new = chat.max_tokens.unwrap_or(room);
    if max_new == 0 {
        return Err(Refusal::invalid("max_tokens", "it must be at least 1"));
    }
    let vocabulary = served.engine.vocabulary();
    let mut biased = chat.adjustment.bias.keys();
    if let Some(token) = biased.find(|token| **token as usize >= vocabulary) {
        let token = *token;
        let error = EngineError::UnknownToken { token, vocabulary };
        return Err(Refusal::invalid("logit_bias", error.to_string()));
    }
    let (sender, receiver) = unbounded_channel();
    let cancel = Cancel::default();
    for index in 0..chat.choices {
        let constraint = match &chat.form {
            None => None,
            Some(form) => Some(constraint(server, served, form)?),
        };
        let generation = GenerationRequest {
            prompt: prompt.to_vec(),
            adapter: served.adapter.clone(),
            max_new,
            sampling: chat.sampling,
            seed: chat.seed.wrapping_add(u64::from(index)),
            // Where a grammar says when a reply is over, its end is not for the model to ignore.
            stop_tokens: if chat.ignores_end && chat.form.is_none() {
                Vec::new()
            } else {
                server.stop_tokens.clone()
            },
            stop_strings: chat.stop.clone(),
        };
        let pieces = sender.clone();
        let on_piece = move |piece| {
            // A receiver that is gone has cancelled.
            let _ = pieces.send(Told::Piece(index, piece));
        };
        let controls = Controls {
            cancel: cancel.clone(),
            on_piece: is_streaming.then(|| Box::new(on_piece) as Box<dyn FnMut(Piece) + Send>),
            adjustment: chat.adjustment.clone(),
            constraint,
            top_logprobs: chat.top_logprobs,
        };
        let ended = sender.clone();
        served.engine.submit(generation, controls, move |result| {
            let _ = ended.send(Told::Ended(index, result));
        });
    }
    Ok((receiver, cancel.on_drop()))
}

/// What holds a reply to its form.
fn constraint(
    server: &ModelServer,
    served: &Served,
    form: &Form,
) -> Result<Box<dyn Constraint>, Refusal> {
    let (field, grammar) = match form {
        Form::Json(schema) => {
            let compiler = server.grammars(&served.engine)?;
            ("response_format", compiler.json_schema(schema))
        }
        Form::Call(functions) => {
            let compiler = server.grammars(&served.engine)?;
            ("tools", compiler.lark(&tool_calls::grammar(functions)))
        }
    };
    let grammar = grammar.map_err(|error| Refusal::invalid(field, error.to_string()))?;
    Ok(Box::new(grammar))
}

/// What an answer is put together from.
struct Assembly {
    server: Arc<ModelServer>,
    chat: Chat,
    prompt: Vec<u32>,
    header: Header,
    counts: Counts,
}

impl Assembly {
    fn answer(&self, generation: &Generation) -> Answer {
        Answer::new(generation, self.chat.tools.is_some(), &self.header.id)
    }

    fn logprobs(&self, tokens: &[u32], values: &[f32], top: &[Vec<TokenLogprob>]) -> Value {
        if self.chat.wants_logprobs {
            logprobs(&self.server.tokenizer, tokens, values, top)
        } else {
            Value::Null
        }
    }

    /// The whole answer in one object.
    async fn collect(
        mut self,
        mut told: UnboundedReceiver<Told>,
        _cancel: CancelGuard,
    ) -> Result<Value, Refusal> {
        let mut choices = vec![Value::Null; self.chat.choices as usize];
        while let Some(event) = told.recv().await {
            let Told::Ended(index, result) = event else {
                continue;
            };
            let generation = result?;
            let answer = self.answer(&generation);
            let Generation {
                tokens,
                logprobs,
                top_logprobs,
                ..
            } = &generation;
            let mut choice = json!({
                "index": index,
                "message": answer.message(),
                "logprobs": self.logprobs(tokens, logprobs, top_logprobs),
                "finish_reason": answer.finish,
            });
            if self.chat.wants_ids {
                choice["token_ids"] = json!(tokens);
            }
            choices[index as usize] = choice;
            self.counts.add(&generation);
        }
        if choices.iter().any(Value::is_null) {
            return Err(EngineError::Stopped.into());
        }
        let mut body = self.header.completion(choices, self.counts.usage());
        if self.chat.wants_ids {
            body["prompt_token_ids"] = json!(self.prompt);
        }
        Ok(body)
    }

    /// The answer in chunks, as they come. With tools, text is held until the reply is whole: it
    /// may be a call.
    async fn stream(
        mut self,
        mut told: UnboundedReceiver<Told>,
        _cancel: CancelGuard,
        events: UnboundedSender<Event>,
    ) {
        // Nothing more can be told to a client that is gone; dropping the guard ends its replies.
        let send = |body: &Value| events.send(Event::default().data(body.to_string())).is_ok();
        for index in 0..self.chat.choices {
            let delta = json!({"role": "assistant", "content": ""});
            let mut chunk = self.header.chunk(index, delta, None);
            if self.chat.wants_ids && index == 0 {
                chunk["prompt_token_ids"] = json!(self.prompt);
            }
            if !send(&chunk) {
                return;
            }
        }
        let is_held = self.chat.tools.is_some();
        let mut sent = vec![0; self.chat.choices as usize];
        while let Some(event) = told.recv().await {
            let is_sent = match event {
                Told::Piece(index, piece) => {
                    let mut delta = json!({});
                    if !is_held && !piece.text.is_empty() {
                        sent[index as usize] += piece.text.len();
                        delta["content"] = piece.text.into();
                    }
                    let mut chunk = self.header.chunk(index, delta, None);
                    let choice = &mut chunk["choices"][0];
                    choice["logprobs"] =
                        self.logprobs(&[piece.token], &[piece.logprob], &[piece.top_logprobs]);
                    if self.chat.wants_ids {
                        choice["token_ids"] = json!([piece.token]);
                    }
                    send(&chunk)
                }
                Told::Ended(index, Ok(generation)) => {
                    self.counts.add(&generation);
                    let answer = self.answer(&generation);
                    let rest = &answer.content[sent[index as usize].min(answer.content.len())..];
                    let mut delta = json!({});
                    if !rest.is_empty() {
                        delta["content"] = rest.into();
                    }
                    if !answer.calls.is_empty() {
                        delta["tool_calls"] = answer.calls.clone().into();
                    }
                    send(&self.header.chunk(index, delta, Some(answer.finish)))
                }
                Told::Ended(_, Err(error)) => {
                    send(&Refusal::from(error).body());
                    return;
                }
            };
            if !is_sent {
                return;
            }
        }
        if self.chat.wants_usage {
            send(&self.header.usage_chunk(self.counts.usage()));
        }
        let _ = events.send(Event::default().data("[DONE]"));
    }
}

/// Events as the response body reads them.
struct Events(UnboundedReceiver<Event>);

impl Stream for Events {
    type Item = Result<Event, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|event| event.map(Ok))
    }
}
