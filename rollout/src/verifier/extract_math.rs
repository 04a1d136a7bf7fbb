//! Finding the answer of a text where it may be any expression.

use super::boxes::{BoxedText, boxes};
use super::extract::{self, statements, tagged};
use super::math::is_answer;
use super::reply::said;
use super::{Extracted, ExtractionRule, number};

/// What comes before an answer, in lower case. ASCII letters only are lowered.
const MARKS: [&str; 17] = [
    "answer is",
    "answer are",
    "answers are",
    "answer:",
    "answer**:",
    "answer =",
    "result is",
    "solution is",
    "solutions are",
    "réponse:",
    "réponse :",
    "réponse est",
    "respuesta:",
    "antwort:",
    "答案是",
    "答案：",
    "答案:",
];

/// Words that end what a box belongs to.
const BREAKS: [&str; 14] = [
    "thus",
    "so",
    "hence",
    "but",
    "therefore",
    "then",
    "answer",
    "check",
    "is",
    "are",
    "gives",
    "verify",
    "wait",
    "final",
];

/// Words that an "answer is" may come before and that are none.
const NO_ANSWERS: [&str; 8] = [
    "correct",
    "right",
    "clear",
    "given",
    "below",
    "above",
    "as follows",
    "the following",
];

/// Longest text that may be an answer as a whole, in bytes.
const MAX_WHOLE: usize = 2_000;
/// Longest formula, in bytes.
const MAX_FORMULA: usize = 8_000;
/// An answer is looked for in so many bytes at the end of a text.
const MAX_TEXT: usize = 64_000;

/// The answer of a response.
pub(super) fn answer_of(text: &str) -> Option<Extracted> {
    let visible = visible(text);
    let said = said(end_of(&visible));
    let text = said.text.as_str();
    if let Some(tagged) = tagged(text) {
        let answer = boxed(tagged, false).unwrap_or_else(|| tagged.to_owned());
        return found(&answer, ExtractionRule::AnswerTag);
    }
    if let Some(answer) = boxed(text, false) {
        return found(&answer, ExtractionRule::Boxed);
    }
    // "#### Friday" may be a heading.
    let is_value = |line: &str| {
        let is_short =
            line.len() <= MAX_WHOLE && line.contains(|c: char| c.is_ascii_digit() || c == '\\');
        is_short && is_answer(line)
    };
    for statement in statements(text, &MARKS, is_value) {
        if let Some(answer) = of_statement(statement) {
            return answer.and_then(|answer| found(&answer, ExtractionRule::AnswerIs));
        }
        // What can't be read may take back what was said before.
        if has_formula(first_block(statement)) {
            break;
        }
    }
    if said.ends_in_program {
        return None;
    }
    if text.len() <= MAX_WHOLE && is_answer(text) {
        return found(text, ExtractionRule::Whole);
    }
    of_last_line(text)
}

/// The gold answer of a text: the answer itself, or a solution that boxes or states it.
pub(super) fn gold_of(text: &str) -> String {
    let text = end_of(text);
    if let Some(answer) = boxed(text, true) {
        return answer;
    }
    // A solution that was cut off inside its box.
    if let Some((_, content)) = text.split_once("\\boxed{") {
        return content.trim().to_owned();
    }
    let is_short = text.len() <= MAX_WHOLE && !text.contains("####");
    if is_short && (is_answer(text) || !text.contains(". ")) {
        return text.trim().to_owned();
    }
    answer_of(text).map_or_else(|| text.trim().to_owned(), |extracted| extracted.answer)
}

/// The last part of a text that is too long.
fn end_of(text: &str) -> &str {
    let start = text.len().saturating_sub(MAX_TEXT);
    &text[text.ceil_char_boundary(start)..]
}

fn found(answer: &str, rule: ExtractionRule) -> Option<Extracted> {
    let answer = answer.trim();
    (!answer.is_empty()).then(|| Extracted {
        answer: answer.to_owned(),
        rule,
    })
}

/// The text after the reasoning; of a reply that never ends it, the answer's tag if there is one.
fn visible(text: &str) -> String {
    const CLOSE: &str = "</think>";
    let visible = crate::protocol::without_reasoning(text);
    if visible.is_empty() && text.contains("<answer>") {
        return tagged(text)
            .map(|tagged| format!("<answer>{tagged}</answer>"))
            .unwrap_or_default();
    }
    match visible.rfind(CLOSE) {
        Some(at) => visible[at + CLOSE.len()..].to_owned(),
        None => visible,
    }
}

