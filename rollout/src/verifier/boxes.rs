//! Answers in boxes: `\boxed{…}`.

use std::collections::HashMap;

/// What draws a box. The last is the first with its `\b` read as a backspace, as happens to text that
/// was taken for a string of JSON.
const COMMANDS: [&str; 3] = ["\\boxed", "\\fbox", "\u{8}oxed"];

/// A box that has an end and a content.
pub(super) struct BoxedText<'a> {
    /// Where its command starts.
    pub(super) start: usize,
    /// Where what follows it starts.
    pub(super) end: usize,
    pub(super) content: &'a str,
    /// Whether a minus sign stands directly before it.
    is_negative: bool,
}

impl BoxedText<'_> {
    /// The content, with the sign that stands before the box.
    pub(super) fn answer(&self) -> String {
        let content = self.content.trim();
        match self.is_negative {
            false => content.to_owned(),
            true if content.contains(['+', '-', '\u{2212}', '=', ',']) => format!("-({content})"),
            true => format!("-{content}"),
        }
    }
}

/// All boxes that have an end and a content, and aren't said to be wrong; of nested ones the outer.
pub(super) fn boxes(text: &str) -> Vec<BoxedText<'_>> {
    let mut starts: Vec<(usize, usize)> = COMMANDS
        .iter()
        .flat_map(|command| {
            text.match_indices(command)
                .map(|(at, _)| (at, at + command.len()))
        })
        .collect();
    starts.sort_unstable();
    let mut boxes = Vec::new();
    let mut from = 0;
    let mut ends = None;
    for (start, after) in starts {
        if start < from {
            continue;
        }
        let rest = &text[after..];
        let open = after + (rest.len() - rest.trim_start().len());
        let (content, end) = if text[open..].starts_with('{') {
            let ends = ends.get_or_insert_with(|| brace_ends(text));
            let Some(&end) = ends.get(&open) else {
                continue;
            };
            (&text[open + 1..end], end + 1)
        } else {
            // `\boxed 42`
            let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '/');
            let rest = &text[open..];
            let run = &rest[..rest.find(|c: char| !is_part(c)).unwrap_or(rest.len())];
            let run = run.trim_end_matches(['.', ',', '/']);
            if !run.starts_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            (run, open + run.len())
        };
        from = end;
        if !content.trim().is_empty() && !is_ruled_out(&text[..start]) {
            boxes.push(BoxedText {
                start,
                end,
                content,
                is_negative: has_sign(&text[..start]),
            });
        }
    }
    boxes
}

/// For every opening brace that is closed, where that is.
fn brace_ends(text: &str) -> HashMap<usize, usize> {
    let mut ends = HashMap::new();
    let mut open = Vec::new();
    let mut is_escaped = false;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'{' => open.push(index),
            b'}' => {
                if let Some(start) = open.pop() {
                    ends.insert(start, index);
                }
            }
            _ => {}
        }
    }
    ends
}

/// Whether the words before a box say that it isn't the answer.
fn is_ruled_out(before: &str) -> bool {
    let tail = near_end(before);
    let tail = tail
        .trim_end_matches([' ', '$', '(', '[', '\\', '*', '"'])
        .to_lowercase();
    tail == "not"
        || [" not", "n't", "rather than", "instead of"]
            .iter()
            .any(|words| tail.ends_with(words))
}

/// Whether a minus sign directly before a box is that of its value: it stands where a value begins,
/// and takes nothing from another one.
fn has_sign(before: &str) -> bool {
    let Some(before) = ["-", "\u{2212}"]
        .iter()
        .find_map(|minus| before.strip_suffix(minus))
    else {
        return false;
    };
    let line = near_end(before).rsplit('\n').next().unwrap_or_default();
    let place = line.trim_end();
    let is_spaced = place.len() < line.len();
    let word = place
        .rsplit(|c: char| !c.is_alphabetic())
        .next()
        .unwrap_or_default();
    let is_command = place[..place.len() - word.len()].ends_with('\\');
    place.is_empty()
        || place.ends_with(['=', '$', '(', '[', '{', ':', ',', '≈'])
        || is_spaced && word.chars().count() > 1 && !is_command
}

/// The last few characters: there may be many boxes in a text.
fn near_end(text: &str) -> &str {
    const NEAR: usize = 40;
    &text[text.floor_char_boundary(text.len().saturating_sub(NEAR))..]
}
