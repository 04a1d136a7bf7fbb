//! Training every weight of a model rather than an adapter over it.
//!
//! The weights that are trained are f32, whatever products are computed in: updates smaller than
//! bfloat16's steps add up. After each update the packed forms are made anew, when they are needed.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use candle_core::Result;
use model::config::ModelConfig;
use model::kernels::gemm::Arithmetic;
use model::transformer::{Gradients, PassOptions, Targets, Trainable, Transformer};
use model::tree::TokenTree;
use model::weights::{Checkpoint, TensorMap};

use crate::optimizer::AdamW;

/// A model whose every weight is trained.
#[derive(Debug)]
pub struct FullModel {
    config: ModelConfig,
    weights: TensorMap,
    arithmetic: Arithmetic,
    /// The weights packed for products, from their first use to their next change.
    model: OnceLock<Transformer>,
}

impl FullModel {
    /// Start from a checkpoint's weights, which must be f32.
    pub fn new(checkpoint: Checkpoint, arithmetic: Arithmetic) -> Self {
        Self {
            config: checkpoint.config,
            weights: checkpoint.tensors,
            arithmetic,
            model: OnceLock::new(),
        }
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// What its products are computed in.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// The weights under their checkpoint names.
    pub fn weights(&self) -> &TensorMap {
        &self.weights
    }

    /// Go on with other weights of the same names and shapes.
    pub fn replace(&mut self, weights: TensorMap) {
        self.model.take();
        self.weights = weights;
    }

    /// Loss over `targets` of a tree, and its gradients by every weight, whatever `options` say is
    /// trained.
    ///
    /// # Errors
    /// When a tensor operation fails, there is no target, or this machine can't compute in the
    /// arithmetic.
    pub fn loss_and_gradients(
        &self,
        tree: &TokenTree,
        targets: &Targets,
        options: impl Into<PassOptions>,
    ) -> Result<(f64, Gradients)> {
        let options = PassOptions {
            trainable: Trainable::Base,
            ..options.into()
        };
        self.model()?
            .loss_and_gradients(tree, targets, None, options)
    }

    /// Loss over `targets` of a tree.
    ///
    /// # Errors
    /// As [`Self::loss_and_gradients`].
    pub fn loss(&self, tree: &TokenTree, targets: &Targets) -> Result<f64> {
        self.model()?.loss(tree, targets, None)
    }

    /// Take one step of `optimizer` at `rate`.
    ///
    /// # Errors
    /// When a gradient is missing or a tensor operation fails.
    pub fn update(
        &mut self,
        optimizer: &mut AdamW,
        gradients: &Gradients,
        rate: f64,
    ) -> Result<()> {
        // The packed weights go before new ones take their place in memory.
        self.model.take();
        optimizer.update(&mut self.weights, gradients, rate)
    }

    fn model(&self) -> Result<&Transformer> {
        if let Some(model) = self.model.get() {
            return Ok(model);
        }
        let checkpoint = Checkpoint {
            config: self.config.clone(),
            tensors: self.weights.clone(),
            scales: BTreeMap::new(),
            metadata: None,
        };
        let model = Transformer::with_arithmetic(checkpoint, self.arithmetic)?;
        Ok(self.model.get_or_init(|| model))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::optimizer::AdamWOptions;

    #[test]
    fn a_step_against_the_gradient_lowers_the_loss_and_moves_every_weight() {
        for name in ["llama_tied", "qwen3_untied"] {
            let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/golden")
                .join(name);
            let files = Checkpoint::load(&directory, DType::F32, &Device::Cpu).expect("model");
            let before = files.tensors.clone();
            let mut full = FullModel::new(files, Arithmetic::F32);
            let mut optimizer =
                AdamW::new(AdamWOptions::default(), full.weights()).expect("optimizer");
            let sequence: Vec<u32> = (0..60).collect();
            let tree = TokenTree::new(&[&sequence]);
            let targets = Targets::new(&tree, &[vec![true; 60]]);
            let pass = |full: &FullModel| {
                full.loss_and_gradients(&tree, &targets, Trainable::Base)
                    .expect("pass")
            };
            let (first, gradients) = pass(&full);
            assert!(
                gradients.keys().eq(before.keys()),
                "every weight has a gradient"
            );
            full.update(&mut optimizer, &gradients, 1e-3).expect("step");
            let (second, _) = pass(&full);
            assert!(second < first - 0.05, "{name}: {first} to {second}");
            for (name, old) in &before {
                let moved = (old - &full.weights()[name])
                    .and_then(|d| d.abs()?.max_all()?.to_scalar::<f32>())
                    .expect("comparable");
                assert!(moved > 1e-4, "{name} moved by {moved}");
            }
        }
    }
}
