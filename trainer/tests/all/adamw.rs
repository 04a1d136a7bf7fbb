//! Five steps of LoRA training against PyTorch and PEFT.

use std::sync::Arc;

use candle_core::Device;
use model::adapter::Adapter;
use model::weights::load_safetensors;
use serde::Deserialize;
use trainer::{AdamWOptions, Dataset, Progress, Schedule, TrainOptions, Trainee, train};

use crate::{golden, model, rows};

#[derive(Deserialize)]
struct Golden {
    steps: usize,
    warmup_steps: usize,
    learning_rate: f64,
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
    max_grad_norm: f64,
    learning_rates: Vec<f64>,
    losses: Vec<f64>,
    grad_norms: Vec<f64>,
    rms_noise: f64,
}

#[test]
fn losses_norms_rates_and_weights_equal_pytorchs() {
    let text = std::fs::read(golden().join("adamw.json")).expect("adamw.json");
    let golden_run: Golden = serde_json::from_slice(&text).expect("adamw.json");
    let model = model();
    let initial =
        Adapter::load(&golden().join("adapter"), &model.config, &Device::Cpu).expect("adapter");
    let rows = rows();
    let batch = rows.len();
    let dataset = Dataset::new(rows, 100, 0.0).expect("dataset");
    let options = TrainOptions {
        epochs: golden_run.steps,
        batch,
        learning_rate: golden_run.learning_rate,
        warmup_share: golden_run.warmup_steps as f64 / golden_run.steps as f64,
        schedule: Schedule::Cosine,
        max_gradient_norm: golden_run.max_grad_norm,
        optimizer: AdamWOptions {
            betas: golden_run.betas,
            eps: golden_run.eps,
            weight_decay: golden_run.weight_decay,
        },
        checkpoint_steps: 100,
        ..TrainOptions::plain(initial.config.clone())
    };
    let directory = tempfile::tempdir().expect("directory");
    let mut reports = Vec::new();
    let outcome = train(
        Trainee::Lora {
            model: Arc::new(model),
            adapter: initial,
        },
        "golden",
        &dataset,
        &options,
        directory.path(),
        |report| {
            reports.push(*report);
            Progress::Continue
        },
    )
    .expect("training");
    for (step, report) in reports.iter().enumerate() {
        let close = |ours: f64, theirs: f64| (ours - theirs).abs() < 1e-5 * theirs.abs();
        assert!(close(report.loss, golden_run.losses[step]), "{report:?}");
        // Norms from the second step on are those at weights that rounding has moved already.
        let norm = golden_run.grad_norms[step];
        assert!(
            (report.gradient_norm - norm).abs() < 20.0 * golden_run.rms_noise * norm,
            "{report:?}"
        );
        assert!(
            close(report.learning_rate, golden_run.learning_rates[step]),
            "{report:?}"
        );
    }
    let theirs =
        load_safetensors(&golden().join("adamw.safetensors"), &Device::Cpu).expect("weights");
    let ours = outcome.trainee.parameters();
    assert!(ours.keys().eq(theirs.keys()));
    let (mut difference, mut size) = (0.0, 0.0);
    for (name, tensor) in &ours {
        let sum = |t: candle_core::Result<candle_core::Tensor>| {
            f64::from(
                t.and_then(|t| t.sqr()?.sum_all()?.to_scalar::<f32>())
                    .expect("sum of squares"),
            )
        };
        difference += sum(tensor - &theirs[name]);
        size += sum(theirs[name].copy());
    }
    let gap = (difference / size).sqrt();
    assert!(
        gap < 20.0 * golden_run.rms_noise,
        "weights differ by {gap:e} relative RMS"
    );
}
