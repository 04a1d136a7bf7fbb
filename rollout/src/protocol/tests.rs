//! Tests of reading and writing calls.

mod odd;
mod reasoning;
mod repair;
mod speed;

use harness::ToolLimits;
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
use CallFormat::{Fenced, Json, Native, Xml};

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
