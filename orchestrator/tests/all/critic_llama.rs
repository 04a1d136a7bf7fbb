//! The LLM critic against llama.cpp's own server, where one can be started: `COHARNESS_TEST_LLAMA_SERVER`
//! is a command that serves a small chat model, takes `--ctx` and `--parallel`, prints its address and
//! ends when it is killed. What so small a model says is of no use; what becomes of it is the test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use coharness::config::LlmCriticConfig;
use coharness::critic_chat::ServedChat;
use critic::llm::{Chat, ChatError, ChatReply, ChatRequest};
use critic::{Critic, LlmCritic, RulesCritic, check_evidence, cluster};
use rollout::{BoxFuture, Message, Role, Usage};

use crate::critic::{GOLD, failures, noted};

/// Tokens of the server's context.
const CONTEXT: &str = "8192";

/// A running server, ended when it goes out of scope.
struct Server {
    process: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The test has its answer by then.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start() -> Option<Server> {
    let Ok(command) = std::env::var("COHARNESS_TEST_LLAMA_SERVER") else {
        println!("skipped: COHARNESS_TEST_LLAMA_SERVER names no command");
        return None;
    };
    let words: Vec<&str> = command.split_whitespace().collect();
    let (program, arguments) = words.split_first().expect("a command");
    let mut process = Command::new(program)
        .args(arguments)
        .args(["--ctx", CONTEXT, "--parallel", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut line = String::new();
    let output = process.stdout.take().expect("output");
    BufReader::new(output)
        .read_line(&mut line)
        .expect("an address");
    let url = format!("{}/v1", line.trim());
    Some(Server { process, url })
}

/// A conversation so far, and what is answered.
type Said = (Vec<Message>, Result<ChatReply, ChatError>);

/// A chat of which every word is kept.
struct Overheard {
    chat: ServedChat,
    said: Mutex<Vec<Said>>,
}

impl Chat for Overheard {
    fn name(&self) -> &str {
        self.chat.name()
    }

    fn ask(&self, request: ChatRequest) -> BoxFuture<'_, Result<ChatReply, ChatError>> {
        let messages = request.messages.clone();
        Box::pin(async move {
            let reply = self.chat.ask(request).await;
            let mut said = self.said.lock().expect("lock");
            said.push((messages, reply.clone()));
            reply
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_server_is_asked_as_it_should_be_and_all_it_says_is_accounted_for() {
    let Some(server) = start() else { return };
    let trajectories = failures().await;
    let harness = noted();
    let records = RulesCritic::default()
        .diagnose(&harness, &trajectories)
        .records;
    assert!(!records.is_empty());
    let clusters = cluster(&records, &trajectories);
    // With excerpts and without: the first may be asked for, the second has to answer at once.
    for excerpt_rounds in [1, 0] {
        let text = format!(
            "{{base_url: '{}', model: small, context_tokens: {CONTEXT}, max_tokens: 384, retries: 1, \
             excerpt_rounds: {excerpt_rounds}}}",
            server.url
        );
        let config: LlmCriticConfig = harness::yaml::from_str(&text).expect("a section");
        let chat = Overheard {
            chat: ServedChat::new(&config, |_| None).expect("a client"),
            said: Mutex::default(),
        };
        let critic = LlmCritic {
            chat: &chat,
            options: config.options(),
            seed: 3,
        };
        let critique = critic
            .critique(&harness, &trajectories, &records, &clusters)
            .await;
        let said = chat.said.into_inner().expect("lock");
        println!("{critique:#?}");

        // Every request is answered, and counted with its cost.
        assert_eq!(critique.cost.calls as usize, said.len());
        let mut usage = Usage::default();
        for (messages, reply) in &said {
            let reply = reply.as_ref().expect("a reply");
            println!("{}: {:?}", reply.text, reply.usage);
            usage.add(&reply.usage);
            assert!(!reply.usage.is_estimated && reply.usage.completion_tokens > 0);
            assert_is_sound(messages, reply.usage.prompt_tokens);
        }
        assert_eq!(critique.cost.usage, usage);

        // What it says is either a record that holds, or gone with a reason.
        for record in &critique.records {
            let id = &record.evidence.trajectory;
            let trajectory = trajectories.iter().find(|t| t.id == *id);
            let trajectory = trajectory.expect("a rollout that was shown");
            assert_eq!(check_evidence(record, trajectory), Ok(()));
            assert!(record.rule.starts_with("llm/"), "{}", record.rule);
        }
        assert!(critique.cost.unusable <= critique.cost.calls);
        match &critique.skipped {
            Some(reason) => {
                assert!(!reason.is_empty() && critique.cost.unusable == 2);
                assert!(critique.records.is_empty());
            }
            None => assert!(critique.cost.unusable < critique.cost.calls),
        }
    }
}

/// Checks a conversation, of which the server has counted the tokens.
fn assert_is_sound(messages: &[Message], tokens: u64) {
    assert_eq!(messages[0].role, Role::System);
    for (at, message) in messages.iter().enumerate().skip(1) {
        let expected = [Role::Assistant, Role::User][at % 2];
        assert_eq!(message.role, expected, "message {at}");
    }
    let mut texts = messages.iter().map(|message| &message.content);
    assert!(
        !texts.any(|text| text.contains(GOLD)),
        "the gold answer was sent"
    );
    // The estimate that what is shown is cut by: three characters a token.
    let characters = messages
        .iter()
        .map(|message| message.content.chars().count() + 24);
    let estimate = characters.sum::<usize>() / 3;
    assert!(
        tokens <= estimate as u64,
        "{tokens} tokens, and {estimate} were reckoned with"
    );
}
