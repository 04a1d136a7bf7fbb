//! Training checkpoints: a directory that is either whole or not there.
//!
//! `checkpoint-NNNNNN/` holds a PEFT adapter (`adapter_config.json`, `adapter_model.safetensors`),
//! the moments (`optimizer.safetensors`), the weights that validation liked best so far, if it was
//! asked (`best.safetensors`), `state.json` and, written last, `COMPLETE` with the hash of every
//! other file. It is made under another name and renamed, so that a kill at any moment
//! leaves the previous one. Paths inside are relative: a run directory can be moved.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use candle_core::Device;
use model::adapter::{Adapter, AdapterError, serialize};
use model::config::ModelConfig;
use model::weights::{TensorMap, WeightsError, load_safetensors};
use serde::{Deserialize, Serialize};

use crate::optimizer::{AdamW, AdamWOptions};
use crate::validation::Evaluation;

const COMPLETE: &str = "COMPLETE";
const BEST: &str = "best.safetensors";
const PREFIX: &str = "checkpoint-";

/// Why a checkpoint can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file operation failed.
    #[error("cannot access {path}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The checkpoint is not whole.
    #[error("checkpoint {path} is damaged: {reason}")]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The adapter's files can't be used.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// A tensor file can't be used.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

/// Where a training run stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Optimizer steps taken.
    pub step: usize,
    /// Identity of data and options; a checkpoint of another training is not resumed.
    pub fingerprint: String,
    /// Loss of every step so far.
    pub losses: Vec<f64>,
    /// Evaluations on the validation rows so far.
    #[serde(default)]
    pub evaluations: Vec<Evaluation>,
}

/// A checkpoint in memory.
#[derive(Debug)]
pub struct Checkpoint {
    /// The adapter.
    pub adapter: Adapter,
    /// The optimizer.
    pub optimizer: AdamW,
    /// Weights of the adapter with the best evaluation, once there is one.
    pub best: Option<TensorMap>,
    /// Progress.
    pub state: State,
}

impl Checkpoint {
    /// Write as `checkpoint-<step>` below `root` and drop all but the `keep` newest.
    ///
    /// # Errors
    /// When a file can't be written; the previous checkpoint is then untouched.
    pub fn save(
        &self,
        root: &Path,
        base_model: &str,
        keep: usize,
    ) -> Result<PathBuf, CheckpointError> {
        let (config, weights) = self.adapter.to_peft_files(base_model)?;
        let mut moments = TensorMap::new();
        for (part, tensors) in [
            ("first", &self.optimizer.first),
            ("second", &self.optimizer.second),
        ] {
            for (name, tensor) in tensors {
                moments.insert(format!("{part}.{name}"), tensor.clone());
            }
        }
        let state =
            serde_json::to_vec_pretty(&self.state).map_err(|e| CheckpointError::Damaged {
                path: root.to_owned(),
                reason: e.to_string(),
            })?;
        let mut files = vec![
            ("adapter_config.json", config),
            ("adapter_model.safetensors", weights),
            ("optimizer.safetensors", serialize(&moments)?),
            ("state.json", state),
        ];
        if let Some(best) = &self.best {
            files.push((BEST, serialize(best)?));
        }
        let target = root.join(format!("{PREFIX}{:06}", self.state.step));
        write_directory(&target, &files)?;
        for old in list(root)?.into_iter().rev().skip(keep.max(1)) {
            remove(&old)?;
        }
        Ok(target)
    }

