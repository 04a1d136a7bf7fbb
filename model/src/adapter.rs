//! LoRA adapters: which projections they touch, and PEFT's files.
//!
//! The on-disk form is the `peft` library's: `adapter_config.json` and `adapter_model.safetensors`
//! with keys `base_model.model.model.layers.N.<projection>.lora_{A,B}.weight`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::config::ModelConfig;
use crate::kernels::gemm::Arithmetic;
use crate::linear::Lora;
use crate::weights::{TensorMap, WeightsError, expected_shapes, load_safetensors};

/// Why an adapter can't be read, written or made.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// A file could not be read or written.
    #[error("cannot access {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// `adapter_config.json` is not what PEFT writes, or asks for something unsupported.
    #[error("{path}: {reason}")]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The weights do not fit the model.
    #[error("adapter does not fit the model: {reason}")]
    Mismatch {
        /// What is wrong.
        reason: String,
    },
    /// The weights file can't be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A tensor operation failed.
    #[error("tensor operation failed")]
    Tensor(#[from] candle_core::Error),
}

/// A linear layer of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Projection {
    /// Attention queries.
    #[serde(rename = "q_proj")]
    Query,
    /// Attention keys.
    #[serde(rename = "k_proj")]
    Key,
    /// Attention values.
    #[serde(rename = "v_proj")]
    Value,
    /// Attention output.
    #[serde(rename = "o_proj")]
    Output,
    /// MLP gate.
    #[serde(rename = "gate_proj")]
    Gate,
    /// MLP input.
    #[serde(rename = "up_proj")]
    Up,
    /// MLP output.
    #[serde(rename = "down_proj")]
    Down,
}

impl Projection {
    /// All seven, in checkpoint order.
    pub const ALL: [Self; 7] = [
        Self::Query,
        Self::Key,
        Self::Value,
        Self::Output,
        Self::Gate,
        Self::Up,
        Self::Down,
    ];

    /// Name inside a block, as in the checkpoint (`self_attn.q_proj`).
    pub fn path(self) -> &'static str {
        match self {
            Self::Query => "self_attn.q_proj",
            Self::Key => "self_attn.k_proj",
            Self::Value => "self_attn.v_proj",
            Self::Output => "self_attn.o_proj",
            Self::Gate => "mlp.gate_proj",
            Self::Up => "mlp.up_proj",
            Self::Down => "mlp.down_proj",
        }
    }

    /// PEFT's name of the module (`q_proj`).
    pub fn module(self) -> &'static str {
        self.path()
            .rsplit_once('.')
            .map_or(self.path(), |(_, module)| module)
    }

    fn from_module(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.module() == name)
    }
}

/// Shape of an adapter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterConfig {
    /// Rank of every pair.
    pub rank: usize,
    /// Numerator of the scale.
    pub alpha: usize,
    /// Scale by alpha / √rank instead of alpha / rank (Kalajdzievski, arXiv:2312.03732).
    pub rank_stabilised: bool,
    /// Adapted projections.
    pub targets: Vec<Projection>,
}

impl AdapterConfig {
    /// Factor on `B A`.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha as f64
            / if self.rank_stabilised {
                rank.sqrt()
            } else {
                rank
            }
    }

    /// Whether adapters of both have the same parameters under the same scale. The order of targets
    /// says nothing.
    pub fn is_like(&self, other: &Self) -> bool {
        let targets = |config: &Self| config.targets.iter().copied().collect::<BTreeSet<_>>();
        self.rank == other.rank
            && self.alpha == other.alpha
            && self.rank_stabilised == other.rank_stabilised
            && targets(self) == targets(other)
    }
}

impl fmt::Display for AdapterConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = if self.rank_stabilised { "√" } else { "" };
        let modules: Vec<&str> = self.targets.iter().map(|target| target.module()).collect();
        let Self { rank, alpha, .. } = self;
        write!(
            f,
            "rank {rank}, scale {alpha}/{root}{rank}, on {}",
            modules.join(" ")
        )
    }
}

/// A LoRA adapter for one model.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// Its shape.
    pub config: AdapterConfig,
    pairs: BTreeMap<(usize, Projection), Lora>,
}

