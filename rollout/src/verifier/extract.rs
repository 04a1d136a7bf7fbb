//! Finding the answer of a text.

use std::ops::Range;

use super::boxes::boxes;
use super::number::{self, Number, Token};
use super::reply::said;
use super::{Extracted, ExtractionRule};

/// What comes before an answer, in lower case.
const MARKS: [&str; 4] = ["answer is", "answer:", "answer**:", "answer ="];
/// Statements looked at behind marks of one kind.
const STATEMENTS: usize = 3;
/// What GSM8K writes before an answer, and Markdown before a heading.
const HEADING: &str = "####";
/// Lines looked at for it, from the end.
const HEADING_LINES: usize = 200;

/// The number that a text without reasoning gives as its answer.
pub(super) fn number_of(text: &str) -> Option<Extracted> {
    let said = said(text);
    let text = said.text.as_str();
    if let Some(tagged) = tagged(text) {
        let inner = number_within(tagged, false)?;
        return found(&inner.answer, ExtractionRule::AnswerTag);
    }
    number_within(text, said.ends_in_program)
}

fn number_within(text: &str, ends_in_program: bool) -> Option<Extracted> {
    match boxed(text) {
        Boxed::Content(answer) => return found(&answer, ExtractionRule::Boxed),
        Boxed::Ambiguous => return None,
        Boxed::Nothing => {}
    }
    let is_value = |line: &str| Number::parse(line).is_some();
    for statement in statements(text, &MARKS, is_value) {
        if let Some(answer) = number_of_statement(statement) {
            return answer.and_then(|answer| found(&answer, ExtractionRule::AnswerIs));
        }
    }
    if ends_in_program {
        return None;
    }
    found(last_number(last_line(text)?)?, ExtractionRule::LastNumber)
}

/// The text that a text gives as its answer.
pub(super) fn text_of(text: &str) -> Option<Extracted> {
    match boxed(text) {
        Boxed::Content(answer) => return found(&answer, ExtractionRule::Boxed),
        Boxed::Ambiguous => return None,
        Boxed::Nothing => {}
    }
    let statements = statements(text, &MARKS, |line| !line.is_empty());
    if let Some(statement) = statements.first()
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

/// What stands between the last pair of answer tags.
pub(super) fn tagged(text: &str) -> Option<&str> {
    let start = text.rfind("<answer>")? + "<answer>".len();
    let length = text[start..]
        .find("</answer>")
        .unwrap_or(text.len() - start);
    Some(text[start..start + length].trim()).filter(|tagged| !tagged.is_empty())
}

enum Boxed {
    Content(String),
    /// `\boxed{203} or \boxed{204}`.
    Ambiguous,
    Nothing,
}

/// The last box that has an end and a content.
fn boxed(text: &str) -> Boxed {
    let is_listed = |between: &str| {
        let is_bare = !between.contains(|c: char| c.is_alphanumeric() || c == '\n');
        is_connective(between) || is_bare && between.contains([',', ';'])
    };
    match boxes(text).as_slice() {
        [] => Boxed::Nothing,
        [.., before, last]
            if is_listed(&text[before.end..last.start]) && before.answer() != last.answer() =>
        {
            Boxed::Ambiguous
        }
        [.., last] => Boxed::Content(last.answer()),
    }
}

/// Whether nothing but an "or" or an "and" stands in a text, perhaps with the name of what follows:
/// "or x = ".
pub(super) fn is_connective(text: &str) -> bool {
    let mut words = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default();
    let is_first = ["or", "and"]
        .iter()
        .any(|connective| first.eq_ignore_ascii_case(connective));
    is_first && words.all(|word| word.chars().count() == 1)
}

/// Whether two numbers with this between them are given side by side, as two.
fn is_pair(between: &str) -> bool {
    between.trim().is_empty() || is_connective(between)
}

/// What follows the marks of an answer, that behind the last mark first. Behind [`HEADING`] it counts
/// only if `is_value` says so of its line: "#### Step 3" gives no answer.
pub(super) fn statements<'a>(
    text: &'a str,
    marks: &[&str],
    is_value: impl Fn(&str) -> bool,
) -> Vec<&'a str> {
    // ASCII only, so that positions stay.
    let lower = text.to_ascii_lowercase();
    let mut found: Vec<Range<usize>> = Vec::new();
    for mark in marks {
        let places = lower.rmatch_indices(*mark).take(STATEMENTS);
        found.extend(places.map(|(at, _)| at + mark.len()..text.len()));
    }
    let mut end = text.len();
    for line in text.rsplit('\n').take(HEADING_LINES) {
        let start = end - line.len();
        if let Some(at) = line.rfind(HEADING)
            && is_value(line[at + HEADING.len()..].trim())
        {
            found.push(start + at + HEADING.len()..end);
            break;
        }
        end = start.saturating_sub(1);
    }
    found.sort_by_key(|range| std::cmp::Reverse(range.start));
    let statement = |range: Range<usize>| {
        text[range].trim_start_matches(|c: char| c == ':' || c.is_whitespace())
    };
    found.into_iter().map(statement).collect()
}

