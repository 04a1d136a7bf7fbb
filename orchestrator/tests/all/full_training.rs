//! Training every weight in a run, on a tiny model: kept as full sets, decided on like adapters, gone on
//! from, and for other programs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use candle_core::Device;
use coharness::base_model::BaseModel;
use coharness::error::RunError;
use coharness::history::History;
use coharness::observer::{Notice, Observer};
use coharness::report::{Report, SelectionRow, TrainRow};
use coharness::splits::Splits;
use coharness::workshop::Workshop;
use model::adapter::serialize;
use model::weights::load_safetensors;
use rollout::{
    BoxFuture, Completion, CompletionRequest, Finish, Message, Policy, PolicyError, PolicyId, Task,
    Usage,
};
use serde_json::json;

use crate::Place;
use crate::scene::{FortyTwo, Scene, Scripted, numbered};
use crate::serve_model::Server;
use crate::whole_run::Unmount;

/// Counts training steps, and asks to stop after one of them; keeps what it is warned of.
#[derive(Default)]
struct Steps {
    taken: AtomicUsize,
    stop: Option<(usize, PathBuf)>,
    warnings: Mutex<Vec<String>>,
}

impl Observer for Steps {
    fn notice(&self, notice: Notice) {
        let figure = match notice {
            Notice::Advanced { figure, .. } => figure,
            Notice::Warning(warning) => {
                self.warnings.lock().expect("alone").push(warning);
                return;
            }
            _ => return,
        };
        if !figure.starts_with("loss") {
            return;
        }
        let taken = 1 + self.taken.fetch_add(1, Ordering::Relaxed);
        if let Some((_, file)) = self.stop.as_ref().filter(|(at, _)| *at == taken) {
            std::fs::write(file, "").expect("the file that stops");
        }
    }
}

/// The tiny model, with room for a conversation.
pub(crate) fn model(place: &Place) -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trainer/tests/golden/llama_tied");
    let read = |name: &str| std::fs::read_to_string(golden.join(name)).expect("golden file");
    let config = read("config.json").replace(
        "\"max_position_embeddings\": 512",
        "\"max_position_embeddings\": 2048",
    );
    place.write("tiny/config.json", &config);
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        place.write(&format!("tiny/{name}"), &read(name));
    }
    let target = place.path().join("tiny");
    std::fs::copy(
        golden.join("model.safetensors"),
        target.join("model.safetensors"),
    )
    .expect("weights");
    target
}

pub(crate) fn directory(place: &Place) -> PathBuf {
    place.path().join(".coharness/runs/small-seed0")
}

pub(crate) fn problems(what: fn(u32) -> String, count: u32) -> Vec<Task> {
    numbered("q", count, what, |_| 42)
}

/// Knows what is learnt from, and not what is decided by.
fn knows_some(messages: &[Message]) -> String {
    let is_known = messages[messages.len() - 1].content.contains("learn");
    format!("It is \\boxed{{{}}}.", if is_known { 42 } else { 1 })
}

pub(crate) fn knows_all(_: &[Message]) -> String {
    "It is \\boxed{42}.".into()
}

/// A run whose base weights are scripted, and whose trained ones are the tiny model's.
async fn workshop(
    place: &Place,
    reply: fn(&[Message]) -> String,
    sft: &str,
    observer: Arc<Steps>,
) -> Workshop {
    workshop_that_gathers(place, reply, "gather_tasks: 12", sft, observer).await
}

async fn workshop_that_gathers(
    place: &Place,
    reply: fn(&[Message]) -> String,
    gather: &str,
    sft: &str,
    observer: Arc<Steps>,
) -> Workshop {
    let sft = full(sft);
    workshop_that_asks(place, to_learn, reply, gather, &sft, observer).await
}

/// What `model_loop.sft` says of a full training, and `more`.
fn full(more: &str) -> String {
    format!("method: full, batch: 6, learning_rate: 1.0e-2, {more}")
}

fn to_learn(number: u32) -> String {
    format!("Question {number} to learn from?")
}

/// A run whose problems to learn from are these, and with all that `model_loop.sft` says.
pub(crate) async fn workshop_that_asks(
    place: &Place,
    asks: fn(u32) -> String,
    reply: fn(&[Message]) -> String,
    gather: &str,
    sft: &str,
    observer: Arc<dyn Observer>,
) -> Workshop {
    let policy = Scripted::policy("script", reply);
    workshop_of(place, asks, policy, gather, sft, observer).await
}

