//! What the gate has made of patches so far, by dimension.
//!
//! Each dimension has a Beta(1, 1) prior of acceptance, and decisions are its data. They fade: what
//! failed long ago failed with another harness and often with other weights, so a decision counts
//! half as much after [`HALF_LIFE`] further ones. A dimension that was given up comes back that way.

use std::collections::BTreeMap;

use harness::Dimension;
use serde::Serialize;

/// Decisions, in whatever dimension, after which one counts half.
pub const HALF_LIFE: f64 = 16.0;

/// All dimensions, in the order in which they are shown.
pub const DIMENSIONS: [Dimension; 5] = [
    Dimension::P,
    Dimension::T,
    Dimension::S,
    Dimension::Mid,
    Dimension::M,
];

/// One dimension's decisions, faded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Accepted patches.
    pub accepted: f64,
    /// Rejected patches.
    pub rejected: f64,
}

impl Score {
    /// Mean of the posterior of acceptance: 0.5 without decisions.
    pub fn trust(self) -> f64 {
        (self.accepted + 1.0) / (self.accepted + self.rejected + 2.0)
    }
}

/// Every dimension's score.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scoreboard(BTreeMap<Dimension, Score>);

impl Scoreboard {
    /// The scoreboard after `decisions`, oldest first: the dimension, and whether the patch was
    /// accepted.
    pub fn of(decisions: impl DoubleEndedIterator<Item = (Dimension, bool)>) -> Self {
        let mut board = Scoreboard::default();
        let mut weight = 1.0;
        for (dimension, is_accepted) in decisions.rev() {
            let score = board.0.entry(dimension).or_default();
            if is_accepted {
                score.accepted += weight;
            } else {
                score.rejected += weight;
            }
            weight *= 0.5f64.powf(1.0 / HALF_LIFE);
        }
        board
    }

    /// A dimension's score.
    pub fn score(&self, dimension: Dimension) -> Score {
        self.0.get(&dimension).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trust(decisions: &[(Dimension, bool)], dimension: Dimension) -> f64 {
        Scoreboard::of(decisions.iter().copied())
            .score(dimension)
            .trust()
    }

    #[test]
    fn decisions_move_their_own_dimension_alone() {
        let decisions = [(Dimension::P, true), (Dimension::Mid, false)];
        assert!(trust(&decisions, Dimension::P) > 0.6);
        assert!(trust(&decisions, Dimension::Mid) < 0.4);
        assert!((trust(&decisions, Dimension::M) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn what_is_long_ago_fades() {
        let mut decisions = vec![(Dimension::S, false); 5];
        let fresh = trust(&decisions, Dimension::S);
        // Sixteen decisions elsewhere halve what five rejections weigh.
        decisions.extend([(Dimension::P, false); 16]);
        let faded = Scoreboard::of(decisions.iter().copied()).score(Dimension::S);
        let first = Scoreboard::of(decisions[..5].iter().copied()).score(Dimension::S);
        assert!((faded.rejected - first.rejected / 2.0).abs() < 1e-9);
        assert!(fresh < faded.trust() && faded.trust() < 0.5);
        // The latest counts in full.
        let last = Scoreboard::of([(Dimension::T, true)].into_iter()).score(Dimension::T);
        assert!((last.accepted - 1.0).abs() < 1e-12);
    }
}
