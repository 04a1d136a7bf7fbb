//! Finding and loading the base model with its tokenizer and chat template.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::{DType, Device};
use model::chat_template::ChatTemplate;
use model::tokenizer::Tokenizer;
use model::transformer::Transformer;
use model::weights::{Metadata, WeightFiles, WeightsError};

use crate::builtin::MODELS;
use crate::config::{DeviceKind, Loaded, PolicyConfig};
use crate::error::RunError;

/// A loaded base model.
pub struct BaseModel {
    /// Name and hash of its weights.
    pub id: String,
    /// File or directory that they were read from.
    pub path: PathBuf,
    /// The weights.
    pub model: Arc<Transformer>,
    /// The tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Source of the chat template.
    pub template: String,
    /// What the template is given besides the messages: the special tokens by name.
    pub variables: serde_json::Map<String, serde_json::Value>,
    /// Tokens that end a turn.
    pub stop_tokens: Vec<u32>,
}

/// Where the configuration's model is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelPath {
    /// File or directory.
    pub path: PathBuf,
    /// The known model, if it is one.
    pub known: Option<&'static str>,
    hash: Option<&'static str>,
}

impl ModelPath {
    /// Check that what is there can be a model: a `.gguf` file, or a directory with a `config.json`. Nothing is
    /// read.
    ///
    /// # Errors
    /// When nothing is there, or something else.
    pub fn check(&self) -> Result<(), RunError> {
        let path = &self.path;
        if !path.exists() {
            return Err(RunError::NoModel {
                path: path.clone(),
                is_known: self.known.is_some(),
            });
        }
        let end = path.extension();
        let is_gguf = end.is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
        if is_gguf && path.is_file() || path.join("config.json").is_file() {
            return Ok(());
        }
        Err(WeightsError::NoModel { path: path.clone() }.into())
    }
}

/// Resolve `model.path` without opening anything.
pub fn locate(loaded: &Loaded, cache: &Path) -> ModelPath {
    let name = loaded.config.model.path.as_str();
    match MODELS.iter().find(|known| known.name == name) {
        Some(known) => ModelPath {
            path: cache.join("models").join(known.file),
            known: Some(known.name),
            hash: Some(known.hash),
        },
        None => ModelPath {
            path: loaded.resolve(name),
            known: None,
            hash: None,
        },
    }
}

/// A base model as its files say, its weights not yet read.
pub struct ModelFiles {
    /// Name and hash of its weights.
    pub id: String,
    /// File or directory.
    pub path: PathBuf,
    /// Shape, and the weights to be read.
    pub weights: WeightFiles,
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// Source of the chat template.
    pub template: String,
}

impl ModelFiles {
    /// Open the configuration's model.
    ///
    /// # Errors
    /// When it is missing, damaged, of an unknown family, or lacks tokenizer or template.
    pub fn open(loaded: &Loaded, cache: &Path) -> Result<Self, RunError> {
        let found = locate(loaded, cache);
        // Before the hash is taken, which of a device that stands there would never end.
        found.check()?;
        let path = &found.path;
        let hash = hash(path)?;
        if let (Some(name), Some(expected)) = (found.known, found.hash)
            && hash != expected
        {
            return Err(RunError::DamagedModel {
                path: path.clone(),
                name,
            });
        }
        let weights = WeightFiles::open(path)?;
        let (tokenizer, template) = match &weights.metadata {
            Some(metadata) => from_metadata(path, metadata)?,
            None => from_directory(path)?,
        };
        let name = found.known.map_or_else(|| own_name(path), str::to_owned);
        // A template that can't be read is a fault to hear of before the first rollout.
        ChatTemplate::new(&template)?;
        Ok(Self {
            id: format!("{name}@{}", &hash[..12]),
            path: found.path,
            weights,
            tokenizer,
            template,
        })
    }
}

impl BaseModel {
    /// Its name, without the hash.
    pub fn name(&self) -> &str {
        self.id.split_once('@').map_or(&self.id, |(name, _)| name)
    }

