//! AdamW's arithmetic on the CPU: each array is read and written once a step.
//!
//! Composed of tensor operations, an update passes over memory some twenty times, most of them on
//! one thread; for a full fine-tuning that is longer than the forward pass.

use candle_core::{
    CpuStorage, CustomOp3, DType, InplaceOp2, Layout, Result, Shape, Storage, Tensor,
};
use rayon::prelude::*;

/// Elements of one unit of parallel work.
const CHUNK: usize = 1 << 14;

/// A moment `m ← keep · m + (1 − keep) · g`, of the gradient or of its squares.
pub(crate) struct Moment {
    pub(crate) keep: f64,
    pub(crate) of_squares: bool,
}

impl InplaceOp2 for Moment {
    fn name(&self) -> &'static str {
        "adamw moment"
    }

    fn cpu_fwd(
        &self,
        moment: &mut CpuStorage,
        layout: &Layout,
        gradient: &CpuStorage,
        gradient_layout: &Layout,
    ) -> Result<()> {
        let gradient = contents(gradient, gradient_layout)?;
        let Some((start, end)) = layout.contiguous_offsets() else {
            candle_core::bail!("a moment that is not contiguous");
        };
        let CpuStorage::F32(moment) = moment else {
            candle_core::bail!("a moment that is not f32");
        };
        let (keep, take) = (self.keep as f32, (1.0 - self.keep) as f32);
        let of_squares = self.of_squares;
        moment[start..end]
            .par_chunks_mut(CHUNK)
            .zip(gradient.par_chunks(CHUNK))
            .for_each(|(moment, gradient)| {
                for (moment, g) in moment.iter_mut().zip(gradient) {
                    let g = if of_squares { g * g } else { *g };
                    *moment = *moment * keep + g * take;
                }
            });
        Ok(())
    }
}

/// `p · decay − rate · first / (√(second / correction) + eps)`, the corrected first moment's factor
/// being in `rate`.
pub(crate) struct Step {
    pub(crate) decay: f64,
    pub(crate) rate: f64,
    pub(crate) correction: f64,
    pub(crate) eps: f64,
}

impl CustomOp3 for Step {
    fn name(&self) -> &'static str {
        "adamw step"
    }

    fn cpu_fwd(
        &self,
        parameter: &CpuStorage,
        layout: &Layout,
        first: &CpuStorage,
        first_layout: &Layout,
        second: &CpuStorage,
        second_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let first = contents(first, first_layout)?;
        let second = contents(second, second_layout)?;
        let mut out = contents(parameter, layout)?.to_vec();
        let (decay, rate) = (self.decay as f32, self.rate as f32);
        let (correction, eps) = ((1.0 / self.correction) as f32, self.eps as f32);
        out.par_chunks_mut(CHUNK)
            .zip(first.par_chunks(CHUNK))
            .zip(second.par_chunks(CHUNK))
            .for_each(|((out, first), second)| {
                for ((p, first), second) in out.iter_mut().zip(first).zip(second) {
                    let scale = (second * correction).sqrt() + eps;
                    *p = *p * decay - first * rate / scale;
                }
            });
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}

/// Sum of the squares of all tensors' elements; the order of additions does not depend on threads. What
/// is summed on a device is read from it once, since a reading waits for all that it was asked to compute.
pub(crate) fn sum_of_squares<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<f64> {
    let mut sums: Vec<f64> = Vec::new();
    let (mut places, mut on_device) = (Vec::new(), Vec::new());
    for tensor in tensors {
        if tensor.device().is_cpu() && tensor.dtype() == DType::F32 && tensor.is_contiguous() {
            sums.push(sum_of_squares_here(tensor)?);
        } else {
            places.push(sums.len());
            sums.push(0.0);
            on_device.push(tensor.to_dtype(DType::F32)?.sqr()?.sum_all()?);
        }
    }
    if !on_device.is_empty() {
        let read = Tensor::stack(&on_device, 0)?.to_vec1::<f32>()?;
        for (place, sum) in places.into_iter().zip(read) {
            sums[place] = f64::from(sum);
        }
    }
    Ok(sums.iter().sum())
}

/// The same of one tensor, of floats that lie one after the other in this machine's memory.
fn sum_of_squares_here(tensor: &Tensor) -> Result<f64> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else {
        candle_core::bail!("a CPU tensor without CPU storage");
    };
    let parts: Vec<f64> = contents(storage, layout)?
        .par_chunks(CHUNK)
        .map(|chunk| chunk.iter().map(|v| f64::from(*v) * f64::from(*v)).sum())
        .collect();
    Ok(parts.iter().sum())
}

fn contents<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        candle_core::bail!("a tensor that is not contiguous: {layout:?}");
    };
    Ok(&storage.as_slice::<f32>()?[start..end])
}
