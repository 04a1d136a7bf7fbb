//! The LLM critic over HTTP: a server on this machine that plays recorded replies, good and bad.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use coharness::config::LlmCriticConfig;
use coharness::critic_chat::ServedChat;
use coharness::error::RunError;
use critic::{Critic, Critique, LlmCritic, LlmOptions, RulesCritic, cluster};
use harness::{Harness, MemoryKind};
use rollout::{
    BoxFuture, Completion, CompletionRequest, Finish, Policy, PolicyError, PolicyId, RolloutBudget,
    Split, Task, TaskId, Trajectory, Usage, VerifierKind,
};
use serde_json::{Value, json};

use crate::scene::FortyTwo;
use crate::server::{self, Answer};
use crate::{CONFIG, Place, tasks};

/// A gold answer that must never be seen.
pub(crate) const GOLD: &str = "77345";

/// Serves `replies` in order, each with its status, and hands the requests' bodies over.
fn serve(replies: Vec<(u16, String)>) -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address");
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for (status, body) in replies {
            let (mut stream, _) = listener.accept().expect("connection");
            let _ = sender.send(request(&mut stream));
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
            );
            stream.write_all((head + &body).as_bytes()).expect("reply");
        }
    });
    (format!("http://{address}/v1"), requests)
}

/// The JSON body of one request.
fn request(stream: &mut TcpStream) -> Value {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.parse::<usize>().ok())?
            });
            if body.len() >= length.unwrap_or(0) {
                return serde_json::from_str(body).expect("JSON");
            }
        }
        let count = stream.read(&mut part).expect("request");
        assert!(count > 0, "the request breaks off");
        bytes.extend_from_slice(&part[..count]);
    }
}

fn completion(text: &str, finish: &str) -> (u16, String) {
    let body = json!({
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 900, "completion_tokens": 80},
    });
    (200, body.to_string())
}

fn good() -> (u16, String) {
    completion(&finding().to_string(), "stop")
}

fn config(base_url: &str) -> LlmCriticConfig {
    let text = format!("{{base_url: '{base_url}', model: critic-1}}");
    harness::yaml::from_str(&text).expect("a section")
}

/// Calls the tool, and then says what a note says.
struct Believer(PolicyId);

impl Policy for Believer {
    fn id(&self) -> &PolicyId {
        &self.0
    }

    fn complete(
        &self,
        request: CompletionRequest,
    ) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        let text = match request.messages.len() {
            2 => "```python\nprint(6 * 7)\n```",
            _ => "As the notes say, the answer is \\boxed{99}.",
        };
        let completion = Completion {
            text: text.to_owned(),
            reasoning: String::new(),
            finish: Finish::Stop,
            finish_reason: None,
            prompt_ids: Vec::new(),
            output_ids: Vec::new(),
            logprobs: Vec::new(),
            usage: Usage::default(),
            tool_calls: Vec::new(),
        };
        Box::pin(async move { Ok(completion) })
    }
}

pub(crate) fn noted() -> Harness {
    let mut harness = harness::naive().expect("the shipped harness");
    harness.middleware.protocol.call_format = harness::CallFormat::Fenced;
    harness.memory.kind = MemoryKind::Notes;
    harness.memory.capacity = 2;
    harness.memory.entries = vec!["Trust the ninety-ninth page.".into()];
    harness
}

/// Two real rollouts of problems whose gold answer is [`GOLD`].
pub(crate) async fn failures() -> Vec<Trajectory> {
    let agent = rollout::Agent {
        harness: noted().into(),
        policy: std::sync::Arc::new(Believer(PolicyId::new("believer"))),
        sandbox: std::sync::Arc::new(FortyTwo),
        verifier: rollout::verifier::build(&VerifierKind::Integer, None),
        budget: RolloutBudget {
            max_tokens: 1000,
            wall: std::time::Duration::from_secs(20),
        },
        sandbox_level: "test".into(),
    };
    let mut trajectories = Vec::new();
    for number in 0..2 {
        let task = Task {
            id: TaskId::new(format!("t{number}")),
            problem: format!("What is 6 times 7, for the {number}th time?"),
            answer: GOLD.into(),
        };
        trajectories.push(rollout::rollout(&agent, &task, Split::Evolve, number).await);
    }
    trajectories
}

