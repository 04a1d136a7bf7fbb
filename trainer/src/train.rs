//! The training loop.

use std::path::Path;

use model::adapter::AdapterError;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoint, CheckpointError, State};
use crate::dataset::{Dataset, Row};
use crate::optimizer::{AdamW, AdamWOptions, Schedule, clip, global_norm};
use crate::self_check::self_check;
use crate::step::{Computed, compute};
use crate::trainee::{Method, Trainee, content_hash};
use crate::validation::{self, Evaluation};

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
    /// What is to be trained is of another kind or shape than the options say: it would be trained
    /// at a scale, or in parts, that nobody asked for.
    #[error("the weights to train are {found}, and the options are for {asked}")]
    OtherMethod {
        /// What there is.
        found: Box<Method>,
        /// What the options say.
        asked: Box<Method>,
    },
    /// The parameters don't fit the model.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// A checkpoint can't be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The largest batch can't be held.
    #[error(
        "a batch of {tokens} tokens needs {needed_mib} MiB even with blocks computed twice, {fixed_mib} of them whatever the batch, and {available_mib} may be taken"
    )]
    Memory {
        /// Tokens of the batch, shared prefixes once.
        tokens: usize,
        /// What training needs, MiB.
        needed_mib: u64,
        /// What of that it needs whatever the batch, MiB.
        fixed_mib: u64,
        /// What it may take, MiB.
        available_mib: u64,
    },
    /// No batch can be held, be it ever so small.
    #[error("training takes {needed_mib} MiB whatever the batch, and {available_mib} may be taken")]
    FixedMemory {
        /// What training needs before the first token of a batch, MiB.
        needed_mib: u64,
        /// What it may take, MiB.
        available_mib: u64,
    },
    /// A tensor operation failed.
    #[error("tensor operation failed")]
    Tensor(#[from] candle_core::Error),
}

/// How to train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainOptions {
    /// What is trained.
    pub method: Method,
    /// Passes over the data.
    pub epochs: usize,
    /// Rows computed together.
    pub batch: usize,
    /// Batches of one optimizer step. They weigh by their supervised tokens, so that several small
    /// ones are one large one with less memory.
    pub accumulate: usize,
    /// Share of the adapter's inputs that training sets to zero, see [`Dropout`]. Without an adapter
    /// there is nothing to drop.
    ///
    /// [`Dropout`]: model::dropout::Dropout
    pub dropout: f64,
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
    /// Seed of the order and of dropout.
    pub seed: u64,
    /// Steps between evaluations on the dataset's validation rows; 0 evaluates after each pass over
    /// the data. The last step is always followed by one.
    pub validate_every: usize,
    /// Evaluations without a smaller loss after which training stops; 0 goes on to the end.
    pub patience: usize,
    /// Steps between checkpoints.
    pub checkpoint_steps: usize,
    /// Compute blocks twice rather than keep their activations, see [`PassOptions`].
    ///
    /// [`PassOptions`]: model::transformer::PassOptions
    pub recompute: bool,
}

impl TrainOptions {
    /// One pass over the data at a constant rate of 1e-3, four rows a step, with nothing beyond plain
    /// AdamW under a gradient norm of 1: to be changed where more is wanted.
    pub fn plain(method: impl Into<Method>) -> Self {
        TrainOptions {
            method: method.into(),
            epochs: 1,
            batch: 4,
            accumulate: 1,
            dropout: 0.0,
            learning_rate: 1e-3,
            warmup_share: 0.0,
            schedule: Schedule::Constant,
            max_gradient_norm: 1.0,
            optimizer: AdamWOptions::default(),
            seed: 0,
            validate_every: 0,
            patience: 0,
            checkpoint_steps: 1,
            recompute: false,
        }
    }

    /// Row indices of every optimizer step.
    pub fn order(&self, dataset: &Dataset) -> Vec<Vec<usize>> {
        let rows = self.batch.max(1).saturating_mul(self.accumulate.max(1));
        dataset.order(rows, self.epochs, self.seed)
    }
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
    /// Mean loss on the validation rows after the update, if it was due.
    pub validation_loss: Option<f64>,
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
    /// What was trained: with validation the best by it, else as it is now.
    pub trainee: Trainee,
    /// Loss of every step, those before a resume included.
    pub losses: Vec<f64>,
    /// Every evaluation on the validation rows, those before a resume included.
    pub evaluations: Vec<Evaluation>,
    /// Step that was resumed from, if any.
    pub resumed_from: Option<usize>,
    /// Checkpoints that could not be used, and why.
    pub skipped_checkpoints: Vec<String>,
    /// Whether nothing is left to do: every step was taken, or validation ended it early.
    pub is_finished: bool,
    /// Whether validation ended it before the last step.
    pub is_early: bool,
}

