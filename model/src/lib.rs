//! θ: one transformer for decoding and for training, with its tokenizer and chat template.
//!
//! - [`weights`] and [`config`] read Hugging Face directories and GGUF files, [`adapter`] PEFT's;
//!   [`export`] writes them, an adapter merged into its base.
//! - [`transformer`] is the Llama/Qwen2/Qwen3 decoder, forward and backward, over [`tree`]s of
//!   tokens that share prefixes.
//! - [`decode`] is the engine: continuous batching of requests to the model and to adapters over it, with
//!   prefix trees of key-value blocks; [`grammar`] restricts what it says.
//! - [`tokenizer`] and [`chat_template`] turn conversations into tokens and back.
//!
//! On the CPU the arithmetic is that of [`kernels`], whose results do not depend on what is
//! computed together: the same request gives the same tokens alone and in any batch.

pub mod adapter;
pub mod chat_template;
pub mod config;
pub mod decode;
pub mod dropout;
pub mod export;
mod gguf_blocks;
mod gguf_names;
pub mod grammar;
pub mod kernels;
pub mod linear;
pub mod memory;
mod ops;
mod row_adapters;
pub mod tokenizer;
pub mod transformer;
pub mod tree;
pub mod weights;
