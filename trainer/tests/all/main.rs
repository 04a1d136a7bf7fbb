//! Integration tests of the trainer, one binary.

#![allow(clippy::print_stdout, reason = "tests say aloud what they measure")]

mod adamw;
mod full;
#[cfg(target_os = "linux")]
mod memory;
mod peers;
#[path = "../../../model/tests/all/python.rs"]
mod python;
mod resume;
mod scaling;
mod validation;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::{DType, Device};
use model::kernels::gemm::Arithmetic;
use model::transformer::Transformer;
use model::weights::{Checkpoint, load_safetensors};
use trainer::full::FullModel;
use trainer::{Method, Row, TrainOptions, Trainee};

fn golden() -> PathBuf {
    golden_named("llama_tied")
}

fn golden_named(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn files() -> Checkpoint {
    files_in(&golden())
}

fn files_in(directory: &Path) -> Checkpoint {
    Checkpoint::load(directory, DType::F32, &Device::Cpu).expect("golden model")
}

fn model() -> Transformer {
    Transformer::new(files()).expect("model")
}

/// The golden model with what `options` train of it.
fn trainee(options: &TrainOptions) -> Trainee {
    match &options.method {
        Method::Lora(config) => {
            Trainee::fresh(Arc::new(model()), config.clone(), options.seed).expect("adapter")
        }
        Method::Full => Trainee::Full(Box::new(FullModel::new(files(), Arithmetic::F32))),
    }
}

/// The golden batch as training rows.
fn rows() -> Vec<Row> {
    rows_in(&golden())
}

fn rows_in(directory: &Path) -> Vec<Row> {
    let batch = directory.join("batch.safetensors");
    let batch = load_safetensors(&batch, &Device::Cpu).expect("batch");
    let read = |name: &str| batch[name].to_vec2::<i64>().expect("matrix");
    let (ids, attention, mask) = (read("input_ids"), read("attention_mask"), read("loss_mask"));
    (0..ids.len())
        .map(|row| {
            let length = attention[row].iter().sum::<i64>() as usize;
            Row {
                id: format!("row {row}"),
                tokens: ids[row][..length].iter().map(|v| *v as u32).collect(),
                mask: mask[row][..length].iter().map(|v| *v == 1).collect(),
                weight: 1.0,
                group: None,
            }
        })
        .collect()
}
