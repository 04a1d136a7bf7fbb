//! How a sentence has programs and numbers written.

use super::{NEGATIONS, begin_with, has, plain, tokens};
use crate::rules::text::{has_any, is_near, numbers};

/// Marks in a sentence that a text may stand between, such as `[CODE]` or `<py>`.
pub(in crate::rules) fn marks(sentence: &str) -> impl Iterator<Item = &str> {
    const AROUND: [char; 7] = ['.', ',', ';', ':', '"', '\'', '`'];
    const OPENING: [char; 7] = ['[', '<', '{', '@', '#', '$', '|'];
    sentence
        .split_whitespace()
        .map(|word| word.trim_matches(AROUND))
        .filter(|word| word.starts_with(OPENING) && word.contains(char::is_alphabetic))
}

/// Whether a program stands behind `mark` in a reply.
pub(in crate::rules) fn has_program_behind(reply: &str, mark: &str) -> bool {
    const CODE: [&str; 4] = ["print", "import ", "from ", "def "];
    let mut lines = reply.lines().map(str::trim);
    let Some(rest) = lines.find_map(|line| line.strip_prefix(mark)) else {
        return false;
    };
    let opening = mark.chars().next();
    let until_mark = lines.take_while(|line| line.chars().next() != opening);
    let mut program = std::iter::once(rest.trim()).chain(until_mark);
    program.any(|line| {
        let is_call = line.contains("print(") || line.contains("console.log(");
        is_call || line.contains(['=', '(']) && CODE.iter().any(|word| line.starts_with(word))
    })
}

/// Whether a sentence says what stands between the digits of a long number.
pub(in crate::rules) fn parts_digits(sentence: &str) -> bool {
    const MARKS: &str = "point points dot dots period periods comma commas space spaces blank \
                         blanks apostrophe apostrophes underscore";
    const DIGITS: &str = "thousand thousands digit digits groups grouped numbers";
    let plain = plain(sentence);
    let has_digits = has_any(&plain, DIGITS) || !numbers(sentence).is_empty();
    let is_named = has_any(&plain, MARKS) && has_digits;
    (is_named || has_any(&plain, "separator separators")) && !has(&tokens(&plain), NEGATIONS)
}

/// Whether `answer` is `printed` with something between the digits, three by three.
pub(in crate::rules) fn is_parted(printed: &str, answer: &str) -> bool {
    let digits = |text: &str| -> String { text.chars().filter(char::is_ascii_digit).collect() };
    let mut groups = answer
        .split(|c: char| !c.is_ascii_digit())
        .filter(|group| !group.is_empty());
    let is_first = groups.next().is_some_and(|group| group.len() <= 3);
    let lengths: Vec<usize> = groups.map(str::len).collect();
    is_first
        && !lengths.is_empty()
        && lengths.iter().all(|length| *length == 3)
        && digits(printed) == digits(answer)
}

/// A way to write whole numbers other than in digits to the base of ten.
#[derive(Clone, Copy)]
enum Notation {
    Base(u32),
    Roman,
}

impl Notation {
    /// Each with what it is called.
    const ALL: [(Notation, &'static [&'static str]); 4] = [
        (
            Notation::Base(2),
            &["binary", "base 2", "base - 2", "base two"],
        ),
        (
            Notation::Base(8),
            &["octal", "base 8", "base - 8", "base eight"],
        ),
        (
            Notation::Base(16),
            &[
                "hexadecimal",
                "hexadecimals",
                "hex",
                "base 16",
                "base - 16",
                "base sixteen",
            ],
        ),
        (Notation::Roman, &["roman"]),
    ];

    /// The number that `text` is in this notation, with or without a mark of the base.
    fn read(self, text: &str) -> Option<i64> {
        const MARKS: [&str; 4] = ["0x", "0b", "0o", "#"];
        let text = text.to_lowercase();
        let Notation::Base(base) = self else {
            return read_roman(text.trim());
        };
        let opened = text.trim_start_matches(['(', '$']);
        let written = opened.split(['_', '(', ')', '$']).next()?;
        let digits: String = written.split_whitespace().collect();
        let unmarked = MARKS.iter().find_map(|mark| digits.strip_prefix(mark));
        let digits = unmarked.unwrap_or(&digits).trim_end_matches('h');
        i64::from_str_radix(digits, base).ok()
    }
}

/// Whether `answer` is `printed` in another notation, which the sentence names.
pub(in crate::rules) fn rewrites(sentence: &str, printed: f64, answer: &str) -> bool {
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    let is_named = |names: &[&str]| {
        let mut places = 0..tokens.len();
        places.any(|at| begin_with(&tokens[at..], names) && !has(&tokens[..at], NEGATIONS))
    };
    // The same digits to the base of ten are no other notation.
    let is_other = answer.trim().parse() != Ok(printed);
    let mut notations = Notation::ALL.iter();
    is_other
        && notations.any(|(notation, names)| {
            let read = notation.read(answer);
            read.is_some_and(|number| is_near(number as f64, printed)) && is_named(names)
        })
}

fn read_roman(text: &str) -> Option<i64> {
    const LETTERS: &str = "ivxlcdm";
    const VALUES: [i64; 7] = [1, 5, 10, 50, 100, 500, 1000];
    let value = |letter: char| LETTERS.find(letter).map(|at| VALUES[at]);
    let values: Vec<i64> = text.chars().map(value).collect::<Option<_>>()?;
    let signed = values.iter().enumerate().map(|(at, value)| {
        let is_taken_off = values.get(at + 1).is_some_and(|next| next > value);
        if is_taken_off { -value } else { *value }
    });
    (!values.is_empty()).then(|| signed.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_another_notation() {
        for (sentence, answer) in [
            ("Answers are hexadecimal.", "0x1A4"),
            ("Our panel shows base-16 values.", "1a4"),
            ("Write every number to the base 2.", "110100100_2"),
            ("Amounts are octal here.", "0o644"),
            ("The clock has Roman numerals.", "CDXX"),
        ] {
            assert!(rewrites(sentence, 420.0, answer), "{sentence}");
            assert!(!rewrites(sentence, 421.0, answer), "{sentence}");
            assert!(
                !rewrites("Give the number in a box.", 420.0, answer),
                "{sentence}"
            );
        }
        for (sentence, answer) in [
            ("Answers are hexadecimal.", "420"),
            ("Answers are binary.", "0x1a4"),
            ("Decimals, never hexadecimal numbers.", "0x1a4"),
        ] {
            assert!(!rewrites(sentence, 420.0, answer), "{sentence}");
        }
    }
}
