//! Exact rational numbers as answers are written: `1,234`, `-3.50`, `5/4`, `1 1/4`,
//! `\frac{9}{7}`, `$12`, `50\%`, `15\text{ cm}^2`.
//!
//! Nothing is evaluated and nothing decides by floating point but the stated tolerance. A number
//! of more than [`MAX_DIGITS`] digits isn't read, so that no answer takes long.

use std::cmp::Ordering;
use std::ops::Range;

use super::digits::Digits;
use super::words::{changes_value, scale};

/// Digits of one number.
const MAX_DIGITS: usize = 400;
/// Words after one number that multiply it: "hundred thousand".
const MAX_SCALES: usize = 4;

/// A number in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// Its bytes, with sign, fraction and percent sign.
    pub(super) range: Range<usize>,
}

/// A rational number.
#[derive(Clone, Debug)]
pub(super) struct Number {
    is_negative: bool,
    numerator: Digits,
    denominator: Digits,
    is_percent: bool,
}

impl Number {
    /// Reads a whole text as one number; anything left over but a unit makes it none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut text = plain(text);
        // `x = 5` states a value; an equation has more than a letter on its left.
        if let Some((left, right)) = text.split_once('=') {
            let mut left = left.trim().chars();
            if !left.next().is_some_and(char::is_alphabetic) || left.next().is_some() {
                return None;
            }
            text = right.trim().to_owned();
        }
        let unspoken = without_spoken_minus(text.trim());
        let mut reader = Reader {
            rest: unspoken.unwrap_or(text.trim()),
        };
        let is_negative = reader.sign() ^ unspoken.is_some();
        reader.take("$");
        let is_negative = is_negative ^ reader.sign();
        let (mut numerator, mut denominator) = reader.magnitude()?;
        // A mixed number: a whole one, directly followed by a proper fraction.
        if denominator.is_one() {
            let mut ahead = Reader {
                rest: reader.rest.trim_start(),
            };
            let starts_fraction = ahead
                .rest
                .starts_with(|c: char| c.is_ascii_digit() || c == '\\');
            if starts_fraction && let Some((upper, lower)) = ahead.magnitude() {
                if lower.is_one() || upper.compare(&lower) != Ordering::Less {
                    return None;
                }
                numerator = numerator.times(&lower).plus(&upper);
                denominator = lower;
                reader = ahead;
            }
        }
        for _ in 0..MAX_SCALES {
            let Some((factor, rest)) = leading_scale(reader.rest) else {
                break;
            };
            let digits = factor.to_string();
            numerator = numerator.times(&Digits::of(digits.chars().filter_map(|c| c.to_digit(10))));
            reader.rest = rest;
        }
        let tail = reader.rest.trim();
        let is_percent = ["%", "percent", "pct", "percentage"].contains(&tail);
        let is_unit = is_percent || tail.is_empty() || tail == "$" || is_unit(tail);
        (is_unit && !denominator.is_zero()).then_some(Number {
            is_negative: is_negative && !numerator.is_zero(),
            numerator,
            denominator,
            is_percent,
        })
    }

    pub(super) fn is_percent(&self) -> bool {
        self.is_percent
    }

    pub(super) fn is_integer(&self) -> bool {
        self.numerator.is_multiple_of(&self.denominator)
    }

    pub(super) fn equals(&self, other: &Number) -> bool {
        let left = self.numerator.times(&other.denominator);
        let right = other.numerator.times(&self.denominator);
        self.is_negative == other.is_negative && left.compare(&right) == Ordering::Equal
    }

    /// Whether the other is within a share of this one. Whole numbers are exact.
    pub(super) fn is_near(&self, other: &Number, tolerance: f64) -> bool {
        if self.is_integer() && other.is_integer() {
            return false;
        }
        let (gold, answer) = (self.approximate(), other.approximate());
        gold.is_finite() && answer.is_finite() && (gold - answer).abs() <= tolerance * gold.abs()
    }

    pub(super) fn is_above_one(&self) -> bool {
        self.numerator.compare(&self.denominator) == Ordering::Greater
    }

    /// The value of a percentage.
    pub(super) fn hundredth(&self) -> Number {
        Number {
            denominator: self.denominator.times(&Digits::of([1, 0, 0])),
            is_percent: false,
            ..self.clone()
        }
    }

    fn approximate(&self) -> f64 {
        let size = self.numerator.approximate() / self.denominator.approximate();
        if self.is_negative { -size } else { size }
    }
}

