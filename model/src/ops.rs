//! Tensor operations of a block, each with its gradient.
//!
//! candle's fused operations (`rms_norm`, `rope`, `softmax_last_dim`) silently lose gradients, and
//! its autograd keeps gradient buffers for frozen weights. So the training pass is written out:
//! each function here has a `_backward` beside it, and [`crate::transformer`] chains them. In f32 on the
//! CPU they run our kernels; on other devices, and in other types, they are composed of candle's own
//! operations.

use std::ops::Deref;

use candle_core::{D, DType, Device, Result, Storage, Tensor};

pub(crate) use crate::kernels::tree_attention::Heads;
use crate::kernels::{fresh, rows, tree_attention};
use crate::tree::TokenTree;

/// Borrowed contents of a contiguous f32 CPU tensor.
struct Floats<G> {
    guard: G,
    start: usize,
    length: usize,
}

impl<G: Deref<Target = Storage>> Deref for Floats<G> {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        match &*self.guard {
            Storage::Cpu(storage) => match storage.as_slice::<f32>() {
                Ok(all) => &all[self.start..self.start + self.length],
                Err(_) => &[],
            },
            _ => &[],
        }
    }
}

/// Contents of a contiguous f32 CPU tensor.
pub(crate) fn floats(tensor: &Tensor) -> Result<impl Deref<Target = [f32]> + '_> {
    let (guard, layout) = tensor.storage_and_layout();
    let Some((start, end)) = layout.contiguous_offsets() else {
        candle_core::bail!("a contiguous tensor is needed, got {:?}", layout);
    };
    match &*guard {
        Storage::Cpu(storage) => {
            storage.as_slice::<f32>()?;
        }
        _ => candle_core::bail!("a CPU tensor is needed"),
    }
    Ok(Floats {
        guard,
        start,
        length: end - start,
    })
}

/// Whether our kernels compute on it. A model in half precision takes the way of another device on the
/// CPU too, which is slow, and how that way is tested where there is no such device.
pub(crate) fn has_kernels(x: &Tensor) -> bool {
    x.device().is_cpu() && x.dtype() == DType::F32
}

/// `x / rms(x) * w` over the last dimension of `x[rows, width]`.
pub(crate) fn rms_norm(x: &Tensor, w: &Tensor, eps: f64) -> Result<Tensor> {
    let (count, width) = x.dims2()?;
    if !has_kernels(x) {
        let x32 = x.to_dtype(DType::F32)?;
        let scale = (x32.sqr()?.mean_keepdim(D::Minus1)? + eps)?
            .sqrt()?
            .recip()?;
        return x32
            .broadcast_mul(&scale)?
            .to_dtype(x.dtype())?
            .broadcast_mul(w);
    }
    let (input, weight) = (floats(x)?, floats(w)?);
    let out = fresh::rows(count, width, |row, out| {
        rows::rms_norm(
            &input[row * width..(row + 1) * width],
            &weight,
            eps as f32,
            out,
        );
    });
    Tensor::from_vec(out, (count, width), &Device::Cpu)
}

/// Gradients of [`rms_norm`] by `x` and, if `want_weight`, by `w`.
pub(crate) fn rms_norm_backward(
    x: &Tensor,
    w: &Tensor,
    eps: f64,
    dy: &Tensor,
    want_weight: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    let (count, width) = x.dims2()?;
    if !has_kernels(x) {
        let (x32, dy32) = (x.to_dtype(DType::F32)?, dy.to_dtype(DType::F32)?);
        let scale = (x32.sqr()?.mean_keepdim(D::Minus1)? + eps)?
            .sqrt()?
            .recip()?;
        let unit = x32.broadcast_mul(&scale)?;
        let g = dy32.broadcast_mul(&w.to_dtype(DType::F32)?)?;
        let dot = (&g * &unit)?.mean_keepdim(D::Minus1)?;
        let dx = (g - unit.broadcast_mul(&dot)?)?
            .broadcast_mul(&scale)?
            .to_dtype(x.dtype())?;
        let dw = want_weight.then(|| (dy32 * unit)?.sum(0)).transpose()?;
        return Ok((dx, dw));
    }
    let (input, weight, gradient) = (floats(x)?, floats(w)?, floats(dy)?);
    let mut dw = want_weight.then(|| vec![0.0; width]);
    let dx = if let Some(dw) = &mut dw {
        let mut dx = vec![0.0; count * width];
        // Summed in row order, so that the result does not depend on the number of threads.
        for (row, dx) in dx.chunks_exact_mut(width).enumerate() {
            let span = row * width..(row + 1) * width;
            let (x, dy) = (&input[span.clone()], &gradient[span]);
            rows::rms_norm_backward(x, &weight, eps as f32, dy, dx, Some(&mut *dw));
        }
        dx
    } else {
        fresh::rows(count, width, |row, dx| {
            let span = row * width..(row + 1) * width;
            let (x, dy) = (&input[span.clone()], &gradient[span]);
            rows::rms_norm_backward(x, &weight, eps as f32, dy, dx, None);
        })
    };
    let dw = dw
        .map(|dw| Tensor::from_vec(dw, width, &Device::Cpu))
        .transpose()?;
    Ok((Tensor::from_vec(dx, (count, width), &Device::Cpu)?, dw))
}