/// The number of a statement's first sentence; what follows the last `=` where there is one.
/// `Some(None)` is a statement that gives no one value.
pub(super) fn number_of_statement(statement: &str) -> Option<Option<String>> {
    let statement = statement.trim_start_matches(|c: char| c == '*' || c.is_whitespace());
    let line = statement.lines().next()?;
    let sentence = without_aside(line.split(". ").next().unwrap_or(line));
    let value = sentence.rsplit('=').next().unwrap_or(sentence);
    let tokens = number::tokens(value);
    let mut pairs = tokens
        .iter()
        .zip(tokens.iter().skip(1).map(Some).chain([None]));
    let (token, next) = pairs.find(|(token, _)| !is_denied(&value[..token.range.start]))?;
    let Range { start, end } = token.range.clone();
    let has_other = next.is_some_and(|next: &Token| is_pair(&value[end..next.range.start]));
    if has_other || is_bound(&value[..start]) || is_part(&value[end..]) {
        return Some(None);
    }
    Some(Some(value[start..end].to_owned()))
}

/// A sentence without what it says in brackets after a number: "4 (since 2 + 3 = 5)".
fn without_aside(sentence: &str) -> &str {
    match sentence.split_once(" (") {
        Some((before, _)) if !number::tokens(before).is_empty() => before,
        _ => sentence,
    }
}

/// Whether what follows a number makes it a part of a calculation.
fn is_part(after: &str) -> bool {
    let after = after.trim_start_matches(' ');
    if after.starts_with('^') {
        return true;
    }
    let signs = ["+", "*", "×", "·", "÷", "\\times", "\\cdot", "\\div"];
    let operand = signs.iter().find_map(|sign| after.strip_prefix(sign));
    operand.is_some_and(|operand| {
        let operand = operand.trim_start_matches([' ', '$']);
        operand.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '(' | '\\'))
    })
}

/// The last number of a line; none where it is one of two, or something else than a value.
pub(super) fn last_number(line: &str) -> Option<&str> {
    let tokens = number::tokens(line);
    let (last, earlier) = tokens.split_last()?;
    let Range { start, end } = last.range.clone();
    let after = line[end..].trim_start();
    let is_one_of_two = earlier.last().is_some_and(|token| {
        let between = &line[token.range.end..start];
        // `(3, 4)`
        let is_point = matches!(between.trim(), "," | ";") && after.starts_with([')', ']', '}']);
        is_pair(between) || is_point
    });
    let is_value = !is_one_of_two
        && !is_bound(&line[..start])
        && !is_denied(&line[..start])
        && !after.starts_with('^');
    is_value.then(|| &line[start..end])
}

/// Whether what stands before a number makes it a bound or an exponent.
pub(super) fn is_bound(before: &str) -> bool {
    let before = before.trim_end();
    let is_arrow = ["->", "=>"].iter().any(|arrow| before.ends_with(arrow));
    let is_sign = ["<", ">", "<=", ">=", "!=", "≤", "≥", "≠", "^"]
        .iter()
        .any(|sign| before.ends_with(sign));
    let word = before.rsplit(char::is_whitespace).next().unwrap_or("");
    let is_word = ["between", "than", "least", "most", "over"]
        .iter()
        .any(|bound| word.eq_ignore_ascii_case(bound));
    is_sign && !is_arrow || is_word
}

/// Whether what stands before a number says that the answer is another.
pub(super) fn is_denied(before: &str) -> bool {
    let before = before.trim_end();
    let word = before.rsplit(char::is_whitespace).next().unwrap_or("");
    word.eq_ignore_ascii_case("not") || word.ends_with("n't")
}

/// The last line that isn't markup alone.
pub(super) fn last_line(text: &str) -> Option<&str> {
    let mut lines = text.lines().rev().map(str::trim);
    lines.find(|line| line.contains(char::is_alphanumeric))
}
