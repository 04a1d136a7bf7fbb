//! Attempts to get out of the box or to wear it out, as tables: every row is one program.
//!
//! A row gets through when its program can say a password that only `breach` says, or when the row's
//! own check of the execution fails. Every row that can be is first tried without a box, where it
//! has to get through: an attack that fails everywhere shows nothing. The others say why not.

mod calls;
mod files;
mod leaks;
mod network;
mod output;
mod resources;
mod world;

use std::sync::Arc;
use std::time::Duration;

use sandbox::{Execution, Exit, SandboxPolicy, Start};

use crate::support::{TestBox, every_start};
use world::{TOKEN, World};

/// What happens without a box.
#[derive(Clone, Copy)]
enum Control {
    /// The attack gets through.
    Breaches,
    /// It gets through for root.
    BreachesAsRoot,
    /// It is not tried, for this reason.
    Unchecked(&'static str),
}

/// One attempt.
struct Attack {
    name: &'static str,
    code: &'static str,
    /// Whether the box held, for attacks that are not about reaching something.
    is_held: Option<fn(&Execution) -> bool>,
    control: Control,
    wall: Duration,
}

/// Generous, as the machine may be busy.
const WALL: Duration = Duration::from_secs(30);

/// For programs that never end.
const ENDLESS_WALL: Duration = Duration::from_millis(700);

/// Programs at a time in one box.
const LANES: usize = 3;

impl Attack {
    /// An attack that calls `breach` with evidence when it gets through.
    const fn new(name: &'static str, code: &'static str, control: Control) -> Self {
        Attack {
            name,
            code,
            is_held: None,
            control,
            wall: WALL,
        }
    }

    /// An attack whose execution shows whether the box held.
    const fn checked(
        name: &'static str,
        code: &'static str,
        is_held: fn(&Execution) -> bool,
        control: Control,
    ) -> Self {
        Attack {
            name,
            code,
            is_held: Some(is_held),
            control,
            wall: WALL,
        }
    }

    /// A program that has to be stopped.
    const fn endless(name: &'static str, code: &'static str) -> Self {
        let control = Control::Unchecked("it would not end without a box either");
        let mut attack = Self::checked(name, code, |e| matches!(e.exit, Exit::TimedOut), control);
        attack.wall = ENDLESS_WALL;
        attack
    }

    fn policy(&self) -> SandboxPolicy {
        SandboxPolicy {
            wall: self.wall,
            ..SandboxPolicy::default()
        }
    }

    fn failure(&self, execution: &Execution) -> Option<String> {
        let is_held = match self.is_held {
            Some(check) => check(execution),
            None => !execution.stdout.contains(TOKEN),
        };
        // What is shown is cut: floods are long.
        let tail = |text: &str| text.chars().take(300).collect::<String>();
        (!is_held).then(|| {
            format!(
                "{}: {:?} {:?} {:?}",
                self.name,
                execution.exit,
                tail(&execution.stdout),
                tail(&execution.stderr)
            )
        })
    }
}

/// All rows that mean the same in every box.
fn attacks() -> impl Iterator<Item = &'static Attack> {
    [
        files::ATTACKS,
        network::ATTACKS,
        calls::ATTACKS,
        resources::ATTACKS,
        output::ATTACKS,
    ]
    .into_iter()
    .flatten()
}

#[test]
fn there_are_many_attacks_and_each_has_a_name_of_its_own() {
    let all = attacks().chain(leaks::ON_THE_SERVER);
    let mut names: Vec<_> = all.map(|attack| attack.name).collect();
    names.extend(leaks::LEAKS.iter().map(|leak| leak.name));
    let count = names.len();
    assert!(count >= 120, "{count}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_get_through_without_a_box() {
    let world = Arc::new(World::new());
    let is_root = nix::unistd::geteuid().is_root();
    let mut unchecked = 0;
    let mut programs = Vec::new();
    for attack in attacks().chain(leaks::ON_THE_SERVER) {
        match attack.control {
            Control::Breaches => programs.push((attack.name, attack.code.to_owned())),
            Control::BreachesAsRoot if is_root => {
                programs.push((attack.name, attack.code.to_owned()));
            }
            Control::BreachesAsRoot => {
                eprintln!("SKIPPED control of `{}`: needs root", attack.name);
            }
            Control::Unchecked(reason) => {
                unchecked += 1;
                assert!(!reason.is_empty());
            }
        }
    }
    for leak in leaks::LEAKS {
        programs.push((leak.name, format!("{}\n{}", leak.plant, leak.look)));
    }
    eprintln!(
        "{} attacks tried without a box, {unchecked} not",
        programs.len()
    );
    // One after the other: some change what others look at.
    let failures = tokio::task::spawn_blocking(move || {
        let fails = |(name, code): (&str, String)| {
            let output = world.run_without_box(&code);
            let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            (!stdout.contains(TOKEN)).then(|| format!("{name}: {stdout:?} {stderr:?}"))
        };
        programs.into_iter().filter_map(fails).collect::<Vec<_>>()
    });
    let failures = failures.await.unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attack_gets_through_in_any_box() {
    let world = Arc::new(World::new());
    let mut running = tokio::task::JoinSet::new();
    for (test, start) in every_start().await {
        let rows: Vec<_> = if start == Start::Warm {
            attacks().chain(leaks::ON_THE_SERVER).collect()
        } else {
            attacks().collect()
        };
        let world = Arc::clone(&world);
        running.spawn(async move {
            let failures = attack_with(&Arc::new(test), &rows, &world).await;
            failures
                .into_iter()
                .map(|failure| format!("{start:?} {failure}"))
                .collect::<Vec<_>>()
        });
    }
    let failures = running.join_all().await.concat();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    world.assert_untouched();
}

/// Runs every row in a box. Returns what got through.
async fn attack_with(
    test: &Arc<TestBox>,
    rows: &[&'static Attack],
    world: &Arc<World>,
) -> Vec<String> {
    let mut lanes = tokio::task::JoinSet::new();
    for lane in 0..LANES {
        let rows: Vec<_> = rows.iter().skip(lane).step_by(LANES).copied().collect();
        let (test, world) = (Arc::clone(test), Arc::clone(world));
        lanes.spawn(async move {
            let mut failures = Vec::new();
            for attack in rows {
                let code = world.program(attack.code);
                let execution = test.run_under(&code, &attack.policy()).await;
                failures.extend(attack.failure(&execution));
            }
            failures
        });
    }
    let failures = lanes.join_all().await.concat();
    test.assert_all_gone().await;
    let isolation = test.isolation();
    failures
        .into_iter()
        .map(|failure| format!("{isolation:?}: {failure}"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_program_leaves_anything_for_the_next() {
    let world = World::new();
    for (test, start) in every_start().await {
        for leak in leaks::LEAKS {
            test.run(&world.program(leak.plant)).await;
            let execution = test.run(&world.program(leak.look)).await;
            let place = format!("{:?} {start:?}: {}", test.isolation(), leak.name);
            assert_eq!(execution.exit, Exit::Code(0), "{place}: {execution:?}");
            assert!(!execution.stdout.contains(TOKEN), "{place}: {execution:?}");
        }
    }
}
