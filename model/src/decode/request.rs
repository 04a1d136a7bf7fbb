//! What the engine is asked for, and what it answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::adapters::{AdapterKey, EngineAdapter};
use super::adjustment::Adjustment;
use super::sampler::{Sampling, TokenLogprob};

/// What to generate.
#[derive(Clone, Debug)]
pub struct GenerationRequest {
    /// Prompt tokens.
    pub prompt: Vec<u32>,
    /// Which of the engine's adapters replies; without one, the base model.
    pub adapter: Option<EngineAdapter>,
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

impl GenerationRequest {
    pub(crate) fn adapter_key(&self) -> Option<AdapterKey> {
        self.adapter.as_ref().map(EngineAdapter::key)
    }
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
    /// For each, the tokens that were most likely in its place, as many as [`Controls::top_logprobs`]
    /// says; empty where that is 0.
    pub top_logprobs: Vec<Vec<TokenLogprob>>,
    /// Why it ended.
    pub finish: Finish,
    /// The text without special tokens, up to the stop string.
    pub text: String,
    /// Prompt tokens that did not have to be computed.
    pub cached_tokens: usize,
}

/// One more token of a reply.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The token.
    pub token: u32,
    /// Its log-probability at temperature 1.
    pub logprob: f32,
    /// The tokens that were most likely in its place, as many as [`Controls::top_logprobs`] says.
    pub top_logprobs: Vec<TokenLogprob>,
    /// Text that has become certain: it is held back while it may be the beginning of a stop
    /// string or of a character. The pieces of a reply join to its text, apart from what is held
    /// back at its end.
    pub text: String,
}

/// Says that nobody waits for a reply any more. Clones stand for the same reply.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Gives the request up: it leaves the batch before its next token.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was given up.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Gives the request up when the guard is dropped.
    pub fn on_drop(&self) -> CancelGuard {
        CancelGuard(self.clone())
    }
}

/// See [`Cancel::on_drop`].
#[derive(Debug)]
pub struct CancelGuard(Cancel);

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Which tokens may come next, where not all may: a grammar, say.
pub trait Constraint: Send {
    /// Sets the logits of tokens that may not come next to −∞. An error ends the reply.
    ///
    /// # Errors
    /// When no token may come next, or the constraint's own limits are reached.
    fn restrict(&mut self, logits: &mut [f32]) -> Result<(), String>;

    /// Takes the token that was chosen.
    ///
    /// # Errors
    /// When the token may not come next.
    fn accept(&mut self, token: u32) -> Result<(), String>;
}

/// How a request is followed and steered while it runs; by default not at all.
#[derive(Default)]
pub struct Controls {
    /// Ends the request early.
    pub cancel: Cancel,
    /// Called with every token, on the engine's thread.
    pub on_piece: Option<Box<dyn FnMut(Piece) + Send>>,
    /// Changes how likely tokens are, before a constraint says which may come at all.
    pub adjustment: Adjustment,
    /// Restricts what may be generated.
    pub constraint: Option<Box<dyn Constraint>>,
    /// How many of the most likely tokens are told of at every place: the model's own, at temperature 1,
    /// whatever adjustment and constraint say. The most likely comes first, and of equal ones the lower id.
    pub top_logprobs: usize,
}

impl std::fmt::Debug for Controls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controls")
            .field("cancel", &self.cancel)
            .finish_non_exhaustive()
    }
}