    /// The newest whole checkpoint below `root` whose fingerprint matches. Damaged ones are moved
    /// aside as `damaged-…`, those of another training as `other-…`, and named in the second value.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn latest(
        root: &Path,
        fingerprint: &str,
        model: &ModelConfig,
        options: AdamWOptions,
        device: &Device,
    ) -> Result<(Option<Self>, Vec<String>), CheckpointError> {
        let mut skipped = Vec::new();
        for directory in list(root)?.into_iter().rev() {
            match Self::load(&directory, model, options, device) {
                Ok(checkpoint) if checkpoint.state.fingerprint == fingerprint => {
                    return Ok((Some(checkpoint), skipped));
                }
                Ok(_) => {
                    // Left in place it would count among the newest and push out our own.
                    skipped.push(format!("{} is of another training", directory.display()));
                    set_aside(&directory, "other")?;
                }
                Err(error) => {
                    skipped.push(error.to_string());
                    set_aside(&directory, "damaged")?;
                }
            }
        }
        Ok((None, skipped))
    }

    fn load(
        directory: &Path,
        model: &ModelConfig,
        options: AdamWOptions,
        device: &Device,
    ) -> Result<Self, CheckpointError> {
        verify_directory(directory)?;
        let damaged = |reason: String| CheckpointError::Damaged {
            path: directory.to_owned(),
            reason,
        };
        let text = read(&directory.join("state.json"))?;
        let state: State = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
        let adapter = Adapter::load(directory, model, device)?;
        let mut first = TensorMap::new();
        let mut second = TensorMap::new();
        for (name, tensor) in load_safetensors(&directory.join("optimizer.safetensors"), device)? {
            if let Some(name) = name.strip_prefix("first.") {
                first.insert(name.to_owned(), tensor);
            } else if let Some(name) = name.strip_prefix("second.") {
                second.insert(name.to_owned(), tensor);
            }
        }
        let names = adapter.tensors();
        if !names.keys().eq(first.keys()) || !names.keys().eq(second.keys()) {
            return Err(damaged("moments and parameters differ in names".into()));
        }
        let optimizer = AdamW::restore(options, state.step, first, second);
        let best = if state.evaluations.is_empty() {
            None
        } else {
            let weights = load_safetensors(&directory.join(BEST), device)?;
            if !names.keys().eq(weights.keys()) {
                return Err(damaged(
                    "best weights and parameters differ in names".into(),
                ));
            }
            Some(weights)
        };
        Ok(Self {
            adapter,
            optimizer,
            best,
            state,
        })
    }
}

/// Write `files` as directory `target`, whole or not at all, with a `COMPLETE` list of hashes.
///
/// # Errors
/// When a file can't be written.
pub fn write_directory(target: &Path, files: &[(&str, Vec<u8>)]) -> Result<(), CheckpointError> {
    let name = target
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let parent = target.parent().unwrap_or(Path::new("."));
    let part = parent.join(format!(".part-{name}"));
    std::fs::create_dir_all(parent).map_err(io(parent))?;
    remove(&part)?;
    std::fs::create_dir(&part).map_err(io(&part))?;
    let mut hashes = BTreeMap::new();
    for (name, bytes) in files {
        hashes.insert(*name, blake3::hash(bytes).to_hex().to_string());
        write_synced(&part.join(name), bytes)?;
    }
    let listing: String = hashes
        .iter()
        .map(|(name, hash)| format!("{hash}  {name}\n"))
        .collect();
    write_synced(&part.join(COMPLETE), listing.as_bytes())?;
    remove(target)?;
    std::fs::rename(&part, target).map_err(io(target))?;
    // The rename itself must survive a power cut.
    std::fs::File::open(parent)
        .and_then(|d| d.sync_all())
        .map_err(io(parent))
}

/// Check a directory against its `COMPLETE` list.
///
/// # Errors
/// When a file is missing or its bytes are not those written.
pub fn verify_directory(directory: &Path) -> Result<(), CheckpointError> {
    let damaged = |reason: String| CheckpointError::Damaged {
        path: directory.to_owned(),
        reason,
    };
    let Ok(listing) = std::fs::read_to_string(directory.join(COMPLETE)) else {
        return Err(damaged(format!("{COMPLETE} is missing")));
    };
    for line in listing.lines() {
        let Some((hash, name)) = line.split_once("  ") else {
            return Err(damaged(format!("{COMPLETE} has an odd line")));
        };
        let Ok(bytes) = std::fs::read(directory.join(name)) else {
            return Err(damaged(format!("{name} is missing")));
        };
        if blake3::hash(&bytes).to_hex().as_str() != hash {
            return Err(damaged(format!("{name} was changed after it was written")));
        }
    }
    Ok(())
}

/// [`verify_directory`], where there is a list of hashes: adapters of other programs have none.
///
/// # Errors
/// When the bytes are not those that the list names.
pub fn verify_directory_if_hashed(directory: &Path) -> Result<(), CheckpointError> {
    if directory.join(COMPLETE).exists() {
        verify_directory(directory)?;
    }
    Ok(())
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> CheckpointError + '_ {
    move |source| CheckpointError::Io {
        path: path.to_owned(),
        source,
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    std::fs::read(path).map_err(io(path))
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let mut file = std::fs::File::create(path).map_err(io(path))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(io(path))
}

fn remove(path: &Path) -> Result<(), CheckpointError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io(path)(error)),
        _ => Ok(()),
    }
}

/// Rename a directory that is not to be used, for a person to look at.
fn set_aside(directory: &Path, why: &str) -> Result<(), CheckpointError> {
    let name = directory
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let aside = directory.with_file_name(format!("{why}-{name}"));
    remove(&aside)?;
    std::fs::rename(directory, &aside).map_err(io(directory))
}

/// Checkpoint directories below `root`, oldest first.
fn list(root: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io(root)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io(root))?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
