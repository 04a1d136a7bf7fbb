//! What a sentence has names of.

use crate::rules::text::{has_any, has_word, is_among, word_places};

/// Whether a sentence speaks of a language other than Python.
pub(in crate::rules) fn names_other_language(sentence: &str) -> bool {
    const LANGUAGES: &str = "javascript js typescript java ruby perl php rust golang julia matlab \
                             octave haskell pascal fortran cobol basic lua kotlin swift scala bash \
                             shell sql mathematica wolfram lisp c++ c# pseudocode";
    // In capitals or after a preposition, one letter is a language too.
    let is_letter = ["in C", "in R", "using R", "using C"]
        .iter()
        .any(|words| has_word(sentence, words));
    is_letter || has_any(&sentence.to_lowercase(), LANGUAGES)
}

/// Whether a sentence speaks of a version of Python before the third.
pub(in crate::rules) fn names_older_version(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    let mut named = lower.match_indices("python");
    let is_older = named.any(|(at, name)| {
        let rest = lower[at + name.len()..].trim_start_matches([' ', '-', 'v']);
        let length = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (version, after) = rest.split_at(length);
        // "Run Python 2 times".
        let is_count = after.trim_start().starts_with("times");
        matches!(version, "1" | "2") && !is_count
    });
    is_older || lower.contains("print statement")
}

/// Whether a sentence gives `name` as that of an argument.
pub(in crate::rules) fn names_argument(sentence: &str, name: &str) -> bool {
    const ABOUT: &str = "argument arguments parameter parameters field key takes called";
    let is_marked = ['`', '"', '\''].iter().any(|mark| {
        let marked = format!("{mark}{name}{mark}");
        sentence.contains(&marked)
    });
    let is_about = has_any(&sentence.to_lowercase(), ABOUT);
    has_word(sentence, name) && (is_marked || is_about)
}

/// Whether a sentence gives `name` as that of a tool, and doesn't only use the word.
pub(in crate::rules) fn names_tool(sentence: &str, name: &str) -> bool {
    const BEFORE: &str = "called named call calls use uses using tool function";
    let is_mark = |c: char| c.is_whitespace() || matches!(c, '`' | '"' | '\'');
    let last_word = |text: &str| -> String {
        let word = text.rsplit(|c: char| !c.is_alphanumeric()).next();
        word.unwrap_or_default().to_lowercase()
    };
    word_places(sentence, name).any(|(before, after)| {
        let before = before.trim_end_matches(is_mark);
        let after = after.trim_start_matches(is_mark).to_lowercase();
        let word = last_word(before);
        let is_called = word == "the" && {
            let earlier = before[..before.len() - word.len()].trim_end();
            is_among(&last_word(earlier), "call calls calling")
        };
        is_called
            || is_among(&word, BEFORE)
            || ["tool", "function", "("]
                .iter()
                .any(|next| after.starts_with(next))
    })
}

/// Whether a sentence gives `name` as a name for programs, and doesn't only use the word.
pub(in crate::rules) fn names_code(sentence: &str, name: &str) -> bool {
    const BEFORE: &str = "import from module modules function library package variable class";
    word_places(sentence, name).any(|(before, after)| {
        let is_argument = before.ends_with('(') && after.starts_with([')', ',']);
        let mut following = after.chars();
        let is_used = match following.next() {
            Some('(' | '`') => true,
            Some('.') => following.next().is_some_and(char::is_alphanumeric),
            _ => after.starts_with(" = "),
        };
        let is_introduced = before.strip_suffix(' ').is_some_and(|before| {
            let mut words = BEFORE.split(' ');
            words.any(|word| before.ends_with(word))
        });
        is_argument || is_used || is_introduced || before.ends_with('`')
    })
}
