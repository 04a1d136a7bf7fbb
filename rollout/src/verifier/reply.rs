//! The part of a reply in which its answer is looked for.

use super::code::without_programs;

/// Where a model's reply ends, however much text follows.
const ENDS: [&str; 9] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "<|return|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "</s>",
];

/// What a reply says of itself.
pub(super) struct Said {
    /// The text with blanks in the place of programs and of what they print.
    pub(super) text: String,
    /// Whether it ends with such a thing: then its last line says nothing.
    pub(super) ends_in_program: bool,
}

/// The text of a reply without its reasoning, read for what it says itself.
pub(super) fn said(text: &str) -> Said {
    let text = up_to_end(text);
    let plain = without_results(without_programs(text));
    Said {
        ends_in_program: plain.trim_end().len() < text.trim_end().len(),
        text: plain,
    }
}

/// The text up to the first mark of a chat template.
pub(super) fn up_to_end(text: &str) -> &str {
    let end = ENDS.iter().filter_map(|end| text.find(end)).min();
    end.map_or(text, |end| &text[..end])
}

/// With blanks in the place of results of tools that the reply repeats, or makes up.
fn without_results(text: String) -> String {
    const TAGS: (&str, &str) = ("<tool_response>", "</tool_response>");
    if !text.contains(TAGS.0) {
        return text;
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(start) = rest.find(TAGS.0) {
        let end = rest[start..]
            .find(TAGS.1)
            .map_or(rest.len(), |at| start + at + TAGS.1.len());
        plain.push_str(&rest[..start]);
        plain.extend(std::iter::repeat_n(' ', end - start));
        rest = &rest[end..];
    }
    plain.push_str(rest);
    plain
}
