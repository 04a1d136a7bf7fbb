//! The client against a server that plays from a script.

use std::sync::Arc;
use std::time::Duration;

use harness::CallFormat;
use rollout::{
    Agent, ApiKey, Completion, CompletionRequest, Event, ExitReason, Finish, Message,
    OpenAiOptions, OpenAiPolicy, Policy, PolicyError, Role, RolloutBudget, Split, ToolRunner,
    ToolSchema, Trajectory, rollout,
};
use serde_json::{Value, json};

use crate::server::{Reply, ok, serve, status};
use crate::shapes::{self, ANSWER, Expected};
use crate::world::{ScriptedTool, agent, asking, naive, printed};

const HELLO: &str = r#"{"choices": [{"message": {"content": "hi"}, "finish_reason": "eos"}]}"#;

fn options(base_url: &str) -> OpenAiOptions {
    OpenAiOptions {
        api_key: Some(ApiKey::new("sk-secret\n")),
        timeout: Duration::from_millis(800),
        silence: Duration::from_millis(200),
        attempts: 3,
        first_wait: Duration::from_millis(1),
        longest_wait: Duration::from_secs(2),
        ..OpenAiOptions::new(base_url, "small")
    }
}

fn request() -> CompletionRequest {
    CompletionRequest {
        temperature: 0.5,
        seed: 3,
        ..CompletionRequest::new(vec![Message::new(Role::User, "hello")], 40)
    }
}

/// What came of asking a server that plays these replies, and the bodies of the requests.
async fn ask_with(
    replies: Vec<Reply>,
    change: impl FnOnce(&mut OpenAiOptions),
) -> (Result<Completion, PolicyError>, Vec<Value>) {
    let (url, asked) = serve(replies).await;
    let mut options = options(&url);
    change(&mut options);
    let policy = OpenAiPolicy::new(options).expect("client");
    let result = policy.complete(request()).await;
    let asked = asked.lock().expect("lock");
    let body = |request: &String| {
        let (_, body) = request.split_once("\r\n\r\n").expect("request");
        serde_json::from_str(body).expect("JSON")
    };
    (result, asked.iter().map(body).collect())
}

async fn ask(replies: Vec<Reply>) -> (Result<Completion, PolicyError>, usize) {
    let (result, asked) = ask_with(replies, |_| {}).await;
    (result, asked.len())
}

