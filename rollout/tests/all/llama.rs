//! The client against llama.cpp's own server, where one can be started: `COHARNESS_TEST_LLAMA_SERVER`
//! is a command that serves a small chat model, prints its address and ends on SIGTERM.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use harness::{CallFormat, Harness};
use rollout::{
    Completion, CompletionRequest, ExitReason, Finish, Message, OpenAiOptions, OpenAiPolicy,
    Policy, PolicyError, Role, Split, ToolRunner, Trajectory, rollout,
};
use tokio::task::JoinSet;

use crate::world::{ScriptedTool, agent, asking, example, naive, printed};

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

/// Starts the server; with `needs_tools`, under a chat template that renders tools.
fn start(needs_tools: bool) -> Option<Server> {
    let Ok(command) = std::env::var("COHARNESS_TEST_LLAMA_SERVER") else {
        println!("skipped: COHARNESS_TEST_LLAMA_SERVER names no command");
        return None;
    };
    let words: Vec<&str> = command.split_whitespace().collect();
    let (program, arguments) = words.split_first().expect("a command");
    let mut command = Command::new(program);
    command.args(arguments);
    if needs_tools {
        let script = arguments.iter().map(Path::new);
        let template = script
            .map(|path| path.with_file_name("tools_template.jinja"))
            .find(|template| template.is_file());
        let Some(template) = template else {
            println!("skipped: there is no tools_template.jinja beside the server");
            return None;
        };
        command.arg("--chat-template").arg(template);
    }
    let mut process = command
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

fn policy(server: &Server, is_streaming: bool) -> OpenAiPolicy {
    OpenAiPolicy::new(OpenAiOptions {
        is_streaming,
        wants_token_ids: true,
        ..OpenAiOptions::new(&server.url, "small")
    })
    .expect("client")
}

fn request(text: &str) -> CompletionRequest {
    CompletionRequest {
        context_tokens: 1024,
        seed: 3,
        ..CompletionRequest::new(vec![Message::new(Role::User, text)], 24)
    }
}

#[tokio::test]
async fn a_real_server_answers_in_one_piece_and_in_many() {
    let Some(server) = start(false) else { return };
    let question = "What is the capital of France? Answer in one sentence.";
    let mut replies: Vec<Completion> = Vec::new();
    for is_streaming in [false, true] {
        let policy = policy(&server, is_streaming);
        let reply = policy.complete(request(question)).await.expect("reply");
        assert!(reply.text.contains("Paris"), "{}", reply.text);
        assert_eq!(reply.finish, Finish::Stop);
        assert!(!reply.usage.is_estimated && reply.usage.completion_tokens > 3);
        replies.push(reply);

        let cut = policy
            .complete(CompletionRequest {
                max_tokens: 3,
                ..request(question)
            })
            .await;
        let cut = cut.expect("reply");
        assert_eq!(
            (cut.finish, cut.usage.completion_tokens),
            (Finish::Length, 3)
        );

        let stop = vec!["Paris".to_owned()];
        let stopped = policy
            .complete(CompletionRequest {
                stop,
                ..request(question)
            })
            .await;
        assert!(!stopped.expect("reply").text.contains("Paris"));

        let hot = |seed: u64| CompletionRequest {
            temperature: 1.5,
            seed: seed << 33,
            ..request(question)
        };
        let mut texts = Vec::new();
        for seed in [7, 7, 8] {
            texts.push(policy.complete(hot(seed)).await.expect("reply").text);
        }
        assert!(texts[0] == texts[1] && texts[1] != texts[2], "{texts:?}");

        let long = policy.complete(request(&"word ".repeat(3000))).await;
        assert!(
            matches!(long, Err(PolicyError::ContextOverflow { .. })),
            "{long:?}"
        );
    }
    assert_eq!(replies[0].text, replies[1].text);
    assert_eq!(
        replies[0].usage.completion_tokens,
        replies[1].usage.completion_tokens
    );
}

/// A harness that has shown the tool a few times: the model is small.
fn taught(format: CallFormat) -> Harness {
    let mut harness = naive(format);
    harness.middleware.protocol.max_tokens_per_turn = 64;
    harness.middleware.context.max_tokens = 1024;
    harness.middleware.sampling.temperature = 0.0;
    let sums = [(12, 30), (7, 8), (40, 3), (100, 5)];
    let solved = |(a, b): (u32, u32)| {
        let sum = format!("{a} + {b}");
        example(&basket(a, b), &sum, &(a + b).to_string())
    };
    harness.prompts.examples = sums.map(solved).into();
    harness
}

fn basket(a: u32, b: u32) -> String {
    format!("A basket holds {a} apples. {b} more are put in. How many are there?")
}

async fn roll(server: &Server, format: CallFormat, count: u32) -> Vec<(Trajectory, usize)> {
    let mut running = JoinSet::new();
    for number in 0..count {
        let tool = Arc::new(ScriptedTool::playing(vec![printed("42\n"); 8]));
        let agent = agent(
            taught(format),
            Arc::new(policy(server, number % 2 == 1)),
            Arc::clone(&tool) as Arc<dyn ToolRunner>,
        );
        let task = asking(&basket(20 + number, 20), "42");
        running.spawn(async move {
            let trajectory = rollout(&agent, &task, Split::Evolve, number.into()).await;
            let programs = tool.programs.lock().expect("lock").len();
            (trajectory, programs)
        });
    }
    running.join_all().await
}

#[tokio::test]
async fn rollouts_call_the_tool_through_a_real_server() {
    let Some(server) = start(false) else { return };
    let done = roll(&server, CallFormat::Fenced, 4).await;
    check(&done);
}

#[tokio::test]
async fn rollouts_call_the_tool_through_a_real_servers_interface() {
    let Some(server) = start(true) else { return };
    let done = roll(&server, CallFormat::Native, 4).await;
    check(&done);
    let is_native = |(trajectory, programs): &(Trajectory, usize)| {
        let mut written = trajectory.messages.iter().filter(|message| message.train);
        *programs > 0 && written.any(|message| message.is_native && !message.tool_calls.is_empty())
    };
    assert!(done.iter().any(is_native), "{:#?}", done[0].0.messages);
}

fn check(done: &[(Trajectory, usize)]) {
    let called = done.iter().filter(|(_, programs)| *programs > 0).count();
    let right = done
        .iter()
        .filter(|(trajectory, _)| trajectory.verdict.correct)
        .count();
    println!(
        "{} rollouts: {called} called the tool, {right} gave its number",
        done.len()
    );
    for (trajectory, _) in done {
        assert!(
            !matches!(trajectory.exit, ExitReason::Infrastructure { .. }),
            "{:?}",
            trajectory.exit
        );
        assert!(!trajectory.usage.is_estimated);
    }
    assert!(called > 0, "{:#?}", done[0].0.messages);
}
