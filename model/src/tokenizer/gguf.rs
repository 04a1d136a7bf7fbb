//! The tokenizer inside a GGUF file, rewritten as the `tokenizer.json` it was converted from.
//!
//! Keys and token types are those of the GGUF specification
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>); the names of `tokenizer.ggml.pre`
//! and what they mean are llama.cpp's. One departure: NFC is applied for `qwen2`, as the published
//! `tokenizer.json` says and llama.cpp does not, because that is what the models were trained on.

use std::collections::HashMap;

use candle_core::quantized::gguf_file::Value as Metadata;
use serde_json::{Map, Value, json};

use super::TokenizerError;

/// The split pattern of Qwen2 and its successors, from their published `tokenizer.json`.
const QWEN2_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The split pattern of Llama 3, from its published `tokenizer.json`: digits in groups of three.
const LLAMA3_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Token types.
pub(super) const NORMAL: u64 = 1;
pub(super) const CONTROL: u64 = 3;
pub(super) const USER_DEFINED: u64 = 4;
pub(super) const UNUSED: u64 = 5;

/// A tokenizer description in the `tokenizer.json` form, with the ids GGUF keeps beside it.
pub(super) struct Description {
    pub(super) json: Value,
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
}

/// Reads `tokenizer.ggml.*`.
pub(super) fn describe(
    metadata: &HashMap<String, Metadata>,
) -> Result<Description, TokenizerError> {
    let model = text(metadata, "tokenizer.ggml.model")?;
    if model != "gpt2" {
        return Err(TokenizerError::Unsupported {
            part: "tokenizer model",
            found: model.into(),
        });
    }
    let pre = match metadata.get("tokenizer.ggml.pre") {
        // Files older than the key hold GPT-2 style vocabularies.
        None => PreTokenizer::Gpt2,
        Some(_) => PreTokenizer::named(text(metadata, "tokenizer.ggml.pre")?)?,
    };
    let tokens = texts(metadata, "tokenizer.ggml.tokens")?;
    let types = numbers(metadata, "tokenizer.ggml.token_type")?;
    if types.len() != tokens.len() {
        return Err(TokenizerError::BadMetadata {
            key: "tokenizer.ggml.token_type",
            expected: "one entry for each token",
        });
    }

    let mut added = Vec::new();
    for (id, (token, kind)) in tokens.iter().zip(&types).enumerate() {
        if matches!(*kind, CONTROL | USER_DEFINED) {
            added.push(json!({
                "id": id, "content": token, "special": *kind == CONTROL, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false,
            }));
        }
    }
    let vocabulary: Map<String, Value> = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| ((*token).to_owned(), id.into()))
        .collect();
    let merges = texts(metadata, "tokenizer.ggml.merges")?
        .into_iter()
        .map(merge)
        .collect::<Result<Vec<Value>, _>>()?;

    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "post_processor": null,
        "added_tokens": added,
        "normalizer": pre.normalizer(),
        "pre_tokenizer": pre.json(),
        "decoder": byte_level(false),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": pre.ignores_merges(),
            "vocab": vocabulary, "merges": merges,
        },
    });
    Ok(Description {
        json,
        bos: id(metadata, "tokenizer.ggml.bos_token_id", tokens.len())?,
        eos: id(metadata, "tokenizer.ggml.eos_token_id", tokens.len())?,
    })
}

/// How text is cut before merging.
#[derive(Clone, Copy)]
pub(super) enum PreTokenizer {
    Gpt2,
    SmolLm,
    Qwen2,
    Llama3,
}

impl PreTokenizer {
    pub(super) const ALL: [Self; 4] = [Self::Gpt2, Self::SmolLm, Self::Qwen2, Self::Llama3];