/// The last box; with those before it where only a connective stands between.
fn boxed(text: &str, is_gold: bool) -> Option<String> {
    let boxes: Vec<BoxedText<'_>> = boxes(text);
    let last = boxes.last()?;
    let mut first = boxes.len() - 1;
    while first > 0 {
        let between = &text[boxes[first - 1].end..boxes[first].start];
        if !connects(between, is_gold) {
            break;
        }
        first -= 1;
    }
    let mut contents: Vec<String> = Vec::new();
    for content in boxes[first..].iter().map(BoxedText::answer) {
        if !contents.contains(&content) {
            contents.push(content);
        }
    }
    let mut answer = contents.join(" and ");
    // The percent sign after the box belongs to the number.
    let after = text[last.end..].trim_start_matches(['$', ' ', ')', ']', '}']);
    let after = after.trim_start_matches("\\)").trim_start();
    let has_percent = ["%", "\\%", "percent"]
        .iter()
        .any(|sign| after.starts_with(sign));
    if has_percent && contents.len() == 1 && !answer.contains('%') {
        answer.push_str("\\%");
    }
    Some(answer)
}

/// Whether the text between two boxes makes them parts of one answer: `, ` or `and`, perhaps
/// after a few words. Nothing at all does so only in a gold answer.
fn connects(between: &str, is_gold: bool) -> bool {
    let plain = [
        "\\text{", "\\quad", "\\qquad", "\\(", "\\)", "\\[", "\\]", "\\,", "\\;", "\\ ",
    ]
    .iter()
    .fold(between.to_lowercase(), |text, mark| text.replace(mark, " "));
    let plain = plain.replace(['$', '}', '{', '*', '\\'], " ");
    let plain = plain.trim();
    if plain.is_empty() {
        return is_gold;
    }
    if plain.contains(". ") || plain.contains('\n') || plain.contains(['=', ':']) {
        return false;
    }
    let words: Vec<&str> = plain
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let is_short = words.len() <= 5 && !words.iter().any(|word| BREAKS.contains(word));
    let ends_in_connective =
        plain.ends_with([',', ';', '&']) || matches!(words.last(), Some(&("and" | "or")));
    is_short && ends_in_connective
}

/// The answer in a statement's first sentence. `Some(None)` for one that offers alternatives
/// among words.
fn of_statement(statement: &str) -> Option<Option<String>> {
    let is_mark = |c: char| matches!(c, '*' | '"') || c.is_whitespace();
    let statement = statement.trim_start_matches(is_mark);
    let statement = statement.strip_prefix("\\\"").unwrap_or(statement);
    let line = first_block(statement);
    let sentence = sentence(line);
    let trimmed = sentence
        .trim()
        .trim_end_matches(['"', '*', '\\', '。'])
        .trim_end();
    let trimmed = match trimmed.strip_suffix('.') {
        // Three dots say that a decimal goes on.
        Some(rest) if !rest.ends_with("..") => rest.trim_end_matches(['.', '"', '*', '\\']),
        _ => trimmed,
    };
    // "The answer is 5!" is glad of it.
    let trimmed = match trimmed.strip_suffix('!') {
        Some(rest)
            if rest
                .chars()
                .all(|c| c.is_ascii_digit() || matches!(c, ',' | '.' | '-')) =>
        {
            rest
        }
        _ => trimmed,
    };
    if NO_ANSWERS.contains(&trimmed.to_lowercase().as_str()) {
        return None;
    }
    if is_answer(trimmed) {
        return Some(Some(trimmed.to_owned()));
    }
    for link in [" is ", " are ", " equals "] {
        if let Some(at) = trimmed.rfind(link)
            && is_answer(&trimmed[at + link.len()..])
        {
            return Some(Some(trimmed[at + link.len()..].trim().to_owned()));
        }
    }
    if let Some(formula) = formula_of(trimmed) {
        return Some(formula);
    }
    if let Some(word) = single_text(trimmed) {
        return Some(Some(word));
    }
    if has_formula(trimmed) {
        return None;
    }
    extract::number_of_statement(sentence)
}

/// The first formula of a statement that isn't said to be wrong. `Some(None)` where it is a bound, or one
/// of two.
fn formula_of(statement: &str) -> Option<Option<String>> {
    let spans = spans(statement);
    let at = spans
        .iter()
        .position(|span| !extract::is_denied(&statement[..span.start]))?;
    let span = &spans[at];
    if !is_answer(span.content) {
        return None;
    }
    let next = spans.get(at + 1);
    let is_one_of_two =
        next.is_some_and(|next| extract::is_connective(&statement[span.end..next.start]));
    if is_one_of_two || extract::is_bound(&statement[..span.start]) {
        return Some(None);
    }
    Some(Some(span.content.trim().to_owned()))
}

/// The first line, or the first display formula where the statement begins with one.
fn first_block(statement: &str) -> &str {
    for (open, close) in [("$$", "$$"), ("\\[", "\\]")] {
        if let Some(rest) = statement.strip_prefix(open)
            && let Some(length) = rest.find(close)
        {
            return &statement[..open.len() + length + close.len()];
        }
    }
    statement.lines().next().unwrap_or(statement)
}

/// Up to the first full stop that ends a sentence, outside formulas.
fn sentence(line: &str) -> &str {
    let mut is_formula = false;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b'$' => is_formula = !is_formula,
            b'.' if !is_formula && line[at + 1..].starts_with(' ') => return &line[..at],
            _ => {}
        }
    }
    line
}

