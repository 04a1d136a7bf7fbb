//! What a server's error means: conversations that are too long, limits that other words fit.

/// A conversation that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overflow {
    /// Tokens that are left for a reply, if the prompt alone fits and the server gave the numbers.
    pub(super) room: Option<u32>,
}

/// How servers say that a conversation is too long.
const PHRASES: [&str; 20] = [
    "context_length_exceeded",
    "maximum context length",
    "context length exceeded",
    "exceeded context length",
    "exceed context limit",
    "exceeds the context",
    "exceeds context",
    "exceed_context_size",
    "exceeds the available context size",
    "longer than the model's context",
    "larger than the model's context",
    "maximum model length",
    "maximum number of tokens allowed",
    "prompt is too long",
    "input is too long",
    "`max_new_tokens` must be <=",
    "input tokens exceed the configured limit",
    "reduce the length of the messages",
    "prompt sequence length is greater than",
    "context the overflows",
];

/// Where servers write the size of the context; `#` is the number.
const LIMITS: [&str; 9] = [
    "maximum context length is #",
    "maximum context length of #",
    "context length is only #",
    "context limit: # + # > #",
    "`max_new_tokens` must be <= #",
    "available context size (#",
    "configured limit of #",
    "n_ctx\":#",
    "with # maximum context length",
];

/// Where they write the length of the prompt.
const PROMPTS: [&str; 9] = [
    "(# in the messages",
    "at least # input tokens",
    "request has # input tokens",
    ": # tokens from the input messages",
    "given: # `inputs` tokens",
    "context limit: #",
    "request (# tokens)",
    "n_prompt_tokens\":#",
    "prompt contains # tokens",
];

/// Whether an error says that the conversation is too long, in the words of the servers we know.
pub(super) fn overflow(text: &str) -> Option<Overflow> {
    let text = text.to_ascii_lowercase();
    // A limit of tokens a minute speaks of tokens too.
    if text.contains("rate_limit") || text.contains("rate limit") {
        return None;
    }
    if !PHRASES.iter().any(|phrase| text.contains(phrase)) {
        return None;
    }
    let number = |patterns: &[&str]| {
        patterns
            .iter()
            .find_map(|pattern| last_number(&text, pattern))
    };
    let room = match (number(&LIMITS), number(&PROMPTS)) {
        (Some(limit), Some(prompt)) => limit.checked_sub(prompt).filter(|room| *room > 0),
        _ => None,
    };
    Some(Overflow {
        room: room.and_then(|room| u32::try_from(room).ok()),
    })
}

/// Whether the server wants the reply's limit under its newer name.
pub(super) fn wants_max_completion_tokens(text: &str) -> bool {
    text.contains("max_completion_tokens")
        && text.contains("max_tokens")
        && text.contains("nsupported")
}

/// Whether no later request will do better, although the status says so.
pub(super) fn is_out_of_money(text: &str) -> bool {
    [
        "insufficient_quota",
        "billing_hard_limit",
        "insufficient credits",
        "Insufficient Balance",
    ]
    .iter()
    .any(|phrase| text.contains(phrase))
}

/// The number at the last `#` of a pattern that occurs in the text.
fn last_number(text: &str, pattern: &str) -> Option<u64> {
    let (first, _) = pattern.split_once('#')?;
    text.match_indices(first)
        .find_map(|(start, _)| matched(&text[start..], pattern))
}

fn matched(text: &str, pattern: &str) -> Option<u64> {
    let mut rest = text;
    let mut found = None;
    let mut parts = pattern.split('#');
    rest = rest.strip_prefix(parts.next()?)?;
    for part in parts {
        rest = rest.trim_start();
        let length = rest
            .find(|c: char| !c.is_ascii_digit() && c != ',')
            .unwrap_or(rest.len());
        let digits = rest[..length].trim_end_matches(',');
        found = Some(digits.replace(',', "").parse().ok()?);
        rest = rest[digits.len()..].strip_prefix(part)?;
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All that patterns are made of, and numbers between.
    fn pieces() -> impl Strategy<Value = String> {
        let words = PHRASES.iter().chain(&LIMITS).chain(&PROMPTS);
        let words: Vec<String> = words
            .flat_map(|pattern| pattern.split('#').map(str::to_owned))
            .collect();
        let piece = prop_oneof![
            proptest::sample::select(words),
            "[0-9,]{1,24}",
            "[ -~é]{0,6}",
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_error_is_understood_or_not(text in pieces()) {
            if let Some(Overflow { room: Some(room) }) = overflow(&text) {
                prop_assert!(room > 0);
            }
            wants_max_completion_tokens(&text);
            is_out_of_money(&text);
        }
    }

    #[test]
    fn no_error_takes_long() {
        for part in [
            "(",
            "(1",
            ": 1,",
            "n_ctx\":",
            "maximum context length is 1",
            "1,1",
            "é",
        ] {
            let text = format!("prompt is too long {}", part.repeat((1 << 20) / part.len()));
            let started = crate::clock::processor_time();
            overflow(&text);
            // Of a megabyte, without optimisation.
            let took = crate::clock::processor_time() - started;
            assert!(took.as_millis() < 500, "{part}: {took:?}");
        }
    }

    #[test]
    fn long_conversations_are_recognised_in_every_servers_words() {
        for (text, room) in [
            (
                "This model's maximum context length is 32768 tokens. However, you requested 0 output tokens and your prompt contains at least 32769 input tokens, for a total of at least 32769 tokens.",
                None,
            ),
            (
                "This model's maximum context length is 8192 tokens. However, you requested 11300 tokens (5300 in the messages, 6000 in the completion).",
                Some(2892),
            ),
            (
                "This model's maximum context length is 4,096 tokens. However, you requested 4,500 tokens (4,000 in the messages, 500 in the completion).",
                Some(96),
            ),
            ("{\"code\":\"context_length_exceeded\"}", None),
            (
                "input length and `max_tokens` exceed context limit: 91000 + 48000 > 128000, decrease input length or `max_tokens` and try again",
                Some(37_000),
            ),
            (
                "'max_tokens' or 'max_completion_tokens' is too large: 6000. This model's maximum context length is 8192 tokens and your request has 5300 input tokens (6000 > 8192 - 5300).",
                Some(2892),
            ),
            (
                "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 11300 tokens: 5300 tokens from the input messages and 6000 tokens for the completion.",
                Some(2892),
            ),
            (
                "The input (40000 tokens) is longer than the model's context length (32768 tokens).",
                None,
            ),
            (
                "{\"error\":{\"code\":400,\"message\":\"the request exceeds the available context size, try increasing it\",\"type\":\"exceed_context_size_error\",\"n_prompt_tokens\": 5300,\"n_ctx\": 4096}}",
                None,
            ),
            (
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 200 `max_new_tokens`",
                Some(96),
            ),
            (
                "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
                None,
            ),
            ("prompt is too long: 210000 tokens > 200000 maximum", None),
            (
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                None,
            ),
            ("Input is too long for requested model.", None),
            (
                "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.",
                None,
            ),
        ] {
            assert_eq!(overflow(text), Some(Overflow { room }), "{text}");
        }
        for other in [
            "rate limit exceeded",
            "Rate limit reached for gpt-4 in organization org on tokens per min (TPM): Limit 10000, Requested 12000. Reduce the length of the messages or completion.",
            "max_tokens is too large: 100000. This model supports at most 4096 completion tokens",
            "",
        ] {
            assert_eq!(overflow(other), None, "{other}");
        }
    }
}
