//! Incremental decoding: text as soon as it is complete, never half a character.

use super::Tokenizer;

/// Decodes one reply token by token. The pieces of all [`push`](Self::push) calls and of
/// [`finish`](Self::finish), joined, equal [`Tokenizer::decode`] of all ids.
///
/// The tokenizer is passed in rather than borrowed for the life of the stream, so that a decoding
/// engine can keep one stream for each running sequence.
#[derive(Debug, Clone, Default)]
pub struct TokenStream {
    skip_special: bool,
    /// The start of a character whose last bytes have not arrived; at most three bytes.
    pending: Vec<u8>,
}

impl TokenStream {
    /// A stream at the start of a text. With `skip_special`, special tokens decode to nothing.
    pub fn new(skip_special: bool) -> Self {
        Self {
            skip_special,
            pending: Vec::new(),
        }
    }

    /// Takes the next id and returns the text that has become complete, which is often empty
    /// within a character of several bytes. Bytes that cannot become UTF-8 turn into U+FFFD.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        if !(self.skip_special && tokenizer.is_special(id)) {
            self.pending
                .extend_from_slice(tokenizer.token_bytes(id).unwrap_or_default());
        }
        let mut text = String::new();
        let mut consumed = 0;
        loop {
            let rest = &self.pending[consumed..];
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    consumed = self.pending.len();
                    break;
                }
                Err(error) => {
                    let valid = &rest[..error.valid_up_to()];
                    text.push_str(&String::from_utf8_lossy(valid));
                    consumed += valid.len();
                    match error.error_len() {
                        // A later token can still complete these bytes.
                        None => break,
                        Some(invalid) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            consumed += invalid;
                        }
                    }
                }
            }
        }
        self.pending.drain(..consumed);
        text
    }

    /// Ends the stream: what is left of an unfinished character, as U+FFFD.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}
