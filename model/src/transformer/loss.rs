//! The end of a training pass: cross-entropy over the supervised tokens, in chunks, so that logits
//! of all of them never exist at once.

use std::collections::BTreeMap;

use candle_core::{Device, Result, Tensor};

use super::pass::Pass;
use super::{Trainable, Transformer};
use crate::adapter::Adapter;
use crate::kernels::{fresh, rows};
use crate::linear::{Columns, Input, Reader, input_gradient};
use crate::ops;
use crate::tree::TokenTree;

/// A chunk of predictions.
struct Chunk {
    /// Hidden states, `[predictions, hidden]`.
    x: Tensor,
    /// After the final norm.
    normed: Tensor,
    /// The chunk's part of the loss.
    loss: Part,
    /// Gradient by the logits, `[predictions, vocabulary]`.
    dlogits: Tensor,
}

/// A part of the loss.
enum Part {
    /// A number.
    Known(f64),
    /// A scalar on the device that computes it; the part is its negative.
    OnDevice(Tensor),
}

impl Part {
    /// The sum of all parts. What is on a device is read from it once, since a reading waits for all that
    /// it was asked to compute.
    fn sum(parts: Vec<Self>) -> Result<f64> {
        let mut sum = 0.0;
        let mut on_device = Vec::new();
        for part in parts {
            match part {
                Self::Known(part) => sum += part,
                Self::OnDevice(scalar) => on_device.push(scalar),
            }
        }
        if !on_device.is_empty() {
            let read = Tensor::stack(&on_device, 0)?.to_vec1::<f32>()?;
            sum -= read.into_iter().map(f64::from).sum::<f64>();
        }
        Ok(sum)
    }
}

impl Transformer {
    /// Loss over `targets` of a tree, by the forward pass alone.
    ///
    /// # Errors
    /// When a tensor operation fails, or there is no target.
    pub fn loss(
        &self,
        tree: &TokenTree,
        targets: &Targets,
        adapter: Option<&Adapter>,
    ) -> Result<f64> {
        rayon::scope(|_| {
            let total = targets.total()?;
            let rows = Tensor::new(targets.rows.as_slice(), &self.device)?;
            let selected = self.tree_hidden(tree, adapter)?.index_select(&rows, 0)?;
            let mut parts = Vec::new();
            for start in targets.chunks() {
                parts.push(self.chunk(&selected, targets, start, total)?.loss);
            }
            Part::sum(parts)
        })
    }

    /// The loss, and its gradient by the last hidden state.
    pub(super) fn loss_backward(
        &self,
        hidden: &Tensor,
        targets: &Targets,
        pass: &mut Pass<'_>,
    ) -> Result<(f64, Tensor)> {
        let total = pass.total.unwrap_or(targets.total()?);
        let rows = Tensor::new(targets.rows.as_slice(), &self.device)?;
        let selected = hidden.index_select(&rows, 0)?;
        let eps = self.config.rms_norm_eps;
        let mut parts = Vec::new();
        let mut gradients = Vec::new();
        let want_base = pass.trainable == Trainable::Base;
        for start in targets.chunks() {
            let chunk = self.chunk(&selected, targets, start, total)?;
            parts.push(chunk.loss);
            if want_base {
                let name = if self.config.tie_word_embeddings {
                    "model.embed_tokens.weight"
                } else {
                    "lm_head.weight"
                };
                let normed = Columns::new(&chunk.normed, self.arithmetic);
                pass.add(name.into(), normed.outer_product(&chunk.dlogits)?)?;
            }
            let dnormed = input_gradient(&[Reader {
                linear: &self.head,
                lora: None,
                dy: &chunk.dlogits,
            }])?
            .dx;
            let (dx, dw) = ops::rms_norm_backward(&chunk.x, &self.norm, eps, &dnormed, want_base)?;
            if let Some(dw) = dw {
                pass.add("model.norm.weight".into(), dw)?;
            }
            gradients.push(dx);
        }
        let dx = Tensor::cat(&gradients, 0)?;
        let loss = Part::sum(parts)?;
        Ok((loss, hidden.zeros_like()?.index_add(&rows, &dx, 0)?))
    }

