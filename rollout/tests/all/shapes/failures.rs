//! Errors, and what is no reply.

use super::Expected::*;
use super::{Shape, choice};
use crate::server::{Reply, ok, status};

pub(super) fn passing() -> Vec<Shape> {
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
            "a choice that the server broke off",
            ok(&choice(
                r#"{"content":"The answer is 7."}"#,
                r#""insufficient_system_resource""#,
            )),
            AskedAgain,
        ),
        (
            "a choice that the network broke off",
            ok(&choice(
                r#"{"content":"The answer is 7."}"#,
                r#""network_error""#,
            )),
            AskedAgain,
        ),
        (
            "events under another type that end early",
            ok("data: {\"choices\":[{\"delta\":{\"content\":\"The answer is 7.\"}}]}\n\n"),
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

pub(super) fn lasting() -> Vec<Shape> {
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
