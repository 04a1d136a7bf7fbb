//! Training every weight in a run, on a tiny model: kept as full sets, decided on like adapters, gone on
//! from, and for other programs.

mod left_out;
mod selection;
mod start;
mod weights;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use coharness::base_model::BaseModel;
use coharness::history::History;
use coharness::observer::{Notice, Observer};
use coharness::report::{Report, TrainRow};
use coharness::splits::Splits;
use coharness::workshop::Workshop;
use rollout::{Message, Policy, Task};

use crate::Place;
use crate::scene::{FortyTwo, Scene, Scripted, numbered};

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
faults: {{first_pause_ms: 1, longest_pause_s: 1}}
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

const SHORT: &str = "epochs: 4, checkpoint_steps: 3";
