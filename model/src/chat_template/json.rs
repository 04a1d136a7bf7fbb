//! `tojson` as Python's `json.dumps`, byte for byte: models were trained on its separators, its
//! key order and its floats.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::MARKS;

/// The `tojson` filter with the arguments transformers gives it: `ensure_ascii` (default false),
/// `indent`, `separators` and `sort_keys`.
pub(super) fn tojson(
    state: &State,
    value: &Value,
    ensure_ascii: Option<bool>,
    indent: Option<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let ensure_ascii: Option<bool> = ensure_ascii.or(kwargs.get("ensure_ascii")?);
    let sort_keys: Option<bool> = kwargs.get("sort_keys")?;
    let indent = match indent
        .or(kwargs.get("indent")?)
        .filter(|indent| !indent.is_none())
    {
        None => None,
        Some(text) if text.as_str().is_some() => text.as_str().map(str::to_owned),
        Some(width) => Some(" ".repeat(usize::try_from(i64::try_from(width)?).unwrap_or(0))),
    };
    let separators = kwargs
        .get::<Option<Value>>("separators")?
        .filter(|pair| !pair.is_none());
    kwargs.assert_all_used()?;

    let mut writer = Writer {
        out: String::new(),
        ensure_ascii: ensure_ascii.unwrap_or(false),
        sort_keys: sort_keys.unwrap_or(false),
        unescaped: state.lookup(MARKS).unwrap_or_default().to_string(),
        item_separator: if indent.is_some() { "," } else { ", " }.to_owned(),
        key_separator: ": ".to_owned(),
        indent,
        depth: 0,
    };
    if let Some(pair) = separators {
        let pair: Vec<Value> = pair.try_iter()?.collect();
        match pair
            .iter()
            .map(Value::as_str)
            .collect::<Option<Vec<_>>>()
            .as_deref()
        {
            Some([item, key]) => {
                writer.item_separator = (*item).to_owned();
                writer.key_separator = (*key).to_owned();
            }
            _ => return Err(invalid("separators must be two strings")),
        }
    }
    writer.value(value)?;
    Ok(writer.out)
}

struct Writer {
    out: String,
    ensure_ascii: bool,
    sort_keys: bool,
    /// Characters that leave as they are: the marks, which are gone from the final text.
    unescaped: String,
    item_separator: String,
    key_separator: String,
    indent: Option<String>,
    depth: usize,
}

impl Writer {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self
                .out
                .push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.open('[');
                for (index, item) in items.iter().enumerate() {
                    self.next_item(index);
                    self.value(item)?;
                }
                self.close(']', items.is_empty());
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.open('{');
                for (index, key) in keys.iter().enumerate() {
                    self.next_item(index);
                    self.key(key)?;
                    self.out.push_str(&self.key_separator);
                    self.value(&value.get_item(key)?)?;
                }
                self.close('}', keys.is_empty());
            }
            other => return Err(invalid(&format!("a value of type {other} is not JSON"))),
        }
        Ok(())
    }

    fn key(&mut self, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.string(key.as_str().unwrap_or_default()),
            ValueKind::None => self.out.push_str("\"null\""),
            ValueKind::Bool => {
                self.out.push_str(if key.is_true() {
                    "\"true\""
                } else {
                    "\"false\""
                });
            }
            ValueKind::Number => self.out.push_str(&format!("\"{}\"", number(key))),
            other => {
                return Err(invalid(&format!(
                    "a value of type {other} is not a JSON key"
                )));
            }
        }
        Ok(())
    }

    fn open(&mut self, bracket: char) {
        self.out.push(bracket);
        self.depth += 1;
    }

    fn next_item(&mut self, index: usize) {
        if index > 0 {
            self.out.push_str(&self.item_separator);
        }
        self.new_line();
    }

    fn close(&mut self, bracket: char, is_empty: bool) {
        self.depth -= 1;
        if !is_empty {
            self.new_line();
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            self.out.push_str(&indent.repeat(self.depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                '\0'..='\u{1f}' => self.escape(character),
                _ if self.ensure_ascii
                    && !(' '..='~').contains(&character)
                    && !self.unescaped.contains(character) =>
                {
                    self.escape(character);
                }
                _ => self.out.push(character),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, character: char) {
        for unit in character.encode_utf16(&mut [0; 2]) {
            self.out.push_str(&format!("\\u{unit:04x}"));
        }
    }
}

fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => {
            if float.is_nan() {
                "NaN".to_owned()
            } else if float.is_infinite() {
                if float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
            } else {
                float_repr(float)
            }
        }
        _ => value.to_string(),
    }
}

/// Python's `repr` of a float: the shortest digits that read back as the same number, in
/// scientific notation below 1e-4 and from 1e16 on.
pub(super) fn float_repr(float: f64) -> String {
    if float.is_nan() {
        return "nan".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if float != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let fixed = float.to_string();
    if fixed.contains('.') {
        fixed
    } else {
        fixed + ".0"
    }
}

fn invalid(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.to_owned())
}
