//! Policies that a run decodes itself: the base model's and adapters', which share an engine.

use std::path::Path;
use std::sync::Arc;

use coharness::base_model::BaseModel;
use coharness::splits::Splits;
use coharness::workshop::Workshop;
use rollout::{Completion, CompletionRequest, Message, Policy, Role};
use serde_json::{Value, json};
use trainer::checkpoint::{Contents, write_directory};

use crate::Place;
use crate::scene::{FortyTwo, Scene};
use crate::serve_model::golden;

/// The golden adapter, kept by the run; at another scale it is another one.
fn keep(run: &Path, id: &str, alpha: u32) {
    let from = golden().join("adapter");
    let text = std::fs::read_to_string(from.join("adapter_config.json")).expect("config");
    let text = text.replace("\"lora_alpha\": 8", &format!("\"lora_alpha\": {alpha}"));
    let weights = std::fs::read(from.join("adapter_model.safetensors")).expect("weights");
    let files = [
        ("adapter_config.json", Contents::Bytes(text.into_bytes())),
        ("adapter_model.safetensors", Contents::Bytes(weights)),
    ];
    write_directory(&run.join("adapters").join(id), &files).expect("kept");
}

/// A run with the tiny model and two adapters.
async fn workshop(place: &Place) -> Workshop {
    let directory = place.path().join(".coharness/runs/small-seed0");
    keep(&directory, "aaaa", 8);
    keep(&directory, "bbbb", 60);
    let config = format!(
        "\
run: {{name: small}}
model: {{path: {}, arithmetic: f32}}
policy: {{kind: local, cache_mib: 64}}
tasks:
  path: none
  verifier: integer
  splits: {{evolve: 1, gate: 4, test: 1}}
harness: naive
budget: {{tokens_per_problem: 64, seconds_per_problem: 60}}
",
        golden().display()
    );
    let scene = Scene {
        config: &config,
        splits: Splits::only_test(Vec::new()),
        directory: &directory,
        is_aloud: false,
    };
    let start = harness::naive().expect("the shipped harness");
    let mut workshop = scene.with_tools(&start, Arc::new(FortyTwo)).await;
    let base = BaseModel::load(&workshop.loaded, place.path());
    workshop.base = Some(base.expect("the tiny model"));
    workshop
}

async fn reply(policy: &Arc<dyn Policy>) -> Completion {
    let messages = vec![Message::new(Role::User, "What is 7 + 5?")];
    let completion = policy.complete(CompletionRequest::new(messages, 24)).await;
    completion.expect("a reply")
}

/// What transformers says to that.
fn golden_row() -> Value {
    let rows = std::fs::read_to_string(golden().join("greedy.json")).expect("greedy");
    let rows: Value = serde_json::from_str(&rows).expect("JSON");
    rows[1].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn old_and_new_weights_reply_at_once_and_each_as_alone() {
    let place = Place::new();
    let workshop = workshop(&place).await;
    let row = golden_row();
    let plain = workshop.policy(None).await.expect("the base model");
    let tuned = workshop.policy(Some("aaaa")).await.expect("an adapter");
    assert_ne!(plain.id(), tuned.id());
    let replies = tokio::join!(reply(&plain), reply(&tuned), reply(&plain), reply(&tuned));
    for (completion, part) in [
        (replies.0, "base"),
        (replies.1, "adapter"),
        (replies.2, "base"),
        (replies.3, "adapter"),
    ] {
        assert_eq!(json!(completion.prompt_ids), row["ids"]);
        assert_eq!(json!(completion.output_ids), row[part]["ids"], "{part}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_is_no_longer_kept_ready_replies_while_it_is_held() {
    let place = Place::new();
    let workshop = workshop(&place).await;
    let row = golden_row();
    let tuned = workshop.policy(Some("aaaa")).await.expect("an adapter");
    let plain = workshop.policy(None).await.expect("the base model");
    let first = reply(&plain).await;
    assert_eq!(first.usage.cached_tokens, Some(0));
    // Two are kept ready: this one takes the place of the first.
    let loud = workshop.policy(Some("bbbb")).await.expect("another");
    let other = json!(reply(&loud).await.output_ids);
    assert!(other != row["adapter"]["ids"] && other != row["base"]["ids"]);
    let still = reply(&tuned).await;
    assert_eq!(json!(still.output_ids), row["adapter"]["ids"]);
    assert_eq!(still.usage.cached_tokens, Some(0));
    // The base model's policy is made anew after a third one, and finds the engine with its prefixes.
    drop(plain);
    let again = workshop.policy(Some("aaaa")).await.expect("the first");
    let plain = workshop.policy(None).await.expect("the base model");
    let known = reply(&plain).await;
    assert_eq!(json!(known.output_ids), row["base"]["ids"]);
    assert_eq!(known.usage.cached_tokens, Some(32));
    // The adapter was read once more, which makes it another one to the cache.
    let anew = reply(&again).await;
    assert_eq!(json!(anew.output_ids), row["adapter"]["ids"]);
    assert_eq!(anew.usage.cached_tokens, Some(0));
}