/// The part of `adapter_config.json` that matters here.
#[derive(Deserialize)]
struct PeftConfig {
    peft_type: String,
    r: usize,
    lora_alpha: usize,
    #[serde(default)]
    use_rslora: bool,
    #[serde(default)]
    use_dora: bool,
    target_modules: Vec<String>,
    #[serde(default)]
    rank_pattern: BTreeMap<String, usize>,
    #[serde(default)]
    alpha_pattern: BTreeMap<String, usize>,
    modules_to_save: Option<Vec<String>>,
}

impl Adapter {
    /// A fresh adapter: A uniform as PEFT initialises it (Kaiming, a = √5), B zero, so that it
    /// changes nothing until trained.
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub fn fresh(
        model: &ModelConfig,
        config: AdapterConfig,
        seed: u64,
        device: &Device,
    ) -> Result<Self, AdapterError> {
        let shapes = expected_shapes(model);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut pairs = BTreeMap::new();
        for layer in 0..model.num_hidden_layers {
            for target in &config.targets {
                let shape = &shapes[&format!("model.layers.{layer}.{}.weight", target.path())];
                let (output, input) = (shape[0], shape[1]);
                let bound = 1.0 / (input as f32).sqrt();
                let a: Vec<f32> = (0..config.rank * input)
                    .map(|_| (random.random::<f32>() * 2.0 - 1.0) * bound)
                    .collect();
                let a = Tensor::from_vec(a, (config.rank, input), device)?;
                let b = Tensor::zeros((output, config.rank), DType::F32, device)?;
                pairs.insert((layer, *target), Lora::new(a, b, config.scale()));
            }
        }
        Ok(Self { config, pairs })
    }

    /// Build from named tensors (PEFT keys), checked against the model's shapes.
    ///
    /// # Errors
    /// When a tensor is missing, left over, or of the wrong shape.
    pub fn from_tensors(
        model: &ModelConfig,
        config: AdapterConfig,
        mut tensors: TensorMap,
    ) -> Result<Self, AdapterError> {
        let shapes = expected_shapes(model);
        let mut pairs = BTreeMap::new();
        for layer in 0..model.num_hidden_layers {
            for target in &config.targets {
                let shape = &shapes[&format!("model.layers.{layer}.{}.weight", target.path())];
                let mut take = |part: &str, expected: [usize; 2]| {
                    let key = parameter_name(layer, *target, part);
                    let tensor = tensors.remove(&key).ok_or_else(|| AdapterError::Mismatch {
                        reason: format!("{key} is missing"),
                    })?;
                    if tensor.dims() != expected {
                        let reason = format!("{key} is {:?}, not {expected:?}", tensor.dims());
                        return Err(AdapterError::Mismatch { reason });
                    }
                    Ok(tensor.to_dtype(DType::F32)?)
                };
                let a = take("A", [config.rank, shape[1]])?;
                let b = take("B", [shape[0], config.rank])?;
                pairs.insert((layer, *target), Lora::new(a, b, config.scale()));
            }
        }
        if let Some(key) = tensors.keys().next() {
            return Err(AdapterError::Mismatch {
                reason: format!("{key} is not expected"),
            });
        }
        Ok(Self { config, pairs })
    }

    /// Read a PEFT adapter directory.
    ///
    /// # Errors
    /// When a file is missing or damaged, or the adapter is not a plain LoRA for this model.
    pub fn load(
        directory: &Path,
        model: &ModelConfig,
        device: &Device,
    ) -> Result<Self, AdapterError> {
        let path = directory.join("adapter_config.json");
        let text = std::fs::read_to_string(&path).map_err(|source| AdapterError::Io {
            path: path.clone(),
            source,
        })?;
        let wrong = |reason: String| AdapterError::Config {
            path: path.clone(),
            reason,
        };
        let peft: PeftConfig = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        if peft.peft_type != "LORA" || peft.use_dora || peft.modules_to_save.is_some() {
            return Err(wrong("only plain LoRA adapters are supported".into()));
        }
        if !peft.rank_pattern.is_empty() || !peft.alpha_pattern.is_empty() {
            return Err(wrong(
                "rank_pattern and alpha_pattern are not supported".into(),
            ));
        }
        let mut targets = Vec::new();
        for module in &peft.target_modules {
            targets.push(
                Projection::from_module(module)
                    .ok_or_else(|| wrong(format!("target module {module:?} is not supported")))?,
            );
        }
        targets.sort_unstable();
        let config = AdapterConfig {
            rank: peft.r,
            alpha: peft.lora_alpha,
            rank_stabilised: peft.use_rslora,
            targets,
        };
        let tensors = load_safetensors(&directory.join("adapter_model.safetensors"), device)?;
        Self::from_tensors(model, config, tensors)
    }

