//! Reasoning that stands in a reply: kept apart from what the reply says, and never read as a call.
//!
//! Models mark it with tags, in whatever case. A template may open it in the prompt, and then the reply
//! has only the closing tag. Reasoning inside reasoning ends with the outer one, where that ends at
//! all; where only the tag of another kind closes it, it ends there. A tag inside a string of a program or
//! of a JSON call is text of that program. Harmony's channels have a file of their own.

use std::collections::HashMap;
use std::ops::Range;

use super::harmony;

/// Opening and closing tag of each way to mark reasoning: the usual ones, then those of Seed-OSS,
/// Magistral, Command A, OpenThinker and Kimi.
const TAGS: [(&str, &str); 9] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("◁think▷", "◁/think▷"),
];

/// Where the reasoning of a reply stands, and marks that are no part of what it says.
#[derive(Default)]
pub(super) struct Reasoning {
    /// In order and disjoint, tags included.
    spans: Vec<Range<usize>>,
    /// Length of opening and closing tag of each span; 0 where there is none.
    tags: Vec<(usize, usize)>,
    /// Whether the reply ends inside it.
    pub(super) is_open: bool,
}

struct Tag {
    start: usize,
    end: usize,
    kind: usize,
    is_opening: bool,
}

impl Reasoning {
    pub(super) fn of(reply: &str) -> Self {
        match harmony::Message::all(reply) {
            Some(messages) => Self::of_messages(reply, &messages),
            None => Self::of_tags(reply),
        }
    }

    /// Of a reply in Harmony's channels: all but what is said to the user.
    fn of_messages(reply: &str, messages: &[harmony::Message<'_>]) -> Self {
        let mut found = Self::default();
        for message in messages {
            // What stands between two messages is said as it is.
            let (Range { start, end }, body) = (message.range.clone(), message.body.clone());
            match message.kind {
                harmony::Kind::Said => {
                    found.push(start..body.start, (body.start - start, 0));
                    found.push(body.end..end, (end - body.end, 0));
                }
                harmony::Kind::Call => found.push(start..end, (end - start, 0)),
                harmony::Kind::Reasoning => {
                    found.push(start..end, (body.start - start, end - body.end));
                    found.is_open = !message.is_ended && end == reply.len();
                }
            }
        }
        found
    }

    fn of_tags(reply: &str) -> Self {
        let mut found = Self::default();
        let mut quotes = Quotes::default();
        let mut nested = None;
        let mut from = 0;
        while let Some(tag) = next_tag(reply, from) {
            quotes.advance(reply, tag.start);
            if quotes.is_in_string() {
                from = tag.end;
                continue;
            }
            let tag_length = tag.end - tag.start;
            if !tag.is_opening {
                // The first closing tag ends what the prompt opened; a later one is a stray.
                let start = if found.spans.is_empty() { 0 } else { tag.start };
                found.push(start..tag.end, (0, tag_length));
                from = tag.end;
            } else {
                let closings = nested.get_or_insert_with(|| Closings::of(reply));
                match closings.of_tag(reply, &tag) {
                    Some(closing) => {
                        from = closing.end;
                        found.push(tag.start..from, (tag_length, closing.len()));
                    }
                    None => {
                        found.push(tag.start..reply.len(), (tag_length, 0));
                        found.is_open = true;
                        return found;
                    }
                }
            }
            quotes.restart(from);
        }
        found
    }

    fn push(&mut self, span: Range<usize>, tags: (usize, usize)) {
        self.spans.push(span);
        self.tags.push(tags);
    }

    /// The reply with blanks in place of reasoning, so that positions stay what they were.
    pub(super) fn masked(&self, reply: &str) -> String {
        let mut masked = String::with_capacity(reply.len());
        let mut from = 0;
        for span in &self.spans {
            masked.push_str(&reply[from..span.start]);
            masked.extend(std::iter::repeat_n(' ', span.len()));
            from = span.end;
        }
        masked.push_str(&reply[from..]);
        masked
    }

    /// The reasoning alone, without tags.
    pub(super) fn text(&self, reply: &str) -> String {
        let spans = self.spans.iter().zip(&self.tags);
        let parts = spans.map(|(span, (opening, closing))| {
            reply[span.start + opening..span.end - closing].trim()
        });
        let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        parts.join("\n\n")
    }
}

/// The closing tags of a reply.
struct Closings {
    /// Where they stand, of each kind and in order.
    places: [Vec<Range<usize>>; TAGS.len()],
    /// That of each opening tag, if tags pair as brackets do.
    pairs: HashMap<usize, Range<usize>>,
}

impl Closings {
    fn of(reply: &str) -> Self {
        let mut open: [Vec<usize>; TAGS.len()] = Default::default();
        let mut found = Closings {
            places: Default::default(),
            pairs: HashMap::new(),
        };
        let mut from = 0;
        while let Some(tag) = next_tag(reply, from) {
            from = tag.end;
            if tag.is_opening {
                open[tag.kind].push(tag.start);
                continue;
            }
            found.places[tag.kind].push(tag.start..tag.end);
            if let Some(start) = open[tag.kind].pop() {
                found.pairs.insert(start, tag.start..tag.end);
            }
        }
        found
    }