    /// Its first name among those that are read.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt-2",
            Self::SmolLm => "smollm",
            Self::Qwen2 => "qwen2",
            Self::Llama3 => "llama-bpe",
        }
    }

    /// Whether a whole word that is in the vocabulary is taken as it is.
    pub(super) fn ignores_merges(self) -> bool {
        matches!(self, Self::Llama3)
    }

    fn named(name: &str) -> Result<Self, TokenizerError> {
        match name {
            "gpt-2" | "default" => Ok(Self::Gpt2),
            "smollm" | "starcoder" => Ok(Self::SmolLm),
            "qwen2" | "deepseek-r1-qwen" => Ok(Self::Qwen2),
            "llama-bpe" | "llama3" | "llama-v3" => Ok(Self::Llama3),
            _ => Err(TokenizerError::UnknownPreTokenizer {
                name: name.to_owned(),
            }),
        }
    }

    pub(super) fn normalizer(self) -> Value {
        match self {
            Self::Qwen2 => json!({"type": "NFC"}),
            Self::Gpt2 | Self::SmolLm | Self::Llama3 => Value::Null,
        }
    }

    pub(super) fn json(self) -> Value {
        let steps = match self {
            Self::Gpt2 => return byte_level(true),
            Self::SmolLm => [
                json!({"type": "Digits", "individual_digits": true}),
                byte_level(true),
            ],
            Self::Qwen2 => [split(QWEN2_PATTERN), byte_level(false)],
            Self::Llama3 => [split(LLAMA3_PATTERN), byte_level(false)],
        };
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}

fn byte_level(use_regex: bool) -> Value {
    json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
        "use_regex": use_regex,
    })
}

fn split(pattern: &str) -> Value {
    json!({
        "type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false,
    })
}

/// A merge is two tokens with a space between them; a token may itself begin with a space.
fn merge(entry: &str) -> Result<Value, TokenizerError> {
    let bad = TokenizerError::BadMetadata {
        key: "tokenizer.ggml.merges",
        expected: "two tokens in each entry",
    };
    let first = entry.chars().next().map_or(0, char::len_utf8);
    match entry[first..].split_once(' ') {
        Some((rest, right)) if !right.is_empty() => {
            Ok(json!([&entry[..first + rest.len()], right]))
        }
        _ => Err(bad),
    }
}

fn get<'a>(
    metadata: &'a HashMap<String, Metadata>,
    key: &'static str,
) -> Result<&'a Metadata, TokenizerError> {
    metadata
        .get(key)
        .ok_or(TokenizerError::MissingMetadata { key })
}

fn text<'a>(
    metadata: &'a HashMap<String, Metadata>,
    key: &'static str,
) -> Result<&'a str, TokenizerError> {
    match get(metadata, key)? {
        Metadata::String(text) => Ok(text),
        _ => Err(TokenizerError::BadMetadata {
            key,
            expected: "a string",
        }),
    }
}

fn list<'a>(
    metadata: &'a HashMap<String, Metadata>,
    key: &'static str,
) -> Result<&'a [Metadata], TokenizerError> {
    match get(metadata, key)? {
        Metadata::Array(values) => Ok(values),
        _ => Err(TokenizerError::BadMetadata {
            key,
            expected: "a list",
        }),
    }
}

fn texts<'a>(
    metadata: &'a HashMap<String, Metadata>,
    key: &'static str,
) -> Result<Vec<&'a str>, TokenizerError> {
    list(metadata, key)?
        .iter()
        .map(|value| match value {
            Metadata::String(text) => Ok(text.as_str()),
            _ => Err(TokenizerError::BadMetadata {
                key,
                expected: "a list of strings",
            }),
        })
        .collect()
}

fn numbers(
    metadata: &HashMap<String, Metadata>,
    key: &'static str,
) -> Result<Vec<u64>, TokenizerError> {
    let bad = || TokenizerError::BadMetadata {
        key,
        expected: "a list of whole numbers",
    };
    list(metadata, key)?
        .iter()
        .map(|value| number(value).ok_or_else(bad))
        .collect()
}

fn number(value: &Metadata) -> Option<u64> {
    match *value {
        Metadata::U8(number) => Some(number.into()),
        Metadata::U16(number) => Some(number.into()),
        Metadata::U32(number) => Some(number.into()),
        Metadata::U64(number) => Some(number),
        Metadata::I8(number) => number.try_into().ok(),
        Metadata::I16(number) => number.try_into().ok(),
        Metadata::I32(number) => number.try_into().ok(),
        Metadata::I64(number) => number.try_into().ok(),
        _ => None,
    }
}

/// An optional token id, which must lie inside the vocabulary.
fn id(
    metadata: &HashMap<String, Metadata>,
    key: &'static str,
    vocabulary: usize,
) -> Result<Option<u32>, TokenizerError> {
    let Some(value) = metadata.get(key) else {
        return Ok(None);
    };
    number(value)
        .and_then(|id| u32::try_from(id).ok())
        .filter(|id| (*id as usize) < vocabulary)
        .map(Some)
        .ok_or(TokenizerError::BadMetadata {
            key,
            expected: "the id of a token",
        })
}
