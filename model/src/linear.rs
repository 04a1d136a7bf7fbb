//! Linear layers with a frozen weight and an optional low-rank adapter; `runs` is for rows of several
//! adapters.

mod runs;

use std::cell::OnceCell;
use std::sync::OnceLock;

use candle_core::{Device, Result, Tensor};

use crate::dropout::Mask;
use crate::kernels::blocks::BlockScales;
use crate::kernels::gemm::{self, Arithmetic, Packed, Rows};
use crate::kernels::narrow;
use crate::ops::{add, floats, has_kernels};

pub(crate) use runs::RunPair;

/// Rows `[rows, features]`, made ready once for all layers that read them.
pub(crate) struct Input<'a> {
    tensor: &'a Tensor,
    arithmetic: Arithmetic,
    /// Where our kernels compute: stored for products.
    rows: Option<Rows>,
    /// Runs of rows that have adapters of their own, stored once more when one is needed.
    runs: Vec<OnceCell<Rows>>,
}

impl<'a> Input<'a> {
    pub(crate) fn new(tensor: &'a Tensor, arithmetic: Arithmetic) -> Result<Self> {
        let rows = if has_kernels(tensor) {
            let (m, k) = tensor.dims2()?;
            Some(Rows::new(&floats(tensor)?, m, k, arithmetic))
        } else {
            None
        };
        Ok(Self {
            tensor,
            arithmetic,
            rows,
            runs: Vec::new(),
        })
    }

    fn rows(&self) -> Result<&Rows> {
        match &self.rows {
            Some(rows) => Ok(rows),
            None => candle_core::bail!("rows of another device or type than the weight"),
        }
    }
}

/// `x · Wᵀ + b`.
#[derive(Debug)]
pub struct Linear {
    weight: Weight,
    bias: Option<Tensor>,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one for each projection of a model, all of one kind"
)]
enum Weight {
    /// Where our kernels compute: packed for the product and, once needed, for the input gradient.
    Packed {
        forward: Packed,
        backward: OnceLock<Packed>,
    },
    /// On other devices and in other types: the tensor `[out, in]`.
    Dense(Tensor),
}

/// An adapter's pair as one pass uses it.
#[derive(Clone, Copy)]
pub(crate) struct Adapted<'a> {
    pub(crate) pair: &'a Lora,
    /// Dropout on its input, in training.
    pub(crate) mask: Option<Mask>,
}

impl Adapted<'_> {
    /// What the pair sees of the layer's input, or gives back to it.
    fn dropped(self, x: Tensor) -> Result<Tensor> {
        match self.mask {
            Some(mask) => mask.apply(&x),
            None => Ok(x),
        }
    }
}

/// What a layer gives for its input.
pub(crate) struct Projected {
    /// `[rows, out]`
    pub(crate) y: Tensor,
    /// The adapter's inner values `x · Aᵀ`, `[rows, rank]`.
    pub(crate) low: Option<Tensor>,
}

impl Linear {
    /// Take `weight[out, in]` and `bias[out]`; in f32 on the CPU products are computed in `arithmetic`.
    /// `scales` are those that the weight was dequantised with.
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub(crate) fn new(
        weight: &Tensor,
        bias: Option<Tensor>,
        arithmetic: Arithmetic,
        scales: Option<&BlockScales>,
    ) -> Result<Self> {
        let weight = if has_kernels(weight) {
            let (n, k) = weight.dims2()?;
            let forward =
                Packed::compact(&floats(&weight.contiguous()?)?, n, k, arithmetic, scales);
            Weight::Packed {
                forward,
                backward: OnceLock::new(),
            }
        } else {
            Weight::Dense(weight.clone())
        };
        Ok(Self { weight, bias })
    }

    /// The layer's result, the adapter's part included where there is one.
    pub(crate) fn forward(&self, x: &Input<'_>, lora: Option<Adapted<'_>>) -> Result<Projected> {
        let (y, low) = match &self.weight {
            Weight::Packed { forward, .. } => {
                let rows = x.rows()?;
                let arithmetic = forward.arithmetic();
                match lora {
                    None => (product(&[(rows, forward)])?, None),
                    Some(Adapted { pair, mask }) => {
                        let packed = pair.packed(arithmetic)?;
                        let low = match mask {
                            None => product(&[(rows, &packed.down)])?,
                            Some(mask) => {
                                let dropped = mask.apply(x.tensor)?;
                                let dropped = Input::new(&dropped, arithmetic)?;
                                product(&[(dropped.rows()?, &packed.down)])?
                            }
                        };
                        let inner = Input::new(&low, arithmetic)?;
                        let y = product(&[(rows, forward), (inner.rows()?, &packed.up)])?;
                        (y, Some(low))
                    }
                }
            }
            Weight::Dense(weight) => {
                let y = x.tensor.matmul(&weight.t()?)?;
                match lora {
                    None => (y, None),
                    Some(lora) => {
                        let Lora { a, b, scale, .. } = lora.pair;
                        // The adapter stays f32 under a base in bf16.
                        let input = lora.dropped(x.tensor.to_dtype(a.dtype())?)?;
                        let low = input.matmul(&a.t()?)?;
                        let part = (low.matmul(&b.t()?)? * *scale)?;
                        (add(&y, &part.to_dtype(y.dtype())?)?, Some(low))
                    }
                }
            }
        };
        let y = self.with_bias(y)?;
        Ok(Projected { y, low })
    }

