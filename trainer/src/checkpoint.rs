//! Training checkpoints: a directory that is either whole or not there.
//!
//! `checkpoint-NNNNNN/` holds a PEFT adapter (`adapter_config.json`, `adapter_model.safetensors`) or
//! every weight (`model.safetensors`), the moments (`optimizer.safetensors`), the parameters that
//! validation liked best so far, if it was asked (`best.safetensors`), `state.json` and, written
//! last, `COMPLETE` with the hash of every other file. It is made under another name and renamed, so
//! that a kill at any moment leaves the previous one. There are no paths inside: a run directory can
//! be moved.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use model::adapter::AdapterError;
use model::weights::{TensorMap, WeightsError, load_safetensors};
use safetensors::SafeTensorError;
use serde::{Deserialize, Serialize};

use crate::optimizer::{AdamW, AdamWOptions};
use crate::trainee::Trainee;
use crate::validation::Evaluation;

const COMPLETE: &str = "COMPLETE";
const STATE: &str = "state.json";
const OPTIMIZER: &str = "optimizer.safetensors";
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
    /// The parameters can't be used.
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

/// A training as it stands, but for the parameters.
#[derive(Debug)]
pub struct Checkpoint {
    /// The optimizer.
    pub optimizer: AdamW,
    /// The parameters with the best evaluation, once there is one.
    pub best: Option<TensorMap>,
    /// Progress.
    pub state: State,
}

impl Checkpoint {
    /// Write as `checkpoint-<step>` below `root`, with `trainee`'s parameters, and drop all but the
    /// `keep` newest.
    ///
    /// # Errors
    /// When a file can't be written; the previous checkpoint is then untouched.
    pub fn save(
        &self,
        trainee: &Trainee,
        root: &Path,
        base_model: &str,
        keep: usize,
    ) -> Result<PathBuf, CheckpointError> {
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
        let mut files = trainee.files(base_model)?;
        files.push((OPTIMIZER, Contents::Tensors(&moments)));
        files.push((STATE, Contents::Bytes(state)));
        if let Some(best) = &self.best {
            files.push((BEST, Contents::Tensors(best)));
        }
        let target = root.join(format!("{PREFIX}{:06}", self.state.step));
        write_directory(&target, &files)?;
        for old in list(root)?.into_iter().rev().skip(keep.max(1)) {
            remove(&old)?;
        }
        Ok(target)
    }

