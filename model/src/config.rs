//! Shape of a model: the published `config.json`, or the same facts from GGUF metadata.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::Value;
use serde::Deserialize;

/// Why a model's configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not the JSON we expect.
    #[error("{path} is not a model configuration")]
    Parse {
        /// The file.
        path: PathBuf,
        /// The cause, with line and column.
        source: serde_json::Error,
    },
    /// A field or metadata key is missing or has the wrong type.
    #[error("model configuration lacks {key}")]
    Missing {
        /// The field or key.
        key: String,
    },
    /// The model needs something this implementation does not compute.
    #[error("unsupported model: {what} (families llama, qwen2 and qwen3 are supported)")]
    Unsupported {
        /// The field and its value.
        what: String,
    },
}

/// Model families of one block structure: pre-norm, rotary positions, SwiGLU, grouped queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Llama 2 and 3, SmolLM2, Mistral without a sliding window.
    Llama,
    /// Qwen2 and Qwen2.5: biases on q, k and v.
    Qwen2,
    /// Qwen3: RMS norm on the heads of q and k.
    Qwen3,
}

/// Rotary frequency scaling.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Plain rotary embedding.
    None,
    /// Positions divided by the factor.
    Linear(f64),
    /// Llama 3.1's wavelength-dependent scaling.
    Llama3 {
        /// Divisor of low frequencies.
        factor: f64,
        /// Wavelengths above `original / low` are divided.
        low_frequency_factor: f64,
        /// Wavelengths below `original / high` are kept.
        high_frequency_factor: f64,
        /// Context length of pre-training.
        original_positions: f64,
    },
    /// A divisor for each pair of a head, as a GGUF file's table `rope_freqs` has them.
    Divisors(Vec<f32>),
}

/// Shape and constants of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Block variant.
    pub family: Family,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the MLP.
    pub intermediate_size: usize,
    /// Number of blocks.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads.
    pub num_key_value_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Epsilon of every RMS norm.
    pub rms_norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Scaling of the rotary frequencies.
    pub rope_scaling: RopeScaling,
    /// Longest sequence the model was made for.
    pub max_position_embeddings: usize,
    /// Whether the head is the embedding.
    pub tie_word_embeddings: bool,
    /// Tokens that end a turn, from `config.json`, `generation_config.json` or GGUF.
    pub eos_token_ids: Vec<u32>,
}

#[derive(Deserialize)]
struct RawConfig {
    model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    rms_norm_eps: f64,
    rope_theta: Option<f64>,
    rope_scaling: Option<RawRope>,
    rope_parameters: Option<RawRope>,
    max_position_embeddings: usize,
    #[serde(default)]
    tie_word_embeddings: bool,
    hidden_act: Option<String>,
    #[serde(default)]
    use_sliding_window: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    attention_bias: bool,
    eos_token_id: Option<OneOrMany>,
}

#[derive(Deserialize)]
struct RawRope {
    rope_type: Option<String>,
    /// What it was called before transformers 4.43; many files have both.
    #[serde(rename = "type")]
    earlier_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
}

/// Published files write one end token as a number and several as a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(u32),
    Many(Vec<u32>),
}

impl OneOrMany {
    fn into_vec(self) -> Vec<u32> {
        match self {
            Self::One(id) => vec![id],
            Self::Many(ids) => ids,
        }
    }
}

#[derive(Deserialize)]
struct RawGeneration {
    eos_token_id: Option<OneOrMany>,
}

impl ModelConfig {
    /// Read `config.json`, and the end tokens of `generation_config.json`, in a model directory.
    ///
    /// # Errors
    /// When a file can't be read or parsed, or names a model that can't be computed here.
    pub fn from_directory(directory: &Path) -> Result<Self, ConfigError> {
        let raw: RawConfig = read_json(&directory.join("config.json"))?;
        let mut config = Self::from_raw(raw)?;
        let generation = directory.join("generation_config.json");
        if generation.exists() {
            let raw: RawGeneration = read_json(&generation)?;
            for id in raw
                .eos_token_id
                .map(OneOrMany::into_vec)
                .unwrap_or_default()
            {
                if !config.eos_token_ids.contains(&id) {
                    config.eos_token_ids.push(id);
                }
            }
        }
        Ok(config)
    }