/// A short phrase as a text answer.
fn single_text(text: &str) -> Option<String> {
    let words = text.split_whitespace().count();
    let is_plain = text
        .chars()
        .all(|c| c.is_alphabetic() || matches!(c, ' ' | '-' | '\''));
    (words <= 3 && is_plain && words > 0).then(|| text.to_owned())
}

/// A formula between its delimiters.
struct Span<'a> {
    content: &'a str,
    start: usize,
    end: usize,
}

/// The formulas of a text. Those within a line don't go beyond it.
fn spans(text: &str) -> Vec<Span<'_>> {
    let mut spans = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let pairs = [
            ("$$", "$$", true),
            ("\\[", "\\]", true),
            ("\\(", "\\)", false),
            ("$", "$", false),
        ];
        let opened = pairs.iter().find(|(open, ..)| rest.starts_with(open));
        if rest.starts_with("\\$") {
            at += 2;
            continue;
        }
        let Some((open, close, is_display)) = opened else {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        };
        let inside = &rest[open.len()..];
        let near = inside.floor_char_boundary(inside.len().min(MAX_FORMULA));
        // One that opens again before it closes was never closed.
        let window = match inside[..near].find(open) {
            Some(again) if open != close => again,
            _ => near,
        };
        let length = inside[..window].find(close).filter(|&length| {
            let content = &inside[..length];
            !content.trim().is_empty() && (*is_display || !content.contains('\n'))
        });
        match length {
            Some(length) => {
                let end = at + open.len() + length + close.len();
                spans.push(Span {
                    content: &inside[..length],
                    start: at,
                    end,
                });
                at = end;
            }
            None => at += open.len(),
        }
    }
    spans
}

/// The last formula or number of the last line.
fn of_last_line(text: &str) -> Option<Extracted> {
    if is_inside_broken_formula(text) {
        return None;
    }
    let text = text.trim_end();
    let text = text
        .strip_suffix("I hope it is correct.")
        .unwrap_or(text)
        .trim_end();
    let spans = spans(text);
    if let Some(span) = spans.last() {
        let after = &text[span.end..];
        let is_last = !after.contains('\n');
        if is_last && number::tokens(after).is_empty() {
            let all = with_those_before(text, &spans);
            if let Some(all) = all {
                return is_answer(&all).then(|| found(&all, ExtractionRule::LastFormula))?;
            }
            return if is_answer(span.content) {
                found(span.content, ExtractionRule::LastFormula)
            } else {
                last_number(span.content)
            };
        }
        if is_last {
            // "It is $3$ or 4."
            let numbers = number::tokens(after);
            let is_other = numbers
                .first()
                .is_some_and(|first| extract::is_connective(&after[..first.range.start]));
            return if is_other { None } else { last_number(after) };
        }
    }
    last_number(extract::last_line(text)?)
}

/// The last formula with those before it where only "and" or "or" stands between: several answers, none
/// of which is the whole one. `None` where it stands alone.
fn with_those_before(text: &str, spans: &[Span<'_>]) -> Option<String> {
    let between = |at: usize| &text[spans[at - 1].end..spans[at].start];
    let words = |text: &str| text.split_whitespace().count();
    let mut first = spans.len().checked_sub(1)?;
    while first > 0
        && words(between(first)) <= 2
        && connects(between(first), false)
        // A comma alone divides a sentence as well; behind an "and" it continues the list.
        && (first + 1 < spans.len() || between(first).contains(char::is_alphabetic))
    {
        first -= 1;
    }
    if first + 1 == spans.len() {
        return None;
    }
    let mut last_words = between(spans.len() - 1).split(|c: char| !c.is_alphabetic());
    let is_or = last_words.any(|word| word.eq_ignore_ascii_case("or"));
    let contents: Vec<&str> = spans[first..]
        .iter()
        .map(|span| span.content.trim())
        .collect();
    Some(contents.join(if is_or { " or " } else { " and " }))
}

fn last_number(line: &str) -> Option<Extracted> {
    if has_formula(line) {
        return None;
    }
    found(extract::last_number(line)?, ExtractionRule::LastNumber)
}

/// Whether LaTeX commands stand in a text: its numbers are parts of formulas then.
fn has_formula(text: &str) -> bool {
    text.match_indices('\\')
        .any(|(at, _)| text[at + 1..].starts_with(|c: char| c.is_ascii_alphabetic()))
}

/// Whether the last line stands between the marks of a formula that may not go beyond a line.
fn is_inside_broken_formula(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let Some(last) = lines
        .iter()
        .rposition(|line| line.contains(char::is_alphanumeric))
    else {
        return false;
    };
    let Some(before) = last.checked_sub(1).map(|before| lines[before]) else {
        return false;
    };
    let opens = before.ends_with("\\(")
        || before.ends_with('$') && !before.ends_with("$$") && before.matches('$').count() % 2 == 1;
    let closes =
        |line: &&str| line.starts_with("\\)") || line.starts_with('$') && !line.starts_with("$$");
    opens && lines.get(last + 1).is_some_and(closes)
}
