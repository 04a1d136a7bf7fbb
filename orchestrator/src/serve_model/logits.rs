//! What a request asks about the logits that its reply is chosen from.

use std::collections::BTreeMap;

use serde_json::Value;

use super::refusal::Refusal;

/// Most of the likeliest tokens that are told of at one place.
const MOST_TOP: usize = 20;
/// Most that is added to a logit, or taken from it.
const MOST_BIAS: f64 = 100.0;

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

/// What is added to the logits of single tokens, by their ids. Whether the model has them is for the engine to
/// say.
pub(super) fn read_bias(bias: Option<&Value>) -> Result<BTreeMap<u32, f32>, Refusal> {
    let refuse = |reason: String| Refusal::invalid("logit_bias", reason);
    let bias = match bias {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(bias)) => bias,
        Some(_) => return Err(refuse("it is no object of token ids with numbers".into())),
    };
    let mut read = BTreeMap::new();
    for (token, value) in bias {
        let Ok(id) = token.parse::<u32>() else {
            return Err(refuse(format!("{token:?} is no token id")));
        };
        let value = value.as_f64().filter(|value| value.abs() <= MOST_BIAS);
        let Some(value) = value else {
            let range = format!("from {} to {MOST_BIAS}", -MOST_BIAS);
            return Err(refuse(format!("token {id}: it must be a number {range}")));
        };
        read.insert(id, value as f32);
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bias_is_read_by_token() {
        for nothing in [None, Some(Value::Null), Some(json!({}))] {
            assert_eq!(read_bias(nothing.as_ref()), Ok(BTreeMap::new()));
        }
        let bias = json!({"50256": -100, "7": 0.5, "0": 100});
        let expected = BTreeMap::from([(0, 100.0), (7, 0.5), (50256, -100.0)]);
        assert_eq!(read_bias(Some(&bias)), Ok(expected));
        for (wrong, reason) in [
            (
                json!({"7": 100.5}),
                "token 7: it must be a number from -100 to 100",
            ),
            (
                json!({"7": "1"}),
                "token 7: it must be a number from -100 to 100",
            ),
            (json!({"-7": 1}), "\"-7\" is no token id"),
            (json!({"seven": 1}), "\"seven\" is no token id"),
            (json!([[7, 1]]), "it is no object of token ids with numbers"),
            (json!(false), "it is no object of token ids with numbers"),
        ] {
            let refusal = read_bias(Some(&wrong)).expect_err("refused");
            assert_eq!(refusal.message, format!("logit_bias: {reason}"));
        }
    }

    #[test]
    fn likeliest_tokens_need_the_chosen_ones() {
        for (count, wants_logprobs, top) in [
            (None, false, Some(0)),
            (Some(0), false, Some(0)),
            (Some(1), false, None),
            (Some(1), true, Some(1)),
            (Some(20), true, Some(20)),
            (Some(21), true, None),
            (Some(-1), true, None),
        ] {
            assert_eq!(read_top(count, wants_logprobs).ok(), top, "{count:?}");
        }
    }
}
