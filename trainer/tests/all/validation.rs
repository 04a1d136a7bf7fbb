//! Rows held out decide what is kept and when training ends, whatever interrupts it.

use model::transformer::Targets;
use model::tree::TokenTree;
use trainer::validation::best;
use trainer::{Dataset, TrainOptions};

use crate::resume::{bytes, options, run_on};
use crate::rows;

/// The golden rows, the last of them held out.
pub(crate) fn dataset() -> Dataset {
    let rows = rows();
    let last = rows[rows.len() - 1].id.clone();
    let dataset = Dataset::new(rows, 100, 0.0).expect("dataset");
    dataset.hold_out(|row| row.id == last).expect("rows left")
}

/// A rate at which the rows are learnt by heart, and what is held out gets worse.
fn hasty() -> TrainOptions {
    TrainOptions {
        epochs: 8,
        learning_rate: 5e-2,
        ..options()
    }
}

#[test]
fn the_adapter_with_the_smallest_validation_loss_is_kept() {
    let directory = tempfile::tempdir().expect("directory");
    let dataset = dataset();
    let outcome = run_on(&dataset, directory.path(), 0, &hasty());
    let steps = outcome.losses.len();
    let evaluated: Vec<usize> = outcome.evaluations.iter().map(|e| e.step).collect();
    let expected: Vec<usize> = (1..=8).map(|epoch| epoch * steps / 8).collect();
    assert_eq!(evaluated, expected, "once after each pass over the data");
    let kept = best(&outcome.evaluations).expect("evaluations");
    assert!(kept.step < steps, "{:?}", outcome.evaluations);
    assert!(outcome.is_finished && !outcome.is_early);

    let held_out = &dataset.validation()[0];
    let tree = TokenTree::new(&[&held_out.tokens]);
    let targets = Targets::new(&tree, std::slice::from_ref(&held_out.mask));
    let loss = outcome.trainee.loss(&tree, &targets);
    assert_eq!(loss.expect("loss"), kept.loss, "of the adapter given back");
    let (same, _) = outcome
        .trainee
        .loss_and_gradients(&tree, &targets, outcome.trainee.trainable())
        .expect("pass");
    assert_eq!(same, kept.loss, "of the training pass");
}

/// However often it is stopped, a training that validates keeps the same weights.
pub(crate) fn validates_the_same_wherever_it_stops(dataset: &Dataset, options: &TrainOptions) {
    let whole = tempfile::tempdir().expect("directory");
    let whole = run_on(dataset, whole.path(), 0, options);
    assert!(whole.evaluations.len() > 2, "{:?}", whole.evaluations);
    for stop in 1..whole.losses.len() {
        let directory = tempfile::tempdir().expect("directory");
        assert!(!run_on(dataset, directory.path(), stop, options).is_finished);
        let rest = run_on(dataset, directory.path(), 0, options);
        assert_eq!(rest.resumed_from, Some(stop));
        assert_eq!(rest.evaluations, whole.evaluations);
        assert!(bytes(&rest) == bytes(&whole), "stopped after {stop}");
    }
}

#[test]
fn a_run_stopped_after_any_step_keeps_the_same_adapter() {
    let options = TrainOptions {
        epochs: 3,
        validate_every: 2,
        ..hasty()
    };
    validates_the_same_wherever_it_stops(&dataset(), &options);
}

#[test]
fn training_ends_when_patience_does_and_stays_ended() {
    let patient = TrainOptions {
        patience: 1,
        ..hasty()
    };
    let (dataset, directory) = (dataset(), tempfile::tempdir().expect("directory"));
    let outcome = run_on(&dataset, directory.path(), 0, &patient);
    assert!(
        outcome.is_finished && outcome.is_early,
        "{:?}",
        outcome.evaluations
    );
    let found = &outcome.evaluations;
    assert_eq!(best(found), Some(found[found.len() - 2]));
    assert_eq!(outcome.losses.len(), found[found.len() - 1].step);

    let again = run_on(&dataset, directory.path(), 0, &patient);
    assert_eq!(again.resumed_from, Some(outcome.losses.len()));
    assert!(again.is_finished && again.is_early);
    assert!(again.losses == outcome.losses && bytes(&again) == bytes(&outcome));
}
