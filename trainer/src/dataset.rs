//! Supervised rows: tokens and which of them count.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use model::transformer::Targets;
use model::tree::TokenTree;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Why rows can't be trained on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatasetError {
    /// A mask of another length than its tokens.
    #[error("row {id}: {tokens} tokens but a mask of {mask}")]
    MaskLength {
        /// The row.
        id: String,
        /// Its tokens.
        tokens: usize,
        /// Its mask.
        mask: usize,
    },
    /// A weight that nothing can count by.
    #[error("row {id}: a weight must be above 0 and finite")]
    Weight {
        /// The row.
        id: String,
    },
    /// Two rows of one name, which the training order could not tell apart.
    #[error("row {id} stands twice in the dataset")]
    Duplicate {
        /// The row.
        id: String,
    },
    /// More rows were refused than the options allow.
    #[error("{refused} of {total} rows can't be trained on; first: row {id}: {reason}")]
    TooManyRefused {
        /// Refused rows.
        refused: usize,
        /// All rows.
        total: usize,
        /// The first of them.
        id: String,
        /// Why.
        reason: Refusal,
    },
    /// No row is left.
    #[error("there is nothing to train on")]
    Empty,
    /// No row has an end of a turn that counts.
    #[error("no end-of-turn token counts in any row: nothing would teach the model to stop")]
    NoEnd,
}

/// Why one row can't be trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// No token counts for the loss.
    #[error("no_target_tokens")]
    NoTargetTokens,
    /// The row is longer than the limit; cutting it would cut what it teaches.
    #[error("too_long")]
    TooLong,
}

/// One sequence to learn from.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name in messages and in the training order.
    pub id: String,
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Whether each token counts for the loss. The first never does: nothing predicts it.
    pub mask: Vec<bool>,
    /// What each of those tokens counts beside other rows'; 1 where all count alike.
    pub weight: f32,
    /// What it shares with rows that begin as it does, its problem say: an epoch serves them one after the
    /// other. A row without a group stands alone.
    pub group: Option<String>,
}

impl Row {
    /// Number of predictions the row teaches.
    pub fn targets(&self) -> usize {
        self.mask.iter().skip(1).filter(|m| **m).count()
    }

    /// Why it can't be trained on, if so, where rows have at most `max_tokens`.
    pub fn refusal(&self, max_tokens: usize) -> Option<Refusal> {
        if self.targets() == 0 {
            Some(Refusal::NoTargetTokens)
        } else if self.tokens.len() > max_tokens {
            Some(Refusal::TooLong)
        } else {
            None
        }
    }
}

/// Rows as one tree with its targets.
pub(crate) fn pack<R: Borrow<Row>>(rows: &[R]) -> (TokenTree, Targets) {
    let rows: Vec<&Row> = rows.iter().map(<R as Borrow<Row>>::borrow).collect();
    let sequences: Vec<&[u32]> = rows.iter().map(|row| row.tokens.as_slice()).collect();
    let tree = TokenTree::new(&sequences);
    let targets = Targets::weighted(&tree, rows.iter().map(|row| (&row.mask[..], row.weight)));
    (tree, targets)
}

/// Rows that passed every check.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    rows: Vec<Row>,
    validation: Vec<Row>,
    refused: Vec<(String, Refusal)>,
}

impl Dataset {
    /// Check rows; those without targets or above `max_tokens` are refused and counted, and if they
    /// are more than `max_refused_share` of all, the whole set is.
    ///
    /// # Errors
    /// When a row is malformed, too many are refused, or none is left.
    pub fn new(
        rows: Vec<Row>,
        max_tokens: usize,
        max_refused_share: f64,
    ) -> Result<Self, DatasetError> {
        let total = rows.len();
        let mut names = BTreeSet::new();
        let mut kept = Vec::new();
        let mut refused = Vec::new();
        for row in rows {
            if row.tokens.len() != row.mask.len() {
                let (tokens, mask) = (row.tokens.len(), row.mask.len());
                return Err(DatasetError::MaskLength {
                    id: row.id,
                    tokens,
                    mask,
                });
            }
            if !(row.weight > 0.0 && row.weight.is_finite()) {
                return Err(DatasetError::Weight { id: row.id });
            }
            if !names.insert(row.id.clone()) {
                return Err(DatasetError::Duplicate { id: row.id });
            }
            match row.refusal(max_tokens) {
                Some(reason) => refused.push((row.id, reason)),
                None => kept.push(row),
            }
        }
        if let Some((id, reason)) = refused.first()
            && refused.len() as f64 > max_refused_share * total as f64
        {
            let (id, reason) = (id.clone(), *reason);
            return Err(DatasetError::TooManyRefused {
                refused: refused.len(),
                total,
                id,
                reason,
            });
        }
        if kept.is_empty() {
            return Err(DatasetError::Empty);
        }
        Ok(Self {
            rows: kept,
            validation: Vec::new(),
            refused,
        })
    }

