//! What is left out of training, and what no training can do without.

use std::sync::Arc;

use coharness::history::History;
use coharness::report::TrainRow;
use rollout::{
    BoxFuture, Completion, CompletionRequest, Finish, Policy, PolicyError, PolicyId, Usage,
};
use serde_json::json;

use super::{Steps, full, knows_all, to_learn, trainings, workshop_of, workshop_that_asks};
use crate::Place;

/// A round on problems of which the first three are long.
async fn round_with_long_problems(place: &Place, sft: &str) -> (TrainRow, Vec<String>) {
    let steps = Arc::new(Steps::default());
    let asks = |number: u32| {
        let times = if number <= 3 { 40 } else { 0 };
        to_learn(number) + &" Take your time.".repeat(times)
    };
    let (sft, observer) = (full(sft), Arc::clone(&steps));
    let gather = "gather_tasks: 12";
    let scene = workshop_that_asks(place, asks, knows_all, gather, &sft, observer).await;
    let head = scene.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let round = scene.model_loop(1, &head, None, &mut history.discoveries);
    round.await.expect("a round");
    let trained = trainings(&scene).await.remove(0);
    let warnings = steps.warnings.lock().expect("alone").clone();
    (trained, warnings)
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_left_out_are_counted_and_named_and_too_many_stop_the_training() {
    let short = "epochs: 1, max_tokens: 400";
    let told = "3 of 12 rows or rollouts are left out of training: 3 longer than model_loop.sft.max_tokens (";
    for (sft, is_trained) in [
        (format!("{short}, max_refused: 0.25"), true),
        (short.into(), false),
    ] {
        let place = Place::new();
        let (trained, warnings) = round_with_long_problems(&place, &sft).await;
        let warning = warnings.iter().find(|warning| warning.starts_with(told));
        assert!(warning.is_some(), "{warnings:?}");
        assert_eq!(trained.adapter.is_some(), is_trained, "{trained:?}");
        assert_eq!(trained.trajectories, if is_trained { 9 } else { 0 });
        if !is_trained {
            let skipped = trained.skipped.expect("a reason");
            assert!(skipped.starts_with("3 of 12 rows"), "{skipped}");
        }
        let output = place.command(&["report", "--json"]).output().expect("runs");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let row = &report["left_out_rows"][0];
        assert_eq!((&row["round"], &row["kept"]), (&json!(1), &json!(9)));
        let left_out = &row["left_out"][0];
        assert_eq!(
            (&left_out["reason"], &left_out["count"]),
            (&json!("too_long"), &json!(3))
        );
        assert_eq!(left_out["first"].as_array().map(Vec::len), Some(3));
        let shown = place.run(&["report"]);
        assert!(shown.contains(&format!("round 1: {told}")), "{shown}");
        let output = place.command(&["status", "--json"]).output().expect("runs");
        let runs: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(runs[0]["left_out_rows"], report["left_out_rows"]);
    }
}

/// Solves every problem, with the same token ids.
struct WithIds {
    id: PolicyId,
    prompt: &'static [u32],
    output: &'static [u32],
}

impl Policy for WithIds {
    fn id(&self) -> &PolicyId {
        &self.id
    }

    fn complete(&self, _: CompletionRequest) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        let completion = Completion {
            text: "It is \\boxed{42}.".into(),
            reasoning: String::new(),
            finish: Finish::Stop,
            finish_reason: None,
            prompt_ids: self.prompt.to_vec(),
            output_ids: self.output.to_vec(),
            logprobs: Vec::new(),
            usage: Usage::default(),
            tool_calls: Vec::new(),
        };
        Box::pin(async move { Ok(completion) })
    }
}

/// The tokens that start a text and end a turn of the tiny model.
const START: u32 = 257;
const END: u32 = 258;

/// A round on replies of these token ids: what was trained, and the warnings.
async fn round_on_ids(prompt: &'static [u32], output: &'static [u32]) -> (TrainRow, Vec<String>) {
    let (place, steps) = (Place::new(), Arc::new(Steps::default()));
    let policy = Arc::new(WithIds {
        id: PolicyId::new("ids"),
        prompt,
        output,
    });
    let (sft, observer) = (full("epochs: 1"), Arc::clone(&steps));
    let scene = workshop_of(&place, to_learn, policy, "gather_tasks: 12", &sft, observer).await;
    let head = scene.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let round = scene.model_loop(1, &head, None, &mut history.discoveries);
    assert_eq!(round.await.expect("a round"), None, "the old weights stay");
    let trained = trainings(&scene).await.remove(0);
    let warnings = steps.warnings.lock().expect("alone").clone();
    (trained, warnings)
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_that_a_server_gave_two_start_tokens_are_not_learnt_from() {
    let output = &[40, 41, END];
    let (trained, warnings) = round_on_ids(&[START, 10], output).await;
    assert_eq!(trained.skipped, None, "{warnings:?}");
    assert_eq!((trained.trajectories, trained.tokens), (12, 12 * 5));
    let (trained, warnings) = round_on_ids(&[START, START, 10], output).await;
    let skipped = trained.skipped.as_deref();
    assert_eq!(skipped, Some("there is nothing to train on"));
    let told =
        "12 of 12 rows or rollouts are left out of training: 12 with more than one start token";
    let is_told = warnings.iter().any(|warning| warning.starts_with(told));
    assert!(is_told, "{warnings:?}");
}

/// As of a policy whose replies all end at a stop text.
#[tokio::test(flavor = "multi_thread")]
async fn where_no_end_of_a_turn_counts_nothing_is_trained() {
    let (trained, warnings) = round_on_ids(&[START, END, 10], &[40, 41]).await;
    let skipped = trained.skipped.as_deref();
    assert!(
        skipped.is_some_and(|reason| reason.starts_with("no end-of-turn token counts in any row")),
        "{trained:?}"
    );
    assert_eq!((trained.adapter, trained.steps), (None, 0));
    let told = "12 of 12 rows have a turn without an end-of-turn token";
    let is_told = warnings.iter().any(|warning| warning.starts_with(told));
    assert!(is_told, "{warnings:?}");
}
