//! Texts that are filled into prompts, and cut to the room that there is.
//!
//! Room is counted in characters of English prose, of which a token has at least about three. Many
//! tokenizers split every digit, and most have few words in other scripts than Latin: such a character may be
//! a token of its own, and counts as three.

/// Characters of one token, at least about, in English prose.
pub(super) const CHARS_PER_TOKEN: usize = 3;
/// Characters of what says how much was left out.
const OMITTED_CHARS: usize = 40;

/// As many lines as fit, and how many don't.
pub(super) fn lines(texts: impl Iterator<Item = String>, most_chars: usize, none: &str) -> String {
    let texts: Vec<String> = texts.collect();
    let all: usize = texts.iter().map(|text| length(text) + 1).sum();
    let mut left = match all <= most_chars {
        true => most_chars,
        false => most_chars.saturating_sub(OMITTED_CHARS),
    };
    let mut out = String::new();
    let mut omitted = 0;
    for text in texts {
        let length = length(&text) + 1;
        if omitted > 0 || length > left {
            omitted += 1;
            continue;
        }
        left -= length;
        out.push_str(&text);
        out.push('\n');
    }
    if omitted > 0 {
        out.push_str(&format!("({omitted} more are not shown)\n"));
    }
    match out.trim_end() {
        "" => none.to_owned(),
        text => text.to_owned(),
    }
}

/// A text that takes at most `most_chars` and says how many characters it leaves out.
pub(super) fn shorten(text: &str, most_chars: usize) -> String {
    if length(text) <= most_chars {
        return text.to_owned();
    }
    let all = text.chars().count();
    let mark = |kept: usize| format!("… ({} characters more)", all - kept);
    let start = beginning(text, most_chars.saturating_sub(length(&mark(0))));
    let marked = format!("{start}{}", mark(start.chars().count()));
    beginning(&marked, most_chars).to_owned()
}

/// As much of a text as takes at most `most_chars`.
fn beginning(text: &str, most_chars: usize) -> &str {
    let mut taken = 0;
    let end = text.char_indices().find(|(_, c)| {
        taken += weight(*c);
        taken > most_chars
    });
    end.map_or(text, |(end, _)| &text[..end])
}

/// The room that a text takes.
pub(super) fn length(text: &str) -> usize {
    text.chars().map(weight).sum()
}

/// The room that a character takes.
fn weight(c: char) -> usize {
    match c.is_ascii_digit() || !c.is_ascii() {
        true => CHARS_PER_TOKEN,
        false => 1,
    }
}

/// A prompt with its slots filled, each once and in one pass, so that nothing in a value is read as a
/// slot.
pub(super) fn fill(prompt: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(prompt.len());
    let mut rest = prompt.trim();
    while let Some((before, after)) = rest.split_once("{{ ") {
        out.push_str(before);
        let Some((name, after)) = after.split_once(" }}") else {
            out.push_str("{{ ");
            rest = after;
            continue;
        };
        let value = values.iter().find(|(known, _)| *known == name);
        out.push_str(value.map_or("", |(_, value)| value));
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_filled_in_one_pass() {
        assert_eq!(fill("{{ a }}", &[("a", "{{ b }}"), ("b", "x")]), "{{ b }}");
        assert_eq!(fill("a {{ b", &[("b", "x")]), "a {{ b");
    }

    #[test]
    fn what_is_left_out_is_said_within_the_room() {
        assert_eq!(shorten("whole", 5), "whole");
        let text = "word ".repeat(20);
        let short = shorten(&text, 40);
        assert_eq!(short, "word word… (91 characters more)");
        assert_eq!(length(&shorten(&text, 3)), 3);
        let many = || (0..30).map(|_| "a line".to_owned());
        assert_eq!(lines(many(), 210, "none").lines().count(), 30);
        let some = lines(many(), 209, "none");
        assert!(some.ends_with("(6 more are not shown)"), "{some}");
        assert!(length(&some) <= 209);
        assert_eq!(lines(std::iter::empty(), 9, "none"), "none");
    }

    #[test]
    fn what_may_be_a_token_of_its_own_takes_the_room_of_one() {
        let lengths = ["a-b", "x12", "日本", "ü"].map(length);
        assert_eq!(lengths, [3, 7, 6, 3]);
        for text in ["1234567890".repeat(10), "三角形".repeat(30)] {
            for room in [0, 5, 60, 200] {
                let short = shorten(&text, room);
                assert!(length(&short) <= room, "{short}");
                let said = room < 60 || short.ends_with(" characters more)");
                assert!(said, "{short}");
            }
        }
    }
}
