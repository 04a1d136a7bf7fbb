//! Choosing the next token from logits.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::kernels::rows::max_and_exp_sum;

/// How a request samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 takes the most likely token.
    pub temperature: f32,
    /// Keep the smallest set of tokens whose probability reaches this; 1 keeps all.
    pub top_p: f32,
    /// Keep this many of the most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep tokens at least this fraction as likely as the most likely one; 0 keeps all.
    pub min_p: f32,
}

impl Sampling {
    /// Always the most likely token.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
    };
}

/// A token and how likely the model finds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Its id.
    pub token: u32,
    /// Its log-probability under the model at temperature 1.
    pub logprob: f32,
}

/// Log-probability of a token under these logits, at temperature 1.
pub(crate) fn logprob(logits: &[f32], token: u32) -> f32 {
    let (max, sum) = max_and_exp_sum(logits, 1.0);
    logits[token as usize] - max - sum.ln()
}

/// The `count` most likely tokens under these logits, the most likely first; of equal ones the lower id.
pub(crate) fn top_logprobs(logits: &[f32], count: usize) -> Vec<TokenLogprob> {
    if count == 0 {
        return Vec::new();
    }
    let (max, sum) = max_and_exp_sum(logits, 1.0);
    let mut top: Vec<(u32, f32)> = Vec::with_capacity(count.min(logits.len()) + 1);
    for (token, logit) in (0_u32..).zip(logits) {
        let is_below = |last: &(u32, f32)| *logit <= last.1;
        if top.len() == count && top.last().is_some_and(is_below) {
            continue;
        }
        let place = top.partition_point(|earlier| earlier.1 >= *logit);
        top.insert(place, (token, *logit));
        top.truncate(count);
    }
    let finish = |(token, logit): (u32, f32)| TokenLogprob {
        token,
        logprob: logit - max - sum.ln(),
    };
    top.into_iter().map(finish).collect()
}

/// A request's own source of randomness: one draw a token, whatever else is in the batch.
#[derive(Debug)]
pub(crate) struct Sampler {
    sampling: Sampling,
    random: ChaCha8Rng,
}

