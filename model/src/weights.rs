//! Reading base weights: Hugging Face directories (safetensors, single or sharded) and GGUF.
//!
//! Both give the same thing: tensors under the checkpoint's Hugging Face names. Loading checks the
//! set of names against what the configuration needs, since a missing tensor would otherwise show
//! only as a model that talks nonsense.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file;
use candle_core::{DType, Device, Tensor};
use serde::Deserialize;

use crate::config::{ConfigError, Family, ModelConfig, RopeScaling};
use crate::gguf_blocks::block_scales;
use crate::gguf_names::{ROPE_TABLE, from_gguf_rows, hugging_face_name};
use crate::kernels::blocks::BlockScales;

/// Why weights can't be loaded.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// A file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file is damaged or not of its format.
    #[error("{path} is damaged or not a {format} file: {reason}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Expected format.
        format: &'static str,
        /// What was found.
        reason: String,
    },
    /// Neither a GGUF file nor a model directory.
    #[error(
        "{path} is neither a .gguf file nor a directory with config.json and .safetensors files"
    )]
    NoModel {
        /// What was given.
        path: PathBuf,
    },
    /// The checkpoint does not have the tensors the configuration asks for.
    #[error(
        "checkpoint does not fit its configuration; missing: [{}], unexpected: [{}]",
        list(missing),
        list(unexpected)
    )]
    Names {
        /// Needed but absent.
        missing: Vec<String>,
        /// Present but unknown.
        unexpected: Vec<String>,
    },
    /// A tensor has the wrong shape.
    #[error("tensor {name} has shape {found:?}, the configuration needs {expected:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape the configuration gives.
        expected: Vec<usize>,
    },
    /// The configuration can't be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A tensor operation failed.
    #[error("tensor operation failed")]
    Tensor(#[from] candle_core::Error),
}

fn list(names: &[String]) -> String {
    let shown = names.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > 5 {
        format!("{shown}, and {} more", names.len() - 5)
    } else {
        shown
    }
}

/// Weights under their Hugging Face names.
pub type TensorMap = BTreeMap<String, Tensor>;

/// GGUF metadata of a loaded file, for the tokenizer and the chat template.
pub type Metadata = std::collections::HashMap<String, gguf_file::Value>;

/// Shape and weights of a model, and GGUF metadata where the model came as GGUF.
#[derive(Debug)]
pub struct Checkpoint {
    /// The shape.
    pub config: ModelConfig,
    /// The weights.
    pub tensors: TensorMap,
    /// Of quantised files, the scales of the tensors that have any, on the CPU in f32.
    pub scales: BTreeMap<String, BlockScales>,
    /// Metadata, for GGUF.
    pub metadata: Option<Metadata>,
}

impl Checkpoint {
    /// Load a GGUF file or a Hugging Face directory as `dtype` on `device`.
    ///
    /// # Errors
    /// When files are missing, damaged, or do not fit together.
    pub fn load(path: &Path, dtype: DType, device: &Device) -> Result<Self, WeightsError> {
        let checkpoint = if path.is_dir() {
            Self::load_directory(path, dtype, device)?
        } else if path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
        {
            Self::load_gguf(path, dtype, device)?
        } else {
            return Err(WeightsError::NoModel {
                path: path.to_owned(),
            });
        };
        check_names(&checkpoint)?;
        Ok(checkpoint)
    }

    /// Weights that are at hand, for a model of this shape.
    ///
    /// # Errors
    /// When they are not those that the shape asks for.
    pub fn of(config: ModelConfig, tensors: TensorMap) -> Result<Self, WeightsError> {
        let checkpoint = Self {
            config,
            tensors,
            scales: BTreeMap::new(),
            metadata: None,
        };
        check_names(&checkpoint)?;
        Ok(checkpoint)
    }

    fn load_directory(path: &Path, dtype: DType, device: &Device) -> Result<Self, WeightsError> {
        let config = ModelConfig::from_directory(path)?;
        let mut tensors = TensorMap::new();
        for file in safetensors_files(path)? {
            for (name, tensor) in load_safetensors(&file, device)? {
                tensors.insert(name, tensor.to_dtype(dtype)?);
            }
        }
        if config.tie_word_embeddings {
            // Some published tied checkpoints repeat the embedding as a head.
            tensors.remove("lm_head.weight");
        }
        Ok(Self {
            config,
            tensors,
            scales: BTreeMap::new(),
            metadata: None,
        })
    }