/// The same whose base weights are any policy.
async fn workshop_of(
    place: &Place,
    asks: fn(u32) -> String,
    policy: Arc<dyn Policy>,
    gather: &str,
    sft: &str,
    observer: Arc<dyn Observer>,
) -> Workshop {
    let config = format!(
        "run: {{name: small}}
model: {{path: {}, arithmetic: f32}}
tasks:
  path: none
  verifier: integer
  splits: {{evolve: 12, gate: 8, test: 1}}
harness: naive
budget: {{tokens_per_problem: 64, seconds_per_problem: 600}}
gate: {{mode: paper, tasks: 8}}
model_loop:
  {gather}
  sft: {{{sft}}}
",
        model(place).display()
    );
    place.write("run.yaml", &config);
    let mut splits = Splits::only_test(Vec::new());
    splits.evolve = problems(asks, 12);
    splits.gate = problems(|number| format!("Question {number} to decide by?"), 8);
    let scene = Scene {
        config: &config,
        splits,
        directory: &directory(place),
        is_aloud: false,
    };
    let mut start = harness::naive().expect("the shipped harness");
    start.tools.clear();
    start.prompts.system = "Answer.".into();
    start.prompts.final_answer = String::new();
    let mut workshop = scene.watched(&start, Arc::new(FortyTwo), observer).await;
    let base = BaseModel::load(&workshop.loaded, place.path());
    workshop.base = Some(base.expect("the tiny model"));
    workshop.with_policy(None, policy)
}

/// Two rounds' model loops, the second one on what the first one gave.
async fn rounds(workshop: &Workshop) -> [Option<String>; 2] {
    let head = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let discoveries = &mut history.discoveries;
    let first = workshop.model_loop(1, &head, None, discoveries).await;
    let first = first.expect("a round");
    let second = workshop
        .model_loop(2, &head, first.clone(), discoveries)
        .await;
    [first, second.expect("a round")]
}

pub(crate) async fn trainings(workshop: &Workshop) -> Vec<TrainRow> {
    let report = Report::read(&workshop.store).await;
    report.expect("a report").trainings
}

/// The full sets that a run keeps.
fn kept(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(directory(place).join("weights")).expect("weights");
    entries
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into())
        .collect()
}

/// Enough to learn one answer by heart.
const THOROUGH: &str = "epochs: 60";
const SHORT: &str = "epochs: 4, checkpoint_steps: 3";

#[tokio::test(flavor = "multi_thread")]
async fn what_gains_is_kept_and_the_next_round_goes_on_from_it() {
    let place = Place::new();
    let scene = workshop(&place, knows_some, THOROUGH, Arc::default()).await;
    let ids = rounds(&scene).await;
    let trained = trainings(&scene).await;
    let [Some(first), Some(second)] = &ids else {
        panic!("{ids:?}: {trained:?}");
    };
    assert_eq!(second, first, "nothing was left to gain");
    assert_eq!(trained[0].adapter.as_ref(), Some(first));
    assert_ne!(trained[1].adapter.as_ref(), Some(first));
    let losses: Vec<(f64, f64)> = trained.iter().filter_map(|row| row.loss).collect();
    assert!(losses[0].0 > 4.0 && losses[0].1 < 0.1, "{losses:?}");
    assert!(losses[1].0 < 0.1, "not from the base weights: {losses:?}");
    // What was turned down takes no room, nor do checkpoints of trainings that are done.
    assert_eq!(kept(&place), [first.as_str()]);
    for round in ["round-1", "round-2"] {
        assert!(!directory(&place).join("training").join(round).exists());
    }
    // Started again, the run trains nothing and comes to the same.
    drop(scene);
    let steps = Arc::new(Steps::default());
    let again = workshop(&place, knows_some, THOROUGH, Arc::clone(&steps)).await;
    assert_eq!(rounds(&again).await, ids);
    assert_eq!(steps.taken.load(Ordering::Relaxed), 0);
    assert_eq!(trainings(&again).await, trained);
    drop(again);
    for_other_programs(&place, first);
}

