//! The engine as its users see it: limits, requests in, replies out, counters.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::adapters::{AdapterKeys, EngineAdapter};
use super::pool::BlockPool;
use super::request::{Controls, Generation, GenerationRequest};
use super::step::KeyValueCache;
use super::worker::Worker;
use crate::adapter::{Adapter, AdapterError};
use crate::kernels::paged_attention::BLOCK;
use crate::tokenizer::Tokenizer;
use crate::transformer::Transformer;

/// Why a request got no reply, or the engine did not start.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    /// The prompt and the reply don't fit the context.
    #[error(
        "a prompt of {prompt} tokens and {max_new} new ones exceed the context of {limit} tokens"
    )]
    TooLong {
        /// Prompt length.
        prompt: usize,
        /// Requested new tokens.
        max_new: usize,
        /// The limit.
        limit: usize,
    },
    /// There is nothing to continue.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// A token id outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocabulary}")]
    UnknownToken {
        /// The id.
        token: u32,
        /// Number of tokens.
        vocabulary: usize,
    },
    /// The adapter isn't one of this engine's.
    #[error("the request names an adapter that this engine doesn't have")]
    UnknownAdapter,
    /// A computation failed.
    #[error("decoding failed: {reason}")]
    Compute {
        /// What the tensor library said.
        reason: String,
    },
    /// The model can't be decoded here.
    #[error("decoding runs on the CPU; the model is on another device")]
    Device,
    /// The thread could not be started.
    #[error("cannot start the decoding thread: {reason}")]
    Thread {
        /// What the system said.
        reason: String,
    },
    /// The request's constraint leaves nothing to generate.
    #[error("the reply's constraint can't be followed: {reason}")]
    Constraint {
        /// What the constraint said.
        reason: String,
    },
    /// The request was given up.
    #[error("the request was cancelled")]
    Cancelled,
    /// The engine was dropped.
    #[error("the engine has stopped")]
    Stopped,
}

/// Limits of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Requests decoded together.
    pub max_batch: usize,
    /// Memory for keys and values, in MiB.
    pub cache_mib: usize,
    /// New tokens of one step, prompts included.
    pub step_tokens: usize,
    /// Longest prompt plus reply, in tokens.
    pub context: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_batch: 64,
            cache_mib: 2048,
            step_tokens: 512,
            context: 4096,
        }
    }
}

/// Counters since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Prompt tokens of all requests.
    pub prompt_tokens: u64,
    /// Those found in the prefix tree.
    pub cached_tokens: u64,
    /// Generated tokens.
    pub generated_tokens: u64,
    /// Time spent computing.
    pub busy: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) prompt: AtomicU64,
    pub(super) cached: AtomicU64,
    pub(super) generated: AtomicU64,
    pub(super) busy_us: AtomicU64,
}

pub(super) type Reply = Box<dyn FnOnce(Result<Generation, EngineError>) + Send>;
pub(super) type Job = (GenerationRequest, Controls, Reply);

/// A model being decoded, plain and under any number of adapters.
#[derive(Debug)]
pub struct Engine {
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
    model: Arc<Transformer>,
    adapters: Arc<AdapterKeys>,
    context: usize,
    vocabulary: usize,
}

