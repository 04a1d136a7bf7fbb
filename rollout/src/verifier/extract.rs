//! Finding the answer of a text.

use std::collections::HashMap;
use std::ops::Range;

use super::number::{self, Token};
use super::{Extracted, ExtractionRule};

const MARKS: [&str; 4] = ["answer is", "answer:", "answer =", "####"];

/// The number that a text gives as its answer.
pub(super) fn number_of(text: &str) -> Option<Extracted> {
    match boxed(text) {
        Boxed::Content(answer) => return found(answer, ExtractionRule::Boxed),
        Boxed::Ambiguous => return None,
        Boxed::Nothing => {}
    }
    if let Some(statement) = statement(text)
        && let Some(answer) = number_of_statement(statement)
    {
        return answer.and_then(|answer| found(&answer, ExtractionRule::AnswerIs));
    }
    found(last_number(last_line(text)?)?, ExtractionRule::LastNumber)
}

/// The text that a text gives as its answer.
pub(super) fn text_of(text: &str) -> Option<Extracted> {
    match boxed(text) {
        Boxed::Content(answer) => return found(answer, ExtractionRule::Boxed),
        Boxed::Ambiguous => return None,
        Boxed::Nothing => {}
    }
    if let Some(statement) = statement(text)
        && let Some(line) = statement
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty())
    {
        let answer = line.split(". ").next().unwrap_or(line);
        return found(answer.trim_end_matches('.'), ExtractionRule::AnswerIs);
    }
    found(last_line(text)?, ExtractionRule::LastLine)
}

fn found(answer: &str, rule: ExtractionRule) -> Option<Extracted> {
    let answer = answer.trim();
    (!answer.is_empty()).then(|| Extracted {
        answer: answer.to_owned(),
        rule,
    })
}

enum Boxed<'a> {
    Content(&'a str),
    /// `\boxed{203} or \boxed{204}`.
    Ambiguous,
    Nothing,
}

/// A box that has an end and a content.
pub(super) struct BoxedText<'a> {
    /// Where its command starts.
    pub(super) start: usize,
    /// Where what follows it starts.
    pub(super) end: usize,
    pub(super) content: &'a str,
}

/// The last box that has an end and a content.
fn boxed(text: &str) -> Boxed<'_> {
    match boxes(text).as_slice() {
        [] => Boxed::Nothing,
        [.., before, last] if is_or(&text[before.end..last.start]) => Boxed::Ambiguous,
        [.., last] => Boxed::Content(last.content),
    }
}

/// All boxes that have an end and a content; of nested ones the outer.
pub(super) fn boxes(text: &str) -> Vec<BoxedText<'_>> {
    const BOX: &str = "\\boxed";
    let mut boxes = Vec::new();
    let mut from = 0;
    let mut ends = None;
    while let Some(offset) = text[from..].find(BOX) {
        let start = from + offset;
        let rest = &text[start + BOX.len()..];
        let open = start + BOX.len() + (rest.len() - rest.trim_start().len());
        from = open;
        if !text[open..].starts_with('{') {
            continue;
        }
        let ends = ends.get_or_insert_with(|| brace_ends(text));
        let Some(&end) = ends.get(&open) else {
            continue;
        };
        let content = &text[open + 1..end];
        from = end + 1;
        if !content.trim().is_empty() {
            boxes.push(BoxedText {
                start,
                end: end + 1,
                content,
            });
        }
    }
    boxes
}

/// For every opening brace that is closed, where that is.
fn brace_ends(text: &str) -> HashMap<usize, usize> {
    let mut ends = HashMap::new();
    let mut open = Vec::new();
    let mut is_escaped = false;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'{' => open.push(index),
            b'}' => {
                if let Some(start) = open.pop() {
                    ends.insert(start, index);
                }
            }
            _ => {}
        }
    }
    ends
}

/// Whether nothing but an "or" stands in a text.
fn is_or(text: &str) -> bool {
    let words = text.trim_matches(|c: char| !c.is_alphanumeric());
    words.eq_ignore_ascii_case("or")
}

/// What follows the last mark of an answer.
fn statement(text: &str) -> Option<&str> {
    // ASCII only, so that positions stay.
    let lower = text.to_ascii_lowercase();
    let ends = MARKS
        .iter()
        .filter_map(|mark| Some(lower.rfind(mark)? + mark.len()));
    let rest = ends.max().map(|end| &text[end..])?;
    Some(rest.trim_start_matches(|c: char| c == ':' || c.is_whitespace()))
}

/// The number of a statement's first sentence; what follows the last `=` where there is one.
/// `Some(None)` is an answer that offers alternatives.
pub(super) fn number_of_statement(statement: &str) -> Option<Option<String>> {
    let line = statement.lines().next()?;
    let sentence = line.split(". ").next().unwrap_or(line);
    let value = sentence.rsplit('=').next().unwrap_or(sentence);
    let tokens = number::tokens(value);
    let first = tokens.first()?;
    if is_alternative(value, &tokens) {
        return Some(None);
    }
    Some(Some(value[first.range.clone()].to_owned()))
}

/// Whether two numbers stand on either side of an "or".
fn is_alternative(text: &str, tokens: &[Token]) -> bool {
    tokens
        .windows(2)
        .any(|pair| is_or(&text[pair[0].range.end..pair[1].range.start]))
}

/// The last number of a line; none where it is one of two, or something else than a value.
pub(super) fn last_number(line: &str) -> Option<&str> {
    let tokens = number::tokens(line);
    let (last, earlier) = tokens.split_last()?;
    let Range { start, end } = last.range.clone();
    let is_pair = earlier
        .last()
        .is_some_and(|token| line[token.range.end..start].trim().is_empty());
    let is_value = !is_pair
        && !is_alternative(line, &tokens)
        && !is_bound(&line[..start])
        && !line[end..].trim_start().starts_with('^');
    is_value.then(|| &line[start..end])
}

/// Whether what stands before a number makes it a bound, an exponent, or what the answer is not.
fn is_bound(before: &str) -> bool {
    let before = before.trim_end();
    let is_arrow = ["->", "=>"].iter().any(|arrow| before.ends_with(arrow));
    let is_sign = ["<", ">", "<=", ">=", "!=", "≤", "≥", "≠", "^"]
        .iter()
        .any(|sign| before.ends_with(sign));
    let word = before.rsplit(char::is_whitespace).next().unwrap_or("");
    is_sign && !is_arrow || word.eq_ignore_ascii_case("not") || word.ends_with("n't")
}

/// The last line that isn't markup alone.
pub(super) fn last_line(text: &str) -> Option<&str> {
    let mut lines = text.lines().rev().map(str::trim);
    lines.find(|line| line.contains(char::is_alphanumeric))
}
