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

/// Two values of a formula without a sign between them.
struct Gap {
    place: Range<usize>,
    /// Whether a sum in parentheses ends before it, and whether one begins behind it.
    shape: (bool, bool),
}

/// `sentence` with Python's signs wherever it and `program` have another one, or none between two values of
/// the same kinds.
/// `None` where they have nothing of that in common.
pub(in crate::rules) fn mended_as_in(sentence: &str, program: &str) -> Option<String> {
    let program = without_texts(program);
    let mut mended = sentence.to_owned();
    let lost = left_out(&program);
    if !lost.is_empty() {
        for gap in left_out(sentence).into_iter().rev() {
            if lost.iter().any(|known| known.shape == gap.shape) {
                mended.replace_range(gap.place, " * ");
            }
        }
    }
    let of_prose = SIGNS_OF_PROSE
        .iter()
        .filter(|(sign, _)| program.contains(sign) && follows_value(sentence, sign));
    for (sign, python) in SIGNS.iter().chain(of_prose) {
        if program.contains(sign) {
            mended = if python.starts_with("**") {
                with_powers(&mended, sign, python)
            } else {
                mended.replace(sign, python)
            };
        }
    }
    (mended != sentence).then_some(mended)
}

/// `text` with `python` in the place of each `sign` that is a power.
fn with_powers(text: &str, sign: &str, python: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut start = 0;
    for (at, _) in text.match_indices(sign) {
        replaced.push_str(&text[start..at]);
        replaced.push_str(if wants_power(&text[..at]) {
            python
        } else {
            sign
        });
        start = at + sign.len();
    }
    replaced.push_str(&text[start..]);
    replaced
}

/// Whether a text ends in what may be raised to a power: a name, a number or a sum, but no unit as in "30 m".
fn wants_power(text: &str) -> bool {
    let before = text.trim_end_matches(char::is_alphabetic);
    if before.len() == text.len() {
        return text.ends_with(|c: char| c.is_ascii_digit() || c == ')');
    }
    let amount = before.trim_end_matches([' ', '\t', '\u{a0}']);
    let is_unit = amount.len() < before.len() && amount.ends_with(|c: char| c.is_ascii_digit());
    !is_unit
}

/// A program without what stands in its strings and comments.
fn without_texts(program: &str) -> String {
    // Three quotes first, which begin with one.
    const MARKS: [&str; 5] = ["\"\"\"", "'''", "\"", "'", "#"];
    let mut code = String::with_capacity(program.len());
    let mut rest = program;
    while let Some(first) = rest.chars().next() {
        let mark = MARKS.into_iter().find(|mark| rest.starts_with(*mark));
        if let Some(mark) = mark {
            code.push_str(mark);
            rest = &rest[mark.len()..];
            rest = &rest[length_of_text(rest, mark)..];
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    code
}

/// The length in bytes of what `mark` begins, with the quotes that end it and without the newline.
fn length_of_text(rest: &str, mark: &str) -> usize {
    let is_string = mark != "#";
    let mut is_escaped = false;
    for (at, sign) in rest.char_indices() {
        if is_escaped {
            is_escaped = false;
        } else if is_string && sign == '\\' {
            is_escaped = true;
        } else if is_string && rest[at..].starts_with(mark) {
            return at + mark.len();
        } else if mark.len() == 1 && sign == '\n' {
            return at;
        }
    }
    rest.len()
}

/// Whether `sign` stands behind a value somewhere, or in a formula that wants one.
fn follows_value(text: &str, sign: &str) -> bool {
    let tokens = tokens(text);
    let mut places = text.match_indices(sign);
    places.any(|(at, _)| {
        let before = tokens.partition_point(|token| token.place.end <= at);
        let last = tokens[..before].last();
        last.is_some_and(|token| !matches!(token.kind, Kind::Word | Kind::Other))
    })
}

/// Where a formula has two values beside each other and no sign between them, as in `2 (x + y)` or
/// `x y / 100`.
fn left_out(text: &str) -> Vec<Gap> {
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
    // A bullet calculates nothing, nor does the line in "2024-05-01".
    let is_bullet = |at: usize| at == 0 && matches!(said(at), Some("-" | "*" | "+"));
    let is_of_date = |at: usize| {
        let is_number = |at: usize| kind(at) == Some(Kind::Number);
        said(at) == Some("-")
            && at >= 1
            && is_number(at - 1)
            && is_number(at + 1)
            && tokens[at - 1].place.end == tokens[at].place.start
            && tokens[at].place.end == tokens[at + 1].place.start
    };
    let calculates = |at: usize| is_sign(at) && !is_bullet(at) && !is_of_date(at);
    let is_left_out = |at: &usize| {
        let (left, right) = (at - 1, *at);
        let is_apart = tokens[left].place.end < tokens[right].place.start;
        // `f(x + 1)` is a call.
        let is_call = kind(left) == Some(Kind::Letter) && !is_apart;
        if opens_sum(right) {
            return closes_sum(left) || is_value(left) && !is_call;
        }
        let is_in_formula = calculates(right + 1) || left >= 1 && calculates(left - 1);
        is_value(right) && (closes_sum(left) || is_value(left) && is_in_formula)
    };
    (1..tokens.len())
        .filter(is_left_out)
        .map(|at| Gap {
            place: tokens[at - 1].place.end..tokens[at].place.start,
            shape: (
                kind(at - 1) == Some(Kind::Close),
                kind(at) == Some(Kind::Open),
            ),
        })
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
    if let Some(exponent) = text[length..].strip_prefix(['e', 'E']) {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let digits = exponent.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            length = text.len() - exponent.len() + digits;
        }
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
            (
                "Take 1e-6 (x + y).",
                "print(1e-6 (30 + 12))",
                "Take 1e-6 * (x + y).",
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
    fn what_looks_like_a_formula_that_lacks_another_sign() {
        let (values, sum) = ("print(300 15 / 100)", "print(2 (30 + 12))");
        for (sentence, program) in [
            ("Plan B (x + y) is next.", values),
            ("Ask in room 3 (floor - 1).", values),
            ("Take y x / 100.", sum),
            ("It was 2024-05-01 10:30 then.", sum),
            ("It was 2024-05-01 10:30 then.", values),
            ("It was 10:30 2024-05-01 then.", values),
            ("* 12 500 kites a year.", values),
            ("- 12 500 kites a year.", values),
            ("Stop below 1e-6.", values),
            ("Stop below 1e-6.", "print(1e-6)"),
        ] {
            assert_eq!(mended_as_in(sentence, program), None, "{sentence}");
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
            (
                "The 30 m² are x² or (x + y)².",
                "print(30²)",
                "The 30 m² are x**2 or (x + y)**2.",
            ),
            (
                "It is x × y.",
                "x = 30 # a comment \\\nprint(x × 12)",
                "It is x * y.",
            ),
        ] {
            let found = mended_as_in(sentence, program);
            assert_eq!(found.as_deref(), Some(mended), "{sentence}");
            assert_eq!(mended_as_in(sentence, "print(30 * 12)"), None, "{sentence}");
        }
        for (sentence, program) in [
            ("Kites – and shells – are counted.", "print(30 – 12)"),
            ("A field is 12 × 30 metres.", "print('12 × 30') # 12 × 30"),
            (
                "A field is 12 × 30 metres.",
                "\"\"\"A field's\n12 × 30\n\"\"\"\nprint(12 30)",
            ),
            ("A field has 30 m².", "print(30²)"),
        ] {
            assert_eq!(mended_as_in(sentence, program), None, "{sentence}");
        }
    }
}
