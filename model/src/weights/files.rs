//! The files of a model, open to be read weight by weight.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use candle_core::{DType, Device};
use serde::Deserialize;

use super::gguf_file::GgufFile;
use super::safetensors_file::SafetensorsFile;
use super::{
    Checkpoint, Metadata, StoredWeight, TensorMap, WeightsError, check_shapes, corrupt,
    expected_shapes, unreadable,
};
use crate::config::ModelConfig;

/// A model's files. The names and shapes of what they hold are known and fit the configuration; the weights
/// themselves are read when they are asked for, so that not all of them have to be in memory at once.
#[derive(Debug)]
pub struct WeightFiles {
    /// The model's shape.
    pub config: ModelConfig,
    /// Metadata, for GGUF.
    pub metadata: Option<Metadata>,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Gguf(GgufFile),
    /// In the order of their names; of a tensor in two of them the later counts.
    Safetensors(Vec<SafetensorsFile>),
}

impl WeightFiles {
    /// Open a GGUF file or a Hugging Face directory.
    ///
    /// # Errors
    /// When files are missing, damaged, or do not fit together.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let files = if path.is_dir() {
            Self::directory(path)?
        } else if path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
        {
            let (file, config, metadata) = GgufFile::open(path)?;
            Self {
                config,
                metadata: Some(metadata),
                form: Form::Gguf(file),
            }
        } else {
            return Err(WeightsError::NoModel {
                path: path.to_owned(),
            });
        };
        check_shapes(&files.config, &files.shapes())?;
        Ok(files)
    }

    fn directory(path: &Path) -> Result<Self, WeightsError> {
        let config = ModelConfig::from_directory(path)?;
        let mut shards = Vec::new();
        for file in safetensors_files(path)? {
            let mut shard = SafetensorsFile::open(&file)?;
            if config.tie_word_embeddings {
                // Some published tied checkpoints repeat the embedding as a head.
                shard.leave_out("lm_head.weight");
            }
            shards.push(shard);
        }
        Ok(Self {
            config,
            metadata: None,
            form: Form::Safetensors(shards),
        })
    }

    fn shapes(&self) -> BTreeMap<&str, &[usize]> {
        match &self.form {
            Form::Gguf(file) => file.shapes().collect(),
            Form::Safetensors(shards) => shards.iter().flat_map(|shard| shard.shapes()).collect(),
        }
    }

    /// Read one weight by its Hugging Face name, as `dtype` on `device`; none where the model has none of
    /// this name.
    ///
    /// # Errors
    /// When a file can't be read or a tensor operation fails.
    pub fn weight(
        &mut self,
        name: &str,
        dtype: DType,
        device: &Device,
    ) -> Result<Option<StoredWeight>, WeightsError> {
        let shards = match &mut self.form {
            Form::Gguf(file) => return file.read(name, &self.config, dtype, device),
            Form::Safetensors(shards) => shards,
        };
        for shard in shards.iter_mut().rev() {
            if let Some(tensor) = shard.read(name, device)? {
                let tensor = tensor.to_dtype(dtype)?;
                return Ok(Some(StoredWeight {
                    tensor,
                    scales: None,
                }));
            }
        }
        Ok(None)
    }

    /// Read all of them, as `dtype` on `device`.
    ///
    /// # Errors
    /// As [`Self::weight`].
    pub fn load(mut self, dtype: DType, device: &Device) -> Result<Checkpoint, WeightsError> {
        let (mut tensors, mut scales) = (TensorMap::new(), BTreeMap::new());
        for name in expected_shapes(&self.config).into_keys() {
            if let Some(weight) = self.weight(&name, dtype, device)? {
                scales.extend(weight.scales.map(|scales| (name.clone(), scales)));
                tensors.insert(name, weight.tensor);
            }
        }
        Ok(Checkpoint {
            config: self.config,
            tensors,
            scales,
            metadata: self.metadata,
        })
    }
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
    let text = std::fs::read_to_string(&index).map_err(unreadable(&index))?;
    let parsed: Index = serde_json::from_str(&text)
        .map_err(|error| corrupt(&index, "safetensors index", &error))?;
    let names: BTreeSet<&String> = parsed.weight_map.values().collect();
    Ok(names.into_iter().map(|name| directory.join(name)).collect())
}
