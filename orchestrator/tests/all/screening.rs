//! Proposals that are turned down unmeasured, and a critique that is asked for once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coharness::error::RunError;
use coharness::history::History;
use coharness::observer::{Notice, Observer, Silent};
use coharness::report::{RefusedRow, Report};
use coharness::splits::Splits;
use coharness::workshop::Workshop;
use critic::TriedPatch;
use critic::llm::{Chat, ChatError, ChatReply, ChatRequest};
use rollout::{BoxFuture, Message, Policy, PolicyError, Task, ToolFault, ToolRunner, Usage};
use sandbox::{Execution, Exit, SandboxPolicy};
use serde_json::{Value, json};

use crate::Place;
use crate::counting;
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
    workshop_with(directory, chat, Arc::new(Picky), MORE).await
}

async fn workshop_with(
    directory: &Path,
    chat: Arc<Says>,
    tools: Arc<dyn ToolRunner>,
    more: &str,
) -> Workshop {
    workshop_watched(directory, chat, tools, more, Arc::new(Silent)).await
}

async fn workshop_watched(
    directory: &Path,
    chat: Arc<Says>,
    tools: Arc<dyn ToolRunner>,
    more: &str,
    observer: Arc<dyn Observer>,
) -> Workshop {
    let mut splits = Splits::only_test(sums("test", 21));
    splits.evolve = sums("evolve", 1);
    splits.gate = sums("gate", 11);
    splits.suites = vec![counting::legs(20)];
    let scene = Scene {
        config: &small([4, 4, 1], more),
        splits,
        directory,
        is_aloud: false,
    };
    let start = harness::naive().expect("the shipped harness");
    let workshop = scene.watched(&start, tools, observer).await;
    workshop.with_chat(Some(chat))
}

/// What a program comes to in a sandbox that fails as a test says, and how often it was run.
struct Shaky {
    outcome: fn(&str, usize) -> Result<Exit, ToolFault>,
    seen: Mutex<BTreeMap<String, usize>>,
}

impl Shaky {
    fn new(outcome: fn(&str, usize) -> Result<Exit, ToolFault>) -> Arc<Self> {
        Arc::new(Self {
            outcome,
            seen: Mutex::default(),
        })
    }

    /// How often programs with `word` were run.
    fn count(&self, word: &str) -> usize {
        let seen = self.seen.lock().expect("lock");
        let of_word = seen.iter().filter(|(code, _)| code.contains(word));
        of_word.map(|(_, count)| count).sum()
    }
}

fn down() -> ToolFault {
    ToolFault {
        source: "no process can be started".into(),
    }
}

impl ToolRunner for Shaky {
    fn run_python<'a>(
        &'a self,
        code: &'a str,
        _: &'a SandboxPolicy,
    ) -> BoxFuture<'a, Result<Execution, ToolFault>> {
        let earlier = {
            let mut seen = self.seen.lock().expect("lock");
            let count = seen.entry(code.to_owned()).or_default();
            *count += 1;
            *count - 1
        };
        let outcome = (self.outcome)(code, earlier).map(|exit| Execution {
            stdout: String::new(),
            stderr: String::new(),
            exit,
            is_truncated: false,
            duration: Duration::from_millis(1),
        });
        Box::pin(async move { outcome })
    }
}

/// What was refused in a round, and the whole report.
async fn round(workshop: &Workshop) -> (Vec<RefusedRow>, Report) {
    round_of(workshop, &Scripted::failing("wrong", reply)).await
}

