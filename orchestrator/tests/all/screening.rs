//! Proposals that are turned down unmeasured, and a critique that is asked for once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coharness::config::SuiteConfig;
use coharness::history::History;
use coharness::report::{RefusedRow, Report};
use coharness::splits::{Splits, Suite};
use coharness::workshop::Workshop;
use critic::llm::{Chat, ChatError, ChatReply, ChatRequest};
use rollout::{BoxFuture, Message, PolicyError, Task, ToolFault, ToolRunner, Usage};
use sandbox::{Execution, Exit, SandboxPolicy};
use serde_json::{Value, json};

use crate::Place;
use crate::scene::{Scene, Scripted, numbered, small};

const MORE: &str = "\
faults: {attempts: 1, first_pause_ms: 1}
gate: {mode: paper, tasks: 2}
harness_loop: {iterations: 1, diagnose_tasks: 4, candidates: 100}
model_loop: {is_enabled: false}
";
const SAID: &str = "It comes to \\boxed{1}.";

/// A critic's model that says the same every time, and counts.
struct Says {
    text: String,
    asked: AtomicUsize,
}

impl Chat for Says {
    fn name(&self) -> &str {
        "a script"
    }

    fn ask(&self, _: ChatRequest) -> BoxFuture<'_, Result<ChatReply, ChatError>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let reply = ChatReply {
            text: self.text.clone(),
            is_cut: false,
            usage: Usage::default(),
        };
        Box::pin(async move { Ok(reply) })
    }
}

/// A finding with a suggestion; its evidence is there.
fn finding(name: &str, root_cause: &str, dimension: &str, ops: &Value) -> Value {
    let quote = |rollout: &str| json!({"rollout": rollout, "step": 2, "quote": SAID});
    json!({"name": name, "root_cause": root_cause, "harness_dim": dimension, "severity": "high",
        "evidence": [quote("R1"), quote("R2")], "diff_suggestion": ops, "fixes": ["R1", "R2"]})
}

/// Notes that say this.
fn note(text: &str) -> Value {
    json!([{"op": "replace", "path": "memory.kind", "value": "notes"},
        {"op": "replace", "path": "memory.capacity", "value": 4},
        {"op": "add", "path": "memory.entries", "value": text}])
}

fn set(path: &str, value: &str) -> Value {
    json!([{"op": "replace", "path": path, "value": value}])
}

/// Every program prints 42 but one that is broken.
struct Picky;

impl ToolRunner for Picky {
    fn run_python<'a>(
        &'a self,
        code: &'a str,
        _: &'a SandboxPolicy,
    ) -> BoxFuture<'a, Result<Execution, ToolFault>> {
        let (stdout, stderr, exit) = match code.contains("broken") {
            true => ("", "SyntaxError: invalid syntax\n", Exit::Code(1)),
            false => ("42\n", "", Exit::Code(0)),
        };
        let execution = Execution {
            stdout: stdout.into(),
            stderr: stderr.into(),
            exit,
            is_truncated: false,
            duration: Duration::from_millis(1),
        };
        Box::pin(async move { Ok(execution) })
    }
}

/// Always wrong; can't read a conversation about crowds, and breaks off one about storms.
fn reply(messages: &[Message]) -> Result<String, PolicyError> {
    let has = |word: &str| {
        messages
            .iter()
            .any(|message| message.content.contains(word))
    };
    if has("crowd") {
        let reason = "too many".into();
        return Err(PolicyError::ContextOverflow { reason });
    }
    if has("storm") {
        let reason = "no storms here".into();
        return Err(PolicyError::Refused {
            status: 400,
            reason,
        });
    }
    Ok(SAID.to_owned())
}

fn sums(name: &str, first: u32) -> Vec<Task> {
    let text = |number: u32| format!("Take {number} away from a thousand.");
    let mut tasks = numbered(name, first + 3, text, |number| 1000 - number);
    tasks.split_off(first as usize - 1)
}

async fn workshop(directory: &Path, chat: Arc<Says>) -> Workshop {
    let suite: SuiteConfig =
        harness::yaml::from_str("{name: legs, path: none, tasks: 20}").expect("a suite");
    let text = |number: u32| format!("How many legs do {number} spiders have?");
    let mut splits = Splits::only_test(sums("test", 21));
    splits.evolve = sums("evolve", 1);
    splits.gate = sums("gate", 11);
    splits.suites = vec![Suite {
        config: suite,
        tasks: numbered("spider", 20, text, |number| 8 * number),
    }];
    let scene = Scene {
        config: &small([4, 4, 1], MORE),
        splits,
        directory,
        is_aloud: false,
    };
    let start = harness::naive().expect("the shipped harness");
    let workshop = scene.with_tools(&start, Arc::new(Picky)).await;
    workshop.with_chat(Some(chat))
}