    /// The two files of a PEFT directory: `(adapter_config.json, adapter_model.safetensors)`.
    ///
    /// # Errors
    /// When a tensor can't be read back.
    pub fn to_peft_files(&self, base_model: &str) -> Result<(Vec<u8>, Vec<u8>), AdapterError> {
        let modules: Vec<&str> = self.config.targets.iter().map(|t| t.module()).collect();
        let config = serde_json::json!({
            "base_model_name_or_path": base_model,
            "bias": "none",
            "fan_in_fan_out": false,
            "inference_mode": true,
            "init_lora_weights": true,
            "lora_alpha": self.config.alpha,
            "lora_dropout": 0.0,
            "modules_to_save": null,
            "peft_type": "LORA",
            "r": self.config.rank,
            "target_modules": modules,
            "task_type": "CAUSAL_LM",
            "use_dora": false,
            "use_rslora": self.config.rank_stabilised,
        });
        let mut text = serde_json::to_vec_pretty(&config).map_err(|e| AdapterError::Mismatch {
            reason: e.to_string(),
        })?;
        text.push(b'\n');
        let bytes = serialize(&self.tensors())?;
        Ok((text, bytes))
    }

    /// A and B of every pair under their PEFT keys.
    pub fn tensors(&self) -> TensorMap {
        let mut tensors = TensorMap::new();
        for ((layer, target), lora) in &self.pairs {
            tensors.insert(parameter_name(*layer, *target, "A"), lora.a.clone());
            tensors.insert(parameter_name(*layer, *target, "B"), lora.b.clone());
        }
        tensors
    }

    /// Make ready for products in `arithmetic` under a model of this shape.
    ///
    /// # Errors
    /// When a pair doesn't fit the model, isn't f32 on the CPU, or was made ready for another arithmetic.
    pub(crate) fn prepare(
        &self,
        model: &ModelConfig,
        arithmetic: Arithmetic,
    ) -> Result<(), AdapterError> {
        let shapes = expected_shapes(model);
        for ((layer, target), lora) in &self.pairs {
            let name = format!("model.layers.{layer}.{}.weight", target.path());
            let found = [lora.b.dim(0)?, lora.a.dim(1)?];
            match shapes.get(&name) {
                Some(expected) if expected[..] == found => lora.prepare(arithmetic)?,
                Some(expected) => {
                    let reason = format!("it changes {name} as {found:?}, not {expected:?}");
                    return Err(AdapterError::Mismatch { reason });
                }
                None => {
                    let reason = format!("there is no {name}");
                    return Err(AdapterError::Mismatch { reason });
                }
            }
        }
        Ok(())
    }

    /// The pair of one projection, if it is adapted.
    pub fn get(&self, layer: usize, projection: Projection) -> Option<&Lora> {
        self.pairs.get(&(layer, projection))
    }

    /// Number of trainable parameters.
    pub fn parameters(&self) -> usize {
        self.pairs
            .values()
            .map(|l| l.a.elem_count() + l.b.elem_count())
            .sum()
    }
}

/// PEFT's key of one parameter; `part` is `A` or `B`.
pub fn parameter_name(layer: usize, projection: Projection, part: &str) -> String {
    format!(
        "base_model.model.model.layers.{layer}.{}.lora_{part}.weight",
        projection.path()
    )
}

/// Bytes of a safetensors file with these f32 tensors, in name order.
///
/// # Errors
/// When a tensor is not contiguous f32.
pub fn serialize(tensors: &TensorMap) -> Result<Vec<u8>, AdapterError> {
    let mut data = Vec::new();
    for (name, tensor) in tensors {
        let flat = tensor
            .to_device(&Device::Cpu)?
            .to_dtype(DType::F32)?
            .flatten_all()?;
        let bytes: Vec<u8> = flat
            .to_vec1::<f32>()?
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        data.push((name.clone(), tensor.dims().to_vec(), bytes));
    }
    let mismatch = |e: safetensors::SafeTensorError| AdapterError::Mismatch {
        reason: e.to_string(),
    };
    let views = data
        .iter()
        .map(|(name, shape, bytes)| {
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes)
                .map(|view| (name.as_str(), view))
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(mismatch)?;
    let metadata = std::collections::HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize(views, Some(metadata)).map_err(mismatch)
}
