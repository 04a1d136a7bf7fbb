//! `coharness data`: what a person sees of training rows, and what moves in and out.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use coharness::splits::Splits;
use coharness::store::{Basis, Made};
use coharness::workshop::Workshop;
use harness::{CallFormat, Dimension, Harness, Patch, PatchOp};
use insta::assert_snapshot;
use registry::{Decision, ModelId, Rejection, RunId};
use rollout::verifier::{VerifierKind, build};
use rollout::{
    Agent, BoxFuture, Completion, CompletionRequest, Finish, NativeCall, Policy, PolicyError,
    PolicyId, RolloutBudget, Split, Task, TaskId, Usage,
};
use serde_json::{Value, json};

use crate::Place;
use crate::full_training::model;
use crate::scene::{FortyTwo, Scene, small};

fn inspect(place: &Place, file: &str) -> String {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trainer/tests/golden/llama_tied");
    inspect_for(&golden.canonicalize().expect("golden model"), place, file)
}

/// Rows as the model in a directory is trained on them.
fn inspect_for(model: &Path, place: &Place, file: &str) -> String {
    let model = format!("model.path={}", model.display());
    let arguments = [
        "data",
        "inspect",
        file,
        "--set",
        &model,
        "--set",
        "model.arithmetic=f32",
    ];
    place.run(&arguments)
}

#[test]
fn rows_are_shown_with_what_counts_marked_and_faults_named() {
    let place = Place::new();
    place.write(
        "rows.jsonl",
        r#"{"id": "sum", "messages": [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2", "train": false}, {"role": "user", "content": "2+2\ttwice"}, {"role": "assistant", "content": "4 <|im_end|>\n4"}]}
{"messages": [{"role": "user", "content": "1+1"}]}
"#,
    );
    assert_snapshot!("inspect", inspect(&place, "rows.jsonl"));
}

#[test]
fn rows_of_a_template_that_doubles_the_start_token_are_refused_by_name() {
    let place = Place::new();
    let model = model(&place);
    let file = model.join("tokenizer_config.json");
    let config = std::fs::read_to_string(&file).expect("the file");
    let template = "\"chat_template\": \"";
    assert!(config.contains(template), "{config}");
    let doubled = config.replace(template, &format!("{template}<|im_start|>"));
    std::fs::write(&file, doubled).expect("the file");
    place.write(
        "rows.jsonl",
        r#"{"id": "sum", "messages": [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}]}"#,
    );
    let shown = inspect_for(&model, &place, "rows.jsonl");
    let refused =
        "refused sum: the text begins with 2 start tokens \"<|im_start|>\"\n1 row, 1 refused;";
    assert!(shown.contains(refused), "{shown}");
    assert!(shown.ends_with("--- exit 2\n"), "{shown}");
}

#[test]
fn other_forms_are_imported_and_a_wrong_line_is_named() {
    let place = Place::new();
    place.write(
        "alpaca.jsonl",
        "{\"instruction\": \"Add.\", \"input\": \"1+1\", \"output\": \"2\"}\n",
    );
    place.write("bad.jsonl", "{\"messages\": []}\n");
    let import = |file| place.run(&["data", "import", file]);
    let shown = [
        import("alpaca.jsonl"),
        import("bad.jsonl"),
        import("absent.jsonl"),
    ];
    assert_snapshot!("import", shown.join("\n---\n"));
}

