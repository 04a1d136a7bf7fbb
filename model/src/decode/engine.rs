//! The engine's thread: admission, scheduling, stop conditions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::pool::{BlockId, BlockPool};
use super::sampler::{Sampled, Sampler, Sampling};
use super::step::{Chunk, KeyValueCache, run};
use crate::adapter::Adapter;
use crate::kernels::paged_attention::BLOCK;
use crate::ops::floats;
use crate::tokenizer::{TokenStream, Tokenizer};
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

/// What to generate.
#[derive(Clone, Debug)]
pub struct GenerationRequest {
    /// Prompt tokens.
    pub prompt: Vec<u32>,
    /// Most tokens to generate.
    pub max_new: usize,
    /// How to choose tokens.
    pub sampling: Sampling,
    /// Seed of this request's own randomness.
    pub seed: u64,
    /// Tokens that end the reply (and belong to it).
    pub stop_tokens: Vec<u32>,
    /// Texts that end the reply.
    pub stop_strings: Vec<String>,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A stop token.
    StopToken,
    /// A stop string.
    StopString,
    /// `max_new` tokens.
    Length,
}

/// A finished reply.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Generated tokens, a stop token included.
    pub tokens: Vec<u32>,
    /// Log-probability of each at temperature 1.
    pub logprobs: Vec<f32>,
    /// Why it ended.
    pub finish: Finish,
    /// The text without special tokens, up to the stop string.
    pub text: String,
    /// Prompt tokens that did not have to be computed.
    pub cached_tokens: usize,
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
struct Counters {
    prompt: AtomicU64,
    cached: AtomicU64,
    generated: AtomicU64,
    busy_us: AtomicU64,
}

type Reply = Box<dyn FnOnce(Result<Generation, EngineError>) + Send>;
type Job = (GenerationRequest, Reply);

/// A model being decoded.
#[derive(Debug)]
pub struct Engine {
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
    context: usize,
    vocabulary: usize,
}

