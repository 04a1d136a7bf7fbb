//! Replies that come in one piece: whole, with reasoning, cut.

use super::Expected::*;
use super::{ANSWER, Shape, choice, said};
use crate::server::ok;

pub(super) fn whole() -> Vec<Shape> {
    vec![
        (
            "OpenAI",
            ok(
                r#"{"id":"chatcmpl-B9","object":"chat.completion","created":1741569952,"model":"gpt-4.1","choices":[{"index":0,"message":{"role":"assistant","content":"The answer is 7.","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}},"service_tier":"default","system_fingerprint":"fp_1"}"#,
            ),
            Says(ANSWER),
        ),
        (
            "vLLM",
            ok(
                r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","reasoning_content":null,"content":"The answer is 7.","tool_calls":[]},"logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":5,"total_tokens":11,"completion_tokens":6,"prompt_tokens_details":null},"prompt_logprobs":null,"kv_transfer_params":null}"#,
            ),
            Says(ANSWER),
        ),
        (
            "vLLM at a stop token's id",
            ok(
                r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"The answer is 7."},"finish_reason":"stop","stop_reason":128009}],"usage":{"prompt_tokens":5,"completion_tokens":6}}"#,
            ),
            Says(ANSWER),
        ),
        (
            "vLLM at a stop text",
            ok(
                r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"The answer is 7."},"finish_reason":"stop","stop_reason":"Output:"}]}"#,
            ),
            Says(ANSWER),
        ),
        (
            "SGLang",
            ok(
                r#"{"id":"a","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"The answer is 7.","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":"stop","matched_stop":151645}],"usage":{"prompt_tokens":5,"total_tokens":11,"completion_tokens":6,"prompt_tokens_details":null,"reasoning_tokens":0},"metadata":{"weight_version":"default"}}"#,
            ),
            Says(ANSWER),
        ),
        (
            "llama.cpp",
            ok(
                r#"{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"The answer is 7."}}],"created":1,"model":"m","system_fingerprint":"b5000","object":"chat.completion","usage":{"completion_tokens":6,"prompt_tokens":5,"total_tokens":11},"id":"chatcmpl-2","timings":{"prompt_n":5,"predicted_n":6}}"#,
            ),
            Says(ANSWER),
        ),
        (
            "Ollama",
            ok(
                r#"{"id":"chatcmpl-3","object":"chat.completion","created":1,"model":"m","system_fingerprint":"fp_ollama","choices":[{"index":0,"message":{"role":"assistant","content":"The answer is 7."},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":6,"total_tokens":11}}"#,
            ),
            Says(ANSWER),
        ),
        ("TGI's eos_token", said(r#""eos_token""#), Says(ANSWER)),
        ("eos", said(r#""eos""#), Says(ANSWER)),
        ("an empty reason", said(r#""""#), Says(ANSWER)),
        ("no reason", said("null"), Says(ANSWER)),
        ("abort", said(r#""abort""#), Says(ANSWER)),
        ("a reason nobody knows", said(r#""because""#), Says(ANSWER)),
        ("a reason of another type", said("3"), Says(ANSWER)),
        (
            "nothing but the choice",
            ok(r#"{"choices":[{"message":{"content":"The answer is 7."}}]}"#),
            Says(ANSWER),
        ),
        (
            "usage null",
            ok(
                r#"{"choices":[{"message":{"content":"The answer is 7."},"finish_reason":"stop"}],"usage":null,"error":null}"#,
            ),
            Says(ANSWER),
        ),
        (
            "usage of zeros",
            ok(
                r#"{"choices":[{"message":{"content":"The answer is 7."},"finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":0}}"#,
            ),
            Says(ANSWER),
        ),
        (
            "several choices in another order",
            ok(
                r#"{"choices":[{"index":1,"message":{"content":"No."},"finish_reason":"stop"},{"index":0,"message":{"content":"The answer is 7."},"finish_reason":"stop"}]}"#,
            ),
            Says(ANSWER),
        ),
        (
            "content in parts",
            ok(&choice(
                r#"{"content":[{"type":"text","text":"The answer "},{"type":"text","text":"is 7."}]}"#,
                r#""stop""#,
            )),
            Says(ANSWER),
        ),
        (
            "content a list of texts",
            ok(&choice(
                r#"{"content":["The answer ","is 7."]}"#,
                r#""stop""#,
            )),
            Says(ANSWER),
        ),
        ("a turn's end", said(r#""end_turn""#), Says(ANSWER)),
        ("a stop sequence", said(r#""stop_sequence""#), Says(ANSWER)),
        (
            "events under another type",
            ok(
                "data: {\"choices\":[{\"delta\":{\"content\":\"The answer is 7.\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
            ),
            Says(ANSWER),
        ),
        (
            "a refusal of the model's own",
            ok(&choice(
                r#"{"content":null,"refusal":"I can't help with that."}"#,
                r#""stop""#,
            )),
            Says("I can't help with that."),
        ),
        (
            "content null and nothing else",
            ok(&choice(r#"{"content":null}"#, r#""stop""#)),
            Says(""),
        ),
        (
            "no content",
            ok(&choice(r#"{"role":"assistant"}"#, r#""stop""#)),
            Says(""),
        ),
        (
            "blanks before the JSON",
            ok(
                "\n\n  {\"choices\":[{\"message\":{\"content\":\"The answer is 7.\"},\"finish_reason\":\"stop\"}]}\n",
            ),
            Says(ANSWER),
        ),
    ]
}

pub(super) fn reasoning() -> Vec<Shape> {
    vec![
        (
            "reasoning_content",
            ok(
                r#"{"choices":[{"message":{"content":"The answer is 7.","reasoning_content":"3 + 4."},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":26,"completion_tokens_details":{"reasoning_tokens":20}}}"#,
            ),
            Thinks("3 + 4.", ANSWER),
        ),
        (
            "reasoning",
            ok(&choice(
                r#"{"content":"The answer is 7.","reasoning":"3 + 4.","reasoning_details":[]}"#,
                r#""stop""#,
            )),
            Thinks("3 + 4.", ANSWER),
        ),
        (
            "reasoning as a part",
            ok(&choice(
                r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"3 + 4."}]},{"type":"text","text":"The answer is 7."}]}"#,
                r#""stop""#,
            )),
            Thinks("3 + 4.", ANSWER),
        ),
        (
            "reasoning as a list of texts",
            ok(&choice(
                r#"{"content":"The answer is 7.","reasoning_content":["3 ","+ 4."]}"#,
                r#""stop""#,
            )),
            Thinks("3 + 4.", ANSWER),
        ),
        (
            "reasoning in the text",
            ok(&choice(
                r#"{"content":"<think>The answer is 8.</think>The answer is 7."}"#,
                r#""stop""#,
            )),
            Says("<think>The answer is 8.</think>The answer is 7."),
        ),
        (
            "reasoning that the template opened",
            ok(&choice(
                r#"{"content":"The answer is 8.\n</think>\n\nThe answer is 7."}"#,
                r#""stop""#,
            )),
            Says("The answer is 8.\n</think>\n\nThe answer is 7."),
        ),
        (
            "nothing but reasoning up to the limit",
            ok(
                r#"{"choices":[{"message":{"role":"assistant","content":null,"reasoning_content":"The answer is 7."},"finish_reason":"length"}],"usage":{"completion_tokens":4096}}"#,
            ),
            CutInReasoning,
        ),
        (
            "reasoning in the text up to the limit",
            ok(&choice(
                r#"{"content":"<think>The answer is 7."}"#,
                r#""length""#,
            )),
            CutInReasoning,
        ),
    ]
}

pub(super) fn cut() -> Vec<Shape> {
    vec![
        ("length", said(r#""length""#), Cut),
        ("a hosted model's max_tokens", said(r#""max_tokens""#), Cut),
        ("MAX_TOKENS", said(r#""MAX_TOKENS""#), Cut),
        ("a content filter", said(r#""content_filter""#), Cut),
        ("LENGTH", said(r#""LENGTH""#), Cut),
        ("max_output_tokens", said(r#""max_output_tokens""#), Cut),
        ("max_new_tokens", said(r#""max_new_tokens""#), Cut),
        (
            "a context that is full",
            said(r#""model_context_window_exceeded""#),
            Cut,
        ),
        ("ERROR_LIMIT", said(r#""ERROR_LIMIT""#), Cut),
        (
            "repetition_truncation",
            said(r#""repetition_truncation""#),
            Cut,
        ),
        ("content_filtered", said(r#""content_filtered""#), Cut),
        ("RECITATION", said(r#""RECITATION""#), Cut),
        ("PROHIBITED_CONTENT", said(r#""PROHIBITED_CONTENT""#), Cut),
        (
            "guardrail_intervened",
            said(r#""guardrail_intervened""#),
            Cut,
        ),
        ("sensitive", said(r#""sensitive""#), Cut),
    ]
}
