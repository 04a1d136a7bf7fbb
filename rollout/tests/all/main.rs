//! Integration tests of the rollout crate, one binary.

#![expect(clippy::print_stdout, reason = "tests say aloud what they skip")]

mod agent;
mod answers;
mod cases;
mod code;
mod crowd;
mod endings;
mod extraction;
mod fuzz;
mod golds;
mod hooks;
mod limits;
mod llama;
mod local;
mod openai;
mod recheck;
mod server;
mod shapes;
mod stateful;
mod verdicts;
mod world;