    fn with_bias(&self, y: Tensor) -> Result<Tensor> {
        match &self.bias {
            Some(bias) => y.broadcast_add(bias),
            None => Ok(y),
        }
    }

    /// Whether the layer has a bias.
    pub(crate) fn has_bias(&self) -> bool {
        self.bias.is_some()
    }
}

/// One of the layers that read the same input, on the way back.
pub(crate) struct Reader<'a> {
    pub(crate) linear: &'a Linear,
    pub(crate) lora: Option<Adapted<'a>>,
    /// Gradient by the layer's result, `[rows, out]`.
    pub(crate) dy: &'a Tensor,
}

/// Gradients of layers that read the same `x[rows, in]`.
pub(crate) struct ReadersGradient {
    /// By `x`, summed over the layers.
    pub(crate) dx: Tensor,
    /// For each layer with an adapter the gradient by its inner values, scale included,
    /// `[rows, rank]`.
    pub(crate) dlow: Vec<Option<Tensor>>,
}

/// Gradient by the input that `readers` share.
pub(crate) fn input_gradient(readers: &[Reader<'_>]) -> Result<ReadersGradient> {
    let mut dlow: Vec<Option<Tensor>> = Vec::with_capacity(readers.len());
    let mut dx: Option<Tensor> = None;
    // Stored operands: of each layer's gradient, and of its adapter's inner gradient.
    let mut stored: Vec<(Rows, &Packed)> = Vec::new();
    // What comes through adapters with dropout, which can't be summed with the rest before.
    let mut dropped: Vec<Tensor> = Vec::new();
    for reader in readers {
        match &reader.linear.weight {
            Weight::Packed { forward, backward } => {
                let arithmetic = forward.arithmetic();
                let dy = Input::new(reader.dy, arithmetic)?;
                let inner = match reader.lora {
                    None => None,
                    Some(Adapted { pair, mask }) => {
                        let back = pair.packed_back(arithmetic)?;
                        let low = product(&[(dy.rows()?, &back.up)])?;
                        let (m, rank) = low.dims2()?;
                        let rows = Rows::new(&floats(&low)?, m, rank, arithmetic);
                        match mask {
                            None => stored.push((rows, &back.down)),
                            Some(mask) => {
                                dropped.push(mask.apply(&product(&[(&rows, &back.down)])?)?);
                            }
                        }
                        Some(low)
                    }
                };
                dlow.push(inner);
                let weight = backward.get_or_init(|| forward.transposed());
                if let Some(rows) = dy.rows {
                    stored.push((rows, weight));
                }
            }
            Weight::Dense(weight) => {
                let mut part = reader.dy.matmul(weight)?;
                let mut inner = None;
                if let Some(lora) = reader.lora {
                    let Lora { a, b, scale, .. } = lora.pair;
                    let dy = reader.dy.to_dtype(a.dtype())?;
                    let low = (dy.matmul(b)? * *scale)?;
                    let back = lora.dropped(low.matmul(a)?)?;
                    part = add(&part, &back.to_dtype(part.dtype())?)?;
                    inner = Some(low);
                }
                dlow.push(inner);
                dx = Some(match dx {
                    Some(sum) => add(&sum, &part)?,
                    None => part,
                });
            }
        }
    }
    let mut dx = match dx {
        Some(dx) => dx,
        None => {
            let terms: Vec<(&Rows, &Packed)> = stored.iter().map(|(r, w)| (r, *w)).collect();
            product(&terms)?
        }
    };
    for part in &dropped {
        dx = add(&dx, part)?;
    }
    Ok(ReadersGradient { dx, dlow })
}

fn product(terms: &[(&Rows, &Packed)]) -> Result<Tensor> {
    let Some((rows, weight)) = terms.first() else {
        candle_core::bail!("no layer to multiply by");
    };
    let shape = (rows.count(), weight.rows());
    Tensor::from_vec(gemm::product(terms), shape, &Device::Cpu)
}

/// A low-rank update `scale · B A` of one linear layer (Hu et al., arXiv:2106.09685).
#[derive(Clone, Debug)]
pub struct Lora {
    /// `[rank, in]`
    pub a: Tensor,
    /// `[out, rank]`
    pub b: Tensor,
    /// alpha / rank, or alpha / √rank for rsLoRA.
    pub scale: f64,
    forward: OnceLock<Pair>,
    backward: OnceLock<Pair>,
}

/// Both factors packed for products in one direction; the scale is in `up`.
#[derive(Clone, Debug)]
struct Pair {
    /// A: `[rank, in]` forward, its transpose backward.
    down: Packed,
    /// B: `[out, rank]` forward, its transpose backward.
    up: Packed,
}

/// Gradients of one adapter pair.
#[derive(Debug)]
pub(crate) struct LoraGradient {
    /// `[rank, in]`
    pub(crate) a: Tensor,
    /// `[out, rank]`
    pub(crate) b: Tensor,
}

impl Lora {
    /// Take the pair. On the CPU it is packed like every weight on first use, so that an adapted
    /// model is as independent of batching as the plain one.
    pub(crate) fn new(a: Tensor, b: Tensor, scale: f64) -> Self {
        Self {
            a,
            b,
            scale,
            forward: OnceLock::new(),
            backward: OnceLock::new(),
        }
    }

    /// Pack for the forward product now, which would come with the first use.
    pub(crate) fn prepare(&self, arithmetic: Arithmetic) -> Result<()> {
        self.packed(arithmetic)?;
        Ok(())
    }

    fn packed(&self, arithmetic: Arithmetic) -> Result<&Pair> {
        self.pack(&self.forward, arithmetic, Packed::new, |n, k| (n, k))
    }

    fn packed_back(&self, arithmetic: Arithmetic) -> Result<&Pair> {
        self.pack(
            &self.backward,
            arithmetic,
            Packed::new_transposed,
            |n, k| (k, n),
        )
    }

    fn pack<'a>(
        &self,
        slot: &'a OnceLock<Pair>,
        arithmetic: Arithmetic,
        pack: impl Fn(&[f32], usize, usize, Arithmetic) -> Packed,
        shape: impl Fn(usize, usize) -> (usize, usize),
    ) -> Result<&'a Pair> {
        if slot.get().is_none() {
            let ((rank, input), (output, _)) = (self.a.dims2()?, self.b.dims2()?);
            let scaled: Vec<f32> = floats(&self.b)?
                .iter()
                .map(|v| v * self.scale as f32)
                .collect();
            let ((an, ak), (bn, bk)) = (shape(rank, input), shape(output, rank));
            let pair = Pair {
                down: pack(&floats(&self.a)?, an, ak, arithmetic),
                up: pack(&scaled, bn, bk, arithmetic),
            };
            // Another thread may have been faster with the same values.
            let _ = slot.set(pair);
        }
        match slot.get() {
            Some(pair) if pair.down.arithmetic() == arithmetic => Ok(pair),
            _ => candle_core::bail!("one adapter under models of two arithmetics"),
        }
    }

    /// Gradients by A and B, from the layer's input `x`, its inner values `low = x · Aᵀ`, and the
    /// gradients by its result and (scale included) by `low`.
    pub(crate) fn gradient(
        &self,
        x: &Columns<'_>,
        low: &Tensor,
        dy: &Tensor,
        dlow: &Tensor,
    ) -> Result<LoraGradient> {
        let dy = dy.to_dtype(low.dtype())?;
        let dy = Columns::new(&dy, x.arithmetic);
        Ok(LoraGradient {
            a: x.times(dlow)?.t()?.contiguous()?,
            b: (dy.times(low)? * self.scale)?,
        })
    }
}

