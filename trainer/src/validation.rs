//! Validation while training: the loss on rows that nothing is learnt from, which parameters are the
//! best by it, and when there is no more to be gained.
//!
//! What is decided here follows from the list of evaluations alone, which every checkpoint holds: a
//! training that was interrupted decides as one left alone.

use candle_core::Result;
use serde::{Deserialize, Serialize};

use crate::dataset::{Dataset, pack};
use crate::trainee::Trainee;

/// One evaluation on the validation rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// Optimizer steps taken before it.
    pub step: usize,
    /// Mean loss over the supervised tokens of all validation rows.
    pub loss: f64,
}

/// The evaluation with the smallest loss, the first one if there are several.
pub fn best(evaluations: &[Evaluation]) -> Option<Evaluation> {
    let better =
        |best: Evaluation, next: Evaluation| if next.loss < best.loss { next } else { best };
    evaluations.iter().copied().reduce(better)
}

/// Whether `patience` evaluations in a row were no better than one before them; 0 waits for ever.
pub(crate) fn is_exhausted(evaluations: &[Evaluation], patience: usize) -> bool {
    let Some(best) = best(evaluations) else {
        return false;
    };
    let since = evaluations.iter().filter(|e| e.step > best.step).count();
    patience > 0 && since >= patience
}

/// Mean loss over the supervised tokens of the rows held out, computed `batch` rows at a time.
pub(crate) fn loss(trainee: &Trainee, dataset: &Dataset, batch: usize) -> Result<f64> {
    let (mut sum, mut count) = (0.0, 0.0);
    for rows in dataset.validation_batches(batch) {
        let (tree, targets) = pack(&rows);
        let weight = targets.total_weight();
        sum += weight * trainee.loss(&tree, &targets)?;
        count += weight;
    }
    Ok(sum / count)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use candle_core::{DType, Device};
    use model::adapter::Adapter;
    use model::transformer::Transformer;
    use model::weights::Checkpoint;

    use super::*;
    use crate::dataset::Row;

    fn evaluations(losses: &[f64]) -> Vec<Evaluation> {
        let numbered = losses.iter().enumerate();
        numbered
            .map(|(at, loss)| Evaluation {
                step: 3 * (at + 1),
                loss: *loss,
            })
            .collect()
    }

    #[test]
    fn the_first_of_equals_is_the_best_and_patience_counts_from_it() {
        let found = evaluations(&[2.0, 1.5, 1.7, 1.5]);
        assert_eq!(best(&found), Some(found[1]));
        assert!(is_exhausted(&found, 2) && !is_exhausted(&found, 3));
        assert!(!is_exhausted(&found, 0) && !is_exhausted(&[], 1));
        assert!(!is_exhausted(&evaluations(&[2.0, 1.5]), 1));
        assert_eq!(best(&[]), None);
    }

    /// Four rollouts of each of two problems, as passes of sampling leave them, and one row to learn from.
    fn held_out(is_grouped: bool) -> Dataset {
        let row = |index: u32| {
            let problem = index % 2;
            let begin = (0..20).map(|at| 3 + (at * 7 + problem * 31) % 200);
            let own = (0..5 + index).map(|at| 3 + (at * 13 + index * 5) % 200);
            let tokens: Vec<u32> = begin.chain(own).collect();
            Row {
                id: index.to_string(),
                mask: (0..tokens.len()).map(|at| at > 20).collect(),
                tokens,
                weight: 1.0 + index as f32,
                group: is_grouped.then(|| problem.to_string()),
            }
        };
        let dataset = Dataset::new((0..9).map(row).collect(), 100, 0.0).expect("dataset");
        dataset.hold_out(|row| row.id != "8").expect("one is left")
    }

    #[test]
    fn what_rows_of_a_problem_share_is_computed_once_and_the_loss_is_the_same() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama_tied");
        let files = Checkpoint::load(&golden, DType::F32, &Device::Cpu).expect("golden model");
        let model = Transformer::new(files).expect("model");
        let adapter = Adapter::load(&golden.join("adapter"), &model.config, &Device::Cpu);
        let trainee = Trainee::Lora {
            adapter: adapter.expect("adapter"),
            model: Arc::new(model),
        };
        let (spread, grouped) = (held_out(false), held_out(true));
        let of = |dataset: &Dataset| loss(&trainee, dataset, 4).expect("loss");
        let (before, after) = (of(&spread), of(&grouped));
        assert!((after - before).abs() < 1e-5 * before, "{after}, {before}");
        let computed = |dataset: &Dataset| -> usize {
            let batches = dataset.validation_batches(4);
            batches.iter().map(|rows| pack(rows).0.len()).sum()
        };
        // Either beginning, of twenty tokens, once less.
        assert_eq!(computed(&grouped) + 2 * 20, computed(&spread));
    }
}