/// The text without what LaTeX adds to a number.
fn plain(text: &str) -> String {
    let mut text = text.trim().trim_end_matches('.').replace('\u{2212}', "-");
    for (from, to) in [
        ("\\left", ""),
        ("\\right", ""),
        ("\\dfrac", "\\frac"),
        ("\\tfrac", "\\frac"),
        ("\\cfrac", "\\frac"),
        ("\\$", "$"),
        ("\\%", "%"),
        ("{,}", ","),
        ("\\,", ""),
        ("\\!", ""),
        ("\\;", " "),
        ("\\:", " "),
        ("\\ ", " "),
        ("~", " "),
        ("^\\circ", "°"),
        ("^{\\circ}", "°"),
        ("\\textnormal", "\\text"),
        ("\\mbox", "\\text"),
        ("\\mathrm", "\\text"),
        ("\\(", ""),
        ("\\)", ""),
        ("\\[", ""),
        ("\\]", ""),
        ("**", ""),
    ] {
        text = text.replace(from, to);
    }
    let text = text.trim();
    // Dollar signs around the whole are markup; one before a number is money.
    let inner = text
        .strip_prefix('$')
        .and_then(|inner| inner.strip_suffix('$'));
    inner.unwrap_or(text).trim().to_owned()
}

/// Whether what follows a number is a unit: words, perhaps with an exponent. A lone letter could
/// be a variable, so only a few common symbols count.
fn is_unit(tail: &str) -> bool {
    let tail = tail
        .strip_prefix("\\text")
        .map_or_else(|| tail.to_owned(), |rest| rest.replace(['{', '}'], ""));
    let tail = tail.trim().trim_end_matches(['²', '³', '.']);
    let tail = tail
        .strip_suffix("^2")
        .or(tail.strip_suffix("^3"))
        .unwrap_or(tail)
        .trim();
    let is_word = |c: char| c.is_alphabetic() || matches!(c, ' ' | '°' | '/' | '-' | '\'');
    let is_other = |word: &str| word == "or" || changes_value(word);
    if tail == "°" || !tail.chars().all(is_word) || tail.split(' ').any(is_other) {
        return tail == "°";
    }
    let letters = tail.chars().filter(|c| c.is_alphabetic()).count();
    letters > 1 || matches!(tail, "m" | "g" | "s" | "h" | "l" | "L")
}

/// All numbers in a text, in order. Digits inside a word, an index or an exponent are none.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut position = 0;
    let mut before = None;
    while let Some(c) = text[position..].chars().next() {
        let is_inside = before.is_some_and(|b: char| is_in_word(b) || matches!(b, '_' | '^' | '.'));
        let is_sign = matches!(c, '-' | '+' | '\u{2212}') && before != Some(')');
        let is_start = c.is_ascii_digit() || matches!(c, '.' | '\\' | 'n' | 'N') || is_sign;
        let length = if is_inside || !is_start {
            None
        } else {
            token_length(&text[position..])
        };
        match length {
            Some(length) => {
                tokens.push(Token {
                    range: position..position + length,
                });
                position += length;
                before = text[..position].chars().next_back();
            }
            None => {
                position += c.len_utf8();
                before = Some(c);
            }
        }
    }
    tokens
}

/// Whether a sign before a digit makes it part of a word. Scripts without spaces between words don't.
fn is_in_word(c: char) -> bool {
    c.is_alphanumeric()
        && !matches!(c, '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}')
}

/// Length of the number at the start of a text.
fn token_length(text: &str) -> Option<usize> {
    let mut reader = Reader {
        rest: without_spoken_minus(text).unwrap_or(text),
    };
    reader.sign();
    if !reader.take("\\$") {
        reader.take("$");
    }
    reader.magnitude()?;
    let mut end = text.len() - reader.rest.len();
    // `1 1/4`
    let mut ahead = Reader {
        rest: reader.rest.strip_prefix(' ').unwrap_or(reader.rest),
    };
    if reader.rest.starts_with(' ')
        && ahead.rest.starts_with(|c: char| c.is_ascii_digit())
        && ahead.magnitude().is_some_and(|(_, lower)| !lower.is_one())
        && Number::parse(&text[..text.len() - ahead.rest.len()]).is_some()
    {
        end = text.len() - ahead.rest.len();
    }
    for _ in 0..MAX_SCALES {
        match leading_scale(&text[end..]) {
            Some((_, rest)) => end = text.len() - rest.len(),
            None => break,
        }
    }
    let rest = &text[end..];
    let percent = ["%", "\\%", " %", " \\%"]
        .into_iter()
        .find(|sign| rest.starts_with(sign));
    Some(end + percent.map_or(0, str::len))
}

