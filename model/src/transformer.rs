//! The decoder of the Llama, Qwen2 and Qwen3 families: one forward pass for decoding and training,
//! and the training pass's gradients.
//!
//! Everything is computed on packed rows `[tokens, features]` without a batch dimension. What
//! differs between decoding and training is only where keys and values come from, so a block takes
//! its attention as a function: the engine passes one over paged caches, training one over a
//! [`TokenTree`]. Tensor names follow the checkpoint (`model.layers.N.self_attn.q_proj`).

mod block;
mod loss;
mod pass;

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result, Tensor};

use crate::adapter::Adapter;
use crate::config::ModelConfig;
use crate::dropout::Dropout;
use crate::kernels::gemm::Arithmetic;
use crate::linear::{Input, Linear};
use crate::ops::{self, Heads, RopeTable};
use crate::row_adapters::RowAdapters;
use crate::tree::TokenTree;
use crate::weights::{AtHand, Checkpoint, FromFiles, WeightFiles, WeightSource, WeightsError};
use block::{Block, BlockContext, BlockTape};
use pass::Pass;

pub use loss::Targets;

/// Which parameters a training pass computes gradients for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trainable {
    /// The adapter's A and B; the base is frozen and gets no gradient buffers.
    Adapter,
    /// Every base parameter.
    Base,
}

/// How to do a training pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassOptions {
    /// What gradients are computed for.
    pub trainable: Trainable,
    /// Keep only every block's input and compute the block once more on the way back: a third more
    /// work for a fraction of the memory (Chen et al., arXiv:1604.06174). The gradients are the same
    /// to the bit.
    pub recompute: bool,
    /// Supervised tokens that the loss is a mean over, where the tree is a part of what one step
    /// learns from; the losses and gradients of the parts then add up to those of the whole. Without
    /// it, the tree's own.
    pub total: Option<f64>,
    /// Dropout on the adapter's inputs.
    pub dropout: Option<Dropout>,
}

impl From<Trainable> for PassOptions {
    fn from(trainable: Trainable) -> Self {
        Self {
            trainable,
            recompute: false,
            total: None,
            dropout: None,
        }
    }
}

/// Gradients under parameter names.
pub type Gradients = BTreeMap<String, Tensor>;

/// Add one to `gradients`.
///
/// # Errors
/// When its shape is another than that of its name's gradient so far.
pub fn add_gradient(gradients: &mut Gradients, name: String, gradient: Tensor) -> Result<()> {
    let sum = match gradients.remove(&name) {
        Some(before) => (before + gradient)?,
        None => gradient,
    };
    gradients.insert(name, sum);
    Ok(())
}

/// A loaded model.
#[derive(Debug)]
pub struct Transformer {
    /// Its shape.
    pub config: ModelConfig,
    embedding: Tensor,
    blocks: Vec<Block>,
    norm: Tensor,
    head: Linear,
    frequencies: Vec<f32>,
    device: Device,
    arithmetic: Arithmetic,
}

/// What is kept of a block between the way there and the way back.
enum Kept {
    Tape(Box<BlockTape>),
    /// To compute it once more.
    Input(Tensor),
}

impl Transformer {
    /// Build from a checkpoint, computing on the CPU in f32.
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub fn new(checkpoint: Checkpoint) -> Result<Self> {
        Self::with_arithmetic(checkpoint, Arithmetic::F32)
    }

    /// Build from a checkpoint; linear layers on the CPU compute in `arithmetic`.
    ///
    /// # Errors
    /// When a tensor operation fails or this machine can't compute in `arithmetic`.
    pub fn with_arithmetic(checkpoint: Checkpoint, arithmetic: Arithmetic) -> Result<Self> {
        let Checkpoint {
            config,
            tensors,
            scales,
            ..
        } = checkpoint;
        Self::build(config, AtHand { tensors, scales }, arithmetic)
    }

    /// Build from files, their weights as `dtype` on `device`; linear layers on the CPU compute in
    /// `arithmetic`. Each weight is read, packed for products and dropped before the next is read: but for
    /// the largest one, no more memory is needed than the model takes afterwards.
    ///
    /// # Errors
    /// When a file can't be read, a tensor operation fails or this machine can't compute in `arithmetic`.
    pub fn read(
        files: WeightFiles,
        dtype: DType,
        device: &Device,
        arithmetic: Arithmetic,
    ) -> std::result::Result<Self, WeightsError> {
        let config = files.config.clone();
        let source = FromFiles {
            files,
            dtype,
            device,
        };
        Self::build(config, source, arithmetic)
    }

    fn build<S: WeightSource>(
        config: ModelConfig,
        mut source: S,
        arithmetic: Arithmetic,
    ) -> std::result::Result<Self, S::Error> {
        if !arithmetic.is_available() {
            let reason = format!("this machine has no instructions for {arithmetic:?}");
            return Err(candle_core::Error::Msg(reason).into());
        }
        let embedding = source.need("model.embed_tokens.weight")?;
        let head = if config.tie_word_embeddings {
            let scales = embedding.scales.as_ref();
            Linear::new(&embedding.tensor, None, arithmetic, scales)?
        } else {
            let weight = source.need("lm_head.weight")?;
            Linear::new(&weight.tensor, None, arithmetic, weight.scales.as_ref())?
        };
        let embedding = embedding.into_tensor();
        let device = embedding.device().clone();
        let norm = source.need("model.norm.weight")?.into_tensor();
        let blocks = (0..config.num_hidden_layers)
            .map(|layer| Block::new(layer, &mut source, arithmetic))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let frequencies = config.rope_frequencies();
        Ok(Self {
            config,
            embedding,
            blocks,
            norm,
            head,
            frequencies,
            device,
            arithmetic,
        })
    }