    /// Where the reasoning that a tag opens is closed: by its own tag, else by the next of its kind, else
    /// by the next of any.
    fn of_tag(&self, reply: &str, tag: &Tag) -> Option<Range<usize>> {
        let own = self
            .pairs
            .get(&tag.start)
            .filter(|own| !is_quoted(reply, own.start, own.len()));
        let next = |places: &Vec<Range<usize>>| {
            let at = places.partition_point(|place| place.start < tag.end);
            places.get(at).cloned()
        };
        own.cloned()
            .or_else(|| next(&self.places[tag.kind]))
            .or_else(|| {
                let others = self.places.iter().filter_map(next);
                others.min_by_key(|place| place.start)
            })
    }
}

/// Whether a tag of this length probably stands in a string: it is quoted, or a quote is open in its
/// line. Only a little before it is looked at, since a reply may have many tags in one line.
fn is_quoted(reply: &str, start: usize, length: usize) -> bool {
    const NEAR: usize = 256;
    let is_quote = |c: char| matches!(c, '"' | '\'' | '`');
    let before = &reply[reply.floor_char_boundary(start.saturating_sub(NEAR))..start];
    let line = before.rsplit('\n').next().unwrap_or(before);
    let after = &reply[start + length..];
    // Three backquotes are a fence.
    line.ends_with(is_quote) && !line.ends_with("```")
        || after.starts_with(is_quote) && !after.starts_with("```")
        || line.matches('"').count() % 2 == 1
}

/// The next tag at or after `from`.
fn next_tag(reply: &str, mut from: usize) -> Option<Tag> {
    let bytes = reply.as_bytes();
    loop {
        // The first bytes of the tags; the last is that of `◁`.
        let starts = |byte: &u8| matches!(byte, b'<' | b'[' | 0xe2);
        let start = from + bytes[from..].iter().position(starts)?;
        from = start + 1;
        // Replies have many brackets, and hardly any begins a tag.
        let next = bytes.get(from).map(u8::to_ascii_lowercase);
        if !matches!(next, Some(b'/' | b't' | b'r' | b's' | b'|' | 0x97)) {
            continue;
        }
        for (kind, (opening, closing)) in TAGS.iter().enumerate() {
            for (text, is_opening) in [(opening, true), (closing, false)] {
                let end = start + text.len();
                let is_tag = bytes
                    .get(start..end)
                    .is_some_and(|found| found.eq_ignore_ascii_case(text.as_bytes()));
                if is_tag {
                    return Some(Tag {
                        start,
                        end,
                        kind,
                        is_opening,
                    });
                }
            }
        }
    }
}

/// Whether a position lies in a string of a program or of JSON.
pub(super) fn in_string(reply: &str, position: usize) -> bool {
    let mut quotes = Quotes::default();
    quotes.advance(reply, position);
    quotes.is_in_string()
}

/// Whether a position lies in a string of a program or of JSON. A program stands in a fence; JSON is
/// told by the colon or bracket before the quote, since prose has quotes too. No string goes on over
/// the end of its line.
#[derive(Default)]
struct Quotes {
    position: usize,
    is_fenced: bool,
    /// The open quote, and whether JSON puts one there.
    open: Option<(char, bool)>,
    is_escaped: bool,
    has_line_text: bool,
    last: char,
}

impl Quotes {
    fn is_in_string(&self) -> bool {
        self.open
            .is_some_and(|(_, is_json)| self.is_fenced || is_json)
    }

    /// Goes on behind a span of reasoning: a fence that was drafted there is closed with it.
    fn restart(&mut self, position: usize) {
        *self = Quotes {
            position,
            ..Quotes::default()
        };
    }

    fn advance(&mut self, reply: &str, end: usize) {
        for (offset, c) in reply[self.position..end].char_indices() {
            let is_escaped = std::mem::take(&mut self.is_escaped);
            match c {
                '\n' => {
                    self.open = None;
                    self.has_line_text = false;
                    continue;
                }
                '\\' => self.is_escaped = !is_escaped,
                '`' if !self.has_line_text
                    && reply[self.position + offset..].starts_with("```") =>
                {
                    self.is_fenced = !self.is_fenced;
                    self.open = None;
                }
                '"' | '\'' if !is_escaped => match self.open {
                    Some((quote, _)) if quote == c => self.open = None,
                    Some(_) => {}
                    None if c == '"' || self.is_fenced => {
                        self.open = Some((c, matches!(self.last, ':' | '[')));
                    }
                    None => {}
                },
                _ => {}
            }
            if !c.is_whitespace() {
                self.last = c;
                self.has_line_text = true;
            }
        }
        self.position = end;
    }
}
