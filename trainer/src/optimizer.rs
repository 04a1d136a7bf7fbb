//! AdamW (Loshchilov and Hutter, arXiv:1711.05101), clipping and the learning-rate schedule.
//!
//! Parameters and both moments are f32 whatever the model computes in: in bf16 small updates and
//! moments round away. The state is plain tensors, so that it can be saved.

use candle_core::{DType, Result};
use model::transformer::Gradients;
use model::weights::TensorMap;
use serde::{Deserialize, Serialize};

use crate::adamw_kernel::{Moment, Step, sum_of_squares};

/// Constants of AdamW.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdamWOptions {
    /// Decay of the first and second moment.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled decay of the parameters, per unit of learning rate.
    pub weight_decay: f64,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self {
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.01,
        }
    }
}

/// Shape of the learning rate after warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Stays.
    Constant,
    /// Falls linearly to zero.
    Linear,
    /// Half a cosine to zero.
    Cosine,
}

impl Schedule {
    /// Rate of `step` (from 0) of `total`, warming up linearly over the first `warmup` steps.
    pub fn rate(self, peak: f64, step: usize, warmup: usize, total: usize) -> f64 {
        if step < warmup {
            return peak * (step + 1) as f64 / warmup as f64;
        }
        let progress = (step - warmup) as f64 / total.saturating_sub(warmup).max(1) as f64;
        match self {
            Self::Constant => peak,
            Self::Linear => peak * (1.0 - progress),
            Self::Cosine => peak * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
        }
    }
}

/// Optimizer state.
#[derive(Debug)]
pub struct AdamW {
    options: AdamWOptions,
    /// Steps taken.
    pub step: usize,
    /// First moments, by parameter; changed in place.
    pub first: TensorMap,
    /// Second moments, by parameter; changed in place.
    pub second: TensorMap,
}

impl AdamW {
    /// Zero moments for these parameters.
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub fn new(options: AdamWOptions, parameters: &TensorMap) -> Result<Self> {
        let zeros = || {
            parameters
                .iter()
                .map(|(name, p)| Ok((name.clone(), p.to_dtype(DType::F32)?.zeros_like()?)))
                .collect::<Result<TensorMap>>()
        };
        Ok(Self {
            options,
            step: 0,
            first: zeros()?,
            second: zeros()?,
        })
    }

    /// State saved after `step` steps.
    pub fn restore(
        options: AdamWOptions,
        step: usize,
        first: TensorMap,
        second: TensorMap,
    ) -> Self {
        Self {
            options,
            step,
            first,
            second,
        }
    }

    /// One update of `parameters` in place, at `rate`.
    ///
    /// # Errors
    /// When a gradient or a tensor operation is missing.
    pub fn update(
        &mut self,
        parameters: &mut TensorMap,
        gradients: &Gradients,
        rate: f64,
    ) -> Result<()> {
        self.step += 1;
        let AdamWOptions {
            betas: (beta1, beta2),
            eps,
            weight_decay,
        } = self.options;
        let steps = i32::try_from(self.step).unwrap_or(i32::MAX);
        let (correct1, correct2) = (1.0 - beta1.powi(steps), 1.0 - beta2.powi(steps));
        for (name, parameter) in parameters.iter_mut() {
            let (Some(gradient), Some(first), Some(second)) = (
                gradients.get(name),
                self.first.get_mut(name),
                self.second.get_mut(name),
            ) else {
                candle_core::bail!("no gradient or state for {name}");
            };
            let gradient = gradient.to_dtype(DType::F32)?.contiguous()?;
            if gradient.device().is_cpu() {
                for (moment, keep, of_squares) in [(&*first, beta1, false), (&*second, beta2, true)]
                {
                    moment.inplace_op2(&gradient, &Moment { keep, of_squares })?;
                }
                let step = Step {
                    decay: 1.0 - rate * weight_decay,
                    rate: rate / correct1,
                    correction: correct2,
                    eps,
                };
                // A new tensor: whoever else holds the old parameter keeps what it holds.
                *parameter = parameter
                    .contiguous()?
                    .apply_op3_no_bwd(first, second, &step)?;
                continue;
            }
            *first = ((&*first * beta1)? + (&gradient * (1.0 - beta1))?)?;
            *second = ((&*second * beta2)? + (gradient.sqr()? * (1.0 - beta2))?)?;
            let scale = ((&*second / correct2)?.sqrt()? + eps)?;
            let change = ((&*first * (rate / correct1))? / scale)?;
            *parameter = ((&*parameter * (1.0 - rate * weight_decay))? - change)?;
        }
        Ok(())
    }
}

/// Euclidean norm of all gradients together.
///
/// # Errors
/// When a tensor operation fails.
pub fn global_norm(gradients: &Gradients) -> Result<f64> {
    Ok(sum_of_squares(gradients.values())?.sqrt())
}

/// Scale gradients of norm `norm` down to `max_norm`, as PyTorch's `clip_grad_norm_` does.
///
/// # Errors
/// When a tensor operation fails.
pub fn clip(gradients: &mut Gradients, norm: f64, max_norm: f64) -> Result<()> {
    let factor = max_norm / (norm + 1e-6);
    if factor < 1.0 {
        for gradient in gradients.values_mut() {
            *gradient = (&*gradient * factor)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor};

    use super::*;

    #[test]
    fn small_updates_do_not_vanish() {
        let one = |v: f32| Tensor::from_vec(vec![v], 1, &Device::Cpu).expect("tensor");
        let mut parameters = TensorMap::from([("w".to_owned(), one(1.0))]);
        let options = AdamWOptions {
            weight_decay: 0.0,
            ..AdamWOptions::default()
        };
        let mut optimizer = AdamW::new(options, &parameters).expect("state");
        let gradients = Gradients::from([("w".to_owned(), one(1.0))]);
        for _ in 0..1000 {
            optimizer
                .update(&mut parameters, &gradients, 1e-4)
                .expect("update");
        }
        let w = parameters["w"].to_vec1::<f32>().expect("values")[0];
        assert!((w - 0.9).abs() < 1e-3, "{w}");
    }

    /// In bfloat16 the CPU takes the way of other devices.
    #[test]
    fn the_norm_is_that_of_all_gradients_whichever_way_each_is_summed() {
        let of = |name: &str, values: &[f32], dtype: DType| {
            let tensor = Tensor::new(values, &Device::Cpu).and_then(|t| t.to_dtype(dtype));
            (name.to_owned(), tensor.expect("tensor"))
        };
        let gradients = Gradients::from([
            of("a", &[3.0, 4.0], DType::F32),
            of("b", &[12.0], DType::BF16),
            of("c", &[84.0], DType::BF16),
        ]);
        assert_eq!(global_norm(&gradients).expect("norm"), 85.0);
        assert_eq!(global_norm(&Gradients::new()).expect("norm"), 0.0);
    }

    #[test]
    fn schedules_warm_up_and_end_near_zero() {
        for schedule in [Schedule::Linear, Schedule::Cosine] {
            let rates: Vec<f64> = (0..10)
                .map(|step| schedule.rate(1.0, step, 2, 10))
                .collect();
            assert_eq!(rates[..3], [0.5, 1.0, 1.0]);
            assert!(rates.windows(2).skip(2).all(|pair| pair[1] < pair[0]) && rates[9] < 0.13);
        }
        assert_eq!(Schedule::Constant.rate(2.0, 7, 2, 10), 2.0);
    }
}
