//! A training stopped, killed or damaged anywhere ends in the weights of one left alone.

use std::path::Path;

use candle_core::Device;
use model::adapter::{AdapterConfig, Projection, serialize};
use trainer::{Dataset, Outcome, Progress, Schedule, TrainOptions, train};

use crate::{model, rows};

pub(crate) fn options() -> TrainOptions {
    TrainOptions {
        epochs: 3,
        batch: 2,
        learning_rate: 1e-2,
        warmup_share: 0.2,
        schedule: Schedule::Linear,
        seed: 5,
        ..TrainOptions::plain(AdapterConfig {
            rank: 4,
            alpha: 8,
            rank_stabilised: false,
            targets: Projection::ALL.to_vec(),
        })
    }
}

fn run(directory: &Path, stop_after: usize, options: &TrainOptions) -> Outcome {
    let dataset = Dataset::new(rows(), 100, 0.0).expect("dataset");
    run_on(&dataset, directory, stop_after, options)
}

/// Train from the newest checkpoint, if there is one, to `stop_after` or to the end.
pub(crate) fn run_on(
    dataset: &Dataset,
    directory: &Path,
    stop_after: usize,
    options: &TrainOptions,
) -> Outcome {
    train(
        &model(),
        "golden",
        None,
        dataset,
        options,
        directory,
        |report| {
            if report.step == stop_after {
                Progress::Stop
            } else {
                Progress::Continue
            }
        },
    )
    .expect("training")
}

pub(crate) fn bytes(outcome: &Outcome) -> Vec<u8> {
    serialize(&outcome.adapter.tensors()).expect("weights")
}

fn ends_the_same_wherever_it_stops(options: &TrainOptions) {
    let whole = tempfile::tempdir().expect("directory");
    let whole = run(whole.path(), 0, options);
    assert_eq!(whole.losses.len(), 6);
    assert!(whole.losses[5] < whole.losses[0], "{:?}", whole.losses);
    for stop in 1..6 {
        let directory = tempfile::tempdir().expect("directory");
        let part = run(directory.path(), stop, options);
        assert!(!part.is_finished);
        let rest = run(directory.path(), 0, options);
        assert_eq!(rest.resumed_from, Some(stop));
        assert_eq!(rest.losses, whole.losses);
        assert!(bytes(&rest) == bytes(&whole), "stopped after {stop}");
    }
}

#[test]
fn a_run_stopped_after_any_step_ends_in_the_same_bytes() {
    ends_the_same_wherever_it_stops(&options());
}

#[test]
fn so_does_one_whose_steps_are_computed_in_parts_with_dropout() {
    ends_the_same_wherever_it_stops(&TrainOptions {
        batch: 1,
        accumulate: 2,
        dropout: 0.2,
        ..options()
    });
}

#[test]
fn computing_blocks_twice_drops_the_same() {
    let [kept, twice] = [false, true].map(|recompute| {
        let directory = tempfile::tempdir().expect("directory");
        let options = TrainOptions {
            dropout: 0.2,
            recompute,
            ..options()
        };
        run(directory.path(), 0, &options)
    });
    assert_eq!(kept.losses, twice.losses);
    assert!(bytes(&kept) == bytes(&twice));
}

#[test]
fn a_step_in_parts_learns_from_the_same_rows_in_the_same_order() {
    let dataset = Dataset::new(rows(), 100, 0.0).expect("dataset");
    let parts = TrainOptions {
        batch: 1,
        accumulate: 2,
        ..options()
    };
    assert_eq!(parts.order(&dataset), options().order(&dataset));
    let [whole, parts] = [options(), parts].map(|options| {
        let directory = tempfile::tempdir().expect("directory");
        run(directory.path(), 0, &options).losses
    });
    for (whole, part) in whole.iter().zip(&parts) {
        assert!((whole - part).abs() < 1e-3 * whole, "{whole} {part}");
    }
}

#[test]
fn a_damaged_newest_checkpoint_is_set_aside_for_the_one_before() {
    let directory = tempfile::tempdir().expect("directory");
    run(directory.path(), 4, &options());
    let newest = directory.path().join("checkpoint-000004");
    let weights = newest.join("adapter_model.safetensors");
    let mut damaged = std::fs::read(&weights).expect("weights");
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    std::fs::write(&weights, damaged).expect("damage");
    let rest = run(directory.path(), 0, &options());
    assert_eq!(rest.resumed_from, Some(3));
    assert_eq!(rest.skipped_checkpoints.len(), 1);
    assert!(rest.skipped_checkpoints[0].contains("adapter_model.safetensors was changed"));
    assert!(directory.path().join("damaged-checkpoint-000004").exists());

    // A save cut short leaves a directory under another name, which is not a checkpoint.
    let directory = tempfile::tempdir().expect("directory");
    run(directory.path(), 2, &options());
    let part = directory.path().join(".part-checkpoint-000003");
    std::fs::create_dir(&part).expect("part");
    std::fs::write(part.join("adapter_config.json"), "{").expect("part");
    let incomplete = directory.path().join("checkpoint-000009");
    std::fs::create_dir(&incomplete).expect("incomplete");
    let rest = run(directory.path(), 0, &options());
    assert_eq!(rest.resumed_from, Some(2));
    assert!(rest.skipped_checkpoints[0].contains("COMPLETE is missing"));
}

#[test]
fn a_checkpoint_of_another_training_is_not_resumed() {
    let directory = tempfile::tempdir().expect("directory");
    run(directory.path(), 3, &options());
    let other = TrainOptions {
        learning_rate: 5e-3,
        ..options()
    };
    assert_eq!(run(directory.path(), 0, &other).resumed_from, None);
    // The other's newest checkpoints must not push out our own.
    assert!(directory.path().join("checkpoint-000006").exists());
    assert!(directory.path().join("other-checkpoint-000003").exists());
}

#[test]
fn a_checkpoint_is_a_peft_directory() {
    let directory = tempfile::tempdir().expect("directory");
    let outcome = run(directory.path(), 0, &options());
    let model = model();
    let saved = directory.path().join("checkpoint-000006");
    let read =
        model::adapter::Adapter::load(&saved, &model.config, &Device::Cpu).expect("PEFT files");
    assert_eq!(read.config, options().adapter);
    assert!(serialize(&read.tensors()).expect("weights") == bytes(&outcome));
}
