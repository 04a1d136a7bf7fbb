//! The way back from [`super::gguf`]: a tokenizer as the `tokenizer.ggml.*` of a GGUF file.
//!
//! Only what is read back as the same tokenizer is written: a pre-tokenizer without a name in GGUF,
//! say, is an error and not the nearest one that has.

use std::collections::HashMap;

use candle_core::quantized::gguf_file::Value as Metadata;
use serde_json::Value;

use super::gguf::{CONTROL, NORMAL, PreTokenizer, UNUSED, USER_DEFINED};
use super::{Tokenizer, TokenizerError, unsupported};

impl Tokenizer {
    /// As a `tokenizer.json`.
    ///
    /// # Errors
    /// Only a tokenizer that can't be written as JSON.
    pub fn to_json(&self) -> Result<Value, TokenizerError> {
        serde_json::to_value(&self.inner).map_err(|source| TokenizerError::Parse {
            source: source.into(),
        })
    }

    /// As the metadata of a GGUF file whose embedding has `rows` rows.
    ///
    /// # Errors
    /// A tokenizer that GGUF has no words for, or one with more tokens than rows.
    pub fn to_gguf(&self, rows: usize) -> Result<HashMap<String, Metadata>, TokenizerError> {
        if self.vocab_size() > rows {
            let found = format!("{} tokens for {rows} embeddings", self.vocab_size());
            return Err(unsupported("vocabulary", &found));
        }
        let json = self.to_json()?;
        let merges = merges(&json["model"]["merges"]);
        let pre = pre_tokenizer(&json, merges.is_empty())?;
        let added = self.inner.get_added_tokens_decoder();
        let (mut tokens, mut types) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        for id in 0..u32::try_from(rows).unwrap_or(u32::MAX) {
            let (text, kind) = match (added.get(&id), self.token_text(id)) {
                (Some(token), _) if token.lstrip || token.rstrip || token.single_word => {
                    let found = format!("{:?}, which takes what is beside it", token.content);
                    return Err(unsupported("added token", &found));
                }
                (Some(token), _) if token.special => (token.content.clone(), CONTROL),
                (Some(token), _) => (token.content.clone(), USER_DEFINED),
                (None, Some(text)) => (text.to_owned(), NORMAL),
                // Embeddings beyond the vocabulary have names all the same.
                (None, None) => (format!("[PAD{id}]"), UNUSED),
            };
            tokens.push(Metadata::String(text));
            types.push(Metadata::I32(i32::try_from(kind).unwrap_or(0)));
        }
        let mut metadata = HashMap::new();
        let mut set = |key: &str, value| metadata.insert(format!("tokenizer.ggml.{key}"), value);
        set("model", Metadata::String("gpt2".into()));
        set("pre", Metadata::String(pre.name().into()));
        set("tokens", Metadata::Array(tokens));
        set("token_type", Metadata::Array(types));
        let merges = merges.into_iter().map(Metadata::String).collect();
        set("merges", Metadata::Array(merges));
        for (key, id) in [("bos_token_id", self.bos), ("eos_token_id", self.eos)] {
            if let Some(id) = id {
                set(key, Metadata::U32(id));
            }
        }
        Ok(metadata)
    }
}

/// `left right` of every merge, in order.
fn merges(json: &Value) -> Vec<String> {
    let text = |merge: &Value| match merge {
        Value::Array(pair) => {
            let parts: Vec<&str> = pair.iter().filter_map(Value::as_str).collect();
            parts.join(" ")
        }
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    json.as_array()
        .map(|merges| merges.iter().map(text).collect())
        .unwrap_or_default()
}

/// The pre-tokenizer among those that GGUF names.
fn pre_tokenizer(json: &Value, is_without_merges: bool) -> Result<PreTokenizer, TokenizerError> {
    let found = (
        without_offsets(&json["pre_tokenizer"]),
        json["normalizer"].clone(),
        json["model"]["ignore_merges"] == true,
    );
    let fitting = PreTokenizer::ALL.into_iter().find(|pre| {
        let named = (
            without_offsets(&pre.json()),
            pre.normalizer(),
            pre.ignores_merges(),
        );
        named == found
    });
    match fitting {
        Some(pre) => Ok(pre),
        // Where nothing is merged, it makes no difference where text is cut.
        None if is_without_merges && found.1.is_null() && !found.2 => Ok(PreTokenizer::Gpt2),
        None => Err(unsupported(
            "pre-tokenizer in GGUF",
            &json["pre_tokenizer"].to_string(),
        )),
    }
}

/// A pre-tokenizer without what changes no token.
fn without_offsets(json: &Value) -> Value {
    match json {
        Value::Object(map) => map
            .iter()
            .filter(|(key, _)| *key != "trim_offsets")
            .map(|(key, value)| (key.clone(), without_offsets(value)))
            .collect(),
        Value::Array(list) => list.iter().map(without_offsets).collect(),
        other => other.clone(),
    }
}