#[tokio::test]
async fn a_request_has_the_key_and_the_conversation() {
    let (url, asked) = serve(vec![ok(HELLO)]).await;
    let policy = OpenAiPolicy::new(options(&url)).expect("client");
    let completion = policy.complete(request()).await.expect("reply");
    assert_eq!(completion.text, "hi");
    assert_eq!(completion.finish_reason.as_deref(), Some("eos"));
    assert!(completion.usage.is_estimated);
    assert!(completion.output_ids.is_empty());
    let asked = asked.lock().expect("lock")[0].clone();
    assert!(asked.starts_with("POST /v1/chat/completions"), "{asked}");
    assert!(asked.contains("Bearer sk-secret\r\n"));
    assert!(asked.contains(r#""content":"hello""#));
    assert!(!format!("{policy:?}").contains("secret"));
    assert!(!policy.id().as_str().contains("secret"));
}

#[tokio::test]
async fn every_shape_of_a_reply_comes_to_what_it_should() {
    let shapes = shapes::all();
    assert!(shapes.len() >= 60);
    for (name, reply, expected) in shapes {
        let (result, asked) = ask_with(vec![reply, ok(HELLO)], |_| {}).await;
        let is = |is_right: bool| assert!(is_right, "{name}: {result:?}, {expected:?}, {asked:?}");
        let is_first = asked.len() == 1;
        match (&expected, &result) {
            (Expected::Says(text), Ok(reply)) => {
                is(is_first && reply.text == *text && !reply.finish.is_cut());
            }
            (Expected::Thinks(reasoning, text), Ok(reply)) => {
                is(is_first && reply.text == *text && reply.reasoning == *reasoning);
                is(reply.usage.reasoning_tokens > 0 && !reply.finish.is_cut());
            }
            (Expected::Cut, Ok(reply)) => is(is_first && reply.finish.is_cut()),
            (Expected::CutInReasoning, Ok(reply)) => {
                is(is_first && reply.finish == Finish::Length);
                is(reply.usage.reasoning_tokens > 0);
            }
            (Expected::Calls(_) | Expected::Miscalls, Ok(reply)) => {
                is(is_first && reply.tool_calls.len() == 1);
            }
            (Expected::AskedAgain, Ok(reply)) => is(asked.len() == 2 && reply.text == "hi"),
            (Expected::Shortened(limit), Ok(reply)) => {
                is(reply.text == "hi" && asked[0]["max_tokens"] == 40);
                is(asked[1]["max_tokens"] == *limit);
            }
            (Expected::Renamed, Ok(reply)) => {
                is(reply.text == "hi" && asked[1]["max_completion_tokens"] == 40);
                is(asked[1].get("max_tokens").is_none());
            }
            (Expected::TooLong, Err(PolicyError::ContextOverflow { .. })) => is(is_first),
            (Expected::Refused, Err(error @ PolicyError::Refused { .. })) => {
                is(is_first && !error.is_retryable());
                is(!error.to_string().contains("sk-secret"));
            }
            (Expected::Waits(seconds), Err(PolicyError::RateLimited { wait })) => {
                is(is_first && wait.as_secs() == *seconds);
            }
            _ => is(false),
        }
    }
}

/// One rollout whose policy gets `reply` and then says that it doesn't know.
async fn play(format: CallFormat, replies: Vec<Reply>) -> (Trajectory, Vec<String>, Vec<Value>) {
    let (url, asked) = serve(replies).await;
    let options = OpenAiOptions {
        attempts: 1,
        ..options(&url)
    };
    let tool = Arc::new(ScriptedTool::playing(vec![printed("7\n"); 16]));
    let agent = agent(
        naive(format),
        Arc::new(OpenAiPolicy::new(options).expect("client")),
        Arc::clone(&tool) as Arc<dyn ToolRunner>,
    );
    let task = asking("How many?", "7");
    let trajectory = rollout(&agent, &task, Split::Evolve, 1).await;
    let asked = asked.lock().expect("lock");
    let body = |request: &String| {
        let (_, body) = request.split_once("\r\n\r\n").expect("request");
        serde_json::from_str(body).expect("JSON")
    };
    let asked = asked.iter().map(body).collect();
    let programs = tool.programs.lock().expect("lock").clone();
    (trajectory, programs, asked)
}

#[tokio::test]
async fn nothing_but_a_whole_reply_is_graded_or_trained_on() {
    let dont_know = ok(r#"{"choices":[{"message":{"content":"No."},"finish_reason":"stop"}]}"#);
    for (name, reply, expected) in shapes::all() {
        let (trajectory, programs, _) =
            play(CallFormat::Native, vec![reply, dont_know.clone()]).await;
        let exit = &trajectory.exit;
        let is = |is_right: bool| assert!(is_right, "{name}: {exit:?}, {expected:?}");
        let is_graded = trajectory.answer.is_some() || trajectory.verdict.correct;
        let trained = |trajectory: &Trajectory| {
            let messages = trajectory.messages.iter();
            messages.filter(|message| message.train).count()
        };
        match expected {
            Expected::Says(ANSWER) | Expected::Thinks(_, ANSWER) => {
                is(*exit == ExitReason::Answered && trajectory.verdict.correct);
            }
            // Only what stands outside the reasoning counts.
            Expected::Says(text) if text.contains("think>") => is(trajectory.verdict.correct),
            Expected::Says(_) | Expected::Thinks(..) => is(*exit == ExitReason::NoAnswer),
            Expected::Cut => {
                is(*exit == ExitReason::ReplyCut && !is_graded && trained(&trajectory) == 0);
            }
            Expected::CutInReasoning => {
                is(*exit == ExitReason::ReasoningCut && !is_graded && trained(&trajectory) == 0);
                is(trajectory
                    .events()
                    .any(|(_, event)| *event == Event::ReasoningLimit));
            }
            Expected::Calls(program) => {
                is(programs == [program] && *exit == ExitReason::NoAnswer);
                is(trained(&trajectory) == 2);
            }
            Expected::Miscalls => {
                is(programs.is_empty() && *exit == ExitReason::NoAnswer);
                let is_told = |event: &Event| matches!(event, Event::UnparsableCall { .. });
                is(trajectory.events().any(|(_, event)| is_told(event)));
                is(trained(&trajectory) == 1);
            }
            Expected::AskedAgain => {
                is(matches!(
                    exit,
                    ExitReason::Infrastructure {
                        is_retryable: true,
                        ..
                    }
                ));
                is(!is_graded && trained(&trajectory) == 0);
            }
            Expected::Refused | Expected::Waits(_) => {
                is(matches!(
                    exit,
                    ExitReason::Infrastructure {
                        is_retryable: false,
                        ..
                    }
                ));
                is(!is_graded && trained(&trajectory) == 0);
            }
            Expected::TooLong => {
                is(*exit == ExitReason::ContextLimit && !is_graded && trained(&trajectory) == 0);
            }
            Expected::Shortened(_) | Expected::Renamed => is(trained(&trajectory) <= 1),
        }
    }
}

#[tokio::test]
async fn native_calls_go_back_and_forth_through_the_interface() {
    let call = r#"{"choices":[{"message":{"content":"I compute.","tool_calls":[{"id":"c1","type":"function","function":{"name":"python","arguments":"{"}},{"id":"c2","type":"function","function":{"name":"python","arguments":{"code":"print(7)"}}}]},"finish_reason":"tool_calls"}]}"#;
    let answer =
        r#"{"choices":[{"message":{"content":"The answer is 7."},"finish_reason":"stop"}]}"#;
    let (trajectory, programs, asked) = play(CallFormat::Native, vec![ok(call), ok(answer)]).await;
    assert!(trajectory.verdict.correct);
    assert_eq!(programs, ["print(7)"]);
    let tool = &asked[0]["tools"][0];
    assert_eq!(tool["function"]["name"], "python");
    assert_eq!(tool["function"]["parameters"]["type"], "object");
    // What can't be read goes back as an object that can.
    let messages = asked[1]["messages"].as_array().expect("messages");
    let [.., said, error, result] = messages.as_slice() else {
        panic!("{messages:?}");
    };
    assert_eq!(said["content"], "I compute.");
    let calls = said["tool_calls"].as_array().expect("calls");
    let arguments = |call: &Value| -> Value {
        let text = call["function"]["arguments"].as_str().expect("text");
        serde_json::from_str(text).expect("JSON")
    };
    assert_eq!(arguments(&calls[0]), json!({"unreadable": "{"}));
    assert_eq!(arguments(&calls[1]), json!({"code": "print(7)"}));
    for (message, call) in [(error, &calls[0]), (result, &calls[1])] {
        assert_eq!(message["role"], "tool");
        assert_eq!(message["tool_call_id"], call["id"]);
    }
    let text = error["content"].as_str().expect("text");
    assert!(
        text.starts_with("[error] the call can't be read: "),
        "{text}"
    );
    assert_eq!(result["content"], "7");
    // The record reads back, and knows which messages are native.
    let json = serde_json::to_value(&trajectory).expect("JSON");
    assert_eq!(
        serde_json::from_value::<Trajectory>(json).expect("trajectory"),
        trajectory
    );
    assert!(trajectory.messages.iter().any(|message| message.is_native));
}

#[tokio::test]
async fn calls_beyond_what_one_reply_may_make_are_counted() {
    let call = |number| {
        json!({"type": "function", "function":
            {"name": "python", "arguments": {"code": format!("print({number})")}}})
    };
    let calls: Vec<Value> = (0..20).map(call).collect();
    let message = json!({"content": "I compute.", "tool_calls": calls});
    let body = json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]});
    let (trajectory, programs, asked) =
        play(CallFormat::Native, vec![ok(&body.to_string()), ok(HELLO)]).await;
    assert_eq!(programs.len(), 16);
    let events: Vec<&Event> = trajectory.events().map(|(_, event)| event).collect();
    assert!(
        events.contains(&&Event::CallsNotRun { count: 4 }),
        "{events:?}"
    );
    // None of them stays in the conversation, where it would have no result.
    let messages = asked[1]["messages"].as_array().expect("messages");
    let said = messages
        .iter()
        .find(|message| message["tool_calls"].is_array());
    assert_eq!(
        said.expect("calls")["tool_calls"].as_array().map(Vec::len),
        Some(16)
    );
}

