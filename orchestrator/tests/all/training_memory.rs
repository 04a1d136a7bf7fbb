//! What a training may take of the memory: planned and told, and refused before anything is done.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use coharness::error::RunError;
use coharness::history::History;
use coharness::observer::{Notice, Observer};
use coharness::store::Store;
use coharness::workshop::Workshop;
use trainer::TrainError;

use crate::full_training::{directory, knows_all, model, trainings, workshop_that_asks};
use crate::{CONFIG, Place, tasks};

/// Trained in a batch of six rows of about seven hundred tokens: some 35 MiB, and 26 with blocks computed
/// twice.
const LORA: &str = "rank: 4, alpha: 8, batch: 6, epochs: 1";
const FULL: &str = "method: full, batch: 6, epochs: 1";

/// Keeps the lines it is told, and counts training steps.
#[derive(Default)]
struct Told {
    lines: Mutex<Vec<String>>,
    steps: AtomicUsize,
}

impl Told {
    fn line_with(&self, part: &str) -> Option<String> {
        let lines = self.lines.lock().expect("alone");
        lines.iter().find(|line| line.contains(part)).cloned()
    }
}

impl Observer for Told {
    fn notice(&self, notice: Notice) {
        match notice {
            Notice::Line(line) => self.lines.lock().expect("alone").push(line),
            Notice::Advanced { figure, .. } if figure.starts_with("loss") => {
                self.steps.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// A workshop that has twelve long solutions to learn from.
async fn workshop(place: &Place, sft: &str) -> (Workshop, Arc<Told>) {
    let told = Arc::new(Told::default());
    let observer = Arc::clone(&told);
    let gather = "gather_tasks: 12";
    let asks = |number: u32| {
        let patience = " Take your time.".repeat(40);
        format!("Question {number} to learn from?{patience}")
    };
    let workshop = workshop_that_asks(place, asks, knows_all, gather, sft, observer).await;
    (workshop, told)
}

async fn round(workshop: &Workshop) -> Result<(), RunError> {
    let head = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let round = workshop.model_loop(1, &head, None, &mut history.discoveries);
    round.await.map(drop)
}

/// The error of a round under `sft`, which has done no step and written no checkpoint.
async fn refused(place: &Place, sft: &str) -> RunError {
    let (workshop, told) = workshop(place, sft).await;
    let error = round(&workshop).await.expect_err("no room");
    assert_eq!(told.steps.load(Ordering::Relaxed), 0);
    assert!(!directory(place).join("training").exists());
    assert!(trainings(&workshop).await.is_empty());
    assert_eq!(error.exit_code(), 3, "{error}");
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_does_not_fit_is_refused_before_the_first_step() {
    for method in [LORA, FULL] {
        let place = Place::new();
        let error = refused(&place, &format!("{method}, memory_mib: 8")).await;
        let RunError::Train(TrainError::Memory {
            tokens,
            needed_mib,
            fixed_mib,
            available_mib,
        }) = error
        else {
            panic!("{method}: {error}");
        };
        assert!((3600..5400).contains(&tokens), "{method}: {error}");
        assert_eq!(available_mib, 8);
        assert!(fixed_mib < 8 && needed_mib > 16, "{method}: {error}");
        let hint = error.hint().unwrap_or_default();
        for setting in ["memory_mib", "sft.batch", "accumulate", "max_tokens"] {
            assert!(hint.contains(setting), "{setting}: {hint}");
        }
        // The same run goes on where it may take more, with the rollouts that it has.
        let (workshop, told) = workshop(&place, &format!("{method}, memory_mib: 256")).await;
        round(&workshop).await.expect("a round");
        assert_eq!(told.steps.load(Ordering::Relaxed), 2, "{method}");
        assert!(told.line_with("computing blocks twice").is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_batch_fits_it_is_not_the_batch_that_is_blamed() {
    let wide = LORA.replace("rank: 4", "rank: 64");
    for method in [wide.as_str(), FULL] {
        let place = Place::new();
        let error = refused(&place, &format!("{method}, memory_mib: 1")).await;
        let is_fixed = matches!(
            error,
            RunError::Train(TrainError::FixedMemory {
                available_mib: 1,
                ..
            })
        );
        assert!(is_fixed, "{method}: {error}");
        let hint = error.hint().unwrap_or_default();
        assert!(hint.starts_with("No batch is small enough"), "{hint}");
        assert!(hint.contains("memory_mib"), "{hint}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_less_memory_or_if_asked_to_blocks_are_computed_twice_to_the_same_weights() {
    let always = ", recompute: always";
    for method in [LORA, FULL] {
        let mut weights = Vec::new();
        for (more, is_twice) in [("", false), (", memory_mib: 30", true), (always, true)] {
            let place = Place::new();
            let (scene, told) = workshop(&place, &format!("{method}{more}")).await;
            round(&scene).await.expect("a round");
            let line = told.line_with("needs up to").expect("a plan");
            assert_eq!(line.contains("computing blocks twice"), is_twice, "{line}");
            weights.push(trainings(&scene).await.remove(0).adapter);
            drop(scene);
            // What is trained is trained, whichever way it was.
            for other in ["", always] {
                let (scene, told) = workshop(&place, &format!("{method}{other}")).await;
                round(&scene).await.expect("a round");
                let steps = told.steps.load(Ordering::Relaxed);
                assert_eq!(steps, 0, "{method}{more}, then {other}");
            }
        }
        assert!(weights[0].is_some());
        assert!(weights.iter().all(|one| *one == weights[0]), "{method}");
    }
}

/// Blocks computed twice are no way around a limit.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_always_computed_twice_has_to_fit_too() {
    let place = Place::new();
    let error = refused(&place, &format!("{LORA}, recompute: always, memory_mib: 8")).await;
    let is_refused = matches!(error, RunError::Train(TrainError::Memory { .. }));
    assert!(is_refused, "{error}");
}

/// What is known before the rollouts is checked before them.
#[tokio::test]
async fn a_run_that_could_never_train_does_not_begin() {
    let place = Place::new();
    model(&place);
    place.write("tasks.jsonl", &tasks(8));
    place.write("run.yaml", &CONFIG.replace("model.gguf", "tiny"));
    for more in ["model_loop.sft.method=full", "model_loop.sft.rank=64"] {
        let refused = place.run(&[
            "run",
            "--config",
            "run.yaml",
            "--allow-weak-sandbox",
            "--set",
            more,
            "--set",
            "model_loop.sft.memory_mib=1",
        ]);
        assert!(
            refused.contains("MiB whatever the batch, and 1 may be taken"),
            "{refused}"
        );
        assert!(
            refused.contains("hint: No batch is small enough"),
            "{refused}"
        );
        assert!(refused.ends_with("--- exit 3\n"), "{refused}");
        assert!(!refused.contains("baseline"), "{refused}");
        // So another configuration may take the place of this one.
        let store = Store::open(&directory(&place)).await.expect("a store");
        assert!(store.is_untouched().await.expect("an answer"));
        store.close().await;
    }
}

#[test]
fn a_limit_must_be_of_this_machine_and_above_zero() {
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(8));
    place.write("run.yaml", CONFIG);
    for (limit, told) in [
        ("0", "must be at least 1"),
        ("-1", "expected a whole number"),
        ("1.5", "expected a whole number"),
    ] {
        let setting = format!("model_loop.sft.memory_mib={limit}");
        let refused = place.run(&["run", "--config", "run.yaml", "--set", &setting]);
        assert!(refused.contains("model_loop.sft.memory_mib: "), "{refused}");
        assert!(refused.contains(told), "{refused}");
        assert!(refused.ends_with("--- exit 2\n"), "{refused}");
    }
}
