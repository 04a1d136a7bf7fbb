//! From the text of an answer to tokens: LaTeX, plain text and Unicode signs come out the same.

use super::Unread;
use super::repeating::period;
use super::signs::{ESCAPED, SIGNS, SPACES, TEXTS, UNSEEN, script};
use super::vocabulary::is_command;

/// Longest answer that is read, in bytes.
pub(super) const MAX_TEXT: usize = 8_000;
/// Most digits of one number.
const MAX_DIGITS: usize = 4_000;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Number(Number),
    /// A single letter.
    Letter(char),
    /// Two letters or more that stand together.
    Word(String),
    /// The content of `\text{…}` and the like.
    Text(String),
    /// `\name`, and `\{`, `\}`, `\%`, `\|` by their sign.
    Command(String),
    /// Any other sign.
    Sign(char),
    /// `\\` between rows.
    Row,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// Whether white space stands before it.
    pub(super) is_spaced: bool,
}

/// The digits of a number as they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Number {
    pub(super) whole: String,
    pub(super) fraction: String,
    /// Digits that go on for ever, as in `0.\overline{3}`.
    pub(super) repeating: String,
    pub(super) exponent: i32,
    pub(super) has_point: bool,
    /// Whether dots follow, and the digits before them don't tell how they go on.
    pub(super) is_unending: bool,
}

/// The tokens of an answer.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Unread> {
    if text.len() > MAX_TEXT {
        return Err(Unread);
    }
    let text = plain(text);
    let mut scanner = Scanner {
        chars: text.chars().collect(),
        at: 0,
        brackets: 0,
    };
    let mut tokens: Vec<Token> = Vec::new();
    loop {
        let is_spaced = scanner.skip_space();
        let Some(kind) = scanner.next(tokens.last())? else {
            return Ok(tokens);
        };
        if !matches!(&kind, Kind::Text(text) if text.trim().is_empty()) {
            tokens.push(Token { kind, is_spaced });
        }
    }
}

/// The text with Unicode's signs spelled out, without dollar signs around formulas. A dollar sign
/// that means money becomes `¤`.
pub(super) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.trim().chars().peekable();
    while let Some(c) = chars.next() {
        if let Some((mark, sign)) = script(c) {
            // Signs side by side are one exponent: 10¹² isn't 10 to the power of 1.
            let mut signs = String::from(sign);
            while let Some((_, sign)) = chars
                .peek()
                .and_then(|c| script(*c))
                .filter(|(next, _)| *next == mark)
            {
                signs.push(sign);
                chars.next();
            }
            let is_degree = mark == '^' && chars.peek() == Some(&'√') && !ends_in_value(&plain);
            if is_degree {
                chars.next();
                plain.push_str(&format!("\\sqrt[{signs}]"));
            } else {
                plain.push_str(&format!("{mark}{{{signs}}}"));
            }
            continue;
        }
        match SIGNS.iter().find(|(sign, _)| *sign == c) {
            Some((_, spelled)) => plain.push_str(spelled),
            None if matches!(c, '\u{200b}' | '\u{feff}' | '\u{2061}' | '*') => {
                // Stars are multiplication; pairs around a text are Markdown's.
                if c == '*' {
                    plain.push(c);
                }
            }
            None if matches!(c, '\u{2009}' | '\u{202f}' | '\u{2006}' | '\u{2008}') => {
                plain.push_str("\\,");
            }
            None if c.is_whitespace() => plain.push(' '),
            None => plain.push(c),
        }
    }
    let plain = without_markdown(plain.trim());
    let plain = unescaped(&plain)
        .replace("\\not=", "\\ne ")
        .replace("\\not\\in", "\\notin");
    let plain = plain.replace("\\$", "¤");
    let is_money = plain.matches('$').count() == 1
        && (plain.trim_start_matches(['-', ' ']).starts_with('$')
            && plain
                .trim_start_matches(['-', ' ', '$'])
                .starts_with(|c: char| c.is_ascii_digit())
            || plain.trim_end().ends_with('$') && plain.contains(|c: char| c.is_ascii_digit()));
    let plain = plain.replace('$', if is_money { "¤" } else { " " });
    ["\\(", "\\)", "\\[", "\\]"]
        .iter()
        .fold(plain, |plain, mark| plain.replace(mark, " "))
        .trim()
        .to_owned()
}

/// Whether what stands at the end can be raised to a power.
fn ends_in_value(text: &str) -> bool {
    let last = text.trim_end().chars().next_back();
    last.is_some_and(|c| c.is_alphanumeric() || matches!(c, ')' | ']' | '}' | '!' | '|'))
}

/// Without `**` around the whole.
fn without_markdown(text: &str) -> String {
    let inner = text
        .strip_prefix("**")
        .and_then(|text| text.strip_suffix("**"));
    match inner {
        Some(inner) if !inner.contains("**") => inner.trim().to_owned(),
        _ => text.to_owned(),
    }
}

