//! θ's half of the loop: supervised fine-tuning of a LoRA adapter on verified trajectories.
//!
//! - [`dataset`]: token rows with loss masks; what can't teach anything is refused by name.
//! - [`optimizer`]: AdamW with readable state, gradient clipping, learning-rate schedule.
//! - [`train`]: the loop over packed trees of rows, with a self-check before the first step.
//! - [`validation`]: the loss on rows held out, the best adapter by it, the end before the last step.
//! - [`plan`]: the memory a training takes, before its first step.
//! - [`conversation`]: rows of conversations; [`full`]: training every weight.
//! - [`checkpoint`]: atomic, hashed directories from which a killed run continues to the same
//!   weights, bit by bit on the CPU.
//!
//! Nothing here prints or reads the environment; progress goes to a callback.

mod adamw_kernel;
pub mod checkpoint;
pub mod conversation;
pub mod dataset;
pub mod full;
pub mod optimizer;
pub mod plan;
mod self_check;
mod step;
pub mod train;
pub mod validation;

pub use checkpoint::{Checkpoint, CheckpointError};
pub use dataset::{Dataset, DatasetError, Row};
pub use optimizer::{AdamW, AdamWOptions, Schedule};
pub use train::{Outcome, Progress, StepReport, TrainError, TrainOptions, train};
pub use validation::Evaluation;
