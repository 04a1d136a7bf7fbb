//! GGUF files, read tensor by tensor.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{Content, TensorInfo};
use candle_core::{DType, Device};

use super::{Metadata, StoredWeight, WeightsError, corrupt, unreadable};
use crate::config::{ConfigError, ModelConfig, RopeScaling};
use crate::gguf_blocks::block_scales;
use crate::gguf_names::{ROPE_TABLE, from_gguf_rows, hugging_face_name};

const FORMAT: &str = "GGUF";

/// An open file.
#[derive(Debug)]
pub(super) struct GgufFile {
    path: PathBuf,
    file: File,
    /// Where the tensors' bytes begin.
    start: u64,
    /// The weights, under their Hugging Face names.
    tensors: BTreeMap<String, TensorInfo>,
}

impl GgufFile {
    /// Read everything but the weights.
    ///
    /// # Errors
    /// When the file can't be read, is damaged, or of a model that can't be computed here.
    pub(super) fn open(path: &Path) -> Result<(Self, ModelConfig, Metadata), WeightsError> {
        let broken = |error: candle_core::Error| corrupt(path, FORMAT, &error);
        let mut file = File::open(path).map_err(unreadable(path))?;
        let size = file.metadata().map_err(unreadable(path))?.len();
        let content = Content::read(&mut file).map_err(broken)?;
        for (name, info) in &content.tensor_infos {
            let elements = info.shape.dims().iter().map(|n| *n as u64);
            let elements = elements.fold(1u64, u64::saturating_mul);
            let (block, width) = (info.ggml_dtype.block_size(), info.ggml_dtype.type_size());
            let bytes = (elements / block as u64).saturating_mul(width as u64);
            let start = content.tensor_data_offset.saturating_add(info.offset);
            if start.saturating_add(bytes) > size {
                return Err(WeightsError::Corrupt {
                    path: path.to_owned(),
                    format: FORMAT,
                    reason: format!("the file ends inside tensor {name}"),
                });
            }
        }
        let embedding = content.tensor_infos.get("token_embd.weight");
        let vocab_size = embedding
            .and_then(|info| info.shape.dims().first().copied())
            .unwrap_or(0);
        let has_head = content.tensor_infos.contains_key("output.weight");
        let mut config = ModelConfig::from_gguf(&content.metadata, vocab_size, has_head)?;
        if content.tensor_infos.contains_key(ROPE_TABLE) {
            let table = content
                .tensor(&mut file, ROPE_TABLE, &Device::Cpu)
                .and_then(|table| table.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1())
                .map_err(broken)?;
            config.rope_scaling = divisors(table, &config)?;
        }
        let named = content.tensor_infos.into_iter();
        let tensors = named.filter_map(|(name, info)| Some((hugging_face_name(&name)?, info)));
        let opened = Self {
            path: path.to_owned(),
            file,
            start: content.tensor_data_offset,
            tensors: tensors.collect(),
        };
        Ok((opened, config, content.metadata))
    }

    /// Shapes of the weights.
    pub(super) fn shapes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        let tensors = self.tensors.iter();
        tensors.map(|(name, info)| (name.as_str(), info.shape.dims()))
    }

    /// One weight, its rows in the checkpoint's order.
    ///
    /// # Errors
    /// When the file can't be read or a tensor operation fails.
    pub(super) fn read(
        &mut self,
        name: &str,
        config: &ModelConfig,
        dtype: DType,
        device: &Device,
    ) -> Result<Option<StoredWeight>, WeightsError> {
        let Some(info) = self.tensors.get(name) else {
            return Ok(None);
        };
        let quantised = info
            .read(&mut self.file, self.start, &Device::Cpu)
            .map_err(|error| corrupt(&self.path, FORMAT, &error))?;
        let scales = if device.is_cpu() && dtype == DType::F32 {
            block_scales(name, &quantised, config)?
        } else {
            None
        };
        let tensor = from_gguf_rows(name, quantised.dequantize(&Device::Cpu)?, config)?;
        let tensor = tensor.to_dtype(dtype)?.to_device(device)?;
        Ok(Some(StoredWeight { tensor, scales }))
    }
}

/// Scaling by a file's table of rotary frequencies. Positions may be divided by a factor besides, and both
/// count.
fn divisors(table: Vec<f32>, config: &ModelConfig) -> Result<RopeScaling, ConfigError> {
    if table.len() != config.head_dim / 2
        || table
            .iter()
            .any(|divisor| divisor.is_nan() || *divisor <= 0.0)
    {
        return Err(ConfigError::Unsupported {
            what: format!(
                "{ROPE_TABLE} with {} values for heads of {}",
                table.len(),
                config.head_dim
            ),
        });
    }
    if table.iter().all(|divisor| *divisor == 1.0) {
        return Ok(config.rope_scaling.clone());
    }
    let factor = match config.rope_scaling {
        RopeScaling::Linear(factor) => factor as f32,
        _ => 1.0,
    };
    let scaled = table.into_iter().map(|divisor| divisor * factor);
    Ok(RopeScaling::Divisors(scaled.collect()))
}