#[tokio::test]
async fn a_call_written_into_the_text_is_told_to_the_policy() {
    let call = r#"{"choices":[{"message":{"content":"<tool_call>{\"name\":\"python\",\"arguments\":{\"code\":\"1\"}}</tool_call>"},"finish_reason":"stop"}]}"#;
    let (trajectory, programs, asked) = play(CallFormat::Native, vec![ok(call), ok(HELLO)]).await;
    assert!(programs.is_empty());
    assert!(matches!(
        trajectory.events().next(),
        Some((_, Event::UnparsableCall { reason })) if reason.contains("interface")
    ));
    // Nothing was called, so the error can't be a call's result.
    let last = asked[1]["messages"].as_array().and_then(|all| all.last());
    assert_eq!(last.expect("message")["role"], "user");
}

#[tokio::test]
async fn token_ids_are_kept_where_the_server_gives_them() {
    let body = r#"{"prompt_token_ids":[1,2,3],"choices":[{"message":{"content":"The answer is 7."},"finish_reason":"stop","token_ids":[4,5],"logprobs":{"content":[{"token":"The","logprob":-0.5},{"token":"x","logprob":-1.5}]}}]}"#;
    let (reply, asked) = ask_with(vec![ok(body)], |options| options.wants_token_ids = true).await;
    let reply = reply.expect("reply");
    assert_eq!(asked[0]["return_token_ids"], true);
    assert_eq!(asked[0]["logprobs"], true);
    assert_eq!(
        (reply.prompt_ids, reply.output_ids),
        (vec![1, 2, 3], vec![4, 5])
    );
    assert_eq!(reply.logprobs, [-0.5, -1.5]);
    // Log-probabilities of other tokens than the ids are none.
    let short = body.replace(r#",{"token":"x","logprob":-1.5}"#, "");
    let reply = ask(vec![ok(&short)]).await.0.expect("reply");
    assert_eq!((reply.output_ids.len(), reply.logprobs.len()), (2, 0));

    let (trajectory, ..) = play(CallFormat::Fenced, vec![ok(body)]).await;
    let call = &trajectory.model_calls[0];
    assert_eq!(
        (&call.prompt_ids[..], &call.output_ids[..]),
        (&[1, 2, 3][..], &[4, 5][..])
    );
    // The ids of a reply that was cut are nobody's to learn.
    let cut = body.replace("\"stop\"", "\"length\"");
    let (trajectory, ..) = play(CallFormat::Fenced, vec![ok(&cut)]).await;
    assert!(trajectory.model_calls[0].output_ids.is_empty());
}

#[tokio::test]
async fn streams_and_tools_are_asked_for() {
    let (url, asked) = serve(vec![ok(HELLO)]).await;
    let options = OpenAiOptions {
        is_streaming: true,
        ..options(&url)
    };
    let policy = OpenAiPolicy::new(options).expect("client");
    let mut request = request();
    request.stop = vec!["\n\n".into()];
    request.top_k = 20;
    request.min_p = 0.05;
    request.tools.push(ToolSchema {
        name: "python".into(),
        description: "Runs it.".into(),
        parameters: json!({"type": "object"}),
    });
    policy.complete(request).await.expect("reply");
    let asked = asked.lock().expect("lock");
    let (_, body) = asked[0].split_once("\r\n\r\n").expect("body");
    let body: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body["stream"], true);
    assert_eq!(body["stream_options"]["include_usage"], true);
    assert_eq!(body["stop"], json!(["\n\n"]));
    assert_eq!(body["top_k"], 20);
    assert_eq!(body["min_p"], 0.05);
    let tool =
        json!({"name": "python", "description": "Runs it.", "parameters": {"type": "object"}});
    assert_eq!(
        body["tools"],
        json!([{"type": "function", "function": tool}])
    );
}

