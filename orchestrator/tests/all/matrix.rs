//! The 2×2 of each round: which cells are made, and whose they are in the report.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use coharness::config::{Config, MatrixKind};
use coharness::harness_loop::Head;
use coharness::observer::{Notice, Observer};
use coharness::report::{Matrix, Report};
use coharness::run::Saved;
use coharness::splits::Splits;
use coharness::store::Store;
use coharness::workshop::Workshop;
use rollout::{Message, Policy};
use serde_json::{Value, json};

use crate::counting::{self, boxed, level, number_in};
use crate::full_training::model;
use crate::scene::{FortyTwo, Scene, Scripted, accept, first_number, on, small, trained_on};
use crate::server::{Answer, config, serve_all};
use crate::{CONFIG, Place, tasks};

/// Solves as many of ten problems as the prompt says, and `more`; counts how often it is asked.
fn policy(name: &str, more: u32, asked: &Arc<AtomicU32>) -> Arc<dyn Policy> {
    let asked = Arc::clone(asked);
    Scripted::failing(name, move |messages: &[Message]| {
        asked.fetch_add(1, Ordering::Relaxed);
        let number = number_in(messages);
        let is_beyond = number > level(messages, 1) + more;
        Ok(boxed(3 * number + u32::from(is_beyond)))
    })
}

/// Keeps the lines of crossed cells.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Observer for Lines {
    fn notice(&self, notice: Notice) {
        if let Notice::Line(line) = notice
            && line.contains("weights")
        {
            self.0.lock().expect("lock").push(line);
        }
    }
}

impl Lines {
    /// Those since the last look, without their intervals.
    fn take(&self) -> Vec<String> {
        let lines = std::mem::take(&mut *self.0.lock().expect("lock"));
        let short = |line: String| match (line.find(" ["), line.find(']')) {
            (Some(from), Some(to)) => format!("{}{}", &line[..from], &line[to + 1..]),
            _ => line,
        };
        lines.into_iter().map(short).collect()
    }
}

/// A run with ten problems to score on and weights that were trained, which solve two more.
struct Scored {
    workshop: Workshop,
    lines: Arc<Lines>,
    asked: Arc<AtomicU32>,
}

impl Scored {
    async fn new(place: &Place, matrix: &str) -> Self {
        let config = small([1, 4, 10], "");
        let run = format!("{{name: small, matrix: {matrix}}}");
        let scene = Scene {
            config: &config.replace("{name: small}", &run),
            splits: Splits::only_test(counting::triangles(10)),
            directory: place.path(),
            is_aloud: false,
        };
        let harness = harness::naive().expect("the shipped harness");
        let (lines, asked) = (Arc::new(Lines::default()), Arc::new(AtomicU32::new(0)));
        let workshop = scene
            .watched(&harness, Arc::new(FortyTwo), lines.clone())
            .await
            .with_policy(None, policy("base", 0, &asked))
            .with_policy(Some("trained"), policy("trained", 2, &asked));
        Self {
            workshop,
            lines,
            asked,
        }
    }
}

/// A round's place in the table, and its 2×2.
async fn score(workshop: &Workshop, round: u32, start: &Head, head: &Head, adapter: Option<&str>) {
    let label = format!("round {round}");
    let scored = workshop.evaluate(round, &label, head, adapter).await;
    scored.expect("a cell");
    let standing = adapter.map_or_else(|| on(head), |adapter| trained_on(head, adapter));
    let crossed = workshop.cross(round, start, &standing).await;
    crossed.expect("two cells");
}

