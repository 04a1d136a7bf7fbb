//! The results of encoding.

use std::ops::Range;

/// Token ids with the bytes of the text that each stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoded {
    /// The token ids.
    pub ids: Vec<u32>,
    /// For each id, its byte range in the encoded text. Tokens that share one character all carry
    /// that character's range.
    pub ranges: Vec<Range<usize>>,
}

impl Encoded {
    /// The loss mask for `spans` (byte ranges of the same text, in order and not overlapping):
    /// `true` for each token that has at least one byte inside a span.
    pub fn mask(&self, spans: &[Range<usize>]) -> Vec<bool> {
        let mut spans = spans.iter().peekable();
        let mut mask = Vec::with_capacity(self.ids.len());
        for range in &self.ranges {
            while spans.next_if(|span| span.end <= range.start).is_some() {}
            mask.push(spans.peek().is_some_and(|span| span.start < range.end));
        }
        mask
    }
}

/// A special token that occurs in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecialMatch {
    /// The token's id.
    pub id: u32,
    /// Where it stands, in bytes.
    pub range: Range<usize>,
}