impl Engine {
    /// Start decoding `model`; [`Self::add_adapter`] adds what adapts it.
    ///
    /// # Errors
    /// When the model is not on the CPU or no thread can be started.
    pub fn new(
        model: Arc<Transformer>,
        tokenizer: Arc<Tokenizer>,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        if !model.device().is_cpu() {
            return Err(EngineError::Device);
        }
        let (jobs, inbox) = channel();
        let counters = Arc::new(Counters::default());
        let vocabulary = model.config.vocab_size;
        let layers = model.config.num_hidden_layers;
        let block_bytes = KeyValueCache::block_bytes(layers, model.heads());
        let blocks = ((options.cache_mib << 20) / block_bytes).max(1);
        // What can never fit the pool must be refused at the door, not wait for ever.
        let context = options
            .context
            .min(model.config.max_position_embeddings)
            .min(blocks * BLOCK);
        let worker = Worker {
            cache: KeyValueCache::new(layers, blocks, model.heads()),
            pool: BlockPool::new(blocks),
            blocks,
            waiting: VecDeque::new(),
            active: Vec::new(),
            counters: Arc::clone(&counters),
            model: Arc::clone(&model),
            tokenizer,
            options,
        };
        let thread = std::thread::Builder::new()
            .name("decode".into())
            .spawn(move || worker.serve(&inbox))
            .map_err(|e| EngineError::Thread {
                reason: e.to_string(),
            })?;
        Ok(Self {
            jobs: Mutex::new(Some(jobs)),
            thread: Some(thread),
            counters,
            model,
            adapters: Arc::default(),
            context,
            vocabulary,
        })
    }

    /// An adapter for requests to name, at any time. It takes memory until nobody holds what is given
    /// back, and no request runs under it.
    ///
    /// # Errors
    /// When the adapter doesn't fit the model, or is not where the model is.
    pub fn add_adapter(&self, adapter: Arc<Adapter>) -> Result<EngineAdapter, AdapterError> {
        // What doesn't fit would end a step, and every request in it.
        adapter.prepare(&self.model.config, self.model.arithmetic())?;
        Ok(self.adapters.give(adapter))
    }

    /// Whether requests are still answered: not after a panic of the engine's thread, which ended every
    /// request with [`EngineError::Stopped`].
    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// Longest prompt plus reply, in tokens.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Number of logits.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Queue a request; `reply` is called once, on the engine's thread.
    pub fn submit(
        &self,
        request: GenerationRequest,
        controls: Controls,
        reply: impl FnOnce(Result<Generation, EngineError>) + Send + 'static,
    ) {
        let (prompt, max_new) = (request.prompt.len(), request.max_new);
        if prompt == 0 {
            return reply(Err(EngineError::EmptyPrompt));
        }
        let adapter = request.adapter.as_ref();
        if adapter.is_some_and(|adapter| !self.adapters.own(adapter)) {
            return reply(Err(EngineError::UnknownAdapter));
        }
        if prompt.saturating_add(max_new) > self.context {
            return reply(Err(EngineError::TooLong {
                prompt,
                max_new,
                limit: self.context,
            }));
        }
        let mut named = request.prompt.iter().chain(controls.adjustment.bias.keys());
        if let Some(token) = named.find(|token| **token as usize >= self.vocabulary) {
            let (token, vocabulary) = (*token, self.vocabulary);
            return reply(Err(EngineError::UnknownToken { token, vocabulary }));
        }
        let jobs = self
            .jobs
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*jobs {
            Some(jobs) => {
                if let Err(lost) = jobs.send((request, controls, Box::new(reply))) {
                    (lost.0.2)(Err(EngineError::Stopped));
                }
            }
            None => reply(Err(EngineError::Stopped)),
        }
    }

    /// [`Self::submit`], waiting for the reply.
    ///
    /// # Errors
    /// When the request can't be served.
    pub fn generate(&self, request: GenerationRequest) -> Result<Generation, EngineError> {
        let (sender, receiver) = channel();
        self.submit(request, Controls::default(), move |result| {
            // The receiver waits below; it can't be gone.
            let _ = sender.send(result);
        });
        receiver.recv().unwrap_or(Err(EngineError::Stopped))
    }

    /// Counters so far.
    pub fn stats(&self) -> EngineStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EngineStats {
            prompt_tokens: get(&self.counters.prompt),
            cached_tokens: get(&self.counters.cached),
            generated_tokens: get(&self.counters.generated),
            busy: Duration::from_micros(get(&self.counters.busy_us)),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Ok(jobs) = self.jobs.get_mut() {
            jobs.take();
        }
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported to every waiting request when its reply dropped.
            let _ = thread.join();
        }
    }
}