impl Sampler {
    pub(crate) fn new(sampling: Sampling, seed: u64) -> Self {
        Self {
            sampling,
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Choose from a row of logits.
    pub(crate) fn sample(&mut self, logits: &[f32]) -> TokenLogprob {
        let Sampling {
            temperature,
            top_p,
            top_k,
            min_p,
        } = self.sampling;
        let (max, sum) = max_and_exp_sum(logits, 1.0);
        let index = if temperature <= 0.0 {
            logits.iter().position(|v| *v == max).unwrap_or(0)
        } else if top_p >= 1.0 && top_k == 0 && min_p <= 0.0 {
            let (_, total) = max_and_exp_sum(logits, 1.0 / temperature);
            let mut left = self.random.random::<f32>() * total;
            let mut chosen = None;
            for (index, logit) in logits.iter().enumerate() {
                let weight = ((logit - max) / temperature).exp();
                left -= weight;
                // A token that must not come has no weight.
                if left <= 0.0 && weight > 0.0 {
                    chosen = Some(index);
                    break;
                }
            }
            // Rounding may leave a crumb after the last token.
            chosen.unwrap_or_else(|| logits.iter().position(|v| *v == max).unwrap_or(0))
        } else {
            self.truncated(logits, max)
        };
        TokenLogprob {
            token: u32::try_from(index).unwrap_or(u32::MAX),
            logprob: logits[index] - max - sum.ln(),
        }
    }

    fn truncated(&mut self, logits: &[f32], max: f32) -> usize {
        let Sampling {
            temperature,
            top_p,
            top_k,
            min_p,
        } = self.sampling;
        let mut candidates: Vec<(usize, f32)> = logits
            .iter()
            .enumerate()
            .map(|(index, logit)| (index, ((logit - max) / temperature).exp()))
            // The most likely token's weight is 1.
            .filter(|(_, weight)| *weight >= min_p)
            .collect();
        // Ties by id, so that the order never depends on the sort.
        candidates.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        if top_k > 0 {
            candidates.truncate(top_k as usize);
        }
        let total: f32 = candidates.iter().map(|c| c.1).sum();
        let mut kept = 0.0;
        let mut count = 0;
        for (_, weight) in &candidates {
            kept += weight;
            count += 1;
            if kept >= top_p * total {
                break;
            }
        }
        let mut left = self.random.random::<f32>() * kept;
        for (index, weight) in &candidates[..count] {
            left -= weight;
            if left <= 0.0 && *weight > 0.0 {
                return *index;
            }
        }
        candidates[0].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frequencies(sampling: Sampling, logits: &[f32], draws: u32) -> Vec<f32> {
        let mut counts = vec![0u32; logits.len()];
        let mut sampler = Sampler::new(sampling, 7);
        for _ in 0..draws {
            counts[sampler.sample(logits).token as usize] += 1;
        }
        counts.iter().map(|c| *c as f32 / draws as f32).collect()
    }

    #[test]
    fn frequencies_follow_the_tempered_distribution() {
        let logits = [0.0, 1.0, 2.0, -1.0];
        for temperature in [0.5, 1.0, 2.0] {
            let sampling = Sampling {
                temperature,
                ..Sampling::GREEDY
            };
            let weights: Vec<f32> = logits.iter().map(|l| (l / temperature).exp()).collect();
            let total: f32 = weights.iter().sum();
            for (seen, weight) in frequencies(sampling, &logits, 20_000).iter().zip(&weights) {
                assert!(
                    (seen - weight / total).abs() < 0.015,
                    "{temperature} {seen}"
                );
            }
        }
    }

    #[test]
    fn truncation_keeps_the_head_of_the_distribution() {
        let logits = [0.0, 3.0, 2.0, -1.0];
        let seen = frequencies(
            Sampling {
                temperature: 1.0,
                top_k: 2,
                ..Sampling::GREEDY
            },
            &logits,
            2_000,
        );
        assert_eq!((seen[0], seen[3]), (0.0, 0.0));
        let seen = frequencies(
            Sampling {
                temperature: 1.0,
                top_p: 0.5,
                ..Sampling::GREEDY
            },
            &logits,
            500,
        );
        assert_eq!(seen[1], 1.0);
        let seen = frequencies(
            Sampling {
                temperature: 1.0,
                min_p: 0.3,
                ..Sampling::GREEDY
            },
            &logits,
            2_000,
        );
        assert_eq!((seen[0], seen[3]), (0.0, 0.0));
        assert!(seen[2] > 0.2, "e^-1 of the most likely is above 0.3");
    }

    #[test]
    fn temperature_zero_takes_the_first_maximum_and_reports_its_log_probability() {
        let sampled = Sampler::new(Sampling::GREEDY, 0).sample(&[1.0, 2.0, 2.0]);
        assert_eq!(sampled.token, 1);
        let expected = (2.0f32.exp() / (1.0f32.exp() + 2.0 * 2.0f32.exp())).ln();
        assert!((sampled.logprob - expected).abs() < 1e-5);
    }

    #[test]
    fn the_most_likely_tokens_come_in_order_and_ties_by_id() {
        let logits = [1.0, 3.0, 2.0, 3.0, -1.0];
        let ids = |count| -> Vec<u32> {
            let top = top_logprobs(&logits, count);
            for one in &top {
                assert_eq!(one.logprob, logprob(&logits, one.token));
            }
            top.iter().map(|one| one.token).collect()
        };
        assert!(ids(0).is_empty());
        assert_eq!(ids(1), [1]);
        assert_eq!(ids(3), [1, 3, 2]);
        assert_eq!(ids(20), [1, 3, 2, 0, 4]);
        let greedy = Sampler::new(Sampling::GREEDY, 0).sample(&logits);
        assert_eq!(top_logprobs(&logits, 1), [greedy]);
    }
}
