//! The same faults on the real small model, where they can be seen there.
//!
//! A small model needs examples to call a tool at all, so the working harness is another one here:
//! that of the suite with worked examples. A fault counts as visible if it costs a fifth of the
//! problems that the model solves without it, and two at least; it is repaired if what is left of that
//! would not count.
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
const SIZES: [usize; 3] = [60, 60, 60];

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
    let (mut unplanted, mut unseen, mut seen, mut named, mut repaired) = (0, 0, 0, 0, 0);
    let mut working_level = None;
    for (number, fault) in faults().into_iter().enumerate() {
        if !fault.name.contains(&only) {
            continue;
        }
        let started = Instant::now();
        let directory = place.path().join(format!("fault-{number}"));
        let outcome = examine(&fault, &model, &directory, &mut working_level).await;
        let seconds = started.elapsed().as_secs();
        let dim = fault.cause.harness_dim().to_string();
        println!("{dim:<3} {:<37} {outcome}  ({seconds} s)", fault.name);
        match outcome {
            Outcome::Unplanted => unplanted += 1,
            Outcome::Unseen { .. } => unseen += 1,
            Outcome::Seen {
                is_named,
                before,
                after,
                ..
            } => {
                seen += 1;
                named += u32::from(is_named);
                repaired += u32::from(is_back(before, after));
            }
        }
    }
    println!(
        "{seen} visible, {named} of them named, {repaired} repaired; {unseen} not visible, {unplanted} can't be planted"
    );
    if only.is_empty() {
        assert!(seen >= 5, "{seen} visible");
    }
}

/// What became of a fault. Levels are shares of the test problems that are solved: under the working
/// harness, under the broken one, and under the one that the loop ends with.
enum Outcome {
    Unplanted,
    Unseen {
        before: f64,
        flawed: f64,
    },
    Seen {
        before: f64,
        flawed: f64,
        after: f64,
        heaviest: String,
        is_named: bool,
        patches: Vec<String>,
    },
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = |share: f64| format!("{:3.0}%", 100.0 * share);
        match self {
            Self::Unplanted => f.write_str("can't be planted here"),
            Self::Unseen { before, flawed } => {
                write!(f, "{} {}  not visible", percent(*before), percent(*flawed))
            }
            Self::Seen {
                before,
                flawed,
                after,
                heaviest,
                is_named,
                patches,
            } => write!(
                f,
                "{} {} {}{heaviest:<30} {}{}  {}",
                percent(*before),
                percent(*flawed),
                if *is_named { ' ' } else { '!' },
                if is_back(*before, *after) { ' ' } else { '!' },
                percent(*after),
                patches.join("; ")
            ),
        }
    }
}

/// The smallest loss that counts as one.
fn least(before: f64) -> f64 {
    (before / 5.0).max(2.0 / SIZES[2] as f64)
}

/// Whether what is left of a loss would not count as one.
fn is_back(before: f64, after: f64) -> bool {
    before - after < least(before)
}

/// What the working harness of the suite needs for a small model.
fn working() -> Harness {
    let plain = bench();
    let rule = critic::rule("example_missing").expect("a rule");
    let examples = rule.repairs[0].patch(&plain, Dimension::P);
    let mut harness = examples
        .expect("examples")
        .apply(&plain)
        .expect("a harness");
    harness.middleware.runtime.parallel_rollouts = 64;
    harness
}

async fn examine(
    fault: &Fault,
    model: &Path,
    directory: &Path,
    working_level: &mut Option<f64>,
) -> Outcome {
    let working = Arc::new(working());
    let mut broken = Harness::clone(&working);
    (fault.plant)(&mut broken);
    if broken == *working || harness::validate(&broken).is_err() {
        return Outcome::Unplanted;
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
    let before = match *working_level {
        Some(known) => known,
        None => *working_level.insert(level.of(&working).await),
    };
    let flawed = level.of(&broken.into()).await;
    if before - flawed < least(before) {
        return Outcome::Unseen { before, flawed };
    }
    let heaviest = level.heaviest_cluster().await;
    let named_by = |cluster: &critic::Cluster| fault.is_named_by(cluster.root_cause);
    let is_named = heaviest.as_ref().is_some_and(named_by);
    let (end, patches) = level.repair().await;
    Outcome::Seen {
        before,
        flawed,
        after: level.of(&end).await,
        heaviest: heaviest.map_or_else(|| "nothing".into(), |cluster| cluster.rule),
        is_named,
        patches,
    }
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