/// What the commands make of a full set.
fn for_other_programs(place: &Place, id: &str) {
    let task = json!({"id": "t", "problem": "Question 1 to score?", "answer": "42"});
    place.write("eval.jsonl", &format!("{task}\n"));
    let evaluate = [
        "eval",
        "--config",
        "run.yaml",
        "--tasks",
        "eval.jsonl",
        "--harness",
        "v1",
        "--weights",
        &id[..6],
        "--json",
    ];
    let output = place.command(&evaluate).output().expect("runs");
    assert!(output.status.success(), "{}", place.transcript(&output));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(result["pass_at"][0]["estimate"], 1.0, "{result}");
    let policy = result["policy"].as_str().expect("a policy");
    assert!(policy.ends_with(&format!("+{id}")), "{policy}");

    let export = [
        "model",
        "export",
        "--config",
        "run.yaml",
        "--weights",
        &id[..6],
        "--type",
        "f32",
        "--out",
        "tuned",
    ];
    let said = place.run(&export);
    assert!(said.ends_with("--- exit 0\n"), "{said}");
    let directory = directory(place).join("weights").join(id);
    let weights = |folder: &Path| {
        let file = folder.join("model.safetensors");
        let tensors = load_safetensors(&file, &Device::Cpu).expect("weights");
        serialize(&tensors).expect("bytes")
    };
    assert!(weights(&directory) == weights(&place.path().join("tuned")));

    let served = format!("tuned={}", directory.display());
    let server = Server::start(&["--weights", &served], &[]);
    let reply = server.good(&json!({
        "model": "tuned",
        "messages": [
            {"role": "system", "content": "Answer."},
            {"role": "user", "content": "Question 2 to score?"},
        ],
        "temperature": 0,
        "max_tokens": 40,
    }));
    // Weights that were not trained say no number at all.
    let text = reply["choices"][0]["message"]["content"].as_str();
    assert!(
        text.is_some_and(|text| text.contains("boxed{42")),
        "{reply}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_rounds_are_learnt_from_again_and_solved_problems_rolled_out_once() {
    let place = Place::new();
    let gather = "gather_tasks: 6
  samples: 3
  max_per_task: 1
  min_trajectories: 6
  replay: 0.5";
    let scene = workshop_that_gathers(&place, knows_all, gather, SHORT, Arc::default()).await;
    assert_eq!(rounds(&scene).await, [None, None]);
    let trained = trainings(&scene).await;
    let chosen: Vec<SelectionRow> = trained.iter().filter_map(|row| row.selection).collect();
    let alone = SelectionRow {
        gathered: 6,
        verified: 6,
        chosen: 6,
        ..SelectionRow::default()
    };
    assert_eq!(chosen[0], alone);
    // Of round 1's problems those that round 2 has not drawn itself.
    let replayed = chosen[1].replayed;
    assert!((1..=6).contains(&replayed), "{chosen:?}");
    assert_eq!(chosen[1], SelectionRow { replayed, ..alone });
    assert_eq!(trained[1].trajectories, 6 + replayed);
    drop(scene);
    let steps = Arc::new(Steps::default());
    let again = workshop_that_gathers(&place, knows_all, gather, SHORT, Arc::clone(&steps)).await;
    assert_eq!(rounds(&again).await, [None, None]);
    assert_eq!(steps.taken.load(Ordering::Relaxed), 0);
    assert_eq!(trainings(&again).await, trained);
}

/// What [`knows_half_at_once`] was asked so far.
static ASKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Solves every second problem only when it is asked again.
fn knows_half_at_once(messages: &[Message]) -> String {
    let question = messages[messages.len() - 1].content.clone();
    let digits: String = question.chars().filter(char::is_ascii_digit).collect();
    let is_hard = digits.parse::<u32>().expect("a number") % 2 == 1;
    let is_first = ASKED.lock().expect("alone").insert(question);
    format!(
        "It is \\boxed{{{}}}.",
        if is_hard && is_first { 1 } else { 42 }
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn only_failed_problems_are_sampled_again_and_their_solutions_may_count_more() {
    let mut adapters = Vec::new();
    for weight in ["1", "1.0", "5"] {
        ASKED.lock().expect("alone").clear();
        let place = Place::new();
        let gather = format!(
            "gather_tasks: 12
  samples: 2
  max_per_task: 1
  hard_weight: {weight}"
        );
        let scene = workshop_that_gathers(
            &place,
            knows_half_at_once,
            &gather,
            "epochs: 1",
            Arc::default(),
        )
        .await;
        let head = scene.head("v1").expect("v1");
        let mut history = History::new(0.05);
        let round = scene.model_loop(1, &head, None, &mut history.discoveries);
        round.await.expect("a round");
        let trained = trainings(&scene).await;
        let expected = SelectionRow {
            gathered: 18,
            verified: 12,
            chosen: 12,
            ..SelectionRow::default()
        };
        assert_eq!(trained[0].selection, Some(expected));
        adapters.push(trained[0].adapter.clone());
    }
    assert_eq!(adapters[0], adapters[1]);
    assert_ne!(
        adapters[0], adapters[2],
        "solutions of hard problems count more"
    );
}

/// What [`says_it_otherwise`] was asked so far.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Solves every problem, the second time in other words.
fn says_it_otherwise(messages: &[Message]) -> String {
    let question = messages[messages.len() - 1].content.clone();
    let is_first = SAID.lock().expect("alone").insert(question);
    let verb = if is_first { "is" } else { "must be" };
    format!("It {verb} \\boxed{{42}}.")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_solutions_of_one_problem_begin_with_is_computed_once() {
    let place = Place::new();
    let asks = |number: u32| to_learn(number) + &" Take your time.".repeat(20);
    let gather = "gather_tasks: 6
  samples: 2";
    let sft = "rank: 4, alpha: 8, batch: 2, epochs: 1";
    let observer = Arc::<Steps>::default();
    let scene = workshop_that_asks(&place, asks, says_it_otherwise, gather, sft, observer).await;
    let head = scene.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let round = scene.model_loop(1, &head, None, &mut history.discoveries);
    round.await.expect("a round");
    let trained = trainings(&scene).await.remove(0);
    assert_eq!((trained.trajectories, trained.steps), (12, 6));
    // Two solutions are a batch: of their tokens a little more than half are left. Those of two problems
    // begin alike too, but only up to the number of the question.
    assert!(
        trained.computed_tokens * 10 < trained.tokens * 6,
        "{trained:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_gain_is_gone_and_the_old_weights_stay() {
    let place = Place::new();
    let scene = workshop(&place, knows_all, SHORT, Arc::default()).await;
    assert_eq!(rounds(&scene).await, [None, None]);
    assert_eq!(kept(&place), Vec::<String>::new());
    let trained = trainings(&scene).await;
    assert!(trained.iter().all(|row| row.adapter.is_some()));
    drop(scene);
    let steps = Arc::new(Steps::default());
    let again = workshop(&place, knows_all, SHORT, Arc::clone(&steps)).await;
    assert_eq!(rounds(&again).await, [None, None]);
    assert_eq!(steps.taken.load(Ordering::Relaxed), 0);
    assert_eq!(trainings(&again).await, trained);
}

/// A round on problems of which the first three are long.
async fn round_with_long_problems(place: &Place, sft: &str) -> (TrainRow, Vec<String>) {
    let steps = Arc::new(Steps::default());
    let asks = |number: u32| {
        let times = if number <= 3 { 40 } else { 0 };
        to_learn(number) + &" Take your time.".repeat(times)
    };
    let (sft, observer) = (full(sft), Arc::clone(&steps));
    let gather = "gather_tasks: 12";
    let scene = workshop_that_asks(place, asks, knows_all, gather, &sft, observer).await;
    let head = scene.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let round = scene.model_loop(1, &head, None, &mut history.discoveries);
    round.await.expect("a round");
    let trained = trainings(&scene).await.remove(0);
    let warnings = steps.warnings.lock().expect("alone").clone();
    (trained, warnings)
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_left_out_are_counted_and_named_and_too_many_stop_the_training() {
    let short = "epochs: 1, max_tokens: 400";
    let told = "3 of 12 rows or rollouts are left out of training: 3 longer than model_loop.sft.max_tokens (";
    for (sft, is_trained) in [
        (format!("{short}, max_refused: 0.25"), true),
        (short.into(), false),
    ] {
        let place = Place::new();
        let (trained, warnings) = round_with_long_problems(&place, &sft).await;
        let warning = warnings.iter().find(|warning| warning.starts_with(told));
        assert!(warning.is_some(), "{warnings:?}");
        assert_eq!(trained.adapter.is_some(), is_trained, "{trained:?}");
        assert_eq!(trained.trajectories, if is_trained { 9 } else { 0 });
        if !is_trained {
            let skipped = trained.skipped.expect("a reason");
            assert!(skipped.starts_with("3 of 12 rows"), "{skipped}");
        }
        let output = place.command(&["report", "--json"]).output().expect("runs");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let row = &report["left_out_rows"][0];
        assert_eq!((&row["round"], &row["kept"]), (&json!(1), &json!(9)));
        let left_out = &row["left_out"][0];
        assert_eq!(
            (&left_out["reason"], &left_out["count"]),
            (&json!("too_long"), &json!(3))
        );
        assert_eq!(left_out["first"].as_array().map(Vec::len), Some(3));
        let shown = place.run(&["report"]);
        assert!(shown.contains(&format!("round 1: {told}")), "{shown}");
        let output = place.command(&["status", "--json"]).output().expect("runs");
        let runs: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(runs[0]["left_out_rows"], report["left_out_rows"]);
    }
}

/// Solves every problem, with the same token ids.
struct WithIds {
    id: PolicyId,
    prompt: &'static [u32],
    output: &'static [u32],
}

impl Policy for WithIds {
    fn id(&self) -> &PolicyId {
        &self.id
    }

    fn complete(&self, _: CompletionRequest) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        let completion = Completion {
            text: "It is \\boxed{42}.".into(),
            reasoning: String::new(),
            finish: Finish::Stop,
            finish_reason: None,
            prompt_ids: self.prompt.to_vec(),
            output_ids: self.output.to_vec(),
            logprobs: Vec::new(),
            usage: Usage::default(),
            tool_calls: Vec::new(),
        };
        Box::pin(async move { Ok(completion) })
    }
}

/// The tokens that start a text and end a turn of the tiny model.
const START: u32 = 257;
const END: u32 = 258;

/// A round on replies of these token ids: what was trained, and the warnings.
async fn round_on_ids(prompt: &'static [u32], output: &'static [u32]) -> (TrainRow, Vec<String>) {
    let (place, steps) = (Place::new(), Arc::new(Steps::default()));
    let policy = Arc::new(WithIds {
        id: PolicyId::new("ids"),
        prompt,
        output,
    });
    let (sft, observer) = (full("epochs: 1"), Arc::clone(&steps));
    let scene = workshop_of(&place, to_learn, policy, "gather_tasks: 12", &sft, observer).await;
    let head = scene.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let round = scene.model_loop(1, &head, None, &mut history.discoveries);
    assert_eq!(round.await.expect("a round"), None, "the old weights stay");
    let trained = trainings(&scene).await.remove(0);
    let warnings = steps.warnings.lock().expect("alone").clone();
    (trained, warnings)
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_that_a_server_gave_two_start_tokens_are_not_learnt_from() {
    let output = &[40, 41, END];
    let (trained, warnings) = round_on_ids(&[START, 10], output).await;
    assert_eq!(trained.skipped, None, "{warnings:?}");
    assert_eq!((trained.trajectories, trained.tokens), (12, 12 * 5));
    let (trained, warnings) = round_on_ids(&[START, START, 10], output).await;
    let skipped = trained.skipped.as_deref();
    assert_eq!(skipped, Some("there is nothing to train on"));
    let told =
        "12 of 12 rows or rollouts are left out of training: 12 with more than one start token";
    let is_told = warnings.iter().any(|warning| warning.starts_with(told));
    assert!(is_told, "{warnings:?}");
}

/// As of a policy whose replies all end at a stop text.
#[tokio::test(flavor = "multi_thread")]
async fn where_no_end_of_a_turn_counts_nothing_is_trained() {
    let (trained, warnings) = round_on_ids(&[START, END, 10], &[40, 41]).await;
    let skipped = trained.skipped.as_deref();
    assert!(
        skipped.is_some_and(|reason| reason.starts_with("no end-of-turn token counts in any row")),
        "{trained:?}"
    );
    assert_eq!((trained.adapter, trained.steps), (None, 0));
    let told = "12 of 12 rows have a turn without an end-of-turn token";
    let is_told = warnings.iter().any(|warning| warning.starts_with(told));
    assert!(is_told, "{warnings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_that_was_stopped_ends_in_the_same_weights() {
    let alone = Place::new();
    let scene = workshop(&alone, knows_all, SHORT, Arc::default()).await;
    rounds(&scene).await;
    let expected = trainings(&scene).await;

    let place = Place::new();
    let file = directory(&place).join("stop");
    let steps = Steps {
        stop: Some((5, file.clone())),
        ..Steps::default()
    };
    let scene = workshop(&place, knows_all, SHORT, Arc::new(steps)).await;
    let head = scene.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let stopped = scene.model_loop(1, &head, None, &mut history.discoveries);
    assert!(matches!(stopped.await, Err(RunError::Stopped { .. })));
    let checkpoint = directory(&place).join("training/round-1/checkpoint-000005");
    assert!(checkpoint.join("model.safetensors").is_file());
    drop(scene);
    std::fs::remove_file(file).expect("the file that stops");
    let steps = Arc::new(Steps::default());
    let again = workshop(&place, knows_all, SHORT, Arc::clone(&steps)).await;
    rounds(&again).await;
    let rest = trainings(&again).await;
    assert_eq!(steps.taken.load(Ordering::Relaxed), 3 + 8);
    for (one, other) in expected.iter().zip(&rest) {
        assert_eq!((&one.adapter, one.loss), (&other.adapter, other.loss));
    }
}

/// The first and the last losses of a round's training, and of the next one's on the weights of the first,
/// whatever the gate said of them. Both learn from the same twelve solutions.
async fn losses_of_two_rounds(sft: &str) -> [(f64, f64); 2] {
    let place = Place::new();
    let gather = "gather_tasks: 12";
    let open = || {
        workshop_that_asks(
            &place,
            to_learn,
            knows_all,
            gather,
            sft,
            Arc::<Steps>::default(),
        )
    };
    let scene = open().await;
    let head = scene.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let round = scene.model_loop(1, &head, None, &mut history.discoveries);
    round.await.expect("a round");
    let trained = trainings(&scene).await.remove(0).adapter.expect("weights");
    drop(scene);
    let policy = Scripted::policy("trained", knows_all);
    let scene = open().await.with_policy(Some(&trained), policy);
    let round = scene.model_loop(2, &head, Some(trained), &mut history.discoveries);
    round.await.expect("a round");
    let losses = trainings(&scene).await;
    let losses: Vec<(f64, f64)> = losses.iter().filter_map(|row| row.loss).collect();
    losses.try_into().expect("two trainings")
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-4 * other
}

/// All solutions are one batch, and the rate is always the same: what a training begins with is what a
/// longer one before it would have come to.
const EVEN: &str = "batch: 12, schedule: constant, warmup_share: 0";

#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_goes_on_from_the_one_before_where_that_is_asked_for() {
    let lora = format!("rank: 4, alpha: 8, learning_rate: 1.0e-2, {EVEN}");
    let [first, second] = losses_of_two_rounds(&format!("{lora}, epochs: 8, start: current")).await;
    let [longer, fresh] = losses_of_two_rounds(&format!("{lora}, epochs: 9")).await;
    let told = format!("{first:?}, then {second:?}; {longer:?}, then {fresh:?}");
    assert!(is_near(second.0, longer.1), "{told}");
    assert!(second.0 < 0.99 * first.0, "{told}");
    assert!(is_near(longer.0, first.0), "{told}");
    assert!(is_near(fresh.0, first.0), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_weight_starts_from_the_base_models_where_that_is_asked_for() {
    let full = format!("method: full, learning_rate: 1.0e-3, epochs: 8, start: base, {EVEN}");
    let [first, second] = losses_of_two_rounds(&full).await;
    let told = format!("{first:?}, then {second:?}");
    assert!(first.1 < 0.99 * first.0, "{told}");
    assert!(is_near(second.0, first.0), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_room_for_checkpoints_it_says_so_before_the_first_step() {
    let place = Place::new();
    let small = directory(&place);
    std::fs::create_dir_all(&small).expect("folder");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1500k", "tmpfs"])
        .arg(&small)
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("skipped: only root can mount a small disk");
        return;
    }
    let _unmount = Unmount(small);
    let steps = Arc::new(Steps::default());
    let scene = workshop(&place, knows_all, SHORT, Arc::clone(&steps)).await;
    let head = scene.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let refused = scene.model_loop(1, &head, None, &mut history.discoveries);
    let error = refused.await.expect_err("no room");
    assert!(matches!(error, RunError::NoRoom { .. }), "{error}");
    assert_eq!(error.exit_code(), 5);
    assert!(error.hint().is_some_and(|hint| hint.contains("Free some")));
    assert_eq!(steps.taken.load(Ordering::Relaxed), 0);
}
