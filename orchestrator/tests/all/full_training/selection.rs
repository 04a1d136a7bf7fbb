//! Which rollouts are learnt from, and how often.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use coharness::history::History;
use coharness::report::SelectionRow;
use rollout::Message;

use super::{
    SHORT, Steps, knows_all, rounds, to_learn, trainings, workshop_that_asks, workshop_that_gathers,
};
use crate::Place;

#[tokio::test(flavor = "multi_thread")]
async fn earlier_rounds_are_learnt_from_again_and_solved_problems_rolled_out_once() {
    let place = Place::new();
    let gather = "gather_tasks: 6
  samples: 3
  max_per_task: 1
  min_trajectories: 6
  replay: 0.5";
    let scene = workshop_that_gathers(&place, knows_all, gather, SHORT, Arc::default()).await;
    assert_eq!(rounds(&scene).await, [None, None]);
    let trained = trainings(&scene).await;
    let chosen: Vec<SelectionRow> = trained.iter().filter_map(|row| row.selection).collect();
    let alone = SelectionRow {
        gathered: 6,
        verified: 6,
        chosen: 6,
        ..SelectionRow::default()
    };
    assert_eq!(chosen[0], alone);
    // Of round 1's problems those that round 2 has not drawn itself.
    let replayed = chosen[1].replayed;
    assert!((1..=6).contains(&replayed), "{chosen:?}");
    assert_eq!(chosen[1], SelectionRow { replayed, ..alone });
    assert_eq!(trained[1].trajectories, 6 + replayed);
    drop(scene);
    let steps = Arc::new(Steps::default());
    let again = workshop_that_gathers(&place, knows_all, gather, SHORT, Arc::clone(&steps)).await;
    assert_eq!(rounds(&again).await, [None, None]);
    assert_eq!(steps.taken.load(Ordering::Relaxed), 0);
    assert_eq!(trainings(&again).await, trained);
}

/// What [`knows_half_at_once`] was asked so far.
static ASKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Solves every second problem only when it is asked again.
fn knows_half_at_once(messages: &[Message]) -> String {
    let question = messages[messages.len() - 1].content.clone();
    let digits: String = question.chars().filter(char::is_ascii_digit).collect();
    let is_hard = digits.parse::<u32>().expect("a number") % 2 == 1;
    let is_first = ASKED.lock().expect("alone").insert(question);
    format!(
        "It is \\boxed{{{}}}.",
        if is_hard && is_first { 1 } else { 42 }
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn only_failed_problems_are_sampled_again_and_their_solutions_may_count_more() {
    let mut adapters = Vec::new();
    for weight in ["1", "1.0", "5"] {
        ASKED.lock().expect("alone").clear();
        let place = Place::new();
        let gather = format!(
            "gather_tasks: 12
  samples: 2
  max_per_task: 1
  hard_weight: {weight}"
        );
        let scene = workshop_that_gathers(
            &place,
            knows_half_at_once,
            &gather,
            "epochs: 1",
            Arc::default(),
        )
        .await;
        let head = scene.head("v1").expect("v1");
        let mut history = History::new(0.05);
        let round = scene.model_loop(1, &head, None, &mut history.discoveries);
        round.await.expect("a round");
        let trained = trainings(&scene).await;
        let expected = SelectionRow {
            gathered: 18,
            verified: 12,
            chosen: 12,
            ..SelectionRow::default()
        };
        assert_eq!(trained[0].selection, Some(expected));
        adapters.push(trained[0].adapter.clone());
    }
    assert_eq!(adapters[0], adapters[1]);
    assert_ne!(
        adapters[0], adapters[2],
        "solutions of hard problems count more"
    );
}

/// What [`says_it_otherwise`] was asked so far.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Solves every problem, the second time in other words.
fn says_it_otherwise(messages: &[Message]) -> String {
    let question = messages[messages.len() - 1].content.clone();
    let is_first = SAID.lock().expect("alone").insert(question);
    let verb = if is_first { "is" } else { "must be" };
    format!("It {verb} \\boxed{{42}}.")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_solutions_of_one_problem_begin_with_is_computed_once() {
    let place = Place::new();
    let asks = |number: u32| to_learn(number) + &" Take your time.".repeat(20);
    let gather = "gather_tasks: 6
  samples: 2";
    let sft = "rank: 4, alpha: 8, batch: 2, epochs: 1";
    let observer = Arc::<Steps>::default();
    let scene = workshop_that_asks(&place, asks, says_it_otherwise, gather, sft, observer).await;
    let head = scene.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let round = scene.model_loop(1, &head, None, &mut history.discoveries);
    round.await.expect("a round");
    let trained = trainings(&scene).await.remove(0);
    assert_eq!((trained.trajectories, trained.steps), (12, 6));
    // Two solutions are a batch: of their tokens a little more than half are left. Those of two problems
    // begin alike too, but only up to the number of the question.
    assert!(
        trained.computed_tokens * 10 < trained.tokens * 6,
        "{trained:?}"
    );
}