/// Cosines and sines of every token's rotation, `[tokens, head / 2]` each.
#[derive(Clone, Debug)]
pub(crate) struct RopeTable {
    cos: Tensor,
    sin: Tensor,
    head: usize,
}

impl RopeTable {
    pub(crate) fn new(frequencies: &[f32], positions: &[u32], device: &Device) -> Result<Self> {
        let shape = (positions.len(), frequencies.len());
        let angles = positions
            .iter()
            .flat_map(|p| frequencies.iter().map(move |f| *p as f32 * f));
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles.map(|a| (a.cos(), a.sin())).unzip();
        Ok(Self {
            cos: Tensor::from_vec(cos, shape, device)?,
            sin: Tensor::from_vec(sin, shape, device)?,
            head: 2 * frequencies.len(),
        })
    }
}

/// Rotate the heads of `x[tokens, heads · head]`; `direction` −1 gives the gradient.
pub(crate) fn rope(x: &Tensor, table: &RopeTable, direction: f64) -> Result<Tensor> {
    let (count, width) = x.dims2()?;
    let half = table.head / 2;
    if !has_kernels(x) {
        let heads = width / table.head;
        let x4 = x.reshape((count, heads, 2, half))?;
        let (a, b) = (x4.narrow(2, 0, 1)?, x4.narrow(2, 1, 1)?);
        let cos = table
            .cos
            .to_dtype(x.dtype())?
            .reshape((count, 1, 1, half))?;
        let sin = (table.sin.to_dtype(x.dtype())? * direction)?.reshape((count, 1, 1, half))?;
        let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
        let second = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
        return Tensor::cat(&[first, second], 2)?.reshape((count, width));
    }
    let (cos, sin) = (floats(&table.cos)?, floats(&table.sin)?);
    let input = floats(x)?;
    let out = fresh::rows(count, width, |row, out| {
        out.copy_from_slice(&input[row * width..(row + 1) * width]);
        let span = row * half..(row + 1) * half;
        rows::rope(
            out,
            &cos[span.clone()],
            &sin[span],
            table.head,
            direction as f32,
        );
    });
    Tensor::from_vec(out, (count, width), &Device::Cpu)
}

/// `silu(gate) · up`.
pub(crate) fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if !has_kernels(gate) {
        return gate.silu()? * up;
    }
    let (count, width) = gate.dims2()?;
    let (gate, up) = (floats(gate)?, floats(up)?);
    let out = fresh::rows(count, width, |row, out| {
        let span = row * width..(row + 1) * width;
        rows::swiglu(&gate[span.clone()], &up[span], out);
    });
    Tensor::from_vec(out, (count, width), &Device::Cpu)
}

/// Gradients of [`swiglu`] by `gate` and `up`.
pub(crate) fn swiglu_backward(gate: &Tensor, up: &Tensor, dy: &Tensor) -> Result<(Tensor, Tensor)> {
    if !has_kernels(gate) {
        let sigmoid = candle_nn::ops::sigmoid(gate)?;
        let silu = (gate * &sigmoid)?;
        let slope = (&sigmoid * ((gate * (1.0 - &sigmoid)?)? + 1.0)?)?;
        return Ok((((dy * up)? * slope)?, (dy * silu)?));
    }
    let shape = gate.dims2()?;
    let width = shape.1;
    let (gate, up, dy) = (floats(gate)?, floats(up)?, floats(dy)?);
    let [dgate, dup] = fresh::pairs(shape.0, width, |row, dgate, dup| {
        let span = row * width..(row + 1) * width;
        let (gate, up) = (&gate[span.clone()], &up[span.clone()]);
        rows::swiglu_backward(gate, up, &dy[span], dgate, dup);
    });
    Ok((
        Tensor::from_vec(dgate, shape, &Device::Cpu)?,
        Tensor::from_vec(dup, shape, &Device::Cpu)?,
    ))
}

