//! Decoding: many requests at once over one model.
//!
//! [`Engine`] runs a thread (`worker`) that batches whatever requests there are, step by step; requests join
//! and leave between steps. Each is for the base model or for one of the engine's `adapters`, whichever the
//! others are for. `pool` keeps the prefix tree of key-value blocks, `sampler` chooses tokens, from logits
//! that `adjustment` may have changed. A request's tokens depend on its own prompt, adapter, sampling, seed
//! and controls alone.

mod active;
mod adapters;
mod adjustment;
mod engine;
mod pool;
mod request;
mod sampler;
mod step;
mod worker;

pub use adapters::EngineAdapter;
pub use adjustment::Adjustment;
pub use engine::{Engine, EngineError, EngineOptions, EngineStats};
pub use request::{
    Cancel, CancelGuard, Constraint, Controls, Finish, Generation, GenerationRequest, Piece,
};
pub use sampler::{Sampling, TokenLogprob};
