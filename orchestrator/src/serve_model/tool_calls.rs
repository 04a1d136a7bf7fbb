//! Calls in a reply, written as `<tool_call>{"name": …, "arguments": {…}}</tool_call>` (the form of
//! Hermes and Qwen models).

use serde_json::{Map, Value, json};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// A function that may be called.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Function {
    pub(super) name: String,
    /// Schema of its arguments.
    pub(super) parameters: Value,
}

impl Function {
    /// A function of that name whose arguments keep to `schema`, if there is one. They are an object
    /// whatever a schema leaves open: one without a type, `{}` above all, allows a number as well, which
    /// no call can have.
    ///
    /// # Errors
    /// Where the schema wants something else than an object.
    pub(super) fn new(name: &str, schema: &Value) -> Result<Self, String> {
        let mut schema = match schema {
            Value::Null => Map::new(),
            Value::Object(schema) => schema.clone(),
            _ => return Err("function.parameters is no schema".into()),
        };
        let is_object = match schema.get("type") {
            None => true,
            Some(Value::Array(types)) => types.iter().any(|one| one == "object"),
            Some(one) => one == "object",
        };
        if !is_object {
            return Err("the type of function.parameters is not object".into());
        }
        schema.insert("type".to_owned(), "object".into());
        Ok(Self {
            name: name.to_owned(),
            parameters: Value::Object(schema),
        })
    }
}

/// The grammar, in llguidance's dialect of Lark, of a reply that is a call of one of these. Each
/// function's schema is a document of its own there, so that a reference such as `#/$defs/Point`, of
/// which schemas made from classes are full, leads to the definition that it means.
pub(super) fn grammar(functions: &[Function]) -> String {
    let call = |function: &Function| {
        let name = Value::from(function.name.as_str());
        // JSON strings are strings of the grammar.
        let opening = Value::from(format!("{OPEN}\n{{\"name\": {name}, \"arguments\": "));
        let closing = Value::from(format!("}}\n{CLOSE}"));
        format!("{opening} %json {} {closing}", function.parameters)
    };
    let calls: Vec<String> = functions.iter().map(call).collect();
    format!("start: {}", calls.join("\n  | "))
}

/// The text around the calls, and the calls as the API gives them. What opens as a call and can't
/// be read stays text.
pub(super) fn split(text: &str, id: &str) -> (String, Vec<Value>) {
    let mut content = String::new();
    let mut calls = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(OPEN) {
        let inside = &rest[start + OPEN.len()..];
        // A reply that ends within its last call has the stop token where the mark should be.
        let (body, after) = match inside.find(CLOSE) {
            Some(end) => (&inside[..end], &inside[end + CLOSE.len()..]),
            None => (inside, ""),
        };
        match read(body) {
            Some((name, arguments)) => {
                content.push_str(&rest[..start]);
                calls.push(json!({
                    "index": calls.len(),
                    "id": format!("call-{id}-{}", calls.len()),
                    "type": "function",
                    "function": {"name": name, "arguments": arguments.to_string()},
                }));
            }
            None => content.push_str(&rest[..rest.len() - after.len()]),
        }
        rest = after;
    }
    content.push_str(rest);
    if calls.is_empty() {
        return (content, calls);
    }
    (content.trim().to_owned(), calls)
}