impl Engine {
    /// Start decoding `model`, adapted by `adapter` where given.
    ///
    /// # Errors
    /// When the model is not on the CPU or no thread can be started.
    pub fn new(
        model: Arc<Transformer>,
        adapter: Option<Arc<Adapter>>,
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
            model,
            adapter,
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
            context,
            vocabulary,
        })
    }

    /// Longest prompt plus reply, in tokens.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Queue a request; `reply` is called once, on the engine's thread.
    pub fn submit(
        &self,
        request: GenerationRequest,
        reply: impl FnOnce(Result<Generation, EngineError>) + Send + 'static,
    ) {
        let (prompt, max_new) = (request.prompt.len(), request.max_new);
        if prompt == 0 {
            return reply(Err(EngineError::EmptyPrompt));
        }
        if prompt + max_new > self.context {
            return reply(Err(EngineError::TooLong {
                prompt,
                max_new,
                limit: self.context,
            }));
        }
        if let Some(token) = request
            .prompt
            .iter()
            .find(|t| **t as usize >= self.vocabulary)
        {
            let (token, vocabulary) = (*token, self.vocabulary);
            return reply(Err(EngineError::UnknownToken { token, vocabulary }));
        }
        let jobs = self
            .jobs
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*jobs {
            Some(jobs) => {
                if let Err(lost) = jobs.send((request, Box::new(reply))) {
                    (lost.0.1)(Err(EngineError::Stopped));
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
        self.submit(request, move |result| {
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

/// A request with blocks.
struct Active {
    request: GenerationRequest,
    reply: Reply,
    sampler: Sampler,
    stream: TokenStream,
    blocks: Vec<BlockId>,
    reserved: usize,
    /// Tokens whose keys and values are in the cache.
    computed: usize,
    cached: usize,
    /// Prompt and generated tokens.
    tokens: Vec<u32>,
    logprobs: Vec<f32>,
    text: String,
}

struct Worker {
    model: Arc<Transformer>,
    adapter: Option<Arc<Adapter>>,
    tokenizer: Arc<Tokenizer>,
    options: EngineOptions,
    cache: KeyValueCache,
    pool: BlockPool,
    blocks: usize,
    waiting: VecDeque<Job>,
    active: Vec<Active>,
    counters: Arc<Counters>,
}

impl Worker {
    fn serve(mut self, inbox: &Receiver<Job>) {
        let mut is_open = true;
        while is_open || !self.active.is_empty() || !self.waiting.is_empty() {
            if self.active.is_empty() && self.waiting.is_empty() {
                match inbox.recv() {
                    Ok(job) => self.waiting.push_back(job),
                    Err(_) => return,
                }
            }
            loop {
                match inbox.try_recv() {
                    Ok(job) => self.waiting.push_back(job),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        // The owner is gone and nobody can be waiting for a reply.
                        is_open = false;
                        self.waiting.clear();
                        self.active.clear();
                        break;
                    }
                }
            }
            self.admit();
            let start = Instant::now();
            if let Err(error) = self.step() {
                let error = EngineError::Compute {
                    reason: error.to_string(),
                };
                // What the failed step was to compute is not there; start with an empty cache.
                self.pool = BlockPool::new(self.blocks);
                for active in std::mem::take(&mut self.active) {
                    (active.reply)(Err(error.clone()));
                }
            }
            let busy = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.counters.busy_us.fetch_add(busy, Ordering::Relaxed);
        }
    }

    /// Move waiting requests into the batch while there is room, in order of arrival.
    fn admit(&mut self) {
        while self.active.len() < self.options.max_batch {
            let Some((request, _)) = self.waiting.front() else {
                return;
            };
            let Some(admission) = self.pool.admit(&request.prompt, request.max_new) else {
                return;
            };
            let Some((request, reply)) = self.waiting.pop_front() else {
                return;
            };
            let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
            self.counters
                .prompt
                .fetch_add(count(request.prompt.len()), Ordering::Relaxed);
            self.counters
                .cached
                .fetch_add(count(admission.cached_tokens), Ordering::Relaxed);
            self.active.push(Active {
                sampler: Sampler::new(request.sampling, request.seed),
                stream: TokenStream::new(true),
                blocks: admission.blocks,
                reserved: admission.reserved,
                computed: admission.cached_tokens,
                cached: admission.cached_tokens,
                tokens: request.prompt.clone(),
                logprobs: Vec::new(),
                text: String::new(),
                request,
                reply,
            });
        }
    }

    /// Tokens each active request computes in the next step; also marks the blocks they complete.
    fn schedule(&mut self) -> Vec<usize> {
        let mut budget = self.options.step_tokens;
        let mut counts = vec![0; self.active.len()];
        // Replies first: they need one token each and someone waits for every one of them.
        for (count, active) in counts.iter_mut().zip(&self.active) {
            if active.tokens.len() - active.computed == 1 {
                *count = 1;
                budget = budget.saturating_sub(1);
            }
        }
        for (count, active) in counts.iter_mut().zip(&mut self.active) {
            if *count == 0 {
                // A shared block may still be waiting for the request that computes it.
                let shared = active.computed / BLOCK;
                let is_waiting = active.blocks[..shared]
                    .iter()
                    .any(|b| !self.pool.is_ready(*b));
                if !is_waiting {
                    *count = budget.min(active.tokens.len() - active.computed);
                    budget -= *count;
                }
            }
            for block in active.computed / BLOCK..(active.computed + *count) / BLOCK {
                self.pool.set_ready(active.blocks[block]);
            }
        }
        counts
    }

    fn step(&mut self) -> candle_core::Result<()> {
        // A block for every reply that has filled its last one.
        for active in &mut self.active {
            while active.blocks.len() * BLOCK < active.tokens.len() {
                let Some(block) = self.pool.take_reserved() else {
                    candle_core::bail!("the key-value pool broke its promise");
                };
                active.reserved -= 1;
                active.blocks.push(block);
            }
        }
        let counts = self.schedule();
        let mut scheduled = Vec::new();
        let mut chunks = Vec::new();
        for (index, (active, count)) in self.active.iter().zip(&counts).enumerate() {
            if *count > 0 {
                let end = active.computed + count;
                let wants_logits = end == active.tokens.len();
                chunks.push(Chunk {
                    tokens: &active.tokens[active.computed..end],
                    first_position: active.computed,
                    blocks: &active.blocks,
                    wants_logits,
                });
                if wants_logits {
                    scheduled.push(index);
                }
            }
        }
        if chunks.is_empty() {
            return Ok(());
        }
        let logits = run(
            &self.model,
            self.adapter.as_deref(),
            &mut self.cache,
            &chunks,
        )?;
        drop(chunks);
        for (active, count) in self.active.iter_mut().zip(&counts) {
            active.computed += count;
        }
        if let Some(logits) = logits {
            let vocabulary = logits.dim(1)?;
            let rows = floats(&logits)?;
            let mut is_scheduled = vec![false; self.active.len()];
            scheduled
                .iter()
                .for_each(|index| is_scheduled[*index] = true);
            let samplers: Vec<&mut Sampler> = self
                .active
                .iter_mut()
                .zip(&is_scheduled)
                .filter(|(_, scheduled)| **scheduled)
                .map(|(active, _)| &mut active.sampler)
                .collect();
            let sampled: Vec<Sampled> = samplers
                .into_par_iter()
                .zip(rows.par_chunks_exact(vocabulary))
                .map(|(sampler, row)| sampler.sample(row))
                .collect();
            let count = u64::try_from(sampled.len()).unwrap_or(u64::MAX);
            self.counters.generated.fetch_add(count, Ordering::Relaxed);
            // From the back, so that removing a finished request leaves earlier indices valid.
            for (index, sampled) in scheduled.iter().zip(sampled).rev() {
                if let Some(finish) = self.active[*index].accept(sampled, &self.tokenizer) {
                    let active = self.active.remove(*index);
                    self.retire(active, finish);
                }
            }
        }
        Ok(())
    }

    fn retire(&mut self, active: Active, finish: Finish) {
        // Keys and values exist for every token but the last.
        for (index, chunk) in active.tokens[..active.computed]
            .chunks_exact(BLOCK)
            .enumerate()
        {
            let parent = index.checked_sub(1).map(|before| active.blocks[before]);
            if parent.is_none_or(|p| self.pool.is_ready(p)) {
                self.pool.set_ready(active.blocks[index]);
                self.pool.register(active.blocks[index], parent, chunk);
            }
        }
        self.pool.release(&active.blocks, active.reserved);
        let mut text = active.text;
        if finish != Finish::StopString {
            text.push_str(&active.stream.finish());
        }
        (active.reply)(Ok(Generation {
            tokens: active.tokens[active.request.prompt.len()..].to_vec(),
            logprobs: active.logprobs,
            finish,
            text,
            cached_tokens: active.cached,
        }));
    }
}

impl Active {
    /// Take the next token; says whether the reply ends with it.
    fn accept(&mut self, sampled: Sampled, tokenizer: &Tokenizer) -> Option<Finish> {
        self.tokens.push(sampled.token);
        self.logprobs.push(sampled.logprob);
        if self.request.stop_tokens.contains(&sampled.token) {
            return Some(Finish::StopToken);
        }
        let before = self.text.len();
        let piece = self.stream.push(tokenizer, sampled.token);
        self.text.push_str(&piece);
        // A stop string may begin in an earlier token.
        let longest = self
            .request
            .stop_strings
            .iter()
            .map(String::len)
            .max()
            .unwrap_or(0);
        let mut from = before.saturating_sub(longest);
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        let found = self.request.stop_strings.iter().filter(|s| !s.is_empty());
        if let Some(at) = found
            .filter_map(|s| self.text[from..].find(s.as_str()))
            .min()
        {
            self.text.truncate(from + at);
            return Some(Finish::StopString);
        }
        (self.logprobs.len() >= self.request.max_new).then_some(Finish::Length)
    }
}