#[tokio::test]
async fn the_same_failure_again_and_again_ends() {
    let poisoned = status(
        500,
        r#"{"error": {"message": "could not parse the arguments of a tool call"}}"#,
    );
    let (result, count) = ask(vec![poisoned; 5]).await;
    let error = result.expect_err("given up");
    assert!(error.is_retryable());
    let expected = "no reply from the server after 3 attempts: status 500: could not parse";
    assert!(error.to_string().starts_with(expected), "{error}");
    assert_eq!(count, 3);
}

#[tokio::test]
async fn a_wait_can_be_broken_off() {
    let busy = Reply::Whole(429, "retry-after: 2\r\n", "{}".into());
    let (url, asked) = serve(vec![busy, ok(HELLO)]).await;
    let policy = OpenAiPolicy::new(options(&url)).expect("client");
    let started = std::time::Instant::now();
    let reply = tokio::time::timeout(Duration::from_millis(200), policy.complete(request())).await;
    assert!(reply.is_err() && started.elapsed() < Duration::from_secs(1));
    assert_eq!(asked.lock().expect("lock").len(), 1);
    // The place in the queue is free again.
    let one = OpenAiOptions {
        most_in_flight: 1,
        ..options(&serve(vec![Reply::Hung, ok(HELLO)]).await.0)
    };
    let policy = OpenAiPolicy::new(one).expect("client");
    let hung = tokio::time::timeout(Duration::from_millis(50), policy.complete(request())).await;
    assert!(hung.is_err());
    assert_eq!(policy.complete(request()).await.expect("reply").text, "hi");
}

