//! Decoding that follows a grammar: what can't be said is never sampled.
//!
//! A [`GrammarCompiler`] knows a tokenizer's vocabulary; it turns a JSON Schema or a grammar in
//! llguidance's Lark dialect into a [`Constraint`] for one reply.

use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;

use crate::decode::Constraint;
use crate::tokenizer::Tokenizer;

/// Why a grammar can't be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// The vocabulary can't be used.
    #[error("no grammar can be followed with this tokenizer: {reason}")]
    Vocabulary {
        /// What is wrong.
        reason: String,
    },
    /// The grammar or schema is wrong, or uses what is not supported.
    #[error("the grammar can't be used: {reason}")]
    Grammar {
        /// What is wrong.
        reason: String,
    },
}

/// Turns grammars into constraints for replies of one tokenizer. Shared between threads.
pub struct GrammarCompiler {
    factory: ParserFactory,
}

impl std::fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarCompiler").finish_non_exhaustive()
    }
}

impl GrammarCompiler {
    /// A compiler for models with `vocabulary` logits whose replies end with one of `stop_tokens`.
    ///
    /// # Errors
    /// When there is no stop token: a grammar's end could not be told.
    pub fn new(
        tokenizer: &Tokenizer,
        vocabulary: usize,
        stop_tokens: &[u32],
    ) -> Result<Self, GrammarError> {
        let refuse = |reason: String| GrammarError::Vocabulary { reason };
        let Some(end) = stop_tokens.first() else {
            return Err(refuse("no stop token is named".into()));
        };
        let size = u32::try_from(vocabulary).map_err(|e| refuse(e.to_string()))?;
        let words: Vec<Vec<u8>> = (0..size)
            .map(|id| {
                let bytes = tokenizer.token_bytes(id).unwrap_or_default();
                // Special tokens are no text: the mark keeps them out of strings.
                let mark = tokenizer
                    .is_special(id)
                    .then_some(TokTrie::SPECIAL_TOKEN_MARKER);
                mark.into_iter().chain(bytes.iter().copied()).collect()
            })
            .collect();
        let trie = TokTrie::from(&TokRxInfo::new(size, *end), &words).with_eos_tokens(stop_tokens);
        let environment: TokEnv = Arc::new(Vocabulary(trie));
        let mut factory =
            ParserFactory::new_simple(&environment).map_err(|e| refuse(e.to_string()))?;
        factory.quiet();
        Ok(Self { factory })
    }

    /// A reply that is one JSON value of this schema.
    ///
    /// # Errors
    /// When the schema is wrong or uses what is not supported.
    pub fn json_schema(&self, schema: &Value) -> Result<Grammar, GrammarError> {
        self.compile(TopLevelGrammar::from_json_schema(schema.clone()))
    }

    /// A reply in the language of a grammar; `%json {…}` stands for a JSON value of a schema.
    ///
    /// # Errors
    /// When the grammar is wrong.
    pub fn lark(&self, grammar: &str) -> Result<Grammar, GrammarError> {
        self.compile(TopLevelGrammar::from_lark(grammar.to_owned()))
    }

    fn compile(&self, grammar: TopLevelGrammar) -> Result<Grammar, GrammarError> {
        let refuse = |reason: String| GrammarError::Grammar { reason };
        let parser = self.factory.create_parser(grammar);
        let matcher = Matcher::new(Ok(parser.map_err(|e| refuse(e.to_string()))?));
        match matcher.get_error() {
            Some(reason) => Err(refuse(reason)),
            None => Ok(Grammar(matcher)),
        }
    }
}

/// A vocabulary as the parser reads it.
struct Vocabulary(TokTrie);

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.0.greedy_tokenize(bytes)
    }

    // Tokens are never forced without the model's own choice between spellings.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// A grammar being followed by one reply.
pub struct Grammar(Matcher);

impl Clone for Grammar {
    /// A copy that goes on from the same place by itself: nothing is shared that two replies would
    /// wait for.
    fn clone(&self) -> Self {
        Self(self.0.deep_clone())
    }
}

impl std::fmt::Debug for Grammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}

impl Constraint for Grammar {
    fn restrict(&mut self, logits: &mut [f32]) -> Result<(), String> {
        let mask = self.0.compute_mask_or_eos().map_err(|e| e.to_string())?;
        let mut is_open = false;
        for (token, logit) in logits.iter_mut().enumerate() {
            if token < mask.len() && mask.get(token) {
                is_open = true;
            } else {
                *logit = f32::NEG_INFINITY;
            }
        }
        if is_open {
            Ok(())
        } else {
            Err("no token may come next".into())
        }
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        // After the end only a stop token comes, which the parser has no place for.
        if self.0.is_stopped() && !self.0.is_error() {
            return Ok(());
        }
        self.0.consume_token(token).map_err(|e| e.to_string())
    }
}
