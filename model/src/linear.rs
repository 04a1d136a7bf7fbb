//! Linear layers with a frozen weight and an optional low-rank adapter.

use std::sync::OnceLock;

use candle_core::{Device, Result, Tensor};

use crate::kernels::gemm::Packed;
use crate::ops::{add, floats};

/// `x · Wᵀ + b`.
#[derive(Debug)]
pub struct Linear {
    weight: Weight,
    bias: Option<Tensor>,
}

#[derive(Debug)]
enum Weight {
    /// On the CPU: packed for the product and, once needed, for the input gradient.
    Packed {
        forward: Packed,
        backward: OnceLock<Packed>,
    },
    /// On other devices: the tensor `[out, in]`.
    Dense(Tensor),
}

impl Linear {
    /// Take `weight[out, in]` and `bias[out]`.
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub fn new(weight: &Tensor, bias: Option<Tensor>) -> Result<Self> {
        let weight = if weight.device().is_cpu() {
            let (n, k) = weight.dims2()?;
            let forward = Packed::new(&floats(&weight.contiguous()?)?, n, k);
            Weight::Packed {
                forward,
                backward: OnceLock::new(),
            }
        } else {
            Weight::Dense(weight.clone())
        };
        Ok(Self { weight, bias })
    }

    /// The weight as a tensor `[out, in]`.
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub fn weight(&self) -> Result<Tensor> {
        match &self.weight {
            Weight::Packed { forward, .. } => {
                let shape = (forward.rows(), forward.columns());
                Tensor::from_vec(forward.unpack(), shape, &Device::Cpu)
            }
            Weight::Dense(weight) => Ok(weight.clone()),
        }
    }

    /// `x[rows, in]` to `[rows, out]`, adding the adapter's part where there is one.
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub fn forward(&self, x: &Tensor, lora: Option<&Lora>) -> Result<Tensor> {
        let mut y = match &self.weight {
            Weight::Packed { forward, .. } => product(forward, x)?,
            Weight::Dense(weight) => x.matmul(&weight.t()?)?,
        };
        if let Some(bias) = &self.bias {
            y = y.broadcast_add(bias)?;
        }
        match lora {
            Some(lora) => add(&y, &lora.forward(x)?),
            None => Ok(y),
        }
    }

    /// Gradient by the input, of the frozen part alone.
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub fn input_gradient(&self, dy: &Tensor) -> Result<Tensor> {
        match &self.weight {
            Weight::Packed { forward, backward } => {
                product(backward.get_or_init(|| forward.transposed()), dy)
            }
            Weight::Dense(weight) => dy.matmul(weight),
        }
    }

    /// Whether the layer has a bias.
    pub fn has_bias(&self) -> bool {
        self.bias.is_some()
    }
}

fn product(packed: &Packed, x: &Tensor) -> Result<Tensor> {
    let (m, _) = x.dims2()?;
    let mut out = vec![0.0; m * packed.rows()];
    packed.matmul(&floats(x)?, &mut out, m, false);
    Tensor::from_vec(out, (m, packed.rows()), &Device::Cpu)
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
    packed: Option<(Packed, Packed)>,
}

/// Gradients of one adapter pair.
#[derive(Debug)]
pub struct LoraGradient {
    /// `[rank, in]`
    pub a: Tensor,
    /// `[out, rank]`
    pub b: Tensor,
}

impl Lora {
    /// Take the pair; on the CPU it is packed like every weight, so that an adapted model is as
    /// independent of batching as the plain one.
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub fn new(a: Tensor, b: Tensor, scale: f64) -> Result<Self> {
        let packed = if a.device().is_cpu() {
            let ((rank, input), (output, _)) = (a.dims2()?, b.dims2()?);
            let a = Packed::new(&floats(&a)?, rank, input);
            let scaled: Vec<f32> = floats(&b)?.iter().map(|v| v * scale as f32).collect();
            Some((a, Packed::new(&scaled, output, rank)))
        } else {
            None
        };
        Ok(Self {
            a,
            b,
            scale,
            packed,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match &self.packed {
            Some((a, b)) => product(b, &product(a, x)?),
            // The adapter stays f32 under a base in bf16.
            None => {
                let h = x.to_dtype(self.a.dtype())?.matmul(&self.a.t()?)?;
                (h.matmul(&self.b.t()?)? * self.scale)?.to_dtype(x.dtype())
            }
        }
    }

    /// Gradients by A and B, and the adapter's part of the gradient by the input.
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub fn backward(&self, x: &Tensor, dy: &Tensor) -> Result<(LoraGradient, Tensor)> {
        let dtype = dy.dtype();
        let (x, dy) = (&x.to_dtype(self.a.dtype())?, &dy.to_dtype(self.a.dtype())?);
        let h = x.matmul(&self.a.t()?)?;
        let dh = (dy.matmul(&self.b)? * self.scale)?;
        let b = (dy.t()?.matmul(&h)? * self.scale)?;
        let a = dh.t()?.matmul(x)?;
        Ok((LoraGradient { a, b }, dh.matmul(&self.a)?.to_dtype(dtype)?))
    }
}