/// Solved problems: old weights under old and new harness, new weights under both.
fn correct(matrix: &Matrix) -> [Option<u32>; 4] {
    [
        matrix.old_weights_old_harness,
        matrix.old_weights_new_harness,
        matrix.new_weights_old_harness,
        matrix.new_weights_new_harness,
    ]
    .map(|cell| cell.map(|rate| rate.correct))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_round_has_a_matrix_of_its_own_and_no_cell_is_made_twice() {
    let place = Place::new();
    let Scored {
        workshop,
        lines,
        asked,
    } = Scored::new(&place, "each_round").await;
    let made = || asked.swap(0, Ordering::Relaxed);

    let start = workshop.head("v1").expect("v1");
    let baseline = workshop.evaluate(0, "baseline", &start, None).await;
    baseline.expect("a cell");
    assert_eq!(made(), 10);
    let report = || async {
        let report = Report::read(&workshop.store).await;
        report.expect("a report")
    };
    let begun = report().await;
    assert_eq!(correct(&begun.matrix), [Some(1), None, None, None]);
    let path = "prompts.system";
    let second = accept(&workshop, &start, path, "Solve up to 4.");
    score(&workshop, 1, &start, &second, Some("trained")).await;
    assert_eq!(made(), 30);
    assert_eq!(
        lines.take(),
        [
            "test · old weights new harness, round 1: 40.0% of 10 problems under v2",
            "test · new weights old harness, round 1 with trained: 30.0% of 10 problems under v1",
        ]
    );
    // Other weights didn't come: they are known under the old harness.
    let third = accept(&workshop, &second, path, "Solve up to 6.");
    score(&workshop, 2, &start, &third, Some("trained")).await;
    assert_eq!(made(), 20);
    assert_eq!(
        lines.take(),
        [
            "test · old weights new harness, round 2: 60.0% of 10 problems under v3",
            "test · new weights old harness, round 2 with trained: 30.0% of 10 problems under v1, \
             known before",
        ]
    );
    // What the first round ended with, under another name.
    let back = workshop
        .with_registry(|registry| registry.rollback(second.version.name, "it was enough", 7))
        .expect("v4");
    let fourth = Head {
        version: back,
        ..second.clone()
    };
    score(&workshop, 3, &start, &fourth, Some("trained")).await;
    assert_eq!(made(), 0);

    let first = [Some(1), Some(4), Some(3), Some(6)];
    let unfinished = report().await;
    assert!(!unfinished.is_finished);
    assert_eq!(correct(&unfinished.matrix), first);
    workshop
        .store
        .create_run("small-seed0", "{}", 0)
        .await
        .expect("a run");
    workshop.store.finish_run(1).await.expect("an end");
    let finished = report().await;
    let cells: Vec<[Option<u32>; 4]> = finished
        .test
        .rounds
        .iter()
        .map(|round| correct(&round.matrix))
        .collect();
    assert_eq!(cells, [first, [Some(1), Some(6), Some(3), Some(8)], first]);
    assert_eq!(correct(&finished.matrix), first);
    let debt = finished.matrix.harness_debt.expect("a debt");
    assert!((debt - 0.3).abs() < 1e-9, "{debt}");

    // Without new weights there is nothing to cross, and the cell is known.
    score(&workshop, 4, &start, &fourth, None).await;
    assert_eq!(made(), 0);
    let last = report().await.matrix;
    assert_eq!(correct(&last), [Some(1), Some(4), Some(1), Some(4)]);
    assert_eq!(last.harness_debt, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_of_the_last_round_alone_need_no_round() {
    let place = Place::new();
    let Scored {
        workshop, lines, ..
    } = Scored::new(&place, "last").await;
    let start = workshop.head("v1").expect("v1");
    let second = accept(&workshop, &start, "prompts.system", "Solve up to 4.");
    score(&workshop, 2, &start, &second, Some("trained")).await;
    assert_eq!(
        lines.take(),
        [
            "test · old weights new harness: 40.0% of 10 problems under v2",
            "test · new weights old harness: 30.0% of 10 problems under v1",
        ]
    );
}

#[test]
fn a_plan_says_when_the_matrix_is_measured() {
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(8));
    place.write("run.yaml", CONFIG);
    place.write("model.gguf", "not read by a plan");
    let plan = |set: &str| place.run(&["run", "--config", "run.yaml", "--dry-run", "--set", set]);
    let line = "2×2        up to 4 more rollouts on the sealed test\n";
    let each = plan("run.matrix=each_round");
    assert!(each.contains(&format!("  {line}")), "{each}");
    let last = plan("run.matrix=last");
    assert!(last.contains(&format!("\n{line}")), "{last}");
    let untrained = plan("model_loop.is_enabled=false");
    assert!(!untrained.contains("2×2"), "{untrained}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_saved_before_there_was_a_choice_crossed_its_last_round_alone() {
    let place = Place::new();
    let config: Config = harness::yaml::from_str(&small([1, 4, 10], "")).expect("a configuration");
    let saved = Saved {
        config,
        base: None,
        tasks: String::new(),
    };
    let mut saved = serde_json::to_value(&saved).expect("JSON");
    let fields = saved["config"]["run"].as_object_mut().expect("fields");
    assert_eq!(fields.remove("matrix"), Some(json!("each_round")));
    let store = Store::open(place.path()).await.expect("a store");
    let created = store.create_run("small-seed0", &saved.to_string(), 0).await;
    created.expect("a run");
    let read = Saved::read(&store).await.expect("a run").expect("a run");
    assert_eq!(read.config.run.matrix, MatrixKind::Last);
}

/// A server with adapters, as vLLM is one.
#[derive(Default)]
struct Server {
    /// Messages before the problem, of the first request: the starting harness.
    first: Option<Value>,
    /// In the order they came.
    adapters: Vec<String>,
    /// Models that were asked, and whether under the starting harness.
    asked: Vec<(String, bool)>,
}

impl Server {
    /// Wrong under the starting harness; under another one a third of the problems is right without an
    /// adapter, and a third more with each that came.
    fn answer(&mut self, path: &str, request: &Value) -> Answer {
        match path {
            "/models" => {
                let entry = |id: &String| json!({"id": id});
                let data: Vec<Value> = self.adapters.iter().map(entry).collect();
                return Answer::Body(json!({"data": data}));
            }
            "/load_lora_adapter" => {
                let name = request["lora_name"].as_str().expect("a name");
                self.adapters.push(name.to_owned());
                return Answer::Body(json!({}));
            }
            _ => {}
        }
        let messages = request["messages"].as_array().expect("messages");
        let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
        let at = messages
            .iter()
            .rposition(|message| message["role"] == "user" && text(message).contains("What is"))
            .expect("a problem");
        let opening = Value::from(messages[..at].to_vec());
        let is_first = *self.first.get_or_insert_with(|| opening.clone()) == opening;
        let name = request["model"].as_str().expect("a model");
        self.asked.push((name.to_owned(), is_first));
        let place = self.adapters.iter().position(|known| known == name);
        let level = place.map_or(1, |place| 2 + place);
        let number = first_number(&text(&messages[at]));
        let is_right = !is_first && (number as usize) % 3 < level;
        let answer = number + if is_right { 1 } else { 2 };
        Answer::Says(format!("I think it is \\boxed{{{answer}}}."))
    }
}

#[test]
fn a_finished_run_gets_the_cells_of_its_earlier_rounds() {
    let server = Arc::new(Mutex::new(Server::default()));
    let served = Arc::clone(&server);
    let url = serve_all(move |path, request| served.lock().expect("lock").answer(path, request));
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(30));
    let tiny = model(&place);
    let sizes = std::fs::read_to_string(tiny.join("config.json")).expect("sizes");
    place.write("tiny/config.json", &sizes.replace("2048", "8192"));
    // All gate problems: few of them gain, the port is a part of the policy's identity, and the draw goes by that.
    let more = "gate: {mode: paper, tasks: 12, retest_every: 0, reference_every: 0}
harness_loop: {iterations: 1, diagnose_tasks: 12, candidates: 4}
model_loop:
  gather_tasks: 12
  min_trajectories: 1
  drop_lucky: false
  sft: {rank: 2, alpha: 4, epochs: 1, batch: 4}
";
    let path = format!("{{path: {}, arithmetic: f32}}", tiny.display());
    let config = config(&url, "{evolve: 12, gate: 12, test: 6}", more)
        .replace("{path: model.gguf}", &path)
        .replace("model: m}", "model: m, adapters: vllm}");
    place.write("run.yaml", &config);
    let run = |matrix: &str| -> Value {
        let set = format!("run.matrix={matrix}");
        let arguments = [
            "run", "--config", "run.yaml", "--rounds", "2", "--set", &set, "--json",
        ];
        let output = place.command(&arguments).output().expect("runs");
        assert!(output.status.success(), "{}", place.transcript(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let before = run("last");
    // Each round ended with weights of its own, both under the patch of the first.
    let ends: Vec<(&Value, &Value)> = before["test"]["rounds"]
        .as_array()
        .expect("rounds")
        .iter()
        .map(|round| (&round["version"], &round["adapter"]))
        .collect();
    let [(first, one), (second, other)] = ends[..] else {
        panic!("{before}");
    };
    assert_eq!((first, second), (&json!("v2"), &json!("v2")), "{before}");
    assert!(one.is_string() && other.is_string() && one != other);
    let cell = |report: &Value, round: usize| {
        report["test"]["rounds"][round]["matrix"]["new_weights_old_harness"].clone()
    };
    assert_eq!(cell(&before, 0), Value::Null);
    assert_eq!(cell(&before, 1)["n"], 6);

    let made = || std::mem::take(&mut server.lock().expect("lock").asked);
    made();
    let after = run("each_round");
    let adapter = one.as_str().expect("an adapter");
    assert_eq!(made(), vec![(adapter.to_owned(), true); 6]);
    assert_eq!(cell(&after, 0)["n"], 6);
    for part in ["patch_decisions", "weight_decisions", "trainings", "matrix"] {
        assert_eq!(after[part], before[part], "{part}");
    }
    let last = |report: &Value| report["test"]["rounds"][1].clone();
    assert_eq!(last(&after), last(&before));
    // Nothing is left to make.
    run("each_round");
    assert!(made().is_empty());
}
