//! Validation while training: the loss on rows that nothing is learnt from, which parameters are the
//! best by it, and when there is no more to be gained.
//!
//! What is decided here follows from the list of evaluations alone, which every checkpoint holds: a
//! training that was interrupted decides as one left alone.

use candle_core::Result;
use serde::{Deserialize, Serialize};

use crate::dataset::{Row, pack};
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

/// Mean loss over the supervised tokens of `rows`, computed `batch` rows at a time.
pub(crate) fn loss(trainee: &Trainee, rows: &[Row], batch: usize) -> Result<f64> {
    let (mut sum, mut count) = (0.0, 0.0);
    for rows in rows.chunks(batch.max(1)) {
        let (tree, targets) = pack(rows);
        let weight = targets.total_weight();
        sum += weight * trainee.loss(&tree, &targets)?;
        count += weight;
    }
    Ok(sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
