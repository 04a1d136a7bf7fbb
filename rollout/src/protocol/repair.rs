//! A tolerant reader for almost valid JSON objects, behind the hook `repair_json`.
//!
//! It mends what models get wrong without losing anything: doubled braces, an object escaped as if
//! it stood inside a string, trailing commas, single, triple and typographic quotes, keys without any,
//! line breaks and unescaped quotes inside strings, `\n` written between tokens, Python's constants,
//! closing brackets missing at the end, and a closing quote that is missing or stands before the
//! program's last parentheses: `{"code": "print(22 // 7")}}`. A string that just breaks off is left
//! alone: the rest of the program would be missing.

use serde_json::{Map, Number, Value};

/// Deeper nesting isn't a tool call.
const DEPTH: usize = 32;

/// Longest object that is tried, in bytes. Nobody writes a program of this size by hand.
const LONGEST: usize = 64 * 1024;

/// Reads the object at the start of `text`. Gives it and the bytes it takes, or how far it was read
/// in vain.
pub(super) fn object(text: &str) -> Result<(Value, usize), usize> {
    let is_cut = text.len() > LONGEST;
    let text = &text[..text.floor_char_boundary(LONGEST)];
    let (value, length) = match without_escapes(text) {
        Some((plain, places)) => {
            let (value, length) = read(&plain).map_err(|_| text.len())?;
            (value, places.get(length).copied().unwrap_or(text.len()))
        }
        None => read(text)?,
    };
    // An end that may be missing is missing at the end of the reply, not at ours.
    if is_cut && length == text.len() {
        return Err(length);
    }
    Ok((value, length))
}

fn read(text: &str) -> Result<(Value, usize), usize> {
    let mut reader = Reader {
        text,
        position: 0,
        lists: 0,
        is_closed: false,
    };
    match reader.value(0) {
        Some(value) if value.is_object() => Ok((value, reader.position)),
        Some(_) | None => Err(reader.position),
    }
}

/// An object that was written as if inside a string, every quote with a backslash: without them,
/// and where each byte came from.
fn without_escapes(text: &str) -> Option<(String, Vec<usize>)> {
    let inside = text.strip_prefix('{')?.trim_start();
    let inside = inside.strip_prefix("\\n").unwrap_or(inside).trim_start();
    if !inside.starts_with("\\\"") {
        return None;
    }
    let mut plain = String::with_capacity(text.len());
    let mut places = Vec::with_capacity(text.len());
    let mut characters = text.char_indices().peekable();
    while let Some((place, c)) = characters.next() {
        let c = match (c, characters.peek()) {
            ('\\', Some((_, next @ ('"' | '\\')))) => {
                let next = *next;
                characters.next();
                next
            }
            _ => c,
        };
        plain.push(c);
        places.resize(plain.len(), place);
    }
    Some((plain, places))
}

/// Quotes of typography, which editors and models put in the place of the plain ones.
pub(super) fn is_typographic(c: char) -> bool {
    is_double(c) || is_single(c)
}

fn is_double(c: char) -> bool {
    matches!(c, '“' | '”' | '„' | '‟' | '«' | '»')
}

fn is_single(c: char) -> bool {
    matches!(c, '‘' | '’' | '‚' | '‛')
}

/// Whether a string may begin with a character.
fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'') || is_typographic(c)
}

/// Whether a character may end the string that a quote began.
fn closes(c: char, quote: char) -> bool {
    c == quote
        || is_double(quote) && (is_double(c) || c == '"')
        || is_single(quote) && (is_single(c) || c == '\'')
}

/// Whether the call ends here, with or without its brackets.
fn is_over(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with("</tool_call>") || rest.starts_with("```")
}

/// A string whose quote was forgotten: it ends in braces that the program didn't open.
fn closed_by_braces(text: &str) -> Option<String> {
    let text = text.trim_end();
    let most = surplus(text, '}', '{');
    let braces = text.len() - text.trim_end_matches('}').len();
    let count = most.min(braces);
    (count > 0).then(|| balanced(text[..text.len() - count].to_owned()))
}