    /// The predictions from `start` on, of the hidden states of all.
    fn chunk(
        &self,
        selected: &Tensor,
        targets: &Targets,
        start: usize,
        total: f64,
    ) -> Result<Chunk> {
        let count = Targets::CHUNK.min(targets.rows.len() - start);
        let x = selected.narrow(0, start, count)?.contiguous()?;
        let normed = ops::rms_norm(&x, &self.norm, self.config.rms_norm_eps)?;
        let input = Input::new(&normed, self.arithmetic)?;
        let logits = self.head.forward(&input, None)?.y;
        drop(input);
        let (loss, dlogits) = targets.cross_entropy(&logits, start, total)?;
        Ok(Chunk {
            x,
            normed,
            loss,
            dlogits,
        })
    }
}

/// Supervised predictions: the token after packed position `rows[i]` should be `ids[i]`.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    /// Packed index of the predicting token.
    pub rows: Vec<u32>,
    /// The token it should predict.
    pub ids: Vec<u32>,
    /// Weight of the term; the loss is the weighted mean.
    pub weights: Vec<f32>,
}

impl Targets {
    /// Rows of logits alive at once.
    const CHUNK: usize = 128;

    /// Targets of sequences packed as `tree`: token `i` of a sequence is supervised where its mask
    /// is true. Sequences that agree up to and including a target share one term of their summed
    /// weight, which is the same loss.
    pub fn new(tree: &TokenTree, masks: &[Vec<bool>]) -> Self {
        let alike = masks.iter().map(|mask| (mask.as_slice(), 1.0));
        Self::weighted(tree, alike)
    }

    /// The same where each sequence's tokens count by a weight of its own.
    pub fn weighted<'a>(
        tree: &TokenTree,
        sequences: impl IntoIterator<Item = (&'a [bool], f32)>,
    ) -> Self {
        let mut terms: BTreeMap<(u32, u32), f32> = BTreeMap::new();
        for (sequence, (mask, weight)) in sequences.into_iter().enumerate() {
            for (at, _) in mask
                .iter()
                .enumerate()
                .filter(|(at, train)| **train && *at > 0)
            {
                let (Some(row), Some(target)) =
                    (tree.index_of(sequence, at - 1), tree.index_of(sequence, at))
                else {
                    continue;
                };
                let row = u32::try_from(row).unwrap_or(u32::MAX);
                *terms.entry((row, tree.tokens[target])).or_default() += weight;
            }
        }
        let mut targets = Self::default();
        for ((row, id), weight) in terms {
            targets.rows.push(row);
            targets.ids.push(id);
            targets.weights.push(weight);
        }
        targets
    }

    /// Sum of the weights: the number of supervised tokens, where all count alike.
    pub fn total_weight(&self) -> f64 {
        self.weights.iter().map(|w| f64::from(*w)).sum()
    }

    /// What the sum of the terms is divided by.
    fn total(&self) -> Result<f64> {
        let total = self.total_weight();
        if total <= 0.0 {
            candle_core::bail!("no supervised token in the batch");
        }
        Ok(total)
    }

