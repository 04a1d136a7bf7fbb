//! Leak guard: no patch may carry a problem of the gate or the test split.
//!
//! Texts are compared as words: lower case, letters and digits only, thousands unseparated. A
//! problem leaks if eight of its words in a row stand in the patch; if it is shorter than that, all
//! of its words in a row (three at least: shorter ones are no texts); or, for a problem with three
//! numbers or more that have six digits together, all of its numbers in a row. Whoever has a
//! problem and its answer in a patch has the problem in it.

use std::collections::{BTreeMap, HashMap, HashSet};

use harness::Patch;
use serde_json::Value;

/// Length of a run of words that two independent texts hardly share.
const RUN: usize = 8;
/// Fewest words by which a short problem is recognised.
const FEWEST_WORDS: usize = 3;
/// Fewest numbers by which a problem is recognised.
const FEWEST_NUMBERS: usize = 3;
/// Fewest digits in those numbers: shorter ones, such as 3, 8 and 14, meet by chance.
const FEWEST_DIGITS: usize = 6;

/// Knows the problems that no patch may carry, as hashes of their parts.
#[derive(Clone, Debug, Default)]
pub struct LeakGuard {
    runs: HashSet<blake3::Hash>,
    /// Whole problems shorter than [`RUN`], by their number of words.
    short: BTreeMap<usize, HashSet<blake3::Hash>>,
    /// All numbers of a problem, by how many there are.
    numbers: HashMap<usize, HashSet<blake3::Hash>>,
}

/// Why a patch is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Leak {
    /// Words of a held-out problem.
    #[error("the patch carries words of a held-out problem: {words:?}")]
    Words {
        /// The shared words.
        words: String,
    },
    /// Numbers of a held-out problem.
    #[error("the patch carries the numbers of a held-out problem: {numbers}")]
    Numbers {
        /// The shared numbers.
        numbers: String,
    },
}

impl LeakGuard {
    /// A guard of these problem texts.
    pub fn new<'a>(tasks: impl Iterator<Item = &'a str>) -> Self {
        let mut guard = LeakGuard::default();
        for problem in tasks {
            let words = words(problem);
            if words.len() < RUN {
                if words.len() >= FEWEST_WORDS {
                    let short = guard.short.entry(words.len()).or_default();
                    short.insert(hash(&words));
                }
            } else {
                guard.runs.extend(words.windows(RUN).map(hash));
            }
            let numbers = numbers(&words);
            let digits: usize = numbers.iter().map(String::len).sum();
            if numbers.len() >= FEWEST_NUMBERS && digits >= FEWEST_DIGITS {
                let known = guard.numbers.entry(numbers.len()).or_default();
                known.insert(hash(&numbers));
            }
        }
        guard
    }

    /// Refuses a patch that carries a guarded problem.
    ///
    /// # Errors
    /// [`Leak`] with what the patch shares with a problem.
    pub fn check(&self, patch: &Patch) -> Result<(), Leak> {
        let mut texts = vec![patch.summary.clone()];
        for op in &patch.ops {
            texts.push(op.path.to_string());
            if let Some(value) = &op.value {
                collect_texts(value, &mut texts);
            }
        }
        // One stream of words: a problem that is spread over several fields is found too.
        let words: Vec<String> = texts.iter().flat_map(|text| words(text)).collect();
        self.check_words(&words)
    }

    fn check_words(&self, words: &[String]) -> Result<(), Leak> {
        let run = (RUN, &self.runs);
        let short = self.short.iter().map(|(length, known)| (*length, known));
        for (length, known) in std::iter::once(run).chain(short) {
            let found = words
                .windows(length)
                .find(|window| known.contains(&hash(window)));
            if let Some(window) = found {
                let words = window.join(" ");
                return Err(Leak::Words { words });
            }
        }
        let numbers = numbers(words);
        for (length, known) in &self.numbers {
            let found = numbers
                .windows(*length)
                .find(|window| known.contains(&hash(window)));
            if let Some(window) = found {
                let numbers = window.join(", ");
                return Err(Leak::Numbers { numbers });
            }
        }
        Ok(())
    }
}

fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Number(number) => texts.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(map) => {
            for (key, value) in map {
                texts.push(key.clone());
                collect_texts(value, texts);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// The normalised words of `text`.
fn words(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().flat_map(char::to_lowercase).collect();
    let is_digit = |at: Option<usize>| {
        at.and_then(|at| chars.get(at))
            .is_some_and(char::is_ascii_digit)
    };
    let mut words = vec![String::new()];
    for (at, c) in chars.iter().enumerate() {
        let is_inside_number = is_digit(at.checked_sub(1)) && is_digit(Some(at + 1));
        match c {
            ',' if is_inside_number => {}
            '.' if is_inside_number => push(&mut words, '.'),
            c if c.is_alphanumeric() => push(&mut words, *c),
            _ => words.push(String::new()),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn push(words: &mut [String], c: char) {
    if let Some(word) = words.last_mut() {
        word.push(c);
    }
}

fn numbers(words: &[String]) -> Vec<String> {
    let is_number = |word: &&String| word.parse::<f64>().is_ok();
    words.iter().filter(is_number).cloned().collect()
}

fn hash(words: &[String]) -> blake3::Hash {
    blake3::hash(words.join(" ").as_bytes())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use super::*;

    const LONG: &str = "Ida keeps 12 hens, 130 ducks and 25 geese. How many birds does Ida keep?";
    const SHORT: &str = "Work out 31 * 47.";

    fn check(text: &str) -> Result<(), Leak> {
        let guard = LeakGuard::new([LONG, SHORT].into_iter());
        let value = serde_json::json!({ "note": text });
        guard.check(&patch(&value))
    }

    fn patch(value: &Value) -> Patch {
        let text = format!(
            r#"{{"dimension":"M","ops":[{{"op":"add","path":"memory.entries","value":{value}}}]}}"#
        );
        Patch::from_json(&text).unwrap()
    }

    #[test]
    fn whole_problems_and_parts_are_refused() {
        assert!(matches!(check(LONG), Err(Leak::Words { .. })));
        assert!(check(&LONG.to_uppercase().replace(' ', "\n-- ")).is_err());
        assert!(check("so: ducks and 25 geese how many birds does").is_err());
        assert!(check("First WORK OUT (31*47), then say 1457.").is_err());
    }

    #[test]
    fn numbers_in_order_are_refused() {
        let other_words = "A pond with 12 frogs, 130 newts, 25 snails";
        assert!(matches!(check(other_words), Err(Leak::Numbers { .. })));
        assert_eq!(check("25 frogs, 130 newts, 12 snails"), Ok(()));
    }

    #[test]
    fn a_problem_over_several_fields_is_refused() {
        let guard = LeakGuard::new([LONG].into_iter());
        let halves = serde_json::json!(["Ida keeps 12 hens, 130 ducks", "and 25 geese"]);
        assert!(guard.check(&patch(&halves)).is_err());
    }

    #[test]
    fn ordinary_texts_pass() {
        assert_eq!(check("How many birds does Ida keep?"), Ok(()));
        assert_eq!(check("Print the result."), Ok(()));
        let guard = LeakGuard::new(["", "7"].into_iter());
        assert_eq!(guard.check(&patch(&serde_json::json!("7"))), Ok(()));
    }

    #[test]
    fn words_are_normalised() {
        assert_eq!(
            words("It's $1,200.50, or (3)!"),
            ["it", "s", "1200.50", "or", "3"]
        );
    }
}
