//! A request that is being decoded: its tokens, its text, and when it ends.

use super::adjustment::Adjuster;
use super::engine::Reply;
use super::pool::BlockId;
use super::request::{Controls, Finish, GenerationRequest, Piece};
use super::sampler::{Sampler, TokenLogprob, logprob, top_logprobs};
use crate::tokenizer::{TokenStream, Tokenizer};

/// A request with blocks.
pub(super) struct Active {
    pub(super) request: GenerationRequest,
    pub(super) controls: Controls,
    pub(super) reply: Reply,
    pub(super) sampler: Sampler,
    pub(super) adjuster: Adjuster,
    pub(super) stream: TokenStream,
    pub(super) blocks: Vec<BlockId>,
    pub(super) reserved: usize,
    /// Tokens whose keys and values are in the cache.
    pub(super) computed: usize,
    pub(super) cached: usize,
    /// Prompt and generated tokens.
    pub(super) tokens: Vec<u32>,
    pub(super) logprobs: Vec<f32>,
    pub(super) top_logprobs: Vec<Vec<TokenLogprob>>,
    pub(super) text: String,
    /// Bytes of the text that were given to `on_piece`.
    pub(super) told: usize,
}

/// The next token of a reply, and the most likely ones in its place.
pub(super) struct Chosen {
    sampled: TokenLogprob,
    top_logprobs: Vec<TokenLogprob>,
}

impl Active {
    /// Choose the next token from a row of logits.
    pub(super) fn choose(&mut self, logits: &[f32]) -> Result<Chosen, String> {
        Ok(Chosen {
            sampled: self.sample(logits)?,
            top_logprobs: top_logprobs(logits, self.controls.top_logprobs),
        })
    }

    fn sample(&mut self, logits: &[f32]) -> Result<TokenLogprob, String> {
        let constraint = &mut self.controls.constraint;
        if constraint.is_none() && self.adjuster.is_idle() {
            return Ok(self.sampler.sample(logits));
        }
        let mut adjusted = logits.to_vec();
        self.adjuster.adjust(&mut adjusted);
        // Last, so that no bias lets in what may not come.
        if let Some(constraint) = constraint {
            constraint.restrict(&mut adjusted)?;
        }
        let token = self.sampler.sample(&adjusted).token;
        if let Some(constraint) = constraint {
            constraint.accept(token)?;
        }
        let logprob = logprob(logits, token);
        Ok(TokenLogprob { token, logprob })
    }

    /// Take the next token; says whether the reply ends with it.
    pub(super) fn accept(&mut self, chosen: Chosen, tokenizer: &Tokenizer) -> Option<Finish> {
        let Chosen {
            sampled,
            top_logprobs,
        } = chosen;
        self.tokens.push(sampled.token);
        self.logprobs.push(sampled.logprob);
        self.adjuster.accept(sampled.token);
        let finish = if self.request.stop_tokens.contains(&sampled.token) {
            Some(Finish::StopToken)
        } else {
            self.extend(sampled.token, tokenizer)
        };
        if let Some(on_piece) = &mut self.controls.on_piece {
            let certain = match finish {
                Some(_) => self.text.len(),
                None => self.text.len() - held_back(&self.text, &self.request.stop_strings),
            };
            // A stop string may take back text, but never what was certain.
            let text = self.text[self.told..certain.max(self.told)].to_owned();
            self.told += text.len();
            on_piece(Piece {
                token: sampled.token,
                logprob: sampled.logprob,
                top_logprobs: top_logprobs.clone(),
                text,
            });
        }
        if self.controls.top_logprobs > 0 {
            self.top_logprobs.push(top_logprobs);
        }
        finish
    }

    /// Add a token's text.
    fn extend(&mut self, token: u32, tokenizer: &Tokenizer) -> Option<Finish> {
        let before = self.text.len();
        let piece = self.stream.push(tokenizer, token);
        self.text.push_str(&piece);
        // A stop string may begin in an earlier token.
        let longest = self
            .request
            .stop_strings
            .iter()
            .map(String::len)
            .max()
            .unwrap_or(0);
        let mut from = before.saturating_sub(longest);
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        let found = self.request.stop_strings.iter().filter(|s| !s.is_empty());
        if let Some(at) = found
            .filter_map(|s| self.text[from..].find(s.as_str()))
            .min()
        {
            self.text.truncate(from + at);
            return Some(Finish::StopString);
        }
        (self.logprobs.len() >= self.request.max_new).then_some(Finish::Length)
    }
}

/// Bytes at the end of `text` that may be the beginning of a stop string.
fn held_back(text: &str, stops: &[String]) -> usize {
    let longest = |stop: &String| {
        let most = text.len().min(stop.len().saturating_sub(1));
        (1..=most)
            .rev()
            .find(|length| {
                stop.is_char_boundary(*length)
                    && text.as_bytes().ends_with(&stop.as_bytes()[..*length])
            })
            .unwrap_or(0)
    };
    stops.iter().map(longest).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_stop_string_is_held_back() {
        let stops = ["```output".to_owned(), "\nQ:".to_owned(), String::new()];
        let check = |text: &str, held: usize| assert_eq!(held_back(text, &stops), held, "{text}");
        check("print(1)", 0);
        check("print(1)`", 1);
        check("```out", 6);
        check("a\n", 1);
        check("", 0);
        let stops = ["éa".to_owned()];
        assert_eq!(held_back("oé", &stops), 2);
    }
}
