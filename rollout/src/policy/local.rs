//! The policy that this process decodes itself.
//!
//! A conversation grows by what the model wrote and by what the loop adds. The model's own token
//! ids are kept: tokenising its text again could give other ids, and then neither the cache of
//! keys and values nor the record of what was sampled would be true any more.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use model::chat_template::Rendered;
use model::decode::{
    self, Constraint, Controls, Engine, EngineAdapter, EngineError, Generation, GenerationRequest,
    Sampling,
};
use model::grammar::{Grammar, GrammarCompiler, GrammarError};
use model::tokenizer::{TokenStream, Tokenizer};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{
    BoxFuture, Completion, CompletionRequest, Finish, Policy, PolicyError, PolicyId, Renderer,
};
use crate::protocol;
use crate::trajectory::Usage;

/// What else a [`LocalPolicy`] needs to know.
#[derive(Clone, Debug)]
pub struct LocalPolicyOptions {
    /// Identity: hashes of model and adapter.
    pub id: PolicyId,
    /// Which of the engine's adapters replies; without one, the engine's model.
    pub adapter: Option<EngineAdapter>,
    /// Tokens that end a reply, all that the model or the tokenizer names.
    pub stop_tokens: Vec<u32>,
}

/// A model that is decoded in this process.
pub struct LocalPolicy {
    engine: Arc<Engine>,
    tokenizer: Arc<Tokenizer>,
    renderer: Renderer,
    options: LocalPolicyOptions,
    /// Made for the first reply that has a grammar.
    grammars: OnceLock<Result<GrammarCompiler, GrammarError>>,
    /// The last few grammars, ready to be followed from their beginning.
    compiled: Mutex<Vec<(String, Grammar)>>,
}

/// Compiled grammars kept: those of the candidates of a gate.
const KEPT_GRAMMARS: usize = 8;

