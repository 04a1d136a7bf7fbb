//! Faults that were reported for other projects, where their list lies beside this one: each input
//! must come to what is right. A case without a test here is an error.

use std::path::Path;
use std::time::Duration;

use harness::{Backend, CallFormat, Tool, ToolLimits, ToolName};
use rollout::protocol::{self, Leniency, Parsed, Tools};
use rollout::{
    Completion, CompletionRequest, Message, OpenAiOptions, OpenAiPolicy, Policy, PolicyError, Role,
};
use serde_json::{Map, Value, json};

use crate::server::{Reply, ok, serve, status};

/// The cases of an area by their id.
fn cases(area: &str) -> Vec<(String, Value)> {
    let file = format!("../../shared/cases/{area}.jsonl");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&file);
    let Ok(text) = std::fs::read_to_string(path) else {
        println!("skipped: the cases of {area} are not here");
        return Vec::new();
    };
    let case = |line: &str| {
        let case: Value = serde_json::from_str(line).expect("JSON");
        (
            case["id"].as_str().expect("id").to_owned(),
            case["input"].clone(),
        )
    };
    text.lines().map(case).collect()
}

fn tools() -> Tools {
    let tool = Tool {
        description: "Runs Python.".into(),
        parameters: json!({"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}),
        backend: Backend::Python,
        limits: ToolLimits::default(),
        state: Default::default(),
    };
    [(ToolName::new("python").expect("name"), tool)].into()
}

fn read(reply: &str, repair_json: bool) -> Parsed {
    let leniency = Leniency {
        repair_json,
        fenced_code: false,
    };
    protocol::parse(reply, CallFormat::Xml, &tools(), leniency, true)
}

fn code(parsed: &Parsed) -> Option<&str> {
    parsed.call.as_ref()?.arguments.get("code")?.as_str()
}

fn texts(values: &Value) -> Vec<&str> {
    let values = values.as_array().expect("a list").iter();
    values
        .map(|value| value.as_str().unwrap_or_default())
        .collect()
}

#[tokio::test]
async fn tool_calls() {
    for (id, input) in cases("tool_calls") {
        match id.as_str() {
            "tool-01" => {
                let parsed = read(input["output"].as_str().expect("text"), false);
                assert_eq!(code(&parsed), Some("print('</tool_call>')"));
            }
            "tool-03" => {
                let parsed = read(input["output"].as_str().expect("text"), false);
                assert_eq!(code(&parsed), Some("final"));
                assert_eq!(parsed.before, "");
            }
            "tool-05" => {
                for output in texts(&input["outputs"]) {
                    let parsed = read(output, true);
                    assert_eq!(code(&parsed), Some("1"), "{output}");
                    assert!(parsed.call.is_some_and(|call| call.is_repaired));
                    let parsed = read(output, false);
                    assert!(
                        parsed.call.is_none() && parsed.problem.is_some(),
                        "{output}"
                    );
                }
            }
            "tool-06" => {
                let body = |message: &Value| json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]});
                let message = &input["message"];
                let place = "/tool_calls/0/function/arguments";
                let object = message.pointer(place).expect("arguments").clone();
                for (arguments, is_right) in [
                    (object.clone(), true),
                    (json!(object.to_string()), true),
                    (json!(1), false),
                    (json!([]), false),
                    (Value::Null, false),
                ] {
                    let mut message = message.clone();
                    *message.pointer_mut(place).expect("arguments") = arguments;
                    let reply = ask(vec![ok(&body(&message).to_string())])
                        .await
                        .0
                        .expect("reply");
                    let arguments = &reply.tool_calls[0].arguments;
                    let read = protocol::read_arguments(arguments, Leniency::default());
                    let expected: Option<&Map<_, _>> =
                        is_right.then(|| object.as_object().expect("object"));
                    assert_eq!(read.ok().map(|read| read.arguments).as_ref(), expected);
                }
            }
            "tool-08" => {
                let arguments = &input["history"][1]["tool_calls"][0]["function"]["arguments"];
                assert!(protocol::read_arguments(arguments, Leniency::default()).is_err());
                let kept = protocol::unreadable_arguments(arguments);
                assert!(kept.values().any(|value| value == arguments));
                let reply = &input["server_reply"];
                let code =
                    u16::try_from(reply["status"].as_u64().expect("status")).expect("status");
                let failure = status(code, &reply["body"].to_string());
                let (result, asked) = ask(vec![failure; 5]).await;
                assert!(matches!(
                    result,
                    Err(PolicyError::Unavailable { attempts: 3, .. })
                ));
                assert_eq!(asked, 3);
            }
            other => panic!("{other} has no test"),
        }
    }
}

