//! The training loop.

use std::path::Path;

use candle_core::{DType, Tensor};
use model::adapter::{Adapter, AdapterConfig, AdapterError};
use model::transformer::{Gradients, PassOptions, Targets, Trainable, Transformer};
use model::tree::TokenTree;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoint, CheckpointError, State};
use crate::dataset::{Dataset, Row};
use crate::optimizer::{AdamW, AdamWOptions, Schedule, clip, global_norm};

/// Why training stopped.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The self-check found a trainable parameter the loss does not reach.
    #[error("refusing to train: {name} gets {what}; its weights would never change")]
    NoGradient {
        /// The parameter.
        name: String,
        /// `no gradient`, `a zero gradient` or `a gradient that is not finite`.
        what: &'static str,
    },
    /// The loss or a gradient is not a number.
    #[error(
        "training diverged in step {step}: the loss or its gradient is not finite; a lower learning_rate may help"
    )]
    Diverged {
        /// The step, from 1.
        step: usize,
    },
    /// The adapter can't be made.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// A checkpoint can't be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The largest batch can't be held.
    #[error(
        "a batch of {tokens} tokens needs {needed_mib} MiB and {available_mib} are available, even with blocks computed twice"
    )]
    Memory {
        /// Tokens of the batch, shared prefixes once.
        tokens: usize,
        /// What training needs, MiB.
        needed_mib: u64,
        /// What there is, MiB.
        available_mib: u64,
    },
    /// A tensor operation failed.
    #[error("tensor operation failed")]
    Tensor(#[from] candle_core::Error),
}

/// How to train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainOptions {
    /// The adapter to train.
    pub adapter: AdapterConfig,
    /// Passes over the data.
    pub epochs: usize,
    /// Rows of one optimizer step.
    pub batch: usize,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Share of the steps spent warming up.
    pub warmup_share: f64,
    /// Shape of the rate after warm-up.
    pub schedule: Schedule,
    /// Gradients are scaled down to this global norm.
    pub max_gradient_norm: f64,
    /// AdamW's constants.
    pub optimizer: AdamWOptions,
    /// Seed of the initial adapter and of the order.
    pub seed: u64,
    /// Steps between checkpoints.
    pub checkpoint_steps: usize,
    /// Compute blocks twice rather than keep their activations, see [`PassOptions`].
    pub recompute: bool,
}

/// One finished step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// The step, from 1.
    pub step: usize,
    /// Steps in all.
    pub total: usize,
    /// Mean loss over the step's supervised tokens, before the update.
    pub loss: f64,
    /// Rate of the update.
    pub learning_rate: f64,
    /// Gradient norm before clipping.
    pub gradient_norm: f64,
    /// Tokens of the step's rows.
    pub tokens: usize,
    /// Tokens computed after sharing prefixes.
    pub computed_tokens: usize,
}

/// What the callback wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Go on.
    Continue,
    /// Write a checkpoint and return; a later call goes on from there.
    Stop,
}

/// Result of training.
#[derive(Debug)]
pub struct Outcome {
    /// The adapter as it is now.
    pub adapter: Adapter,
    /// Loss of every step, those before a resume included.
    pub losses: Vec<f64>,
    /// Step that was resumed from, if any.
    pub resumed_from: Option<usize>,
    /// Checkpoints that could not be used, and why.
    pub skipped_checkpoints: Vec<String>,
    /// Whether every step was taken.
    pub is_finished: bool,
}

/// Train an adapter for `model` on `dataset`, from `initial` or a fresh one, keeping checkpoints
/// below `directory` and going on from the newest that belongs to the same data and options.
///
/// # Errors
/// When the self-check fails, training diverges, or a checkpoint can't be written.
pub fn train(
    model: &Transformer,
    base_model: &str,
    initial: Option<&Adapter>,
    dataset: &Dataset,
    options: &TrainOptions,
    directory: &Path,
    mut report: impl FnMut(&StepReport) -> Progress,
) -> Result<Outcome, TrainError> {
    let fingerprint = fingerprint(base_model, initial, dataset, options)?;
    let device = model.device();
    let (found, skipped_checkpoints) = Checkpoint::latest(
        directory,
        &fingerprint,
        &model.config,
        options.optimizer,
        device,
    )?;
    let resumed_from = found.as_ref().map(|c| c.state.step);
    let mut current = match found {
        Some(checkpoint) => checkpoint,
        None => {
            let adapter = match initial {
                Some(adapter) => adapter.clone(),
                None => {
                    Adapter::fresh(&model.config, options.adapter.clone(), options.seed, device)?
                }
            };
            self_check(model, &adapter, &dataset.rows()[0])?;
            let optimizer = AdamW::new(options.optimizer, &adapter.tensors())?;
            let state = State {
                step: 0,
                fingerprint: fingerprint.clone(),
                losses: Vec::new(),
            };
            Checkpoint {
                adapter,
                optimizer,
                state,
            }
        }
    };
    let order = dataset.order(options.batch, options.epochs, options.seed);
    let total = order.len();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of the steps, rounded"
    )]
    let warmup = (options.warmup_share * total as f64).round() as usize;
    let mut saved = current.state.step;
    while current.state.step < total {
        let step = current.state.step;
        let rows: Vec<&Row> = order[step]
            .iter()
            .map(|index| &dataset.rows()[*index])
            .collect();
        let (tree, targets) = pack(&rows);
        let (loss, mut gradients) = model.loss_and_gradients(
            &tree,
            &targets,
            Some(&current.adapter),
            PassOptions {
                trainable: Trainable::Adapter,
                recompute: options.recompute,
            },
        )?;
        let norm = global_norm(&gradients)?;
        if !loss.is_finite() || !norm.is_finite() {
            return Err(TrainError::Diverged { step: step + 1 });
        }
        clip(&mut gradients, norm, options.max_gradient_norm)?;
        let rate = options
            .schedule
            .rate(options.learning_rate, step, warmup, total);
        let mut parameters = current.adapter.tensors();
        current
            .optimizer
            .update(&mut parameters, &gradients, rate)?;
        let config = current.adapter.config.clone();
        current.adapter = Adapter::from_tensors(&model.config, config, parameters)?;
        current.state.step += 1;
        current.state.losses.push(loss);
        let progress = report(&StepReport {
            step: step + 1,
            total,
            loss,
            learning_rate: rate,
            gradient_norm: norm,
            tokens: rows.iter().map(|r| r.tokens.len()).sum(),
            computed_tokens: tree.len(),
        });
        let is_due = current.state.step - saved >= options.checkpoint_steps.max(1);
        if is_due || progress == Progress::Stop || current.state.step == total {
            current.save(directory, base_model, 2)?;
            saved = current.state.step;
        }
        if progress == Progress::Stop {
            break;
        }
    }
    let is_finished = current.state.step >= total;
    Ok(Outcome {
        adapter: current.adapter,
        losses: current.state.losses,
        resumed_from,
        skipped_checkpoints,
        is_finished,
    })
}

