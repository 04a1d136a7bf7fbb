//! Calls as a grammar: a policy that decodes under it can't write a malformed one.
//!
//! A reply is free text, or free text up to the opening of a call and then exactly one call. What
//! opens a call is not free text, so a call once begun is finished well. The grammar is in
//! llguidance's dialect of Lark.

use harness::CallFormat;
use serde_json::Value;

use super::Tools;

/// The grammar of replies with calls of this format; none where a call's form is not JSON, or is
/// the server's business, or there is no tool.
pub fn call_grammar(format: CallFormat, tools: &Tools) -> Option<String> {
    if tools.is_empty() {
        return None;
    }
    let (opening, before, after) = match format {
        CallFormat::Json => (r#"\{\s*"name"\s*:"#, "", ""),
        CallFormat::Xml => (
            "<tool_call>",
            r#"WS? "{" WS? "\"name\"" WS? ":" "#,
            r#" WS? "</tool_call>""#,
        ),
        CallFormat::Fenced | CallFormat::Native => return None,
    };
    let call = |(name, tool): (&harness::ToolName, &harness::Tool)| {
        // Twice quoted: a JSON string inside a grammar's string.
        let name = Value::from(Value::from(name.as_str()).to_string());
        format!(
            r#"WS? {name} WS? "," WS? "\"arguments\"" WS? ":" WS? %json {} WS? "}}""#,
            tool.parameters
        )
    };
    let calls: Vec<String> = tools.iter().map(call).collect();
    Some(format!(
        "start: FREE | opening {before}call{after}
opening[lazy]: /(?s:.*){opening}/
call: {}
FREE: /(?s:.*)/ & ~/(?s:.*){opening}(?s:.*)/
WS: /[ \\n\\t]+/
",
        calls.join("\n  | ")
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::decode::Constraint;
    use model::grammar::GrammarCompiler;
    use model::tokenizer::Tokenizer;
    use serde_json::json;

    use super::*;

    fn tools() -> Tools {
        let tool = |argument: &str| harness::Tool {
            description: String::new(),
            parameters: json!({"type": "object", "properties": {argument: {"type": "string"}},
                "required": [argument], "additionalProperties": false}),
            backend: harness::Backend::Python,
            state: harness::ToolState::default(),
            limits: harness::ToolLimits::default(),
        };
        let name = |name: &str| harness::ToolName::new(name).expect("name");
        BTreeMap::from([
            (name("python"), tool("code")),
            (name("shell"), tool("line")),
        ])
    }

    /// How many bytes of a reply the grammar allows, and whether the reply may end there.
    fn allowed(format: CallFormat, reply: &str) -> (usize, bool) {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../trainer/tests/golden/llama_tied/tokenizer.json");
        let tokenizer = Tokenizer::from_file(&file).expect("tokenizer");
        let end = tokenizer.id_of("<|im_end|>").expect("token");
        let size = tokenizer.vocab_size();
        let compiler = GrammarCompiler::new(&tokenizer, size, &[end]).expect("compiler");
        let grammar = call_grammar(format, &tools()).expect("grammar");
        let mut grammar = compiler.lark(&grammar).expect("a grammar that compiles");
        let mut step = |token: u32| {
            let mut logits = vec![0.0; size];
            let is_allowed = grammar.restrict(&mut logits).is_ok() && logits[token as usize] == 0.0;
            if is_allowed {
                grammar.accept(token).expect("allowed");
            }
            is_allowed
        };
        // One token a byte.
        let tokens = tokenizer.encode_plain(reply).expect("tokens");
        assert_eq!(tokens.len(), reply.len());
        let count = tokens.iter().take_while(|token| step(**token)).count();
        (count, count == tokens.len() && step(end))
    }

    #[test]
    fn free_text_and_whole_calls_may_be_said() {
        for reply in [
            "",
            "The answer is \\boxed{42}.",
            "A set {1, 2} and \"name\": nothing.\n\n{\"n\": 5}",
            "I compute.\n{\"name\": \"python\", \"arguments\": {\"code\": \"print(\\\"1\\\")\\nprint({2})\"}}",
            "{ \"name\" : \"shell\", \"arguments\": {\"line\": \"ls\"} }",
        ] {
            assert_eq!(
                allowed(CallFormat::Json, reply),
                (reply.len(), true),
                "{reply}"
            );
        }
        let reply = "Yes <tool_call>\n{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}\n</tool_call>";
        assert_eq!(allowed(CallFormat::Xml, reply), (reply.len(), true));
    }

    #[test]
    fn a_call_once_begun_cannot_be_malformed() {
        for (format, reply, count) in [
            // No such tool, no such argument, JSON that breaks, more after the call.
            (CallFormat::Json, r#"{"name": "perl""#, 11),
            (
                CallFormat::Json,
                r#"{"name": "python", "arguments": {"line""#,
                34,
            ),
            (
                CallFormat::Json,
                r#"{"name": "python", "arguments": {"code": "\x"#,
                43,
            ),
            (
                CallFormat::Json,
                r#"{"name": "python", "arguments": {"code": "1"}} and"#,
                47,
            ),
            (CallFormat::Xml, "<tool_call>print(1)", 11),
        ] {
            let (got, _) = allowed(format, reply);
            assert!(got == count || got + 1 == count, "{reply}: {got}");
        }
        let (count, may_end) = allowed(CallFormat::Json, r#"{"name": "python""#);
        assert_eq!((count, may_end), (17, false));
    }

    #[test]
    fn only_json_forms_have_a_grammar_and_every_tool_stands_in_it() {
        let tools = tools();
        for format in [CallFormat::Fenced, CallFormat::Native] {
            assert_eq!(call_grammar(format, &tools), None);
        }
        assert_eq!(call_grammar(CallFormat::Json, &Tools::new()), None);
        for format in [CallFormat::Json, CallFormat::Xml] {
            let grammar = call_grammar(format, &tools).expect("a grammar");
            assert!(
                grammar.contains(r#""\"python\"""#) && grammar.contains(r#""\"shell\"""#),
                "{grammar}"
            );
        }
    }
}
