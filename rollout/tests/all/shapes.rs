//! Replies in the forms that servers send them, each with what must come of it. Every text that a
//! reply has holds the right answer, so that grading what is no whole reply would be seen.

use crate::server::{Reply, events, ok, status};

/// What must come of a reply.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    /// It is a whole reply with this text.
    Says(&'static str),
    /// It is a whole reply with this text, which took this reasoning before it.
    Thinks(&'static str, &'static str),
    /// It was cut; its text is kept for the record.
    Cut,
    /// It ended within its reasoning.
    CutInReasoning,
    /// It calls the tool with this program.
    Calls(&'static str),
    /// It makes a call that can't be read.
    Miscalls,
    /// It is a failure that may pass: the server is asked again.
    AskedAgain,
    /// The conversation is too long, and no shorter reply would help.
    TooLong,
    /// The same request with this limit has room.
    Shortened(u32),
    /// The same request with the limit under its newer name is read.
    Renamed,
    /// Nothing will help.
    Refused,
    /// The server asks to wait for so many seconds, which is more than is allowed.
    Waits(u64),
}

use Expected::*;

/// The right answer.
pub(crate) const ANSWER: &str = "The answer is 7.";

/// A reply by its name, and what must come of it.
pub(crate) type Shape = (&'static str, Reply, Expected);

pub(crate) fn all() -> Vec<Shape> {
    let mut all = whole();
    all.extend(reasoning());
    all.extend(calls());
    all.extend(cut());
    all.extend(streams());
    all.extend(failures());
    all.extend(refusals());
    all
}

/// A reply of one choice, as small as it can be.
fn choice(message: &str, reason: &str) -> String {
    format!(r#"{{"choices": [{{"index": 0, "message": {message}, "finish_reason": {reason}}}]}}"#)
}

fn said(reason: &str) -> Reply {
    ok(&choice(
        r#"{"role": "assistant", "content": "The answer is 7."}"#,
        reason,
    ))
}

fn whole() -> Vec<Shape> {
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

fn reasoning() -> Vec<Shape> {
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

fn calls() -> Vec<Shape> {
    let call = |function: &str| {
        ok(&choice(
            &format!(
                r#"{{"content": null, "tool_calls": [{{"id": "c1", "type": "function", "function": {function}}}]}}"#
            ),
            r#""tool_calls""#,
        ))
    };
    vec![
        (
            "arguments as text",
            call(r#"{"name": "python", "arguments": "{\"code\": \"print(7)\"}"}"#),
            Calls("print(7)"),
        ),
        (
            "arguments as an object",
            call(r#"{"name": "python", "arguments": {"code": "print(7)"}}"#),
            Calls("print(7)"),
        ),
        (
            "a call with a reason to stop",
            ok(&choice(
                r#"{"content":"","tool_calls":[{"index":0,"id":"","type":"function","function":{"name":"python","arguments":"{\"code\":\"print(7)\"}"}}]}"#,
                r#""stop""#,
            )),
            Calls("print(7)"),
        ),
        (
            "a call beside text and reasoning",
            ok(&choice(
                r#"{"content":"I compute.","reasoning_content":"Hm.","tool_calls":[{"id":"c","type":"function","function":{"name":"python","arguments":"{\"code\":\"print(7)\"}"}}]}"#,
                r#""tool_calls""#,
            )),
            Calls("print(7)"),
        ),
        (
            "the older function_call",
            ok(&choice(
                r#"{"content":null,"function_call":{"name":"python","arguments":"{\"code\":\"print(7)\"}"}}"#,
                r#""function_call""#,
            )),
            Calls("print(7)"),
        ),
        (
            "a call without the function's own object",
            ok(&choice(
                r#"{"content":null,"tool_calls":[{"id":"c","name":"python","arguments":{"code":"print(7)"}}]}"#,
                r#""tool_calls""#,
            )),
            Calls("print(7)"),
        ),
        (
            "arguments null",
            call(r#"{"name": "python", "arguments": null}"#),
            Miscalls,
        ),
        (
            "arguments a number",
            call(r#"{"name": "python", "arguments": 7}"#),
            Miscalls,
        ),
        (
            "arguments a list",
            call(r#"{"name": "python", "arguments": ["print(7)"]}"#),
            Miscalls,
        ),
        (
            "arguments that break off",
            call(r#"{"name": "python", "arguments": "{\"code\": \"pri"}"#),
            Miscalls,
        ),
        (
            "arguments empty",
            call(r#"{"name": "python", "arguments": ""}"#),
            Miscalls,
        ),
        (
            "arguments a text of JSON",
            call(r#"{"name": "python", "arguments": "\"print(7)\""}"#),
            Miscalls,
        ),
        ("no arguments", call(r#"{"name": "python"}"#), Miscalls),
        ("no name", call(r#"{"arguments": "{}"}"#), Miscalls),
    ]
}

fn cut() -> Vec<Shape> {
    vec![
        ("length", said(r#""length""#), Cut),
        ("a hosted model's max_tokens", said(r#""max_tokens""#), Cut),
        ("MAX_TOKENS", said(r#""MAX_TOKENS""#), Cut),
        ("a content filter", said(r#""content_filter""#), Cut),
    ]
}

fn streams() -> Vec<Shape> {
    let begun = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"The answer"}}]}"#;
    let rest = r#"{"choices":[{"index":0,"delta":{"content":" is 7."}}]}"#;
    let stop = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let length = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#;
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6}}"#;
    let error = r#"{"error": {"message": "TimeoutError", "code": 504}}"#;
    let called = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"python","arguments":"{\"code\": "}}]}}]}"#;
    let argued = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"print(7)\"}"}}]},"finish_reason":"tool_calls"}]}"#;
    let thought = r#"{"choices":[{"index":0,"delta":{"reasoning_content":"3 + 4."}}]}"#;
    vec![
        (
            "stream",
            Reply::Events(events(&[begun, rest, stop, usage, "[DONE]"])),
            Says(ANSWER),
        ),
        (
            "stream without the last mark",
            Reply::Events(events(&[begun, rest, stop])),
            Says(ANSWER),
        ),
        (
            "stream without a reason",
            Reply::Events(events(&[begun, rest, "[DONE]"])),
            Says(ANSWER),
        ),
        (
            "stream with comments and carriage returns",
            Reply::Events(vec![
                ": OPENROUTER PROCESSING\r\n\r\n".into(),
                format!(
                    "data: {begun}\r\n\r\ndata: {rest}\r\n\r\ndata: {stop}\r\n\r\ndata: [DONE]\r\n\r\n"
                ),
            ]),
            Says(ANSWER),
        ),
        (
            "stream closed after the reason",
            Reply::CutEvents(events(&[begun, rest, stop])),
            Says(ANSWER),
        ),
        (
            "stream with reasoning",
            Reply::Events(events(&[thought, begun, rest, stop, "[DONE]"])),
            Thinks("3 + 4.", ANSWER),
        ),
        (
            "stream with a call",
            Reply::Events(events(&[called, argued, "[DONE]"])),
            Calls("print(7)"),
        ),
        (
            "stream cut by the limit",
            Reply::Events(events(&[begun, rest, length, "[DONE]"])),
            Cut,
        ),
        (
            "stream that is an error",
            Reply::Events(events(&[error, "[DONE]"])),
            AskedAgain,
        ),
        (
            "stream that becomes an error",
            Reply::Events(events(&[begun, rest, error, "[DONE]"])),
            AskedAgain,
        ),
        (
            "stream with a bare error",
            Reply::Events(vec![format!("data: {begun}\n\n"), format!("{error}\n")]),
            AskedAgain,
        ),
        (
            "stream that ends early",
            Reply::Events(events(&[begun, rest])),
            AskedAgain,
        ),
        (
            "stream that is cut",
            Reply::CutEvents(events(&[begun, rest])),
            AskedAgain,
        ),
        (
            "stream that is cut within an event",
            Reply::CutEvents(vec![format!("data: {begun}\n\ndata: {}", &rest[..20])]),
            AskedAgain,
        ),
        (
            "stream that hangs",
            Reply::HungEvents(events(&[begun, rest])),
            AskedAgain,
        ),
        ("stream of nothing", Reply::Events(Vec::new()), AskedAgain),
        (
            "stream of no choice",
            Reply::Events(events(&["[DONE]"])),
            AskedAgain,
        ),
        (
            "stream of no JSON",
            Reply::Events(events(&["{\"choices\": [{\"del"])),
            AskedAgain,
        ),
        (
            "stream that finds the prompt too long",
            Reply::Events(events(&[
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens.","type":"BadRequestError","code":400}}"#,
            ])),
            TooLong,
        ),
    ]
}

fn failures() -> Vec<Shape> {
    let limited = |headers| {
        Reply::Whole(429, headers, r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#.into())
    };
    vec![
        ("rate limit", limited(""), AskedAgain),
        (
            "rate limit, wait 0",
            limited("retry-after: 0\r\n"),
            AskedAgain,
        ),
        (
            "rate limit, wait 1",
            limited("retry-after: 1\r\n"),
            AskedAgain,
        ),
        (
            "rate limit, wait -3",
            limited("retry-after: -3\r\n"),
            AskedAgain,
        ),
        (
            "rate limit, wait 1.5",
            limited("retry-after: 1.5\r\n"),
            AskedAgain,
        ),
        (
            "rate limit, wait of 20 digits",
            limited("retry-after: 99999999999999999999\r\n"),
            AskedAgain,
        ),
        (
            "rate limit, wait of no length",
            limited("retry-after: \r\n"),
            AskedAgain,
        ),
        (
            "rate limit, wait 20 ms",
            limited("retry-after-ms: 20\r\n"),
            AskedAgain,
        ),
        (
            "rate limit until a date that is past",
            limited("retry-after: Wed, 21 Oct 2015 07:28:00 GMT\r\n"),
            AskedAgain,
        ),
        (
            "rate limit until a date by the server's clock",
            limited(
                "date: Wed, 21 Oct 2026 07:27:00 GMT\r\nretry-after: Wed, 21 Oct 2026 07:28:00 GMT\r\n",
            ),
            Waits(60),
        ),
        (
            "rate limit, wait an hour",
            limited("retry-after: 3600\r\n"),
            Waits(3600),
        ),
        (
            "overloaded",
            status(
                503,
                r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#,
            ),
            AskedAgain,
        ),
        (
            "overloaded, wait an hour",
            Reply::Whole(503, "retry-after: 3600\r\n", "{}".into()),
            Waits(3600),
        ),
        (
            "529",
            status(
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            ),
            AskedAgain,
        ),
        (
            "500",
            status(
                500,
                r#"{"object":"error","message":"Internal Server Error","type":"InternalServerError","param":null,"code":500}"#,
            ),
            AskedAgain,
        ),
        ("500 without a body", status(500, ""), AskedAgain),
        (
            "a proxy's page",
            status(
                502,
                "<html><head><title>502 Bad Gateway</title></head></html>",
            ),
            AskedAgain,
        ),
        (
            "a gateway that gave up",
            status(524, "error code: 524"),
            AskedAgain,
        ),
        ("408", status(408, "{}"), AskedAgain),
        (
            "an error after 200",
            ok(r#"{"error": {"message": "TimeoutError", "code": 504}}"#),
            AskedAgain,
        ),
        (
            "an error as text after 200",
            ok(r#"{"error": "CUDA out of memory"}"#),
            AskedAgain,
        ),
        (
            "an error in the choice",
            ok(
                r#"{"choices":[{"index":0,"message":{"content":"The answer is 7."},"finish_reason":"error","error":{"code":502,"message":"Provider failed"}}]}"#,
            ),
            AskedAgain,
        ),
        (
            "an old error after 200",
            ok(r#"{"object":"error","message":"Engine died","code":500}"#),
            AskedAgain,
        ),
        (
            "a page after 200",
            ok("<html>The answer is 7.</html>"),
            AskedAgain,
        ),
        (
            "half a JSON",
            ok(r#"{"choices":[{"message":{"content":"The answer is 7."}"#),
            AskedAgain,
        ),
        (
            "a body that is cut",
            Reply::Half(choice(r#"{"content":"The answer is 7."}"#, r#""stop""#)),
            AskedAgain,
        ),
        (
            "no choice",
            ok(r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":0}}"#),
            AskedAgain,
        ),
        ("choices null", ok(r#"{"choices":null}"#), AskedAgain),
        (
            "a choice without a message",
            ok(r#"{"choices":[{"text":"The answer is 7.","finish_reason":"stop"}]}"#),
            AskedAgain,
        ),
        (
            "a message null",
            ok(&choice("null", r#""stop""#)),
            AskedAgain,
        ),
        (
            "content a number",
            ok(&choice(r#"{"content": 7}"#, r#""stop""#)),
            AskedAgain,
        ),
        ("an empty body", ok(""), AskedAgain),
        ("null", ok("null"), AskedAgain),
        ("a connection closed at once", Reply::Closed, AskedAgain),
        ("a connection that hangs", Reply::Hung, AskedAgain),
    ]
}

fn refusals() -> Vec<Shape> {
    vec![
        (
            "a wrong key",
            status(
                401,
                r#"{"error":{"message":"Incorrect API key provided: sk-secret","type":"invalid_request_error","code":"invalid_api_key"}}"#,
            ),
            Refused,
        ),
        (
            "no credit",
            status(
                429,
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            ),
            Refused,
        ),
        (
            "402",
            status(402, r#"{"error":{"message":"Insufficient Balance"}}"#),
            Refused,
        ),
        (
            "403",
            status(403, r#"{"error":{"message":"Country not supported"}}"#),
            Refused,
        ),
        (
            "no such model",
            status(
                404,
                r#"{"object":"error","message":"The model `m` does not exist.","type":"NotFoundError","code":404}"#,
            ),
            Refused,
        ),
        (
            "a field that is wrong",
            status(
                422,
                r#"{"detail":[{"loc":["body","messages"],"msg":"field required"}]}"#,
            ),
            Refused,
        ),
        (
            "an error of the request after 200",
            ok(r#"{"error":{"message":"Invalid value","code":400}}"#),
            Refused,
        ),
        (
            "another place",
            Reply::Whole(307, "location: http://127.0.0.1:1/v1\r\n", String::new()),
            Refused,
        ),
        (
            "too long by one",
            status(
                400,
                r#"{"object":"error","message":"This model's maximum context length is 32768 tokens. However, you requested 0 output tokens and your prompt contains at least 32769 input tokens, for a total of at least 32769 tokens.","code":400}"#,
            ),
            TooLong,
        ),
        (
            "too long, by code",
            status(400, r#"{"error":{"code":"context_length_exceeded"}}"#),
            TooLong,
        ),
        (
            "too long, with status 500",
            status(
                500,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens."}}"#,
            ),
            TooLong,
        ),
        (
            "too long for llama.cpp",
            status(
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":3001,"n_ctx":1024}}"#,
            ),
            TooLong,
        ),
        (
            "too long with the reply",
            status(
                400,
                r#"{"error":{"message":"This model's maximum context length is 80 tokens. However, you requested 90 tokens (50 in the messages, 40 in the completion)."}}"#,
            ),
            Shortened(30),
        ),
        (
            "too long with the reply, in other words",
            status(
                400,
                r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 50 + 40 > 80, decrease input length or `max_tokens` and try again"}}"#,
            ),
            Shortened(30),
        ),
        (
            "a limit of another name",
            status(
                400,
                r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}"#,
            ),
            Renamed,
        ),
    ]
}
