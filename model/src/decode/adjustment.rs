//! What a request adds to the model's logits: a bias of single tokens, and penalties of those that its reply has.

use std::collections::{BTreeMap, HashMap};

/// What is added to the model's logits before a token is chosen; by default nothing. A token of which the
/// reply has `count` gets `bias − count · frequency_penalty − presence_penalty`, and one that it doesn't
/// have its bias alone. The prompt doesn't count. This is the formula of OpenAI's API reference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adjustment {
    /// By token.
    pub bias: BTreeMap<u32, f32>,
    /// For each time that the reply has a token.
    pub frequency_penalty: f32,
    /// Once for each token that the reply has.
    pub presence_penalty: f32,
}

/// An adjustment, and the tokens of the reply that it is made for.
#[derive(Debug)]
pub(super) struct Adjuster {
    adjustment: Adjustment,
    /// How often the reply has a token. Empty without penalties.
    counts: HashMap<u32, u32>,
}

impl Adjuster {
    pub(super) fn new(adjustment: Adjustment) -> Self {
        Self {
            adjustment,
            counts: HashMap::new(),
        }
    }

    /// Whether the logits stay what they are.
    pub(super) fn is_idle(&self) -> bool {
        self.adjustment.bias.is_empty() && self.counts.is_empty()
    }

    /// Adjusts a row of logits, which has every token of the bias.
    pub(super) fn adjust(&self, logits: &mut [f32]) {
        let Adjustment {
            bias,
            frequency_penalty,
            presence_penalty,
        } = &self.adjustment;
        for (token, bias) in bias {
            logits[*token as usize] += bias;
        }
        // Each token's own logit alone: the order doesn't matter.
        for (token, count) in &self.counts {
            logits[*token as usize] -= *count as f32 * frequency_penalty + presence_penalty;
        }
    }

    /// Takes a token that the reply goes on with.
    pub(super) fn accept(&mut self, token: u32) {
        let Adjustment {
            frequency_penalty,
            presence_penalty,
            ..
        } = self.adjustment;
        if frequency_penalty != 0.0 || presence_penalty != 0.0 {
            *self.counts.entry(token).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sampler::{Sampler, Sampling};
    use super::*;

    const LOGITS: [f32; 4] = [1.0, 2.0, 3.0, 2.5];

    fn adjusted(adjustment: &Adjustment, reply: &[u32]) -> [f32; 4] {
        let mut adjuster = Adjuster::new(adjustment.clone());
        for token in reply {
            adjuster.accept(*token);
        }
        let mut logits = LOGITS;
        adjuster.adjust(&mut logits);
        assert!(!adjuster.is_idle() || logits == LOGITS);
        logits
    }

    #[test]
    fn by_default_nothing_changes_and_nothing_is_counted() {
        let mut adjuster = Adjuster::new(Adjustment::default());
        adjuster.accept(2);
        assert!(adjuster.is_idle());
        assert_eq!(adjusted(&Adjustment::default(), &[2, 2]), LOGITS);
    }

    #[test]
    fn a_bias_is_added_whatever_the_reply_has() {
        let adjustment = Adjustment {
            bias: BTreeMap::from([(0, 100.0), (2, -100.0)]),
            ..Adjustment::default()
        };
        for reply in [&[1][..], &[0, 2, 2]] {
            assert_eq!(adjusted(&adjustment, reply), [101.0, 2.0, -97.0, 2.5]);
        }
    }

    #[test]
    fn penalties_are_for_each_time_and_for_each_token() {
        let frequency = Adjustment {
            frequency_penalty: 0.5,
            ..Adjustment::default()
        };
        assert_eq!(adjusted(&frequency, &[]), LOGITS);
        assert_eq!(adjusted(&frequency, &[2, 1, 2]), [1.0, 1.5, 2.0, 2.5]);
        let presence = Adjustment {
            presence_penalty: 0.75,
            ..Adjustment::default()
        };
        assert_eq!(adjusted(&presence, &[2, 1, 2]), [1.0, 1.25, 2.25, 2.5]);
        let all = Adjustment {
            bias: BTreeMap::from([(1, 4.0)]),
            frequency_penalty: 0.5,
            presence_penalty: -0.75,
        };
        assert_eq!(adjusted(&all, &[2, 1, 2]), [1.0, 6.25, 2.75, 2.5]);
    }

    #[test]
    fn greedy_decoding_takes_the_largest_adjusted_logit() {
        let presence = Adjustment {
            presence_penalty: 2.0,
            ..Adjustment::default()
        };
        let next = |reply: &[u32]| {
            let mut sampler = Sampler::new(Sampling::GREEDY, 0);
            sampler.sample(&adjusted(&presence, reply)).token
        };
        assert_eq!(next(&[]), 2);
        assert_eq!(next(&[2]), 3);
        assert_eq!(next(&[2, 3]), 1);
        // All are penalised alike.
        assert_eq!(next(&[2, 3, 1, 0]), 2);
    }
}
