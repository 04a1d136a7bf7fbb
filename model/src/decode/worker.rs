//! The engine's thread: admission, scheduling, and what becomes of a step's tokens.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

use rayon::prelude::*;

use super::active::{Active, Chosen};
use super::adjustment::Adjuster;
use super::engine::{Counters, EngineError, EngineOptions, Job};
use super::pool::{BlockId, BlockPool, Parent};
use super::request::{Finish, Generation};
use super::sampler::Sampler;
use super::step::{Chunk, KeyValueCache, run};
use crate::kernels::paged_attention::BLOCK;
use crate::ops::floats;
use crate::tokenizer::{TokenStream, Tokenizer};
use crate::transformer::Transformer;

pub(super) struct Worker {
    pub(super) model: Arc<Transformer>,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) options: EngineOptions,
    pub(super) cache: KeyValueCache,
    pub(super) pool: BlockPool,
    pub(super) blocks: usize,
    pub(super) waiting: VecDeque<Job>,
    pub(super) active: Vec<Active>,
    pub(super) counters: Arc<Counters>,
}

impl Worker {
    pub(super) fn serve(mut self, inbox: &Receiver<Job>) {
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
            let adapter = request.adapter_key();
            let Some(admission) = self.pool.admit(adapter, &request.prompt, request.max_new) else {
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
                adjuster: Adjuster::new(controls.adjustment.clone()),
                stream: TokenStream::new(true),
                blocks: admission.blocks,
                reserved: admission.reserved,
                computed: admission.cached_tokens,
                cached: admission.cached_tokens,
                tokens: request.prompt.clone(),
                logprobs: Vec::new(),
                top_logprobs: Vec::new(),
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
            if active.tokens.len() - active.computed == 1 && !is_waiting(&self.pool, active) {
                *count = 1;
                budget = budget.saturating_sub(1);
            }
        }
        for (count, active) in counts.iter_mut().zip(&self.active) {
            if *count == 0 && !is_waiting(&self.pool, active) {
                *count = budget.min(active.tokens.len() - active.computed);
                budget -= *count;
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
                    adapter: active.request.adapter.as_ref(),
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
        let logits = run(&self.model, &mut self.cache, &chunks)?;
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
            let chosen: Vec<Result<Chosen, String>> = choosing
                .into_par_iter()
                .zip(rows.par_chunks_exact(vocabulary))
                .map(|(active, row)| active.choose(row))
                .collect();
            let count = u64::try_from(chosen.len()).unwrap_or(u64::MAX);
            self.counters.generated.fetch_add(count, Ordering::Relaxed);
            // From the back, so that removing a finished request leaves earlier indices valid.
            for (index, chosen) in scheduled.iter().zip(chosen).rev() {
                match chosen {
                    Ok(chosen) => {
                        if let Some(finish) = self.active[*index].accept(chosen, &self.tokenizer) {
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
        self.hand_over(&active);
        (active.reply)(Err(error));
    }

    /// What a request that is gone was to compute, and others share, is computed by the first of these.
    fn hand_over(&mut self, gone: &Active) {
        let own = &gone.blocks[gone.computed / BLOCK..];
        let mut orphans: HashSet<BlockId> = own
            .iter()
            .copied()
            .filter(|block| !self.pool.is_ready(*block))
            .collect();
        for heir in &mut self.active {
            let shared = &heir.blocks[..heir.computed / BLOCK];
            if let Some(first) = shared.iter().position(|block| orphans.contains(block)) {
                shared[first..].iter().for_each(|block| {
                    orphans.remove(block);
                });
                heir.computed = first * BLOCK;
                heir.cached = heir.cached.min(heir.computed);
            }
        }
    }

    /// Give a request's blocks back; what is computed stays for others.
    fn keep(&mut self, active: &Active) {
        // Keys and values exist for every token but the last; what an earlier request is still to
        // compute isn't ready, and neither is anything after it.
        let adapter = active.request.adapter_key();
        let chunks = active.tokens[..active.computed].chunks_exact(BLOCK);
        for (index, chunk) in chunks.enumerate() {
            if !self.pool.is_ready(active.blocks[index]) {
                break;
            }
            let parent = Parent::after(&active.blocks[..index], adapter);
            self.pool.register(active.blocks[index], parent, chunk);
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
            top_logprobs: active.top_logprobs,
            finish,
            text,
            cached_tokens: active.cached,
        }));
    }
}

/// Whether a shared block is still to be computed by the request that came with it first.
fn is_waiting(pool: &BlockPool, active: &Active) -> bool {
    let shared = &active.blocks[..active.computed / BLOCK];
    !shared.iter().all(|block| pool.is_ready(*block))
}
