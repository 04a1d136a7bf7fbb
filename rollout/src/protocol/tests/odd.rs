//! Replies that models write and no description of a format foresees: each comes to the right call, or to
//! an error that says what is wrong.

use super::*;

/// What a reply comes to.
enum Comes<'a> {
    /// To a call of this program.
    To(&'a str),
    /// To a call of this program where JSON may be repaired, else to an error.
    Repaired(&'a str),
    /// To an error.
    Error,
    /// To neither: it has no call.
    Nothing,
}
use Comes::{Error, Nothing, Repaired, To};

fn check(format: CallFormat, cases: &[(&str, Comes<'_>)]) {
    let mut wrong = Vec::new();
    for (reply, comes) in cases {
        for leniency in [STRICT, REPAIR] {
            let parsed = read(reply, format, leniency);
            let expected = match comes {
                To(code) => (Some(*code), false),
                Repaired(code) if leniency.repair_json => (Some(*code), false),
                Repaired(_) | Error => (None, true),
                Nothing => (None, false),
            };
            let code = parsed.call.as_ref();
            let code = code.and_then(|call| call.arguments.get("code")?.as_str());
            if (code, parsed.problem.is_some()) != expected {
                wrong.push(format!("{leniency:?} {reply}: {parsed:?}"));
            }
            let is_repaired = parsed.call.is_some_and(|call| call.is_repaired);
            assert!(!is_repaired || matches!(comes, Repaired(_)), "{reply}");
        }
    }
    assert!(wrong.is_empty(), "{format:?}: {wrong:#?}");
}

const CALL: &str = r#"{"name": "python", "arguments": {"code": "1"}}"#;

#[test]
fn json_calls_come_to_a_call_or_an_error() {
    check(
        Json,
        &[
            (CALL, To("1")),
            (
                "```json5\n{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}\n```",
                To("1"),
            ),
            (
                "```tool_code\n{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}\n```",
                To("1"),
            ),
            // Quotes.
            (
                r#"{“name”: “python”, “arguments”: {“code”: “1”}}"#,
                Repaired("1"),
            ),
            (
                r#"{‘name’: ‘python’, ‘arguments’: {‘code’: ‘1’}}"#,
                Repaired("1"),
            ),
            (
                r#"{“name": “python", “arguments": {“code": “1"}}"#,
                Repaired("1"),
            ),
            (r#"{name: "python", arguments: {code: "1"}}"#, Repaired("1")),
            (
                "{\"name\": \"python\", \"arguments\": {\"code\": \"\"\"\nx = 1\nprint(x)\n\"\"\"}}",
                Repaired("x = 1\nprint(x)"),
            ),
            (
                "{'name': 'python', 'arguments': {'code': '''s = \"a\"\nprint('b')'''}}",
                Repaired("s = \"a\"\nprint('b')"),
            ),
            (
                "{'name': 'python', 'arguments': {'code': 'print(\\'a\\')'}}",
                Repaired("print('a')"),
            ),
            (
                r#"{&quot;name&quot;: &quot;python&quot;, &quot;arguments&quot;: {&quot;code&quot;: &quot;1&quot;}}"#,
                Error,
            ),
            (
                "{\"name\": \"python\", \"arguments\": {\"code\": `1`}}",
                Error,
            ),
            // Commas, comments, constants.
            (
                r#"{"name": "python", "arguments": {"code": "1",},}"#,
                Repaired("1"),
            ),
            (r#"{"name": "python" "arguments": {"code": "1"}}"#, Error),
            (
                "{\"name\": \"python\", // the tool\n\"arguments\": {\"code\": \"1\"}}",
                Error,
            ),
            (
                r#"{"name": "python", "arguments": {"code": "1", "check": True}}"#,
                Repaired("1"),
            ),
            (
                r#"{"name": "python", "arguments": {"code": "1", "code": "2"}}"#,
                Error,
            ),
            // Arguments as text.
            (
                r#"{"name": "python", "arguments": "{\"code\": \"1\"}"}"#,
                To("1"),
            ),
            (
                r#"{"name": "python", "arguments": "{'code': '1'}"}"#,
                Repaired("1"),
            ),
            (
                r#"{"name": "python", "arguments": "\"{\\\"code\\\": \\\"1\\\"}\""}"#,
                Repaired("1"),
            ),
            (r#"{"name": "python", "arguments": "print(1)"}"#, Error),
            (r#"{"name": "python", "arguments": null}"#, Error),
            (r#"{"name": "python", "arguments": [{"code": "1"}]}"#, Error),
            // Names.
            (r#"{"arguments": {"code": "1"}}"#, Repaired("1")),
            (r#"{"code": "1"}"#, Repaired("1")),
            (
                r#"<function=python>{"code": "1"}</function>"#,
                Repaired("1"),
            ),
            (r#"{"arguments": {"line": "1"}}"#, Error),
            (r#"{"name": null, "arguments": {"code": "1"}}"#, Error),
            (r#"{"name": "", "arguments": {"code": "1"}}"#, To("1")),
            (r#"{"name": "Python", "arguments": {"code": "1"}}"#, To("1")),
            // Several, and where they stand.
            (
                r#"[{"name": "python", "arguments": {"code": "1"}}, {"name": "python", "arguments": {"code": "2"}}]"#,
                To("1"),
            ),
            (
                r#"[TOOL_CALLS] [{"name": "python", "arguments": {"code": "1"}}]"#,
                To("1"),
            ),
            (
                r#"<thought>{"name": "python", "arguments": {"code": "0"}}</thought>{"name": "python", "arguments": {"code": "1"}}"#,
                To("1"),
            ),
            (
                r#"<reasoning>{"name": "python", "arguments": {"code": "0"}}"#,
                Nothing,
            ),
            (
                r#"{"name": "python", "arguments": {"code": "print('</think>')"}}"#,
                To("print('</think>')"),
            ),
            // Cut off.
            (r#"{"name": "python", "arguments": {"code": "1"#, Error),
            (r#"{"name": "python", "arg"#, Error),
            // About something else.
            (r#"{"answer": 42}"#, Nothing),
            (r#"{"name": "Ann", "code": "1"}"#, Nothing),
            ("{'a': 1, 'b': {'c': 2}}", Nothing),
            ("The set {x : x > 2} has no end.", Nothing),
        ],
    );
}

#[test]
fn tagged_calls_come_to_a_call_or_an_error() {
    check(
        Xml,
        &[
            (
                "<tool_call>\n{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}\n</tool_call>",
                To("1"),
            ),
            (
                "<tool_call>\n{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}",
                To("1"),
            ),
            (
                "<tool_call>\n{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}\n{\"name\": \"python\", \"arguments\": {\"code\": \"2\"}}\n</tool_call>",
                To("1"),
            ),
            (
                "<tool_call>\n{\"name\": \"python\", \"arguments\": {\"code\": \"print('```')\\nprint(1)\"}}\n</tool_call>",
                To("print('```')\nprint(1)"),
            ),
            (
                "<tool_call>{\"arguments\": {\"code\": \"1\"}}</tool_call>",
                Repaired("1"),
            ),
            (
                "<tool_call>{“name”: “python”, “arguments”: {“code”: “1”}}</tool_call>",
                Repaired("1"),
            ),
            // No object between the tags.
            (
                "<tool_call>[{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}]</tool_call>",
                Error,
            ),
            (
                "<tool_call>\n<function=python>\n<parameter=code>\nprint(1)\n</parameter>\n</function>\n</tool_call>",
                Error,
            ),
            ("<tool_call>python\nprint(1)</tool_call>", Error),
            ("<tool_call>", Error),
            // No tags around the object.
            (CALL, Repaired("1")),
            (
                "<function_call>{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}</function_call>",
                Repaired("1"),
            ),
            (
                "<TOOL_CALL>{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}</TOOL_CALL>",
                Repaired("1"),
            ),
            (
                "<tool_call name=\"python\">{\"code\": \"1\"}</tool_call>",
                Repaired("1"),
            ),
            (
                "{\"name\": \"hammer\", \"arguments\": {\"code\": \"1\"}}",
                Nothing,
            ),
            // While reasoning.
            (
                "<seed:think><tool_call>{\"name\": \"python\", \"arguments\": {\"code\": \"0\"}}</tool_call></seed:think>",
                Nothing,
            ),
            (
                "<tool_call>{\"name\": \"python\", \"arguments\": {\"code\": \"0\"}}</tool_call></thinking>The answer is 5.",
                Nothing,
            ),
        ],
    );
}

#[test]
fn fenced_calls_come_to_a_call_or_an_error() {
    check(
        Fenced,
        &[
            ("```{python}\nprint(1)\n```", To("print(1)")),
            ("```{.python}\nprint(1)\n```", To("print(1)")),
            ("```python:main.py\nprint(1)\n```", To("print(1)")),
            ("```python,ignore\nprint(1)\n```", To("print(1)")),
            ("``` Python3\nprint(1)\n```", To("print(1)")),
            ("```python title=\"x\"\nprint(1)\n```", Error),
            ("```python # first\nprint(1)\n```", Error),
            (
                "```python\nprint(1)\n```\n```output\n1\n```",
                To("print(1)"),
            ),
            ("```text\nx\n```\n```python\nprint(1)\n```", To("print(1)")),
            // Backquotes in the program.
            (
                "```python\ns = \"\"\"\n```text\nx\n```\n\"\"\"\nprint(s)\n```",
                To("s = \"\"\"\n```text\nx\n```\n\"\"\"\nprint(s)"),
            ),
            (
                "```python\ns = '''\n```\n'''\n```\nDone.",
                To("s = '''\n```\n'''"),
            ),
            (
                "```python\n# don't\nprint(1)\n```\nIt isn't \"\"\" yet.",
                To("# don't\nprint(1)"),
            ),
            ("```python\nprint(\"\"\"a)\n```", To("print(\"\"\"a)")),
            ("```python\nprint('`1`')\n```", To("print('`1`')")),
            // Open, empty, while reasoning.
            ("```python\nprint(1)", To("print(1)")),
            ("```python", Error),
            (
                "<thought>\n```python\n0\n```\n</thought>\n```python\n1\n```",
                To("1"),
            ),
            ("```python\n0\n```\n</reasoning>", Nothing),
            // Another form.
            (CALL, Error),
            (
                "```json\n{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}\n```",
                Error,
            ),
            ("```js\nrun({'name': 'python'})\n```", Nothing),
        ],
    );
}

#[test]
fn a_call_in_the_text_is_none_through_the_interface() {
    check(
        Native,
        &[
            (CALL, Error),
            (
                "<tool_call>{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}</tool_call>",
                Error,
            ),
            ("{'name': 'python', 'arguments': {'code': '1'}}", Error),
            ("The answer is \\boxed{5}.", Nothing),
            ("{\"answer\": 5}", Nothing),
        ],
    );
}

#[test]
fn harmonys_channels_are_kept_apart() {
    let final_answer = "<|start|>assistant<|channel|>final<|message|>The answer is 5.<|return|>";
    let analysis = "<|channel|>analysis<|message|>Perhaps \\boxed{4}.<|end|>";
    for (reply, reasoning, said) in [
        (
            format!("{analysis}{final_answer}"),
            "Perhaps \\boxed{4}.",
            "The answer is 5.",
        ),
        // Opened in the prompt.
        (
            format!("Perhaps 4.<|end|>{final_answer}"),
            "Perhaps 4.",
            "The answer is 5.",
        ),
        (
            format!("{analysis}<|channel|>analysis<|message|>No.<|end|>{final_answer}"),
            "Perhaps \\boxed{4}.\n\nNo.",
            "The answer is 5.",
        ),
        // Said before the answer.
        (
            format!(
                "{analysis}<|start|>assistant<|channel|>commentary<|message|>I compute.<|end|>"
            ),
            "Perhaps \\boxed{4}.",
            "I compute.",
        ),
        // Cut, or without its special tokens.
        (
            "<|channel|>analysis<|message|>Perhaps".into(),
            "Perhaps",
            "",
        ),
        ("<|channel|>analysis".into(), "", ""),
        (
            "analysisPerhaps 4.assistantfinalThe answer is 5.".into(),
            "Perhaps 4.",
            "The answer is 5.",
        ),
        (
            "analysis of the sum: 5".into(),
            "",
            "analysis of the sum: 5",
        ),
    ] {
        assert_eq!(reasoning_of(&reply), reasoning, "{reply}");
        assert_eq!(without_reasoning(&reply), said, "{reply}");
        assert_eq!(
            is_inside_reasoning(&reply),
            reply.ends_with("Perhaps") || reply.ends_with("analysis")
        );
        assert_eq!(masking_reasoning(&reply).len(), reply.len());
    }
    let json = r#"<|start|>assistant<|channel|>commentary to=functions.python <|constrain|>json<|message|>{"code": "1"}<|call|>"#;
    let role = r#"<|start|>assistant to=functions.python<|channel|>commentary<|message|>{"code": "1"}<|call|>"#;
    let program = "<|channel|>analysis to=python code<|message|>print(1)<|call|>";
    let draft =
        r#"<|channel|>analysis<|message|>{"name": "python", "arguments": {"code": "0"}}<|end|>"#;
    for format in [Json, Fenced, Xml, Native] {
        check(
            format,
            &[
                (&format!("{analysis}{json}"), Repaired("1")),
                (role, Repaired("1")),
                (program, Repaired("print(1)")),
                (&format!("{draft}{final_answer}"), Nothing),
                (
                    "<|channel|>commentary to=functions.python<|message|>{\"code\": \"1",
                    Error,
                ),
            ],
        );
    }
    // A program that prints the marks.
    let code = "print(\"<|channel|>analysis<|message|>\")";
    let reply = format!("```python\n{code}\n```");
    assert_eq!(program_of(&reply), Some(code.to_owned()));
}

fn program_of(reply: &str) -> Option<String> {
    program(reply, Fenced, STRICT).map(|(code, _)| code)
}