    /// Load the configuration's model.
    ///
    /// # Errors
    /// See [`ModelFiles::open`]; also when a weight can't be read, no token that ends a turn is named, or
    /// this machine can't compute as configured.
    pub fn load(loaded: &Loaded, cache: &Path) -> Result<Self, RunError> {
        // A served policy leaves the whole device to training.
        let is_local = matches!(loaded.config.policy, PolicyConfig::Local { .. });
        let (device, dtype) = match loaded.config.model_loop.sft.device {
            DeviceKind::Cuda if !is_local => (cuda()?, DType::BF16),
            _ => (Device::Cpu, DType::F32),
        };
        let arithmetic = loaded.config.model.arithmetic.resolve()?;
        let ModelFiles {
            id,
            path,
            weights,
            tokenizer,
            template,
        } = ModelFiles::open(loaded, cache)?;
        let mut stop_tokens = weights.config.eos_token_ids.clone();
        stop_tokens.extend(tokenizer.eos_id().filter(|id| !stop_tokens.contains(id)));
        if stop_tokens.is_empty() {
            let reason = "no end-of-turn token is named".to_owned();
            return Err(RunError::ModelPart { path, reason });
        }
        let mut variables = serde_json::Map::new();
        for (variable, id) in [
            ("bos_token", tokenizer.bos_id()),
            ("eos_token", tokenizer.eos_id()),
        ] {
            if let Some(text) = id.and_then(|id| tokenizer.token_text(id)) {
                variables.insert(variable.to_owned(), text.into());
            }
        }
        Ok(Self {
            id,
            path,
            variables,
            model: Arc::new(Transformer::read(weights, dtype, &device, arithmetic)?),
            tokenizer: Arc::new(tokenizer),
            template,
            stop_tokens,
        })
    }
}

/// A directory's own name, or a file's without its ending.
fn own_name(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = if whole.is_dir() {
        whole.file_name()
    } else {
        whole.file_stem()
    };
    name.unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(feature = "cuda")]
fn cuda() -> Result<Device, RunError> {
    Ok(Device::new_cuda(0)?)
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Result<Device, RunError> {
    Err(RunError::NoCuda)
}

fn from_metadata(path: &Path, metadata: &Metadata) -> Result<(Tokenizer, String), RunError> {
    let tokenizer = Tokenizer::from_gguf(metadata)?;
    let source = metadata
        .get("tokenizer.chat_template")
        .and_then(|v| v.to_string().ok());
    let source = source.ok_or_else(|| no_template(path))?;
    Ok((tokenizer, source.clone()))
}

fn from_directory(path: &Path) -> Result<(Tokenizer, String), RunError> {
    let tokenizer = Tokenizer::from_file(&path.join("tokenizer.json"))?;
    let file = path.join("chat_template.jinja");
    let source = if file.exists() {
        std::fs::read_to_string(&file).map_err(|source| RunError::Io { path: file, source })?
    } else {
        let file = path.join("tokenizer_config.json");
        let text = std::fs::read_to_string(&file).map_err(|source| RunError::Io {
            path: file.clone(),
            source,
        })?;
        let config: serde_json::Value =
            serde_json::from_str(&text).map_err(|e| RunError::ModelPart {
                path: file,
                reason: e.to_string(),
            })?;
        config["chat_template"]
            .as_str()
            .ok_or_else(|| no_template(path))?
            .to_owned()
    };
    Ok((tokenizer, source))
}

fn no_template(path: &Path) -> RunError {
    RunError::ModelPart {
        path: path.to_owned(),
        reason: "it has no chat template; an instruction-tuned model is needed".into(),
    }
}

/// blake3 of a file, or of a directory's weight files and configuration.
fn hash(path: &Path) -> Result<String, RunError> {
    let mut hasher = blake3::Hasher::new();
    if path.is_dir() {
        let mut names: Vec<PathBuf> = std::fs::read_dir(path)
            .map_err(|source| RunError::Io {
                path: path.to_owned(),
                source,
            })?
            .filter_map(|entry| entry.ok().map(|e| e.path()))
            .filter(|p| {
                p.extension()
                    .is_some_and(|e| e == "safetensors" || e == "json" || e == "jinja")
            })
            .collect();
        names.sort();
        for name in names {
            hasher.update(name.file_name().unwrap_or_default().as_encoded_bytes());
            feed(&mut hasher, &name)?;
        }
    } else {
        feed(&mut hasher, path)?;
    }
    Ok(hasher.finalize().to_hex().to_string())
}

fn feed(hasher: &mut blake3::Hasher, path: &Path) -> Result<(), RunError> {
    let io = |source| RunError::Io {
        path: path.to_owned(),
        source,
    };
    let mut file = std::fs::File::open(path).map_err(io)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer).map_err(io)?;
        if read == 0 {
            return Ok(());
        }
        hasher.update(&buffer[..read]);
    }
}