fn finding() -> Value {
    let quote = "As the notes say, the answer is \\boxed{99}.";
    json!({"findings": [{"name": "ninety-ninth page", "root_cause": "memory_overflow",
        "harness_dim": "M", "severity": "high",
        "evidence": [{"rollout": "R1", "step": 5, "quote": quote},
                     {"rollout": "R2", "step": 5, "quote": quote}],
        "diff_suggestion": [{"op": "remove", "path": "memory.entries[0]"}],
        "fixes": ["R1", "R2"]}]})
}

async fn critique(base_url: &str) -> Critique {
    let chat = ServedChat::new(&config(base_url), |_| None).expect("a client");
    critique_by(&chat).await
}

async fn critique_by(chat: &ServedChat) -> Critique {
    let trajectories = failures().await;
    let records = RulesCritic::default()
        .diagnose(&noted(), &trajectories)
        .records;
    let clusters = cluster(&records, &trajectories);
    let critic = LlmCritic {
        chat,
        options: LlmOptions::default(),
        seed: 1,
    };
    critic
        .critique(&noted(), &trajectories, &records, &clusters)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_reply_gives_records_and_its_cost_is_counted() {
    let (url, requests) = serve(vec![good()]);
    let critique = critique(&url).await;
    assert_eq!(critique.skipped, None, "{critique:?}");
    assert_eq!(critique.records.len(), 2, "{critique:?}");
    assert_eq!(critique.records[0].rule, "llm/ninety_ninth_page");
    assert_eq!(critique.model, format!("openai:critic-1@{url}"));
    assert_eq!((critique.cost.calls, critique.cost.unusable), (1, 0));
    assert_eq!(critique.cost.usage.prompt_tokens, 900);
    assert_eq!(critique.cost.usage.completion_tokens, 80);
    // Rules blame the loop for an answer that isn't the printed number.
    assert_eq!(critique.disagreements.len(), 2, "{critique:?}");

    let request = requests.recv().expect("a request");
    assert_eq!(request["response_format"]["type"], "json_schema");
    let text = request.to_string();
    assert!(text.contains("ninety-ninth page"));
    assert!(!text.contains(GOLD), "the gold answer was sent");
    assert!(!text.contains("\"correct\"") && !text.contains("verdict"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_structured_output_is_asked_in_words() {
    let refusal = json!({"error": {"message": "response_format json_schema is not supported"}});
    let (url, requests) = serve(vec![(400, refusal.to_string()), good(), good()]);
    let chat = ServedChat::new(&config(&url), |_| None).expect("a client");
    assert_eq!(critique_by(&chat).await.records.len(), 2);
    assert_eq!(critique_by(&chat).await.records.len(), 2);
    let formats: Vec<bool> = requests
        .iter()
        .take(3)
        .map(|request| request.get("response_format").is_some())
        .collect();
    // Refused once, and from then on not tried again.
    assert_eq!(formats, [true, false, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_bad_replies_are_mended_or_asked_for_again() {
    let good_text = finding().to_string();
    let sloppy = good_text
        .replace("]}]}", "],}],}")
        .replace("\"high\"", "\"High\"");
    let fenced = format!("Here is what I found:\n```json\n{sloppy}\n```\nHope it helps!");
    for text in [
        fenced.as_str(),
        &format!("<think>Is it {{R1}}?</think>{sloppy}"),
        &finding()["findings"].to_string(),
    ] {
        let (url, _requests) = serve(vec![completion(text, "stop")]);
        let critique = critique(&url).await;
        assert_eq!(critique.records.len(), 2, "{text}: {critique:?}");
        assert_eq!(critique.cost.unusable, 0);
    }
    let cut = &good_text[..good_text.len() / 2];
    for (text, finish) in [
        (cut, "length"),
        ("I'm sorry, I can't do that.", "stop"),
        ("{\"findings\": [{\"name\": \"x\"}]}", "stop"),
        ("", "stop"),
    ] {
        let (url, requests) = serve(vec![completion(text, finish), good()]);
        let critique = critique(&url).await;
        assert_eq!(critique.records.len(), 2, "{text}: {critique:?}");
        assert_eq!(
            (critique.cost.calls, critique.cost.unusable),
            (2, 1),
            "{text}"
        );
        let again = requests
            .iter()
            .nth(1)
            .expect("a second request")
            .to_string();
        assert!(again.contains("can't be used"), "{again}");
    }
    let (url, _requests) = serve(vec![completion(cut, "length"), completion(cut, "length")]);
    let critique = critique(&url).await;
    assert!(critique.skipped.expect("skipped").contains("breaks off"));
    assert_eq!((critique.cost.calls, critique.records.len()), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fails_holds_a_critique_up_for_a_while_only() {
    let (url, _requests) = serve(vec![(503, "{}".to_owned()); 8]);
    let chat = ServedChat::new(&config(&url), |_| None).expect("a client");
    let began = Instant::now();
    // Five attempts take four seconds, and where a server lets them run out of time, most of an hour.
    let critique = critique_by(&chat.with_patience(Duration::from_millis(300))).await;
    assert!(began.elapsed() < Duration::from_secs(3));
    let reason = critique.skipped.expect("skipped");
    assert!(reason.contains("status 503"), "{reason}");
    assert_eq!(critique.records.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_keeps_a_request_open_holds_a_critique_up_no_longer() {
    let url = server::serve(|_| {
        std::thread::sleep(Duration::from_secs(10));
        Answer::Cut
    });
    let chat = ServedChat::new(&config(&url), |_| None).expect("a client");
    let began = Instant::now();
    let critique = critique_by(&chat.with_patience(Duration::from_millis(300))).await;
    assert!(began.elapsed() < Duration::from_secs(3));
    let reason = critique.skipped.expect("skipped");
    assert!(reason.contains("no whole reply within 0.3 s"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_is_too_long_skips_the_critique() {
    let message =
        "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens.";
    let body = json!({"error": {"message": message, "code": "context_length_exceeded"}});
    let (url, _requests) = serve(vec![(400, body.to_string())]);
    let critique = critique(&url).await;
    assert!(critique.skipped.expect("skipped").contains("too long"));
}

#[test]
fn a_missing_key_is_named_with_its_field() {
    let mut config = config("http://127.0.0.1:1/v1");
    config.api_key_env = Some("NO_SUCH_KEY".into());
    let Err(error) = ServedChat::new(&config, |_| None) else {
        panic!("a client without its key");
    };
    assert!(matches!(error, RunError::NoKey { .. }));
    assert_eq!(
        error.to_string(),
        "critic.llm.api_key_env: the environment has no NO_SUCH_KEY"
    );
}

#[test]
fn impossible_settings_are_refused_by_field() {
    let run_with = |section: &str| {
        let place = Place::new();
        place.write("tasks.jsonl", &tasks(8));
        place.write("run.yaml", &format!("{CONFIG}critic: {section}\n"));
        place.run(&["run", "--config", "run.yaml"])
    };
    let llm =
        |more: &str| format!("{{llm: {{base_url: 'http://127.0.0.1:1/v1', model: m{more}}}}}");
    for (section, words) in [
        (
            "{llm: {base_url: 'localhost:1', model: m}}".to_owned(),
            "critic.llm.base_url: must start",
        ),
        (
            "{llm: {base_url: 'http://127.0.0.1:1/v1', model: ' '}}".to_owned(),
            "critic.llm.model: ",
        ),
        (
            llm(", max_tokens: 8"),
            "critic.llm.max_tokens: a finding takes",
        ),
        (
            llm(", context_tokens: 3000"),
            "critic.llm.context_tokens: must be at least",
        ),
        (llm(", temperature: 3"), "critic.llm.temperature: must lie"),
        (llm(", excerpt_rounds: 99"), "critic.llm: excerpt_rounds"),
        (llm(", answers: true"), "answers"),
        ("{growth: {hooks: many}}".to_owned(), "run.yaml:9:26"),
    ] {
        let text = run_with(&section);
        assert!(text.contains(words), "{words} is missing in {text}");
        assert!(text.ends_with("--- exit 2\n"), "{text}");
    }
}