    fn from_raw(raw: RawConfig) -> Result<Self, ConfigError> {
        let unsupported = |what: String| Err(ConfigError::Unsupported { what });
        let family = match raw.model_type.as_str() {
            "llama" => Family::Llama,
            "qwen2" => Family::Qwen2,
            "qwen3" => Family::Qwen3,
            other => return unsupported(format!("model_type {other:?}")),
        };
        if let Some(act) = raw.hidden_act.filter(|act| act != "silu") {
            return unsupported(format!("hidden_act {act:?}"));
        }
        if raw.use_sliding_window {
            return unsupported("use_sliding_window".into());
        }
        if raw.mlp_bias || raw.attention_bias {
            return unsupported("mlp_bias or attention_bias".into());
        }
        let heads = raw.num_attention_heads;
        let key_value = raw.num_key_value_heads.unwrap_or(heads);
        check_heads(heads, key_value)?;
        let rope = raw.rope_parameters.or(raw.rope_scaling);
        let theta = raw
            .rope_theta
            .or(rope.as_ref().and_then(|r| r.rope_theta))
            .unwrap_or(1e4);
        Ok(Self {
            family,
            vocab_size: raw.vocab_size,
            hidden_size: raw.hidden_size,
            intermediate_size: raw.intermediate_size,
            num_hidden_layers: raw.num_hidden_layers,
            num_attention_heads: heads,
            num_key_value_heads: key_value,
            head_dim: raw.head_dim.unwrap_or(raw.hidden_size / heads),
            rms_norm_eps: raw.rms_norm_eps,
            rope_theta: theta,
            rope_scaling: scaling(rope)?,
            max_position_embeddings: raw.max_position_embeddings,
            tie_word_embeddings: raw.tie_word_embeddings,
            eos_token_ids: raw
                .eos_token_id
                .map(OneOrMany::into_vec)
                .unwrap_or_default(),
        })
    }

    /// Read the shape from GGUF metadata; `has_head` tells whether the file has `output.weight`. Llama
    /// 3's scaling isn't there: files have it as a table among their tensors, see
    /// [`RopeScaling::Divisors`].
    ///
    /// # Errors
    /// When a key is missing or the architecture can't be computed here.
    pub fn from_gguf(
        metadata: &HashMap<String, Value>,
        vocab_size: usize,
        has_head: bool,
    ) -> Result<Self, ConfigError> {
        let missing = |key: &str| ConfigError::Missing {
            key: key.to_owned(),
        };
        let architecture = metadata
            .get("general.architecture")
            .and_then(|v| v.to_string().ok())
            .ok_or_else(|| missing("general.architecture"))?;
        let family = match architecture.as_str() {
            "llama" => Family::Llama,
            "qwen2" => Family::Qwen2,
            "qwen3" => Family::Qwen3,
            other => {
                return Err(ConfigError::Unsupported {
                    what: format!("architecture {other:?}"),
                });
            }
        };
        let key = |name: &str| format!("{architecture}.{name}");
        let integer = |name: &str| {
            let key = key(name);
            let value = metadata
                .get(&key)
                .and_then(|v| v.to_u64().or_else(|_| v.to_u32().map(u64::from)).ok());
            value
                .and_then(|v| usize::try_from(v).ok())
                .ok_or(ConfigError::Missing { key })
        };
        let float = |name: &str| {
            metadata
                .get(&key(name))
                .and_then(|v| v.to_f32().ok())
                .map(f64::from)
        };
        let scaling = metadata
            .get(&key("rope.scaling.type"))
            .and_then(|v| v.to_string().ok());
        let rope_scaling = match scaling.map(String::as_str) {
            None | Some("none") => RopeScaling::None,
            Some("linear") => {
                let factor = float("rope.scaling.factor");
                RopeScaling::Linear(factor.ok_or_else(|| missing(&key("rope.scaling.factor")))?)
            }
            Some(other) => {
                return Err(ConfigError::Unsupported {
                    what: format!("{} {other:?}", key("rope.scaling.type")),
                });
            }
        };
        let hidden_size = integer("embedding_length")?;
        let heads = integer("attention.head_count")?;
        let key_value = integer("attention.head_count_kv").unwrap_or(heads);
        check_heads(heads, key_value)?;
        Ok(Self {
            family,
            vocab_size,
            hidden_size,
            intermediate_size: integer("feed_forward_length")?,
            num_hidden_layers: integer("block_count")?,
            num_attention_heads: heads,
            num_key_value_heads: key_value,
            head_dim: integer("attention.key_length").unwrap_or(hidden_size / heads),
            rms_norm_eps: round_decimal(
                float("attention.layer_norm_rms_epsilon")
                    .ok_or_else(|| missing(&key("attention.layer_norm_rms_epsilon")))?,
            ),
            rope_theta: float("rope.freq_base").unwrap_or(1e4),
            rope_scaling,
            max_position_embeddings: integer("context_length")?,
            tie_word_embeddings: !has_head,
            eos_token_ids: ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"]
                .iter()
                .filter_map(|key| metadata.get(*key).and_then(|v| v.to_u32().ok()))
                .collect(),
        })
    }