    fn load_gguf(path: &Path, dtype: DType, device: &Device) -> Result<Self, WeightsError> {
        let corrupt = |error: candle_core::Error| WeightsError::Corrupt {
            path: path.to_owned(),
            format: "GGUF",
            reason: first_line(&error),
        };
        let read = |source| WeightsError::Read {
            path: path.to_owned(),
            source,
        };
        let mut file = std::fs::File::open(path).map_err(read)?;
        let size = file.metadata().map_err(read)?.len();
        let content = gguf_file::Content::read(&mut file).map_err(corrupt)?;
        for (name, info) in &content.tensor_infos {
            let elements = info.shape.dims().iter().map(|n| *n as u64);
            let elements = elements.fold(1u64, u64::saturating_mul);
            let (block, width) = (info.ggml_dtype.block_size(), info.ggml_dtype.type_size());
            let bytes = (elements / block as u64).saturating_mul(width as u64);
            let start = content.tensor_data_offset.saturating_add(info.offset);
            if start.saturating_add(bytes) > size {
                return Err(WeightsError::Corrupt {
                    path: path.to_owned(),
                    format: "GGUF",
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
                .map_err(corrupt)?;
            config.rope_scaling = divisors(table, &config)?;
        }
        let (mut tensors, mut scales) = (TensorMap::new(), BTreeMap::new());
        for gguf_name in content.tensor_infos.keys() {
            let Some(name) = hugging_face_name(gguf_name) else {
                continue;
            };
            let quantised = content
                .tensor(&mut file, gguf_name, &Device::Cpu)
                .map_err(corrupt)?;
            if device.is_cpu() && dtype == DType::F32 {
                let found = block_scales(&name, &quantised, &config)?;
                scales.extend(found.map(|found| (name.clone(), found)));
            }
            let tensor = from_gguf_rows(&name, quantised.dequantize(&Device::Cpu)?, &config)?;
            tensors.insert(name, tensor.to_dtype(dtype)?.to_device(device)?);
        }
        Ok(Self {
            config,
            tensors,
            scales,
            metadata: Some(content.metadata),
        })
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

/// Every tensor of a safetensors file.
///
/// # Errors
/// When the file can't be read or is damaged.
pub fn load_safetensors(path: &Path, device: &Device) -> Result<TensorMap, WeightsError> {
    let bytes = std::fs::read(path).map_err(|source| WeightsError::Read {
        path: path.to_owned(),
        source,
    })?;
    let tensors = candle_core::safetensors::load_buffer(&bytes, device).map_err(|error| {
        WeightsError::Corrupt {
            path: path.to_owned(),
            format: "safetensors",
            reason: first_line(&error),
        }
    })?;
    Ok(tensors.into_iter().collect())
}

pub(crate) fn first_line(error: &dyn std::error::Error) -> String {
    error
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The shards of `model.safetensors.index.json`, or the one file without an index.
fn safetensors_files(directory: &Path) -> Result<Vec<PathBuf>, WeightsError> {
    let index = directory.join("model.safetensors.index.json");
    if !index.exists() {
        let single = directory.join("model.safetensors");
        return if single.exists() {
            Ok(vec![single])
        } else {
            Err(WeightsError::NoModel {
                path: directory.to_owned(),
            })
        };
    }
    let text = std::fs::read_to_string(&index).map_err(|source| WeightsError::Read {
        path: index.clone(),
        source,
    })?;
    let parsed: Index = serde_json::from_str(&text).map_err(|error| WeightsError::Corrupt {
        path: index.clone(),
        format: "safetensors index",
        reason: error.to_string(),
    })?;
    let names: BTreeSet<&String> = parsed.weight_map.values().collect();
    Ok(names.into_iter().map(|name| directory.join(name)).collect())
}

/// Names and shapes the configuration needs.
pub fn expected_shapes(config: &ModelConfig) -> BTreeMap<String, Vec<usize>> {
    let (hidden, width, mlp) = (
        config.hidden_size,
        config.head_dim,
        config.intermediate_size,
    );
    let query = config.num_attention_heads * width;
    let key_value = config.num_key_value_heads * width;
    let mut shapes = BTreeMap::new();
    let mut add = |name: String, shape: &[usize]| shapes.insert(name, shape.to_vec());
    add(
        "model.embed_tokens.weight".into(),
        &[config.vocab_size, hidden],
    );
    add("model.norm.weight".into(), &[hidden]);
    if !config.tie_word_embeddings {
        add("lm_head.weight".into(), &[config.vocab_size, hidden]);
    }
    for layer in 0..config.num_hidden_layers {
        let mut add =
            |part: &str, shape: &[usize]| add(format!("model.layers.{layer}.{part}"), shape);
        add("input_layernorm.weight", &[hidden]);
        add("post_attention_layernorm.weight", &[hidden]);
        add("self_attn.q_proj.weight", &[query, hidden]);
        add("self_attn.k_proj.weight", &[key_value, hidden]);
        add("self_attn.v_proj.weight", &[key_value, hidden]);
        add("self_attn.o_proj.weight", &[hidden, query]);
        add("mlp.gate_proj.weight", &[mlp, hidden]);
        add("mlp.up_proj.weight", &[mlp, hidden]);
        add("mlp.down_proj.weight", &[hidden, mlp]);
        if config.family == Family::Qwen2 {
            add("self_attn.q_proj.bias", &[query]);
            add("self_attn.k_proj.bias", &[key_value]);
            add("self_attn.v_proj.bias", &[key_value]);
        }
        if config.family == Family::Qwen3 {
            add("self_attn.q_norm.weight", &[width]);
            add("self_attn.k_norm.weight", &[width]);
        }
    }
    shapes
}

fn check_names(checkpoint: &Checkpoint) -> Result<(), WeightsError> {
    // A damaged count of layers must not become a list of as many names.
    let layers = checkpoint.config.num_hidden_layers;
    if layers > checkpoint.tensors.len() {
        return Err(WeightsError::Names {
            missing: vec![format!("those of {layers} layers")],
            unexpected: Vec::new(),
        });
    }
    let expected = expected_shapes(&checkpoint.config);
    let is_known = |name: &&String| !expected.contains_key(*name);
    let missing: Vec<String> = expected
        .keys()
        .filter(|name| !checkpoint.tensors.contains_key(*name))
        .cloned()
        .collect();
    let unexpected: Vec<String> = checkpoint
        .tensors
        .keys()
        .filter(is_known)
        .cloned()
        .collect();
    if !missing.is_empty() || !unexpected.is_empty() {
        return Err(WeightsError::Names {
            missing,
            unexpected,
        });
    }
    for (name, expected) in expected {
        let found = checkpoint.tensors[&name].dims();
        if found != expected {
            return Err(WeightsError::Shape {
                name,
                found: found.to_vec(),
                expected,
            });
        }
    }
    Ok(())
}