/// The text behind "negative", which says a minus.
fn without_spoken_minus(text: &str) -> Option<&str> {
    const WORD: &str = "negative ";
    let head = text.get(..WORD.len())?;
    head.eq_ignore_ascii_case(WORD)
        .then(|| text[WORD.len()..].trim_start())
}

/// A word such as "million" behind a blank, and what follows it.
fn leading_scale(text: &str) -> Option<(u64, &str)> {
    let word = text.strip_prefix(' ')?.trim_start_matches(' ');
    let length = word
        .find(|c: char| !c.is_alphanumeric())
        .unwrap_or(word.len());
    Some((scale(&word[..length])?, &word[length..]))
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// A sign; whether it is a minus.
    fn sign(&mut self) -> bool {
        let is_negative = self.take("-") || self.take("\u{2212}");
        if !is_negative {
            self.take("+");
        }
        is_negative
    }

    /// A decimal, a fraction of whole numbers, or LaTeX's fraction: numerator and denominator.
    fn magnitude(&mut self) -> Option<(Digits, Digits)> {
        for name in ["\\frac", "\\dfrac", "\\tfrac"] {
            if self.take(name) {
                let upper = self.fraction_part()?;
                return Some((upper, self.fraction_part()?));
            }
        }
        let (numerator, denominator) = self.decimal()?;
        if denominator.is_one() {
            let mut ahead = Reader { rest: self.rest };
            let is_decimal = |rest: &str| {
                let digit = rest.strip_prefix('.');
                digit.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            };
            if ahead.take("/")
                && let Some(lower) = ahead.whole()
                && !is_decimal(ahead.rest)
            {
                self.rest = ahead.rest;
                return Some((numerator, lower));
            }
        }
        Some((numerator, denominator))
    }

    /// `{12}`, or a single digit.
    fn fraction_part(&mut self) -> Option<Digits> {
        self.rest = self.rest.trim_start();
        if self.take("{") {
            let whole = self.whole()?;
            return self.take("}").then_some(whole);
        }
        let digit = self.rest.chars().next()?.to_digit(10)?;
        self.rest = &self.rest[1..];
        Some(Digits::of([digit]))
    }

    fn whole(&mut self) -> Option<Digits> {
        let length = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.rest.split_at(length);
        self.rest = rest;
        (length > 0 && length <= MAX_DIGITS)
            .then(|| Digits::of(digits.chars().filter_map(|c| c.to_digit(10))))
    }

    /// Digits with thousands separators in groups of exactly three, and a fraction. Ends neither
    /// with a comma nor with a point.
    fn decimal(&mut self) -> Option<(Digits, Digits)> {
        let mut digits: String = self.run();
        if (1..=3).contains(&digits.len()) {
            // Beyond the limit it is no number, however it goes on.
            while digits.len() <= MAX_DIGITS {
                let group = ["{,}", "\\,", "\\!", ","]
                    .iter()
                    .find_map(|s| self.rest.strip_prefix(s));
                let Some(group) = group else { break };
                let group = group.strip_prefix("\\!").unwrap_or(group);
                let length = group.bytes().take_while(u8::is_ascii_digit).count();
                if length != 3 {
                    break;
                }
                digits.push_str(&group[..3]);
                self.rest = &group[3..];
            }
        }
        let mut decimals = 0;
        if let Some(rest) = self.rest.strip_prefix('.') {
            let mut ahead = Reader { rest };
            let fraction = ahead.run();
            if !fraction.is_empty() {
                decimals = fraction.len();
                digits.push_str(&fraction);
                self.rest = ahead.rest;
            }
        }
        if digits.is_empty() || digits.len() > MAX_DIGITS {
            return None;
        }
        let power = std::iter::once(1).chain(std::iter::repeat_n(0, decimals));
        let digits = digits.chars().filter_map(|c| c.to_digit(10));
        Some((Digits::of(digits), Digits::of(power)))
    }

    fn run(&mut self) -> String {
        let length = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.rest.split_at(length);
        self.rest = rest;
        digits.to_owned()
    }
}
