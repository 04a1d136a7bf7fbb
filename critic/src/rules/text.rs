//! What rules ask a text.

/// Whether a line works something out.
pub(crate) fn is_calculation(line: &str) -> bool {
    line.contains('=') && numbers(line).len() >= 2
}

/// The last line with text.
pub(crate) fn last_line(text: &str) -> Option<&str> {
    text.lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())
}

/// The numbers in `text`, in order; thousands may be set off by commas.
pub(crate) fn numbers(text: &str) -> Vec<f64> {
    let chars: Vec<char> = text.chars().collect();
    let is_digit = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
    let mut numbers = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        if !is_digit(at) {
            at += 1;
            continue;
        }
        // A minus directly before the digits that doesn't subtract from what stands before it.
        let is_negative = at > 0
            && chars[at - 1] == '-'
            && (at < 2 || !(chars[at - 2].is_alphanumeric() || chars[at - 2] == ')'));
        let mut digits = String::new();
        while is_digit(at) || (matches!(chars.get(at), Some('.' | ',')) && is_digit(at + 1)) {
            if chars[at] != ',' {
                digits.push(chars[at]);
            }
            at += 1;
        }
        if let Ok(number) = digits.parse::<f64>() {
            numbers.push(if is_negative { -number } else { number });
        }
    }
    numbers
}

/// The numbers in an answer, and what a fraction or a percentage of them comes to.
pub(crate) fn values(answer: &str) -> Vec<f64> {
    let mut values = numbers(answer);
    let is_fraction = answer.contains('/') || answer.contains("frac");
    let whole = match values.as_slice() {
        [above, below] if is_fraction && *below != 0.0 => Some(above / below),
        [percent] if answer.contains('%') => Some(percent / 100.0),
        _ => None,
    };
    values.extend(whole);
    values
}

/// Whether two numbers are one but for the last digits of floating point.
pub(crate) fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

/// Whether `rounded` is `exact`, or `exact` with fewer digits.
pub(crate) fn is_rounding(exact: f64, rounded: f64) -> bool {
    let is_rounded = |digits: i32| {
        let scale = 10f64.powi(digits);
        is_near((exact * scale).round() / scale, rounded)
    };
    is_near(exact, rounded) || (0..=6).any(is_rounded)
}

/// The contents of a text's boxes, `\boxed{…}`.
pub(crate) fn boxes(text: &str) -> impl Iterator<Item = &str> {
    let mut parts = text.split("\\boxed{");
    parts.next();
    parts.filter_map(|part| {
        let mut open = 1;
        let end = part.char_indices().find_map(|(at, sign)| {
            open += match sign {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            (open == 0).then_some(at)
        })?;
        Some(part[..end].trim())
    })
}

/// A text as it stands in a string of JSON, where that is another.
pub(crate) fn in_json(text: &str) -> Option<String> {
    let is_other = text.contains(['"', '\\']);
    let quoted = serde_json::Value::from(text).to_string();
    is_other.then(|| quoted[1..quoted.len() - 1].to_owned())
}

/// A text without the names of LaTeX's commands, which are no words.
pub(super) fn without_commands(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        rest.push_str(part.trim_start_matches(|c: char| c.is_ascii_alphabetic()));
    }
    rest
}

/// Whether a text ends in words that it says over and over. The last one may be cut.
pub(crate) fn ends_in_circles(text: &str) -> bool {
    const LONGEST: usize = 40;
    const FEWEST_WORDS: usize = 9;
    const FEWEST_TIMES: usize = 3;
    let words: Vec<&str> = text.split_whitespace().collect();
    (0..=1).any(|cut| {
        let words = &words[..words.len().saturating_sub(cut)];
        (1..=LONGEST).any(|period| {
            let mut blocks = words.rchunks_exact(period);
            let Some(last) = blocks.next() else {
                return false;
            };
            let times = 1 + blocks.take_while(|block| *block == last).count();
            times >= FEWEST_TIMES && times * period >= FEWEST_WORDS
        })
    })
}

/// Whether `text` holds one of `words`, whatever the case.
pub(crate) fn mentions(text: &str, words: &[&str]) -> bool {
    let text = text.to_lowercase();
    words.iter().any(|word| text.contains(word))
}

/// Whether `word` is one of `words`, which blanks set apart.
pub(crate) fn is_among(word: &str, words: &str) -> bool {
    words.split_whitespace().any(|known| known == word)
}

/// Whether one of `words`, which blanks set apart, stands in `text` as a whole word, in this case.
pub(crate) fn has_any(text: &str, words: &str) -> bool {
    words.split_whitespace().any(|word| has_word(text, word))
}

/// Whether `word` stands in `text` as a whole word, in this case.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    word_places(text, word).next().is_some()
}

/// What stands before and after `word`, wherever it stands in `text` as a whole word.
pub(crate) fn word_places<'a>(
    text: &'a str,
    word: &'a str,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).filter_map(move |(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        let is_within = before.chars().next_back().is_some_and(is_part)
            || after.chars().next().is_some_and(is_part);
        (!is_within).then_some((before, after))
    })
}
