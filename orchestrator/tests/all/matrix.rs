//! The 2×2 of each round: which cells are made, and whose they are in the report.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use coharness::harness_loop::Head;
use coharness::observer::{Notice, Observer};
use coharness::report::{Matrix, Report};
use coharness::splits::Splits;
use coharness::standing::Standing;
use coharness::workshop::Workshop;
use rollout::{Message, Policy};

use crate::scene::{FortyTwo, Scene, Scripted, accept, first_number, numbered, small};
use crate::{CONFIG, Place, tasks};

/// Solves as many of ten problems as the prompt says, and `more`; counts how often it is asked.
fn policy(name: &str, more: u32, asked: &Arc<AtomicU32>) -> Arc<dyn Policy> {
    let asked = Arc::clone(asked);
    Scripted::failing(name, move |messages: &[Message]| {
        asked.fetch_add(1, Ordering::Relaxed);
        let number = first_number(&messages[messages.len() - 1].content);
        let level = match messages[0].content.split_once("Solve up to ") {
            Some((_, rest)) => first_number(rest),
            None => 1,
        };
        let answer = 3 * number + u32::from(number > level + more);
        Ok(format!("The answer is \\boxed{{{answer}}}."))
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

/// A round's place in the table, and its 2×2.
async fn score(workshop: &Workshop, round: u32, start: &Head, head: &Head, adapter: Option<&str>) {
    let label = format!("round {round}");
    let scored = workshop.evaluate(round, &label, head, adapter).await;
    scored.expect("a cell");
    let standing = Standing {
        head: head.clone(),
        adapter: adapter.map(str::to_owned),
    };
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
    let asked = Arc::new(AtomicU32::new(0));
    let text = |number: u32| format!("How many sides have {number} triangles?");
    let test = numbered("triangle", 10, text, |number| 3 * number);
    let scene = Scene {
        config: &small([1, 4, 10], ""),
        splits: Splits::only_test(test),
        directory: place.path(),
        is_aloud: false,
    };
    let harness = harness::naive().expect("the shipped harness");
    let lines = Arc::new(Lines::default());
    let workshop = scene
        .watched(&harness, Arc::new(FortyTwo), lines.clone())
        .await
        .with_policy(None, policy("base", 0, &asked))
        .with_policy(Some("trained"), policy("trained", 2, &asked));
    let made = || asked.swap(0, Ordering::Relaxed);

    let start = workshop.head("v1").expect("v1");
    let baseline = workshop.evaluate(0, "baseline", &start, None).await;
    baseline.expect("a cell");
    assert_eq!(made(), 10);
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

    let report = || async {
        let report = Report::read(&workshop.store).await;
        report.expect("a report")
    };
    let unfinished = report().await;
    assert_eq!(correct(&unfinished.matrix), [Some(1), None, None, None]);
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
    let first = [Some(1), Some(4), Some(3), Some(6)];
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
    let asked = Arc::new(AtomicU32::new(0));
    let text = |number: u32| format!("How many sides have {number} triangles?");
    let config = small([1, 4, 10], "").replace("{name: small}", "{name: small, matrix: last}");
    let scene = Scene {
        config: &config,
        splits: Splits::only_test(numbered("triangle", 10, text, |number| 3 * number)),
        directory: place.path(),
        is_aloud: false,
    };
    let harness = harness::naive().expect("the shipped harness");
    let lines = Arc::new(Lines::default());
    let workshop = scene
        .watched(&harness, Arc::new(FortyTwo), lines.clone())
        .await
        .with_policy(None, policy("base", 0, &asked))
        .with_policy(Some("trained"), policy("trained", 2, &asked));
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
