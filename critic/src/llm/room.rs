//! How the context of the critic's model is divided.
//!
//! A conversation carries, besides the last reply: the instructions with the schema, the digest,
//! for every round of excerpts the request and its answer, and at the end what was wrong with a reply.
//! All but digest and excerpts has a known size; these two share what is left.

use super::LlmOptions;
use super::digest;
use super::text::{CHARS_PER_TOKEN, length};

/// What a chat template puts around a message.
const MESSAGE_CHARS: usize = 24;
/// Fewest characters of a share that show anything.
const FEWEST_SHARE: usize = 800;

/// Room that texts may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// The digest.
    pub(crate) digest: usize,
    /// One answer with excerpts.
    pub(crate) excerpts: usize,
}

impl Room {
    /// What `options` leave for each; nothing if that is too little for the rest.
    pub(crate) fn of(options: &LlmOptions) -> Self {
        let whole = CHARS_PER_TOKEN.saturating_mul(options.prompt_tokens);
        let share = whole.saturating_sub(fixed_chars(options)) / shares(options);
        Room {
            digest: 2 * share,
            excerpts: share,
        }
    }
}

/// Equal shares of what can be shown: the digest takes two.
fn shares(options: &LlmOptions) -> usize {
    options.excerpt_rounds as usize + 2
}

/// Characters of everything but digest and excerpts.
fn fixed_chars(options: &LlmOptions) -> usize {
    let rounds = options.excerpt_rounds as usize;
    let system = length(&digest::system(options.most_findings));
    system + MESSAGE_CHARS * (2 + 2 * rounds) + digest::ASKED_CHARS * rounds + digest::AGAIN_CHARS
}

/// An estimate of the tokens of `messages` as one prompt.
#[cfg(test)]
pub(crate) fn prompt_tokens(messages: &[rollout::Message]) -> usize {
    let chars = messages
        .iter()
        .map(|message| length(&message.content) + MESSAGE_CHARS);
    chars.sum::<usize>().div_ceil(CHARS_PER_TOKEN)
}

impl LlmOptions {
    /// Tokens of instructions, schema, requests for excerpts and complaints.
    pub fn fixed_tokens(&self) -> usize {
        fixed_chars(self).div_ceil(CHARS_PER_TOKEN)
    }

    /// Fewest tokens in which the digest and the answers with excerpts show anything.
    pub fn fewest_shown_tokens(&self) -> usize {
        (FEWEST_SHARE * shares(self)).div_ceil(CHARS_PER_TOKEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fill_the_room_and_no_more() {
        for (prompt_tokens, excerpt_rounds) in [(3072, 2), (3072, 0), (14_336, 2), (100_000, 16)] {
            let options = LlmOptions {
                prompt_tokens,
                excerpt_rounds,
                ..LlmOptions::default()
            };
            let room = Room::of(&options);
            let shown = room.digest + room.excerpts * excerpt_rounds as usize;
            let whole = fixed_chars(&options) + shown;
            let most = CHARS_PER_TOKEN * prompt_tokens;
            assert!(whole <= most && most - whole < shares(&options), "{whole}");
            assert!(room.excerpts >= FEWEST_SHARE, "{room:?}");
        }
        let tiny = LlmOptions {
            prompt_tokens: 100,
            ..LlmOptions::default()
        };
        assert_eq!(Room::of(&tiny).digest, 0);
    }

    #[test]
    fn what_is_called_enough_is_enough() {
        for excerpt_rounds in [0, 1, 2, 16] {
            let options = LlmOptions {
                excerpt_rounds,
                ..LlmOptions::default()
            };
            let enough = options.fixed_tokens() + options.fewest_shown_tokens();
            let room = Room::of(&LlmOptions {
                prompt_tokens: enough,
                ..options
            });
            assert!(room.excerpts >= FEWEST_SHARE, "{room:?}");
        }
    }
}
