//! The same faults on the real small model, where they can be seen there.
//!
//! A small model needs examples to call a tool at all, so the working harness is another one here:
//! that of the suite with worked examples. A fault counts as visible if it costs a fifth of the
//! problems that the model solves without it, and two at least.
//!
//!     COHARNESS_TEST_MODEL=… cargo test --package coharness --test all real_model -- --ignored --nocapture

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use coharness::splits::Splits;
use harness::{Dimension, Harness};
use rollout::Columns;

use super::fault::Fault;
use super::planted::{bench, faults};
use super::{CONFIG, Level, python};
use crate::scene::Scene;
use crate::{Place, real_model};

/// Problems of the three splits.
const SIZES: [usize; 3] = [60, 60, 40];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "an hour on two cores"]
async fn faults_on_the_real_model() {
    let Some(model) = real_model() else {
        println!("skipped: COHARNESS_TEST_MODEL names no model");
        return;
    };
    let only = std::env::var("COHARNESS_TEST_FAULT").unwrap_or_default();
    println!(
        "{:<3} {:<37} {:>4} {:>4}  {:<30} {:>4}  accepted patches",
        "dim", "planted fault", "work", "flaw", "heaviest cluster", "loop"
    );
    let place = Place::new();
    for (number, fault) in faults().into_iter().enumerate() {
        if !fault.name.contains(&only) {
            continue;
        }
        let started = Instant::now();
        let directory = place.path().join(format!("fault-{number}"));
        let row = examine(&fault, &model, &directory).await;
        let seconds = started.elapsed().as_secs();
        let dim = fault.cause.harness_dim().to_string();
        println!("{dim:<3} {:<37} {row}  ({seconds} s)", fault.name);
    }
}

/// What the working harness of the suite needs for a small model.
fn working() -> Harness {
    let plain = bench();
    let rule = critic::rule("example_missing").expect("a rule");
    let examples = rule.repairs[0].patch(&plain, Dimension::P);
    examples
        .expect("examples")
        .apply(&plain)
        .expect("a harness")
}

async fn examine(fault: &Fault, model: &Path, directory: &Path) -> String {
    let working = Arc::new(working());
    let mut broken = Harness::clone(&working);
    (fault.plant)(&mut broken);
    if broken == *working || harness::validate(&broken).is_err() {
        return "can't be planted here".into();
    }
    let config = CONFIG
        .replace(
            "{kind: openai, base_url: 'http://127.0.0.1:1/v1', model: none}",
            "{kind: local}",
        )
        .replace("{path: none}", &format!("{{path: '{}'}}", model.display()))
        .replace("tokens_per_problem: 4000", "tokens_per_problem: 256");
    let scene = Scene {
        config: &config,
        splits: splits(),
        directory,
        is_aloud: false,
    };
    let workshop = scene.on_this_machine(&broken, python()).await;
    let policy = workshop.policy(None).await.expect("the model");
    let level = Level::new(&workshop, &policy);
    let (before, flawed) = (level.of(&working).await, level.of(&broken.into()).await);
    let least = (before / 5.0).max(2.0 / SIZES[2] as f64);
    if before - flawed < least {
        return format!(
            "{:3.0}% {:3.0}%  not visible",
            100.0 * before,
            100.0 * flawed
        );
    }
    let heaviest = level.heaviest_cluster().await;
    let named = heaviest.as_ref().map_or("nothing", |cluster| &cluster.rule);
    let is_named = heaviest
        .as_ref()
        .is_some_and(|c| c.root_cause == fault.cause);
    let (end, patches) = level.repair().await;
    let after = level.of(&end).await;
    format!(
        "{:3.0}% {:3.0}% {}{named:<30} {:3.0}%  {}",
        100.0 * before,
        100.0 * flawed,
        if is_named { ' ' } else { '!' },
        100.0 * after,
        patches.join("; ")
    )
}

/// The first problems of the shipped set.
fn splits() -> Splits {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../configs/tasks/arithmetic.jsonl");
    let text = std::fs::read_to_string(file).expect("the project's problems");
    let mut tasks =
        rollout::load_tasks(&text, "arithmetic", &Columns::default()).expect("problems");
    tasks.truncate(SIZES.iter().sum());
    let test = tasks.split_off(SIZES[0] + SIZES[1]);
    let gate = tasks.split_off(SIZES[0]);
    Splits {
        available: SIZES.iter().sum(),
        evolve: tasks,
        gate,
        test,
        suites: Vec::new(),
        hash: String::new(),
    }
}
