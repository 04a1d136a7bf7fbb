//! What a sentence says of printing.

use super::{NEGATIONS, is_unfit, tokens};

const PRINT: [&str; 3] = ["print", "prints", "printing"];

/// Whether a sentence says that a program needn't print, or mustn't. One that says what comes of a
/// program without it doesn't.
pub(in crate::rules) fn forbids_print(sentence: &str) -> bool {
    /// What follows is about a part of what is printed, or a condition.
    const PARTS: [&str; 14] = [
        "else",
        "but",
        "more",
        "than",
        "only",
        "other",
        "again",
        "twice",
        "steps",
        "intermediate",
        "text",
        "words",
        "units",
        "until",
    ];
    const CONDITIONS: [&str; 12] = [
        "if", "unless", "when", "whenever", "what", "whatever", "that", "which", "nothing",
        "nobody", "lost", "unseen",
    ];
    const NOT: [&str; 6] = ["never", "not", "don't", "needn't", "avoid", "instead"];
    const BETWEEN: [&str; 8] = ["need", "to", "use", "call", "the", "any", "of", "bother"];
    let tokens = tokens(sentence);
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let is_said = |at: usize| PRINT.contains(&tokens[at]);
    if !(0..tokens.len()).any(is_said) || tokens.iter().any(|token| CONDITIONS.contains(token)) {
        return false;
    }
    let is_outdated = tokens.windows(3).any(|words| {
        words[..2] == ["no", "longer"] && matches!(words[2], "needed" | "necessary" | "required")
    });
    let is_no_need = tokens.windows(2).any(|words| words == ["no", "need"]);
    let is_refused = (0..tokens.len()).filter(|at| is_said(*at)).any(|at| {
        let mut before = tokens[..at]
            .iter()
            .rev()
            .skip_while(|t| BETWEEN.contains(t));
        let is_not = before.next().is_some_and(|token| NOT.contains(token));
        // Turned around twice: "never end instead of printing".
        let is_turned = before.any(|token| NEGATIONS.contains(token));
        is_not && !is_turned && !tokens[at..].iter().any(|token| PARTS.contains(token))
    });
    is_outdated || is_no_need || is_unfit(&tokens) || is_refused
}

/// Whether a sentence asks programs to print something beside the result.
pub(in crate::rules) fn asks_to_print_more(sentence: &str) -> bool {
    const MORE: [&str; 16] = [
        "each",
        "every",
        "all",
        "step",
        "steps",
        "intermediate",
        "partial",
        "also",
        "both",
        "below",
        "above",
        "beneath",
        "then",
        "followed",
        "afterwards",
        "too",
    ];
    let tokens = tokens(sentence);
    let is_turned = tokens
        .iter()
        .any(|token| NEGATIONS.contains(&token.as_str()) || token == "only" || token == "nothing");
    let mut after = tokens
        .iter()
        .skip_while(|token| !PRINT.contains(&token.as_str()));
    !is_turned && after.any(|token| MORE.contains(&token.as_str()))
}