/// Rows as one tree with its targets.
fn pack(rows: &[&Row]) -> (TokenTree, Targets) {
    let sequences: Vec<&[u32]> = rows.iter().map(|r| r.tokens.as_slice()).collect();
    let masks: Vec<Vec<bool>> = rows.iter().map(|r| r.mask.clone()).collect();
    let tree = TokenTree::new(&sequences);
    let targets = Targets::new(&tree, &masks);
    (tree, targets)
}

fn fingerprint(
    base_model: &str,
    initial: Option<&Adapter>,
    dataset: &Dataset,
    options: &TrainOptions,
) -> Result<String, AdapterError> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(base_model.as_bytes());
    hasher.update(dataset.hash().as_bytes());
    // Neither where checkpoints fall nor what is computed twice changes the weights.
    let identity = TrainOptions {
        checkpoint_steps: 0,
        recompute: false,
        ..options.clone()
    };
    hasher.update(format!("{identity:?}").as_bytes());
    if let Some(adapter) = initial {
        hasher.update(&model::adapter::serialize(&adapter.tensors())?);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// One pass on one row: every parameter must get a gradient that is finite and not all zero.
///
/// A fresh adapter's B is zero, which makes A's gradient zero too; so the check runs on a copy
/// with B moved off zero.
fn self_check(model: &Transformer, adapter: &Adapter, row: &Row) -> Result<(), TrainError> {
    let mut parameters = adapter.tensors();
    for (name, parameter) in &mut parameters {
        if name.contains("lora_B") {
            let count = parameter.elem_count();
            let nudge: Vec<f32> = (0..count).map(|i| 1e-3 * ((i % 7) as f32 - 3.0)).collect();
            let nudge = Tensor::from_vec(nudge, parameter.shape(), parameter.device())?;
            *parameter = (&*parameter + nudge)?;
        }
    }
    let probe = Adapter::from_tensors(&model.config, adapter.config.clone(), parameters)?;
    let (tree, targets) = pack(&[row]);
    let (_, gradients) =
        model.loss_and_gradients(&tree, &targets, Some(&probe), Trainable::Adapter)?;
    check_gradients(&probe, &gradients)
}

fn check_gradients(adapter: &Adapter, gradients: &Gradients) -> Result<(), TrainError> {
    for name in adapter.tensors().into_keys() {
        let what = match gradients.get(&name) {
            None => "no gradient",
            Some(gradient) => {
                let largest = gradient
                    .to_dtype(DType::F32)?
                    .abs()?
                    .max_all()?
                    .to_scalar::<f32>()?;
                if largest == 0.0 {
                    "a zero gradient"
                } else if largest.is_finite() {
                    continue;
                } else {
                    "a gradient that is not finite"
                }
            }
        };
        return Err(TrainError::NoGradient { name, what });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use model::adapter::Projection;
    use model::weights::Checkpoint as ModelFiles;

    fn model() -> Transformer {
        let directory =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama_tied");
        let files = ModelFiles::load(&directory, DType::F32, &Device::Cpu).expect("golden model");
        Transformer::new(files).expect("model")
    }

    #[test]
    fn the_self_check_names_a_parameter_without_gradient() {
        let model = model();
        let config = AdapterConfig {
            rank: 2,
            alpha: 4,
            rank_stabilised: false,
            targets: vec![Projection::Query, Projection::Down],
        };
        let adapter = Adapter::fresh(&model.config, config, 0, &Device::Cpu).expect("adapter");
        let row = Row {
            id: "r".into(),
            tokens: vec![5, 6, 7, 8],
            mask: vec![false, true, true, true],
        };
        self_check(&model, &adapter, &row).expect("all parameters are reached");
        let mut gradients = Gradients::new();
        for (name, tensor) in adapter.tensors() {
            gradients.insert(name, tensor.ones_like().expect("ones"));
        }
        let name = gradients.keys().next_back().expect("some").clone();
        let lost = gradients.remove(&name).expect("present");
        let error = check_gradients(&adapter, &gradients).expect_err("missing");
        assert!(error.to_string().contains(&name) && error.to_string().contains("no gradient"));
        gradients.insert(name.clone(), lost.zeros_like().expect("zeros"));
        let error = check_gradients(&adapter, &gradients).expect_err("zero");
        assert!(error.to_string().contains("a zero gradient"));
    }
}