async fn round_of(workshop: &Workshop, policy: &Arc<dyn Policy>) -> (Vec<RefusedRow>, Report) {
    let head = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let looped = workshop.harness_loop(1, head, policy, &mut history).await;
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
async fn what_is_too_large_is_remembered_with_its_limit() {
    let place = Place::new();
    let long = set("prompts.system", &"Think. ".repeat(2000));
    let leak = note("take 13 away from a thousand");
    let findings = [
        finding("long text", "prompt_ambiguity", "P", &long),
        finding("gate text", "memory_overflow", "M", &leak),
    ];
    let chat = Arc::new(Says {
        text: json!({"findings": findings}).to_string(),
        asked: AtomicUsize::new(0),
    });
    let workshop = workshop(place.path(), chat).await;
    let head = workshop.head("v1").expect("v1");
    let policy = Scripted::failing("wrong", reply);
    let mut history = History::new(0.05);
    let looped = workshop.harness_loop(1, head, &policy, &mut history).await;
    looped.expect("a round");
    let limit_of = |name: &str| {
        let mut tried = history.tried.iter();
        let found = tried.find(|tried| tried.patch.summary.contains(name));
        found.unwrap_or_else(|| panic!("{name} passed")).too_large
    };
    let limit = limit_of("llm/long_text").expect("a limit");
    assert_eq!(limit.dimension, harness::Dimension::P);
    assert_eq!(limit_of("llm/gate_text"), None);
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

/// Suggestions of texts with a block of Python, each in a note of its own.
fn blocks(words: &[&str]) -> Arc<Says> {
    let findings: Vec<Value> = words
        .iter()
        .map(|word| {
            let text = format!("Like so:\n```python\n{word}(1)\n```");
            finding(word, "memory_overflow", "M", &note(&text))
        })
        .collect();
    Arc::new(Says {
        text: json!({"findings": findings}).to_string(),
        asked: AtomicUsize::new(0),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn code_is_parsed_wherever_it_stands() {
    let place = Place::new();
    let block = "Like so:\n```python\nbroken(\n```";
    let hook = json!([{"op": "add", "path": "middleware.hooks.post_tool_call",
        "value": {"type": "append_message", "message": block}}]);
    let findings = [
        finding(
            "in task",
            "prompt_ambiguity",
            "P",
            &set("prompts.task", &format!("{{{{ problem }}}}\n{block}")),
        ),
        finding(
            "in tool",
            "tool_schema_error",
            "T",
            &set("tools.python.description", block),
        ),
        finding("in hook", "middleware_mismatch", "Mid", &hook),
    ];
    let (rows, _) = refused(&place, &findings).await;
    for name in ["llm/in_task", "llm/in_tool", "llm/in_hook"] {
        let reason = reason(&rows, name);
        assert!(
            reason.contains("isn't Python: SyntaxError"),
            "{name}: {reason}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_fails_for_a_while_bars_nothing() {
    let tools = Shaky::new(|code, earlier| match code {
        // Down at first, whatever is run.
        "" if earlier < 2 => Err(down()),
        _ if code.contains("early") && earlier < 3 => Err(down()),
        // Only ever at this one.
        _ if code.contains("doomed") => Err(down()),
        // Kept waiting once, and not ending at all.
        _ if code.contains("slow") && earlier == 0 => Ok(Exit::TimedOut),
        _ if code.contains("endless") => Ok(Exit::TimedOut),
        _ => Ok(Exit::Code(0)),
    });
    let more = MORE.replace("attempts: 1", "attempts: 2");
    let chat = blocks(&["early", "doomed", "slow", "endless"]);
    let place = Place::new();
    let workshop = workshop_with(place.path(), chat, tools.clone(), &more).await;
    let (rows, _) = round(&workshop).await;
    for (word, words) in [
        ("doomed", "no process can be started"),
        ("endless", "TimedOut"),
    ] {
        let reason = reason(&rows, &format!("llm/{word}"));
        assert!(reason.contains(words), "{word}: {reason}");
    }
    for word in ["early", "slow"] {
        let name = format!("llm/{word}");
        let is_barred = rows.iter().any(|row| row.summary.contains(&name));
        assert!(!is_barred, "{rows:?}");
    }
    let counts = ["early", "slow", "endless"].map(|word| tools.count(word));
    assert_eq!(counts, [4, 2, 2]);
    assert!(tools.count("doomed") >= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_stays_down_ends_the_run_as_for_rollouts() {
    let tools = Shaky::new(|_, _| Err(down()));
    let more = MORE.replace("attempts: 1,", "patience_s: 1, longest_pause_s: 1,");
    let place = Place::new();
    let workshop = workshop_with(place.path(), blocks(&["print"]), tools.clone(), &more).await;
    let head = workshop.head("v1").expect("v1");
    let policy = Scripted::failing("wrong", reply);
    let mut history = History::new(0.05);
    let looped = workshop.harness_loop(1, head, &policy, &mut history).await;
    let error = looped.expect_err("nothing runs");
    assert!(
        matches!(&error, RunError::Infrastructure { reason } if reason.contains("no process")),
        "{error}"
    );
    // It was waited for, and the patch isn't barred for it.
    assert!(tools.count("") > 2, "{}", tools.count(""));
    let mut tried = history.tried.iter();
    assert!(!tried.any(|tried| tried.patch.summary.contains("llm/print")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_fails_once_bars_nothing() {
    let place = Place::new();
    let findings = [finding(
        "storm",
        "memory_overflow",
        "M",
        &note("There may be a storm."),
    )];
    let chat = Arc::new(Says {
        text: json!({"findings": findings}).to_string(),
        asked: AtomicUsize::new(0),
    });
    let more = MORE.replace("attempts: 1", "attempts: 2");
    let workshop = workshop_with(place.path(), chat, Arc::new(Picky), &more).await;
    let storms = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&storms);
    let policy = Scripted::failing("wrong", move |messages| match reply(messages) {
        Err(error) if count.fetch_add(1, Ordering::Relaxed) == 0 => Err(error),
        _ => Ok(SAID.to_owned()),
    });
    let (rows, _) = round_of(&workshop, &policy).await;
    let mut names = rows.iter().map(|row| &row.summary);
    assert!(!names.any(|name| name.contains("llm/storm")), "{rows:?}");
    // It failed, and was tried again.
    assert!(storms.load(Ordering::Relaxed) > 1, "{storms:?}");
}

/// Keeps what the run says it waits for.
#[derive(Default)]
struct Waits(Mutex<Vec<String>>);

impl Observer for Waits {
    fn notice(&self, notice: Notice) {
        if let Notice::Waiting(what) = notice {
            self.0.lock().expect("lock").push(what);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_a_cheap_check_to_wait_is_waited_for_aloud() {
    let place = Place::new();
    let text = "There may be a storm.";
    let finding = finding("storm", "memory_overflow", "M", &note(text));
    let chat = Arc::new(Says {
        text: json!({"findings": [finding]}).to_string(),
        asked: AtomicUsize::new(0),
    });
    let waits = Arc::new(Waits::default());
    let observer: Arc<dyn Observer> = waits.clone();
    let workshop = workshop_watched(place.path(), chat, Arc::new(Picky), MORE, observer).await;
    let has_asked = AtomicBool::new(false);
    let policy = Scripted::failing("wrong", move |messages| match reply(messages) {
        Err(_) if !has_asked.swap(true, Ordering::Relaxed) => Err(PolicyError::RateLimited {
            wait: Duration::from_secs(1),
        }),
        _ => Ok(SAID.to_owned()),
    });
    let (rows, _) = round_of(&workshop, &policy).await;
    let mut names = rows.iter().map(|row| &row.summary);
    assert!(!names.any(|name| name.contains("llm/storm")), "{rows:?}");
    assert_eq!(
        *waits.0.lock().expect("lock"),
        ["the server asks to wait: nothing is sent for 1 s"]
    );
}

/// What is refused in a round with such tools and such a policy, and what the critic takes for tried.
async fn tried_by(
    directory: &Path,
    tools: &Arc<Shaky>,
    policy: &Arc<dyn Policy>,
) -> (Vec<RefusedRow>, Vec<TriedPatch>) {
    let chat = blocks(&["slow", "quick", "storm"]);
    let workshop = workshop_with(directory, chat, tools.clone(), MORE).await;
    let head = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let looped = workshop.harness_loop(1, head, policy, &mut history).await;
    looped.expect("a round");
    let report = Report::read(&workshop.store).await.expect("a report");
    (report.diagnoses[0].refused.clone(), history.tried)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_goes_on_keeps_to_what_was_said_of_proposals() {
    let place = Place::new();
    let slow = Shaky::new(|code, _| match code.contains("slow") {
        true => Ok(Exit::TimedOut),
        false => Ok(Exit::Code(0)),
    });
    let stormy = Scripted::failing("wrong", reply);
    let (rows, tried) = tried_by(place.path(), &slow, &stormy).await;
    assert!(reason(&rows, "llm/slow").contains("TimedOut"));
    assert!(reason(&rows, "llm/storm").contains("no storms here"));
    let is_barred = rows.iter().any(|row| row.summary.contains("llm/quick"));
    assert!(!is_barred, "{rows:?}");

    // Other programs run out of time now, and the storm is over.
    let quick = Shaky::new(|code, _| match code.contains("quick") {
        true => Ok(Exit::TimedOut),
        false => Ok(Exit::Code(0)),
    });
    let calm = Scripted::failing("wrong", |_| Ok(SAID.to_owned()));
    let again = tried_by(place.path(), &quick, &calm).await;
    assert_eq!(again, (rows, tried));
    assert_eq!(quick.count(""), 0);
}
