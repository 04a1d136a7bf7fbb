//! A training stopped, killed or damaged anywhere ends in the weights of one left alone.

use std::path::Path;

use candle_core::Device;
use model::adapter::{AdapterConfig, Projection, serialize};
use trainer::{Dataset, Method, Outcome, Progress, Row, Schedule, TrainOptions, train};

use crate::{model, rows, trainee};

pub(crate) fn options() -> TrainOptions {
    TrainOptions {
        epochs: 3,
        batch: 2,
        learning_rate: 1e-2,
        warmup_share: 0.2,
        schedule: Schedule::Linear,
        seed: 5,
        ..TrainOptions::plain(adapter())
    }
}

fn adapter() -> AdapterConfig {
    AdapterConfig {
        rank: 4,
        alpha: 8,
        rank_stabilised: false,
        targets: Projection::ALL.to_vec(),
    }
}

pub(crate) fn run(directory: &Path, stop_after: usize, options: &TrainOptions) -> Outcome {
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
        trainee(options),
        "golden",
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
    serialize(&outcome.trainee.parameters()).expect("weights")
}

pub(crate) fn ends_the_same_wherever_it_stops(options: &TrainOptions) {
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
    let whole = std::fs::read(directory.path().join("checkpoint-000002").join(WEIGHTS));
    std::fs::write(incomplete.join(WEIGHTS), &whole.expect("weights")[..60]).expect("weights");
    let rest = run(directory.path(), 0, &options());
    assert_eq!(rest.resumed_from, Some(2));
    assert!(rest.skipped_checkpoints[0].contains("COMPLETE is missing"));
    assert!(directory.path().join("damaged-checkpoint-000009").exists());
}

const WEIGHTS: &str = "adapter_model.safetensors";

/// Copies the files `names` of one directory to a new one.
fn copy(from: &Path, to: &Path, names: &[String]) {
    std::fs::create_dir_all(to).expect("directory");
    for name in names {
        std::fs::copy(from.join(name), to.join(name)).expect("copy");
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("directory");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into())
        .collect();
    names.sort();
    names
}

/// What a kill leaves at each border between two writes of a save, and in the middle of each write.
#[test]
fn a_save_that_was_killed_anywhere_leaves_the_checkpoint_before_it() {
    let alone = tempfile::tempdir().expect("directory");
    let expected = bytes(&run(alone.path(), 0, &options()));
    let source = tempfile::tempdir().expect("directory");
    run(source.path(), 3, &options());
    let (second, third) = (
        source.path().join("checkpoint-000002"),
        source.path().join("checkpoint-000003"),
    );
    let mut files = names(&third);
    // The list of hashes, which is written last.
    files.rotate_left(1);
    assert_eq!((files.len(), files[4].as_str()), (5, "COMPLETE"));
    for written in 0..=files.len() {
        for cut in [None, files.get(written)] {
            let place = tempfile::tempdir().expect("directory");
            copy(
                &second,
                &place.path().join("checkpoint-000002"),
                &names(&second),
            );
            let part = place.path().join(".part-checkpoint-000003");
            copy(&third, &part, &files[..written]);
            if let Some(name) = cut {
                let whole = std::fs::read(third.join(name)).expect("file");
                std::fs::write(part.join(name), &whole[..whole.len() / 2]).expect("file");
            }
            let rest = run(place.path(), 0, &options());
            assert_eq!(rest.resumed_from, Some(2), "{written} files, then {cut:?}");
            assert_eq!(rest.skipped_checkpoints, Vec::<String>::new());
            assert!(bytes(&rest) == expected, "{written} files, then {cut:?}");
        }
    }
    // After the rename, before the oldest goes.
    let place = tempfile::tempdir().expect("directory");
    for name in ["checkpoint-000001", "checkpoint-000002"] {
        copy(&second, &place.path().join(name), &names(&second));
    }
    copy(&third, &place.path().join("checkpoint-000003"), &files);
    let rest = run(place.path(), 0, &options());
    assert_eq!(rest.resumed_from, Some(3));
    assert!(bytes(&rest) == expected);
}

