//! The scale of an adapter, by its rank or by the root of it: in training, in files, and where it differs.

use candle_core::Device;
use model::adapter::{Adapter, AdapterConfig, Projection};
use model::transformer::Targets;
use model::tree::TokenTree;
use serde_json::Value;
use trainer::checkpoint::write_directory;
use trainer::{Dataset, Method, Progress, TrainError, TrainOptions, Trainee, train};

use crate::resume::{bytes, options, run};
use crate::{model, rows, trainee};

/// Of rank 4, so that the scale is alpha / 2 with the root and alpha / 4 without.
fn shape(alpha: usize, rank_stabilised: bool) -> AdapterConfig {
    AdapterConfig {
        rank: 4,
        alpha,
        rank_stabilised,
        targets: Projection::ALL.to_vec(),
    }
}

fn scaled(alpha: usize, rank_stabilised: bool) -> TrainOptions {
    TrainOptions {
        method: shape(alpha, rank_stabilised).into(),
        ..options()
    }
}

fn adapter(trainee: &Trainee) -> &Adapter {
    match trainee {
        Trainee::Lora { adapter, .. } => adapter,
        Trainee::Full(_) => panic!("an adapter is trained"),
    }
}

fn scale(adapter: &Adapter) -> f64 {
    adapter.get(1, Projection::Down).expect("a pair").scale
}

#[test]
fn a_rank_stabilised_adapter_trains_under_alpha_over_the_root_of_its_rank() {
    let place = tempfile::tempdir().expect("directory");
    let stabilised = run(&place.path().join("root"), 0, &scaled(8, true));
    assert_eq!(scale(adapter(&stabilised.trainee)), 8.0 / 4f64.sqrt());
    // Nothing but the scale differs: a plain one of twice the alpha is trained to the same bytes.
    let twice = run(&place.path().join("twice"), 0, &scaled(16, false));
    assert_eq!(stabilised.losses, twice.losses);
    assert!(bytes(&stabilised) == bytes(&twice));
    let plain = run(&place.path().join("plain"), 0, &scaled(8, false));
    assert_eq!(scale(adapter(&plain.trainee)), 8.0 / 4.0);
    assert!(bytes(&stabilised) != bytes(&plain));
}

#[test]
fn its_scale_is_the_same_once_it_is_read_again() {
    let place = tempfile::tempdir().expect("directory");
    let trained = run(&place.path().join("training"), 0, &scaled(8, true)).trainee;
    let kept = place.path().join("kept");
    write_directory(&kept, &trained.files("golden").expect("files")).expect("written");
    let text = std::fs::read(kept.join("adapter_config.json")).expect("PEFT's file");
    let told: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(told["use_rslora"], true);
    assert_eq!(told["r"], 4);
    assert_eq!(told["lora_alpha"], 8);

    let model = model();
    let read = Adapter::load(&kept, &model.config, &Device::Cpu).expect("an adapter");
    assert_eq!(read.config, shape(8, true));
    assert_eq!(scale(&read), 4.0);
    let row = &rows()[0];
    let tree = TokenTree::new(&[&row.tokens]);
    let targets = Targets::new(&tree, std::slice::from_ref(&row.mask));
    let before = trained.loss(&tree, &targets).expect("loss");
    let after = model.loss(&tree, &targets, Some(&read)).expect("loss");
    assert_eq!(before, after);
}

#[test]
fn a_checkpoint_under_another_scale_is_not_resumed_and_one_under_the_same_is() {
    let place = tempfile::tempdir().expect("directory");
    run(place.path(), 3, &scaled(8, true));
    let rest = run(place.path(), 4, &scaled(8, true));
    assert_eq!(rest.resumed_from, Some(3));
    assert_eq!(scale(adapter(&rest.trainee)), 4.0);
    let other = run(place.path(), 0, &scaled(8, false));
    assert_eq!(other.resumed_from, None);
    assert!(other.skipped_checkpoints[0].contains("of another training"));
    assert_eq!(scale(adapter(&other.trainee)), 2.0);
}

/// Trains what `of` is for under `options`.
fn start(of: &TrainOptions, options: &TrainOptions) -> Result<(), TrainError> {
    let place = tempfile::tempdir().expect("directory");
    let dataset = Dataset::new(rows(), 100, 0.0).expect("dataset");
    let report = |_: &trainer::StepReport| Progress::Stop;
    let start = trainee(of);
    train(start, "golden", &dataset, options, place.path(), report).map(drop)
}

#[test]
fn weights_that_are_not_what_the_options_are_for_are_refused() {
    let plain = scaled(8, false);
    let full = TrainOptions {
        method: Method::Full,
        ..plain.clone()
    };
    let narrow = TrainOptions {
        method: Method::Lora(AdapterConfig {
            targets: vec![Projection::Query],
            ..shape(8, false)
        }),
        ..plain.clone()
    };
    for other in [&scaled(8, true), &scaled(16, false), &narrow, &full] {
        for (of, options) in [(&plain, other), (other, &plain)] {
            let error = start(of, options).expect_err("refused");
            assert!(matches!(error, TrainError::OtherMethod { .. }), "{error}");
        }
    }
    let told = start(&scaled(8, true), &full).expect_err("refused");
    assert_eq!(
        told.to_string(),
        "the weights to train are an adapter (rank 4, scale 8/√4, on q_proj k_proj v_proj o_proj \
         gate_proj up_proj down_proj), and the options are for every weight"
    );
    // In which order the targets are named says nothing.
    let mut turned = shape(8, false);
    turned.targets.reverse();
    let turned = TrainOptions {
        method: turned.into(),
        ..plain.clone()
    };
    start(&turned, &plain).expect("a step");
}