fn read(body: &str) -> Option<(String, Value)> {
    let call: Value = serde_json::from_str(body.trim()).ok()?;
    let name = call["name"].as_str()?.to_owned();
    let arguments = match call.get("arguments").or_else(|| call.get("parameters")) {
        Some(arguments @ Value::Object(_)) => arguments.clone(),
        None => json!({}),
        Some(_) => return None,
    };
    Some((name, arguments))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use model::decode::Constraint;
    use model::grammar::GrammarCompiler;
    use model::tokenizer::Tokenizer;

    use super::*;

    /// Whether a reply, and its end after it, may be said where one of these has to be called.
    fn may_say(functions: &[Function], reply: &str) -> bool {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../trainer/tests/golden/llama_tied/tokenizer.json");
        let tokenizer = Tokenizer::from_file(&file).expect("tokenizer");
        let end = tokenizer.id_of("<|im_end|>").expect("token");
        let size = tokenizer.vocab_size();
        let compiler = GrammarCompiler::new(&tokenizer, size, &[end]).expect("compiler");
        let mut grammar = compiler.lark(&grammar(functions)).expect("a grammar");
        let mut tokens = tokenizer.encode_plain(reply).expect("tokens");
        tokens.push(end);
        tokens.into_iter().all(|token| {
            let mut logits = vec![0.0; size];
            let is_allowed = grammar.restrict(&mut logits).is_ok() && logits[token as usize] == 0.0;
            is_allowed && grammar.accept(token).is_ok()
        })
    }

    #[test]
    fn definitions_of_each_function_are_its_own() {
        // As pydantic writes nested models; both call theirs Point.
        let function = |name: &str, point: Value| Function {
            name: name.into(),
            parameters: json!({
                "$defs": {"Point": point},
                "type": "object",
                "properties": {"at": {"$ref": "#/$defs/Point"}, "others": {"type": "array",
                    "items": {"$ref": "#/$defs/Point"}}},
                "required": ["at"],
                "additionalProperties": false,
            }),
        };
        let field = |name: &str| {
            json!({"type": "object", "properties": {name: {"type": "integer"}}, "required": [name],
                "additionalProperties": false})
        };
        let functions = [
            function("draw", field("x")),
            function("say \"hi\"", field("y")),
        ];
        for (reply, is_good) in [
            (r#"{"name": "draw", "arguments": {"at": {"x": 1}}}"#, true),
            (
                r#"{"name": "draw", "arguments": {"at": {"x": 1}, "others": [{"x": -2}]}}"#,
                true,
            ),
            (
                r#"{"name": "say \"hi\"", "arguments": {"at": {"y": 1}}}"#,
                true,
            ),
            (r#"{"name": "draw", "arguments": {"at": {"y": 1}}}"#, false),
            (r#"{"name": "erase", "arguments": {"at": {"x": 1}}}"#, false),
        ] {
            let reply = format!("<tool_call>\n{reply}\n</tool_call>");
            assert_eq!(may_say(&functions, &reply), is_good, "{reply}");
            if is_good {
                let (content, calls) = split(&reply, "1");
                assert_eq!((content.as_str(), calls.len()), ("", 1));
            }
        }
        // Where one alone is offered there is no choice.
        assert!(!may_say(&functions[..1], "<tool_call>\n{\"name\": \"say"));
    }

    #[test]
    fn arguments_are_an_object_where_a_schema_leaves_it_open() {
        let may_say = |schema: &Value, arguments: &str| {
            let function = Function::new("f", schema).expect("a schema");
            let reply = format!(
                "<tool_call>\n{{\"name\": \"f\", \"arguments\": {arguments}}}\n</tool_call>"
            );
            may_say(&[function], &reply)
        };
        let point =
            json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]});
        for schema in [
            Value::Null,
            json!({}),
            json!({"properties": {"x": {"type": "integer"}}}),
            json!({"type": ["object", "null"]}),
            json!({"$ref": "#/$defs/Point", "$defs": {"Point": point}}),
        ] {
            assert!(may_say(&schema, r#"{"x": 1}"#), "{schema}");
            for arguments in ["5", "null", r#""x""#, "[]"] {
                assert!(!may_say(&schema, arguments), "{schema}: {arguments}");
            }
        }
        for schema in [
            json!({"type": "array"}),
            json!({"type": ["string", "null"]}),
            json!({"type": null}),
            json!([]),
        ] {
            assert!(Function::new("f", &schema).is_err(), "{schema}");
        }
    }

    #[test]
    fn calls_are_taken_out_of_the_text() {
        let (content, calls) = split(
            "I count.\n<tool_call>\n{\"name\": \"python\", \"arguments\": {\"code\": \"1\"}}\n</tool_call>\n\
             <tool_call>{\"name\": \"stop\"}",
            "7",
        );
        assert_eq!(content, "I count.");
        assert_eq!(calls.len(), 2);
        assert_eq!(calls[0]["function"]["arguments"], r#"{"code":"1"}"#);
        assert_eq!(
            (&calls[1]["id"], &calls[1]["index"]),
            (&json!("call-7-1"), &json!(1))
        );
    }

    #[test]
    fn what_is_no_call_stays_text() {
        for text in [
            "plain",
            " <tool_call>not json</tool_call> after",
            "<tool_call>{\"name\": 5}</tool_call>",
            "<tool_call>{\"name\": \"x\", \"arguments\": 5}",
            "",
        ] {
            assert_eq!(split(text, "1"), (text.to_owned(), Vec::new()));
        }
    }
}
