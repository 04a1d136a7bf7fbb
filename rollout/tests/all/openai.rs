//! The client against a server that plays from a script.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rollout::{
    ApiKey, CompletionRequest, Message, OpenAiOptions, OpenAiPolicy, Policy, PolicyError, Role,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const HELLO: &str = r#"{"choices": [{"message": {"content": "hi"}, "finish_reason": "eos"}]}"#;

/// A reply: status, headers, body. No status: the connection is closed.
type Reply = (u16, &'static str, &'static str);

/// Serves the replies in order, one a connection. Gives the address and what was asked.
async fn serve(replies: Vec<Reply>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let address = listener.local_addr().expect("address");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    tokio::spawn(async move {
        for (status, headers, body) in replies {
            let (mut stream, _) = listener.accept().await.expect("connection");
            let mut request = Vec::new();
            while !is_whole(&request) {
                let mut part = [0; 4096];
                let count = stream.read(&mut part).await.expect("request");
                request.extend_from_slice(&part[..count]);
            }
            log.lock()
                .expect("lock")
                .push(String::from_utf8_lossy(&request).into_owned());
            if status > 0 {
                let length = body.len();
                let reply = format!(
                    "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
                );
                stream.write_all(reply.as_bytes()).await.expect("reply");
            }
        }
    });
    (format!("http://{address}/v1/"), asked)
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length: ")?
            .parse::<usize>()
            .ok()
    });
    body.len() >= length.unwrap_or(0)
}

fn options(base_url: &str) -> OpenAiOptions {
    OpenAiOptions {
        api_key: Some(ApiKey::new("sk-secret")),
        timeout: Duration::from_secs(5),
        attempts: 3,
        first_wait: Duration::from_millis(1),
        longest_wait: Duration::from_secs(2),
        ..OpenAiOptions::new(base_url, "small")
    }
}

fn request() -> CompletionRequest {
    CompletionRequest {
        messages: vec![Message::new(Role::User, "hello")],
        tools: Vec::new(),
        max_tokens: 9,
        context_tokens: 99,
        temperature: 0.5,
        top_p: 1.0,
        top_k: 0,
        stop: Vec::new(),
        seed: 3,
        prior: None,
    }
}

async fn ask(replies: Vec<Reply>) -> (Result<String, PolicyError>, usize) {
    let (url, asked) = serve(replies).await;
    let policy = OpenAiPolicy::new(options(&url)).expect("client");
    let result = policy
        .complete(request())
        .await
        .map(|completion| completion.text);
    let count = asked.lock().expect("lock").len();
    (result, count)
}

#[tokio::test]
async fn a_request_has_the_key_and_the_conversation() {
    let (url, asked) = serve(vec![(200, "", HELLO)]).await;
    let policy = OpenAiPolicy::new(options(&url)).expect("client");
    let completion = policy.complete(request()).await.expect("reply");
    assert_eq!(completion.text, "hi");
    assert!(completion.usage.is_estimated);
    assert!(completion.output_ids.is_empty());
    let asked = asked.lock().expect("lock")[0].clone();
    assert!(asked.starts_with("POST /v1/chat/completions"), "{asked}");
    assert!(asked.contains("Bearer sk-secret"));
    assert!(asked.contains(r#""content":"hello""#));
    assert!(!format!("{policy:?}").contains("secret"));
    assert!(!policy.id().as_str().contains("secret"));
}

#[tokio::test]
async fn busy_and_broken_servers_are_asked_again() {
    let overloaded = (503, "", r#"{"error": {"message": "overloaded"}}"#);
    for first in [
        (429, "retry-after: 0\r\n", "{}"),
        overloaded,
        (0, "", ""),
        (
            200,
            "",
            r#"{"error": {"message": "TimeoutError", "code": 504}}"#,
        ),
        (200, "", "{\"choices\": [{\"mess"),
    ] {
        let (result, count) = ask(vec![first, (200, "", HELLO)]).await;
        assert_eq!(
            (result.expect("reply").as_str(), count),
            ("hi", 2),
            "{first:?}"
        );
    }
    let (result, count) = ask(vec![overloaded; 5]).await;
    let error = result.expect_err("given up");
    assert!(error.is_retryable());
    assert!(
        error
            .to_string()
            .contains("3 attempts: status 503: overloaded"),
        "{error}"
    );
    assert_eq!(count, 3);
}

#[tokio::test]
async fn a_pause_beyond_the_longest_is_an_error_that_says_so() {
    let (result, count) = ask(vec![(429, "retry-after: 3600\r\n", "{}")]).await;
    assert!(matches!(
        result,
        Err(PolicyError::RateLimited { wait }) if wait == Duration::from_secs(3600)
    ));
    assert_eq!(count, 1);
}

#[tokio::test]
async fn what_cannot_get_better_is_asked_once() {
    let long = r#"{"error": {"message": "This model's maximum context length is 8192 tokens."}}"#;
    for status in [400, 500] {
        let (result, count) = ask(vec![(status, "", long)]).await;
        assert!(matches!(result, Err(PolicyError::ContextOverflow { .. })));
        assert_eq!(count, 1);
    }
    let body = r#"{"error": {"message": "Incorrect API key provided: sk-secret"}}"#;
    let (result, count) = ask(vec![(401, "", body)]).await;
    let error = result.expect_err("refused");
    assert!(!error.is_retryable());
    assert_eq!(
        error.to_string(),
        "the server refused the request with status 401: Incorrect API key provided: …"
    );
    assert_eq!(count, 1);
}
