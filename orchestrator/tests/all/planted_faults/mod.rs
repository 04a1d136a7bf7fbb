//! The fault-injection suite: working harnesses, each with one fault planted in one dimension.
//!
//! The rules critic has to name the planted root cause and dimension, as its heaviest cluster; and
//! the loop of a run (critic, candidates, gate) has to bring the harness back to the level of the
//! working one on problems that neither has seen. Rollouts are real but for the model: the agent
//! loop, the sandbox and the gate are those of a run, and the model is [`model::Reader`], which
//! plays by rules that it follows for every harness alike.
//!
//! There are five lists of faults, each with its own test and its own shares. What their harnesses are
//! made of is in `bases.rs`.
//!
//!     cargo test --package coharness --test all faults -- --nocapture
//!
//! prints a table of each.

mod answering;
mod bases;
mod everyday;
mod fault;
mod handover;
mod mind;
mod model;
mod planted;
mod problems;
mod reading;
mod real;
mod reworded;
mod sound;
mod tools;
mod understanding;
mod unusual;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use coharness::harness_loop::Head;
use coharness::history::History;
use coharness::rollouts::Trial;
use coharness::splits::Splits;
use coharness::workshop::Workshop;
use critic::{Cluster, Critic, RulesCritic, cluster};
use harness::Harness;
use rollout::{Policy, Split, Task, Trajectory};
use sandbox::{HelperCommand, Sandbox, SandboxOptions};

use crate::Place;
use crate::scene::Scene;
use fault::Fault;
use model::Reader;
use problems::problems;
use tools::Remembering;

/// Problems of the three splits.
const SIZES: [usize; 3] = [24, 40, 24];
/// A fault that costs less than this share of the problems is none.
const LEAST_DAMAGE: f64 = 0.3;
/// Share of a list's faults that the critic has to name, and that the loop has to repair.
const LEAST_NAMED: f64 = 0.9;
const LEAST_REPAIRED: f64 = 0.8;
/// What a working harness solves at least: the model misreads one problem in ten, of two dozen.
const WORKS: f64 = 0.75;

const CONFIG: &str = "\
run: {name: fault}
model: {path: none}
policy: {kind: openai, base_url: 'http://127.0.0.1:1/v1', model: none}
tasks:
  path: none
  verifier: integer
  splits: {evolve: 24, gate: 40, test: 24}
harness: naive
budget: {tokens_per_problem: 4000, seconds_per_problem: 60}
gate: {mode: sequential, tasks: 30, retest_every: 0, reference_every: 0}
harness_loop: {iterations: 5, diagnose_tasks: 24, candidates: 4}
model_loop: {is_enabled: false}
";

/// What became of a fault.
struct Outcome {
    fault: Fault,
    /// Shares of the test problems that are solved.
    working: f64,
    broken: f64,
    repaired: f64,
    /// The heaviest cluster.
    heaviest: Option<Cluster>,
    /// The patches that were accepted.
    patches: Vec<String>,
}

impl Outcome {
    fn is_named(&self) -> bool {
        self.heaviest
            .as_ref()
            .is_some_and(|cluster| self.fault.is_named_by(cluster.root_cause))
    }

    fn is_repaired(&self) -> bool {
        self.repaired >= self.working
    }

