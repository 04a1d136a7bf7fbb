//! Training every weight, as a run does it: checkpoints, resuming, validation.

use candle_core::Device;
use model::transformer::Targets;
use model::tree::TokenTree;
use model::weights::{Checkpoint, load_safetensors};
use trainer::optimizer::{clip, global_norm};
use trainer::{AdamW, Dataset, Method, TrainOptions, Trainee};

use crate::resume::{bytes, ends_the_same_wherever_it_stops, run, run_on};
use crate::validation::{dataset, validates_the_same_wherever_it_stops};
use crate::{files, resume, rows, trainee};

fn options() -> TrainOptions {
    TrainOptions {
        method: Method::Full,
        learning_rate: 1e-3,
        ..resume::options()
    }
}

#[test]
fn a_run_stopped_after_any_step_ends_in_the_same_bytes() {
    ends_the_same_wherever_it_stops(&options());
}

#[test]
fn so_does_one_that_is_validated_and_computed_in_parts() {
    let options = TrainOptions {
        batch: 1,
        accumulate: 2,
        learning_rate: 1e-2,
        validate_every: 2,
        ..options()
    };
    validates_the_same_wherever_it_stops(&dataset(), &options);
}

/// The loop with checkpoints does what the steps one by one do.
#[test]
fn its_weights_are_those_of_the_steps_alone() {
    let options = options();
    let dataset = Dataset::new(rows(), 100, 0.0).expect("dataset");
    let directory = tempfile::tempdir().expect("directory");
    let outcome = run_on(&dataset, directory.path(), 0, &options);
    let Trainee::Full(mut full) = trainee(&options) else {
        panic!("every weight is trained");
    };
    let mut optimizer = AdamW::new(options.optimizer, full.weights()).expect("state");
    let order = options.order(&dataset);
    let warmup = (options.warmup_share * order.len() as f64).round() as usize;
    for (step, rows) in order.iter().enumerate() {
        let rows: Vec<_> = rows.iter().map(|row| &dataset.rows()[*row]).collect();
        let sequences: Vec<&[u32]> = rows.iter().map(|row| row.tokens.as_slice()).collect();
        let masks: Vec<Vec<bool>> = rows.iter().map(|row| row.mask.clone()).collect();
        let tree = TokenTree::new(&sequences);
        let targets = Targets::new(&tree, &masks);
        let pass = full.loss_and_gradients(&tree, &targets, model::transformer::Trainable::Base);
        let (loss, mut gradients) = pass.expect("pass");
        assert_eq!(loss, outcome.losses[step]);
        let norm = global_norm(&gradients).expect("norm");
        clip(&mut gradients, norm, options.max_gradient_norm).expect("clip");
        let rate = options
            .schedule
            .rate(options.learning_rate, step, warmup, order.len());
        full.update(&mut optimizer, &gradients, rate).expect("step");
    }
    let alone = model::adapter::serialize(full.weights()).expect("weights");
    assert!(alone == bytes(&outcome));
}

#[test]
fn its_checkpoints_hold_a_models_weights_and_the_newest_alone_stays() {
    let directory = tempfile::tempdir().expect("directory");
    let outcome = run(directory.path(), 0, &options());
    let entries = std::fs::read_dir(directory.path()).expect("directory");
    let names: Vec<String> = entries
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into())
        .collect();
    assert_eq!(names, ["checkpoint-000006"]);
    let saved = directory.path().join("checkpoint-000006/model.safetensors");
    let weights = load_safetensors(&saved, &Device::Cpu).expect("weights");
    let read = Checkpoint::of(files().config, weights).expect("a model");
    let read = model::adapter::serialize(&read.tensors).expect("weights");
    assert!(read == bytes(&outcome));
}

#[test]
fn without_a_whole_checkpoint_it_starts_over_to_the_same_end() {
    let alone = tempfile::tempdir().expect("directory");
    let whole = run(alone.path(), 0, &options());
    let directory = tempfile::tempdir().expect("directory");
    run(directory.path(), 4, &options());
    let optimizer = directory
        .path()
        .join("checkpoint-000004/optimizer.safetensors");
    let mut damaged = std::fs::read(&optimizer).expect("moments");
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    std::fs::write(&optimizer, damaged).expect("damage");
    let rest = run(directory.path(), 0, &options());
    assert_eq!(rest.resumed_from, None);
    assert!(rest.skipped_checkpoints[0].contains("optimizer.safetensors was changed"));
    assert!(bytes(&rest) == bytes(&whole));
}