/// Train `trainee` on `dataset`, keeping checkpoints below `directory` and going on from the newest
/// that belongs to the same start, data and options. `base_model` names the model in the files of an
/// adapter.
///
/// # Errors
/// When `trainee` isn't what `options` are for, the self-check fails, training diverges, or a
/// checkpoint can't be written.
pub fn train(
    mut trainee: Trainee,
    base_model: &str,
    dataset: &Dataset,
    options: &TrainOptions,
    directory: &Path,
    mut report: impl FnMut(&StepReport) -> Progress,
) -> Result<Outcome, TrainError> {
    let method = trainee.method();
    if !method.is_like(&options.method) {
        return Err(TrainError::OtherMethod {
            found: Box::new(method),
            asked: Box::new(options.method.clone()),
        });
    }
    let fingerprint = fingerprint(base_model, &trainee, dataset, options);
    let (found, skipped_checkpoints) =
        Checkpoint::latest(&mut trainee, directory, &fingerprint, options.optimizer)?;
    let resumed_from = found.as_ref().map(|c| c.state.step);
    let mut current = match found {
        Some(checkpoint) => checkpoint,
        None => {
            self_check(&trainee, dataset.rows(), options.recompute)?;
            Checkpoint {
                optimizer: AdamW::new(options.optimizer, &trainee.parameters())?,
                best: None,
                state: State {
                    step: 0,
                    fingerprint,
                    losses: Vec::new(),
                    evaluations: Vec::new(),
                },
            }
        }
    };
    let order = options.order(dataset);
    let total = order.len();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of the steps, rounded"
    )]
    let warmup = (options.warmup_share * total as f64).round() as usize;
    let is_over = |state: &State| {
        state.step >= total || validation::is_exhausted(&state.evaluations, options.patience)
    };
    let pass_over_data = total / options.epochs.max(1);
    let mut saved = current.state.step;
    while !is_over(&current.state) {
        let step = current.state.step;
        let rows: Vec<&Row> = order[step]
            .iter()
            .map(|index| &dataset.rows()[*index])
            .collect();
        let Computed {
            loss,
            mut gradients,
            tokens: computed_tokens,
        } = compute(&trainee, &rows, step, options)?;
        let norm = global_norm(&gradients)?;
        if !loss.is_finite() || !norm.is_finite() {
            return Err(TrainError::Diverged { step: step + 1 });
        }
        clip(&mut gradients, norm, options.max_gradient_norm)?;
        let rate = options
            .schedule
            .rate(options.learning_rate, step, warmup, total);
        trainee.update(&mut current.optimizer, &gradients, rate)?;
        drop(gradients);
        current.state.step += 1;
        current.state.losses.push(loss);
        let every = match options.validate_every {
            0 => pass_over_data,
            steps => steps,
        };
        let is_evaluated = !dataset.validation().is_empty()
            && (current.state.step.is_multiple_of(every) || current.state.step == total);
        let validation_loss = if is_evaluated {
            Some(evaluate(&trainee, dataset, options, &mut current)?)
        } else {
            None
        };
        let progress = report(&StepReport {
            step: step + 1,
            total,
            loss,
            learning_rate: rate,
            gradient_norm: norm,
            tokens: rows.iter().map(|r| r.tokens.len()).sum(),
            computed_tokens,
            validation_loss,
        });
        let is_due = current.state.step - saved >= options.checkpoint_steps.max(1);
        if is_due || progress == Progress::Stop || is_over(&current.state) {
            let keep = options.method.kept_checkpoints();
            current.save(&trainee, directory, base_model, keep)?;
            saved = current.state.step;
        }
        if progress == Progress::Stop {
            break;
        }
    }
    let is_finished = is_over(&current.state);
    if let Some(best) = current.best {
        trainee.replace(best)?;
    }
    Ok(Outcome {
        trainee,
        is_early: is_finished && current.state.step < total,
        losses: current.state.losses,
        evaluations: current.state.evaluations,
        resumed_from,
        skipped_checkpoints,
        is_finished,
    })
}

/// Evaluate on the validation rows, and keep the parameters if they are the best so far.
fn evaluate(
    trainee: &Trainee,
    dataset: &Dataset,
    options: &TrainOptions,
    current: &mut Checkpoint,
) -> Result<f64, TrainError> {
    let step = current.state.step;
    let loss = validation::loss(trainee, dataset, options.batch)?;
    if !loss.is_finite() {
        return Err(TrainError::Diverged { step });
    }
    let evaluations = &mut current.state.evaluations;
    evaluations.push(Evaluation { step, loss });
    if validation::best(evaluations).is_some_and(|best| best.step == step) {
        current.best = Some(trainee.parameters());
    }
    Ok(loss)
}

fn fingerprint(
    base_model: &str,
    start: &Trainee,
    dataset: &Dataset,
    options: &TrainOptions,
) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(base_model.as_bytes());
    hasher.update(dataset.hash().as_bytes());
    // Neither where checkpoints fall nor what is computed twice changes the weights.
    let identity = TrainOptions {
        checkpoint_steps: 0,
        recompute: false,
        ..options.clone()
    };
    hasher.update(format!("{identity:?} {:?}", start.arithmetic()).as_bytes());
    hasher.update(content_hash(&start.parameters()).as_bytes());
    // The order of the steps follows from the groups. Where every row stands alone it always was the same,
    // and so is the fingerprint.
    let groups = dataset.groups();
    if groups.len() < dataset.rows().len() {
        hasher.update(format!("{groups:?}").as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use model::adapter::{AdapterConfig, Projection};

    use super::*;

    /// Checkpoints and journals hash this text: with another one, whatever was begun or finished
    /// before would be trained again.
    #[test]
    fn a_training_is_told_by_the_same_text_as_ever() {
        let options = |rank_stabilised| {
            TrainOptions::plain(AdapterConfig {
                rank: 4,
                alpha: 8,
                rank_stabilised,
                targets: vec![Projection::Query, Projection::Down],
            })
        };
        assert_eq!(
            format!("{:?}", options(false)),
            "TrainOptions { method: Lora(AdapterConfig { rank: 4, alpha: 8, rank_stabilised: false, \
             targets: [Query, Down] }), epochs: 1, batch: 4, accumulate: 1, dropout: 0.0, \
             learning_rate: 0.001, warmup_share: 0.0, schedule: Constant, max_gradient_norm: 1.0, \
             optimizer: AdamWOptions { betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.01 }, \
             seed: 0, validate_every: 0, patience: 0, checkpoint_steps: 1, recompute: false }"
        );
        assert_ne!(
            format!("{:?}", options(false)),
            format!("{:?}", options(true))
        );
    }
}
