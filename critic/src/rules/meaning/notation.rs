//! How a sentence has programs, numbers and amounts written.

use super::{NEGATIONS, tokens};
use crate::rules::view::{has_word, is_near, numbers};

/// Whether a sentence speaks of a version of Python before the third.
pub(in crate::rules) fn names_older_version(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    let mut named = lower.match_indices("python");
    let is_older = named.any(|(at, name)| {
        let rest = lower[at + name.len()..].trim_start_matches([' ', '-', 'v']);
        let length = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (version, after) = rest.split_at(length);
        // "Run Python 2 times".
        let is_count = after.trim_start().starts_with("times");
        matches!(version, "1" | "2") && !is_count
    });
    is_older || lower.contains("print statement")
}

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
    const MARKS: [&str; 15] = [
        "point",
        "points",
        "dot",
        "dots",
        "period",
        "periods",
        "comma",
        "commas",
        "space",
        "spaces",
        "blank",
        "blanks",
        "apostrophe",
        "apostrophes",
        "underscore",
    ];
    const DIGITS: [&str; 7] = [
        "thousand",
        "thousands",
        "digit",
        "digits",
        "groups",
        "grouped",
        "numbers",
    ];
    let lower = sentence.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| has_word(&lower, word));
    let is_named = has(&MARKS) && (has(&DIGITS) || !numbers(sentence).is_empty());
    let is_turned = tokens(sentence)
        .iter()
        .any(|token| NEGATIONS.contains(&token.as_str()));
    (is_named || has(&["separator", "separators"])) && !is_turned
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

/// Whether a sentence has two units of one kind, one of which is `amount` times the other.
pub(in crate::rules) fn converts(sentence: &str, amount: f64) -> bool {
    const KINDS: [&[(&str, f64)]; 6] = [
        &[
            ("cent", 1.0),
            ("penny", 1.0),
            ("pence", 1.0),
            ("dollar", 100.0),
            ("euro", 100.0),
            ("pound", 100.0),
        ],
        &[
            ("second", 1.0),
            ("minute", 60.0),
            ("hour", 3600.0),
            ("day", 86_400.0),
            ("week", 604_800.0),
        ],
        &[
            ("millimetre", 1.0),
            ("millimeter", 1.0),
            ("centimetre", 10.0),
            ("centimeter", 10.0),
            ("metre", 1e3),
            ("meter", 1e3),
            ("kilometre", 1e6),
            ("kilometer", 1e6),
        ],
        &[
            ("inch", 1.0),
            ("foot", 12.0),
            ("feet", 12.0),
            ("yard", 36.0),
        ],
        &[
            ("gram", 1.0),
            ("kilogram", 1e3),
            ("tonne", 1e6),
            ("ton", 1e6),
        ],
        &[
            ("millilitre", 1.0),
            ("milliliter", 1.0),
            ("litre", 1e3),
            ("liter", 1e3),
        ],
    ];
    let tokens = tokens(sentence);
    let is_named = |name: &str| {
        let mut tokens = tokens.iter();
        tokens.any(|token| {
            let ending = token.strip_prefix(name);
            matches!(ending, Some("" | "s" | "es"))
        })
    };
    KINDS.iter().any(|kind| {
        let sizes: Vec<f64> = kind
            .iter()
            .filter(|(name, _)| is_named(name))
            .map(|(_, size)| *size)
            .collect();
        let mut larger = sizes.iter();
        larger.any(|large| sizes.iter().any(|small| is_near(*large, small * amount)))
    })
}