/// The columns of `x[rows, features]`, for products `xᵀ · a`: the gradients of all layers that read `x`.
pub(crate) struct Columns<'a> {
    tensor: &'a Tensor,
    /// Stored for products with many columns, once there is one.
    packed: OnceLock<Packed>,
    arithmetic: Arithmetic,
}

impl<'a> Columns<'a> {
    pub(crate) fn new(tensor: &'a Tensor, arithmetic: Arithmetic) -> Self {
        Self {
            tensor,
            packed: OnceLock::new(),
            arithmetic,
        }
    }

    /// `xᵀ · a`, `[x's features, a's features]`, of `a[rows, features]`, few of them.
    fn times(&self, a: &Tensor) -> Result<Tensor> {
        let (_, r) = a.dims2()?;
        if !has_kernels(self.tensor) || self.arithmetic != Arithmetic::F32 || r > narrow::MOST {
            return self.outer_product(a)?.t()?.contiguous();
        }
        let (_, n) = self.tensor.dims2()?;
        let product = narrow::transposed_product(&floats(self.tensor)?, n, &floats(a)?, r);
        Tensor::from_vec(product, (n, r), &Device::Cpu)
    }

    /// `aᵀ · x`, `[a's features, x's features]`, of `a[rows, features]`.
    pub(crate) fn outer_product(&self, a: &Tensor) -> Result<Tensor> {
        if !has_kernels(self.tensor) {
            return a.t()?.matmul(&self.tensor.to_dtype(a.dtype())?);
        }
        let ((k, n), (_, m)) = (self.tensor.dims2()?, a.dims2()?);
        let input = floats(self.tensor)?;
        let pack = || Packed::new_transposed(&input, n, k, self.arithmetic);
        let rows = Rows::new_transposed(&floats(a)?, m, k, self.arithmetic);
        product(&[(&rows, self.packed.get_or_init(pack))])
    }
}
