//! Integration tests of the model crate, one binary.

#![allow(clippy::print_stdout, reason = "tests say aloud what they skip")]

mod adapters;
mod batches;
mod chat_vectors;
mod dropout;
mod engines;
mod export;
mod golden;
mod greedy;
#[cfg(target_os = "linux")]
mod memory;
mod peers;
mod python;
mod requests;
mod weights;