    /// Where the weights are.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What its linear layers compute in on the CPU.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    pub(crate) fn heads(&self) -> Heads {
        Heads {
            query: self.config.num_attention_heads,
            key_value: self.config.num_key_value_heads,
            width: self.config.head_dim,
        }
    }

    /// Embeddings of `tokens`, `[tokens, hidden]`.
    fn embed(&self, tokens: &[u32]) -> Result<Tensor> {
        let ids = Tensor::new(tokens, &self.device)?;
        self.embedding.index_select(&ids, 0)
    }

    /// Last hidden state before the final norm, `[tokens, hidden]`, for decoding: `attend` is
    /// called once per layer with the layer's index.
    pub(crate) fn decode_hidden(
        &self,
        tokens: &[u32],
        positions: &[u32],
        adapters: RowAdapters<'_>,
        mut attend: impl FnMut(usize, &Tensor, &Tensor, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let table = RopeTable::new(&self.frequencies, positions, &self.device)?;
        let mut x = self.embed(tokens)?;
        for (layer, block) in self.blocks.iter().enumerate() {
            let context = BlockContext {
                config: &self.config,
                layer,
                adapters,
                dropout: None,
                table: &table,
                arithmetic: self.arithmetic,
            };
            let mut attend = |q: &Tensor, k: &Tensor, v: &Tensor| attend(layer, q, k, v);
            x = block.forward(context, x, &mut attend, None)?;
        }
        Ok(x)
    }

    /// Logits `[rows, vocabulary]` of hidden states `[rows, hidden]`.
    pub(crate) fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let normed = ops::rms_norm(hidden, &self.norm, self.config.rms_norm_eps)?;
        let input = Input::new(&normed, self.arithmetic)?;
        Ok(self.head.forward(&input, None)?.y)
    }

    /// Logits of every token of a tree, `[tokens, vocabulary]`.
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub fn tree_logits(&self, tree: &TokenTree, adapter: Option<&Adapter>) -> Result<Tensor> {
        self.logits(&self.tree_hidden(tree, adapter)?)
    }

    /// Last hidden state of every token of a tree before the final norm, `[tokens, hidden]`.
    fn tree_hidden(&self, tree: &TokenTree, adapter: Option<&Adapter>) -> Result<Tensor> {
        let heads = self.heads();
        let adapters = RowAdapters::All(adapter);
        self.decode_hidden(&tree.tokens, &tree.positions, adapters, |_, q, k, v| {
            ops::tree_attention(tree, heads, q, k, v)
        })
    }

    /// Loss over `targets` of a tree, and its gradients.
    ///
    /// # Errors
    /// When a tensor operation fails, or there is no target.
    pub fn loss_and_gradients(
        &self,
        tree: &TokenTree,
        targets: &Targets,
        adapter: Option<&Adapter>,
        options: impl Into<PassOptions>,
    ) -> Result<(f64, Gradients)> {
        let options = options.into();
        // Inside the pool, where a product's work starts at once.
        rayon::scope(|_| self.pass(tree, targets, adapter, options))
    }

    fn pass(
        &self,
        tree: &TokenTree,
        targets: &Targets,
        adapter: Option<&Adapter>,
        options: PassOptions,
    ) -> Result<(f64, Gradients)> {
        let heads = self.heads();
        let table = RopeTable::new(&self.frequencies, &tree.positions, &self.device)?;
        let mut x = self.embed(&tree.tokens)?;
        let mut attend =
            |q: &Tensor, k: &Tensor, v: &Tensor| ops::tree_attention(tree, heads, q, k, v);
        let context = |layer| BlockContext {
            config: &self.config,
            layer,
            adapters: RowAdapters::All(adapter),
            dropout: options.dropout,
            table: &table,
            arithmetic: self.arithmetic,
        };
        let mut tapes = Vec::with_capacity(self.blocks.len());
        for (layer, block) in self.blocks.iter().enumerate() {
            if options.recompute {
                tapes.push(Kept::Input(x.clone()));
                x = block.forward(context(layer), x, &mut attend, None)?;
            } else {
                let mut tape = None;
                x = block.forward(context(layer), x, &mut attend, Some(&mut tape))?;
                tapes.extend(tape.map(|tape| Kept::Tape(Box::new(tape))));
            }
        }
        let mut pass = Pass {
            tree,
            heads,
            trainable: options.trainable,
            total: options.total,
            gradients: Gradients::new(),
        };
        let (loss, mut dx) = self.loss_backward(&x, targets, &mut pass)?;
        drop(x);
        for (layer, block) in self.blocks.iter().enumerate().rev() {
            // Taken off one by one, so that a block's activations are freed when it is done.
            let tape = match tapes.pop() {
                Some(Kept::Tape(tape)) => *tape,
                Some(Kept::Input(input)) => {
                    let mut tape = None;
                    block.forward(context(layer), input, &mut attend, Some(&mut tape))?;
                    match tape {
                        Some(tape) => tape,
                        None => candle_core::bail!("a block left no tape"),
                    }
                }
                None => candle_core::bail!("a block left no tape"),
            };
            dx = block.backward(context(layer), &tape, &dx, &mut pass)?;
        }
        if options.trainable == Trainable::Base {
            let ids = Tensor::new(tree.tokens.as_slice(), &self.device)?;
            let zeros = self.embedding.zeros_like()?;
            pass.add(
                "model.embed_tokens.weight".into(),
                zeros.index_add(&ids, &dx, 0)?,
            )?;
        }
        Ok((loss, pass.gradients))
    }
}