/// What was refused in a round, and the whole report.
async fn round(workshop: &Workshop) -> (Vec<RefusedRow>, Report) {
    let head = workshop.head("v1").expect("v1");
    let policy = Scripted::failing("wrong", reply);
    let mut history = History::new(0.05);
    let looped = workshop.harness_loop(1, head, &policy, &mut history).await;
    looped.expect("a round");
    let report = Report::read(&workshop.store).await.expect("a report");
    (report.diagnoses[0].refused.clone(), report)
}

async fn refused(place: &Place, findings: &[Value]) -> (Vec<RefusedRow>, Arc<Says>) {
    let chat = Arc::new(Says {
        text: json!({"findings": findings}).to_string(),
        asked: AtomicUsize::new(0),
    });
    let workshop = workshop(place.path(), Arc::clone(&chat)).await;
    let (rows, report) = round(&workshop).await;
    let critic = report.critic.expect("it was asked");
    assert_eq!((critic.skipped, critic.dropped), (0, 0), "{critic:?}");
    (rows, chat)
}

fn reason<'a>(rows: &'a [RefusedRow], name: &str) -> &'a str {
    let row = rows.iter().find(|row| row.summary.contains(name));
    &row.unwrap_or_else(|| panic!("{name} passed: {rows:?}"))
        .reason
}

#[tokio::test(flavor = "multi_thread")]
async fn each_cheap_check_turns_down_what_it_is_for() {
    let place = Place::new();
    let example = json!([{"op": "add", "path": "prompts.examples", "value": {
        "title": "six-sevens", "problem": "How much are six sevens?",
        "steps": [{"tool": "python", "arguments": {"code": "print(6 * 7)"}, "result": "41"}],
        "answer": "The answer is \\boxed{41}."}}]);
    let skill = json!([{"op": "add", "path": "skills.taking", "value": {
        "name": "taking", "description": "Takes away.",
        "body": "Like so:\n```python\nbroken(\n```"}}]);
    let findings = [
        finding(
            "gate text",
            "memory_overflow",
            "M",
            &note("take 13 away from a thousand"),
        ),
        finding(
            "suite text",
            "memory_overflow",
            "M",
            &note("How many legs do 7 spiders have"),
        ),
        finding(
            "long text",
            "prompt_ambiguity",
            "P",
            &set("prompts.system", &"Think. ".repeat(2000)),
        ),
        finding("wrong example", "prompt_ambiguity", "P", &example),
        finding("no python", "skill_missing", "S", &skill),
    ];
    let (rows, _) = refused(&place, &findings).await;
    for (name, words) in [
        ("llm/gate_text", "words of a held-out problem"),
        ("llm/suite_text", "words of a held-out problem"),
        ("llm/long_text", "P would have"),
        (
            "llm/wrong_example",
            "prints \"42\", and the example says \"41\"",
        ),
        ("llm/no_python", "isn't Python: SyntaxError: invalid syntax"),
    ] {
        let reason = reason(&rows, name);
        assert!(reason.contains(words), "{name}: {reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cant_be_rolled_out_is_turned_down_and_a_critique_is_asked_for_once() {
    let place = Place::new();
    let findings = [
        finding(
            "no room",
            "prompt_ambiguity",
            "P",
            &set("prompts.final_answer", "Mind the crowd."),
        ),
        finding(
            "no answer",
            "memory_overflow",
            "M",
            &note("There may be a storm."),
        ),
    ];
    let (rows, chat) = refused(&place, &findings).await;
    let room = reason(&rows, "llm/no_room");
    assert_eq!(room, "its prompts leave no room for a problem");
    let answer = reason(&rows, "llm/no_answer");
    assert!(
        answer.starts_with("it can't be rolled out: ") && answer.contains("no storms here"),
        "{answer}"
    );
    assert_eq!(chat.asked.load(Ordering::Relaxed), 1);

    // A run that goes on finds the critique where it left it, and comes to the same.
    let again = Arc::new(Says {
        text: "something else".into(),
        asked: AtomicUsize::new(0),
    });
    let workshop = workshop(place.path(), Arc::clone(&again)).await;
    assert_eq!(round(&workshop).await.0, rows);
    assert_eq!(again.asked.load(Ordering::Relaxed), 0);
}
