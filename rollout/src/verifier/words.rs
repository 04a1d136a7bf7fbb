//! Words that change the number before them: "5 million" isn't 5.

/// What a word multiplies the number before it with: hundred, thousand and so on. Dozens are counted
/// like apples.
pub(super) fn scale(word: &str) -> Option<u64> {
    let word = word.to_ascii_lowercase();
    Some(match word.strip_suffix('s').unwrap_or(&word) {
        "hundred" => 100,
        "thousand" => 1_000,
        "million" => 1_000_000,
        "billion" => 1_000_000_000,
        "trillion" => 1_000_000_000_000,
        _ => return None,
    })
}

/// Whether a word makes another value of the number before it, in a way that isn't read.
pub(super) fn changes_value(word: &str) -> bool {
    matches!(
        word.to_ascii_lowercase().as_str(),
        "factorial"
            | "squared"
            | "cubed"
            | "mod"
            | "modulo"
            | "remainder"
            | "choose"
            | "below"
            | "half"
            | "halves"
            | "third"
            | "thirds"
            | "fourths"
            | "fifth"
            | "fifths"
            | "sixth"
            | "sixths"
            | "seventh"
            | "sevenths"
            | "eighth"
            | "eighths"
            | "ninth"
            | "ninths"
            | "tenth"
            | "tenths"
            | "hundredth"
            | "hundredths"
            | "thousandth"
            | "thousandths"
            | "infinity"
    ) || scale(word).is_some()
}