    /// Rotary frequency of each pair of a head, `[head_dim / 2]`.
    pub fn rope_frequencies(&self) -> Vec<f32> {
        let width = self.head_dim as f32;
        (0..self.head_dim / 2)
            .map(|pair| {
                let plain = 1.0 / (self.rope_theta as f32).powf(2.0 * pair as f32 / width);
                scale_frequency(&self.rope_scaling, pair, f64::from(plain)) as f32
            })
            .collect()
    }

    /// What each pair's plain frequency is divided by, `[head_dim / 2]`.
    pub fn rope_divisors(&self) -> Vec<f32> {
        let plain = Self {
            rope_scaling: RopeScaling::None,
            ..self.clone()
        };
        let scaled = self.rope_frequencies();
        let pairs = plain.rope_frequencies().into_iter().zip(scaled);
        pairs.map(|(plain, scaled)| plain / scaled).collect()
    }

    /// Number of parameters of the base model.
    pub fn parameters(&self) -> usize {
        let (hidden, width) = (self.hidden_size, self.head_dim);
        let query = self.num_attention_heads * width;
        let key_value = self.num_key_value_heads * width;
        let extra = match self.family {
            Family::Llama => 0,
            Family::Qwen2 => query + 2 * key_value,
            Family::Qwen3 => 2 * width,
        };
        let block = 2 * hidden * (query + key_value) + 3 * hidden * self.intermediate_size;
        let embeddings = if self.tie_word_embeddings { 1 } else { 2 } * self.vocab_size * hidden;
        embeddings + hidden + self.num_hidden_layers * (block + 2 * hidden + extra)
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    serde_json::from_str(&text).map_err(|source| ConfigError::Parse {
        path: path.to_owned(),
        source,
    })
}

fn scaling(raw: Option<RawRope>) -> Result<RopeScaling, ConfigError> {
    let Some(raw) = raw else {
        return Ok(RopeScaling::None);
    };
    let need = |value: Option<f64>, key: &str| {
        value.ok_or_else(|| ConfigError::Missing {
            key: format!("rope_scaling.{key}"),
        })
    };
    match raw.rope_type.or(raw.earlier_type).as_deref() {
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear(need(raw.factor, "factor")?)),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: need(raw.factor, "factor")?,
            low_frequency_factor: need(raw.low_freq_factor, "low_freq_factor")?,
            high_frequency_factor: need(raw.high_freq_factor, "high_freq_factor")?,
            original_positions: need(
                raw.original_max_position_embeddings,
                "original_max_position_embeddings",
            )?,
        }),
        Some(other) => Err(ConfigError::Unsupported {
            what: format!("rope_scaling type {other:?}"),
        }),
    }
}

