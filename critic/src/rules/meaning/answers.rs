//! What a sentence says of giving the answer.

use super::{NEGATIONS, TOOL_WORDS, begin_with, has, plain, tokens};
use crate::rules::text::{has_any, is_among};

/// Whether a sentence may be about how to give the answer.
pub(in crate::rules) fn is_about_answer(sentence: &str) -> bool {
    const ABOUT: &str = "answer answers result results output amount amounts number numbers figure \
                         figures value values total totals outcome outcomes sum sums quantity \
                         quantities solution solutions boxed reply report state finish quote \
                         printed prints";
    has_any(&sentence.to_lowercase(), ABOUT)
}

/// Whether a sentence names a form that isn't a plain number.
pub(in crate::rules) fn names_other_form(sentence: &str) -> bool {
    const FORMS: &str = "letter letters option options choice choices word words spelled roman \
                         numerals binary hexadecimal json yaml xml table sentence sentences yes \
                         category label interval percent confidence symbols unit units equation \
                         formula currency noun estimate rhyme";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    // "A number without units", or a program that is written.
    let is_other = has(&tokens, NEGATIONS) || has(&tokens, TOOL_WORDS);
    !is_other && has_any(&plain, FORMS)
}

/// Whether a sentence asks not to give the answer.
pub(in crate::rules) fn withholds_answer(sentence: &str) -> bool {
    const VERBS: &str = "state give answer reveal tell write report show mention reply box say";
    const OTHER: &str =
        "else than unit units explain words without before unless if again comments";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    let mut pairs = tokens.windows(2);
    let is_refused =
        pairs.any(|pair| is_among(pair[0], "not don't never") && is_among(pair[1], VERBS));
    let mut triples = tokens.windows(3);
    let is_kept = triples.any(|words| words == ["to", "yourself", "."])
        || tokens.ends_with(&["to", "yourself"]);
    let is_other = has(&tokens, OTHER) || has(&tokens, TOOL_WORDS);
    (is_refused || is_kept) && !is_other && is_about_answer(sentence)
}

/// Whether a sentence asks for the answer in words, which no verifier reads as a number.
pub(in crate::rules) fn asks_for_words(sentence: &str) -> bool {
    const FORMS: [&str; 5] = [
        "in words",
        "as words",
        "in letters",
        "spelled out",
        "in roman numerals",
    ];
    const ANSWERS: &str = "answer answers result results number numbers";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    (1..tokens.len()).any(|at| {
        let is_said = begin_with(&tokens[at..], &FORMS) && is_among(tokens[at - 1], ANSWERS);
        is_said && !has(&tokens[..at], NEGATIONS)
    })
}
