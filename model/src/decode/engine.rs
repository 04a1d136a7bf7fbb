//! The engine's thread: admission, scheduling, stop conditions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::pool::{BlockId, BlockPool};
use super::request::{Controls, Finish, Generation, GenerationRequest, Piece};
use super::sampler::{Sampled, Sampler, logprob};
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
struct Counters {
    prompt: AtomicU64,
    cached: AtomicU64,
    generated: AtomicU64,
    busy_us: AtomicU64,
}

type Reply = Box<dyn FnOnce(Result<Generation, EngineError>) + Send>;
type Job = (GenerationRequest, Controls, Reply);

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

/// A request with blocks.
struct Active {
    request: GenerationRequest,
    controls: Controls,
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
    /// Bytes of the text that were given to `on_piece`.
    told: usize,
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
            self.drop_cancelled();
            self.admit();
            let start = Instant::now();
            // Inside the pool, where a product's work starts at once; from outside, each of a step's
            // hundreds of products would be handed over and waited for.
            if let Err(error) = rayon::scope(|_| self.step()) {
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

    /// Let go of requests that nobody waits for.
    fn drop_cancelled(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for job in waiting {
            if job.1.cancel.is_cancelled() {
                (job.2)(Err(EngineError::Cancelled));
            } else {
                self.waiting.push_back(job);
            }
        }
        for index in (0..self.active.len()).rev() {
            if self.active[index].controls.cancel.is_cancelled() {
                let active = self.active.remove(index);
                self.abandon(active, EngineError::Cancelled);
            }
        }
    }

    /// Move waiting requests into the batch while there is room, in order of arrival.
    fn admit(&mut self) {
        while self.active.len() < self.options.max_batch {
            let Some((request, ..)) = self.waiting.front() else {
                return;
            };
            let Some(admission) = self.pool.admit(&request.prompt, request.max_new) else {
                return;
            };
            let Some((request, controls, reply)) = self.waiting.pop_front() else {
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
                told: 0,
                request,
                controls,
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
            let choosing: Vec<&mut Active> = self
                .active
                .iter_mut()
                .zip(&is_scheduled)
                .filter(|(_, scheduled)| **scheduled)
                .map(|(active, _)| active)
                .collect();
            let sampled: Vec<Result<Sampled, String>> = choosing
                .into_par_iter()
                .zip(rows.par_chunks_exact(vocabulary))
                .map(|(active, row)| active.choose(row))
                .collect();
            let count = u64::try_from(sampled.len()).unwrap_or(u64::MAX);
            self.counters.generated.fetch_add(count, Ordering::Relaxed);
            // From the back, so that removing a finished request leaves earlier indices valid.
            for (index, sampled) in scheduled.iter().zip(sampled).rev() {
                match sampled {
                    Ok(sampled) => {
                        if let Some(finish) = self.active[*index].accept(sampled, &self.tokenizer) {
                            let active = self.active.remove(*index);
                            self.retire(active, finish);
                        }
                    }
                    Err(reason) => {
                        let active = self.active.remove(*index);
                        self.abandon(active, EngineError::Constraint { reason });
                    }
                }
            }
        }
        Ok(())
    }

    /// End a request without a reply.
    fn abandon(&mut self, active: Active, error: EngineError) {
        self.keep(&active);
        (active.reply)(Err(error));
    }

    /// Give a request's blocks back; what is computed stays for others.
    fn keep(&mut self, active: &Active) {
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
    }

    fn retire(&mut self, active: Active, finish: Finish) {
        self.keep(&active);
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
    /// Choose the next token from a row of logits.
    fn choose(&mut self, logits: &[f32]) -> Result<Sampled, String> {
        let Some(constraint) = &mut self.controls.constraint else {
            return Ok(self.sampler.sample(logits));
        };
        let mut allowed = logits.to_vec();
        constraint.restrict(&mut allowed)?;
        let sampled = self.sampler.sample(&allowed);
        constraint.accept(sampled.token)?;
        Ok(Sampled {
            logprob: logprob(logits, sampled.token),
            ..sampled
        })
    }

    /// Take the next token; says whether the reply ends with it.
    fn accept(&mut self, sampled: Sampled, tokenizer: &Tokenizer) -> Option<Finish> {
        self.tokens.push(sampled.token);
        self.logprobs.push(sampled.logprob);
        let finish = if self.request.stop_tokens.contains(&sampled.token) {
            Some(Finish::StopToken)
        } else {
            self.extend(sampled.token, tokenizer)
        };
        if let Some(on_piece) = &mut self.controls.on_piece {
            let certain = match finish {
                Some(_) => self.text.len(),
                None => self.text.len() - held_back(&self.text, &self.request.stop_strings),
            };
            // A stop string may take back text, but never what was certain.
            let text = self.text[self.told..certain.max(self.told)].to_owned();
            self.told += text.len();
            on_piece(Piece {
                token: sampled.token,
                logprob: sampled.logprob,
                text,
            });
        }
        finish
    }

    /// Add a token's text.
    fn extend(&mut self, token: u32, tokenizer: &Tokenizer) -> Option<Finish> {
        let before = self.text.len();
        let piece = self.stream.push(tokenizer, token);
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

/// Bytes at the end of `text` that may be the beginning of a stop string.
fn held_back(text: &str, stops: &[String]) -> usize {
    let longest = |stop: &String| {
        let most = text.len().min(stop.len().saturating_sub(1));
        (1..=most)
            .rev()
            .find(|length| {
                stop.is_char_boundary(*length)
                    && text.as_bytes().ends_with(&stop.as_bytes()[..*length])
            })
            .unwrap_or(0)
    };
    stops.iter().map(longest).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_stop_string_is_held_back() {
        let stops = ["```output".to_owned(), "\nQ:".to_owned(), String::new()];
        let check = |text: &str, held: usize| assert_eq!(held_back(text, &stops), held, "{text}");
        check("print(1)", 0);
        check("print(1)`", 1);
        check("```out", 6);
        check("a\n", 1);
        check("", 0);
        let stops = ["éa".to_owned()];
        assert_eq!(held_back("oé", &stops), 2);
    }
}
