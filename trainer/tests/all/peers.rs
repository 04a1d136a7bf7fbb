//! What a training writes is read by PEFT as what it is: `COHARNESS_TEST_PEERS_PYTHON` is a Python that
//! has torch, transformers and peft.

use std::path::Path;
use std::sync::Arc;

use candle_core::Device;
use model::adapter::{Adapter, AdapterConfig, Projection};
use model::transformer::Transformer;
use model::tree::TokenTree;
use serde::Deserialize;
use serde_json::json;
use trainer::checkpoint::write_directory;
use trainer::{Dataset, Progress, TrainOptions, Trainee, train};

use crate::python::PeersPython;
use crate::{files_in, golden_named, rows_in};

/// What the script says.
#[derive(Deserialize)]
struct Peft {
    plain: Vec<Vec<f32>>,
    adapted: Vec<Vec<f32>>,
}

/// Trains an adapter for a golden model and writes it as a run keeps it.
fn write_adapter(name: &str, rank_stabilised: bool, directory: &Path) {
    let golden = golden_named(name);
    let config = AdapterConfig {
        rank: 4,
        alpha: 8,
        rank_stabilised,
        targets: Projection::ALL.to_vec(),
    };
    let options = TrainOptions {
        epochs: 4,
        batch: 2,
        learning_rate: 1e-2,
        ..TrainOptions::plain(config.clone())
    };
    let model = Arc::new(Transformer::new(files_in(&golden)).expect("model"));
    let trainee = Trainee::fresh(model, config, options.seed).expect("adapter");
    let dataset = Dataset::new(rows_in(&golden), 100, 0.0).expect("dataset");
    let checkpoints = tempfile::tempdir().expect("directory");
    let outcome = train(
        trainee,
        "golden",
        &dataset,
        &options,
        checkpoints.path(),
        |_| Progress::Continue,
    );
    let trained = outcome.expect("training").trainee;
    let written = trained.files("golden").expect("files");
    write_directory(directory, &written).expect("written");
}

/// Logits behind each token, our own.
fn ours(name: &str, adapter: &Path, tokens: &[u32]) -> Vec<Vec<f32>> {
    let model = Transformer::new(files_in(&golden_named(name))).expect("model");
    let adapter = Adapter::load(adapter, &model.config, &Device::Cpu).expect("adapter");
    let tree = TokenTree::new(&[tokens]);
    let logits = model.tree_logits(&tree, Some(&adapter)).expect("logits");
    logits.to_vec2().expect("rows")
}

fn largest_gap(ours: &[Vec<f32>], theirs: &[Vec<f32>]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    let gaps = ours.iter().zip(theirs).flat_map(|(ours, theirs)| {
        assert_eq!(ours.len(), theirs.len());
        ours.iter().zip(theirs).map(|(a, b)| (a - b).abs())
    });
    gaps.fold(0.0, f32::max)
}

#[test]
fn a_trained_adapter_says_in_peft_what_it_says_here() {
    let Some(python) = PeersPython::named() else {
        return;
    };
    let tokens: Vec<u32> = (3..40).collect();
    for (name, rank_stabilised) in [
        ("llama_tied", false),
        ("llama_untied", true),
        ("qwen3_tied", false),
        ("qwen3_untied", true),
    ] {
        let place = tempfile::tempdir().expect("directory");
        let adapter = place.path().join("adapter");
        write_adapter(name, rank_stabilised, &adapter);
        let asked = json!({"base": golden_named(name), "adapter": adapter, "tokens": tokens});
        let peft: Peft = python.ask("peft_logits.py", &asked);
        let ours = ours(name, &adapter, &tokens);
        let gap = largest_gap(&ours, &peft.adapted);
        assert!(gap < 1e-4, "{name}: off by {gap:e}");
        let moved = largest_gap(&ours, &peft.plain);
        assert!(
            moved > 1e-2,
            "{name}: the adapter changes something: {moved:e}"
        );
    }
}
