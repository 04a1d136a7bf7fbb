//! A model as one GGUF file (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>), as
//! llama.cpp's converter writes it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use candle_core::quantized::QTensor;
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::{Device, Tensor};

use super::place::{Place, io};
use super::{Export, ExportError, WeightType};
use crate::config::{Family, ModelConfig, RopeScaling};
use crate::gguf_names::{ROPE_TABLE, gguf_name, hugging_face_name, to_gguf_rows};
use crate::weights::{Metadata, WeightsError, first_line};

/// Keys of a source that say how its file was made, not what the model is.
const OF_THE_FILE: [&str; 3] = ["general.alignment", "quantize.", "split."];

pub(super) fn write(export: Export<'_>, kind: WeightType, out: &Path) -> Result<(), ExportError> {
    let place = Place::new(out);
    let name = out.file_stem().unwrap_or_default().to_string_lossy();
    let metadata = metadata(&export, kind, &name)?;
    let config = &export.checkpoint.config;
    let mut tensors: BTreeMap<String, QTensor> = BTreeMap::new();
    if export.checkpoint.metadata.is_some() {
        tensors = tables(export.source)?;
    } else if config.rope_scaling != RopeScaling::None {
        let table = Tensor::new(config.rope_divisors(), &Device::Cpu)?;
        let table = QTensor::quantize(&table, WeightType::F32.in_gguf())?;
        tensors.insert(ROPE_TABLE.to_owned(), table);
    }
    // One weight after the other goes, so that both forms of all of them are never there.
    for (name, weight) in export.checkpoint.tensors {
        let gguf = gguf_name(&name).ok_or_else(|| ExportError::NoPlace {
            what: name.clone(),
            form: "a GGUF file",
        })?;
        let kind = stored_as(&weight, kind)?;
        kind.check(&name, &weight)?;
        let weight = to_gguf_rows(&name, weight, config)?;
        let dtype = kind.in_gguf();
        tensors.insert(gguf, QTensor::quantize(&weight.contiguous()?, dtype)?);
    }
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let file = File::create(place.path()).map_err(io(out))?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    gguf_file::write(&mut file, &metadata, &tensors).map_err(|error| match error {
        candle_core::Error::Io(source) => io(out)(source),
        error => error.into(),
    })?;
    file.into_inner()
        .map_err(|error| io(out)(error.into_error()))?;
    place.publish()
}

/// The type of one tensor: llama.cpp expects vectors in f32.
fn stored_as(weight: &Tensor, kind: WeightType) -> Result<WeightType, ExportError> {
    if weight.rank() < 2 {
        return Ok(WeightType::F32);
    }
    let is_whole = weight
        .dim(candle_core::D::Minus1)?
        .is_multiple_of(kind.in_gguf().block_size());
    Ok(if is_whole { kind } else { WeightType::F16 })
}

/// Tensors of the source that are no weights, such as a table of rotary frequencies: they belong to
/// what other programs compute.
pub(super) fn tables(source: &Path) -> Result<BTreeMap<String, QTensor>, ExportError> {
    let corrupt = |error: candle_core::Error| WeightsError::Corrupt {
        path: source.to_owned(),
        format: "GGUF",
        reason: first_line(&error),
    };
    let mut file = File::open(source).map_err(|error| WeightsError::Read {
        path: source.to_owned(),
        source: error,
    })?;
    let content = gguf_file::Content::read(&mut file).map_err(corrupt)?;
    let mut tables = BTreeMap::new();
    for name in content.tensor_infos.keys() {
        if hugging_face_name(name).is_none() {
            let table = content.tensor(&mut file, name, &Device::Cpu);
            tables.insert(name.clone(), table.map_err(corrupt)?);
        }
    }
    Ok(tables)
}

fn metadata(
    export: &Export<'_>,
    kind: WeightType,
    name: &str,
) -> Result<BTreeMap<String, Value>, ExportError> {
    let checkpoint = &export.checkpoint;
    let mut metadata: BTreeMap<String, Value> = match &checkpoint.metadata {
        Some(known) => of_the_model(known),
        None => of_config(export)?,
    };
    let mut set = |key: &str, value| metadata.insert(key.to_owned(), value);
    set("general.name", Value::String(name.to_owned()));
    // llama.cpp's `llama_ftype`.
    let file_type = match kind {
        WeightType::F32 => 0,
        WeightType::F16 => 1,
        WeightType::Q8_0 => 7,
        WeightType::Bf16 => 32,
    };
    set("general.file_type", Value::U32(file_type));
    set("general.quantization_version", Value::U32(2));
    Ok(metadata)
}

/// What a source in GGUF says of the model.
fn of_the_model(known: &Metadata) -> BTreeMap<String, Value> {
    known
        .iter()
        .filter(|(key, _)| !OF_THE_FILE.iter().any(|start| key.starts_with(start)))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The same from a directory's configuration and tokenizer.
fn of_config(export: &Export<'_>) -> Result<BTreeMap<String, Value>, ExportError> {
    let config: &ModelConfig = &export.checkpoint.config;
    let mut metadata: BTreeMap<String, Value> = export
        .tokenizer
        .to_gguf(config.vocab_size)?
        .into_iter()
        .collect();
    let template = Value::String(export.template.to_owned());
    metadata.insert("tokenizer.chat_template".into(), template);
    let end = export.tokenizer.eos_id();
    // Two keys hold the tokens that end a turn: the tokenizer's, and one more.
    let ends = end.into_iter().chain(config.eos_token_ids.iter().copied());
    let mut ends: Vec<u32> = ends.collect();
    ends.dedup();
    if let Some(first) = ends.first() {
        let key = "tokenizer.ggml.eos_token_id";
        metadata.insert(key.into(), Value::U32(*first));
        if let Some(other) = ends.iter().find(|id| *id != first) {
            let key = "tokenizer.ggml.eot_token_id";
            metadata.insert(key.into(), Value::U32(*other));
        }
    }
    let architecture = match config.family {
        Family::Llama => "llama",
        Family::Qwen2 => "qwen2",
        Family::Qwen3 => "qwen3",
    };
    let name = Value::String(architecture.into());
    metadata.insert("general.architecture".into(), name);
    for (key, size) in [
        ("vocab_size", config.vocab_size),
        ("context_length", config.max_position_embeddings),
        ("embedding_length", config.hidden_size),
        ("block_count", config.num_hidden_layers),
        ("feed_forward_length", config.intermediate_size),
        ("attention.head_count", config.num_attention_heads),
        ("attention.head_count_kv", config.num_key_value_heads),
        ("attention.key_length", config.head_dim),
        ("attention.value_length", config.head_dim),
        ("rope.dimension_count", config.head_dim),
    ] {
        let size = u32::try_from(size).map_err(|_| ExportError::NoPlace {
            what: format!("{key} of {size}"),
            form: "a GGUF file",
        })?;
        metadata.insert(format!("{architecture}.{key}"), Value::U32(size));
    }
    for (key, value) in [
        ("attention.layer_norm_rms_epsilon", config.rms_norm_eps),
        ("rope.freq_base", config.rope_theta),
    ] {
        let value = Value::F32(value as f32);
        metadata.insert(format!("{architecture}.{key}"), value);
    }
    Ok(metadata)
}
