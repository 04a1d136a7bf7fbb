//! Calls through the tool interface.

use super::Expected::*;
use super::{Shape, choice};
use crate::server::ok;

pub(super) fn all() -> Vec<Shape> {
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
            "a call without a list around it",
            ok(&choice(
                r#"{"content":null,"tool_calls":{"id":"c","type":"function","function":{"name":"python","arguments":"{\"code\":\"print(7)\"}"}}}"#,
                r#""tool_calls""#,
            )),
            Calls("print(7)"),
        ),
        (
            "a call that is null",
            ok(&choice(
                r#"{"content":null,"tool_calls":[null]}"#,
                r#""tool_calls""#,
            )),
            Miscalls,
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
