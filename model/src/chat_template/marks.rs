//! Invisible marks in rendered text. A generation block's output is put between two characters of
//! a private-use plane, and special tokens inside messages get one in front; the marks travel
//! through whatever the template does to the text and are taken out at the end, which yields the
//! byte ranges. Marking the text, unlike marking template positions, survives macros, `set`
//! blocks and string methods.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{ChatTemplateError, Rendered};

/// Three characters that occur nowhere in the input of one rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) open: char,
    pub(super) close: char,
    pub(super) literal: char,
}

impl Marks {
    /// Chooses marks. `source` and `inputs` are everything that can reach the output.
    pub(super) fn choose(source: &str, inputs: &[&Value]) -> Self {
        let mut taken = BTreeSet::new();
        collect(source, &mut taken);
        inputs
            .iter()
            .for_each(|input| collect_value(input, &mut taken));
        // Plane 16 has 65,534 private characters; an input that uses all of them is no prompt.
        let mut free = ('\u{10_0000}'..='\u{10_fffd}').filter(|mark| !taken.contains(mark));
        let mut next = || free.next().unwrap_or('\u{10_fffd}');
        Self {
            open: next(),
            close: next(),
            literal: next(),
        }
    }

    /// Puts a mark in front of every special token inside the strings of `value`, keys included.
    pub(super) fn mark_special(self, value: &Value, special_tokens: &[String]) -> Value {
        match value {
            Value::String(text) => self.mark_text(text, special_tokens).into(),
            Value::Array(items) => items
                .iter()
                .map(|item| self.mark_special(item, special_tokens))
                .collect(),
            Value::Object(entries) => entries
                .iter()
                .map(|(key, value)| {
                    (
                        self.mark_text(key, special_tokens),
                        self.mark_special(value, special_tokens),
                    )
                })
                .collect(),
            other => other.clone(),
        }
    }

    fn mark_text(self, text: &str, special_tokens: &[String]) -> String {
        let starts: BTreeSet<usize> = special_tokens
            .iter()
            .filter(|token| !token.is_empty())
            .flat_map(|token| text.match_indices(token.as_str()).map(|(at, _)| at))
            .collect();
        let mut out = String::with_capacity(text.len() + 4 * starts.len());
        let mut position = 0;
        for start in starts {
            out.push_str(&text[position..start]);
            out.push(self.literal);
            position = start;
        }
        out.push_str(&text[position..]);
        out
    }

    /// Takes the marks out of rendered text.
    ///
    /// # Errors
    /// A template that cut a generation block's output in half.
    pub(super) fn remove(
        self,
        marked: &str,
        special_tokens: &[String],
    ) -> Result<Rendered, ChatTemplateError> {
        let mut rendered = Rendered::default();
        let mut starts = Vec::new();
        let mut depth = 0usize;
        let mut opened = 0;
        for character in marked.chars() {
            let position = rendered.text.len();
            if character == self.open {
                if depth == 0 {
                    opened = position;
                }
                depth += 1;
            } else if character == self.close {
                depth = depth
                    .checked_sub(1)
                    .ok_or(ChatTemplateError::BrokenGeneration)?;
                if depth == 0 && position > opened {
                    rendered.generation.push(opened..position);
                }
            } else if character == self.literal {
                starts.push(position);
            } else {
                rendered.text.push(character);
            }
        }
        if depth > 0 {
            return Err(ChatTemplateError::BrokenGeneration);
        }
        // The template may have cut the token behind a mark; then there is nothing to guard.
        for start in starts {
            let rest = &rendered.text[start..];
            let found = special_tokens
                .iter()
                .filter(|token| rest.starts_with(token.as_str()));
            if let Some(length) = found.map(String::len).max().filter(|length| *length > 0) {
                rendered.literal.push(start..start + length);
            }
        }
        Ok(rendered)
    }
}

fn collect(text: &str, taken: &mut BTreeSet<char>) {
    taken.extend(text.chars().filter(|character| *character >= '\u{10_0000}'));
}

fn collect_value(value: &Value, taken: &mut BTreeSet<char>) {
    match value {
        Value::String(text) => collect(text, taken),
        Value::Array(items) => items.iter().for_each(|item| collect_value(item, taken)),
        Value::Object(entries) => entries.iter().for_each(|(key, value)| {
            collect(key, taken);
            collect_value(value, taken);
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn marks_avoid_what_is_in_the_input() {
        let input = json!({"a\u{100000}": ["\u{100002}"]});
        let marks = Marks::choose("{{ x }}\u{100001}", &[&input]);
        assert_eq!(
            marks,
            Marks {
                open: '\u{100003}',
                close: '\u{100004}',
                literal: '\u{100005}'
            }
        );
    }

    #[test]
    fn marked_special_tokens_become_literal_ranges() {
        let special = ["<a>".to_owned(), "<a><b>".to_owned()];
        let value = json!({"k": ["x<a><b>", 1, null]});
        let marks = Marks::choose("", &[&value]);
        let marked = marks.mark_special(&value, &special);
        let text = marked["k"][0].as_str().expect("valid");
        let rendered = marks
            .remove(&format!("é{text}<a>{}y", marks.literal), &special)
            .expect("valid");
        assert_eq!(rendered.text, "éx<a><b><a>y");
        assert_eq!(rendered.literal.as_slice(), std::slice::from_ref(&(3..9)));
    }
}