/// Attention over a token tree; `q[tokens, query · width]`, `k` and `v`
/// `[tokens, key_value · width]`, result shaped as `q`.
pub(crate) fn tree_attention(
    tree: &TokenTree,
    heads: Heads,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
) -> Result<Tensor> {
    if !has_kernels(q) {
        let (_, p) = composed_probabilities(tree, heads, q, k)?;
        return merge_heads(&p.matmul(&split_heads(v, heads, heads.key_value)?)?);
    }
    let out = tree_attention::forward(tree, heads, &floats(q)?, &floats(k)?, &floats(v)?);
    Tensor::from_vec(out, q.dims2()?, &Device::Cpu)
}

/// Gradients of [`tree_attention`] by `q`, `k` and `v`, given its result `out`.
pub(crate) fn tree_attention_backward(
    tree: &TokenTree,
    heads: Heads,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    out: &Tensor,
    dout: &Tensor,
) -> Result<(Tensor, Tensor, Tensor)> {
    if !has_kernels(q) {
        let (q4, p) = composed_probabilities(tree, heads, q, k)?;
        let v4 = split_heads(v, heads, heads.key_value)?;
        let k4 = split_heads(k, heads, heads.key_value)?;
        let dout4 = split_heads(dout, heads, heads.query)?;
        let dv = p.t()?.matmul(&dout4)?;
        let dp = dout4.matmul(&v4.t()?)?;
        let dot = (&dp * &p)?.sum_keepdim(D::Minus1)?;
        let ds = ((p * dp.broadcast_sub(&dot)?)? * (1.0 / (heads.width as f64).sqrt()))?;
        let dq = merge_heads(&ds.matmul(&k4)?)?;
        let dk = ds.t()?.matmul(&q4)?;
        return Ok((dq, sum_groups(&dk, heads)?, sum_groups(&dv, heads)?));
    }
    let [dq, dk, dv] = tree_attention::backward(
        tree,
        heads,
        &floats(q)?,
        &floats(k)?,
        &floats(v)?,
        &floats(out)?,
        &floats(dout)?,
    );
    let small = k.dims2()?;
    Ok((
        Tensor::from_vec(dq, q.dims2()?, &Device::Cpu)?,
        Tensor::from_vec(dk, small, &Device::Cpu)?,
        Tensor::from_vec(dv, small, &Device::Cpu)?,
    ))
}

/// `[tokens, heads · width]` to `[query, tokens, width]`, key-value heads repeated.
fn split_heads(x: &Tensor, heads: Heads, count: usize) -> Result<Tensor> {
    let tokens = x.dim(0)?;
    let x = x.reshape((tokens, count, heads.width))?.transpose(0, 1)?;
    let repeat = heads.query / count;
    x.unsqueeze(1)?
        .broadcast_as((count, repeat, tokens, heads.width))?
        .contiguous()?
        .reshape((heads.query, tokens, heads.width))
}

fn merge_heads(x: &Tensor) -> Result<Tensor> {
    let (heads, tokens, width) = x.dims3()?;
    x.transpose(0, 1)?
        .contiguous()?
        .reshape((tokens, heads * width))
}

/// Sum gradients of repeated key-value heads: `[query, tokens, width]` to `[tokens, kv · width]`.
fn sum_groups(x: &Tensor, heads: Heads) -> Result<Tensor> {
    let (_, tokens, width) = x.dims3()?;
    let group = heads.query / heads.key_value;
    merge_heads(&x.reshape((heads.key_value, group, tokens, width))?.sum(1)?)
}