/// Time that a failing server takes from a rollout isn't the policy's.
#[tokio::test]
async fn a_deadline_tells_a_failing_server_from_a_slow_reply() {
    let soon = || Some(std::time::Instant::now() + Duration::from_millis(300));
    let with_deadline = || CompletionRequest {
        deadline: soon(),
        ..request()
    };
    // Asked again and again until the time is up.
    let (url, _) = serve(vec![status(503, "{}"); 50]).await;
    let patient = OpenAiOptions {
        attempts: 50,
        first_wait: Duration::from_millis(20),
        longest_wait: Duration::from_millis(40),
        ..options(&url)
    };
    let policy = OpenAiPolicy::new(patient).expect("client");
    let started = std::time::Instant::now();
    let error = policy
        .complete(with_deadline())
        .await
        .expect_err("no reply");
    assert!(error.is_retryable() && error.to_string().contains("status 503"));
    assert!(started.elapsed() < Duration::from_secs(2));
    // Failed once, and then hung.
    let (url, _) = serve(vec![status(503, "{}"), Reply::Hung, Reply::Hung]).await;
    let policy = OpenAiPolicy::new(options(&url)).expect("client");
    let error = policy
        .complete(with_deadline())
        .await
        .expect_err("no reply");
    assert!(error.is_retryable(), "{error}");
    // Kept waiting by others.
    let one = OpenAiOptions {
        most_in_flight: 1,
        timeout: Duration::from_secs(9),
        ..options(&serve(vec![Reply::Hung, Reply::Hung]).await.0)
    };
    let policy = OpenAiPolicy::new(one).expect("client");
    let (slow, waiting) = tokio::join!(
        tokio::time::timeout(Duration::from_secs(1), policy.complete(with_deadline())),
        policy.complete(with_deadline())
    );
    assert!(slow.is_err(), "a slow reply is the caller's to break off");
    let error = waiting.expect_err("no place").to_string();
    assert!(error.contains("1 requests were open"), "{error}");
}

