//! Rows of several adapters through one layer: the weight is multiplied once for all rows, the pairs each
//! for the rows they adapt.

use std::cell::OnceCell;
use std::ops::Range;

use candle_core::{Device, Result, Tensor};

use super::{Input, Linear, Lora, Weight};
use crate::kernels::gemm::{self, Arithmetic, Rows};
use crate::ops::floats;

/// A pair for some of the rows.
pub(crate) struct RunPair<'a> {
    /// Which of the input's runs these are.
    pub(crate) run: usize,
    pub(crate) rows: Range<usize>,
    pub(crate) pair: &'a Lora,
}

impl<'a> Input<'a> {
    /// Rows of which `runs` runs have adapters of their own.
    pub(crate) fn with_runs(
        tensor: &'a Tensor,
        arithmetic: Arithmetic,
        runs: usize,
    ) -> Result<Self> {
        let mut input = Self::new(tensor, arithmetic)?;
        input.runs.resize_with(runs, OnceCell::new);
        Ok(input)
    }

    /// The rows of one run, stored for products once for all layers that read them.
    fn run(&self, run: usize, rows: Range<usize>) -> Result<&Rows> {
        let (_, width) = self.tensor.dims2()?;
        let all = floats(self.tensor)?;
        let stored = || {
            let own = &all[rows.start * width..rows.end * width];
            Rows::new(own, rows.len(), width, self.arithmetic)
        };
        Ok(self.runs[run].get_or_init(stored))
    }
}

impl Linear {
    /// The layer's result where runs of rows have pairs of their own, and other rows none. A row's is to
    /// the bit what [`Self::forward`] gives for it under its pair: that sums up the pair's product on top
    /// of the weight's too.
    pub(crate) fn forward_runs(&self, x: &Input<'_>, pairs: &[RunPair<'_>]) -> Result<Tensor> {
        let Weight::Packed { forward, .. } = &self.weight else {
            candle_core::bail!("rows of several adapters on a device without kernels for them");
        };
        let (arithmetic, rows) = (forward.arithmetic(), x.rows()?);
        let width = forward.rows();
        let mut y = gemm::product(&[(rows, forward)]);
        for RunPair { run, rows, pair } in pairs {
            let packed = pair.packed(arithmetic)?;
            let low = gemm::product(&[(x.run(*run, rows.clone())?, &packed.down)]);
            let inner = Rows::new(&low, rows.len(), packed.down.rows(), arithmetic);
            let own = &mut y[rows.start * width..rows.end * width];
            gemm::sum_of_products(&[(&inner, &packed.up)], own, true);
        }
        let y = Tensor::from_vec(y, (rows.count(), width), &Device::Cpu)?;
        self.with_bias(y)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Adapted;
    use super::*;

    /// `[rows, columns]` of values that look like none in particular.
    fn matrix(rows: usize, columns: usize, seed: usize) -> Tensor {
        let value = |at: usize| ((at + seed) * 7919 % 613) as f32 / 306.0 - 1.0;
        let values: Vec<f32> = (0..rows * columns).map(value).collect();
        Tensor::from_vec(values, (rows, columns), &Device::Cpu).expect("matrix")
    }

    fn rows_of(y: &Tensor, rows: &Range<usize>) -> Vec<Vec<f32>> {
        y.to_vec2::<f32>().expect("rows")[rows.clone()].to_vec()
    }

    #[test]
    fn rows_of_several_pairs_come_out_as_under_each_pair_alone_to_the_bit() {
        const ALL: [Arithmetic; 3] = [Arithmetic::F32, Arithmetic::SplitBf16, Arithmetic::Bf16];
        // Several parts of the inner dimension, and panels that aren't full.
        let (features, outputs, count) = (600, 70, 67);
        // Of one row, of none that are adapted, and of more rows than a tile has.
        let runs = [0..1, 1..8, 8..20, 20..67];
        for arithmetic in ALL.into_iter().filter(|one| one.is_available()) {
            for bias in [
                None,
                Some(matrix(1, outputs, 9).flatten_all().expect("bias")),
            ] {
                let weight = matrix(outputs, features, 1);
                let linear = Linear::new(&weight, bias, arithmetic, None).expect("layer");
                let pairs: Vec<Lora> = [1, 4, 40]
                    .into_iter()
                    .map(|rank| {
                        let (a, b) = (matrix(rank, features, rank), matrix(outputs, rank, 5));
                        Lora::new(a, b, 0.5)
                    })
                    .collect();
                let x = matrix(count, features, 3);
                let input = Input::with_runs(&x, arithmetic, runs.len()).expect("input");
                let of_run = [Some(&pairs[0]), None, Some(&pairs[1]), Some(&pairs[2])];
                let mixed: Vec<RunPair<'_>> = of_run
                    .iter()
                    .zip(&runs)
                    .enumerate()
                    .filter_map(|(run, (pair, rows))| {
                        let rows = rows.clone();
                        pair.map(|pair| RunPair { run, rows, pair })
                    })
                    .collect();
                // Twice: the second layer that reads an input finds its runs stored.
                for _ in 0..2 {
                    let y = linear.forward_runs(&input, &mixed).expect("rows");
                    for (pair, rows) in of_run.iter().zip(&runs) {
                        let lora = pair.map(|pair| Adapted { pair, mask: None });
                        let alone = linear.forward(&input, lora).expect("rows").y;
                        assert_eq!(rows_of(&y, rows), rows_of(&alone, rows), "{arithmetic:?}");
                    }
                }
            }
        }
    }
}