fn composed_probabilities(
    tree: &TokenTree,
    heads: Heads,
    q: &Tensor,
    k: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let q4 = split_heads(q, heads, heads.query)?;
    let k4 = split_heads(k, heads, heads.key_value)?;
    let scores = (q4.matmul(&k4.t()?)? * (1.0 / (heads.width as f64).sqrt()))?;
    let mask = tree_mask(tree, q.device())?.to_dtype(scores.dtype())?;
    let p = candle_nn::ops::softmax(&scores.broadcast_add(&mask)?, D::Minus1)?;
    Ok((q4, p))
}

/// `[tokens, tokens]`: 0 where the row's token sees the column's, −inf elsewhere.
fn tree_mask(tree: &TokenTree, device: &Device) -> Result<Tensor> {
    let n = tree.len();
    let mut mask = vec![f32::NEG_INFINITY; n * n];
    for (index, segment) in tree.segments.iter().enumerate() {
        let ancestors = tree.ancestors(index);
        for row in segment.tokens.clone() {
            for range in &ancestors {
                mask[row * n + range.start..row * n + range.end].fill(0.0);
            }
            mask[row * n + segment.tokens.start..=row * n + row].fill(0.0);
        }
    }
    Tensor::from_vec(mask, (n, n), device)
}

/// `a + b` of equal shapes.
pub(crate) fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let is_small = a.elem_count() < fresh::SERIAL;
    if !has_kernels(a) || is_small || !a.is_contiguous() || !b.is_contiguous() {
        return a + b;
    }
    let (count, width) = a.dims2()?;
    let (left, right) = (floats(a)?, floats(b)?);
    let out = fresh::rows(count, width, |row, out| {
        let at = row * width;
        for ((out, a), b) in out.iter_mut().zip(&left[at..]).zip(&right[at..]) {
            *out = a + b;
        }
    });
    Tensor::from_vec(out, a.shape(), &Device::Cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(shape: (usize, usize)) -> Tensor {
        Tensor::randn(0f32, 1.0, shape, &Device::Cpu).expect("tensor")
    }

    fn gap(a: &Tensor, b: &Tensor) -> f32 {
        let difference = (a - b).and_then(|d| d.abs()?.max_all()?.to_scalar::<f32>());
        difference.expect("comparable")
    }

    /// The composed forms serve other devices; on the CPU they must agree with the kernels.
    #[test]
    fn composed_attention_agrees_with_the_kernel_forward_and_backward() {
        let heads = Heads {
            query: 4,
            key_value: 2,
            width: 16,
        };
        let sequences: Vec<Vec<u32>> = vec![
            (0..9).collect(),
            (0..5).chain(20..27).collect(),
            (0..3).collect(),
            vec![40, 41],
            // More than one block of queries, before and after a branch.
            (100..250).chain(300..370).collect(),
            (100..250).chain(400..403).collect(),
        ];
        let tree = TokenTree::new(&sequences);
        let n = tree.len();
        let (q, k, v) = (random((n, 64)), random((n, 32)), random((n, 32)));
        let out = tree_attention(&tree, heads, &q, &k, &v).expect("kernel");
        let (q4, p) = composed_probabilities(&tree, heads, &q, &k).expect("composed");
        let v4 = split_heads(&v, heads, 2).expect("heads");
        let composed = merge_heads(&p.matmul(&v4).expect("product")).expect("merged");
        assert!(gap(&out, &composed) < 1e-5);

        let dout = random((n, 64));
        let (dq, dk, dv) =
            tree_attention_backward(&tree, heads, &q, &k, &v, &out, &dout).expect("backward");
        let dout4 = split_heads(&dout, heads, 4).expect("heads");
        let k4 = split_heads(&k, heads, 2).expect("heads");
        let composed = || -> Result<[Tensor; 3]> {
            let dp = dout4.matmul(&v4.t()?)?;
            let dot = (&dp * &p)?.sum_keepdim(D::Minus1)?;
            let ds = ((&p * dp.broadcast_sub(&dot)?)? * 0.25)?;
            Ok([
                merge_heads(&ds.matmul(&k4)?)?,
                sum_groups(&ds.t()?.matmul(&q4)?, heads)?,
                sum_groups(&p.t()?.matmul(&dout4)?, heads)?,
            ])
        };
        let [cq, ck, cv] = composed().expect("composed backward");
        assert!(gap(&dq, &cq) < 1e-5 && gap(&dk, &ck) < 2e-5 && gap(&dv, &cv) < 2e-5);
    }
}
