//! Whatever a reply is, reading it ends soon.

use proptest::prelude::*;

use super::*;
use crate::clock::processor_time;

/// Parts that make readers work.
const PARTS: [&str; 54] = [
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
    "</thought>",
    "<seed:think>",
    "◁think▷",
    "<|channel|>",
    "<|channel|>analysis<|message|>",
    "<|start|>assistant to=functions.python<|channel|>commentary<|message|>",
    "<|end|>",
    "<|call|>",
    "<|",
    "\"\"\"",
    "'''",
    "{\"a\":\"\"\"",
    "“",
    "#",
    "é",
    "\u{0}",
    " ",
    "1",
    "x",
    "}\n",
    "{}\n",
    "(",
    ")",
    ")}",
    "x````\n",
    "{\"x\":0,\"name\":1,\"arguments\":",
];

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
    // Fences that none of the many later ones closes.
    let fences = format!("{}{}", "x````\n".repeat(5000), " ```\n".repeat(6000));
    // Bad calls inside each other around a payload that each reads again.
    let nested = format!(
        "{}[{}]{}",
        "{\"x\":0,\"name\":1,\"arguments\":".repeat(120),
        ["{\"\":0}"; 7000].join(","),
        "}".repeat(120)
    );
    let closed = format!(
        "{{\"name\": \"python\", \"arguments\": {{\"code\": \"{}}}}}",
        ")".repeat(60_000)
    );
    for text in [fences, nested, closed] {
        let took = readers_take(&text);
        assert!(took < most, "{}…: {took:?}", &text[..40]);
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