/// `\\frac` as `\frac`, where a text was escaped twice.
fn unescaped(text: &str) -> String {
    let has_rows = text
        .match_indices("\\begin{")
        .any(|(at, _)| !text[..at].ends_with('\\'));
    if has_rows || !text.contains("\\\\") {
        return text.to_owned();
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\\\") {
        let after = &rest[at + 2..];
        let name: String = after
            .chars()
            .take_while(char::is_ascii_alphabetic)
            .collect();
        let name = if name.is_empty() {
            after.chars().take(1).collect()
        } else {
            name
        };
        result.push_str(&rest[..at]);
        let name = name.as_str();
        let is_escaped = ESCAPED.contains(&name) || TEXTS.contains(&name) || is_command(name);
        result.push_str(if is_escaped { "\\" } else { "\\\\" });
        rest = after;
    }
    result.push_str(rest);
    result
}

struct Scanner {
    chars: Vec<char>,
    at: usize,
    /// Open brackets in which a comma separates elements.
    brackets: u32,
}

impl Scanner {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars()
            .enumerate()
            .all(|(ahead, c)| self.peek(ahead) == Some(c))
    }

    fn take(&mut self, text: &str) -> bool {
        let is_there = self.starts_with(text);
        if is_there {
            self.at += text.chars().count();
        }
        is_there
    }

    fn skip_space(&mut self) -> bool {
        let start = self.at;
        loop {
            let before = self.at;
            while self.peek(0).is_some_and(|c| c.is_whitespace() || c == '~') {
                self.at += 1;
            }
            for space in ["\\ ", "\\,", "\\;", "\\:", "\\!", "\\>", "{}"] {
                self.take(space);
            }
            if self.peek(0) == Some('\\') && self.at + 1 == self.chars.len() {
                self.at += 1;
            }
            if before == self.at {
                return self.at > start;
            }
        }
    }

    fn next(&mut self, last: Option<&Token>) -> Result<Option<Kind>, Unread> {
        let Some(c) = self.peek(0) else {
            return Ok(None);
        };
        let is_fraction = c == '.'
            && (self.peek(1).is_some_and(|c| c.is_ascii_digit()) || self.is_at_repetend(1));
        if c.is_ascii_digit() || is_fraction {
            return self.number(last).map(Some);
        }
        if c == '\\' {
            return self.command(last).map(Some);
        }
        if c.is_alphabetic() {
            return Ok(Some(self.letters(last)));
        }
        if self.take("...") {
            while self.take(".") {}
            return Ok(Some(Kind::Command("ldots".into())));
        }
        self.at += 1;
        match c {
            '(' | '[' => self.brackets += 1,
            // `]0, 1[` is an open interval.
            ']' if opens_outward(last) => self.brackets += 1,
            '{' => {
                let is_group = matches!(
                    last.map(|token| &token.kind),
                    Some(Kind::Command(_) | Kind::Sign('^' | '_' | '}' | ']'))
                );
                // The sign for an empty group keeps its brace's count in balance.
                self.brackets += u32::from(!is_group);
            }
            ')' | ']' | '}' => self.brackets = self.brackets.saturating_sub(1),
            '*' if self.peek(0) == Some('*') => {
                self.at += 1;
                return Ok(Some(Kind::Sign('^')));
            }
            '=' if self.peek(0) == Some('=') => self.at += 1,
            '<' | '>' | '!' if self.peek(0) == Some('=') => {
                self.at += 1;
                let name = match c {
                    '<' => "le",
                    '>' => "ge",
                    _ => "ne",
                };
                return Ok(Some(Kind::Command(name.into())));
            }
            _ => {}
        }
        Ok(Some(Kind::Sign(c)))
    }

    fn letters(&mut self, last: Option<&Token>) -> Kind {
        // `1orW`: a connective without its spaces.
        let follows_value = matches!(
            last.map(|token| &token.kind),
            Some(Kind::Number(_) | Kind::Sign(')' | ']' | '}'))
        );
        for connective in ["or", "and"] {
            let length = connective.len();
            let is_one = self.peek(length).is_some_and(char::is_alphabetic)
                && !self.peek(length + 1).is_some_and(char::is_alphabetic);
            if follows_value && is_one && self.take(connective) {
                return Kind::Word(connective.into());
            }
        }
        let mut run = String::new();
        while let Some(c) = self.peek(0).filter(|c| c.is_alphabetic()) {
            run.push(c);
            self.at += 1;
        }
        let mut letters = run.chars();
        match (letters.next(), letters.next()) {
            (Some(letter), None) => Kind::Letter(letter),
            _ => Kind::Word(run),
        }
    }

    fn command(&mut self, last: Option<&Token>) -> Result<Kind, Unread> {
        self.at += 1;
        let mut name = String::new();
        while let Some(c) = self.peek(0).filter(char::is_ascii_alphabetic) {
            name.push(c);
            self.at += 1;
        }
        if name.is_empty() {
            let sign = self.peek(0).ok_or(Unread)?;
            self.at += 1;
            match sign {
                '\\' => return Ok(Kind::Row),
                '{' => self.brackets += 1,
                '}' => self.brackets = self.brackets.saturating_sub(1),
                '$' => return Ok(Kind::Sign('¤')),
                _ => {}
            }
            return Ok(Kind::Command(sign.to_string()));
        }
        // `\quadx` and `\cdotx` are a command and what follows it.
        let is_whole =
            is_command(&name) || TEXTS.contains(&name.as_str()) || UNSEEN.contains(&name.as_str());
        if !is_whole {
            let known = (1..name.len()).rev().find(|&length| {
                let head = &name[..length];
                SPACES.contains(&head) || length > 2 && is_command(head)
            });
            if let Some(length) = known.filter(|_| !SPACES.contains(&name.as_str())) {
                self.at -= name.len() - length;
                name.truncate(length);
            }
        }
        if SPACES.contains(&name.as_str()) {
            if matches!(name.as_str(), "left" | "right") && self.peek(0) == Some('.') {
                self.at += 1;
            }
            return self.after_space(last);
        }
        if UNSEEN.contains(&name.as_str()) {
            self.take("*");
            self.skip_space();
            if self.take("{") {
                self.raw_group()?;
            }
            return self.after_space(last);
        }
        if TEXTS.contains(&name.as_str()) {
            self.take("*");
            self.skip_space();
            if self.take("{") {
                return Ok(Kind::Text(self.raw_group()?));
            }
            return self.next(None)?.ok_or(Unread);
        }
        Ok(Kind::Command(name))
    }

    /// What follows a command that only spaces.
    fn after_space(&mut self, last: Option<&Token>) -> Result<Kind, Unread> {
        self.skip_space();
        // At the end there is nothing left to space.
        let next = self.next(last)?;
        Ok(next.unwrap_or_else(|| Kind::Text(String::new())))
    }

    /// What stands before the brace that closes the one just read.
    fn raw_group(&mut self) -> Result<String, Unread> {
        let mut depth = 0_u32;
        let mut content = String::new();
        loop {
            let c = self.peek(0).ok_or(Unread)?;
            self.at += 1;
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => return Ok(content),
                '}' => depth -= 1,
                _ => {}
            }
            content.push(c);
        }
    }

    fn digits(&mut self) -> String {
        let mut digits = String::new();
        while let Some(c) = self.peek(0).filter(char::is_ascii_digit) {
            digits.push(c);
            self.at += 1;
        }
        digits
    }

    fn number(&mut self, last: Option<&Token>) -> Result<Kind, Unread> {
        let mut number = Number {
            whole: self.digits(),
            ..Number::default()
        };
        // An index or an exponent without braces has no groups.
        let is_script = matches!(last.map(|t| &t.kind), Some(Kind::Sign('^' | '_')));
        if (1..=3).contains(&number.whole.len()) && !is_script {
            while let Some(group) = self.group() {
                number.whole.push_str(&group);
            }
        }
        if self.peek(0) == Some('.') {
            let is_fraction = self.peek(1).is_some_and(|c| c.is_ascii_digit());
            if is_fraction || self.is_at_repetend(1) {
                self.at += 1;
                number.has_point = true;
                number.fraction = self.digits();
            } else if !number.whole.is_empty()
                && self
                    .peek(1)
                    .is_some_and(|c| !c.is_alphanumeric() && !c.is_whitespace() && c != '.')
            {
                // `3.` before a sign.
                self.at += 1;
            }
        }
        if number.has_point && self.take_ellipsis() {
            match period(&number.fraction) {
                Some(length) => {
                    let start = number.fraction.len() - length;
                    number.repeating = number.fraction.split_off(start);
                }
                None => number.is_unending = true,
            }
        } else if number.has_point && self.is_at_repetend(0) {
            number.repeating = self.repetend()?;
        }
        if matches!(self.peek(0), Some('e' | 'E')) && number.repeating.is_empty() {
            let is_signed = matches!(self.peek(1), Some('+' | '-'));
            let start = 1 + usize::from(is_signed);
            if self.peek(start).is_some_and(|c| c.is_ascii_digit()) {
                let is_negative = self.peek(1) == Some('-');
                self.at += start;
                let exponent: i32 = self.digits().parse().map_err(|_| Unread)?;
                number.exponent = if is_negative { -exponent } else { exponent };
                if exponent > 9_999 {
                    return Err(Unread);
                }
            }
        }
        if number.whole.len() + number.fraction.len() + number.repeating.len() > MAX_DIGITS {
            return Err(Unread);
        }
        Ok(Kind::Number(number))
    }

    /// Dots that say that a decimal goes on.
    fn take_ellipsis(&mut self) -> bool {
        let start = self.at;
        self.skip_space();
        let is_there = self.take("...")
            || ["\\ldots", "\\dots", "\\cdots"].iter().any(|dots| {
                let length = dots.len();
                !self.peek(length).is_some_and(|c| c.is_ascii_alphabetic()) && self.take(dots)
            });
        if is_there {
            while self.take(".") {}
        } else {
            self.at = start;
        }
        is_there
    }

    /// Whether the digits that repeat come so far ahead: under a bar, with dots on them, or in
    /// brackets.
    fn is_at_repetend(&self, ahead: usize) -> bool {
        let is_digit = |at: usize| self.peek(at).is_some_and(|c| c.is_ascii_digit());
        let starts_with = |text: &str| {
            let mut chars = text.chars().enumerate();
            chars.all(|(at, c)| self.peek(ahead + at) == Some(c))
        };
        for mark in ["\\overline", "\\bar", "\\dot"] {
            if starts_with(mark) {
                let mut at = ahead + mark.len();
                while self.peek(at) == Some(' ') {
                    at += 1;
                }
                return self.peek(at) == Some('{') || is_digit(at);
            }
        }
        if self.peek(ahead) != Some('(') {
            return false;
        }
        let mut end = ahead + 1;
        while is_digit(end) {
            end += 1;
        }
        // `1.5(3)^2` is a product.
        let is_factor = matches!(self.peek(end + 1), Some('^' | '!' | '_'));
        end > ahead + 1 && self.peek(end) == Some(')') && !is_factor
    }

    /// The digits that repeat.
    fn repetend(&mut self) -> Result<String, Unread> {
        if self.take("(") {
            let digits = self.digits();
            return if self.take(")") {
                Ok(digits)
            } else {
                Err(Unread)
            };
        }
        if self.take("\\overline") || self.take("\\bar") {
            return self.marked_digits();
        }
        // From the digit with the first dot to that with the last.
        let mut digits = String::new();
        while self.take("\\dot") {
            digits.push_str(&self.marked_digits()?);
            let between = self.digits();
            if between.is_empty() {
                continue;
            }
            digits.push_str(&between);
            if !self.take("\\dot") {
                return Err(Unread);
            }
            digits.push_str(&self.marked_digits()?);
            break;
        }
        Ok(digits)
    }

    /// A group of digits, or the one digit that a mark without braces stands on.
    fn marked_digits(&mut self) -> Result<String, Unread> {
        self.skip_space();
        if self.take("{") {
            let digits = self.digits();
            let is_closed = self.take("}");
            return if is_closed && !digits.is_empty() {
                Ok(digits)
            } else {
                Err(Unread)
            };
        }
        let digit = self.peek(0).filter(char::is_ascii_digit).ok_or(Unread)?;
        self.at += 1;
        Ok(digit.to_string())
    }

    /// A group of three digits after a thousands separator.
    fn group(&mut self) -> Option<String> {
        let start = self.at;
        let separator = self.separator()?;
        let digits = self.digits();
        // `1 125/1000` is a mixed number.
        let is_mixed = separator == Separator::Blank && matches!(self.peek(0), Some('/' | '^'));
        if digits.len() != 3 || is_mixed {
            self.at = start;
            return None;
        }
        Some(digits)
    }

    fn separator(&mut self) -> Option<Separator> {
        let blanks = |scanner: &mut Self| {
            while scanner.peek(0) == Some(' ') {
                scanner.at += 1;
            }
        };
        let start = self.at;
        blanks(self);
        if self.take("{") {
            blanks(self);
            if self.take(",") {
                blanks(self);
                if self.take("}") {
                    blanks(self);
                    return Some(Separator::Thin);
                }
            }
        }
        self.at = start;
        if self.take(",\\!") || self.take("\\!,") || self.take(",\\,") {
            blanks(self);
            return Some(Separator::Thin);
        }
        for thin in ["\\,", "\\!", "\\;", "\\:", "\\ ", "~"] {
            if self.take(thin) {
                return Some(Separator::Thin);
            }
        }
        if self.brackets == 0 && self.take(",") {
            return Some(Separator::Thin);
        }
        self.take(" ").then_some(Separator::Blank)
    }
}

/// Whether a `]` at this place opens an interval, as in French.
fn opens_outward(last: Option<&Token>) -> bool {
    match last.map(|token| &token.kind) {
        None => true,
        Some(Kind::Command(name)) => {
            matches!(name.as_str(), "in" | "cup" | "cap" | "setminus")
        }
        Some(Kind::Sign(sign)) => matches!(sign, '=' | ':'),
        Some(_) => false,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separator {
    Thin,
    Blank,
}
