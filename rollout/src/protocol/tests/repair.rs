//! Calls that are almost right.

use super::*;

#[test]
fn repair_mends_without_losing_anything() {
    for (reply, code) in [
        (
            r#"{"name": "python", "arguments": {"code": "a ,] b",},}"#,
            "a ,] b",
        ),
        (
            "{'name': 'python', 'arguments': {'code': 'print(\"x\")'}}",
            "print(\"x\")",
        ),
        (
            "{\"name\": \"python\", \"arguments\": {\"code\": \"a\nb\"}}",
            "a\nb",
        ),
        (
            r#"{"name": "python", "arguments": {"code": "print("hi")"}}"#,
            "print(\"hi\")",
        ),
        (r#"{"name": "python", "arguments": {"code": "1"}"#, "1"),
        (r#"{{"name": "python", "arguments": {"code": "1"}}}"#, "1"),
        (
            r#"{"name": "python", "arguments": {"code": "1", "lines": \n[1, 2]\n\n}}"#,
            "1",
        ),
        (r#"{"name": "python", "parameters": {"code": "1"}}"#, "1"),
        (
            r#"{"name": "python", "arguments": {"code": "1", "x": None,}}"#,
            "1",
        ),
    ] {
        assert_eq!(
            program(reply, Json, REPAIR).map(|p| p.0).as_deref(),
            Some(code),
            "{reply}"
        );
        let call = read(reply, Json, REPAIR).call.expect("call");
        assert!(call.is_repaired && reply[call.end..].is_empty(), "{reply}");
    }
    // What SmolLM2 does with nearly every program that ends in a parenthesis.
    for (reply, code) in [
        (
            r#"{"name": "python", "arguments": {"code": "print(22 // 7")}}"#,
            "print(22 // 7)",
        ),
        (
            r#"{"name": "python", "arguments": {"code": "print((2 + 3) * (4 - 1"))}}}"#,
            "print((2 + 3) * (4 - 1))",
        ),
        (
            r#"{"name": "python", "arguments": {"code": "print(2 * 79)}}}"#,
            "print(2 * 79)",
        ),
        (
            r#"{"name": "python", "arguments": {"code": "print(sum([1, 2"]))}}"#,
            "print(sum([1, 2]))",
        ),
        (
            r#"{"name": "python", "arguments": {"code": "print(3 + 4))}}"#,
            "print(3 + 4)",
        ),
        (
            r#"{"name": "python", "arguments": {"code": "print({1: 2}[1])}}"#,
            "print({1: 2}[1])",
        ),
        (
            "{\"name\": \"python\", \"arguments\": {\"code\": \"print(2 * 79)}}\nOutput: 158",
            "print(2 * 79)",
        ),
    ] {
        assert_eq!(
            program(reply, Json, REPAIR).map(|p| p.0).as_deref(),
            Some(code),
            "{reply}"
        );
    }
    // What was cut is never half applied, and sound JSON isn't called repaired.
    for reply in [
        r#"{"name": "python", "arguments": {"code": "print(1"#,
        r#"{"name": "pyth"#,
    ] {
        assert!(read(reply, Json, REPAIR).call.is_none(), "{reply}");
    }
    let sound = r#"{"name": "python", "arguments": {"code": "1"}}"#;
    assert!(!read(sound, Json, REPAIR).call.expect("call").is_repaired);
    // Nesting has a bound.
    assert!(read(&"{'a':".repeat(5000), Json, REPAIR).call.is_none());
}

#[test]
fn calls_in_the_words_of_other_interfaces_are_repaired_or_told() {
    for reply in [
        r#"{"name": "python", "parameters": {"code": "1"}}"#,
        r#"{"name": "python", "args": {"code": "1"}}"#,
        r#"{"name": "python", "input": {"code": "1"}}"#,
        r#"{"tool": "python", "arguments": {"code": "1"}}"#,
        r#"{"tool_name": "python", "tool_input": {"code": "1"}}"#,
        r#"{"action": "python", "action_input": {"code": "1"}}"#,
        r#"{"function": "python", "arguments": "{\"code\": \"1\"}"}"#,
        r#"{"recipient_name": "python", "parameters": {"code": "1"}}"#,
        r#"{"type": "function", "function": {"name": "python", "arguments": "{\"code\": \"1\"}"}}"#,
        r#"{"function": {"name": "python", "parameters": {"code": "1"}}}"#,
        r#"{"tool_calls": [{"name": "python", "arguments": {"code": "1"}}]}"#,
        r#"{"tool_calls": [{"id": "c", "type": "function", "function": {"name": "python", "arguments": {"code": "1"}}}]}"#,
        r#"{"name": "python", "code": "1"}"#,
        r#"{"tool": "python", "code": "1"}"#,
    ] {
        for (format, reply) in [
            (Json, format!("Now: {reply}")),
            (Xml, format!("<tool_call>{reply}</tool_call>")),
        ] {
            assert_eq!(program(&reply, format, REPAIR), is("1", ""), "{reply}");
            assert!(read(&reply, format, REPAIR).call.expect("call").is_repaired);
            let strict = read(&reply, format, STRICT);
            assert!(
                strict.call.is_none() && strict.problem.is_some(),
                "{reply}: {strict:?}"
            );
        }
    }
    // Broken besides.
    let broken = r#"{"tool": "python", "args": {"code": "print("a")"}}"#;
    assert_eq!(program(broken, Json, REPAIR), is("print(\"a\")", ""));
    assert!(read(broken, Json, STRICT).problem.is_some());
    // What names no tool is about something else.
    for other in [
        r#"{"name": "Ann", "input": {"x": 1}}"#,
        r#"{"function": {"name": "f", "degree": 2}}"#,
        r#"{"tool": "hammer", "args": {}}"#,
        r#"{"action": "python or not", "x": 1}"#,
        r#"{"input": {"name": "python"}}"#,
    ] {
        for leniency in [STRICT, REPAIR] {
            let parsed = read(other, Json, leniency);
            assert_eq!((parsed.call, parsed.problem), (None, None), "{other}");
        }
    }
}

#[test]
fn every_way_to_copy_a_template_too_literally_is_repaired() {
    for reply in [
        r#"{{"name": "python", "arguments": {{"code": "1"}}}}"#,
        r#"{{"name": "python", "arguments": {"code": "1"}}}"#,
        r#"{"name": "python", "arguments": {{"code": "1"}}}"#,
        r#"{\n"name": "python",\n"arguments": {\n\t"code": "1"\n}\n}"#,
        r#"{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}"#,
        "{'name': 'python', 'arguments': {'code': '1'}}",
    ] {
        for (format, reply) in [
            (Json, format!("Now:\n{reply}")),
            (Xml, format!("<tool_call>\n{reply}\n</tool_call>")),
            (Xml, format!("<tool_call>\\n{reply}\\n</tool_call>")),
        ] {
            assert_eq!(
                program(&reply, format, REPAIR).map(|p| p.0).as_deref(),
                Some("1"),
                "{reply}"
            );
            assert!(read(&reply, format, REPAIR).call.expect("call").is_repaired);
            let strict = read(&reply, format, STRICT);
            assert!(
                strict.call.is_none() && strict.problem.is_some(),
                "{reply}: {strict:?}"
            );
        }
    }
    // Quotes that the program has of its own.
    let reply = r#"{\"name\": \"python\", \"arguments\": {\"code\": \"print(\\\"a\\\")\"}} so"#;
    assert_eq!(program(reply, Json, REPAIR), is("print(\"a\")", " so"));
    let reply = r#"{'name': 'python', 'arguments': {'code': 'print("\ud83d\ude00")'}}"#;
    assert_eq!(program(reply, Json, REPAIR), is("print(\"😀\")", ""));
}

#[test]
fn arguments_of_native_calls_are_an_object_or_an_error() {
    let strict = |value: Value| read_arguments(&value, STRICT);
    let code = Map::from_iter([("code".to_owned(), json!("1"))]);
    for value in [
        json!({"code": "1"}),
        json!("{\"code\": \"1\"}"),
        json!(" {\"code\":\"1\"}\n"),
    ] {
        let read = strict(value).expect("arguments");
        assert_eq!((&read.arguments, read.is_repaired), (&code, false));
    }
    for value in [
        json!(1),
        json!([]),
        json!(true),
        Value::Null,
        json!(""),
        json!("{"),
        json!("[]"),
        json!("\"{}\""),
        json!("{\"code\": \"1\", \"code\": \"2\"}"),
        json!("{\"code\": \"1\"} {}"),
    ] {
        assert!(strict(value.clone()).is_err(), "{value}");
        let kept = unreadable_arguments(&value);
        assert!(
            serde_json::to_string(&kept)
                .expect("JSON")
                .starts_with("{\"unreadable\":")
        );
    }
    let mended = read_arguments(&json!("{'code': '1',}"), REPAIR).expect("arguments");
    assert_eq!((&mended.arguments, mended.is_repaired), (&code, true));
    assert!(read_arguments(&json!("{\"code\": \"pri"), REPAIR).is_err());
}
