//! The single checks that [`validate`](crate::validate()) is made of.

use std::fmt;

use serde_json::Value;

use crate::document::PROBLEM_SLOT;
use crate::field_path::FieldPath;
use crate::validate::Problem;

/// Most characters in one text of the harness.
const TEXT_CHARS: usize = 100_000;
/// Deepest nesting of a parameter schema. Far beyond need, and far below any reader's limit.
const SCHEMA_DEPTH: usize = 32;

/// Collects problems.
#[derive(Default)]
pub(crate) struct Check {
    problems: Vec<Problem>,
}

impl Check {
    /// All problems, in the order in which they were found.
    pub(crate) fn finish(self) -> Result<(), Vec<Problem>> {
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(self.problems)
        }
    }

    /// The condition itself; the reason is put into words only if it fails.
    pub(crate) fn that(&mut self, holds: bool, path: &FieldPath, reason: impl FnOnce() -> String) {
        if !holds {
            self.problems.push(Problem {
                path: path.clone(),
                reason: reason(),
            });
        }
    }

    /// A number between two limits, both included.
    pub(crate) fn range<N>(&mut self, path: &FieldPath, number: N, low: N, high: N)
    where
        N: PartialOrd + fmt::Display + Copy,
    {
        // NaN is in no range: both comparisons fail.
        self.that(low <= number && number <= high, path, || {
            format!("{number} is outside {low}..={high}")
        });
    }

    /// Any text: not too long, and no control characters but line feed and tab. A `"\frac"` that
    /// YAML or JSON decoded to a form feed is caught here.
    pub(crate) fn text(&mut self, path: &FieldPath, text: &str) {
        let stray = text
            .chars()
            .find(|c| c.is_control() && *c != '\n' && *c != '\t');
        if let Some(stray) = stray {
            let code = u32::from(stray);
            // Without cutting off a carriage return, which may be the one.
            let line = text
                .split('\n')
                .position(|line| line.contains(stray))
                .map_or(1, |at| at + 1);
            self.that(false, path, || {
                format!("control character U+{code:04X} in line {line} of the text")
            });
        }
        self.that(text.chars().count() <= TEXT_CHARS, path, || {
            format!("longer than {TEXT_CHARS} characters")
        });
    }

    /// A text that says something.
    pub(crate) fn filled(&mut self, path: &FieldPath, text: &str) {
        self.text(path, text);
        self.that(!text.trim().is_empty(), path, || "the text is empty".into());
    }

    /// A filled text on one line.
    pub(crate) fn line(&mut self, path: &FieldPath, text: &str) {
        self.filled(path, text);
        self.that(!text.contains('\n'), path, || {
            "the text has more than one line".into()
        });
    }

    /// A name that is also a file name.
    pub(crate) fn slug(&mut self, path: &FieldPath, name: &str) {
        self.that(is_slug(name), path, || {
            format!("{name:?} isn't a name of lower-case letters, digits and hyphens, 64 at most")
        });
    }

    /// A task template: the problem exactly once, and no other slot.
    pub(crate) fn template(&mut self, path: &FieldPath, template: &str) {
        let count = template.matches(PROBLEM_SLOT).count();
        self.that(count == 1, path, || {
            format!("{PROBLEM_SLOT} must occur exactly once, and occurs {count} times")
        });
        for inside in template
            .split("{{")
            .skip(1)
            .filter_map(|rest| rest.split_once("}}"))
        {
            let slot = format!("{{{{{}}}}}", inside.0);
            let name = inside.0.trim();
            let is_name =
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let starts_well = !name.starts_with(|c: char| c.is_ascii_digit());
            self.that(
                slot == PROBLEM_SLOT || !(is_name && starts_well),
                path,
                || format!("{slot} isn't known; the only slot is {PROBLEM_SLOT}, spelled so"),
            );
        }
    }

    /// An object schema for the arguments of a call.
    pub(crate) fn schema(&mut self, path: &FieldPath, schema: &Value) {
        self.that(depth(schema) <= SCHEMA_DEPTH, path, || {
            format!("nested deeper than {SCHEMA_DEPTH} levels")
        });
        self.that(
            schema.get("type") == Some(&"object".into()),
            &path.join("type"),
            || "the arguments of a call are an object".into(),
        );
        let properties = schema.get("properties");
        let Some(properties) = properties.and_then(Value::as_object) else {
            self.that(false, &path.join("properties"), || {
                "expected a map of parameters".into()
            });
            return;
        };
        for (name, property) in properties {
            let path = path.join("properties").join(name.as_str());
            self.that(is_argument_name(name), &path, || {
                "a parameter's name is letters, digits, `_` or `-`".into()
            });
            self.that(property.is_object(), &path, || {
                "expected the schema of a parameter".into()
            });
        }
        let Some(required) = schema.get("required") else {
            return;
        };
        let path = path.join("required");
        let Some(required) = required.as_array() else {
            self.that(false, &path, || "expected a list of parameter names".into());
            return;
        };
        for (index, name) in required.iter().enumerate() {
            let is_known = name
                .as_str()
                .is_some_and(|name| properties.contains_key(name));
            self.that(is_known, &path.join(index), || {
                format!("there is no parameter {name}")
            });
        }
    }
}

/// Lower-case letters, digits and single hyphens between them, at most 64 characters.
pub(crate) fn is_slug(name: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    name.len() <= 64 && name.split('-').all(is_word)
}

/// Letters, digits, `_` or `-`, at most 64 characters.
pub(crate) fn is_argument_name(name: &str) -> bool {
    let is_word = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    is_word && !name.is_empty() && name.len() <= 64
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
