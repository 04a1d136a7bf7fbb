//! What a request asks about the logits that its reply is chosen from.

use super::refusal::Refusal;

/// Most of the likeliest tokens that are told of at one place.
const MOST_TOP: usize = 20;

/// How many of the likeliest tokens are told of at each place.
pub(super) fn read_top(count: Option<i64>, wants_logprobs: bool) -> Result<usize, Refusal> {
    let refuse = |reason: String| Refusal::invalid("top_logprobs", reason);
    let top = usize::try_from(count.unwrap_or(0)).ok();
    match top.filter(|top| *top <= MOST_TOP) {
        None => Err(refuse(format!("it must be from 0 to {MOST_TOP}"))),
        Some(1..) if !wants_logprobs => Err(refuse("it needs logprobs to be true".into())),
        Some(top) => Ok(top),
    }
}
