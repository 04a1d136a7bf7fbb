//! Formulas that Python can't calculate with as they stand: a sign got lost, or is another than Python's.

use std::ops::Range;

/// Signs that no prose has, and what Python has in their place.
const SIGNS: [(&str, &str); 27] = [
    ("×", "*"),
    ("✕", "*"),
    ("⋅", "*"),
    ("∗", "*"),
    ("÷", "/"),
    ("∕", "/"),
    ("⁄", "/"),
    ("−", "-"),
    ("²", "**2"),
    ("³", "**3"),
    ("≤", "<="),
    ("≥", ">="),
    ("≠", "!="),
    ("（", "("),
    ("）", ")"),
    ("＋", "+"),
    ("＊", "*"),
    ("／", "/"),
    ("＝", "="),
    ("&times;", "*"),
    ("&divide;", "/"),
    ("&minus;", "-"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("\\*", "*"),
    ("\\_", "_"),
    ("\\+", "+"),
];
/// The same of signs that prose has too.
const SIGNS_OF_PROSE: [(&str, &str); 4] = [("–", "-"), ("—", "-"), ("·", "*"), ("\u{a0}", " ")];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Number,
    Letter,
    /// A word of more than one letter.
    Word,
    Open,
    Close,
    Sign,
    Other,
}

struct Token {
    kind: Kind,
    place: Range<usize>,
}

/// `sentence` with Python's signs wherever it and `program` have another one, or none between two values.
/// `None` where they have nothing of that in common.
pub(in crate::rules) fn mended_as_in(sentence: &str, program: &str) -> Option<String> {
    let program = without_texts(program);
    let mut mended = sentence.to_owned();
    if !left_out(&program).is_empty() {
        for place in left_out(sentence).into_iter().rev() {
            mended.replace_range(place, " * ");
        }
    }
    let of_prose = SIGNS_OF_PROSE.iter().filter(|(sign, _)| {
        let mut places = sentence.match_indices(sign);
        places.any(|(at, _)| ends_in_value(&sentence[..at]))
    });
    for (sign, python) in SIGNS.iter().chain(of_prose) {
        if program.contains(sign) {
            mended = mended.replace(sign, python);
        }
    }
    (mended != sentence).then_some(mended)
}

/// A program without what stands in its strings and comments.
fn without_texts(program: &str) -> String {
    let mut rest = String::with_capacity(program.len());
    let mut end_of_text = None;
    let mut signs = program.chars();
    while let Some(sign) = signs.next() {
        match end_of_text {
            None => {
                match sign {
                    '"' | '\'' => end_of_text = Some(sign),
                    '#' => end_of_text = Some('\n'),
                    _ => {}
                }
                rest.push(sign);
            }
            Some(_) if sign == '\\' => {
                signs.next();
            }
            Some(end) if sign == end || sign == '\n' => {
                end_of_text = None;
                rest.push(sign);
            }
            Some(_) => {}
        }
    }
    rest
}

/// Whether a text ends in a value, or in a formula that wants one.
fn ends_in_value(text: &str) -> bool {
    tokens(text)
        .last()
        .is_some_and(|token| !matches!(token.kind, Kind::Word | Kind::Other))
}

/// Where a formula has two values beside each other and no sign between them, as in `2 (x + y)` or
/// `x y / 100`.
fn left_out(text: &str) -> Vec<Range<usize>> {
    let tokens = tokens(text);
    let said = |at: usize| tokens.get(at).map(|token| &text[token.place.clone()]);
    let kind = |at: usize| tokens.get(at).map(|token| token.kind);
    let has_b = (0..tokens.len()).any(|at| said(at) == Some("b"));
    let is_value = |at: usize| match kind(at) {
        Some(Kind::Number) => true,
        // An article, unless others follow it in the alphabet.
        Some(Kind::Letter) => has_b || !matches!(said(at), Some("a" | "A" | "I")),
        _ => false,
    };
    let is_term = |at: usize| is_value(at) || kind(at) == Some(Kind::Word);
    let is_sign = |at: usize| kind(at) == Some(Kind::Sign);
    let opens_sum = |at: usize| kind(at) == Some(Kind::Open) && is_term(at + 1) && is_sign(at + 2);
    let closes_sum =
        |at: usize| kind(at) == Some(Kind::Close) && at >= 2 && is_term(at - 1) && is_sign(at - 2);
    let is_left_out = |at: &usize| {
        let (left, right) = (at - 1, *at);
        let is_apart = tokens[left].place.end < tokens[right].place.start;
        // `f(x + 1)` is a call.
        let is_call = kind(left) == Some(Kind::Letter) && !is_apart;
        if opens_sum(right) {
            return closes_sum(left) || is_value(left) && !is_call;
        }
        let is_in_formula = is_sign(right + 1) || left >= 1 && is_sign(left - 1);
        is_value(right) && (closes_sum(left) || is_value(left) && is_in_formula)
    };
    (1..tokens.len())
        .filter(is_left_out)
        .map(|at| tokens[at - 1].place.end..tokens[at].place.start)
        .collect()
}

