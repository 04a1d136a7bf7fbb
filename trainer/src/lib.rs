//! θ's half of the loop: supervised fine-tuning on verified trajectories, of a LoRA adapter or of every
//! weight.
//!
//! - [`dataset`]: token rows with loss masks; what can't teach anything is refused by name.
//! - [`optimizer`]: AdamW with readable state, gradient clipping, learning-rate schedule.
//! - [`train`]: the loop over packed trees of rows, with a self-check before the first step.
//! - [`trainee`]: what is trained, an adapter or ([`full`]) every weight.
//! - [`validation`]: the loss on rows held out, what is best by it, the end before the last step.
//! - [`plan`]: the memory and the disk a training takes, before its first step.
//! - [`conversation`]: rows of conversations; [`work`]: the multiplications of a step.
//! - [`checkpoint`]: atomic, hashed directories from which a killed run continues to the same
//!   weights, bit by bit on the CPU.
//!
//! Nothing here prints or reads the environment; progress goes to a callback.

mod adamw_kernel;
pub mod available;
pub mod checkpoint;
pub mod conversation;
pub mod dataset;
pub mod full;
pub mod optimizer;
pub mod plan;
mod self_check;
mod step;
pub mod train;
pub mod trainee;
pub mod validation;
pub mod work;

pub use checkpoint::{Checkpoint, CheckpointError};
pub use dataset::{Dataset, DatasetError, Row};
pub use optimizer::{AdamW, AdamWOptions, Schedule};
pub use train::{Outcome, Progress, StepReport, TrainError, TrainOptions, train};
pub use trainee::{Method, Trainee};
pub use validation::Evaluation;
