//! How much a training step has to multiply, from shapes alone.
//!
//! Counted are matrix products, `m · n · k` multiply-adds for `[m, k] · [k, n]`. Norms, rotations,
//! softmax, losses and the optimizer are not, nor is anything that is computed a second time.

use model::adapter::{AdapterConfig, Projection};
use model::config::ModelConfig;
use model::transformer::Targets;
use model::tree::TokenTree;

use crate::trainee::Method;

/// Multiply-adds of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The weights of the blocks' projections: on the way there, for the gradient by the input, and
    /// where they are trained for that by the weight. An adapter doesn't need the first block's
    /// gradient by its input.
    pub projections: u64,
    /// The adapter's pairs: on the way there, for the gradient by the input, and for that by the pair.
    pub adapters: u64,
    /// Of each token with those that it sees: two products on the way there, scores and sums of values,
    /// and four on the way back.
    pub attention: u64,
    /// Logits of the supervised tokens, the gradient by what they are computed from, and where it is
    /// trained that by the head.
    pub head: u64,
}

impl Work {
    /// Of a step on one tree.
    pub fn of(config: &ModelConfig, method: &Method, tree: &TokenTree, targets: &Targets) -> Self {
        let shapes = Projection::ALL.map(|projection| (projection, shape(config, projection)));
        let tokens = count(tree.len());
        let layers = count(config.num_hidden_layers);
        let block: u64 = shapes.iter().map(|(_, [out, input])| out * input).sum();
        // What reads the first block's input.
        let first = |sizes: fn([u64; 2]) -> u64, is_counted: &dyn Fn(Projection) -> bool| -> u64 {
            shapes[..3]
                .iter()
                .filter(|(projection, _)| is_counted(*projection))
                .map(|(_, shape)| sizes(*shape))
                .sum()
        };
        let (projections, adapters, head_products) = match method {
            Method::Full => (tokens * 3 * layers * block, 0, 3),
            Method::Lora(AdapterConfig { rank, targets, .. }) => {
                let is_target = |projection| targets.contains(&projection);
                let pairs: u64 = shapes
                    .iter()
                    .filter(|(projection, _)| is_target(*projection))
                    .map(|(_, [out, input])| out + input)
                    .sum();
                let input = first(|[_, input]| input, &is_target);
                (
                    tokens * (2 * layers * block - first(|[out, input]| out * input, &|_| true)),
                    tokens * count(*rank) * (3 * layers * pairs - input),
                    2,
                )
            }
        };
        let seen: u64 = tree.positions.iter().map(|at| u64::from(*at) + 1).sum();
        let query = count(config.num_attention_heads * config.head_dim);
        let logits = count(targets.rows.len()) * count(config.vocab_size * config.hidden_size);
        Self {
            projections,
            adapters,
            attention: 6 * layers * seen * query,
            head: head_products * logits,
        }
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.projections + self.adapters + self.attention + self.head
    }
}

/// Outputs and inputs of a projection.
fn shape(config: &ModelConfig, projection: Projection) -> [u64; 2] {
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let query = config.num_attention_heads * config.head_dim;
    let key_value = config.num_key_value_heads * config.head_dim;
    match projection {
        Projection::Query => [query, hidden],
        Projection::Key | Projection::Value => [key_value, hidden],
        Projection::Output => [hidden, query],
        Projection::Gate | Projection::Up => [inner, hidden],
        Projection::Down => [hidden, inner],
    }
    .map(count)
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use model::weights::Checkpoint;

    use super::*;

    #[test]
    fn a_step_is_counted_product_by_product() {
        let directory =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama_tied");
        let files = Checkpoint::load(
            &directory,
            candle_core::DType::F32,
            &candle_core::Device::Cpu,
        )
        .expect("golden model");
        // Two rows of five tokens, the first two shared: eight tokens, at positions 0 to 4 and 2 to 4.
        let rows: [&[u32]; 2] = [&[1, 2, 3, 4, 5], &[1, 2, 6, 7, 8]];
        let tree = TokenTree::new(&rows);
        let mask = vec![false, false, true, true, true];
        let targets = Targets::new(&tree, &[mask.clone(), mask]);
        // Hidden 48, inner 80, 4 and 2 heads of 12, two blocks, a vocabulary of 260.
        let block = 2 * 48 * 48 + 2 * 24 * 48 + 3 * 48 * 80;
        let seen = (1 + 2 + 3 + 4 + 5) + (3 + 4 + 5);
        let full = Work::of(&files.config, &Method::Full, &tree, &targets);
        assert_eq!(
            full,
            Work {
                projections: 8 * 3 * 2 * block,
                adapters: 0,
                attention: 2 * seen * 6 * 48,
                head: 3 * 6 * 260 * 48,
            }
        );
        let adapter = AdapterConfig {
            rank: 4,
            alpha: 8,
            rank_stabilised: false,
            targets: vec![Projection::Query, Projection::Down],
        };
        let lora = Work::of(&files.config, &Method::Lora(adapter), &tree, &targets);
        let first = 48 * 48 + 2 * 24 * 48;
        assert_eq!(
            lora,
            Work {
                projections: 8 * (2 * 2 * block - first),
                adapters: 8 * 4 * (3 * 2 * ((48 + 48) + (80 + 48)) - 48),
                head: 2 * 6 * 260 * 48,
                ..full
            }
        );
        assert_eq!(
            lora.total(),
            lora.projections + lora.adapters + lora.attention + lora.head
        );
    }
}
