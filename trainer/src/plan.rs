//! What a training takes of the machine's memory and of the disk, known before its first step.
//!
//! Counted are the arrays that are alive at the worst moment of a step; what the allocator and
//! short-lived buffers add is covered by a margin. On the CPU all arrays are f32.

use model::config::ModelConfig;
use model::kernels::gemm::Arithmetic;
use model::tree::TokenTree;
use model::weights::expected_shapes;

use crate::dataset::{Dataset, Row};
use crate::train::{TrainError, TrainOptions};
use crate::trainee::Method;

const F32: u64 = 4;
const MIB: u64 = 1 << 20;

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
            .validation_batches(options.batch)
            .into_iter()
            .map(|rows| count(tokens_of(rows.into_iter())))
            .max()
            .unwrap_or(0);
        Self::of(config, arithmetic, options, batch_tokens, validated)
    }

    /// The least that `options` can take, whatever is learnt from: the plan of a batch of one token.
    /// `is_validated` says whether rows will be held out.
    pub fn least(
        config: &ModelConfig,
        arithmetic: Arithmetic,
        options: &TrainOptions,
        is_validated: bool,
    ) -> Self {
        Self::of(config, arithmetic, options, 1, u64::from(is_validated))
    }

    /// The plan with batches of up to `batch_tokens`, and of `validated` tokens held out.
    fn of(
        config: &ModelConfig,
        arithmetic: Arithmetic,
        options: &TrainOptions,
        batch_tokens: usize,
        validated: u64,
    ) -> Self {
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
        self.fixed_bytes() + activations
    }

    /// What is taken whatever the batch.
    pub fn fixed_bytes(&self) -> u64 {
        self.packed + self.states + self.logits
    }

    /// Whether blocks have to be computed twice for the training to take no more than `available`
    /// bytes.
    ///
    /// # Errors
    /// [`TrainError::FixedMemory`] where no batch is small enough, [`TrainError::Memory`] where this
    /// one is too large even so.
    pub fn recompute_within(&self, available: u64) -> Result<bool, TrainError> {
        if self.bytes(false) <= available {
            return Ok(false);
        }
        let (fixed, needed) = (self.fixed_bytes(), self.bytes(true));
        // What is needed is rounded up and what there is down: the figures never look as if it fitted.
        let available_mib = available >> 20;
        if fixed > available {
            return Err(TrainError::FixedMemory {
                needed_mib: fixed.div_ceil(MIB),
                available_mib,
            });
        }
        if needed > available {
            return Err(TrainError::Memory {
                tokens: self.batch_tokens,
                needed_mib: needed.div_ceil(MIB),
                fixed_mib: fixed.div_ceil(MIB),
                available_mib,
            });
        }
        Ok(true)
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

    fn config() -> ModelConfig {
        let directory =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama_tied");
        let files = Checkpoint::load(
            &directory,
            candle_core::DType::F32,
            &candle_core::Device::Cpu,
        )
        .expect("golden model");
        files.config
    }

    fn lora() -> Method {
        Method::Lora(AdapterConfig {
            rank: 4,
            alpha: 8,
            rank_stabilised: false,
            targets: Projection::ALL.to_vec(),
        })
    }

    /// Rows with forty tokens in common, then `own` tokens of their own.
    fn dataset(rows: usize, own: u32) -> Dataset {
        let row = |index: usize| {
            let first = 100 + u32::try_from(index).expect("few") * own;
            let tokens: Vec<u32> = (0..40).chain(first..first + own).collect();
            Row {
                id: index.to_string(),
                mask: vec![true; tokens.len()],
                tokens,
                weight: 1.0,
                group: None,
            }
        };
        Dataset::new((0..rows).map(row).collect(), 1000, 0.0).expect("rows")
    }

    fn plan(rows: usize, own: u32, batch: usize, arithmetic: Arithmetic) -> MemoryPlan {
        let options = TrainOptions {
            epochs: 2,
            batch,
            ..TrainOptions::plain(lora())
        };
        MemoryPlan::new(&config(), arithmetic, &dataset(rows, own), &options)
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

    /// What a plan says to a limit: whether blocks are computed twice, or the error in words.
    fn within(plan: &MemoryPlan, available: u64) -> Result<bool, String> {
        let fits = plan.recompute_within(available);
        fits.map_err(|error| error.to_string())
    }

    #[test]
    fn a_batch_that_does_not_fit_is_refused_with_what_it_needs_and_what_there_is() {
        for method in [lora(), Method::Full] {
            let options = TrainOptions {
                batch: 8,
                ..TrainOptions::plain(method.clone())
            };
            let dataset = dataset(8, 50);
            let plan = MemoryPlan::new(&config(), Arithmetic::F32, &dataset, &options);
            let (whole, twice) = (plan.bytes(false), plan.bytes(true));
            assert_eq!(within(&plan, whole), Ok(false), "{method}");
            assert_eq!(within(&plan, whole - 1), Ok(true), "{method}");
            assert_eq!(within(&plan, twice), Ok(true), "{method}");
            let error = plan.recompute_within(twice - 1).expect_err("refused");
            let TrainError::Memory {
                tokens,
                needed_mib,
                fixed_mib,
                available_mib,
            } = error
            else {
                panic!("{method}: {error}");
            };
            assert_eq!(tokens, 40 + 8 * 50);
            assert!(needed_mib > available_mib, "{method}: {error}");
            assert!(needed_mib << 20 >= twice && fixed_mib << 20 >= plan.fixed_bytes());
            // Where what the batch doesn't change is too much alone, no smaller one is to be tried.
            let fixed = plan.fixed_bytes();
            let error = plan.recompute_within(fixed).expect_err("refused");
            assert!(matches!(error, TrainError::Memory { .. }), "{error}");
            for available in [fixed - 1, 1, 0] {
                let error = plan.recompute_within(available).expect_err("refused");
                assert!(matches!(error, TrainError::FixedMemory { .. }), "{error}");
            }
        }
    }

    #[test]
    fn a_refusal_is_told_in_whole_mebibytes_that_do_not_fit() {
        let mib = |count: u64| count << 20;
        let plan = MemoryPlan {
            batch_tokens: 700,
            packed: mib(2),
            states: mib(1),
            activations: mib(9),
            recomputed_activations: mib(5) + 1,
            logits: mib(1),
        };
        assert_eq!(within(&plan, mib(13)), Ok(false));
        assert_eq!(within(&plan, mib(12)), Ok(true));
        assert_eq!(
            within(&plan, mib(9)),
            Err(
                "a batch of 700 tokens needs 10 MiB even with blocks computed twice, 4 of them \
                 whatever the batch, and 9 may be taken"
                    .into()
            )
        );
        assert_eq!(
            within(&plan, mib(4) - 1),
            Err("training takes 4 MiB whatever the batch, and 3 may be taken".into())
        );
    }

    #[test]
    fn the_least_is_what_no_dataset_is_below() {
        for method in [lora(), Method::Full] {
            for (accumulate, is_validated) in [(1, false), (2, false), (1, true)] {
                let options = TrainOptions {
                    batch: 1,
                    accumulate,
                    ..TrainOptions::plain(method.clone())
                };
                let least = MemoryPlan::least(&config(), Arithmetic::F32, &options, is_validated);
                let mut rows = dataset(4, 1);
                if is_validated {
                    rows = rows.hold_out(|row| row.id == "0").expect("rows");
                }
                let plan = MemoryPlan::new(&config(), Arithmetic::F32, &rows, &options);
                assert_eq!(least.fixed_bytes(), plan.fixed_bytes(), "{method}");
                for recompute in [false, true] {
                    assert!(least.bytes(recompute) < plan.bytes(recompute), "{method}");
                }
                assert_eq!(least.batch_tokens, 1);
            }
        }
    }
}
