//! Fields of requests and messages that this server has no meaning for: those on which no reply depends
//! are read over, every other one is refused unless its value asks for nothing.

use serde_json::{Map, Value};

use super::refusal::Refusal;
use crate::chat_rows::says_nothing;

/// Whose request it is, what is kept of it, how soon and how cheaply it is answered; and settings of
/// samplers that [`asks_for_nothing`] makes sure are off.
const HARMLESS: [&str; 24] = [
    "cache_prompt",
    "dry_allowed_length",
    "dry_base",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "dynatemp_exponent",
    "id_slot",
    "metadata",
    "mirostat_eta",
    "mirostat_tau",
    "n_keep",
    "prediction",
    "priority",
    "prompt_cache_key",
    "prompt_cache_retention",
    "repeat_last_n",
    "request_id",
    "return_progress",
    "safety_identifier",
    "service_tier",
    "store",
    "timings_per_token",
    "user",
    "xtc_threshold",
];

/// Fields of a message on which no prompt depends: what servers add to their replies.
const HARMLESS_IN_MESSAGES: [&str; 3] = ["annotations", "index", "role"];

/// Checks the fields of a request that it is not read for.
///
/// # Errors
/// Names the first one that can't be honoured.
pub(super) fn check(others: &Map<String, Value>) -> Result<(), Refusal> {
    for (name, value) in others {
        if !HARMLESS.contains(&name.as_str()) && !asks_for_nothing(name, value) {
            return Err(Refusal::invalid(name, reason(name)));
        }
    }
    Ok(())
}

/// Checks what is left of a field that is an object. Nothing in it is read over by its name.
///
/// # Errors
/// Names the first one that can't be honoured.
pub(super) fn check_part(field: &str, others: &Map<String, Value>) -> Result<(), Refusal> {
    let mut wrong = others
        .iter()
        .filter(|(name, value)| !asks_for_nothing(name, value));
    match wrong.next() {
        None => Ok(()),
        Some((name, _)) => Err(Refusal::invalid(&format!("{field}.{name}"), reason(name))),
    }
}

/// Checks what is left of a message.
///
/// # Errors
/// Says which field can't be honoured.
pub(super) fn check_message(rest: &Map<String, Value>) -> Result<(), String> {
    let mut wrong = rest.iter().filter(|(name, value)| {
        !HARMLESS_IN_MESSAGES.contains(&name.as_str()) && !says_nothing(value)
    });
    match wrong.next() {
        None => Ok(()),
        Some((name, _)) => Err(format!("{name} is not supported")),
    }
}

fn reason(name: &str) -> &'static str {
    match name {
        "grammar" | "json_schema" | "structured_outputs" => {
            "it is not supported; response_format takes a JSON schema"
        }
        name if name.starts_with("guided_") => {
            "it is not supported; response_format takes a JSON schema"
        }
        "functions" | "function_call" => "it is not supported; use tools and tool_choice",
        "reasoning_effort" | "enable_thinking" | "thinking" => {
            "it is not supported; chat_template_kwargs takes what the model's template knows"
        }
        _ => "it is not supported, and nothing that may change a reply is read over",
    }
}

/// Whether a field has the value under which replies are what they are without it. Names are those of
/// OpenAI's API, vLLM and llama.cpp. An empty object is no such value: `web_search_options: {}` asks for
/// a search, and `guided_json: {}` for JSON.
fn asks_for_nothing(name: &str, value: &Value) -> bool {
    let is = |number: f64| value.as_f64() == Some(number);
    says_nothing(value) && !value.is_object()
        || match name {
            "best_of" | "length_penalty" | "repeat_penalty" | "repetition_penalty" | "tfs_z"
            | "typical_p" => is(1.0),
            "dry_multiplier" | "dynatemp_range" | "min_keep" | "min_tokens" | "mirostat"
            | "n_probs" | "prompt_logprobs" | "top_a" | "xtc_probability" => is(0.0),
            "n_predict" | "top_n_sigma" => is(-1.0),
            "add_special_tokens"
            | "continue_final_message"
            | "continuous_usage_stats"
            | "early_stopping"
            | "echo"
            | "include_obfuscation"
            | "include_stop_str_in_output"
            | "post_sampling_probs"
            | "return_tokens_as_token_ids"
            | "use_beam_search" => *value == Value::Bool(false),
            "add_generation_prompt" | "skip_special_tokens" | "spaces_between_special_tokens" => {
                *value == Value::Bool(true)
            }
            "function_call" => value == "none" || value == "auto",
            "modalities" => value
                .as_array()
                .is_some_and(|all| all.iter().all(|one| one == "text")),
            "reasoning_effort" | "reasoning_format" => value == "none",
            "verbosity" => value == "medium",
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(field: &str, value: Value) -> Option<Refusal> {
        check(&Map::from_iter([(field.to_owned(), value)])).err()
    }

    #[test]
    fn what_may_change_a_reply_is_refused_by_name_and_the_rest_read_over() {
        for (field, value) in [
            ("repetition_penalty", json!(1.1)),
            ("repeat_penalty", json!(0)),
            ("guided_json", json!({"type": "object"})),
            ("guided_json", json!({})),
            ("web_search_options", json!({})),
            ("grammar", json!("root ::= \"a\"")),
            ("functions", json!([{"name": "f"}])),
            ("min_tokens", json!(5)),
            ("use_beam_search", json!(true)),
            ("skip_special_tokens", json!(false)),
            ("modalities", json!(["text", "audio"])),
            ("reasoning_effort", json!("high")),
            ("invented_tomorrow", json!(1)),
        ] {
            let refusal = refused(field, value).expect(field);
            assert_eq!(refusal.parameter.as_deref(), Some(field));
        }
        for (field, value) in [
            ("repetition_penalty", json!(1)),
            ("repetition_penalty", json!(1.0)),
            ("guided_json", Value::Null),
            ("functions", json!([])),
            ("grammar", json!("")),
            ("min_tokens", json!(0)),
            ("use_beam_search", json!(false)),
            ("skip_special_tokens", json!(true)),
            ("modalities", json!(["text"])),
            ("user", json!("me")),
            ("metadata", json!({"a": "b"})),
            ("store", json!(true)),
            ("service_tier", json!("auto")),
        ] {
            assert_eq!(refused(field, value), None, "{field}");
        }
    }

    #[test]
    fn a_message_may_say_what_servers_add_and_nothing_else() {
        let check = |message: Value| check_message(message.as_object().expect("object"));
        let added = json!({"role": "assistant", "refusal": null, "annotations": [{"a": 1}], "audio": {},
            "function_call": null});
        assert_eq!(check(added), Ok(()));
        let error = check(json!({"function_call": {"name": "f"}})).expect_err("refused");
        assert!(error.starts_with("function_call"), "{error}");
    }
}
