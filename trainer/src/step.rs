//! Loss and gradients of one optimizer step, computed in parts that need less memory.

use candle_core::Result;
use model::dropout::Dropout;
use model::transformer::{Gradients, PassOptions, Targets, add_gradient};
use model::tree::TokenTree;

use crate::dataset::{Row, pack};
use crate::train::TrainOptions;
use crate::trainee::Trainee;

/// What the rows of a step give.
pub(crate) struct Computed {
    /// Mean loss over their supervised tokens.
    pub(crate) loss: f64,
    /// Its gradients.
    pub(crate) gradients: Gradients,
    /// Tokens that were computed, shared prefixes of a part once.
    pub(crate) tokens: usize,
}

/// Loss and gradients of `rows` in step `number`, `batch` of them at a time. A part counts by its
/// supervised tokens, not by being a part: but for dropout, the result is that of all rows at once.
pub(crate) fn compute(
    trainee: &Trainee,
    rows: &[&Row],
    number: usize,
    options: &TrainOptions,
) -> Result<Computed> {
    let parts: Vec<(TokenTree, Targets)> = rows.chunks(options.batch.max(1)).map(pack).collect();
    let total: f64 = parts
        .iter()
        .map(|(_, targets)| targets.total_weight())
        .sum();
    let mut step = Computed {
        loss: 0.0,
        gradients: Gradients::new(),
        tokens: 0,
    };
    for (part, (tree, targets)) in parts.iter().enumerate() {
        let pass = PassOptions {
            trainable: trainee.trainable(),
            recompute: options.recompute,
            total: Some(total),
            dropout: (options.dropout > 0.0).then(|| Dropout {
                probability: options.dropout,
                seed: dropout_seed(options.seed, number, part),
            }),
        };
        let (loss, gradients) = trainee.loss_and_gradients(tree, targets, pass)?;
        step.loss += loss;
        step.tokens += tree.len();
        for (name, gradient) in gradients {
            add_gradient(&mut step.gradients, name, gradient)?;
        }
    }
    Ok(step)
}

/// Names a pass by its place in the training, not by what was drawn before it: a resumed training
/// drops what one left alone does.
fn dropout_seed(seed: u64, step: usize, part: usize) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"dropout");
    for number in [seed, step as u64, part as u64] {
        hasher.update(&number.to_le_bytes());
    }
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use candle_core::{DType, Device};
    use model::adapter::{Adapter, AdapterConfig, Projection};
    use model::kernels::gemm::Arithmetic;
    use model::transformer::Transformer;
    use model::weights::Checkpoint;

    use super::*;
    use crate::full::FullModel;

    fn options(batch: usize, accumulate: usize) -> TrainOptions {
        TrainOptions {
            batch,
            accumulate,
            ..TrainOptions::plain(AdapterConfig {
                rank: 4,
                alpha: 8,
                rank_stabilised: false,
                targets: Projection::ALL.to_vec(),
            })
        }
    }

    /// Rows with a prefix in common, and very different numbers of supervised tokens.
    fn rows() -> Vec<Row> {
        let row = |index: u32| {
            let own = (0..6 + 3 * index).map(|i| 3 + (i * 13 + index * 5) % 200);
            let tokens: Vec<u32> = (0..12).chain(own).collect();
            let every = 1 + index as usize % 4;
            Row {
                id: index.to_string(),
                mask: (0..tokens.len())
                    .map(|at| at > 12 && at % every == 0)
                    .collect(),
                tokens,
                weight: 1.0,
                group: None,
            }
        };
        (0..8).map(row).collect()
    }

    #[test]
    fn eight_rows_at_once_equal_four_times_two() {
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        for name in ["llama_tied", "qwen3_untied"] {
            for trainee in [
                adapter(&golden.join(name)),
                every_weight(&golden.join(name)),
            ] {
                in_parts_is_as_at_once(&trainee);
            }
        }
    }

    fn adapter(directory: &std::path::Path) -> Trainee {
        let model = Transformer::new(load(directory)).expect("model");
        let adapter = Adapter::load(&directory.join("adapter"), &model.config, &Device::Cpu);
        Trainee::Lora {
            adapter: adapter.expect("adapter"),
            model: Arc::new(model),
        }
    }

    fn every_weight(directory: &std::path::Path) -> Trainee {
        Trainee::Full(Box::new(FullModel::new(load(directory), Arithmetic::F32)))
    }

    fn load(directory: &std::path::Path) -> Checkpoint {
        Checkpoint::load(directory, DType::F32, &Device::Cpu).expect("golden model")
    }

    fn in_parts_is_as_at_once(trainee: &Trainee) {
        let rows = rows();
        let rows: Vec<&Row> = rows.iter().collect();
        let whole = compute(trainee, &rows, 0, &options(8, 1)).expect("pass");
        for (batch, accumulate) in [(2, 4), (3, 3), (1, 8)] {
            let options = options(batch, accumulate);
            let parts = compute(trainee, &rows, 0, &options).expect("passes");
            assert!((parts.loss - whole.loss).abs() < 1e-5 * whole.loss);
            assert!(
                parts.tokens > whole.tokens,
                "a prefix is shared within a part"
            );
            for (name, gradient) in &whole.gradients {
                let largest = |t: candle_core::Result<candle_core::Tensor>| {
                    t.and_then(|t| t.abs()?.max_all()?.to_scalar::<f32>())
                        .expect("maximum")
                };
                let gap = largest(gradient - &parts.gradients[name]);
                let size = largest(Ok(gradient.clone()));
                assert!(gap <= 1e-5 * size, "{name} in {batch}s: {gap} of {size}");
            }
        }
    }

    #[test]
    fn a_row_of_weight_two_counts_like_two_rows() {
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let trainee = adapter(&golden.join("llama_tied"));
        let rows = rows();
        let heavy = Row {
            weight: 2.0,
            ..rows[3].clone()
        };
        let one = compute(&trainee, &[&rows[1], &heavy], 0, &options(2, 1)).expect("pass");
        let twice = [&rows[1], &rows[3], &rows[3]];
        let two = compute(&trainee, &twice, 0, &options(3, 1)).expect("pass");
        let light = compute(&trainee, &[&rows[1], &rows[3]], 0, &options(2, 1)).expect("pass");
        assert!((one.loss - two.loss).abs() < 1e-6 * two.loss);
        assert!((one.loss - light.loss).abs() > 1e-4 * two.loss);
        for (name, gradient) in &two.gradients {
            let gap = (gradient - &one.gradients[name]).and_then(|gap| gap.abs()?.max_all());
            let gap = gap.and_then(|gap| gap.to_scalar::<f32>()).expect("gap");
            assert!(gap < 1e-6, "{name}: {gap}");
        }
    }

    #[test]
    fn dropout_differs_from_step_to_step_and_part_to_part_and_repeats() {
        let directory =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama_tied");
        let trainee = adapter(&directory);
        let rows = rows();
        // The same row twice, so that the parts differ by their masks alone.
        let rows = [&rows[5], &rows[5]];
        let loss = |number: usize, batch: usize, dropout: f64| {
            let options = TrainOptions {
                dropout,
                ..options(batch, 2 / batch)
            };
            let step = compute(&trainee, &rows, number, &options);
            step.expect("pass").loss
        };
        assert_eq!(loss(3, 2, 0.3), loss(3, 2, 0.3));
        assert_ne!(loss(3, 2, 0.3), loss(4, 2, 0.3));
        assert_ne!(loss(3, 2, 0.3), loss(3, 2, 0.0));
        assert_ne!(loss(3, 1, 0.3), loss(3, 2, 0.3));
    }
}
