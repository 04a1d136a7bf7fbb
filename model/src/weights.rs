//! Reading base weights: Hugging Face directories (safetensors, single or sharded) and GGUF.
//!
//! Both give the same thing: tensors under the checkpoint's Hugging Face names, all of them as a
//! [`Checkpoint`] or one after the other from [`WeightFiles`]. Opening the files checks the set of names
//! against what the configuration needs, since a missing tensor would otherwise show only as a model that
//! talks nonsense.

mod files;
mod gguf_file;
mod safetensors_file;
mod source;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::Value;
use candle_core::{DType, Device, Tensor};

use crate::config::{ConfigError, Family, ModelConfig};
use crate::kernels::blocks::BlockScales;
use safetensors_file::SafetensorsFile;

pub use files::WeightFiles;
pub(crate) use source::{AtHand, FromFiles, WeightSource};

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
pub type Metadata = std::collections::HashMap<String, Value>;

/// One weight of a model.
#[derive(Debug)]
pub struct StoredWeight {
    /// Its values.
    pub tensor: Tensor,
    /// If it is quantised in its file and read as f32 on the CPU, the scales there.
    pub scales: Option<BlockScales>,
}

impl StoredWeight {
    /// Its values alone.
    pub fn into_tensor(self) -> Tensor {
        self.tensor
    }
}

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
    /// Load a GGUF file or a Hugging Face directory as `dtype` on `device`. All weights are then in memory
    /// in that type; [`crate::transformer::Transformer::read`] does without.
    ///
    /// # Errors
    /// When files are missing, damaged, or do not fit together.
    pub fn load(path: &Path, dtype: DType, device: &Device) -> Result<Self, WeightsError> {
        WeightFiles::open(path)?.load(dtype, device)
    }

    /// Weights that are at hand, for a model of this shape.
    ///
    /// # Errors
    /// When they are not those that the shape asks for.
    pub fn of(config: ModelConfig, tensors: TensorMap) -> Result<Self, WeightsError> {
        let named = tensors.iter();
        let shapes = named.map(|(name, tensor)| (name.as_str(), tensor.dims()));
        check_shapes(&config, &shapes.collect())?;
        Ok(Self {
            config,
            tensors,
            scales: BTreeMap::new(),
            metadata: None,
        })
    }
}

/// Every tensor of a safetensors file.
///
/// # Errors
/// When the file can't be read or is damaged.
pub fn load_safetensors(path: &Path, device: &Device) -> Result<TensorMap, WeightsError> {
    SafetensorsFile::open(path)?.read_all(device)
}

fn unreadable(path: &Path) -> impl FnOnce(std::io::Error) -> WeightsError {
    move |source| WeightsError::Read {
        path: path.to_owned(),
        source,
    }
}

fn corrupt(path: &Path, format: &'static str, error: &dyn std::error::Error) -> WeightsError {
    WeightsError::Corrupt {
        path: path.to_owned(),
        format,
        reason: first_line(error),
    }
}

pub(crate) fn first_line(error: &dyn std::error::Error) -> String {
    error
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
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

/// Whether these are the names and shapes that the configuration needs.
fn check_shapes(
    config: &ModelConfig,
    found: &BTreeMap<&str, &[usize]>,
) -> Result<(), WeightsError> {
    // A damaged count of layers must not become a list of as many names.
    let layers = config.num_hidden_layers;
    if layers > found.len() {
        return Err(WeightsError::Names {
            missing: vec![format!("those of {layers} layers")],
            unexpected: Vec::new(),
        });
    }
    let expected = expected_shapes(config);
    let missing: Vec<String> = expected
        .keys()
        .filter(|name| !found.contains_key(name.as_str()))
        .cloned()
        .collect();
    let unexpected: Vec<String> = found
        .keys()
        .filter(|name| !expected.contains_key(**name))
        .map(|name| (*name).to_owned())
        .collect();
    if !missing.is_empty() || !unexpected.is_empty() {
        return Err(WeightsError::Names {
            missing,
            unexpected,
        });
    }
    for (name, expected) in expected {
        let found = found[name.as_str()];
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