#[test]
fn a_training_whose_directory_was_moved_goes_on() {
    let alone = tempfile::tempdir().expect("directory");
    let dataset = Dataset::new(rows(), 100, 0.0).expect("dataset");
    let dataset = dataset.hold_out(|row| row.id == "row 0").expect("rows");
    let whole = run_on(&dataset, alone.path(), 0, &options());
    let place = tempfile::tempdir().expect("directory");
    let (before, after) = (place.path().join("here"), place.path().join("there"));
    run_on(&dataset, &before, 3, &options());
    let here = before.display().to_string();
    for checkpoint in names(&before) {
        for name in names(&before.join(&checkpoint)) {
            let bytes = std::fs::read(before.join(&checkpoint).join(&name)).expect("file");
            let is_named = bytes
                .windows(here.len())
                .any(|part| part == here.as_bytes());
            assert!(!is_named, "{name} names its place");
        }
    }
    std::fs::rename(&before, &after).expect("moved");
    let rest = run_on(&dataset, &after, 0, &options());
    assert_eq!(rest.resumed_from, Some(3));
    assert!(bytes(&rest) == bytes(&whole));
}

#[test]
fn a_stop_in_the_second_pass_serves_what_is_left_of_it() {
    let row = |index: u32| Row {
        id: format!("row {index}"),
        tokens: (0..12).map(|at| (7 * index + 3 * at) % 250).collect(),
        mask: (0..12).map(|at| at > 3).collect(),
        weight: 1.0,
        group: Some(format!("problem {}", index % 4)),
    };
    let dataset = Dataset::new((0..10).map(row).collect(), 100, 0.0).expect("dataset");
    let options = TrainOptions {
        epochs: 2,
        batch: 1,
        accumulate: 2,
        ..options()
    };
    let order = options.order(&dataset);
    for pass in order.chunks(5) {
        let mut served = pass.concat();
        served.sort_unstable();
        assert_eq!(served, (0..10).collect::<Vec<_>>());
    }
    for method in [Method::from(adapter()), Method::Full] {
        let options = TrainOptions {
            method,
            learning_rate: 1e-3,
            ..options.clone()
        };
        let alone = tempfile::tempdir().expect("directory");
        let whole = run_on(&dataset, alone.path(), 0, &options);
        let directory = tempfile::tempdir().expect("directory");
        run_on(&dataset, directory.path(), 7, &options);
        let rest = run_on(&dataset, directory.path(), 0, &options);
        // No two pairs of rows have the same loss: equal losses are equal rows.
        assert_eq!(rest.resumed_from, Some(7));
        assert_eq!(rest.losses, whole.losses);
        assert!(bytes(&rest) == bytes(&whole));
    }
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

/// An earlier version served the rows of a problem in another order: what is left of that is no rest of
/// this one.
#[test]
fn a_checkpoint_of_another_order_of_the_same_rows_is_not_resumed() {
    let of = |group: Option<&str>| {
        let rows = rows().into_iter().map(|row| Row {
            group: group.map(str::to_owned),
            ..row
        });
        Dataset::new(rows.collect(), 100, 0.0).expect("dataset")
    };
    let directory = tempfile::tempdir().expect("directory");
    run_on(&of(None), directory.path(), 3, &options());
    let rest = run_on(&of(Some("problem")), directory.path(), 4, &options());
    assert_eq!(rest.resumed_from, None);
    let rest = run_on(&of(Some("problem")), directory.path(), 0, &options());
    assert_eq!(rest.resumed_from, Some(4));
}

#[test]
fn a_checkpoint_is_a_peft_directory() {
    let directory = tempfile::tempdir().expect("directory");
    let outcome = run(directory.path(), 0, &options());
    let model = model();
    let saved = directory.path().join("checkpoint-000006");
    let read =
        model::adapter::Adapter::load(&saved, &model.config, &Device::Cpu).expect("PEFT files");
    assert_eq!(read.config, adapter());
    assert!(serialize(&read.tensors()).expect("weights") == bytes(&outcome));
}