    /// Put the rows that `is_held_out` picks aside, to validate on instead of learning from them.
    ///
    /// # Errors
    /// When no row is left to learn from.
    pub fn hold_out(mut self, is_held_out: impl Fn(&Row) -> bool) -> Result<Self, DatasetError> {
        let (aside, rows): (Vec<Row>, Vec<Row>) = self.rows.into_iter().partition(is_held_out);
        if rows.is_empty() {
            return Err(DatasetError::Empty);
        }
        self.validation.extend(aside);
        Ok(Self { rows, ..self })
    }

    /// Whether a token that ends turns, one of `stop_tokens`, counts in a row that is learnt from. A
    /// training without one has a fine loss, and may leave a model that never stops.
    ///
    /// # Errors
    /// [`DatasetError::NoEnd`].
    pub fn check_ends(&self, stop_tokens: &[u32]) -> Result<(), DatasetError> {
        let ends_a_turn = |row: &Row| {
            let tokens = row.tokens.iter().zip(&row.mask).skip(1);
            let mut counted = tokens.filter(|(_, counts)| **counts);
            counted.any(|(token, _)| stop_tokens.contains(token))
        };
        if self.rows.iter().any(ends_a_turn) {
            Ok(())
        } else {
            Err(DatasetError::NoEnd)
        }
    }

    /// The rows that are learnt from.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows that are validated on.
    pub fn validation(&self) -> &[Row] {
        &self.validation
    }

    /// Rows that were left out, with the reason.
    pub fn refused(&self) -> &[(String, Refusal)] {
        &self.refused
    }

    /// Content hash: what was trained on, and what on which side of it. Groups are no part of it: they
    /// decide the order alone.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (side, rows) in [("", &self.rows), ("validation", &self.validation)] {
            for row in rows {
                hasher.update(side.as_bytes());
                hasher.update(row.id.as_bytes());
                hasher.update(&[0]);
                if row.weight != 1.0 {
                    hasher.update(&row.weight.to_le_bytes());
                }
                for (token, mask) in row.tokens.iter().zip(&row.mask) {
                    hasher.update(&token.to_le_bytes());
                    hasher.update(&[u8::from(*mask)]);
                }
            }
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Row indices of every step: each epoch a seeded permutation of the groups, and of the rows in each,
    /// cut into batches. Rows of one group mostly share a batch so, which computes what they have in
    /// common once. The order is a function of groups, seed and epoch alone, so a resumed run serves what
    /// is left of it.
    pub fn order(&self, batch: usize, epochs: usize, seed: u64) -> Vec<Vec<usize>> {
        let unshuffled = self.groups();
        let mut steps = Vec::new();
        for epoch in 0..epochs {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(epoch as u64);
            // Spend one draw, so that seeds and streams never give the unshuffled state away.
            let _: u64 = random.random();
            let mut groups = unshuffled.clone();
            groups.shuffle(&mut random);
            for group in &mut groups {
                group.shuffle(&mut random);
            }
            let indices = groups.concat();
            steps.extend(indices.chunks(batch.max(1)).map(<[usize]>::to_vec));
        }
        steps
    }

    /// Indices of the rows of each group that are learnt from, in the order of their first ones.
    pub(crate) fn groups(&self) -> Vec<Vec<usize>> {
        groups(&self.rows)
    }

