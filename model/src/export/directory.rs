//! A model as a Hugging Face directory, as transformers, vLLM and llama.cpp's converter read it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::Tensor;
use safetensors::SafeTensorError;
use serde_json::{Value, json};

use super::place::{Place, io, sync};
use super::{Export, ExportError, WeightType};
use crate::config::{Family, ModelConfig, RopeScaling};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";

pub(super) fn write(export: Export<'_>, kind: WeightType, out: &Path) -> Result<(), ExportError> {
    let Some((dtype, torch_name)) = kind.in_safetensors() else {
        return Err(ExportError::NeedsGguf {
            path: out.to_owned(),
            kind,
        });
    };
    let place = Place::new(out);
    std::fs::create_dir(place.path()).map_err(io(out))?;
    let files = match &export.checkpoint.metadata {
        None => copied(export.source, torch_name)?,
        Some(_) => written(&export, torch_name)?,
    };
    for (name, bytes) in files {
        let path = place.path().join(name);
        std::fs::write(&path, bytes).map_err(io(&path))?;
        sync(&path)?;
    }
    let mut tensors: Vec<(String, Tensor)> = Vec::new();
    for (name, weight) in export.checkpoint.tensors {
        kind.check(&name, &weight)?;
        tensors.push((name, weight.to_dtype(dtype)?.contiguous()?));
    }
    // transformers refuses a file that doesn't say who it is for.
    let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let path = place.path().join(WEIGHTS);
    safetensors::serialize_to_file(tensors, Some(format), &path).map_err(|error| {
        io(&path)(match error {
            SafeTensorError::IoError(source) => source,
            error => std::io::Error::other(error),
        })
    })?;
    // It comes out readable for this user alone.
    std::fs::metadata(place.path().join(CONFIG))
        .and_then(|config| std::fs::set_permissions(&path, config.permissions()))
        .map_err(io(&path))?;
    sync(&path)?;
    place.publish()
}

/// The files beside the weights of a source that is a directory, its configuration with the new type.
fn copied(source: &Path, torch_name: &str) -> Result<Vec<(String, Vec<u8>)>, ExportError> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(source)
        .map_err(io(source))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_text = [".json", ".jinja", ".txt", ".model"]
            .iter()
            .any(|end| name.ends_with(end));
        // The weights' index is of shards that aren't written.
        if !is_text || name.ends_with(".safetensors.index.json") {
            continue;
        }
        let mut bytes = std::fs::read(&path).map_err(io(&path))?;
        if name == CONFIG {
            let mut config: Value =
                serde_json::from_slice(&bytes).map_err(|error| io(&path)(error.into()))?;
            // The key's name has changed in transformers 5; both are read.
            let is_new = config["dtype"].is_string();
            config[if is_new { "dtype" } else { "torch_dtype" }] = torch_name.into();
            bytes = text(&config)?;
        }
        files.push((name.into_owned(), bytes));
    }
    Ok(files)
}

/// The same for a source in GGUF, from what it says.
fn written(export: &Export<'_>, torch_name: &str) -> Result<Vec<(String, Vec<u8>)>, ExportError> {
    let tokenizer = export.tokenizer;
    let token = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id));
    let config = &export.checkpoint.config;
    let tables = super::gguf::tables(export.source)?;
    if let Some(table) = tables.keys().next() {
        return Err(ExportError::NoPlace {
            what: table.clone(),
            form: "a directory",
        });
    }
    let mut shape = shape(config)?;
    shape["torch_dtype"] = torch_name.into();
    shape["bos_token_id"] = json!(tokenizer.bos_id());
    shape["eos_token_id"] = json!(config.eos_token_ids);
    let names = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": token(tokenizer.bos_id()),
        "eos_token": token(tokenizer.eos_id()),
        "model_max_length": config.max_position_embeddings,
        "clean_up_tokenization_spaces": false,
        "add_prefix_space": false,
    });
    let generation = json!({
        "bos_token_id": tokenizer.bos_id(),
        "eos_token_id": config.eos_token_ids,
    });
    Ok(vec![
        (CONFIG.into(), text(&shape)?),
        ("generation_config.json".into(), text(&generation)?),
        ("tokenizer.json".into(), text(&tokenizer.to_json()?)?),
        ("tokenizer_config.json".into(), text(&names)?),
        ("chat_template.jinja".into(), export.template.into()),
    ])
}

/// A `config.json` without what isn't the shape.
fn shape(config: &ModelConfig) -> Result<Value, ExportError> {
    let (kind, class) = match config.family {
        Family::Llama => ("llama", "LlamaForCausalLM"),
        Family::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
        Family::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
    };
    let scaling = match &config.rope_scaling {
        RopeScaling::None => None,
        // By both names that the type has had.
        RopeScaling::Linear(factor) => {
            Some(json!({"rope_type": "linear", "type": "linear", "factor": factor}))
        }
        // Of a GGUF file's table there is no telling what it was made by.
        RopeScaling::Divisors(_) | RopeScaling::Llama3 { .. } => {
            return Err(ExportError::NoPlace {
                what: "scaled rotary frequencies".to_owned(),
                form: "a directory",
            });
        }
    };
    let mut shape = json!({
        "architectures": [class],
        "model_type": kind,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "attention_bias": false,
        "mlp_bias": false,
        "use_sliding_window": false,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "max_position_embeddings": config.max_position_embeddings,
        "tie_word_embeddings": config.tie_word_embeddings,
    });
    if let Some(scaling) = scaling {
        shape["rope_scaling"] = scaling;
    }
    Ok(shape)
}

fn text(value: &Value) -> Result<Vec<u8>, ExportError> {
    let mut text =
        serde_json::to_vec_pretty(value).map_err(|error| io(Path::new(CONFIG))(error.into()))?;
    text.push(b'\n');
    Ok(text)
}