fn scale_frequency(scaling: &RopeScaling, pair: usize, frequency: f64) -> f64 {
    match scaling {
        RopeScaling::None => frequency,
        RopeScaling::Divisors(all) => all
            .get(pair)
            .map_or(frequency, |divisor| frequency / f64::from(*divisor)),
        RopeScaling::Linear(factor) => frequency / factor,
        RopeScaling::Llama3 {
            factor,
            low_frequency_factor: low,
            high_frequency_factor: high,
            original_positions: original,
        } => {
            let wavelength = 2.0 * std::f64::consts::PI / frequency;
            if wavelength < original / high {
                frequency
            } else if wavelength > original / low {
                frequency / factor
            } else {
                let smooth = (original / wavelength - low) / (high - low);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        }
    }
}

/// GGUF stores epsilon as f32; the published value is the shortest decimal that rounds to it.
fn round_decimal(value: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, reason = "the value was an f32")]
    let single = value as f32;
    format!("{single:e}").parse().unwrap_or(value)
}

/// Attention reads keys by query head divided by group: both counts must fit each other.
fn check_heads(heads: usize, key_value: usize) -> Result<(), ConfigError> {
    if heads == 0 || key_value == 0 || !heads.is_multiple_of(key_value) {
        return Err(ConfigError::Unsupported {
            what: format!("{heads} query heads over {key_value} key-value heads"),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_scaling_matches_the_published_formula_at_its_three_branches() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_positions: 8192.0,
        };
        assert_eq!(scale_frequency(&scaling, 0, 1.0), 1.0);
        assert_eq!(scale_frequency(&scaling, 0, 1e-5), 1e-5 / 8.0);
        let between = 2.0 * std::f64::consts::PI / 4096.0;
        let smooth = (8192.0 / 4096.0 - 1.0) / 3.0;
        let expected = (1.0 - smooth) * between / 8.0 + smooth * between;
        assert!((scale_frequency(&scaling, 0, between) - expected).abs() < 1e-12);
    }

    #[test]
    fn unknown_families_and_rope_types_are_refused_by_name() {
        let base = serde_json::json!({
            "model_type": "llama", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8,
            "num_hidden_layers": 1, "num_attention_heads": 2, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 16, "eos_token_id": [1, 2],
            "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}
        });
        let parse = |value: serde_json::Value| {
            ModelConfig::from_raw(serde_json::from_value(value).expect("raw config"))
        };
        let config = parse(base.clone()).expect("supported");
        assert_eq!((config.rope_theta, config.head_dim), (5e5, 4));
        assert_eq!(config.eos_token_ids, [1, 2]);
        let mut other = base.clone();
        other["model_type"] = "mamba".into();
        assert!(
            parse(other)
                .expect_err("family")
                .to_string()
                .contains("mamba")
        );
        let mut other = base;
        other["rope_parameters"]["rope_type"] = "yarn".into();
        assert!(parse(other).expect_err("rope").to_string().contains("yarn"));
    }

    #[test]
    fn the_type_of_scaling_is_read_by_either_name_and_by_both() {
        for names in [&["type"][..], &["rope_type"], &["rope_type", "type"]] {
            let mut raw = serde_json::json!({"factor": 2.0});
            for name in names {
                raw[*name] = "linear".into();
            }
            let raw: RawRope = serde_json::from_value(raw).expect("scaling");
            let read = scaling(Some(raw)).expect("supported");
            assert_eq!(read, RopeScaling::Linear(2.0), "{names:?}");
        }
    }

    #[test]
    fn head_counts_of_a_gguf_file_must_fit_each_other() {
        let read = |heads: u32, key_value: u32| {
            let number = |name: &str, value: u32| (format!("llama.{name}"), Value::U32(value));
            let mut metadata = HashMap::from([
                number("embedding_length", 8),
                number("feed_forward_length", 8),
                number("block_count", 1),
                number("context_length", 16),
                number("attention.head_count", heads),
                number("attention.head_count_kv", key_value),
            ]);
            let family = Value::String("llama".into());
            metadata.insert("general.architecture".into(), family);
            let epsilon = "llama.attention.layer_norm_rms_epsilon";
            metadata.insert(epsilon.into(), Value::F32(1e-5));
            ModelConfig::from_gguf(&metadata, 8, false)
        };
        assert_eq!(read(4, 2).expect("supported").head_dim, 2);
        for (heads, key_value) in [(5, 3), (4, 0), (0, 0), (2, 4)] {
            let error = read(heads, key_value).expect_err("refused");
            assert!(error.to_string().contains("key-value heads"), "{error}");
        }
    }
}