    /// The rows that are validated on, `batch` at a time: group by group, so that they share a batch as those
    /// of a training step do.
    pub(crate) fn validation_batches(&self, batch: usize) -> Vec<Vec<&Row>> {
        let indices = groups(&self.validation).concat();
        let rows: Vec<&Row> = indices.iter().map(|i| &self.validation[*i]).collect();
        rows.chunks(batch.max(1)).map(<[&Row]>::to_vec).collect()
    }
}

/// Indices of the rows of each group, in the order of their first ones.
fn groups(rows: &[Row]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        let place = match &row.group {
            Some(name) => *places.entry(name.as_str()).or_insert(groups.len()),
            None => groups.len(),
        };
        match groups.get_mut(place) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, tokens: usize, targets: std::ops::Range<usize>) -> Row {
        Row {
            id: id.into(),
            tokens: (0..tokens as u32).collect(),
            mask: (0..tokens).map(|i| targets.contains(&i)).collect(),
            weight: 1.0,
            group: None,
        }
    }

    #[test]
    fn a_row_without_targets_is_refused_by_name_and_too_many_stop_the_run() {
        let rows = || {
            vec![
                row("good", 6, 4..6),
                row("cut", 4, 4..4),
                row("first only", 3, 0..1),
            ]
        };
        let dataset = Dataset::new(rows(), 100, 0.7).expect("two of three are below 70%");
        let expected = ["cut", "first only"].map(|id| (id.to_owned(), Refusal::NoTargetTokens));
        assert_eq!(dataset.refused(), expected);
        let error = Dataset::new(rows(), 100, 0.5).expect_err("too many");
        assert!(
            error.to_string().contains("row cut: no_target_tokens"),
            "{error}"
        );
        let error = Dataset::new(vec![row("long", 9, 3..9)], 8, 0.0).expect_err("too long");
        assert!(error.to_string().contains("too_long"));
        assert_eq!(Dataset::new(vec![], 8, 1.0), Err(DatasetError::Empty));
    }

    #[test]
    fn a_weight_is_part_of_the_identity_and_must_count() {
        let weighed = |weight: f32| {
            let row = Row {
                weight,
                ..row("a", 4, 1..4)
            };
            Dataset::new(vec![row], 8, 0.0)
        };
        let hash = |weight: f32| weighed(weight).expect("counts").hash();
        assert_ne!(hash(1.0), hash(2.0));
        for weight in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let refused = Err(DatasetError::Weight { id: "a".into() });
            assert_eq!(weighed(weight), refused);
        }
    }

    #[test]
    fn rows_held_out_are_not_learnt_from_and_change_the_identity() {
        let rows = || (0..4).map(|i| row(&i.to_string(), 4, 1..4)).collect();
        let dataset = || Dataset::new(rows(), 100, 0.0).expect("dataset");
        let parted = dataset().hold_out(|row| row.id == "2").expect("three left");
        let names = |rows: &[Row]| rows.iter().map(|r| r.id.clone()).collect::<Vec<_>>();
        assert_eq!(names(parted.rows()), ["0", "1", "3"]);
        assert_eq!(names(parted.validation()), ["2"]);
        assert_ne!(parted.hash(), dataset().hash());
        let other = dataset().hold_out(|row| row.id == "3").expect("three left");
        assert_ne!(parted.hash(), other.hash());
        assert_eq!(dataset().hold_out(|_| true), Err(DatasetError::Empty));
    }

    #[test]
    fn rows_in_which_no_end_of_a_turn_counts_are_refused_together() {
        // Tokens are their own places.
        let dataset = || {
            let rows = vec![row("a", 6, 3..5), row("b", 9, 6..9)];
            Dataset::new(rows, 100, 0.0).expect("dataset")
        };
        for end in [3, 8] {
            assert_eq!(dataset().check_ends(&[99, end]), Ok(()));
        }
        for end in [2, 5, 99] {
            assert_eq!(dataset().check_ends(&[end]), Err(DatasetError::NoEnd));
        }
        // What is only validated on teaches nothing.
        let parted = dataset().hold_out(|row| row.id == "b").expect("one left");
        assert_eq!(parted.check_ends(&[8]), Err(DatasetError::NoEnd));
        // Nothing predicts the first token.
        let first = Dataset::new(vec![row("a", 4, 0..3)], 100, 0.0).expect("dataset");
        assert_eq!(first.check_ends(&[0]), Err(DatasetError::NoEnd));
    }

    #[test]
    fn every_row_comes_once_an_epoch_in_a_seeded_order() {
        let rows: Vec<Row> = (0..10).map(|i| row(&i.to_string(), 4, 1..4)).collect();
        let dataset = Dataset::new(rows, 100, 0.0).expect("dataset");
        let order = dataset.order(4, 3, 9);
        assert_eq!(order.len(), 9);
        for epoch in order.chunks(3) {
            let mut seen: Vec<usize> = epoch.concat();
            seen.sort_unstable();
            assert_eq!(seen, (0..10).collect::<Vec<_>>());
        }
        assert_ne!(order[..3], order[3..6]);
        assert_eq!(order, dataset.order(4, 3, 9));
        assert_ne!(order, dataset.order(4, 3, 10));
    }

    /// Forty rows; `group` names what each shares with others.
    fn grouped(group: impl Fn(usize) -> Option<String>) -> Dataset {
        let rows = (0..40).map(|index| Row {
            group: group(index),
            ..row(&index.to_string(), 4, 1..4)
        });
        Dataset::new(rows.collect(), 100, 0.0).expect("dataset")
    }

    #[test]
    fn rows_of_a_group_come_one_after_the_other_and_each_once_an_epoch() {
        // Some stand alone; the others are spread as passes of sampling leave them.
        let dataset = grouped(|index| (index % 5 != 0).then(|| format!("problem {}", index % 12)));
        for seed in 0..20 {
            let order = dataset.order(4, 3, seed);
            assert_eq!(order.len(), 30);
            for epoch in order.chunks(10) {
                let served = epoch.concat();
                let mut seen = served.clone();
                seen.sort_unstable();
                assert_eq!(seen, (0..40).collect::<Vec<_>>());
                let groups = served.iter().map(|index| &dataset.rows()[*index].group);
                let mut stretches: Vec<&Option<String>> = groups.collect();
                stretches.dedup();
                stretches.retain(|group| group.is_some());
                let distinct: BTreeSet<_> = stretches.iter().collect();
                assert_eq!(stretches.len(), distinct.len(), "{stretches:?}");
            }
            assert_ne!(order[..10], order[10..20]);
            assert_eq!(order, dataset.order(4, 3, seed));
            assert_ne!(order, dataset.order(4, 3, seed + 1));
        }
    }

    #[test]
    fn rows_held_out_are_served_by_groups_too() {
        let parted = |group: fn(usize) -> Option<String>| {
            let aside = |row: &Row| row.id.len() == 1;
            grouped(group).hold_out(aside).expect("thirty left")
        };
        let dataset = parted(|index| (index != 4).then(|| format!("problem {}", index % 3)));
        let served = dataset.validation_batches(4);
        let lengths: Vec<usize> = served.iter().map(Vec::len).collect();
        assert_eq!(lengths, [4, 4, 2]);
        let names: Vec<&str> = served.iter().flatten().map(|row| row.id.as_str()).collect();
        assert_eq!(names, ["0", "3", "6", "9", "1", "7", "2", "5", "8", "4"]);
        // What is validated on has the same name however it is served.
        assert_eq!(dataset.hash(), parted(|_| None).hash());
    }

    /// Checkpoints of earlier versions were written in this order.
    #[test]
    fn where_every_row_stands_alone_the_order_is_a_plain_permutation() {
        let mut expected = Vec::new();
        for epoch in 0..3 {
            let mut random = ChaCha8Rng::seed_from_u64(9);
            random.set_stream(epoch);
            let _: u64 = random.random();
            let mut indices: Vec<usize> = (0..40).collect();
            indices.shuffle(&mut random);
            expected.extend(indices.chunks(4).map(<[usize]>::to_vec));
        }
        assert_eq!(grouped(|_| None).order(4, 3, 9), expected);
        let alone = grouped(|index| Some(index.to_string()));
        assert_eq!(alone.order(4, 3, 9), expected);
        assert_ne!(
            grouped(|index| Some((index / 2).to_string())).order(4, 3, 9),
            expected
        );
    }
}
