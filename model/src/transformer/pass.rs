//! What a backward pass gathers: the parameters' gradients.

use candle_core::{Result, Tensor};

use super::block::BlockContext;
use super::{Gradients, Trainable, add_gradient};
use crate::adapter::{Projection, parameter_name};
use crate::linear::{Columns, Linear, Reader, input_gradient};
use crate::ops::{self, Heads};
use crate::tree::TokenTree;

/// State of one backward pass.
pub(super) struct Pass<'a> {
    pub(super) tree: &'a TokenTree,
    pub(super) heads: Heads,
    pub(super) trainable: Trainable,
    pub(super) total: Option<f64>,
    pub(super) gradients: Gradients,
}

impl Pass<'_> {
    pub(super) fn add(&mut self, name: String, gradient: Tensor) -> Result<()> {
        add_gradient(&mut self.gradients, name, gradient)
    }

    /// Backward of linear layers that read the same `x`: stores parameter gradients, returns the
    /// gradient by `x`.
    pub(super) fn linears(
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
        let columns = Columns::new(x, context.arithmetic);
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
                    .map(|x| Columns::new(x, context.arithmetic));
                let x = own.as_ref().unwrap_or(&columns);
                let gradient = lora.pair.gradient(x, low, dy, dlow)?;
                self.add(parameter_name(context.layer, *projection, "A"), gradient.a)?;
                self.add(parameter_name(context.layer, *projection, "B"), gradient.b)?;
            }
        }
        Ok(back.dx)
    }

    /// Backward of an RMS norm named `name` in the block.
    pub(super) fn norm(
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
