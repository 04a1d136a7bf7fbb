//! What a training takes of the machine's memory and of the disk, known before its first step.
//!
//! Counted are the arrays that are alive at the worst moment of a step; what the allocator and
//! short-lived buffers add is covered by a margin. On the CPU all arrays are f32.

use model::config::ModelConfig;
use model::kernels::gemm::Arithmetic;
use model::tree::TokenTree;
use model::weights::expected_shapes;

use crate::dataset::{Dataset, Row};
use crate::train::TrainOptions;
use crate::trainee::Method;

const F32: u64 = 4;

/// Share of the counted activations that buffers of a single operation may add.
const MARGIN: f64 = 0.15;

/// Bytes that a training needs at most, beyond what a loaded model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Tokens of the largest batch, shared prefixes once.
    pub batch_tokens: usize,
    /// Weights packed for the way back, and where they are trained for the way there.
    pub packed: u64,
    /// What is trained, its gradients and the optimizer's moments.
    pub states: u64,
    /// What the forward pass of the largest batch keeps.
    pub activations: u64,
    /// The same with only every block's input kept.
    pub recomputed_activations: u64,
    /// Logits of a chunk of supervised tokens, and their gradient.
    pub logits: u64,
}

impl MemoryPlan {
    /// The plan of `options` on `dataset`.
    pub fn new(
        config: &ModelConfig,
        arithmetic: Arithmetic,
        dataset: &Dataset,
        options: &TrainOptions,
    ) -> Self {
        let order = options.order(dataset);
        let batch_tokens = order
            .iter()
            .flat_map(|step| step.chunks(options.batch.max(1)))
            .map(|batch| tokens_of(batch.iter().map(|index| &dataset.rows()[*index])))
            .max()
            .unwrap_or(0);
        // Validation keeps no more than one block's activations.
        let validated = dataset
            .validation()
            .chunks(options.batch.max(1))
            .map(|rows| count(tokens_of(rows.iter())))
            .max()
            .unwrap_or(0);
        let (hidden, inner) = (count(config.hidden_size), count(config.intermediate_size));
        let (query, key_value) = widths(config);
        let layers = count(config.num_hidden_layers);
        let linear = hidden * (2 * query + 2 * key_value + 3 * inner);
        let head = hidden * count(config.vocab_size);
        let bytes_of_weight = match arithmetic {
            Arithmetic::Bf16 => 2,
            Arithmetic::F32 | Arithmetic::SplitBf16 => 4,
        };
        let one_way = bytes_of_weight * (layers * linear + head);
        // The parameters, their gradients, two moments; the sum of a step's earlier gradients; what
        // validation liked best.
        let sets = 4 + u64::from(options.accumulate > 1) + u64::from(validated > 0);
        let trained = F32 * parameters(config, &options.method);
        let (packed, states, rank) = match &options.method {
            // New parameters are all there before the old ones go.
            Method::Lora(adapter) => (one_way, (sets + 1) * trained, count(adapter.rank)),
            // The embedding's gradient is summed from that by tokens and that by logits.
            Method::Full => (2 * one_way, sets * trained + 3 * F32 * head, 0),
        };
        // Input, middle and both norms; q and attended; k, v; gate, up and their product.
        let kept = 4 * hidden + 2 * query + 2 * key_value + 3 * inner + 7 * rank;
        let tokens = count(batch_tokens);
        // On the way back, gradients of one block's are there beside them, and the widest operand in the
        // form in which a product reads it.
        let whole = |floats: u64| {
            let bytes = F32 * (floats + tokens * (kept + inner));
            bytes + (bytes as f64 * MARGIN) as u64
        };
        Self {
            batch_tokens,
            packed,
            states,
            activations: whole((tokens * layers).max(validated) * kept),
            recomputed_activations: whole(
                (tokens * (layers * hidden + kept)).max(validated * kept),
            ),
            logits: 2 * F32 * 128 * count(config.vocab_size),
        }
    }

    /// All of it.
    pub fn bytes(&self, recompute: bool) -> u64 {
        let activations = if recompute {
            self.recomputed_activations
        } else {
            self.activations
        };
        self.packed + self.states + activations + self.logits
    }
}

