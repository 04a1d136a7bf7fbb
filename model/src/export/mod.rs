//! Writing a model for other programs: a GGUF file or a Hugging Face directory, an adapter merged
//! into it if wanted.
//!
//! What is written loads again here, with the same weights but for the rounding of their type.

mod directory;
mod gguf;
mod place;

use std::path::{Path, PathBuf};

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Tensor};

use crate::adapter::{Adapter, Projection};
use crate::tokenizer::{Tokenizer, TokenizerError};
use crate::weights::{Checkpoint, TensorMap, WeightsError};

/// Why a model can't be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// There is something already.
    #[error("{path} exists")]
    Exists {
        /// The file or directory.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("cannot write {path}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A type that only GGUF has.
    #[error("{path}: a directory holds weights in f32, f16 or bf16, not in {kind}")]
    NeedsGguf {
        /// The directory.
        path: PathBuf,
        /// The type.
        kind: WeightType,
    },
    /// Something of the model has no place in the form.
    #[error("the model's {what} can't be written to {form}")]
    NoPlace {
        /// What it is.
        what: String,
        /// `a GGUF file` or `a directory`.
        form: &'static str,
    },
    /// A weight that the type can't hold.
    #[error("{name} has weights that {kind} can't hold, as large as {largest:e}")]
    TooLarge {
        /// The tensor.
        name: String,
        /// The type.
        kind: WeightType,
        /// The largest of them.
        largest: f32,
    },
    /// The tokenizer can't be written.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The source can't be read again.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A tensor operation failed.
    #[error("tensor operation failed")]
    Tensor(#[from] candle_core::Error),
}

/// What weights are stored as. Norms and biases, which are small, stay f32 in GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightType {
    /// 32 bits, exact.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// Blocks of 32 eight-bit numbers with a scale. Only in GGUF; tensors whose rows aren't whole
    /// blocks are f16 there.
    Q8_0,
}

impl std::fmt::Display for WeightType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
        })
    }
}

/// The largest number of 16 bits.
const F16_MAX: f32 = 65_504.0;

impl WeightType {
    fn in_gguf(self) -> GgmlDType {
        match self {
            Self::F32 => GgmlDType::F32,
            Self::F16 => GgmlDType::F16,
            Self::Bf16 => GgmlDType::BF16,
            Self::Q8_0 => GgmlDType::Q8_0,
        }
    }

    /// With its name in a configuration.
    fn in_safetensors(self) -> Option<(DType, &'static str)> {
        match self {
            Self::F32 => Some((DType::F32, "float32")),
            Self::F16 => Some((DType::F16, "float16")),
            Self::Bf16 => Some((DType::BF16, "bfloat16")),
            Self::Q8_0 => None,
        }
    }

    /// A weight as it is written must be a number, and one of this type: scales of q8_0 are f16.
    fn check(self, name: &str, weight: &Tensor) -> Result<(), ExportError> {
        let limit = match self {
            Self::F32 | Self::Bf16 => f32::MAX,
            Self::F16 => F16_MAX,
            Self::Q8_0 => 127.0 * F16_MAX,
        };
        let largest = weight.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?;
        // max passes NaN over or on, as the case may be; a sum always carries it.
        let is_number = weight.sum_all()?.to_scalar::<f32>()?.is_finite();
        if is_number && largest <= limit {
            return Ok(());
        }
        Err(ExportError::TooLarge {
            name: name.to_owned(),
            kind: self,
            largest,
        })
    }
}

/// A model to be written.
#[derive(Debug)]
pub struct Export<'a> {
    /// Its shape and f32 weights, on the CPU; with metadata if it came as GGUF.
    pub checkpoint: Checkpoint,
    /// Where that was read from.
    pub source: &'a Path,
    /// Its tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Its chat template.
    pub template: &'a str,
}

impl Export<'_> {
    /// Put an adapter's updates into the weights: the model then says without it what it said with it.
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub fn merge(&mut self, adapter: &Adapter) -> candle_core::Result<()> {
        merge(&mut self.checkpoint.tensors, adapter)
    }

    /// Write to `out`, whole or not at all: as a GGUF file if it ends in `.gguf`, else as a directory.
    ///
    /// # Errors
    /// When `out` exists, can't be written, or can't hold the model in this type.
    pub fn write(self, kind: WeightType, out: &Path) -> Result<(), ExportError> {
        check(kind, out)?;
        if is_gguf(out) {
            gguf::write(self, kind, out)
        } else {
            directory::write(self, kind, out)
        }
    }
}

/// Whether `out` can be written in this type at all, to be asked before a model is read.
///
/// # Errors
/// When it exists, or is a directory and the type only GGUF's.
pub fn check(kind: WeightType, out: &Path) -> Result<(), ExportError> {
    let path = || out.to_owned();
    if out.symlink_metadata().is_ok() {
        return Err(ExportError::Exists { path: path() });
    }
    if !is_gguf(out) && kind == WeightType::Q8_0 {
        return Err(ExportError::NeedsGguf { path: path(), kind });
    }
    Ok(())
}

fn is_gguf(path: &Path) -> bool {
    path.extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("gguf"))
}

/// `W + scale · B A` for every adapted weight.
fn merge(tensors: &mut TensorMap, adapter: &Adapter) -> candle_core::Result<()> {
    for (name, weight) in tensors.iter_mut() {
        let Some((layer, path)) = name
            .strip_prefix("model.layers.")
            .and_then(|rest| rest.strip_suffix(".weight")?.split_once('.'))
        else {
            continue;
        };
        let projection = Projection::ALL.into_iter().find(|p| p.path() == path);
        let pair = layer
            .parse::<usize>()
            .ok()
            .zip(projection)
            .and_then(|(layer, projection)| adapter.get(layer, projection));
        if let Some(pair) = pair {
            *weight = (&*weight + (pair.b.matmul(&pair.a)? * pair.scale)?)?;
        }
    }
    Ok(())
}