#[test]
fn a_key_that_stands_twice_is_refused_wherever_it_stands() {
    let place = Place::new();
    let import = |line: &str| {
        place.write("rows.jsonl", &format!("\u{feff}\n{line}\n"));
        place.run(&["data", "import", "rows.jsonl"])
    };
    let user = r#"{"role": "user", "content": "q"}"#;
    let with_call = |arguments: &str| {
        let arguments = Value::from(arguments);
        let call = format!(r#"{{"function": {{"name": "add", "arguments": {arguments}}}}}"#);
        format!(r#"{{"messages": [{user}, {{"role": "assistant", "tool_calls": [{call}]}}]}}"#)
    };
    let whole = import(&with_call(r#"{"a": 1}"#));
    assert!(whole.ends_with("--- stderr\n--- exit 0\n"), "{whole}");
    let function_call = Value::from(r#"{"name": "add", "name": "sub"}"#);
    for (line, key) in [
        (
            format!(
                r#"{{"messages": [{user}, {{"role": "assistant", "content": "b", "content": "c"}}]}}"#
            ),
            "content",
        ),
        (with_call(r#"{"a": 1, "a": 2}"#), "a"),
        (
            format!(
                r#"{{"conversations": [{{"from": "function_call", "value": {function_call}}}]}}"#
            ),
            "name",
        ),
        (
            r#"{"tools": "[{\"name\": \"a\", \"name\": \"b\"}]", "prompt": "q", "completion": "a"}"#
                .to_owned(),
            "name",
        ),
    ] {
        let refused = import(&line);
        let reason = format!("key {key:?} occurs twice\n--- exit 2\n");
        assert!(refused.contains("error: rows.jsonl: line 2: "), "{refused}");
        assert!(refused.ends_with(&reason), "{refused}");
    }
}

#[test]
fn a_line_that_is_no_json_is_named_once_with_its_column() {
    let place = Place::new();
    let rows = place.write("rows.jsonl", "\n{no}\n");
    let file = std::fs::File::open(rows).expect("opens");
    let mut command = place.command(&["data", "import", "-"]);
    let said = place.transcript(&command.stdin(file).output().expect("runs"));
    assert_eq!(
        said,
        "--- stderr\nerror: standard input: line 2: column 2: can't be read as JSON: key must be a string\n\
         --- exit 2\n"
    );
}

/// Calls the tool twice in its first reply and answers in its second; with or without an interface
/// for calls.
struct Caller {
    id: PolicyId,
    has_interface: bool,
    has_called: AtomicBool,
}

impl Policy for Caller {
    fn id(&self) -> &PolicyId {
        &self.id
    }

    fn has_tool_interface(&self) -> bool {
        self.has_interface
    }

    fn complete(
        &self,
        request: CompletionRequest,
    ) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        assert_eq!(request.tools.is_empty(), !self.has_interface);
        let is_first = !self.has_called.swap(true, Ordering::Relaxed);
        let call = |code: &str| NativeCall {
            tool: "python".into(),
            arguments: json!({"code": code}),
        };
        let (text, tool_calls) = match (is_first, self.has_interface) {
            (true, true) => ("I compute.", vec![call("print(42)"), call("print(6 * 7)")]),
            (true, false) => (
                "<tool_call>\n{\"name\": \"python\", \"arguments\": {\"code\": \"print(42)\"}}\n</tool_call>",
                Vec::new(),
            ),
            (false, _) => ("It is \\boxed{42}.", Vec::new()),
        };
        let finish = if tool_calls.is_empty() {
            Finish::Stop
        } else {
            Finish::ToolCalls
        };
        let completion = Completion {
            text: text.into(),
            reasoning: String::new(),
            finish,
            finish_reason: None,
            prompt_ids: Vec::new(),
            output_ids: Vec::new(),
            logprobs: Vec::new(),
            usage: Usage::default(),
            tool_calls,
        };
        Box::pin(async move { Ok(completion) })
    }
}

/// A run that has done nothing yet; its harness asks for calls through the policy's interface.
async fn new_run(place: &Place) -> (Workshop, Harness) {
    let mut start = harness::naive().expect("the shipped harness");
    start.middleware.protocol.call_format = CallFormat::Native;
    let directory = place.path().join(".coharness/runs/small-seed0");
    let scene = Scene {
        config: &small([1, 1, 1], ""),
        splits: Splits::only_test(Vec::new()),
        directory: &directory,
        is_aloud: false,
    };
    let workshop = scene.with_tools(&start, Arc::new(FortyTwo)).await;
    (workshop, start)
}

/// Keeps one rollout of that policy.
async fn roll_out(workshop: &Workshop, harness: &Harness, has_interface: bool) {
    let task = Task {
        id: TaskId::new("t"),
        problem: "What is 6 * 7?".into(),
        answer: "42".into(),
    };
    let agent = Agent {
        harness: Arc::new(harness.clone()),
        policy: Arc::new(Caller {
            id: PolicyId::new("caller"),
            has_interface,
            has_called: AtomicBool::new(false),
        }),
        sandbox: Arc::new(FortyTwo),
        verifier: build(&VerifierKind::Integer, None),
        budget: RolloutBudget {
            max_tokens: 1000,
            wall: std::time::Duration::from_secs(60),
        },
        sandbox_level: "test".into(),
    };
    let trajectory = rollout::rollout(&agent, &task, Split::Evolve, 0).await;
    assert!(trajectory.verdict.correct, "{trajectory:?}");
    let basis = Basis::of(&task, &VerifierKind::Integer);
    let made = Made { round: 1, at: 0 };
    let recorded = workshop.store.record_trajectory(&trajectory, &basis, made);
    recorded.await.expect("recorded");
}

async fn run_with_a_rollout(place: &Place, has_interface: bool) -> Harness {
    let (workshop, start) = new_run(place).await;
    roll_out(&workshop, &start, has_interface).await;
    start
}

/// The rows that are exported, and what is said beside them.
fn export(place: &Place, more: &[&str]) -> (Vec<Value>, String) {
    let arguments = [&["data", "export"][..], more].concat();
    let output = place.command(&arguments).output().expect("runs");
    assert!(output.status.success(), "{}", place.transcript(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    (
        rows.collect(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// The one row that is exported, and what is said beside it.
fn exported(place: &Place) -> (Value, String) {
    let (mut rows, said) = export(place, &[]);
    assert_eq!(rows.len(), 1, "{said}");
    (rows.remove(0), said)
}

/// Candidates are rolled out on a problem or two before they are measured. Those that are turned down
/// without that are kept nowhere.
#[tokio::test]
async fn rollouts_under_a_harness_that_is_not_kept_are_exported_if_asked_for() {
    let place = Place::new();
    let (workshop, start) = new_run(&place).await;
    let patch = |text: &str| Patch {
        dimension: Dimension::P,
        ops: vec![PatchOp::replace(
            "prompts.final_answer".parse().expect("a path"),
            text.into(),
        )],
        summary: "say it otherwise".into(),
    };
    let [measured, screened] = ["Box it.", "Box it at once."].map(patch);
    let rejection = Rejection {
        decision: Decision {
            run: RunId::new("small-seed0").expect("a name"),
            round: 1,
            model: ModelId::new("caller").expect("a name"),
            root_cause: "prompt_ambiguity".into(),
            severity: "high".into(),
            evidence: "It was so.".into(),
            patch: measured.clone(),
            removes: None,
            gate_mode: "sequential".into(),
            gate_detail: String::new(),
            unix_seconds: 1,
        },
        verdict: "no gain".into(),
        delta_in: None,
        delta_out: None,
    };
    let [measured, screened] =
        [measured, screened].map(|patch| patch.apply(&start).expect("a harness"));
    let head = workshop.head("v1").expect("v1");
    workshop
        .with_registry(|registry| registry.record_rejected(&head.version, &measured, &rejection))
        .expect("kept");
    for harness in [&start, &measured, &screened] {
        roll_out(&workshop, harness, true).await;
    }
    drop(workshop);
    let has_tools = |row: &&Value| row.get("tools").is_some();
    let (rows, said) = export(&place, &[]);
    assert_eq!((rows.len(), rows.iter().filter(has_tools).count()), (2, 2));
    assert!(
        said.starts_with("2 rollouts on evolve problems\n1 more is left out"),
        "{said}"
    );
    let (rows, said) = export(&place, &["--all"]);
    assert_eq!((rows.len(), rows.iter().filter(has_tools).count()), (3, 2));
    assert!(
        said.starts_with("3 rollouts on evolve problems\n1 of them is written without tools"),
        "{said}"
    );
}

/// The gate classifies problems under its head at a temperature of its own.
#[tokio::test]
async fn rollouts_under_a_version_at_another_temperature_are_listed_by_its_name() {
    let place = Place::new();
    let (workshop, start) = new_run(&place).await;
    let at = |temperature: f64| {
        let mut harness = start.clone();
        harness.middleware.sampling.temperature = temperature;
        harness
    };
    let [warm, unexplained] = [0.7, 0.9].map(at);
    for harness in [&start, &warm, &unexplained] {
        roll_out(&workshop, harness, true).await;
    }
    drop(workshop);
    let list = ["trajectories", "list"];
    let shown = place.run(&list);
    let id = unexplained.id().to_hex();
    for name in [" v1 ", " v1 at 0.7 ", &id[..8]] {
        assert!(shown.contains(name), "{name} in {shown}");
    }
    let own = start.id().to_hex();
    for (name, count) in [
        ("v1", 2),
        ("head", 2),
        ("v1 at 0.7", 1),
        (&own[..8], 1),
        (&id[..8], 1),
    ] {
        let mut found = place.command(&[&list[..], &["--json", "--harness", name]].concat());
        let output = found.output().expect("runs");
        assert!(output.status.success(), "{}", place.transcript(&output));
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(rows.len(), count, "{name}");
    }
}

#[tokio::test]
async fn an_exported_rollout_has_its_tools_and_calls_and_is_imported_as_it_is() {
    let place = Place::new();
    let harness = run_with_a_rollout(&place, true).await;
    let (row, said) = exported(&place);
    assert_eq!(said, "1 rollout on evolve problems\n");
    let (name, tool) = harness.tools.iter().next().expect("a tool");
    let function = json!({
        "name": name.as_str(),
        "description": tool.description.trim(),
        "parameters": tool.parameters,
    });
    assert_eq!(
        row["tools"],
        json!([{"type": "function", "function": function}])
    );
    let call = |id: &str, code: &str| {
        let function = json!({"name": "python", "arguments": {"code": code}});
        json!({"id": id, "type": "function", "function": function})
    };
    let messages = row["messages"].as_array().expect("messages");
    let said = &messages[messages.len() - 4..];
    assert_eq!(
        said[0],
        json!({
            "role": "assistant", "content": "I compute.", "train": true,
            "tool_calls": [call("call_1", "print(42)"), call("call_2", "print(6 * 7)")],
        })
    );
    for (result, id) in said[1..3].iter().zip(["call_1", "call_2"]) {
        assert_eq!(
            (&result["role"], &result["tool_call_id"]),
            (&json!("tool"), &json!(id))
        );
    }
    assert_eq!(
        said[3],
        json!({"role": "assistant", "content": "It is \\boxed{42}.", "train": true})
    );
    place.write("rows.jsonl", &format!("{row}\n"));
    let import = place.command(&["data", "import", "rows.jsonl"]).output();
    let import = import.expect("runs");
    assert!(import.status.success(), "{}", place.transcript(&import));
    let imported: Value = serde_json::from_slice(&import.stdout).expect("JSON");
    assert_eq!(imported, row);
}

/// A chat template would describe them a second time.
#[tokio::test]
async fn tools_that_the_system_prompt_describes_are_not_offered_again() {
    let place = Place::new();
    run_with_a_rollout(&place, false).await;
    let (row, _) = exported(&place);
    assert_eq!(row.get("tools"), None, "{row}");
    assert_eq!(row["tools_in_prompt"][0]["function"]["name"], "python");
    let text = row["messages"].to_string();
    assert!(text.contains("<tool_call>") && !text.contains("tool_calls"));
}

#[test]
fn a_field_that_would_be_lost_is_named_with_its_line() {
    let place = Place::new();
    let turns = r#"[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]"#;
    place.write(
        "rows.jsonl",
        &format!("{{\"messages\": {turns}}}\n{{\"messages\": {turns}, \"rejected\": \"b\"}}\n"),
    );
    let shown = place.run(&["data", "import", "rows.jsonl"]);
    let error = "error: rows.jsonl: line 2: rejected would change what the row teaches";
    assert!(
        shown.contains(error) && shown.ends_with("--- exit 2\n"),
        "{shown}"
    );
}
