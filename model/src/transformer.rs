//! The decoder of the Llama, Qwen2 and Qwen3 families: one forward pass for decoding and training,
//! and the training pass's gradients.
//!
//! Everything is computed on packed rows `[tokens, features]` without a batch dimension. What
//! differs between decoding and training is only where keys and values come from, so a block takes
//! its attention as a function: the engine passes one over paged caches, training one over a
//! [`TokenTree`]. Tensor names follow the checkpoint (`model.layers.N.self_attn.q_proj`).

mod loss;

use std::collections::BTreeMap;

use candle_core::{Device, Result, Tensor};

use crate::adapter::{Adapter, Projection, parameter_name};
use crate::config::ModelConfig;
use crate::dropout::Dropout;
use crate::kernels::gemm::Arithmetic;
use crate::linear::{Adapted, Columns, Input, Linear, Reader, input_gradient};
use crate::ops::{self, Heads, RopeTable};
use crate::tree::TokenTree;
use crate::weights::{Checkpoint, TensorMap};

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

#[derive(Debug)]
struct Block {
    input_norm: Tensor,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    /// Qwen3's norms over the heads of q and k.
    head_norms: Option<(Tensor, Tensor)>,
    post_norm: Tensor,
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// What a block keeps of its forward pass for its backward pass.
pub(crate) struct BlockTape {
    input: Tensor,
    normed: Tensor,
    /// q and k before the head norms, where there are any.
    unnormed: Option<(Tensor, Tensor)>,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attended: Tensor,
    middle: Tensor,
    normed_middle: Tensor,
    gate: Tensor,
    up: Tensor,
    activated: Tensor,
    /// Inner values of the adapters, in the order of [`Projection::ALL`].
    low: [Option<Tensor>; 7],
}

/// What is kept of a block between the way there and the way back.
enum Kept {
    Tape(Box<BlockTape>),
    /// To compute it once more.
    Input(Tensor),
}

/// Attention as a block sees it: `(q, k, v)` after rotation to the attended values.
pub(crate) type Attend<'a> = dyn FnMut(&Tensor, &Tensor, &Tensor) -> Result<Tensor> + 'a;

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
        if !arithmetic.is_available() {
            candle_core::bail!("this machine has no instructions for {arithmetic:?}");
        }
        let Checkpoint {
            config,
            mut tensors,
            ..
        } = checkpoint;
        let mut take = |name: &str| take(&mut tensors, name);
        let embedding = take("model.embed_tokens.weight")?;
        let device = embedding.device().clone();
        let norm = take("model.norm.weight")?;
        let head = if config.tie_word_embeddings {
            Linear::new(&embedding, None, arithmetic)?
        } else {
            Linear::new(&take("lm_head.weight")?, None, arithmetic)?
        };
        let blocks = (0..config.num_hidden_layers)
            .map(|layer| Block::new(layer, &mut tensors, arithmetic))
            .collect::<Result<Vec<_>>>()?;
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
        adapter: Option<&Adapter>,
        mut attend: impl FnMut(usize, &Tensor, &Tensor, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let table = RopeTable::new(&self.frequencies, positions, &self.device)?;
        let mut x = self.embed(tokens)?;
        for (layer, block) in self.blocks.iter().enumerate() {
            let context = BlockContext {
                config: &self.config,
                layer,
                adapter,
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
        self.decode_hidden(&tree.tokens, &tree.positions, adapter, |_, q, k, v| {
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
            adapter,
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

fn take(tensors: &mut TensorMap, name: &str) -> Result<Tensor> {
    match tensors.remove(name) {
        Some(tensor) => tensor.contiguous(),
        None => candle_core::bail!("{name} is missing"),
    }
}

/// State of one backward pass.
struct Pass<'a> {
    tree: &'a TokenTree,
    heads: Heads,
    trainable: Trainable,
    total: Option<f64>,
    gradients: Gradients,
}

impl Pass<'_> {
    fn add(&mut self, name: String, gradient: Tensor) -> Result<()> {
        add_gradient(&mut self.gradients, name, gradient)
    }

    /// Backward of linear layers that read the same `x`: stores parameter gradients, returns the
    /// gradient by `x`.
    fn linears(
        &mut self,
        context: BlockContext<'_>,
        x: &Tensor,
        layers: &[(Projection, &Linear, &Tensor)],
        low: &[Option<Tensor>; 7],
    ) -> Result<Tensor> {
        let readers: Vec<Reader<'_>> = layers
            .iter()
            .map(|(projection, linear, dy)| Reader {
                linear,
                lora: context.lora(*projection),
                dy,
            })
            .collect();
        let back = input_gradient(&readers)?;
        let is_base = self.trainable == Trainable::Base;
        if !is_base && readers.iter().all(|reader| reader.lora.is_none()) {
            return Ok(back.dx);
        }
        let columns = Columns::new(x, context.arithmetic)?;
        for ((projection, linear, dy), (reader, dlow)) in
            layers.iter().zip(readers.iter().zip(&back.dlow))
        {
            if is_base {
                let name = format!("model.layers.{}.{}", context.layer, projection.path());
                self.add(format!("{name}.weight"), columns.outer_product(dy)?)?;
                if linear.has_bias() {
                    self.add(format!("{name}.bias"), dy.sum(0)?)?;
                }
            } else if let (Some(lora), Some(low), Some(dlow)) =
                (reader.lora, &low[*projection as usize], dlow)
            {
                // With dropout every pair has seen an input of its own.
                let dropped = lora
                    .mask
                    .map(|mask| mask.apply(&x.to_dtype(low.dtype())?))
                    .transpose()?;
                let own = dropped
                    .as_ref()
                    .map(|x| Columns::new(x, context.arithmetic))
                    .transpose()?;
                let x = own.as_ref().unwrap_or(&columns);
                let gradient = lora.pair.gradient(x, low, dy, dlow)?;
                self.add(parameter_name(context.layer, *projection, "A"), gradient.a)?;
                self.add(parameter_name(context.layer, *projection, "B"), gradient.b)?;
            }
        }
        Ok(back.dx)
    }

    /// Backward of an RMS norm named `name` in the block.
    fn norm(
        &mut self,
        name: String,
        x: &Tensor,
        w: &Tensor,
        eps: f64,
        dy: &Tensor,
    ) -> Result<Tensor> {
        let want = self.trainable == Trainable::Base;
        let (dx, dw) = ops::rms_norm_backward(x, w, eps, dy, want)?;
        if let Some(dw) = dw {
            self.add(name, dw)?;
        }
        Ok(dx)
    }
}

/// What a block needs besides its input.
#[derive(Clone, Copy)]
struct BlockContext<'a> {
    config: &'a ModelConfig,
    layer: usize,
    adapter: Option<&'a Adapter>,
    dropout: Option<Dropout>,
    table: &'a RopeTable,
    arithmetic: Arithmetic,
}

impl<'a> BlockContext<'a> {
    fn lora(&self, projection: Projection) -> Option<Adapted<'a>> {
        let pair = self.adapter?.get(self.layer, projection)?;
        let mask = self
            .dropout
            .map(|dropout| dropout.mask(self.layer, projection));
        Some(Adapted { pair, mask })
    }

    fn name(&self, part: &str) -> String {
        format!("model.layers.{}.{part}.weight", self.layer)
    }
}

impl Block {
    fn new(layer: usize, tensors: &mut TensorMap, arithmetic: Arithmetic) -> Result<Self> {
        let prefix = format!("model.layers.{layer}");
        let mut linear = |projection: Projection| {
            let name = format!("{prefix}.{}", projection.path());
            let bias = tensors.remove(&format!("{name}.bias"));
            let weight = take(tensors, &format!("{name}.weight"))?;
            Linear::new(&weight, bias, arithmetic)
        };
        let [query, key, value, output, gate, up, down] = [
            linear(Projection::Query)?,
            linear(Projection::Key)?,
            linear(Projection::Value)?,
            linear(Projection::Output)?,
            linear(Projection::Gate)?,
            linear(Projection::Up)?,
            linear(Projection::Down)?,
        ];
        let mut norm = |part: &str| take(tensors, &format!("{prefix}.{part}.weight"));
        let input_norm = norm("input_layernorm")?;
        let post_norm = norm("post_attention_layernorm")?;
        let q_norm = norm("self_attn.q_norm").ok();
        let head_norms = q_norm.zip(norm("self_attn.k_norm").ok());
        Ok(Self {
            input_norm,
            query,
            key,
            value,
            output,
            head_norms,
            post_norm,
            gate,
            up,
            down,
        })
    }

    fn forward(
        &self,
        context: BlockContext<'_>,
        input: Tensor,
        attend: &mut Attend<'_>,
        tape: Option<&mut Option<BlockTape>>,
    ) -> Result<Tensor> {
        let eps = context.config.rms_norm_eps;
        let mut low: [Option<Tensor>; 7] = Default::default();
        let mut project = |projection: Projection, linear: &Linear, x: &Input<'_>| {
            let projected = linear.forward(x, context.lora(projection))?;
            low[projection as usize] = projected.low;
            Ok::<_, candle_core::Error>(projected.y)
        };
        let normed = ops::rms_norm(&input, &self.input_norm, eps)?;
        let x = Input::new(&normed, context.arithmetic)?;
        let q_raw = project(Projection::Query, &self.query, &x)?;
        let k_raw = project(Projection::Key, &self.key, &x)?;
        let v = project(Projection::Value, &self.value, &x)?;
        let (q, k) = match &self.head_norms {
            Some((q_norm, k_norm)) => (
                head_norm(&q_raw, q_norm, eps)?,
                head_norm(&k_raw, k_norm, eps)?,
            ),
            None => (q_raw.clone(), k_raw.clone()),
        };
        let q = ops::rope(&q, context.table, 1.0)?;
        let k = ops::rope(&k, context.table, 1.0)?;
        let attended = attend(&q, &k, &v)?;
        let x = Input::new(&attended, context.arithmetic)?;
        let middle = ops::add(&input, &project(Projection::Output, &self.output, &x)?)?;
        let normed_middle = ops::rms_norm(&middle, &self.post_norm, eps)?;
        let x = Input::new(&normed_middle, context.arithmetic)?;
        let gate = project(Projection::Gate, &self.gate, &x)?;
        let up = project(Projection::Up, &self.up, &x)?;
        let activated = ops::swiglu(&gate, &up)?;
        let x = Input::new(&activated, context.arithmetic)?;
        let result = ops::add(&middle, &project(Projection::Down, &self.down, &x)?)?;
        if let Some(slot) = tape {
            let unnormed = self.head_norms.is_some().then_some((q_raw, k_raw));
            *slot = Some(BlockTape {
                input,
                normed,
                unnormed,
                q,
                k,
                v,
                attended,
                middle,
                normed_middle,
                gate,
                up,
                activated,
                low,
            });
        }
        Ok(result)
    }

    /// Gradient by the block's input, given that by its result.
    fn backward(
        &self,
        context: BlockContext<'_>,
        tape: &BlockTape,
        dy: &Tensor,
        pass: &mut Pass<'_>,
    ) -> Result<Tensor> {
        let eps = context.config.rms_norm_eps;
        let low = &tape.low;
        let down = [(Projection::Down, &self.down, dy)];
        let dactivated = pass.linears(context, &tape.activated, &down, low)?;
        let (dgate, dup) = ops::swiglu_backward(&tape.gate, &tape.up, &dactivated)?;
        let readers = [
            (Projection::Gate, &self.gate, &dgate),
            (Projection::Up, &self.up, &dup),
        ];
        let dnormed = pass.linears(context, &tape.normed_middle, &readers, low)?;
        let name = context.name("post_attention_layernorm");
        let dmiddle = pass.norm(name, &tape.middle, &self.post_norm, eps, &dnormed)?;
        let dmiddle = ops::add(dy, &dmiddle)?;

        let output = [(Projection::Output, &self.output, &dmiddle)];
        let dattended = pass.linears(context, &tape.attended, &output, low)?;
        let BlockTape {
            q, k, v, attended, ..
        } = tape;
        let (dq, dk, dv) =
            ops::tree_attention_backward(pass.tree, pass.heads, q, k, v, attended, &dattended)?;
        let mut dq = ops::rope(&dq, context.table, -1.0)?;
        let mut dk = ops::rope(&dk, context.table, -1.0)?;
        if let (Some((q_norm, k_norm)), Some((q_raw, k_raw))) = (&self.head_norms, &tape.unnormed) {
            let width = context.config.head_dim;
            let mut through = |part: &str, raw: &Tensor, w: &Tensor, d: &Tensor| {
                let heads = raw.elem_count() / width;
                let (raw, d) = (raw.reshape((heads, width))?, d.reshape((heads, width))?);
                pass.norm(context.name(part), &raw, w, eps, &d)
            };
            dq = through("self_attn.q_norm", q_raw, q_norm, &dq)?.reshape(q_raw.dims2()?)?;
            dk = through("self_attn.k_norm", k_raw, k_norm, &dk)?.reshape(k_raw.dims2()?)?;
        }
        let readers = [
            (Projection::Query, &self.query, &dq),
            (Projection::Key, &self.key, &dk),
            (Projection::Value, &self.value, &dv),
        ];
        let dnormed = pass.linears(context, &tape.normed, &readers, low)?;
        let name = context.name("input_layernorm");
        let dinput = pass.norm(name, &tape.input, &self.input_norm, eps, &dnormed)?;
        ops::add(&dmiddle, &dinput)
    }
}

/// RMS norm over each head of `x[tokens, heads · width]`.
fn head_norm(x: &Tensor, w: &Tensor, eps: f64) -> Result<Tensor> {
    let shape = x.dims2()?;
    let width = w.elem_count();
    ops::rms_norm(&x.reshape((shape.0 * shape.1 / width, width))?, w, eps)?.reshape(shape)
}