    fn row(&self) -> String {
        let mark = |is_so: bool| if is_so { ' ' } else { '!' };
        let named = self.heaviest.as_ref().map_or("nothing".into(), |cluster| {
            format!("{} ({})", cluster.rule, cluster.root_cause.harness_dim())
        });
        let percent = |share: f64| format!("{:3.0}%", 100.0 * share);
        format!(
            "{:<5} {:<37} {:<46} {}{:<40} {} {} {}{}  {}",
            self.fault.dimensions(),
            self.fault.name,
            self.fault.shows,
            mark(self.is_named()),
            named,
            percent(self.working),
            percent(self.broken),
            mark(self.is_repaired()),
            percent(self.repaired),
            self.patches.join("; "),
        )
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_critic_names_planted_faults_and_the_loop_repairs_them() {
    check("planted", planted::faults()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_critic_names_reworded_faults_and_the_loop_repairs_them() {
    check("reworded", reworded::faults()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_critic_names_unusual_faults_and_the_loop_repairs_them() {
    check("unusual", unusual::faults()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_critic_names_everyday_faults_and_the_loop_repairs_them() {
    check("everyday", everyday::faults()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_critic_names_handover_faults_and_the_loop_repairs_them() {
    check("handover", handover::faults()).await;
}

/// Plants the faults of a list, one after the other, and prints what became of them.
async fn check(list: &str, faults: Vec<Fault>) {
    let started = Instant::now();
    let place = Place::new();
    let tools = Remembering::new(open_sandbox(&place).await);
    let only = std::env::var("COHARNESS_TEST_FAULT").unwrap_or_default();
    let mut outcomes = Vec::new();
    for (number, fault) in faults.into_iter().enumerate() {
        if fault.name.contains(&only) {
            let directory = place.path().join(format!("fault-{number}"));
            outcomes.push(examine(fault, &tools, &directory, !only.is_empty()).await);
        }
    }
    if outcomes.is_empty() && !only.is_empty() {
        return;
    }
    let header = format!(
        "{:<5} {:<37} {:<46}  {:<40} {:>4} {:>4}  {:>4}  accepted patches",
        "dim", "fault", "seen as", "heaviest cluster", "work", "flaw", "loop"
    );
    let rows: Vec<String> = outcomes.iter().map(Outcome::row).collect();
    let share = |is_so: fn(&Outcome) -> bool| {
        outcomes.iter().filter(|outcome| is_so(outcome)).count() as f64 / outcomes.len() as f64
    };
    let (named, repaired) = (share(Outcome::is_named), share(Outcome::is_repaired));
    println!(
        "{header}\n{}\n{list}: {} faults, {:.0}% named, {:.0}% repaired; {} programs run, {:.1} s",
        rows.join("\n"),
        outcomes.len(),
        100.0 * named,
        100.0 * repaired,
        tools.count(),
        started.elapsed().as_secs_f64()
    );
    for outcome in &outcomes {
        let (name, working) = (outcome.fault.name, outcome.working);
        assert!(
            working >= WORKS,
            "{name}: the working harness solves {working}"
        );
        let damage = working - outcome.broken;
        assert!(
            damage >= LEAST_DAMAGE,
            "{name}: the fault costs only {damage}"
        );
    }
    if only.is_empty() {
        assert!(outcomes.len() >= 20);
        assert!(named >= LEAST_NAMED, "{list}: the critic names {named}");
        assert!(
            repaired >= LEAST_REPAIRED,
            "{list}: the loop repairs {repaired}"
        );
    }
}

#[test]
fn every_fault_is_confined_to_its_dimension() {
    let lists = [
        planted::faults(),
        reworded::faults(),
        unusual::faults(),
        everyday::faults(),
        handover::faults(),
    ];
    for fault in lists.into_iter().flatten() {
        let working = (fault.working)();
        let mut broken = working.clone();
        (fault.plant)(&mut broken);
        for harness in [&working, &broken] {
            assert_eq!(harness::validate(harness), Ok(()), "{}", fault.name);
        }
        let changes = harness::diff(&working, &broken);
        assert!(!changes.is_empty(), "{}", fault.name);
        for change in changes {
            let dimension = harness::Dimension::of(&change.path);
            assert_eq!(
                dimension,
                fault.cause.harness_dim().dimension(),
                "{}: {change}",
                fault.name
            );
        }
    }
}

/// The sandbox of this machine, also where it doesn't hold: the programs are the test's own.
async fn open_sandbox(place: &Place) -> Sandbox {
    let helper = HelperCommand::new(PathBuf::from(env!("CARGO_BIN_EXE_coharness")));
    let options = SandboxOptions {
        allow_degraded: true,
        ..SandboxOptions::default()
    };
    let scratch = place.path().join("scratch");
    std::fs::create_dir(&scratch).expect("folder");
    Sandbox::with_options(helper, python(), scratch, options)
        .await
        .expect("a sandbox")
}

/// The first `python3` on the path.
fn python() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("python3"));
    found
        .into_iter()
        .find(|file| file.is_file())
        .expect("python3")
}

async fn examine(fault: Fault, tools: &Remembering, directory: &Path, is_aloud: bool) -> Outcome {
    let working = Arc::new((fault.working)());
    let mut broken = Harness::clone(&working);
    (fault.plant)(&mut broken);
    let scene = Scene {
        config: CONFIG,
        splits: splits(&fault),
        directory,
        is_aloud,
    };
    let workshop = scene.with_tools(&broken, Arc::new(tools.clone())).await;
    let policy: Arc<dyn Policy> = Arc::new(Reader::new());
    let level = Level::new(&workshop, &policy);
    let heaviest = level.heaviest_cluster().await;
    let (before, flawed) = (level.of(&working).await, level.of(&broken.into()).await);
    let (end, patches) = level.repair().await;
    Outcome {
        working: before,
        broken: flawed,
        repaired: level.of(&end).await,
        heaviest,
        patches,
        fault,
    }
}

/// Problems of the fault's kinds.
fn splits(fault: &Fault) -> Splits {
    let mut tasks = problems(fault.kinds, SIZES.iter().sum(), 7);
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

/// Measures and mends harnesses with one policy.
struct Level<'a> {
    workshop: &'a Workshop,
    policy: &'a Arc<dyn Policy>,
}

impl<'a> Level<'a> {
    fn new(workshop: &'a Workshop, policy: &'a Arc<dyn Policy>) -> Self {
        Level { workshop, policy }
    }

    /// Share of the test problems that are solved under `harness`.
    async fn of(&self, harness: &Arc<Harness>) -> f64 {
        let trials = trials(&self.workshop.splits().test);
        let rolled = self
            .workshop
            .roll("test", self.policy, harness, Split::Test, &trials)
            .await
            .expect("rollouts");
        let rolled: Vec<Trajectory> = rolled.into_iter().flatten().collect();
        assert_eq!(rolled.len(), trials.len(), "none is left out");
        let solved = rolled.iter().filter(|t| t.verdict.correct).count();
        solved as f64 / rolled.len() as f64
    }

    /// What the rules critic names first on the evolve problems.
    async fn heaviest_cluster(&self) -> Option<Cluster> {
        let head = self.workshop.head("v1").expect("the broken harness");
        let trials = trials(&self.workshop.splits().evolve);
        let rolled = self
            .workshop
            .roll("evolve", self.policy, &head.harness, Split::Evolve, &trials)
            .await
            .expect("rollouts");
        let rolled: Vec<Trajectory> = rolled.into_iter().flatten().collect();
        let critic = RulesCritic {
            follows_grammars: self.policy.follows_grammars(),
        };
        let diagnosis = critic.diagnose(&head.harness, &rolled);
        let clusters = cluster(&diagnosis.records, &rolled);
        if std::env::var_os("COHARNESS_TEST_FAULT").is_some() {
            for cluster in &clusters {
                println!("  {} {}", cluster.weight, cluster.summary());
            }
            let shown = rolled.iter().find(|t| !t.verdict.correct);
            for step in shown.iter().flat_map(|t| &t.steps) {
                println!("  | {:?} {:?} {:?}", step.kind, step.text, step.event);
            }
        }
        clusters.into_iter().next()
    }

    /// The harness that a round's harness loop ends with, and the patches that it accepted.
    async fn repair(&self) -> (Arc<Harness>, Vec<String>) {
        let head: Head = self.workshop.head("v1").expect("the broken harness");
        let mut history = History::new(0.05);
        let end = self
            .workshop
            .harness_loop(1, head, self.policy, &mut history)
            .await
            .expect("the loop");
        let accepted = history.tried.iter().filter(|tried| tried.is_accepted);
        let patches =
            accepted.map(|tried| format!("{} {}", tried.patch.dimension, tried.patch.summary));
        (end.harness, patches.collect())
    }
}

fn trials(tasks: &[Task]) -> Vec<Trial> {
    let trial = |(seed, task): (u64, &Task)| Trial {
        task: task.clone(),
        seed,
    };
    (0..).zip(tasks).map(trial).collect()
}