    /// Where chunks start.
    fn chunks(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.rows.len()).step_by(Self::CHUNK)
    }

    /// Loss terms `start..` for these logits, and the gradient by them.
    fn cross_entropy(&self, logits: &Tensor, start: usize, total: f64) -> Result<(Part, Tensor)> {
        let (count, vocabulary) = logits.dims2()?;
        let ids = &self.ids[start..start + count];
        let weights = &self.weights[start..start + count];
        if !ops::has_kernels(logits) {
            let scaled: Vec<f32> = weights.iter().map(|w| w / total as f32).collect();
            let scaled = Tensor::from_vec(scaled, (count, 1), logits.device())?;
            let wide = logits.to_dtype(candle_core::DType::F32)?;
            let log_p = candle_nn::ops::log_softmax(&wide, 1)?;
            let index = Tensor::new(ids, logits.device())?.unsqueeze(1)?;
            let picked = log_p.gather(&index, 1)?;
            let loss = Part::OnDevice(picked.mul(&scaled)?.sum_all()?);
            let one_hot = log_p
                .zeros_like()?
                .scatter_add(&index, &picked.ones_like()?, 1)?;
            let gradient = (log_p.exp()? - one_hot)?.broadcast_mul(&scaled)?;
            // The head's weights are of the logits' type.
            return Ok((loss, gradient.to_dtype(logits.dtype())?));
        }
        use rayon::prelude::*;
        let logits = ops::floats(logits)?;
        let losses: Vec<f64> = logits
            .par_chunks_exact(vocabulary)
            .zip(ids.par_iter().zip(weights))
            .map(|(row, (id, weight))| {
                let (max, sum) = rows::max_and_exp_sum(row, 1.0);
                f64::from(sum.ln() + max - row[*id as usize]) * f64::from(*weight)
            })
            .collect();
        let gradient = fresh::rows(count, vocabulary, |row, out| {
            let (id, scale) = (ids[row] as usize, (f64::from(weights[row]) / total) as f32);
            out.copy_from_slice(&logits[row * vocabulary..(row + 1) * vocabulary]);
            rows::softmax(out);
            out[id] -= 1.0;
            out.iter_mut().for_each(|v| *v *= scale);
        });
        let loss = losses.iter().sum::<f64>() / total;
        Ok((
            Part::Known(loss),
            Tensor::from_vec(gradient, (count, vocabulary), &Device::Cpu)?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loss over `targets` of logits for every token.
    fn loss(targets: &Targets, logits: &[[f32; 3]]) -> f64 {
        let chosen: Vec<f32> = targets
            .rows
            .iter()
            .flat_map(|row| logits[*row as usize])
            .collect();
        let count = targets.rows.len();
        let logits = Tensor::from_vec(chosen, (count, 3), &Device::Cpu).expect("logits");
        let total = targets.total().expect("targets");
        let (loss, _) = targets.cross_entropy(&logits, 0, total).expect("loss");
        Part::sum(vec![loss]).expect("a number")
    }

    /// In bfloat16 the CPU takes the way of other devices.
    #[test]
    fn the_parts_of_a_loss_add_up_whichever_way_they_are_computed() {
        let targets = Targets {
            rows: (0..300).collect(),
            ids: (0..300).map(|row| row % 3).collect(),
            weights: vec![1.0; 300],
        };
        // Numbers that bfloat16 holds.
        let values = (0..900u16).map(|at| f32::from(at * 7 % 16) * 0.25);
        let values: Vec<f32> = values.collect();
        let logits = Tensor::from_vec(values, (300, 3), &Device::Cpu).expect("logits");
        let total = targets.total().expect("targets");
        let sum = |logits: &Tensor| {
            let parts = targets.chunks().map(|start| {
                let count = Targets::CHUNK.min(300 - start);
                let chunk = logits.narrow(0, start, count).expect("a chunk");
                let chunk = chunk.contiguous().expect("a chunk");
                let loss = targets.cross_entropy(&chunk, start, total);
                loss.expect("a part").0
            });
            Part::sum(parts.collect()).expect("a number")
        };
        let half = logits.to_dtype(candle_core::DType::BF16).expect("halves");
        let (known, read) = (sum(&logits), sum(&half));
        assert!(known > 0.5, "{known}");
        assert!((known - read).abs() < 1e-5 * known, "{known} {read}");
    }

    #[test]
    fn what_does_not_count_does_not_thin_the_mean() {
        // The second prediction is ignored.
        let targets = Targets {
            rows: vec![0],
            ids: vec![0],
            weights: vec![1.0],
        };
        let found = loss(&targets, &[[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]);
        assert!((found - 0.2395).abs() < 1e-4, "{found}");
        assert!(Targets::default().total().is_err(), "nothing counts");
    }

    #[test]
    fn a_token_counts_by_the_prediction_before_it_and_no_other() {
        let tokens = [0, 1, 2, 0, 1, 2];
        let tree = TokenTree::new(&[&tokens]);
        let mask = [false, false, false, true, true, true];
        let targets = Targets::new(&tree, &[mask.to_vec()]);
        assert_eq!(targets.rows, [2, 3, 4]);
        assert_eq!(targets.ids, tokens[3..]);
        let logits: Vec<[f32; 3]> = (0..6).map(|row| [0.3, row as f32, -0.5]).collect();
        let whole = loss(&targets, &logits);
        for row in 0..6 {
            let mut spoilt = logits.clone();
            spoilt[row] = [f32::NEG_INFINITY; 3];
            let is_same = loss(&targets, &spoilt) == whole;
            assert_eq!(is_same, !(2..5).contains(&row), "row {row}");
        }
    }
}
