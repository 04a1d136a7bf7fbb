//! Integration tests of the trainer, one binary.

mod adamw;
mod resume;
mod validation;

use std::path::{Path, PathBuf};

use candle_core::{DType, Device};
use model::transformer::Transformer;
use model::weights::{Checkpoint, load_safetensors};
use trainer::Row;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama_tied")
}

fn model() -> Transformer {
    let files = Checkpoint::load(&golden(), DType::F32, &Device::Cpu).expect("golden model");
    Transformer::new(files).expect("model")
}

/// The golden batch as training rows.
fn rows() -> Vec<Row> {
    let batch = load_safetensors(&golden().join("batch.safetensors"), &Device::Cpu).expect("batch");
    let read = |name: &str| batch[name].to_vec2::<i64>().expect("matrix");
    let (ids, attention, mask) = (read("input_ids"), read("attention_mask"), read("loss_mask"));
    (0..ids.len())
        .map(|row| {
            let length = attention[row].iter().sum::<i64>() as usize;
            Row {
                id: format!("row {row}"),
                tokens: ids[row][..length].iter().map(|v| *v as u32).collect(),
                mask: mask[row][..length].iter().map(|v| *v == 1).collect(),
            }
        })
        .collect()
}