/// Where the end of a program was damaged: with as many parentheses closed as opened.
fn balanced(mut program: String) -> String {
    program.extend(std::iter::repeat_n(')', surplus(&program, '(', ')')));
    let last = program.len() - program.trim_end_matches(')').len();
    let extra = surplus(&program, ')', '(').min(last);
    program.truncate(program.len() - extra);
    program
}

/// How many more of one character there are than of another.
fn surplus(text: &str, more: char, less: char) -> usize {
    let count = |wanted: char| text.chars().filter(|c| *c == wanted).count();
    count(more).saturating_sub(count(less))
}

struct Reader<'a> {
    text: &'a str,
    position: usize,
    /// Lists that are open.
    lists: usize,
    /// Whether braces inside a string have closed everything.
    is_closed: bool,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, expected: char) -> bool {
        let is_there = self.peek() == Some(expected);
        if is_there {
            self.position += expected.len_utf8();
        }
        is_there
    }

    fn skip_blank(&mut self) {
        while !self.is_closed {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.position += rest.len() - trimmed.len();
            // A line break that was escaped although it stands outside a string.
            if ["\\n", "\\t", "\\r"]
                .iter()
                .any(|written| trimmed.starts_with(written))
            {
                self.position += 2;
            } else {
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.is_closed || is_over(self.rest())
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEPTH {
            return None;
        }
        self.skip_blank();
        match self.peek()? {
            '{' => self.map(depth),
            '[' => self.list(depth),
            quote if is_quote(quote) => Some(Value::String(match self.tripled(quote) {
                Some(text) => text,
                None => self.string(quote, false)?,
            })),
            _ => self.scalar(),
        }
    }

    fn map(&mut self, depth: usize) -> Option<Value> {
        self.take('{');
        // Braces of a template that were copied as they are escaped there.
        let is_doubled = self.take('{');
        let mut map = Map::new();
        loop {
            self.skip_blank();
            match self.peek() {
                None => return Some(Value::Object(map)),
                Some('}') => {
                    self.take('}');
                    if is_doubled {
                        self.take('}');
                    }
                    return Some(Value::Object(map));
                }
                Some(first) if is_quote(first) || first.is_ascii_alphabetic() => {
                    let key = if is_quote(first) {
                        self.string(first, true)?
                    } else {
                        self.word()
                    };
                    self.skip_blank();
                    if !self.take(':') {
                        return None;
                    }
                    let value = self.value(depth + 1)?;
                    if map.insert(key, value).is_some() {
                        return None;
                    }
                }
                Some(_) => return None,
            }
            self.skip_blank();
            if self.is_over() {
                return Some(Value::Object(map));
            }
            if !self.take(',') && self.peek() != Some('}') {
                // An object without its end, followed by other text.
                return None;
            }
        }
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        self.take('[');
        self.lists += 1;
        let mut list = Vec::new();
        loop {
            self.skip_blank();
            match self.peek() {
                None => return Some(Value::Array(list)),
                Some(']') => {
                    self.take(']');
                    self.lists -= 1;
                    return Some(Value::Array(list));
                }
                Some(_) => list.push(self.value(depth + 1)?),
            }
            self.skip_blank();
            if self.is_over() {
                return Some(Value::Array(list));
            }
            if !self.take(',') && self.peek() != Some(']') {
                return None;
            }
        }
    }

    /// A key without quotes.
    fn word(&mut self) -> String {
        let rest = self.rest();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
        self.position += length;
        rest[..length].to_owned()
    }

    /// A string between three quotes of Python's; without one, nothing is read.
    fn tripled(&mut self, quote: char) -> Option<String> {
        let start = self.position;
        let text = self.tripled_text(quote);
        if text.is_none() {
            self.position = start;
        }
        text
    }

    /// Such a string's text. Line breaks at its ends are no part of a program.
    fn tripled_text(&mut self, quote: char) -> Option<String> {
        let mark = quote.to_string().repeat(3);
        let length = self.rest().strip_prefix(&mark)?.find(&mark)?;
        self.position += mark.len();
        let end = self.position + length;
        let mut text = String::new();
        while self.position < end {
            let c = self.peek()?;
            self.position += c.len_utf8();
            if c == '\\' {
                text.push_str(&self.escape()?);
            } else {
                text.push(c);
            }
        }
        self.position = end + mark.len();
        let is_whole = self.text.is_char_boundary(self.position) && self.can_end(false);
        is_whole.then(|| text.trim_matches('\n').to_owned())
    }

    /// A string. A quote ends it only where a string can end, so that quotes of the program inside
    /// it do no harm.
    fn string(&mut self, quote: char, is_key: bool) -> Option<String> {
        self.take(quote);
        let mut result = String::new();
        let mut ends_in_brace = false;
        // How many more braces the string has closed than opened.
        let mut closed = 0i64;
        loop {
            let next = self.peek();
            if matches!(next, None | Some('\n'))
                && ends_in_brace
                && closed > 0
                && let Some(program) = closed_by_braces(&result)
            {
                self.is_closed = true;
                return Some(program);
            }
            let c = next?;
            self.position += c.len_utf8();
            if closes(c, quote) && self.can_end(is_key) {
                return Some(result);
            }
            if c == quote
                && !is_key
                && let Some(brackets) = self.take_misplaced()
            {
                return Some(balanced(result + brackets));
            }
            if c == '\\' {
                result.push_str(&self.escape()?);
                ends_in_brace = false;
            } else {
                result.push(c);
                closed += i64::from(c == '}') - i64::from(c == '{');
                ends_in_brace = c == '}' || ends_in_brace && c.is_whitespace();
            }
        }
    }

    /// What stands after a backslash.
    fn escape(&mut self) -> Option<String> {
        let escaped = self.peek()?;
        self.position += escaped.len_utf8();
        Some(match escaped {
            'n' => "\n".into(),
            't' => "\t".into(),
            'r' => "\r".into(),
            '"' | '\'' | '\\' | '/' => escaped.into(),
            'u' => {
                let first = self.code_unit()?;
                // Characters beyond the first plane are written as two units.
                let second = match first {
                    0xD800..0xDC00 => {
                        self.position += self.rest().starts_with("\\u").then_some(2)?;
                        Some(self.code_unit()?)
                    }
                    _ => None,
                };
                let units = std::iter::once(first).chain(second);
                char::decode_utf16(units).next()?.ok()?.into()
            }
            // No JSON escape that a program could mean: the backslash is the program's.
            other => format!("\\{other}"),
        })
    }

    fn code_unit(&mut self) -> Option<u16> {
        let unit = u16::from_str_radix(self.rest().get(..4)?, 16).ok()?;
        self.position += 4;
        Some(unit)
    }

    /// After a quote: closing brackets that belong before it, if braces follow them.
    fn take_misplaced(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let after = rest.trim_start_matches([')', ']']);
        let brackets = &rest[..rest.len() - after.len()];
        let is_misplaced = !brackets.is_empty() && after.trim_start().starts_with('}');
        is_misplaced.then(|| {
            self.position += brackets.len();
            brackets
        })
    }

    fn can_end(&self, is_key: bool) -> bool {
        let after = self.rest().trim_start_matches(|c: char| c.is_whitespace());
        let after = after.trim_start_matches("\\n").trim_start();
        match after.chars().next() {
            _ if is_over(after) => !is_key,
            Some(':') => is_key,
            Some(']') => self.lists > 0,
            Some(',' | '}') => !is_key,
            Some(_) | None => false,
        }
    }

    fn scalar(&mut self) -> Option<Value> {
        let rest = self.rest();
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let length = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
        let word = &rest[..length];
        self.position += length;
        match word {
            "true" | "True" => Some(Value::Bool(true)),
            "false" | "False" => Some(Value::Bool(false)),
            "null" | "None" => Some(Value::Null),
            number => number.parse::<Number>().ok().map(Value::Number),
        }
    }
}
