//! What trainings gave, as a run keeps it: adapters in PEFT's format in `adapters/`, full sets of weights
//! in `weights/`, each in a directory that is named by its content.

use std::path::{Path, PathBuf};

use candle_core::{DType, Device};
use model::adapter::Adapter;
use model::config::ModelConfig;
use model::decode::EngineError;
use model::weights::{Checkpoint, TensorMap, load_safetensors};
use rollout::policy::{BoxFuture, Completion, CompletionRequest, Policy, PolicyError, PolicyId};
use trainer::checkpoint::{verify_directory, verify_directory_if_hashed, write_directory};
use trainer::{TrainError, Trainee};

use crate::error::RunError;

const ADAPTERS: &str = "adapters";
const FULL_SETS: &str = "weights";

/// The beginning of the id of trained weights, as it is shown.
pub(crate) fn short(id: &str) -> String {
    id.chars().take(8).collect()
}

/// What a training gave.
pub(crate) enum TrainedWeights {
    /// To be put beside the base model's weights.
    Adapter(Adapter),
    /// To be put in their place; f32, on the CPU.
    Full(TensorMap),
}

impl TrainedWeights {
    /// Weights that a run keeps.
    ///
    /// # Errors
    /// When they are missing, damaged, or of another model.
    pub(crate) fn kept(
        directory: &Path,
        config: &ModelConfig,
        device: &Device,
    ) -> Result<Self, RunError> {
        verify_directory(directory).map_err(TrainError::from)?;
        Self::read(directory, config, device)
    }

    /// Weights in a directory of this program or of another: PEFT's files, or `model.safetensors`.
    ///
    /// # Errors
    /// As [`Self::kept`].
    pub(crate) fn open(directory: &Path, config: &ModelConfig) -> Result<Self, RunError> {
        verify_directory_if_hashed(directory).map_err(TrainError::from)?;
        Self::read(directory, config, &Device::Cpu)
    }

    fn read(directory: &Path, config: &ModelConfig, device: &Device) -> Result<Self, RunError> {
        let file = directory.join("model.safetensors");
        if directory.join("adapter_config.json").is_file() || !file.is_file() {
            return Ok(Self::Adapter(Adapter::load(directory, config, device)?));
        }
        let mut tensors = load_safetensors(&file, &Device::Cpu)?;
        for tensor in tensors.values_mut() {
            *tensor = tensor.to_dtype(DType::F32)?;
        }
        Ok(Self::Full(Checkpoint::of(config.clone(), tensors)?.tensors))
    }
}

/// Keep what was trained below the run's directory; gives its id.
///
/// # Errors
/// When a file can't be written.
pub(crate) fn keep(trainee: &Trainee, base_model: &str, run: &Path) -> Result<String, TrainError> {
    let folder = match trainee {
        Trainee::Lora { .. } => ADAPTERS,
        Trainee::Full(_) => FULL_SETS,
    };
    let id = trainee.content_id()?;
    write_directory(&run.join(folder).join(&id), &trainee.files(base_model)?)?;
    Ok(id)
}

/// Where a run keeps adapter `id`.
pub(crate) fn adapter_directory(run: &Path, id: &str) -> PathBuf {
    run.join(ADAPTERS).join(id)
}

/// Where a run keeps the full set `id`.
pub(crate) fn full_directory(run: &Path, id: &str) -> PathBuf {
    run.join(FULL_SETS).join(id)
}

/// Where a run keeps the weights `id`, whichever they are.
pub(crate) fn directory_of(run: &Path, id: &str) -> PathBuf {
    let full = full_directory(run, id);
    if full.is_dir() {
        full
    } else {
        adapter_directory(run, id)
    }
}

/// The id of a run's weights that begins like this.
///
/// # Errors
/// When there is none, or several.
pub(crate) fn find(run: &Path, prefix: &str) -> Result<String, RunError> {
    let in_folder = |folder: &str| std::fs::read_dir(run.join(folder)).into_iter().flatten();
    let entries = in_folder(ADAPTERS).chain(in_folder(FULL_SETS)).flatten();
    let mut known: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .collect();
    known.sort_unstable();
    let fitting: Vec<&String> = known
        .iter()
        .filter(|name| name.starts_with(prefix))
        .collect();
    match fitting[..] {
        [one] => Ok(one.clone()),
        _ => Err(RunError::NoWeights {
            prefix: prefix.to_owned(),
            run: run.to_owned(),
            known: if known.is_empty() {
                "there are none".to_owned()
            } else {
                format!("there are: {}", known.join(", "))
            },
        }),
    }
}

/// The policy under weights that are no longer kept: their name. A run that starts again asks nothing
/// of it that isn't in the journal.
pub(crate) struct Dropped {
    pub(crate) id: PolicyId,
}

impl Policy for Dropped {
    fn id(&self) -> &PolicyId {
        &self.id
    }

    fn complete(&self, _: CompletionRequest) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        let reason = "the weights were turned down and are no longer kept".to_owned();
        Box::pin(async move { Err(EngineError::Compute { reason }.into()) })
    }
}
