//! The text of commits: a subject line, a body and git trailers.
//!
//! The trailers are always the last paragraph, as `git interpret-trailers` wants it. Everything a model or a
//! critic may have written passes through [`one_line`] or [`paragraphs`] first, so that no text can end a
//! field early, forge a trailer or send control sequences to a terminal.

use std::fmt;
use std::str::FromStr;

use crate::error::RegistryError;
use crate::id::VersionName;

/// Longest subject line, in characters: what `git log --oneline` shows in one row of a terminal.
const SUBJECT_CHARS: usize = 72;

/// Text with every run of white space and control characters made one space.
pub(crate) fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    words
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Text of many lines without control characters, trailing spaces or blank lines at either end.
pub(crate) fn paragraphs(text: &str) -> String {
    let clean = |line: &str| -> String {
        let kept = line.chars().filter(|&c| c == '\t' || !c.is_control());
        kept.collect::<String>().trim_end().to_owned()
    };
    let lines: Vec<String> = text.split('\n').map(clean).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

/// Refuses text that is empty or not already one clean line.
pub(crate) fn check_line(field: &'static str, text: &str) -> Result<(), RegistryError> {
    let reason = if one_line(text).is_empty() {
        "is empty"
    } else if one_line(text) != text {
        "is not one line without control characters and doubled spaces"
    } else {
        return Ok(());
    };
    Err(RegistryError::InvalidField {
        field,
        value: text.to_owned(),
        reason: reason.to_owned(),
    })
}

/// One line that may not be empty.
pub(crate) fn required(field: &'static str, text: &str) -> Result<String, RegistryError> {
    let line = one_line(text);
    check_line(field, &line)?;
    Ok(line)
}

/// A commit message in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) subject: String,
    pub(crate) body: String,
    trailers: Vec<(String, String)>,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.subject)?;
        if !self.body.is_empty() {
            writeln!(f, "\n{}", self.body)?;
        }
        writeln!(f)?;
        for (key, value) in &self.trailers {
            writeln!(f, "{key}: {value}")?;
        }
        Ok(())
    }
}

impl Message {
    /// A message without trailers. Prefix and text make the subject; if that gets too long, the body starts
    /// with the text in full.
    pub(crate) fn new(prefix: &str, text: &str, body: &str) -> Self {
        let (subject, is_cut) = cut_subject(prefix, text);
        let body = match (is_cut, body.is_empty()) {
            (false, _) => body.to_owned(),
            (true, true) => text.to_owned(),
            (true, false) => format!("{text}\n\n{body}"),
        };
        Self {
            subject,
            body,
            trailers: Vec::new(),
        }
    }

    /// Splits a message; one without trailers has none.
    pub(crate) fn parse(text: &str) -> Self {
        let (subject, rest) = text.split_once('\n').unwrap_or((text, ""));
        let rest = rest.trim_end();
        // The last paragraph starts after the last blank line; `rest` itself starts with one.
        let (body, last) = rest
            .rsplit_once("\n\n")
            .unwrap_or(("", rest.trim_start_matches('\n')));
        let trailers: Option<Vec<_>> = last.split('\n').map(trailer).collect();
        let (body, trailers) = match trailers {
            Some(trailers) => (body, trailers),
            None => (rest, Vec::new()),
        };
        Self {
            subject: subject.trim().to_owned(),
            body: body.trim_matches('\n').to_owned(),
            trailers,
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        // The first wins: a person may append trailers of their own after ours.
        self.trailers
            .iter()
            .find(|(found, _)| found == key)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self, key: &'static str) -> Result<String, String> {
        self.get(key)
            .map(str::to_owned)
            .ok_or_else(|| format!("no trailer {key}"))
    }

    pub(crate) fn parsed<T: FromStr>(&self, key: &'static str) -> Result<T, String>
    where
        T::Err: fmt::Display,
    {
        self.text(key)?
            .parse()
            .map_err(|error| format!("trailer {key}: {error}"))
    }

    pub(crate) fn optional<T: FromStr>(&self, key: &'static str) -> Result<Option<T>, String>
    where
        T::Err: fmt::Display,
    {
        if self.get(key).is_none() {
            Ok(None)
        } else {
            self.parsed(key).map(Some)
        }
    }

    pub(crate) fn push(&mut self, key: &'static str, value: impl fmt::Display) {
        self.trailers.push((key.to_owned(), value.to_string()));
    }

    /// The subject without the version's name, if it starts with that.
    pub(crate) fn summary(&self, name: VersionName) -> String {
        let rest = self
            .subject
            .strip_prefix(&name.to_string())
            .and_then(|s| s.strip_prefix(' '));
        rest.unwrap_or(&self.subject).to_owned()
    }
}

fn trailer(line: &str) -> Option<(String, String)> {
    let (key, value) = line.split_once(": ")?;
    let is_key = key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    is_key.then(|| (key.to_owned(), value.trim().to_owned()))
}

/// The subject, cut at [`SUBJECT_CHARS`], and whether it was.
pub(crate) fn cut_subject(prefix: &str, text: &str) -> (String, bool) {
    let subject = format!("{prefix}{text}");
    if subject.chars().count() <= SUBJECT_CHARS {
        return (subject, false);
    }
    let kept: String = subject.chars().take(SUBJECT_CHARS - 1).collect();
    (format!("{}…", kept.trim_end()), true)
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    reason = "a test that can't go on should stop right there"
)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_of_people_have_no_trailers_or_their_own() {
        let plain = Message::parse("fix the prompt");
        assert_eq!(
            (plain.subject.as_str(), plain.get("Run")),
            ("fix the prompt", None)
        );
        let body = Message::parse("fix\n\nIt said: nothing\nuseful\n");
        assert_eq!(body.body, "It said: nothing\nuseful");
        let signed = Message::parse("fix\n\nWhy not.\n\nSigned-off-by: A <a@example.org>\n");
        assert_eq!(signed.get("Signed-off-by"), Some("A <a@example.org>"));
        assert_eq!(signed.body, "Why not.");
        assert_eq!(Message::parse("").subject, "");
    }

    #[test]
    fn appended_trailers_do_not_replace_ours() {
        let mut message = Message::new("v2 P: ", "x", "");
        message.push("Run", "ours");
        let text = format!("{message}Run: theirs\n");
        assert_eq!(Message::parse(&text).get("Run"), Some("ours"));
    }

    proptest! {
        #[test]
        fn messages_round_trip_whatever_the_text(
            text in "\\PC{0,90}|(.|\n){0,90}",
            body in "(.|\n|Run: x\n|\n\n){0,40}",
            value in "(.|\n|: ){1,40}",
        ) {
            let (text, body, value) = (one_line(&text), paragraphs(&body), one_line(&value));
            let mut message = Message::new("v2 P: ", &text, &body);
            message.push("Key-1", &value);
            message.push("Run", "r");
            let written = message.to_string();
            prop_assert!(!written.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
            let read = Message::parse(&written);
            prop_assert_eq!(&read.body, &message.body);
            prop_assert_eq!(read.subject.trim_end(), message.subject.trim_end());
            prop_assert_eq!(read.get("Key-1").unwrap_or_default(), value);
            prop_assert_eq!(read.get("Run"), Some("r"));
            prop_assert!(read.subject.chars().count() <= SUBJECT_CHARS);
        }
    }
}
