//! Calls under a grammar: proposed to a policy that can be held to one, and never to another.

use std::path::Path;
use std::sync::Arc;

use coharness::history::History;
use coharness::report::Report;
use coharness::splits::Splits;
use coharness::workshop::Workshop;
use rollout::{
    BoxFuture, Completion, CompletionRequest, Finish, Message, Policy, PolicyError, PolicyId, Usage,
};

use crate::Place;
use crate::scene::{FortyTwo, Scene, numbered, small};

/// A model that leaves the quotes of its programs out, in whatever form it calls, unless it is held.
struct Careless {
    id: PolicyId,
    follows: bool,
}

impl Careless {
    fn policy(follows: bool) -> Arc<dyn Policy> {
        Arc::new(Careless {
            id: PolicyId::new("careless"),
            follows,
        })
    }

    fn reply(messages: &[Message], is_held: bool) -> String {
        let system = &messages[0].content;
        let result = &messages[messages.len() - 1].content;
        if result.lines().any(|line| line.trim() == "42") {
            return "It is \\boxed{42}.".into();
        }
        if is_held {
            let arguments = r#"{"code": "print(6 * 7)"}"#;
            return match system.contains("<tool_call>") {
                true => format!(
                    "<tool_call>\n{{\"name\": \"python\", \"arguments\": {arguments}}}\n</tool_call>"
                ),
                false => format!("{{\"name\": \"python\", \"arguments\": {arguments}}}"),
            };
        }
        if system.contains("<tool_call>") || system.contains("\"parameters\"") {
            return "{\"name\": \"python\", \"arguments\": print(6 * 7".into();
        }
        "I think it is \\boxed{7}.".into()
    }
}

impl Policy for Careless {
    fn id(&self) -> &PolicyId {
        &self.id
    }

    fn follows_grammars(&self) -> bool {
        self.follows
    }

    fn complete(
        &self,
        request: CompletionRequest,
    ) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        let text = Self::reply(&request.messages, request.grammar.is_some());
        Box::pin(async move {
            Ok(Completion {
                text,
                reasoning: String::new(),
                finish: Finish::Stop,
                finish_reason: None,
                prompt_ids: Vec::new(),
                output_ids: Vec::new(),
                logprobs: Vec::new(),
                usage: Usage {
                    prompt_tokens: 50,
                    completion_tokens: 20,
                    ..Usage::default()
                },
                tool_calls: Vec::new(),
            })
        })
    }
}

async fn workshop(directory: &Path) -> Workshop {
    let text = |number: u32| format!("What is 6 times 7, for the time number {number}?");
    let mut tasks = numbered("product", 52, text, |_| 42);
    let mut splits = Splits::only_test(Vec::new());
    splits.gate = tasks.split_off(12);
    splits.evolve = tasks;
    let more = "gate: {tasks: 20}
harness_loop: {iterations: 1, diagnose_tasks: 12, candidates: 4}";
    let scene = Scene {
        config: &small([12, 40, 1], more),
        splits,
        directory,
        is_aloud: false,
    };
    let start = harness::naive().expect("the shipped harness");
    scene.with_tools(&start, Arc::new(FortyTwo)).await
}

/// Whether calls are decoded under a grammar after a round, and the report.
async fn round(follows: bool) -> (bool, Report) {
    let place = Place::new();
    let workshop = workshop(place.path()).await;
    let start = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let policy = Careless::policy(follows);
    let end = workshop
        .harness_loop(1, start, &policy, &mut history)
        .await
        .expect("a loop");
    let report = Report::read(&workshop.store).await.expect("a report");
    (end.harness.middleware.protocol.constrained, report)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_can_be_held_to_a_grammar_is() {
    let (is_constrained, report) = round(true).await;
    assert!(is_constrained, "{:#?}", report.patch_decisions);
    let accepted = report.patch_decisions.iter();
    let mut accepted = accepted.filter(|row| row.version.is_some());
    let row = accepted.next().expect("an accepted patch");
    assert_eq!(row.dimension, "Mid");
    assert!(
        row.ops
            .to_string()
            .contains("middleware.protocol.constrained")
    );
    assert_eq!(
        row.effect.as_ref().map(|effect| effect.fixed.len()),
        Some(12)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_can_not_is_never_asked_to() {
    let (is_constrained, report) = round(false).await;
    assert!(!is_constrained);
    assert!(!report.patch_decisions.is_empty());
    // Neither measured, nor turned down after rollouts that had to fail, nor named as a fault.
    let all = serde_json::to_string(&report).expect("JSON");
    assert!(!all.contains("grammar") && !all.contains("constrained"));
}