fn tokens(text: &str) -> Vec<Token> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens: Vec<Token> = Vec::new();
    let mut start = 0;
    while let Some(first) = text[start..].chars().next() {
        let rest = &text[start..];
        let length = match first {
            '0'..='9' => length_of_number(rest),
            _ if is_part(first) => rest.find(|c: char| !is_part(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let kind = match first {
            '0'..='9' => Kind::Number,
            _ if first.is_ascii_alphabetic() && length == 1 => Kind::Letter,
            _ if is_part(first) => Kind::Word,
            '(' => Kind::Open,
            ')' => Kind::Close,
            '-' | '/' if joins_words(&text[..start], &rest[1..]) => Kind::Other,
            '+' | '-' | '*' | '/' | '%' | '=' | '<' | '>' => Kind::Sign,
            _ => Kind::Other,
        };
        let place = start..start + length;
        start = place.end;
        if !matches!(first, ' ' | '\t') {
            tokens.push(Token { kind, place });
        }
    }
    tokens
}

fn length_of_number(text: &str) -> usize {
    let is_digit = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let mut length = 1;
    while is_digit(length) || text[length..].starts_with('.') && is_digit(length + 1) {
        length += 1;
    }
    length
}

/// Whether a sign between these two joins words, as in "well-known" or "and/or".
fn joins_words(before: &str, after: &str) -> bool {
    let is_letter = |c: &char| c.is_alphabetic();
    let letters = before.chars().rev().take_while(is_letter).count();
    letters > 1 && after.starts_with(char::is_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_that_lack_a_sign() {
        for (sentence, program, mended) in [
            (
                "The outline is 2 (x + y).",
                "print(2 (30 + 12))",
                "The outline is 2 * (x + y).",
            ),
            (
                "Both sides: 2(length + width)",
                "print(2(30 + 12))",
                "Both sides: 2 * (length + width)",
            ),
            (
                "Take y x / 100.",
                "share = 300 15 / 100\nprint(share)",
                "Take y * x / 100.",
            ),
            (
                "It is (x + y)(x - y).",
                "print((30 + 12)(30 - 12))",
                "It is (x + y) * (x - y).",
            ),
        ] {
            let found = mended_as_in(sentence, program);
            assert_eq!(found.as_deref(), Some(mended), "{sentence}");
            // Where the program is right or the sentence is, nothing is to be mended.
            let right = "print(2 * (30 + 12) * (30 - 12) / 100)";
            assert_eq!(mended_as_in(sentence, right), None, "{sentence}");
            assert_eq!(mended_as_in(mended, program), None, "{sentence}");
        }
        for sentence in [
            "See page 3 (of 5), and the well-known page 4 (half-done).",
            "The function f(x + 1) is called for each x in turn.",
            "Kites cost 12 500 a year.",
            "This is a (more or less) good guess.",
        ] {
            let found = mended_as_in(sentence, "print(2 (30 + 12))");
            assert_eq!(found, None, "{sentence}");
        }
    }

    #[test]
    fn formulas_with_signs_that_are_none_of_pythons() {
        for (sentence, program, mended) in [
            (
                "It is length × width.",
                "print(30 × 12)",
                "It is length * width.",
            ),
            ("It is x − y ÷ 2.", "print(30 − 12 ÷ 2)", "It is x - y / 2."),
            ("It is x – y – 1.", "print(30 – 12 – 1)", "It is x - y - 1."),
            ("It is x \\* y.", "print(30 \\* 12)", "It is x * y."),
            ("It is x &times; y.", "print(30 &times; 12)", "It is x * y."),
            ("The area is x².", "print(30²)", "The area is x**2."),
        ] {
            let found = mended_as_in(sentence, program);
            assert_eq!(found.as_deref(), Some(mended), "{sentence}");
            assert_eq!(mended_as_in(sentence, "print(30 * 12)"), None, "{sentence}");
        }
        for (sentence, program) in [
            ("Kites – and shells – are counted.", "print(30 – 12)"),
            ("A field is 12 × 30 metres.", "print('12 × 30') # 12 × 30"),
        ] {
            assert_eq!(mended_as_in(sentence, program), None, "{sentence}");
        }
    }
}
