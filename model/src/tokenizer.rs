//! Text to token ids and back, for byte-level BPE vocabularies (GPT-2, SmolLM2, Qwen2 and 3,
//! Llama 3), read from a `tokenizer.json` or from the metadata of a GGUF file.
//!
//! Nothing here ever adds a start or end token: a chat template writes them into the text, and
//! adding another is a classic way to ruin a prompt. Special tokens in text are recognised by
//! [`Tokenizer::encode`], which is right for what a template rendered and wrong for anything a
//! model, a tool or a data set wrote. For those there is [`Tokenizer::encode_plain`], and
//! [`Tokenizer::encode_rendered`] for a conversation that mixes both.

mod alphabet;
mod encoded;
mod error;
mod gguf;
mod stream;
mod to_gguf;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use candle_core::quantized::gguf_file;
use serde::Deserialize;
use serde_json::Value;
use tokenizers::{
    AddedVocabulary, DecoderWrapper, Model, ModelWrapper, NormalizerWrapper, OffsetReferential,
    OffsetType, PostProcessorWrapper, PreTokenizer,
};

use crate::chat_template::Rendered;
pub use encoded::{Encoded, SpecialMatch};
pub use error::TokenizerError;
pub use stream::TokenStream;

/// A byte-level BPE tokenizer. Immutable, and shared between threads by reference.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The added tokens of `inner`, set up so that special ones are not recognised in text. Kept
    /// beside it because a second whole tokenizer would double a vocabulary of 150,000 tokens.
    plain: AddedVocabulary,
    /// Token text by id; `None` for a gap in the vocabulary.
    texts: Vec<Option<String>>,
    /// The text bytes of all tokens, one after the other.
    bytes: Vec<u8>,
    /// Where each token's bytes end in `bytes`.
    ends: Vec<usize>,
    /// Special tokens, by id.
    special: Vec<bool>,
    bos: Option<u32>,
    eos: Option<u32>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("bos", &self.bos)
            .field("eos", &self.eos)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Reads a `tokenizer.json`. The start and end tokens come from `tokenizer_config.json` in the
    /// same folder, where there is one.
    ///
    /// # Errors
    /// A file that is not readable or not a tokenizer, and any tokenizer but byte-level BPE.
    pub fn from_file(path: &Path) -> Result<Self, TokenizerError> {
        let mut tokenizer = Self::from_json(&read(path)?)?;
        let config = path.with_file_name("tokenizer_config.json");
        if config.exists() {
            let config: Value = serde_json::from_slice(&read(&config)?).map_err(|source| {
                TokenizerError::Parse {
                    source: source.into(),
                }
            })?;
            tokenizer.bos = tokenizer.configured(&config["bos_token"]);
            tokenizer.eos = tokenizer.configured(&config["eos_token"]);
        }
        Ok(tokenizer)
    }

    /// Reads the text of a `tokenizer.json`, which does not say which tokens start and end a text.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    pub fn from_json(json: &[u8]) -> Result<Self, TokenizerError> {
        let parse = |source: serde_json::Error| TokenizerError::Parse {
            source: source.into(),
        };
        let declared: DeclaredTokens = serde_json::from_slice(json).map_err(parse)?;
        Self::build(serde_json::from_slice(json).map_err(parse)?, &declared)
    }

    /// Reads the tokenizer from the metadata of a GGUF file: a GPT-2 style vocabulary with the
    /// pre-tokenizers `smollm`, `qwen2`, `llama-bpe` and `gpt-2` and their aliases.
    ///
    /// Tokens of type control (3) become special tokens; user-defined ones (4), such as
    /// `<think>`, are recognised in text but are ordinary text when decoded. Converters also mark
    /// tokens as control that the original `tokenizer.json` does not call special, for example
    /// `<|fim_prefix|>` of Qwen.
    ///
    /// # Errors
    /// Missing or malformed keys, another tokenizer model, and an unknown pre-tokenizer, by name.
    pub fn from_gguf(metadata: &HashMap<String, gguf_file::Value>) -> Result<Self, TokenizerError> {
        let description = gguf::describe(metadata)?;
        let parse = |source: serde_json::Error| TokenizerError::Parse {
            source: source.into(),
        };
        let declared = DeclaredTokens::deserialize(&description.json).map_err(parse)?;
        let inner = serde_json::from_value(description.json).map_err(parse)?;
        let tokenizer = Self::build(inner, &declared)?;
        Ok(Self {
            bos: description.bos,
            eos: description.eos,
            ..tokenizer
        })
    }

    fn build(
        mut inner: tokenizers::Tokenizer,
        declared: &DeclaredTokens,
    ) -> Result<Self, TokenizerError> {
        match inner.get_model() {
            ModelWrapper::BPE(bpe) if bpe.dropout.is_none_or(|dropout| dropout == 0.0) => {}
            ModelWrapper::BPE(_) => return Err(unsupported("tokenizer model", "BPE with dropout")),
            other => return Err(unsupported("tokenizer model", &kind(other))),
        }
        match inner.get_decoder() {
            Some(DecoderWrapper::ByteLevel(_)) => {}
            Some(other) => return Err(unsupported("decoder", &kind(other))),
            None => return Err(unsupported("decoder", "none")),
        }
        for token in &declared.added_tokens {
            let actual = inner.token_to_id(&token.content);
            if actual != Some(token.id) {
                return Err(TokenizerError::IdMismatch {
                    token: token.content.clone(),
                    expected: token.id,
                    actual,
                });
            }
        }
        // What these would do is never wanted here: post-processing adds special tokens and trims
        // the byte ranges, the others change the length.
        inner.with_post_processor(None::<PostProcessorWrapper>);
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|source| TokenizerError::Parse { source })?;

        let mut plain = inner.get_added_vocabulary().clone();
        plain.set_encode_special_tokens(true);

        let vocabulary = inner.get_vocab(true);
        let size = vocabulary.values().max().map_or(0, |id| *id as usize + 1);
        let mut texts = vec![None; size];
        for (text, id) in vocabulary {
            texts[id as usize] = Some(text);
        }
        let added = inner.get_added_tokens_decoder();
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(size));
        let mut special = vec![false; size];
        for (id, text) in texts.iter().enumerate() {
            let added_token = u32::try_from(id).ok().and_then(|id| added.get(&id));
            if let Some(token) = added_token {
                special[id] = token.special;
                // Added tokens stand for their own text, even where it looks like the alphabet.
                bytes.extend_from_slice(token.content.as_bytes());
            } else if let Some(text) = text {
                bytes.extend_from_slice(&alphabet::token_bytes(text));
            }
            ends.push(bytes.len());
        }
        Ok(Self {
            inner,
            plain,
            texts,
            bytes,
            ends,
            special,
            bos: None,
            eos: None,
        })
    }

    /// The id of a token named in `tokenizer_config.json`, either as text or as an object.
    fn configured(&self, entry: &Value) -> Option<u32> {
        let text = entry.as_str().or_else(|| entry["content"].as_str())?;
        self.id_of(text)
    }

    /// Encodes text in which special tokens are meant as such. Adds none of its own.
    ///
    /// Bytes that the vocabulary has no token for are left out, as the reference does: SmolLM2
    /// lacks 21 bytes, among them some control characters.
    ///
    /// # Errors
    /// Only a tokenizer that contradicts itself.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        Ok(self
            .run(self.inner.get_added_vocabulary(), text, OffsetType::None)?
            .get_ids()
            .into())
    }

    /// Encodes text that nobody vouches for: `<|im_end|>` in it becomes the tokens of its
    /// characters. The result never contains a special id. Added tokens that are not special, such
    /// as `<think>`, are still recognised.
    ///
    /// # Errors
    /// Only a tokenizer that contradicts itself.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        Ok(self.plain(text, OffsetType::None)?.ids)
    }

    /// Like [`encode`](Self::encode), with the byte range of each token.
    ///
    /// # Errors
    /// Only a tokenizer that contradicts itself.
    pub fn encode_with_ranges(&self, text: &str) -> Result<Encoded, TokenizerError> {
        let encoding = self.run(self.inner.get_added_vocabulary(), text, OffsetType::Byte)?;
        Ok(encoded(&encoding))
    }

    /// Encodes a rendered conversation: special tokens the template wrote become their ids, those
    /// that were in a message stay text. Without any in a message the result equals
    /// [`encode_with_ranges`](Self::encode_with_ranges). The loss mask is
    /// `encoded.mask(&rendered.generation)`.
    ///
    /// # Errors
    /// Only a tokenizer that contradicts itself.
    pub fn encode_rendered(&self, rendered: &Rendered) -> Result<Encoded, TokenizerError> {
        if rendered.literal.is_empty() {
            return self.encode_with_ranges(&rendered.text);
        }
        let mut result = Encoded::default();
        let mut position = 0;
        let append = |range: Range<usize>, result: &mut Encoded| {
            let part = self.plain(&rendered.text[range.clone()], OffsetType::Byte)?;
            let shift = |part: Range<usize>| range.start + part.start..range.start + part.end;
            result.ids.extend(part.ids);
            result.ranges.extend(part.ranges.into_iter().map(shift));
            Ok(())
        };
        for special in self.find_special(&rendered.text) {
            let overlaps = |literal: &Range<usize>| {
                literal.start < special.range.end && special.range.start < literal.end
            };
            if rendered.literal.iter().any(overlaps) {
                continue;
            }
            append(position..special.range.start, &mut result)?;
            position = special.range.end;
            result.ids.push(special.id);
            result.ranges.push(special.range);
        }
        append(position..rendered.text.len(), &mut result)?;
        Ok(result)
    }

    /// All special tokens that [`encode`](Self::encode) would recognise in `text`, in order.
    pub fn find_special(&self, text: &str) -> Vec<SpecialMatch> {
        let pieces = self
            .inner
            .get_added_vocabulary()
            .extract_and_normalize(None::<&NormalizerWrapper>, text);
        pieces
            .get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .filter_map(|(_, (start, end), tokens)| {
                let id = tokens.as_ref()?.first()?.id;
                self.is_special(id).then_some(SpecialMatch {
                    id,
                    range: start..end,
                })
            })
            .collect()
    }

    /// Decodes ids. With `skip_special`, special tokens decode to nothing; ids outside the
    /// vocabulary always do. Bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let bytes: Vec<u8> = ids
            .iter()
            .filter(|id| !(skip_special && self.is_special(**id)))
            .flat_map(|id| self.token_bytes(*id).unwrap_or_default())
            .copied()
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Checks that ids begin with at most one start token.
    ///
    /// # Errors
    /// [`TokenizerError::RepeatedStart`].
    pub fn check_start(&self, ids: &[u32]) -> Result<(), TokenizerError> {
        let Some(bos) = self.bos else { return Ok(()) };
        let count = ids.iter().take_while(|id| **id == bos).count();
        if count > 1 {
            let token = self.token_text(bos).unwrap_or_default().to_owned();
            return Err(TokenizerError::RepeatedStart { token, count });
        }
        Ok(())
    }

    /// One more than the highest id. A model's embedding may have more rows than that.
    pub fn vocab_size(&self) -> usize {
        self.texts.len()
    }

    /// The id of a token, given as it is written in the vocabulary (`Ġthe`, `<|im_end|>`).
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// A token as it is written in the vocabulary.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize)?.as_deref()
    }

    /// The bytes of text a token stands for, possibly only a part of a character.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let end = *self.ends.get(id)?;
        let start = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start..end])
    }

    /// Whether `id` is a special token.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }

    /// The texts of all special tokens, by id; what a [`RenderInput`] takes to guard messages.
    ///
    /// [`RenderInput`]: crate::chat_template::RenderInput
    pub fn special_tokens(&self) -> Vec<String> {
        let texts = self.texts.iter().zip(&self.special);
        texts
            .filter(|(_, special)| **special)
            .filter_map(|(text, _)| text.clone())
            .collect()
    }

    /// The token that starts a text, if the tokenizer names one.
    pub fn bos_id(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text, if the tokenizer names one.
    pub fn eos_id(&self) -> Option<u32> {
        self.eos
    }

    /// The pipeline of the `tokenizers` crate with another set of added tokens.
    fn run(
        &self,
        added: &AddedVocabulary,
        text: &str,
        offsets: OffsetType,
    ) -> Result<tokenizers::Encoding, TokenizerError> {
        let encode = || {
            let mut pieces = added.extract_and_normalize(self.inner.get_normalizer(), text);
            if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
                pre_tokenizer.pre_tokenize(&mut pieces)?;
            }
            pieces.tokenize(|piece| self.inner.get_model().tokenize(piece.get()))?;
            pieces.into_encoding(None, 0, offsets)
        };
        encode().map_err(|source| TokenizerError::Encode { source })
    }

    fn plain(&self, text: &str, offsets: OffsetType) -> Result<Encoded, TokenizerError> {
        let encoding = encoded(&self.run(&self.plain, text, offsets)?);
        if !encoding.ids.iter().any(|id| self.is_special(*id)) {
            return Ok(encoding);
        }
        // A model that takes whole words from the vocabulary before merging (Llama 3) still finds
        // a special token that looks like a word. Spell it out in bytes.
        let mut result = Encoded::default();
        for (id, range) in encoding.ids.into_iter().zip(encoding.ranges) {
            if !self.is_special(id) {
                result.ids.push(id);
                result.ranges.push(range);
                continue;
            }
            for byte in self.token_bytes(id).unwrap_or_default() {
                let token = alphabet::byte_to_char(*byte).to_string();
                if let Some(id) = self.id_of(&token).filter(|id| !self.is_special(*id)) {
                    result.ids.push(id);
                    result.ranges.push(range.clone());
                }
            }
        }
        Ok(result)
    }
}

/// The added tokens of a `tokenizer.json` with the ids it gives them.
#[derive(Deserialize)]
struct DeclaredTokens {
    #[serde(default)]
    added_tokens: Vec<DeclaredToken>,
}

#[derive(Deserialize)]
struct DeclaredToken {
    id: u32,
    content: String,
}

fn read(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    std::fs::read(path).map_err(|source| TokenizerError::Read {
        path: path.into(),
        source,
    })
}

fn unsupported(part: &'static str, found: &str) -> TokenizerError {
    TokenizerError::Unsupported {
        part,
        found: found.to_owned(),
    }
}

/// The `type` of a part of a `tokenizer.json`.
fn kind(part: &impl serde::Serialize) -> String {
    let part = serde_json::to_value(part).unwrap_or_default();
    part["type"]
        .as_str()
        .unwrap_or("of unknown type")
        .to_owned()
}

fn encoded(encoding: &tokenizers::Encoding) -> Encoded {
    Encoded {
        ids: encoding.get_ids().into(),
        ranges: encoding
            .get_offsets()
            .iter()
            .map(|(start, end)| *start..*end)
            .collect(),
    }
}

#[cfg(test)]
mod tests;
