//! Replies that come as events.

use super::Expected::*;
use super::{ANSWER, Shape};
use crate::server::{Reply, events};

pub(super) fn all() -> Vec<Shape> {
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
            "stream with reasoning in parts",
            Reply::Events(events(&[
                r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"3 + 4."}]}]}}]}"#,
                r#"{"choices":[{"delta":{"content":[{"type":"text","text":"The answer"}]}}]}"#,
                rest,
                stop,
                "[DONE]",
            ])),
            Thinks("3 + 4.", ANSWER),
        ),
        (
            "stream of a whole message",
            Reply::Events(events(&[
                r#"{"choices":[{"delta":null,"message":{"content":"The answer is 7."},"finish_reason":"stop"}]}"#,
                "[DONE]",
            ])),
            Says(ANSWER),
        ),
        (
            "stream with a call without a list",
            Reply::Events(events(&[
                r#"{"choices":[{"delta":{"tool_calls":{"index":0,"id":"c","function":{"name":"python","arguments":"{\"code\": \"print(7)\"}"}}},"finish_reason":"tool_calls"}]}"#,
            ])),
            Calls("print(7)"),
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
            "stream that the server broke off",
            Reply::Events(events(&[
                begun,
                rest,
                r#"{"choices":[{"delta":{},"finish_reason":"insufficient_system_resource"}]}"#,
                "[DONE]",
            ])),
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
