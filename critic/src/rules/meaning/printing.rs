//! What a sentence says of printing.

use super::{NEGATIONS, has, is_unfit, plain, tokens};
use crate::rules::text::is_among;

const PRINT: &str = "print prints printing";

/// Whether a sentence says that a program needn't print, or mustn't. One that says what comes of a
/// program without it doesn't.
pub(in crate::rules) fn forbids_print(sentence: &str) -> bool {
    /// What follows is about a part of what is printed, or a condition.
    const PARTS: &str = "else but more than only other again twice steps intermediate text words \
                         units until";
    const CONDITIONS: &str = "if unless when whenever what whatever that which nothing nobody lost \
                              unseen";
    const NOT: &str = "never not don't needn't avoid instead";
    const BETWEEN: &str = "need to use call the any of bother";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    if !has(&tokens, PRINT) || has(&tokens, CONDITIONS) {
        return false;
    }
    let is_outdated = tokens.windows(3).any(|words| {
        words[..2] == ["no", "longer"] && is_among(words[2], "needed necessary required")
    });
    let is_no_need = tokens.windows(2).any(|words| words == ["no", "need"]);
    let is_refused = (0..tokens.len()).any(|at| {
        let (before, after) = tokens.split_at(at);
        let mut before = before
            .iter()
            .rev()
            .skip_while(|token| is_among(token, BETWEEN));
        let is_not = before.next().is_some_and(|token| is_among(token, NOT));
        // Turned around twice: "never end instead of printing".
        let is_turned = before.any(|token| is_among(token, NEGATIONS));
        is_among(tokens[at], PRINT) && is_not && !is_turned && !has(after, PARTS)
    });
    is_outdated || is_no_need || is_unfit(&tokens) || is_refused
}

/// Whether a sentence asks programs to print something beside the result.
pub(in crate::rules) fn asks_to_print_more(sentence: &str) -> bool {
    const MORE: &str = "each every all step steps intermediate partial also both below above \
                        beneath then followed afterwards too";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    let is_turned = has(&tokens, NEGATIONS) || has(&tokens, "only nothing");
    let mut after = tokens.iter().skip_while(|token| !is_among(token, PRINT));
    !is_turned && after.any(|token| is_among(token, MORE))
}
