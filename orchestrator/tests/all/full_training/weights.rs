//! What becomes of trained weights: kept or gone, gone on from, taken up again after a stop, and read by other
//! programs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use candle_core::Device;
use coharness::error::RunError;
use coharness::gate::decide::Verdict;
use coharness::history::History;
use coharness::observer::{Notice, Observer};
use coharness::report::Report;
use model::adapter::serialize;
use model::weights::load_safetensors;
use rollout::{Message, Policy, PolicyError};
use serde_json::json;

use super::{
    SHORT, Steps, directory, full, knows_all, rounds, to_learn, trainings, workshop, workshop_of,
};
use crate::Place;
use crate::scene::{Scripted, first_number};
use crate::serve_model::Server;
use crate::whole_run::Unmount;

/// Enough to learn one answer by heart.
const THOROUGH: &str = "epochs: 60";

/// Knows what is learnt from, and not what is decided by.
fn knows_some(messages: &[Message]) -> String {
    let is_known = messages[messages.len() - 1].content.contains("learn");
    format!("It is \\boxed{{{}}}.", if is_known { 42 } else { 1 })
}

/// The full sets that a run keeps.
fn kept(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(directory(place).join("weights")).expect("weights");
    entries
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into())
        .collect()
}

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

/// Base weights that can't be had for every second gate problem while `is_down` says so, but for the rollouts
/// that tell failed problems from solved ones, which come first.
fn flaky(is_down: &Arc<AtomicBool>) -> Arc<dyn Policy> {
    let (is_down, asked) = (Arc::clone(is_down), Mutex::new(BTreeSet::new()));
    Scripted::failing("script", move |messages| {
        let question = messages[messages.len() - 1].content.clone();
        let is_affected = question.contains("decide") && first_number(&question) % 2 == 1;
        let is_first = asked.lock().expect("alone").insert(question);
        if is_affected && !is_first && is_down.load(Ordering::Relaxed) {
            return Err(PolicyError::Unavailable {
                attempts: 1,
                reason: "not now".into(),
            });
        }
        Ok(knows_some(messages))
    })
}

/// Mends them when new weights are to be measured once more.
struct Mends(Arc<AtomicBool>);

impl Observer for Mends {
    fn notice(&self, notice: Notice) {
        if let Notice::Line(line) = notice
            && line.contains("they are measured once more")
        {
            self.0.store(false, Ordering::Relaxed);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn weights_that_could_not_be_measured_are_measured_once_more() {
    let place = Place::new();
    let is_down = Arc::new(AtomicBool::new(true));
    // The second time it goes on from the journal, in which the first measurement has its gaps.
    for _ in 0..2 {
        let (policy, observer) = (flaky(&is_down), Arc::new(Mends(Arc::clone(&is_down))));
        let (gather, sft) = ("gather_tasks: 12", full(THOROUGH));
        let scene = workshop_of(&place, to_learn, policy, gather, &sft, observer).await;
        let head = scene.head("v1").expect("v1");
        let mut history = History::new(0.05);
        let round = scene.model_loop(1, &head, None, &mut history.discoveries);
        let weights = round.await.expect("a round").expect("new weights");
        assert_eq!(kept(&place), [weights]);
        let report = Report::read(&scene.store).await.expect("a report");
        let [first, second] = &report.weight_decisions[..] else {
            panic!("{:?}", report.weight_decisions);
        };
        assert_eq!(
            first.verdict.objection().as_deref(),
            Some("stage 1: only 4 of 8 pairs on V_in count (4 kept from being made)")
        );
        assert_eq!((first.is_open, second.is_open), (true, false));
        assert_eq!(second.verdict, Verdict::Accepted);
        assert_eq!(second.stages[0].delta_in.pairs, 8);
        // It is one set of weights all the same.
        assert_eq!((report.weights.accepted, report.weights.rejected), (1, 0));
    }
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