/// Bytes that a training writes to the disk at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPlan {
    /// The checkpoints that are there while the next one is written, and that one.
    pub checkpoints: u64,
    /// What comes out.
    pub result: u64,
}

impl DiskPlan {
    /// The plan of `options` on `dataset`.
    pub fn new(config: &ModelConfig, dataset: &Dataset, options: &TrainOptions) -> Self {
        let result = F32 * parameters(config, &options.method);
        // The parameters and two moments; what validation liked best.
        let sets = 3 + u64::from(!dataset.validation().is_empty());
        let there = count(options.method.kept_checkpoints()) + 1;
        Self {
            checkpoints: there * sets * result,
            result,
        }
    }

    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.checkpoints + self.result
    }
}

/// Numbers that are trained.
fn parameters(config: &ModelConfig, method: &Method) -> u64 {
    let (hidden, inner) = (count(config.hidden_size), count(config.intermediate_size));
    let (query, key_value) = widths(config);
    match method {
        Method::Lora(adapter) => {
            // Inputs and outputs of the seven projections of a block.
            let borders = 2 * (hidden + query) + 2 * (hidden + key_value) + 3 * (hidden + inner);
            let (rank, targets) = (count(adapter.rank), count(adapter.targets.len()));
            count(config.num_hidden_layers) * rank * borders * targets / 7
        }
        Method::Full => expected_shapes(config)
            .values()
            .map(|shape| shape.iter().copied().map(count).product::<u64>())
            .sum(),
    }
}

/// Widths of all queries, and of all keys or values.
fn widths(config: &ModelConfig) -> (u64, u64) {
    let of = |heads: usize| count(heads * config.head_dim);
    (
        of(config.num_attention_heads),
        of(config.num_key_value_heads),
    )
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Tokens that are computed for these rows together.
fn tokens_of<'a>(rows: impl Iterator<Item = &'a Row>) -> usize {
    let rows: Vec<&[u32]> = rows.map(|row| row.tokens.as_slice()).collect();
    TokenTree::new(&rows).len()
}

#[cfg(test)]
mod tests {
    use model::adapter::{AdapterConfig, Projection};
    use model::weights::Checkpoint;

    use super::*;

    fn plan(rows: usize, own: u32, batch: usize, arithmetic: Arithmetic) -> MemoryPlan {
        let directory =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama_tied");
        let files = Checkpoint::load(
            &directory,
            candle_core::DType::F32,
            &candle_core::Device::Cpu,
        )
        .expect("golden model");
        // A prefix of forty tokens in common, then tokens of its own.
        let row = |index: usize| {
            let first = 100 + u32::try_from(index).expect("few") * own;
            let tokens: Vec<u32> = (0..40).chain(first..first + own).collect();
            Row {
                id: index.to_string(),
                mask: vec![true; tokens.len()],
                tokens,
                weight: 1.0,
            }
        };
        let dataset = Dataset::new((0..rows).map(row).collect(), 1000, 0.0).expect("rows");
        let options = TrainOptions {
            epochs: 2,
            batch,
            ..TrainOptions::plain(AdapterConfig {
                rank: 4,
                alpha: 8,
                rank_stabilised: false,
                targets: Projection::ALL.to_vec(),
            })
        };
        MemoryPlan::new(&files.config, arithmetic, &dataset, &options)
    }

    #[test]
    fn the_largest_batch_counts_with_its_prefix_once() {
        assert_eq!(plan(8, 10, 4, Arithmetic::F32).batch_tokens, 80);
        assert_eq!(plan(8, 10, 1, Arithmetic::F32).batch_tokens, 50);
    }

    #[test]
    fn recomputing_and_halves_take_less_and_longer_batches_more() {
        let whole = plan(8, 20, 4, Arithmetic::F32);
        assert!(whole.bytes(true) < whole.bytes(false));
        assert!(whole.bytes(false) > plan(8, 10, 4, Arithmetic::F32).bytes(false));
        assert_eq!(2 * plan(8, 20, 4, Arithmetic::Bf16).packed, whole.packed);
    }
}
