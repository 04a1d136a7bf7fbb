//! Answers as mathematics: LaTeX or plain text is read into an expression, and two expressions are
//! compared by what they say.
//!
//! - [`token`], [`signs`], [`repeating`], [`vocabulary`]: from text to tokens, whatever the spelling.
//! - [`parser`] with [`factors`], [`powers`], [`primary`], [`numerals`], [`functions`], [`brackets`],
//!   [`quantity`], and [`answer`]: from tokens to an expression. What can't be read whole isn't read
//!   at all.
//! - [`compare`], [`intervals`], [`matrices`], [`names`], [`measured`], [`units`]: structures, part by
//!   part.
//! - [`decide`]: single values, by [`evaluate`] with exact rationals and with intervals of any
//!   precision ([`number`], [`real`], [`elementary`]).
//! - [`budget`]: what a comparison may cost.
//!
//! `docs/verifier.md` says what counts as equal.

mod answer;
mod brackets;
mod budget;
mod compare;
mod decide;
mod elementary;
mod evaluate;
mod exact;
mod expression;
mod factors;
mod functions;
mod intervals;
mod matrices;
mod measured;
mod names;
mod number;
mod numerals;
mod parser;
mod powers;
mod primary;
mod quantity;
mod real;
mod repeating;
mod signs;
mod token;
mod units;
mod vocabulary;

use budget::Budget;
use decide::Decider;
use expression::Expr;
use token::Kind;

use super::{Allowance, Comparison, Outcome};

/// A text that can't be read as an answer from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unread;

/// Compares the text of an answer with that of the gold answer.
pub(super) fn compare(gold: &str, answer: &str) -> Comparison {
    if squeezed(gold) == squeezed(answer) {
        return Comparison::from(Outcome::Equal);
    }
    if gold.len().max(answer.len()) > token::MAX_TEXT {
        return Comparison::from(Outcome::Undecided);
    }
    let gold_expr = answer::read(gold);
    let is_same_text = match gold_expr {
        Ok(Expr::Text(_)) => words(gold) == words(answer),
        // Every sign counts in what isn't understood.
        Err(Unread) => without_text_commands(gold) == without_text_commands(answer),
        Ok(_) => false,
    };
    if is_same_text && !words(gold).is_empty() {
        return Comparison::from(Outcome::Equal);
    }
    let Ok(gold_expr) = gold_expr else {
        // Only ever equal to the same text.
        return Comparison::from(Outcome::Different);
    };
    let Ok(answer_expr) = answer::read(answer) else {
        return Comparison::from(Outcome::Unreadable);
    };
    let budget = Budget::new();
    let decider = Decider::new(&budget, [gold, answer]);
    compare::compare(&gold_expr, &answer_expr, &decider)
}

/// Whether a text is an answer and nothing else: it can be read, and has no words but units and
/// connectives, or is a single word.
pub(super) fn is_answer(text: &str) -> bool {
    let Ok(tokens) = token::tokens(without_full_stop(text)) else {
        return false;
    };
    if is_phrase(text) {
        return true;
    }
    let is_word = |kind: &Kind| matches!(kind, Kind::Word(_));
    let is_prose = tokens.len() > 1
        && tokens.iter().enumerate().any(|(index, token)| {
            let Kind::Word(word) = &token.kind else {
                return false;
            };
            let before = index.checked_sub(1).map(|before| &tokens[before].kind);
            let follows_value = match before {
                // Words behind a comma or in brackets are an aside.
                Some(Kind::Sign(sign)) => !matches!(sign, '(' | ',' | ';' | '.' | '=' | '-'),
                other => matches!(other, Some(Kind::Number(_) | Kind::Command(_))),
            };
            let is_spaced = token.is_spaced || matches!(before, None | Some(Kind::Sign(_)));
            is_spaced && !follows_value && !vocabulary::is_known_word(word)
                || before.is_some_and(is_word)
                    && !vocabulary::is_known_word(word)
                    && !units::is_unit(word)
        });
    let has_substance = tokens
        .iter()
        .any(|token| !matches!(token.kind, Kind::Sign(_) | Kind::Row));
    has_substance && !is_prose && answer::read(text).is_ok()
}

/// Phrases that are answers, such as "no solution".
fn is_phrase(text: &str) -> bool {
    const STARTS: [&str; 11] = [
        "no ",
        "none",
        "not ",
        "dne",
        "does not exist",
        "do not exist",
        "undefined",
        "all ",
        "infinitely many",
        "never",
        "cannot be determined",
    ];
    let text = text.trim().trim_end_matches('.').to_lowercase();
    let words = text.split_whitespace().count();
    let is_plain = text.chars().all(|c| c.is_ascii_alphabetic() || c == ' ');
    words <= 4 && is_plain && STARTS.iter().any(|start| text.starts_with(start))
}

/// The text without the full stop of the sentence around it. Three dots that say that a decimal or a
/// list goes on are part of the answer.
fn without_full_stop(text: &str) -> &str {
    let text = text.trim();
    let rest = text.trim_end_matches(['.', ' ', '\n']);
    let goes_on = || {
        let before = rest.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_decimal = before.len() < rest.len() && before.ends_with('.');
        is_decimal || rest.ends_with([',', ';', '+', '-', '='])
    };
    if text[rest.len()..].contains("...") && goes_on() {
        return text;
    }
    rest
}

/// The text without the white space and dollar signs around and in it.
fn squeezed(text: &str) -> String {
    without_full_stop(text)
        .chars()
        .filter(|c| !c.is_whitespace() && *c != '$')
        .collect()
}

/// Letters and digits of a text.
fn words(text: &str) -> String {
    let mut words = without_text_commands(text);
    words.retain(char::is_alphanumeric);
    words
}

/// A text in lower case, without white space and the commands that set it upright.
fn without_text_commands(text: &str) -> String {
    let mut plain = token::plain(without_full_stop(text));
    for command in [
        "\\textbf",
        "\\textit",
        "\\textnormal",
        "\\text",
        "\\mathrm",
        "\\mbox",
    ] {
        while let Some(at) = plain.find(&format!("{command}{{")) {
            let inside = at + command.len() + 1;
            let Some(length) = plain[inside..].find('}') else {
                break;
            };
            let content = plain[inside..inside + length].to_owned();
            plain.replace_range(at..=inside + length, &content);
        }
    }
    plain.retain(|c| !c.is_whitespace());
    plain.to_lowercase()
}

#[cfg(test)]
mod tests;
