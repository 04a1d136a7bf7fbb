//! How a sentence has programs and numbers written.

use super::{NEGATIONS, has, plain, tokens};
use crate::rules::text::{has_any, numbers};

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
