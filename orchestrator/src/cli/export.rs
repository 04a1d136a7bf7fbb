//! `coharness model export`: the model for other programs, with what was trained.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use candle_core::{DType, Device};
use clap::{Args, Subcommand, ValueEnum};
use model::export::{Export, WeightType, check};

use super::{environment, print, say};
use crate::base_model::ModelFiles;
use crate::config::Loaded;
use crate::error::RunError;
use crate::trained_weights::{self, TrainedWeights};
use crate::workshop::run_name;

/// The model.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Write the model for other programs, trained weights in it if wanted.
    ///
    /// A GGUF file, for llama.cpp and what builds on it, if --out ends in .gguf; else a Hugging Face
    /// directory, for transformers, vLLM and SGLang.
    Export(ExportArgs),
}

/// Write the model for other programs.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// File or directory to write; it must not exist.
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Trained weights: an adapter, which is merged, or a full set. The beginning of the id of those of
    /// the configuration's run, or a directory with PEFT's files or model.safetensors. Without it, the
    /// base model is written.
    #[arg(long, visible_alias = "weights", value_name = "ID|DIR")]
    adapter: Option<String>,
    /// What weights are stored as.
    #[arg(long = "type", value_name = "TYPE", value_enum, default_value = "f16")]
    kind: TypeName,
    /// Configuration whose model is written.
    #[arg(long, value_name = "FILE", default_value = "quickstart.yaml")]
    config: String,
    /// Override a field of the configuration, as in --set model.path=FILE. May be repeated.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TypeName {
    /// 32 bits, exact
    F32,
    /// 16 bits
    F16,
    /// 16 bits with the range of 32
    Bf16,
    /// about 8.5 bits; only in a GGUF file
    #[value(name = "q8_0")]
    Q8_0,
}

pub(crate) fn model(root: &Path, command: ModelCommand) -> Result<ExitCode, RunError> {
    match command {
        ModelCommand::Export(args) => export(root, &args),
    }
}

fn export(root: &Path, args: &ExportArgs) -> Result<ExitCode, RunError> {
    let kind = match args.kind {
        TypeName::F32 => WeightType::F32,
        TypeName::F16 => WeightType::F16,
        TypeName::Bf16 => WeightType::Bf16,
        TypeName::Q8_0 => WeightType::Q8_0,
    };
    check(kind, &args.out)?;
    let loaded = Loaded::read(&args.config, &args.set, None)?;
    let ModelFiles {
        id,
        path,
        weights,
        tokenizer,
        template,
    } = ModelFiles::open(&loaded, &environment::cache())?;
    let checkpoint = weights.load(DType::F32, &Device::Cpu)?;
    let trained = match &args.adapter {
        None => None,
        Some(name) => {
            let directory = directory_of(&root.join(run_name(&loaded.config.run)), name)?;
            let weights = TrainedWeights::open(&directory, &checkpoint.config)?;
            Some((directory, weights))
        }
    };
    let mut export = Export {
        checkpoint,
        source: &path,
        tokenizer: &tokenizer,
        template: &template,
    };
    let mut what = id;
    if let Some((directory, weights)) = trained {
        match weights {
            TrainedWeights::Adapter(adapter) => export.merge(&adapter)?,
            TrainedWeights::Full(tensors) => export.checkpoint.tensors = tensors,
        }
        what.push_str(&format!(" with {}", directory.display()));
    }
    export.write(kind, &args.out)?;
    say(&format!("wrote {what} in {kind}"));
    print(&args.out.display().to_string());
    Ok(ExitCode::SUCCESS)
}

/// A directory that is one, or that of weights of the run.
fn directory_of(run: &Path, name: &str) -> Result<PathBuf, RunError> {
    let directory = PathBuf::from(name);
    let is_one = ["adapter_config.json", "model.safetensors"]
        .iter()
        .any(|file| directory.join(file).is_file());
    if is_one {
        return Ok(directory);
    }
    match trained_weights::find(run, name) {
        Ok(id) => Ok(trained_weights::directory_of(run, &id)),
        // Reading it tells which file it lacks.
        Err(RunError::NoWeights { .. }) if directory.is_dir() => Ok(directory),
        Err(error) => Err(error),
    }
}
