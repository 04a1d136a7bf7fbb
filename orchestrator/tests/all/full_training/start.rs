//! What a round's training starts from.

use std::sync::Arc;

use coharness::history::History;

use super::{Steps, knows_all, to_learn, trainings, workshop_that_asks};
use crate::Place;
use crate::scene::Scripted;

/// The first and the last losses of a round's training, and of the next one's on the weights of the first,
/// whatever the gate said of them. Both learn from the same twelve solutions.
async fn losses_of_two_rounds(sft: &str) -> [(f64, f64); 2] {
    let place = Place::new();
    let gather = "gather_tasks: 12";
    let open = || {
        workshop_that_asks(
            &place,
            to_learn,
            knows_all,
            gather,
            sft,
            Arc::<Steps>::default(),
        )
    };
    let scene = open().await;
    let head = scene.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let round = scene.model_loop(1, &head, None, &mut history.discoveries);
    round.await.expect("a round");
    let trained = trainings(&scene).await.remove(0).adapter.expect("weights");
    drop(scene);
    let policy = Scripted::policy("trained", knows_all);
    let scene = open().await.with_policy(Some(&trained), policy);
    let round = scene.model_loop(2, &head, Some(trained), &mut history.discoveries);
    round.await.expect("a round");
    let losses = trainings(&scene).await;
    let losses: Vec<(f64, f64)> = losses.iter().filter_map(|row| row.loss).collect();
    losses.try_into().expect("two trainings")
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-4 * other
}

/// All solutions are one batch, and the rate is always the same: what a training begins with is what a
/// longer one before it would have come to.
const EVEN: &str = "batch: 12, schedule: constant, warmup_share: 0";

#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_goes_on_from_the_one_before_where_that_is_asked_for() {
    let lora = format!("rank: 4, alpha: 8, learning_rate: 1.0e-2, {EVEN}");
    let [first, second] = losses_of_two_rounds(&format!("{lora}, epochs: 8, start: current")).await;
    let [longer, fresh] = losses_of_two_rounds(&format!("{lora}, epochs: 9")).await;
    let told = format!("{first:?}, then {second:?}; {longer:?}, then {fresh:?}");
    assert!(is_near(second.0, longer.1), "{told}");
    assert!(second.0 < 0.99 * first.0, "{told}");
    assert!(is_near(longer.0, first.0), "{told}");
    assert!(is_near(fresh.0, first.0), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_weight_starts_from_the_base_models_where_that_is_asked_for() {
    let full = format!("method: full, learning_rate: 1.0e-3, epochs: 8, start: base, {EVEN}");
    let [first, second] = losses_of_two_rounds(&full).await;
    let told = format!("{first:?}, then {second:?}");
    assert!(first.1 < 0.99 * first.0, "{told}");
    assert!(is_near(second.0, first.0), "{told}");
}
