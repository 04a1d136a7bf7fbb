//! What templates written for Python expect of strings, beyond what minijinja offers: white space
//! as Python defines it, and the methods templates call.

use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};
use minijinja_contrib::{globals, pycompat};

use super::json;

/// Every method a template may call: ours, pycompat's, and those of the loop object.
pub(super) const METHODS: &[&str] = &[
    "capitalize",
    "count",
    "endswith",
    "find",
    "format",
    "get",
    "isalnum",
    "isalpha",
    "isascii",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "isupper",
    "items",
    "join",
    "keys",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "title",
    "upper",
    "values",
    "cycle",
    "changed",
];

/// Makes an environment behave like the one transformers renders chat templates in.
pub(super) fn install(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(method);
    environment.set_formatter(format);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("trim", trim);
    environment.add_filter("string", text);
    environment.add_filter("escape", escape);
    environment.add_filter("e", escape);
    // It prints in a layout of its own; better no filter than another text.
    environment.remove_filter("pprint");
    environment.add_test("sequence", is_sequence);
    environment.add_test("iterable", is_iterable);
    environment.add_function("joiner", globals::joiner);
}

/// Prints a value as Python's `str` does; only floats differ from minijinja.
fn format(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match float(value) {
        Some(float) => minijinja::escape_formatter(out, state, &json::float_repr(float).into()),
        None => minijinja::escape_formatter(out, state, value),
    }
}

fn text(value: &Value) -> String {
    float(value).map_or_else(|| value.to_string(), json::float_repr)
}

fn float(value: &Value) -> Option<f64> {
    if value.kind() != ValueKind::Number || value.is_integer() {
        return None;
    }
    f64::try_from(value.clone()).ok()
}

/// HTML escaping as markupsafe writes it.
fn escape(value: &Value) -> String {
    let mut out = String::new();
    for character in text(value).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            _ => out.push(character),
        }
    }
    out
}

fn trim(value: &Value, characters: Option<&str>) -> String {
    strip(&text(value), characters, true, true).to_owned()
}

/// In Jinja2 everything with a length and items is a sequence: also strings and mappings.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map
    )
}

/// minijinja can also iterate over `none`, as over nothing.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => string_method(text, name, args)
            .unwrap_or_else(|| pycompat::unknown_method_callback(state, value, name, args)),
        None => pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn string_method(text: &str, name: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    let result = match name {
        "strip" => strip_method(text, args, true, true),
        "lstrip" => strip_method(text, args, true, false),
        "rstrip" => strip_method(text, args, false, true),
        "split" => split_method(text, args, false),
        "rsplit" => split_method(text, args, true),
        "splitlines" => split_lines_method(text, args),
        "title" => from_args::<()>(args).map(|()| title(text).into()),
        "partition" => partition(text, args, false),
        "rpartition" => partition(text, args, true),
        "removeprefix" => one(args).map(|prefix| text.strip_prefix(prefix).unwrap_or(text).into()),
        "removesuffix" => one(args).map(|suffix| text.strip_suffix(suffix).unwrap_or(text).into()),
        _ => return None,
    };
    Some(result)
}

fn one(args: &[Value]) -> Result<&str, Error> {
    let (argument,): (&str,) = from_args(args)?;
    Ok(argument)
}

/// `str.isspace`: Unicode white space and the four ASCII separators.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

fn strip<'a>(text: &'a str, characters: Option<&str>, left: bool, right: bool) -> &'a str {
    let is_stripped =
        |c: char| characters.map_or_else(|| is_space(c), |characters| characters.contains(c));
    let text = if left {
        text.trim_start_matches(is_stripped)
    } else {
        text
    };
    if right {
        text.trim_end_matches(is_stripped)
    } else {
        text
    }
}

fn strip_method(text: &str, args: &[Value], left: bool, right: bool) -> Result<Value, Error> {
    let (characters,): (Option<&str>,) = from_args(args)?;
    Ok(strip(text, characters, left, right).into())
}

fn split_method(text: &str, args: &[Value], from_right: bool) -> Result<Value, Error> {
    let (separator, limit, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = separator
        .or(kwargs.get("sep")?)
        .filter(|separator| !separator.is_none());
    let limit: Option<i64> = limit.or(kwargs.get("maxsplit")?);
    kwargs.assert_all_used()?;
    // A negative limit is no limit.
    let limit = limit
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(usize::MAX);
    let parts: Vec<&str> = match &separator {
        None => split_space(text, limit, from_right),
        Some(separator) => match separator.as_str() {
            None => return Err(invalid("the separator must be a string")),
            Some("") => return Err(invalid("empty separator")),
            Some(separator) if from_right => {
                let mut parts: Vec<&str> =
                    text.rsplitn(limit.saturating_add(1), separator).collect();
                parts.reverse();
                parts
            }
            Some(separator) => text.splitn(limit.saturating_add(1), separator).collect(),
        },
    };
    Ok(parts.into_iter().map(Value::from).collect())
}

/// `str.split()` without a separator: runs of white space separate, and none at the ends. What is
/// left when the limit is reached keeps its outer white space.
fn split_space(text: &str, limit: usize, from_right: bool) -> Vec<&str> {
    let skip = |text| strip(text, None, !from_right, from_right);
    let mut parts = Vec::new();
    let mut rest = skip(text);
    while !rest.is_empty() {
        let space = if from_right {
            rest.rfind(is_space)
        } else {
            rest.find(is_space)
        };
        let Some(at) = space.filter(|_| parts.len() < limit) else {
            parts.push(rest);
            break;
        };
        let width = rest[at..].chars().next().map_or(0, char::len_utf8);
        let (part, others) = if from_right {
            (&rest[at + width..], &rest[..at])
        } else {
            (&rest[..at], &rest[at + width..])
        };
        parts.push(part);
        rest = skip(others);
    }
    if from_right {
        parts.reverse();
    }
    parts
}

/// `str.title`: a letter is upper case unless it follows a letter.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut follows_letter = false;
    for character in text.chars() {
        if follows_letter {
            out.extend(character.to_lowercase());
        } else {
            out.extend(character.to_uppercase());
        }
        follows_letter = character.is_alphabetic();
    }
    out
}

fn split_lines_method(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (keep_ends, kwargs): (Option<bool>, Kwargs) = from_args(args)?;
    let keep_ends: bool = keep_ends.or(kwargs.get("keepends")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(is_line_end) {
        let mut width = rest[at..].chars().next().map_or(0, char::len_utf8);
        if rest[at..].starts_with("\r\n") {
            width = 2;
        }
        lines.push(Value::from(
            &rest[..if keep_ends { at + width } else { at }],
        ));
        rest = &rest[at + width..];
    }
    if !rest.is_empty() {
        lines.push(Value::from(rest));
    }
    Ok(Value::from(lines))
}

fn is_line_end(character: char) -> bool {
    matches!(character, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn partition(text: &str, args: &[Value], from_right: bool) -> Result<Value, Error> {
    let separator = one(args)?;
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    let found = if from_right {
        text.rsplit_once(separator)
    } else {
        text.split_once(separator)
    };
    let parts = match found {
        Some((before, after)) => [before, separator, after],
        None if from_right => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

fn invalid(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}
