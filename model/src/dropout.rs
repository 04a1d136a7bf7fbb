//! Dropout on the inputs of an adapter's pairs, as PEFT's `lora_dropout` (Srivastava et al., 2014).
//!
//! A mask is a function of where it stands and is made anew wherever it is needed, so that the way
//! back and a recomputed block see that of the way there, nothing has to be kept, and no state has
//! to be saved with a training. One departure from PEFT: tokens that rows of a batch share are
//! computed once and so have one mask.

use candle_core::{Device, Result, Tensor};

use crate::adapter::Projection;
use crate::kernels::fresh;
use crate::ops::floats;

/// Draws of 16 bits in one number of the generator.
const LANES: usize = 4;
const DRAW: u64 = 1 << 16;

/// Dropout in one training pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Share of the inputs that are set to zero, at least 0 and below 1; it is rounded to 16 bits.
    /// The others grow by as much as keeps the mean.
    pub probability: f64,
    /// Names the pass; the same one gives the same masks.
    pub seed: u64,
}

impl Dropout {
    /// The mask of one pair's input.
    pub(crate) fn mask(self, layer: usize, projection: Projection) -> Mask {
        let place = layer * Projection::ALL.len() + projection as usize;
        // Something is always kept.
        let threshold = ((self.probability * DRAW as f64).round() as u64).min(DRAW - 1);
        Mask {
            threshold,
            scale: DRAW as f32 / (DRAW - threshold) as f32,
            seed: split_mix(self.seed, place as u64),
        }
    }
}

/// Which elements of a matrix are dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mask {
    /// Draws below it drop.
    threshold: u64,
    /// Factor on what is kept.
    scale: f32,
    seed: u64,
}

impl Mask {
    /// `x[rows, features]` with what is dropped at zero and the rest scaled. It is its own gradient.
    pub(crate) fn apply(self, x: &Tensor) -> Result<Tensor> {
        let (count, width) = x.dims2()?;
        if !x.device().is_cpu() {
            // The device's own generator, which starts from the seed again each time.
            x.device().set_seed(self.seed)?;
            let share = self.threshold as f64 / DRAW as f64;
            let drawn = Tensor::rand(0f32, 1f32, (count, width), x.device())?;
            let kept = drawn.ge(share)?.to_dtype(x.dtype())?;
            return (x * kept)? * f64::from(self.scale);
        }
        let input = floats(x)?;
        let out = fresh::rows(count, width, |row, out| {
            self.fill(row, &input[row * width..(row + 1) * width], out);
        });
        Tensor::from_vec(out, (count, width), &Device::Cpu)
    }

    fn fill(self, row: usize, x: &[f32], out: &mut [f32]) {
        let first = (row * x.len().div_ceil(LANES)) as u64;
        let groups = out.chunks_mut(LANES).zip(x.chunks(LANES));
        for (group, (out, x)) in (first..).zip(groups) {
            let drawn = split_mix(self.seed, group);
            for (lane, (out, x)) in out.iter_mut().zip(x).enumerate() {
                let is_kept = (drawn >> (16 * lane)) % DRAW >= self.threshold;
                *out = if is_kept { x * self.scale } else { 0.0 };
            }
        }
    }
}

/// Number `index` of the sequence that starts from `seed` (SplitMix64: Steele, Lea and Flood,
/// "Fast splittable pseudorandom number generators", 2014).
fn split_mix(seed: u64, index: u64) -> u64 {
    let state = seed.wrapping_add((index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(probability: f64, seed: u64, layer: usize, x: &Tensor) -> Vec<f32> {
        let mask = Dropout { probability, seed }.mask(layer, Projection::Up);
        let out = mask.apply(x).and_then(|t| t.flatten_all()?.to_vec1());
        out.expect("values")
    }

    #[test]
    fn the_generator_is_the_published_one() {
        // First numbers for the seed 1234567, of the reference implementation by Vigna.
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([split_mix(1_234_567, 0), split_mix(1_234_567, 1)], expected);
    }

    #[test]
    fn the_share_is_dropped_and_the_mean_is_kept() {
        // A width that is no multiple of the draws in a number.
        let (rows, width) = (301, 333);
        let ones = Tensor::ones((rows, width), candle_core::DType::F32, &Device::Cpu);
        let ones = ones.expect("tensor");
        for probability in [0.05, 0.5, 0.9] {
            let values = apply(probability, 7, 0, &ones);
            let count = values.len() as f64;
            let dropped = values.iter().filter(|v| **v == 0.0).count() as f64 / count;
            let spread = (probability * (1.0 - probability) / count).sqrt();
            assert!((dropped - probability).abs() < 5.0 * spread, "{dropped}");
            let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / count;
            let bound = 5.0 * spread / (1.0 - probability);
            assert!((mean - 1.0).abs() < bound, "{mean}");
            // No row is a copy of the first.
            let first = &values[..width];
            assert!(values.chunks(width).skip(1).all(|row| row != first));
        }
    }

    #[test]
    fn a_mask_follows_from_its_place_and_none_drops_nothing() {
        let x = Tensor::arange(1f32, 401f32, &Device::Cpu).and_then(|t| t.reshape((10, 40)));
        let x = x.expect("tensor");
        let one = apply(0.3, 5, 2, &x);
        assert_eq!(one, apply(0.3, 5, 2, &x));
        assert_ne!(one, apply(0.3, 6, 2, &x));
        assert_ne!(one, apply(0.3, 5, 3, &x));
        let other = Dropout {
            probability: 0.3,
            seed: 5,
        };
        let other = other.mask(2, Projection::Gate).apply(&x);
        let other = other.and_then(|t| t.flatten_all()?.to_vec1::<f32>());
        assert_ne!(one, other.expect("values"));
        let whole: Vec<f32> = (1u16..401).map(f32::from).collect();
        assert_eq!(apply(0.0, 5, 2, &x), whole);
    }
}