fn request() -> CompletionRequest {
    CompletionRequest::new(vec![Message::new(Role::User, "hello")], 100_000)
}

async fn ask(replies: Vec<Reply>) -> (Result<Completion, PolicyError>, usize) {
    let (url, asked) = serve(replies).await;
    let policy = OpenAiPolicy::new(OpenAiOptions {
        timeout: Duration::from_secs(5),
        attempts: 3,
        first_wait: Duration::from_millis(1),
        longest_wait: Duration::from_secs(60),
        ..OpenAiOptions::new(url, "m")
    });
    let result = policy.expect("client").complete(request()).await;
    let asked = asked.lock().expect("lock").len();
    (result, asked)
}

const HELLO: &str = r#"{"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}"#;

#[tokio::test]
async fn servers() {
    for (id, input) in cases("servers") {
        match id.as_str() {
            "srv-01" => {
                for reason in input["finish_reasons"].as_array().expect("reasons") {
                    let mut body = input["body"].clone();
                    body["choices"][0]["finish_reason"] = reason.clone();
                    let (reply, asked) = ask(vec![ok(&body.to_string())]).await;
                    let reply = reply.expect("reply");
                    assert_eq!((reply.text.as_str(), asked), ("hi", 1), "{reason}");
                    let word = reason.as_str().unwrap_or_default();
                    let is_usual = matches!(word, "" | "stop" | "tool_calls" | "length");
                    let kept = (!is_usual).then_some(word);
                    assert_eq!(reply.finish_reason.as_deref(), kept);
                    assert_eq!(reply.finish.is_cut(), word == "length");
                }
            }
            "srv-03" => {
                for name in ["sse_a", "sse_b"] {
                    let lines = texts(&input[name]);
                    let lines = lines.iter().filter(|line| line.starts_with("data"));
                    let lines: Vec<String> = lines.map(|line| format!("{line}\n\n")).collect();
                    let (reply, asked) = ask(vec![Reply::Events(lines), ok(HELLO)]).await;
                    assert_eq!((reply.expect("reply").text.as_str(), asked), ("hello", 2));
                }
            }
            "srv-04" => {
                let (reply, asked) = ask(vec![ok(&input["body"].to_string())]).await;
                let reply = reply.expect("reply");
                assert!(reply.finish.is_cut() && reply.text.is_empty() && asked == 1);
                assert_eq!(reply.usage.completion_tokens, 4096);
                assert!(!reply.reasoning.is_empty());
            }
            "srv-06" => {
                for (index, text) in texts(&input["errors"]).iter().enumerate() {
                    let has_room = matches!(index, 1 | 3);
                    let (reply, asked) = ask(vec![status(400, text), ok(HELLO)]).await;
                    assert_eq!(asked, 1 + usize::from(has_room), "{text}");
                    match reply {
                        Ok(reply) => assert!(has_room && reply.text == "hello"),
                        Err(error) => {
                            assert!(
                                matches!(error, PolicyError::ContextOverflow { .. }) && !has_room
                            );
                        }
                    }
                }
            }
            "srv-07" => {
                for value in texts(&input["headers"]) {
                    if value == "5" {
                        continue; // Five seconds; the pauses are tested where they are read.
                    }
                    // A date before the one that the server gives.
                    let headers =
                        format!("date: Wed, 21 Oct 2026 08:00:00 GMT\r\nretry-after: {value}\r\n");
                    let busy = Reply::Whole(429, headers.leak(), "{}".into());
                    let (reply, asked) = ask(vec![busy, ok(HELLO)]).await;
                    if value == "3600" {
                        assert!(
                            matches!(reply, Err(PolicyError::RateLimited { wait }) if wait.as_secs() == 3600)
                        );
                        assert_eq!(asked, 1);
                    } else {
                        assert_eq!(
                            (reply.expect("reply").text.as_str(), asked),
                            ("hello", 2),
                            "{value}"
                        );
                    }
                }
            }
            other => panic!("{other} has no test"),
        }
    }
}
