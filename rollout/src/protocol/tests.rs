//! Tests of reading and writing calls.

use harness::ToolLimits;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const STRICT: Leniency = Leniency {
    repair_json: false,
    fenced_code: false,
};
const REPAIR: Leniency = Leniency {
    repair_json: true,
    fenced_code: false,
};
use CallFormat::{Fenced, Json, Xml};

fn tools() -> Tools {
    let tool = Tool {
        description: "Runs Python.".into(),
        parameters: json!({"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}),
        backend: Backend::Python,
        state: harness::ToolState::default(),
        limits: ToolLimits::default(),
    };
    [(ToolName::new("python").expect("name"), tool)].into()
}

fn read(reply: &str, format: CallFormat, leniency: Leniency) -> Parsed {
    parse(reply, format, &tools(), leniency, true)
}

/// The program, and what is left after the call.
fn program(reply: &str, format: CallFormat, leniency: Leniency) -> Option<(String, &str)> {
    let call = read(reply, format, leniency).call?;
    let code = call.arguments.get("code")?.as_str()?.to_owned();
    Some((code, &reply[call.end..]))
}

fn is(code: &str, rest: &'static str) -> Option<(String, &'static str)> {
    Some((code.to_owned(), rest))
}

#[test]
fn json_calls_are_found_anywhere() {
    let call = r#"{"name": "python", "arguments": {"code": "print('{')"}}"#;
    assert_eq!(program(call, Json, STRICT), is("print('{')", ""));
    assert_eq!(
        program(&format!("Sure {{x}}: {call}"), Json, STRICT),
        is("print('{')", "")
    );
    let fenced = format!("I compute.\n```json\n{call}\n```\nOutput: 3");
    assert_eq!(
        program(&fenced, Json, STRICT).map(|p| p.1),
        Some("\nOutput: 3")
    );
    assert_eq!(read(&fenced, Json, STRICT).before, "I compute.");
    let text_form = r#"{"name": "python", "arguments": "{\"code\": \"1\"}"}"#;
    assert_eq!(program(text_form, Json, STRICT), is("1", ""));
    for other in [
        r#"{"name": "Ann", "age": 3}"#,
        "the set {1, 2}",
        "",
        "{",
        "}{",
    ] {
        let parsed = read(other, Json, STRICT);
        assert_eq!((parsed.call, parsed.problem), (None, None), "{other}");
    }
}

#[test]
fn strict_json_says_what_is_wrong() {
    for (reply, reason) in [
        (
            r#"{"name": "python", "arguments": {"code": "1",}}"#,
            "trailing comma",
        ),
        (
            r#"{{"name": "python", "arguments": {"code": "1"}}}"#,
            "key must be a string",
        ),
        (r#"{"name": "python", "arguments": {"code": "1"}"#, "EOF"),
        (
            r#"{"name": "python", "name": "x", "arguments": {}}"#,
            "name",
        ),
        (
            r#"{"name": "python", "code": "1"}"#,
            "`arguments` is missing",
        ),
        (r#"{"name": "python", "arguments": null}"#, "JSON object"),
        (r#"{"name": "python", "arguments": [1]}"#, "JSON object"),
        (
            r#"{"name": "python", "arguments": {"code": "'\frac'"}}"#,
            "control character",
        ),
        (
            "{'name': 'python', 'arguments': {}}",
            "key must be a string",
        ),
    ] {
        let parsed = read(reply, Json, STRICT);
        let problem = parsed.problem.unwrap_or_default();
        assert!(
            parsed.call.is_none() && problem.contains(reason),
            "{reply}: {problem}"
        );
    }
}

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
fn reasoning_inside_reasoning_ends_with_the_outer_one() {
    let draft = "```python\ndraft\n```";
    let end = "\n```python\n2\n```";
    for reasoning in [
        format!("<think>a<think>b</think>\n{draft}\n</think>"),
        format!("<think>a<think>b<think>c</think></think>{draft}</think>"),
        // Opened twice and closed once.
        format!("<think>\n<think>{draft}</think>"),
        "<think>I print '<think>'.</think>".to_owned(),
    ] {
        let reply = format!("{reasoning}{end}");
        assert_eq!(program(&reply, Fenced, STRICT), is("2", ""), "{reply}");
    }
    // Only spoken of: what would close it stands in a string of the program.
    let code = "print('</think>')";
    let reply = format!("<think>I print <think> in it.</think>\n```python\n{code}\n```");
    assert_eq!(program(&reply, Fenced, STRICT), is(code, ""));
}

#[test]
fn a_longer_fence_holds_shorter_ones() {
    let inner = "s = \"\"\"\n```text\nx\n```\n\"\"\"\nprint(s)";
    let reply = format!("````python\n{inner}\n````\nDone.");
    assert_eq!(program(&reply, Fenced, STRICT), is(inner, "\nDone."));
    assert_eq!(
        program("````python\nprint(1)````", Fenced, STRICT),
        is("print(1)", "")
    );
    // A longer fence closes a shorter one.
    assert_eq!(
        program("```python\nprint(1)\n````\n", Fenced, STRICT),
        is("print(1)", "\n")
    );
}

#[test]
fn the_closing_tag_counts_only_outside_strings() {
    let reply = "Now.\n<tool_call>\n{\"name\":\"python\",\"arguments\":{\"code\":\"print('</tool_call>')\"}}\n</tool_call> x";
    assert_eq!(
        program(reply, Xml, STRICT),
        Some(("print('</tool_call>')".into(), " x"))
    );
    assert_eq!(read(reply, Xml, STRICT).before, "Now.");
    let open = "<tool_call>{\"name\":\"python\",\"arguments\":{\"code\":\"1\"}}";
    assert_eq!(program(open, Xml, STRICT), is("1", ""));
    let short = "<tool_call>{\"name\":\"python\",\"arguments\":{\"code\":\"1\"}\n</tool_call>";
    assert!(read(short, Xml, STRICT).problem.is_some());
    assert_eq!(
        program(short, Xml, REPAIR).map(|p| p.0).as_deref(),
        Some("1")
    );
    assert!(
        read("<tool_call>python</tool_call>", Xml, STRICT)
            .problem
            .is_some()
    );
    assert!(read("no call", Xml, STRICT).problem.is_none());
}

#[test]
fn a_call_drafted_while_reasoning_is_none() {
    let call = |code: &str| {
        render_call(
            Xml,
            "python",
            &tools(),
            &Map::from_iter([("code".to_owned(), code.into())]),
        )
    };
    let reply = format!(
        "<think>One option is {} but</think>\n{}",
        call("draft"),
        call("final")
    );
    assert_eq!(program(&reply, Xml, STRICT), is("final", ""));
    let reply = "```python\n1\n``` no</think>\n```python\n2\n```";
    assert_eq!(program(reply, Fenced, STRICT), is("2", ""));
    assert_eq!(
        read("<think>```python\n1\n```", Fenced, STRICT),
        Parsed::default()
    );
    assert_eq!(without_reasoning("<think>a</think>b<think>c"), "b");
    assert!(is_inside_reasoning("<think>a") && !is_inside_reasoning("<think>a</think>"));
}

#[test]
fn the_first_block_of_a_tool_counts() {
    let reply = "See:\n```text\nx\n```\n```python\nprint(1)\n```\n```python\n2\n```";
    assert_eq!(
        program(reply, Fenced, STRICT),
        is("print(1)", "\n```python\n2\n```")
    );
    assert_eq!(
        program("```py\nx = `1`\n  ```", Fenced, STRICT),
        is("x = `1`", "")
    );
    assert_eq!(
        program("```python\nprint(1)```\nthen", Fenced, STRICT),
        is("print(1)", "\nthen")
    );
    assert_eq!(
        program(
            "1. Run\n   ```python\n   if x:\n       y\n   ```",
            Fenced,
            STRICT
        ),
        is("if x:\n    y", "")
    );
    assert_eq!(
        program("```python\r\nprint(1)\r\n```", Fenced, STRICT),
        is("print(1)", "")
    );
    for none in [
        "```\nprint(1)\n```",
        "```text\n```python",
        "no block",
        "```",
    ] {
        let parsed = read(none, Fenced, STRICT);
        assert_eq!((parsed.call, parsed.problem), (None, None), "{none}");
    }
    assert!(read("```python\n\n```", Fenced, STRICT).problem.is_some());
    assert!(
        read("```python print(1)```", Fenced, STRICT)
            .problem
            .is_some()
    );
}

#[test]
fn an_open_block_is_closed_by_a_stop_and_not_by_the_limit() {
    let reply = "```python\nprint(1)\n";
    assert_eq!(program(reply, Fenced, STRICT), is("print(1)", ""));
    let cut = parse(reply, Fenced, &tools(), STRICT, false);
    assert!(cut.call.is_none() && cut.problem.is_some());
}

#[test]
fn rendered_calls_read_back_equal() {
    for code in [
        "print(1)",
        "s = \"a\\n\"\nprint(s, '</tool_call>', '{')",
        "print('é', `x`)",
    ] {
        let arguments = Map::from_iter([("code".to_owned(), Value::from(code))]);
        for format in [Json, Fenced, Xml] {
            let text = render_call(format, "python", &tools(), &arguments);
            assert_eq!(program(&text, format, STRICT), is(code, ""), "{format:?}");
        }
    }
}

#[test]
fn tools_are_described_in_the_format_of_their_calls() {
    assert_eq!(render_tools(Json, &Tools::new()), "");
    for (format, part) in [
        (Json, r#"{"name": "python", "arguments": {"code": "..."}}"#),
        (Fenced, "```python"),
        (Xml, "<tool_call>"),
    ] {
        let text = render_tools(format, &tools());
        assert!(
            text.contains(part) && text.contains("Runs Python."),
            "{text}"
        );
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
fn a_tag_that_is_only_spoken_of_hides_no_call() {
    let call = r#"{"name":"python","arguments":{"code":"1"}}"#;
    for reply in [
        format!("I write <tool_call> and then:\n<tool_call>{call}</tool_call>"),
        format!("<tool_call>\n```json\n{call}\n```\n</tool_call>"),
        format!("<tool_call><tool_call>\n{call}\n</tool_call>"),
    ] {
        assert_eq!(program(&reply, Xml, STRICT), is("1", ""), "{reply}");
    }
    // Braces that belong to something else hide none either.
    let latex = format!(
        "{} {call}",
        r"$\frac{1}{2} + \{x | x > 3\}$ and {'a': 1, b}".repeat(40)
    );
    assert_eq!(program(&latex, Json, STRICT), is("1", ""));
}

#[test]
fn tags_in_strings_of_a_program_are_no_reasoning() {
    let code = "s = '<think>a</think>'\nprint(s, \"</think>\")";
    let arguments = Map::from_iter([("code".to_owned(), Value::from(code))]);
    for format in [Json, Fenced, Xml] {
        let call = render_call(format, "python", &tools(), &arguments);
        assert_eq!(program(&call, format, STRICT), is(code, ""), "{call}");
        let reply = format!("<think>I don't \"know</think>{call}");
        assert_eq!(program(&reply, format, STRICT), is(code, ""), "{reply}");
        assert_eq!(reasoning_of(&reply), "I don't \"know");
    }
}

#[test]
fn reasoning_is_kept_apart_however_it_is_marked() {
    let block = "```python\n1\n```";
    let end = "\n\n```python\n2\n```";
    for (reasoning, reply) in [
        (block, format!("<think>{block}</think>{end}")),
        (block, format!("<thinking>\n{block}\n</thinking>{end}")),
        (block, format!("[THINK]{block}[/THINK]{end}")),
        (block, format!("{block}\n</think>{end}")),
        ("```python\n1", format!("```python\n1\n</think>{end}")),
        (
            "a\n\nb",
            format!("<think>a</think>Hm.<think>b</think>{end}"),
        ),
    ] {
        assert_eq!(reasoning_of(&reply), reasoning, "{reply}");
        assert_eq!(program(&reply, Fenced, STRICT), is("2", ""), "{reply}");
    }
    let boxed = r"<think>\boxed{1}</think>\boxed{2}";
    assert_eq!(without_reasoning(boxed), r"\boxed{2}");
    assert_eq!(reasoning_of("none"), "");
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

/// Parts that make readers work.
const PARTS: [&str; 34] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    ":",
    ",",
    "\\",
    "\\n",
    "\\\"",
    "{\"a\":\"",
    "{'a': '",
    "{\"name\":",
    "\"arguments\":",
    "\"python\"",
    "{{",
    "}}",
    "```",
    "```python",
    "\n",
    "\n```\n",
    "a ```x\nb```\n",
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "[THINK]",
    "é",
    "\u{0}",
    " ",
    "1",
    "x",
    "}\n",
];

/// Processor time of this thread: other work on the machine is no fault of a reader.
fn processor_time() -> std::time::Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
    std::time::Duration::from_nanos(nanoseconds.expect("a count"))
}

fn readers_take(text: &str) -> std::time::Duration {
    let started = processor_time();
    for format in [Json, Fenced, Xml, CallFormat::Native] {
        for repair_json in [false, true] {
            let leniency = Leniency {
                repair_json,
                fenced_code: true,
            };
            let parsed = parse(text, format, &tools(), leniency, true);
            if let Some(call) = parsed.call {
                assert!(text.is_char_boundary(call.end));
            }
        }
    }
    // Nine readings at once.
    assert!(without_reasoning(text).len() <= text.len());
    (processor_time() - started) / 9
}

#[test]
fn no_reply_takes_long_to_read() {
    let most = std::time::Duration::from_millis(100);
    for part in PARTS {
        for prefix in [
            "",
            "{\"name\": \"python\", \"arguments\": {\"code\": \"",
            "<tool_call>{'a': '",
            "```python\n",
        ] {
            let text = format!("{prefix}{}", part.repeat(65_536 / part.len()));
            let took = readers_take(&text);
            assert!(took < most, "{prefix:?} and many {part:?}: {took:?}");
        }
    }
    for pair in PARTS.windows(2) {
        let text = pair.concat().repeat(65_536 / pair.concat().len());
        let took = readers_take(&text);
        assert!(took < most, "many {pair:?}: {took:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_reply_is_read(parts in proptest::collection::vec(proptest::sample::select(&PARTS[..]), 0..60)) {
        readers_take(&parts.concat());
    }

    #[test]
    fn any_text_is_read(text in any::<String>()) {
        readers_take(&text);
    }

    #[test]
    fn any_program_reads_back(code in "[ -~\n\té]{1,80}") {
        let code = code.trim_end();
        prop_assume!(!code.trim().is_empty() && !code.contains("```"));
        let arguments = Map::from_iter([("code".to_owned(), Value::from(code))]);
        for format in [Json, Fenced, Xml] {
            let text = render_call(format, "python", &tools(), &arguments);
            let found = program(&text, format, STRICT).map(|found| found.0);
            prop_assert_eq!(found.as_deref(), Some(code), "{}", text);
        }
    }
}
