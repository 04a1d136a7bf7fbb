//! The same faults on the real small model, where they can be seen there.
//!
//! A small model needs examples to call a tool at all, so the working harness is another one here:
//! that of the suite with worked examples. A fault counts as visible if it costs a fifth of the
//! problems that the model solves without it, and two at least; it is repaired if what is left of that
//! would not count. The shares that have to be named and repaired are those of the other lists.
//!
//!     COHARNESS_TEST_MODEL=… cargo test --package coharness --test all real_model -- --ignored --nocapture

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use coharness::splits::Splits;
use coharness::workshop::Workshop;
use critic::Cluster;
use harness::{Dimension, Harness};
use rollout::Columns;

use super::fault::Fault;
use super::planted::{bench, faults};
use super::{CONFIG, LEAST_NAMED, LEAST_REPAIRED, Level, python};
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
    let place = Place::new();
    let work = Bench::at(&model, &place.path().join("working"))
        .level_of(None)
        .await;
    println!("the working harness solves {}", percent(work));
    println!(
        "{:<3} {:<37} {:>4}  heaviest cluster",
        "dim", "planted fault", "flaw"
    );
    let (mut planted, mut visible) = (0, Vec::new());
    for (number, fault) in faults().into_iter().enumerate() {
        if !fault.name.contains(&only) || broken(&fault).is_none() {
            continue;
        }
        planted += 1;
        let bench = Bench::at(&model, &place.path().join(format!("fault-{number}")));
        let flaw = bench.level_of(Some(&fault)).await;
        let dim = fault.cause.harness_dim().to_string();
        let start = format!("{dim:<3} {:<37} {}", fault.name, percent(flaw));
        if work - flaw < least(work) {
            println!("{start}  not visible");
            continue;
        }
        let heaviest = bench.heaviest_cluster(&fault).await;
        let named = heaviest.is_some_and(|cluster| {
            println!("{start}  {}", cluster.rule);
            fault.is_named_by(cluster.root_cause)
        });
        visible.push((flaw, fault, named, bench));
    }
    let named = visible.iter().filter(|(_, _, named, _)| *named).count();
    println!(
        "{} of {planted} are visible, {named} of them named",
        visible.len()
    );
    // What costs most first.
    visible.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
    let mut repaired = 0;
    for (flaw, fault, _, bench) in &visible {
        let started = Instant::now();
        let (level, patches) = bench.repaired(fault).await;
        let is_back = work - level < least(work);
        repaired += usize::from(is_back);
        println!(
            "{:<37} {} {}{}  {}  ({} s)",
            fault.name,
            percent(*flaw),
            if is_back { ' ' } else { '!' },
            percent(level),
            patches.join("; "),
            started.elapsed().as_secs()
        );
    }
    println!("{repaired} of {} repaired", visible.len());
    if only.is_empty() {
        assert!(visible.len() >= 5, "{} visible", visible.len());
    }
    let all = visible.len();
    assert!(is_share(named, all, LEAST_NAMED), "{named} of {all} named");
    assert!(
        is_share(repaired, all, LEAST_REPAIRED),
        "{repaired} of {all} repaired"
    );
}

/// Whether `count` of `all` are that share or more; of none any share is.
fn is_share(count: usize, all: usize, least: f64) -> bool {
    all == 0 || count as f64 / all as f64 >= least
}

fn percent(share: f64) -> String {
    format!("{:3.0}%", 100.0 * share)
}

/// The smallest loss that counts as one.
fn least(before: f64) -> f64 {
    (before / 5.0).max(2.0 / SIZES[2] as f64)
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

/// The working harness with a fault; none if it can't be planted there.
fn broken(fault: &Fault) -> Option<Harness> {
    let working = working();
    let mut broken = working.clone();
    (fault.plant)(&mut broken);
    (broken != working && harness::validate(&broken).is_ok()).then_some(broken)
}

/// Where one harness is measured and mended with the real model, by the gate that `quickstart.yaml` has: the
/// model solves too little for one that bounds false discoveries.
struct Bench {
    config: String,
    directory: PathBuf,
}

impl Bench {
    fn at(model: &Path, directory: &Path) -> Self {
        let config = CONFIG
            .replace(
                "{kind: openai, base_url: 'http://127.0.0.1:1/v1', model: none}",
                "{kind: local}",
            )
            .replace("{path: none}", &format!("{{path: '{}'}}", model.display()))
            .replace("tokens_per_problem: 4000", "tokens_per_problem: 256")
            .replace("mode: sequential, tasks: 30", "mode: confirmed, tasks: 40")
            .replace("iterations: 5", "iterations: 3");
        Self {
            config,
            directory: directory.to_owned(),
        }
    }

    async fn workshop(&self, start: &Harness) -> Workshop {
        let scene = Scene {
            config: &self.config,
            splits: splits(),
            directory: &self.directory,
            is_aloud: false,
        };
        scene.on_this_machine(start, python()).await
    }

    /// What is solved under the working harness, or with a fault in it.
    async fn level_of(&self, fault: Option<&Fault>) -> f64 {
        let start = fault.map_or_else(working, planted);
        let workshop = self.workshop(&start).await;
        let policy = workshop.policy(None).await.expect("the model");
        Level::new(&workshop, &policy).of(&Arc::new(start)).await
    }

    async fn heaviest_cluster(&self, fault: &Fault) -> Option<Cluster> {
        let workshop = self.workshop(&planted(fault)).await;
        let policy = workshop.policy(None).await.expect("the model");
        Level::new(&workshop, &policy).heaviest_cluster().await
    }

    /// What is solved under the harness that the loop ends with, and the patches that it accepted.
    async fn repaired(&self, fault: &Fault) -> (f64, Vec<String>) {
        let workshop = self.workshop(&planted(fault)).await;
        let policy = workshop.policy(None).await.expect("the model");
        let level = Level::new(&workshop, &policy);
        let (end, patches) = level.repair().await;
        (level.of(&end).await, patches)
    }
}

fn planted(fault: &Fault) -> Harness {
    broken(fault).expect("a fault that can be planted")
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
