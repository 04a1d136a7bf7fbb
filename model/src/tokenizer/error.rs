//! What can go wrong with a tokenizer.

use std::path::PathBuf;

/// Why a tokenizer could not be loaded or used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The description is not a tokenizer.
    #[error("not a valid tokenizer description")]
    Parse {
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The tokenizer works in a way this crate does not handle.
    #[error("unsupported {part}: {found}")]
    Unsupported {
        /// The part of the tokenizer.
        part: &'static str,
        /// What it is.
        found: String,
    },
    /// `tokenizer.ggml.pre` names a pre-tokenizer whose rules are not known here. Guessing would
    /// yield plausible but wrong ids.
    #[error("unknown pre-tokenizer {name:?} in tokenizer.ggml.pre")]
    UnknownPreTokenizer {
        /// The name in the file.
        name: String,
    },
    /// A key is absent from the GGUF metadata.
    #[error("metadata key {key} is missing")]
    MissingMetadata {
        /// The key.
        key: &'static str,
    },
    /// A key of the GGUF metadata holds something else than it should.
    #[error("metadata key {key} should hold {expected}")]
    BadMetadata {
        /// The key.
        key: &'static str,
        /// What should be there.
        expected: &'static str,
    },
    /// An added token would get another id than its description says.
    #[error("added token {token:?} should have the id {expected} but has {actual:?}")]
    IdMismatch {
        /// The token.
        token: String,
        /// The id in the description.
        expected: u32,
        /// The id it would get.
        actual: Option<u32>,
    },
    /// The beginning-of-text token is there more than once.
    #[error("the text begins with {count} start tokens {token:?}")]
    RepeatedStart {
        /// The start token.
        token: String,
        /// How often it stands at the beginning.
        count: usize,
    },
    /// The text could not be split into tokens.
    #[error("cannot encode the text")]
    Encode {
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