    /// The newest whole checkpoint below `root` whose fingerprint matches; its parameters take the
    /// place of `trainee`'s. Damaged ones are moved aside as `damaged-…`, those of another training as
    /// `other-…`, and named in the second value.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn latest(
        trainee: &mut Trainee,
        root: &Path,
        fingerprint: &str,
        options: AdamWOptions,
    ) -> Result<(Option<Self>, Vec<String>), CheckpointError> {
        let mut skipped = Vec::new();
        for directory in list(root)?.into_iter().rev() {
            match Self::load(trainee, &directory, fingerprint, options) {
                Ok(Some(checkpoint)) => return Ok((Some(checkpoint), skipped)),
                Ok(None) => {
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

    /// The checkpoint in a directory; none if it is of another training.
    fn load(
        trainee: &mut Trainee,
        directory: &Path,
        fingerprint: &str,
        options: AdamWOptions,
    ) -> Result<Option<Self>, CheckpointError> {
        verify_directory(directory)?;
        let damaged = |reason: String| CheckpointError::Damaged {
            path: directory.to_owned(),
            reason,
        };
        let text = std::fs::read(directory.join(STATE)).map_err(io(directory))?;
        let state: State = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
        if state.fingerprint != fingerprint {
            return Ok(None);
        }
        let device = trainee.device();
        let own = trainee.parameters();
        let fitting = |what: &str, tensors: TensorMap| {
            let is_like = own.len() == tensors.len()
                && own
                    .iter()
                    .zip(&tensors)
                    .all(|((a, x), (b, y))| a == b && x.dims() == y.dims());
            if is_like {
                Ok(tensors)
            } else {
                Err(damaged(format!(
                    "{what} and parameters differ in names or shapes"
                )))
            }
        };
        let read = |name: &str| load_safetensors(&directory.join(name), device);
        let mut first = TensorMap::new();
        let mut second = TensorMap::new();
        for (name, tensor) in read(OPTIMIZER)? {
            if let Some(name) = name.strip_prefix("first.") {
                first.insert(name.to_owned(), tensor);
            } else if let Some(name) = name.strip_prefix("second.") {
                second.insert(name.to_owned(), tensor);
            }
        }
        let (first, second) = (fitting("moments", first)?, fitting("moments", second)?);
        let best = if state.evaluations.is_empty() {
            None
        } else {
            Some(fitting("best parameters", read(BEST)?)?)
        };
        let parameters = fitting("saved parameters", read(trainee.weights_file())?)?;
        trainee.replace(parameters)?;
        Ok(Some(Self {
            optimizer: AdamW::restore(options, state.step, first, second),
            best,
            state,
        }))
    }
}

/// Bytes that the checkpoints below `root` take, those set aside not counted.
///
/// # Errors
/// When the directory can't be read.
pub fn bytes_below(root: &Path) -> Result<u64, CheckpointError> {
    let mut bytes = 0;
    for directory in list(root)? {
        for entry in std::fs::read_dir(&directory).map_err(io(&directory))? {
            let file = entry.and_then(|entry| entry.metadata());
            bytes += file.map_err(io(&directory))?.len();
        }
    }
    Ok(bytes)
}

/// What a file holds.
#[derive(Debug)]
pub enum Contents<'a> {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Tensors as safetensors, written one after the other: all of them are never there twice.
    Tensors(&'a TensorMap),
}

impl Contents<'_> {
    fn write(&self, path: &Path) -> Result<(), CheckpointError> {
        match self {
            Self::Bytes(bytes) => write_synced(path, bytes),
            Self::Tensors(tensors) => {
                // transformers refuses a file that doesn't say who it is for.
                let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
                safetensors::serialize_to_file(tensors.iter(), Some(format), path).map_err(
                    |error| {
                        io(path)(match error {
                            SafeTensorError::IoError(source) => source,
                            error => std::io::Error::other(error),
                        })
                    },
                )?;
                File::open(path)
                    .and_then(|file| file.sync_all())
                    .map_err(io(path))
            }
        }
    }
}

/// Write `files` as directory `target`, whole or not at all, with a `COMPLETE` list of hashes.
///
/// # Errors
/// When a file can't be written.
pub fn write_directory(
    target: &Path,
    files: &[(&str, Contents<'_>)],
) -> Result<(), CheckpointError> {
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
    for (name, contents) in files {
        let path = part.join(name);
        contents.write(&path)?;
        hashes.insert(*name, hash(&path).map_err(io(&path))?);
    }
    let listing: String = hashes
        .iter()
        .map(|(name, hash)| format!("{hash}  {name}\n"))
        .collect();
    let complete = part.join(COMPLETE);
    write_synced(&complete, listing.as_bytes())?;
    // Tensors come out readable for this user alone.
    let readable = std::fs::metadata(&complete).map_err(io(&complete))?;
    for (name, _) in files {
        let path = part.join(name);
        std::fs::set_permissions(&path, readable.permissions()).map_err(io(&path))?;
    }
    remove(target)?;
    std::fs::rename(&part, target).map_err(io(target))?;
    // The rename itself must survive a power cut.
    File::open(parent)
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
        let Some((expected, name)) = line.split_once("  ") else {
            return Err(damaged(format!("{COMPLETE} has an odd line")));
        };
        let Ok(found) = hash(&directory.join(name)) else {
            return Err(damaged(format!("{name} is missing")));
        };
        if found != expected {
            return Err(damaged(format!("{name} was changed after it was written")));
        }
    }
    Ok(())
}

/// Hash of a file, which may be larger than memory.
fn hash(path: &Path) -> std::io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize().to_hex().to_string())
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

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let mut file = File::create(path).map_err(io(path))?;
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
