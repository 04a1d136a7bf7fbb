//! A decoder block: forward, and backward from what the forward pass kept.

use candle_core::{Result, Tensor};

use super::pass::Pass;
use crate::adapter::Projection;
use crate::config::ModelConfig;
use crate::dropout::Dropout;
use crate::kernels::gemm::Arithmetic;
use crate::linear::{Adapted, Input, Linear, Projected, RunPair};
use crate::ops::{self, RopeTable};
use crate::row_adapters::RowAdapters;
use crate::weights::{StoredWeight, WeightSource};

#[derive(Debug)]
pub(super) struct Block {
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
pub(super) struct BlockTape {
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

/// Attention as a block sees it: `(q, k, v)` after rotation to the attended values.
pub(super) type Attend<'a> = dyn FnMut(&Tensor, &Tensor, &Tensor) -> Result<Tensor> + 'a;

/// What a block needs besides its input.
#[derive(Clone, Copy)]
pub(super) struct BlockContext<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) layer: usize,
    pub(super) adapters: RowAdapters<'a>,
    pub(super) dropout: Option<Dropout>,
    pub(super) table: &'a RopeTable,
    pub(super) arithmetic: Arithmetic,
}

impl<'a> BlockContext<'a> {
    /// The pair of all rows; runs of rows, which only decoding has, have their own.
    pub(super) fn lora(&self, projection: Projection) -> Option<Adapted<'a>> {
        let RowAdapters::All(adapter) = self.adapters else {
            return None;
        };
        let pair = adapter?.get(self.layer, projection)?;
        let mask = self
            .dropout
            .map(|dropout| dropout.mask(self.layer, projection));
        Some(Adapted { pair, mask })
    }

    /// Rows for the layers that read `tensor`.
    fn input<'t>(&self, tensor: &'t Tensor) -> Result<Input<'t>> {
        match self.adapters {
            RowAdapters::All(_) => Input::new(tensor, self.arithmetic),
            RowAdapters::Runs(runs) => Input::with_runs(tensor, self.arithmetic, runs.len()),
        }
    }

    /// What a layer gives for its input, under the pass's adapters.
    fn project(&self, projection: Projection, linear: &Linear, x: &Input<'_>) -> Result<Projected> {
        let RowAdapters::Runs(runs) = self.adapters else {
            return linear.forward(x, self.lora(projection));
        };
        let pairs: Vec<RunPair<'_>> = runs
            .iter()
            .enumerate()
            .filter_map(|(run, adapted)| {
                let pair = adapted.adapter.get(self.layer, projection)?;
                let rows = adapted.rows.clone();
                Some(RunPair { run, rows, pair })
            })
            .collect();
        let y = linear.forward_runs(x, &pairs)?;
        Ok(Projected { y, low: None })
    }

    fn name(&self, part: &str) -> String {
        format!("model.layers.{}.{part}.weight", self.layer)
    }
}

impl Block {
    pub(super) fn new<S: WeightSource>(
        layer: usize,
        source: &mut S,
        arithmetic: Arithmetic,
    ) -> std::result::Result<Self, S::Error> {
        let prefix = format!("model.layers.{layer}");
        let mut linear = |projection: Projection| -> std::result::Result<Linear, S::Error> {
            let name = format!("{prefix}.{}", projection.path());
            let bias = source.take(&format!("{name}.bias"))?;
            let bias = bias.map(StoredWeight::into_tensor);
            let weight = source.need(&format!("{name}.weight"))?;
            let scales = weight.scales.as_ref();
            Ok(Linear::new(&weight.tensor, bias, arithmetic, scales)?)
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
        let name = |part: &str| format!("{prefix}.{part}.weight");
        let input_norm = source.need(&name("input_layernorm"))?.into_tensor();
        let post_norm = source
            .need(&name("post_attention_layernorm"))?
            .into_tensor();
        let q_norm = source.take(&name("self_attn.q_norm"))?;
        let k_norm = source.take(&name("self_attn.k_norm"))?;
        let head_norms = q_norm.zip(k_norm);
        let head_norms = head_norms.map(|(q, k)| (q.into_tensor(), k.into_tensor()));
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

    pub(super) fn forward(
        &self,
        context: BlockContext<'_>,
        input: Tensor,
        attend: &mut Attend<'_>,
        tape: Option<&mut Option<BlockTape>>,
    ) -> Result<Tensor> {
        let eps = context.config.rms_norm_eps;
        let mut low: [Option<Tensor>; 7] = Default::default();
        let mut project = |projection: Projection, linear: &Linear, x: &Input<'_>| {
            let projected = context.project(projection, linear, x)?;
            low[projection as usize] = projected.low;
            Ok::<_, candle_core::Error>(projected.y)
        };
        let normed = ops::rms_norm(&input, &self.input_norm, eps)?;
        let x = context.input(&normed)?;
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
        let x = context.input(&attended)?;
        let middle = ops::add(&input, &project(Projection::Output, &self.output, &x)?)?;
        let normed_middle = ops::rms_norm(&middle, &self.post_norm, eps)?;
        let x = context.input(&normed_middle)?;
        let gate = project(Projection::Gate, &self.gate, &x)?;
        let up = project(Projection::Up, &self.up, &x)?;
        let activated = ops::swiglu(&gate, &up)?;
        let x = context.input(&activated)?;
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
    pub(super) fn backward(
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