impl std::fmt::Debug for LocalPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalPolicy")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl LocalPolicy {
    /// A policy over a running engine, which others may decode with too.
    pub fn new(
        engine: Arc<Engine>,
        tokenizer: Arc<Tokenizer>,
        renderer: Renderer,
        options: LocalPolicyOptions,
    ) -> Self {
        Self {
            engine,
            tokenizer,
            renderer,
            options,
            grammars: OnceLock::new(),
            compiled: Mutex::new(Vec::new()),
        }
    }

    /// A grammar at its beginning.
    fn grammar(&self, text: &str) -> Result<Grammar, GrammarError> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, grammar)) = compiled.iter().find(|(known, _)| known == text) {
            return Ok(grammar.clone());
        }
        let compiler = self.grammars.get_or_init(|| {
            let (vocabulary, stop) = (self.engine.vocabulary(), &self.options.stop_tokens);
            GrammarCompiler::new(&self.tokenizer, vocabulary, stop)
        });
        let grammar = compiler.as_ref().map_err(Clone::clone)?.lark(text)?;
        if compiled.len() >= KEPT_GRAMMARS {
            compiled.remove(0);
        }
        compiled.push((text.to_owned(), grammar.clone()));
        Ok(grammar)
    }

    /// Ids of the conversation, the known ones kept.
    fn prompt(&self, request: &CompletionRequest) -> Result<Vec<u32>, PolicyError> {
        let tools = (!request.tools.is_empty()).then(|| {
            let tool = |tool| json!({"type": "function", "function": tool});
            Value::Array(request.tools.iter().map(tool).collect())
        });
        let rendered = self
            .renderer
            .render(&request.messages, tools.as_ref(), true)?;
        let continued = match &request.prior {
            Some(prior) => self.continued(prior, &rendered)?,
            None => None,
        };
        let ids = match continued {
            Some(ids) => ids,
            None => self.tokenizer.encode_rendered(&rendered)?.ids,
        };
        self.tokenizer.check_start(&ids)?;
        Ok(ids)
    }

    /// The known ids and those of the text after them, if they are a beginning of the text.
    fn continued(
        &self,
        prior: &[u32],
        rendered: &Rendered,
    ) -> Result<Option<Vec<u32>>, PolicyError> {
        let known = self.tokenizer.decode(prior, false);
        let Some(rest) = rendered.text.strip_prefix(&known) else {
            return Ok(None);
        };
        let start = known.len();
        if rendered
            .literal
            .iter()
            .any(|range| range.start < start && start < range.end)
        {
            return Ok(None);
        }
        let literal = rendered.literal.iter().filter(|range| range.start >= start);
        let rest = Rendered {
            text: rest.to_owned(),
            generation: Vec::new(),
            literal: literal
                .map(|range| range.start - start..range.end - start)
                .collect(),
        };
        let mut ids = prior.to_vec();
        ids.extend(self.tokenizer.encode_rendered(&rest)?.ids);
        Ok(Some(ids))
    }

    async fn decode(&self, request: CompletionRequest) -> Result<Completion, PolicyError> {
        let prompt = self.prompt(&request)?;
        let needed = prompt.len() + request.max_tokens as usize;
        if needed > request.context_tokens as usize {
            let reason = format!(
                "{} tokens and a reply of {} exceed {}",
                prompt.len(),
                request.max_tokens,
                request.context_tokens
            );
            return Err(PolicyError::ContextOverflow { reason });
        }
        let (sender, receiver) = oneshot::channel();
        let generation = GenerationRequest {
            prompt: prompt.clone(),
            adapter: self.options.adapter.clone(),
            max_new: request.max_tokens as usize,
            sampling: Sampling {
                temperature: request.temperature as f32,
                top_p: request.top_p as f32,
                top_k: request.top_k,
                min_p: request.min_p as f32,
            },
            seed: request.seed,
            stop_tokens: self.options.stop_tokens.clone(),
            stop_strings: request.stop,
        };
        let constraint = match &request.grammar {
            Some(text) => Some(Box::new(self.grammar(text)?) as Box<dyn Constraint>),
            None => None,
        };
        let controls = Controls {
            constraint,
            ..Controls::default()
        };
        // A rollout that runs out of time must not go on computing.
        let _cancel = controls.cancel.on_drop();
        self.engine.submit(generation, controls, move |result| {
            // Nobody waits any more when the rollout ran out of time.
            let _ = sender.send(result);
        });
        match receiver.await.unwrap_or(Err(EngineError::Stopped)) {
            Ok(generation) => Ok(completion(prompt, generation)),
            Err(error @ EngineError::TooLong { .. }) => {
                let reason = error.to_string();
                Err(PolicyError::ContextOverflow { reason })
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Policy for LocalPolicy {
    fn id(&self) -> &PolicyId {
        &self.options.id
    }

    fn has_stopped(&self) -> bool {
        !self.engine.is_running()
    }

    fn follows_grammars(&self) -> bool {
        true
    }

    fn complete(
        &self,
        request: CompletionRequest,
    ) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        Box::pin(self.decode(request))
    }

    fn ids_of(&self, output_ids: &[u32], kept: &str) -> Option<usize> {
        if self.tokenizer.decode(output_ids, true) == kept {
            return Some(output_ids.len());
        }
        let mut stream = TokenStream::new(true);
        let mut length = 0;
        for (index, id) in output_ids.iter().enumerate() {
            let piece = stream.push(&self.tokenizer, *id);
            if !kept.get(length..)?.starts_with(&piece) {
                return None;
            }
            length += piece.len();
            if length == kept.len() {
                return Some(index + 1);
            }
        }
        None
    }
}

/// The part of `tokens` that falls to `part` of `whole` characters.
pub(super) fn share(tokens: u64, part: usize, whole: usize) -> u64 {
    let wide = |length: usize| u128::try_from(length).unwrap_or(u128::MAX);
    let share = u128::from(tokens) * wide(part) / wide(whole.max(1));
    u64::try_from(share).unwrap_or(tokens).min(tokens)
}

/// A tool result for a model that knows only users and assistants.
pub(super) fn tool_output(content: &str) -> String {
    format!("Tool output:\n{content}")
}

fn completion(prompt: Vec<u32>, generation: Generation) -> Completion {
    let count = |ids: &[u32]| u64::try_from(ids.len()).unwrap_or(u64::MAX);
    Completion {
        usage: Usage {
            prompt_tokens: count(&prompt),
            cached_tokens: u64::try_from(generation.cached_tokens).ok(),
            completion_tokens: count(&generation.tokens),
            reasoning_tokens: share(
                count(&generation.tokens),
                protocol::reasoning_of(&generation.text).len(),
                generation.text.len(),
            ),
            is_estimated: false,
        },
        text: generation.text,
        reasoning: String::new(),
        finish_reason: None,
        finish: match generation.finish {
            decode::Finish::StopToken => Finish::Stop,
            decode::Finish::StopString => Finish::StopString,
            decode::Finish::Length => Finish::Length,
        },
        prompt_ids: prompt,
        output_ids: generation.tokens,
        logprobs: generation.logprobs,
        tool_calls: Vec::new(),
    }
}