#[tokio::test]
async fn a_rollout_whose_time_a_failing_server_took_is_no_wrong_answer() {
    let play = async |replies: Vec<Reply>| {
        let (url, _) = serve(replies).await;
        let options = OpenAiOptions {
            attempts: 50,
            first_wait: Duration::from_millis(20),
            longest_wait: Duration::from_millis(40),
            ..options(&url)
        };
        let agent = Agent {
            budget: RolloutBudget {
                max_tokens: 1000,
                wall: Duration::from_millis(400),
            },
            ..agent(
                naive(CallFormat::Json),
                Arc::new(OpenAiPolicy::new(options).expect("client")),
                Arc::new(ScriptedTool::default()),
            )
        };
        let task = asking("How many?", "7");
        rollout(&agent, &task, Split::Evolve, 1).await.exit
    };
    let exit = play(vec![status(503, "{}"); 50]).await;
    assert!(exit.is_infrastructure(), "{exit:?}");
    // As long as a reply may come, the server keeps the connection.
    let exit = play(vec![Reply::Hung, Reply::Hung]).await;
    assert_eq!(exit, ExitReason::WallBudget);
}

/// A reply in one piece gives no sign before it is there: what else comes tells whether the server hangs.
#[tokio::test]
async fn a_server_that_hangs_is_told_from_a_slow_one_without_streams() {
    const WALL: Duration = Duration::from_secs(2);
    let patient = |url: &str| {
        let options = OpenAiOptions {
            timeout: Duration::from_secs(9),
            unheard: Duration::from_millis(1200),
            ..options(url)
        };
        OpenAiPolicy::new(options).expect("client")
    };
    let play = async |replies: Vec<Reply>| {
        let (url, asked) = serve(replies).await;
        let agent = Agent {
            budget: RolloutBudget {
                max_tokens: 1000,
                wall: WALL,
            },
            ..agent(
                naive(CallFormat::Json),
                Arc::new(patient(&url)),
                Arc::new(ScriptedTool::default()),
            )
        };
        let task = asking("How many?", "7");
        let exit = rollout(&agent, &task, Split::Evolve, 1).await.exit;
        let asked = asked.lock().expect("lock").clone();
        (exit, asked)
    };
    // The last reply is nobody's: as long as it may come, the server keeps the connections.
    let (exit, asked) = play(vec![Reply::Hung; 3]).await;
    assert!(
        matches!(&exit, ExitReason::Infrastructure { reason, is_retryable: true, .. }
            if reason.contains("nothing came from it")),
        "{exit:?}"
    );
    assert!(
        asked.len() == 2 && asked[1].contains("\"max_tokens\":16"),
        "{asked:?}"
    );
    // It gives a few tokens that it is asked for.
    let (exit, asked) = play(vec![Reply::Hung, ok(HELLO), Reply::Hung]).await;
    assert_eq!((exit, asked.len()), (ExitReason::WallBudget, 2));
    // An error is no sign.
    let (exit, _) = play(vec![Reply::Hung, status(500, "{}"), Reply::Hung]).await;
    assert!(exit.is_infrastructure(), "{exit:?}");

    // It answers somebody else, and needn't be asked.
    let (url, asked) = serve(vec![Reply::Hung, ok(HELLO), Reply::Hung]).await;
    let policy = patient(&url);
    let slow = CompletionRequest {
        deadline: Some(std::time::Instant::now() + WALL),
        ..request()
    };
    let (slow, other) = tokio::join!(
        tokio::time::timeout(WALL + Duration::from_millis(200), policy.complete(slow)),
        async {
            tokio::time::sleep(WALL / 2).await;
            policy.complete(request()).await
        }
    );
    assert!(slow.is_err(), "a slow reply is the caller's to break off");
    assert_eq!(other.expect("reply").text, "hi");
    assert_eq!(asked.lock().expect("lock").len(), 2);
}

#[tokio::test]
async fn a_reply_that_was_shortened_once_is_not_shortened_again() {
    let long = status(
        400,
        r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 50 + 40 > 80"}}"#,
    );
    let again = status(
        400,
        r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 50 + 30 > 70"}}"#,
    );
    let (result, count) = ask(vec![long, again, ok(HELLO)]).await;
    assert!(matches!(result, Err(PolicyError::ContextOverflow { .. })));
    assert_eq!(count, 2);
}
