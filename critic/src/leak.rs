//! Leak guard: no patch may carry a problem of the gate or the test split, or the answer to one.
//!
//! Texts are compared as words: lower case, letters and digits only, thousands unseparated, numbers
//! without zeros that say nothing. A patch carries a problem if it has
//!
//! - eight of its words in a row; of a shorter problem all words (three at least: fewer are no text);
//! - the same with the signs between numbers, if it has such: "4312 + 2571" isn't "4312 - 2571";
//! - all of its numbers in their order, if these are three or more with six digits together;
//! - or all of them in any order, with no more than two others between, if these are two or more with
//!   six significant digits together;
//! - its answer, if that is telling: numbers of which one has four significant digits, or a text of
//!   twelve letters and digits. A 7 or a 250 stands in texts that know nothing. Numbers outside of texts
//!   are settings, but for those in a tool's parameters, which the model is shown.
//!
//! What stands in an evolve problem as well is no secret: the critic reads those, and may use their
//! words and numbers. Problems made from templates share most of their words. Texts of very many numbers, such
//! as the input of a program's test, are known by their words alone, and make no secret open unless its
//! numbers stand together in them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use harness::{FieldPath, Patch, Segment};
use rollout::Task;
use rollout::task::is_sign;
use rollout::verifier::code::cases;
use serde_json::Value;

/// Length of a run of words that two independent texts hardly share.
const RUN: usize = 8;
/// Fewest words by which a short problem is recognised.
const FEWEST_WORDS: usize = 3;
/// Fewest numbers by which a problem is recognised, in their order.
const FEWEST_IN_ORDER: usize = 3;
/// Fewest numbers by which it is recognised in any order.
const FEWEST_TOGETHER: usize = 2;
/// Fewest digits in those numbers: shorter ones, such as 3, 8 and 14, meet by chance.
const FEWEST_DIGITS: usize = 6;
/// Most numbers of a text that is known by them. In a longer one almost any other numbers stand somewhere,
/// and its own have a run of words.
const MOST_NUMBERS: usize = 32;
/// Other numbers that may stand between them: results on the way, say.
const MOST_BETWEEN: usize = 2;
/// Fewest significant digits of a number that only an answer would have.
const ANSWER_DIGITS: usize = 4;
/// Fewest letters and digits of another such answer.
const ANSWER_CHARS: usize = 12;

/// Knows the problems that no patch may carry.
#[derive(Clone, Debug, Default)]
pub struct LeakGuard {
    /// Runs of words, and short problems whole.
    words: Sequences,
    /// The same with signs, of those that have some.
    signed: Sequences,
    /// All numbers of a problem, in their order.
    numbers: Sequences,
    /// The same in any order.
    together: Vec<BTreeSet<String>>,
    /// Answers that are numbers.
    answer_numbers: Sequences,
    /// Answers that are texts.
    answer_words: Sequences,
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
    /// The answer to a held-out problem.
    #[error("the patch carries the answer to a held-out problem: {answer}")]
    Answer {
        /// The answer, as words.
        answer: String,
    },
}

impl LeakGuard {
    /// A guard of the problems `held_out`. What `open` problems, which the critic reads, have in common
    /// with these isn't guarded.
    pub fn new<'a>(
        held_out: impl Iterator<Item = &'a Task>,
        open: impl Iterator<Item = &'a Task>,
    ) -> Self {
        let mut guard = LeakGuard::default();
        let mut texts = Vec::new();
        for task in held_out {
            for text in task.telling_texts() {
                let (words, signed) = (words(&text), signed(&text));
                guard.add_text(&words, &signed);
                texts.push((words, signed));
            }
            guard.add_answer(&answer(task));
        }
        let mut known = HashSet::new();
        for task in open {
            guard.forget(task, &mut known);
        }
        // A problem whose every run is known is still one as a whole, if that isn't known too.
        for (words, signed) in texts.iter().filter(|(words, _)| words.len() > RUN) {
            if guard.words.found_in(words).is_none() && !known.contains(&hash(words)) {
                guard.words.add(words);
            }
            let has_signs = signed.iter().any(|word| has_sign(word));
            if has_signs && guard.signed.found_in(signed).is_none() {
                guard.signed.add(signed);
            }
        }
        guard
    }

    fn add_text(&mut self, words: &[String], signed: &[String]) {
        self.words.add_runs(words, |_| true);
        self.signed
            .add_runs(signed, |run| run.iter().any(|word| has_sign(word)));
        let numbers = numbers(words);
        if numbers.len() > MOST_NUMBERS {
            return;
        }
        let digits: usize = numbers.iter().map(|number| digits(number)).sum();
        if numbers.len() >= FEWEST_IN_ORDER && digits >= FEWEST_DIGITS {
            self.numbers.add(&numbers);
        }
        let set = BTreeSet::from_iter(numbers);
        let telling: usize = set.iter().map(|number| significant_digits(number)).sum();
        if set.len() >= FEWEST_TOGETHER && telling >= FEWEST_DIGITS {
            self.together.push(set);
        }
    }

    fn add_answer(&mut self, answer: &[String]) {
        let numbers = numbers(answer);
        let most = numbers.iter().map(|number| significant_digits(number));
        let characters = answer.iter().map(|word| word.chars().count());
        if most.max().unwrap_or(0) >= ANSWER_DIGITS {
            self.answer_numbers.add(&numbers);
        } else if characters.sum::<usize>() >= ANSWER_CHARS {
            self.answer_words.add(answer);
        }
    }

    /// Takes out what stands in a problem that the critic may read, or is its answer. Its texts as a whole
    /// go to `known`.
    fn forget(&mut self, task: &Task, known: &mut HashSet<blake3::Hash>) {
        let answer = answer(task);
        for text in task.telling_texts() {
            let (mut words, signed) = (words(&text), signed(&text));
            known.insert(hash(&words));
            forget(&mut [&mut self.words], &words);
            forget(&mut [&mut self.signed], &signed);
            // Its answer stands apart: it ends no run of words.
            words.extend(answer.iter().cloned());
            let numbers = numbers(&words);
            forget(&mut [&mut self.numbers, &mut self.answer_numbers], &numbers);
            forget(&mut [&mut self.answer_words], &words);
            let all: BTreeSet<String> = numbers.iter().cloned().collect();
            let is_short = numbers.len() <= MOST_NUMBERS;
            self.together
                .retain(|set| !(set.is_subset(&all) && (is_short || are_together(set, &numbers))));
        }
    }

    /// Refuses a patch that carries a guarded problem or its answer.
    ///
    /// # Errors
    /// [`Leak`] with what the patch shares with a problem.
    pub fn check(&self, patch: &Patch) -> Result<(), Leak> {
        let mut texts = vec![patch.summary.clone()];
        let mut said = Vec::new();
        for op in &patch.ops {
            texts.push(op.path.to_string());
            if let Some(value) = &op.value {
                collect_texts(value, &op.path, |_| true, &mut texts);
                if is_parameter(&op.path) {
                    said.push(op.path.to_string());
                }
                collect_texts(value, &op.path, is_parameter, &mut said);
            }
        }
        // One stream of words: a problem that is spread over several fields is found too.
        let stream = |texts: &[String], read: fn(&str) -> Vec<String>| -> Vec<String> {
            let words = texts.iter().flat_map(|text| read(text));
            words.collect()
        };
        self.check_problems(&stream(&texts, words), &stream(&texts, signed))?;
        self.check_answers(&stream(&said, words))
    }

    fn check_problems(&self, words: &[String], signed: &[String]) -> Result<(), Leak> {
        let found = self.words.found_in(words);
        if let Some(found) = found.or_else(|| self.signed.found_in(signed)) {
            let words = found.join(" ");
            return Err(Leak::Words { words });
        }
        let numbers = numbers(words);
        if let Some(found) = self.numbers.found_in(&numbers) {
            let numbers = found.join(", ");
            return Err(Leak::Numbers { numbers });
        }
        let all: HashSet<&String> = numbers.iter().collect();
        let mut candidates = self.together.iter();
        let found = candidates.find(|set| {
            set.iter().all(|number| all.contains(number)) && are_together(set, &numbers)
        });
        match found {
            Some(set) => {
                let numbers: Vec<&str> = set.iter().map(String::as_str).collect();
                Err(Leak::Numbers {
                    numbers: numbers.join(", "),
                })
            }
            None => Ok(()),
        }
    }

    fn check_answers(&self, words: &[String]) -> Result<(), Leak> {
        let numbers = numbers(words);
        let number = self.answer_numbers.found_in(&numbers);
        let found = number.or_else(|| self.answer_words.found_in(words));
        match found {
            Some(found) => Err(Leak::Answer {
                answer: found.join(" "),
            }),
            None => Ok(()),
        }
    }
}

/// Sequences of words as hashes, by their length.
#[derive(Clone, Debug, Default)]
struct Sequences(BTreeMap<usize, HashSet<blake3::Hash>>);

impl Sequences {
    fn add(&mut self, words: &[String]) {
        if !words.is_empty() {
            self.0.entry(words.len()).or_default().insert(hash(words));
        }
    }

    /// Add the runs of a text that are wanted, or all of a shorter one.
    fn add_runs(&mut self, words: &[String], is_wanted: impl Fn(&[String]) -> bool) {
        if words.len() < FEWEST_WORDS {
            return;
        }
        let runs = words.windows(RUN.min(words.len()));
        for run in runs.filter(|run| is_wanted(run)) {
            self.add(run);
        }
    }

    /// The first that stands in `words`; longer ones last.
    fn found_in<'a>(&self, words: &'a [String]) -> Option<&'a [String]> {
        self.0.iter().find_map(|(length, known)| {
            let mut windows = words.windows(*length);
            windows.find(|window| known.contains(&hash(window)))
        })
    }
}

/// Drops what stands in `words`. However many lengths there are, each word is hashed once for each place
/// where a sequence may begin.
fn forget(known: &mut [&mut Sequences], words: &[String]) {
    let lengths = known.iter().flat_map(|sequences| sequences.0.keys());
    let lengths: BTreeSet<usize> = lengths.copied().collect();
    let most = lengths.last().copied().unwrap_or(0);
    for begin in 0..words.len() {
        let mut hasher = blake3::Hasher::new();
        for (word, length) in words[begin..].iter().take(most).zip(1..) {
            add_word(&mut hasher, word);
            if lengths.contains(&length) {
                let hash = hasher.finalize();
                let same = known.iter_mut();
                same.filter_map(|sequences| sequences.0.get_mut(&length))
                    .for_each(|sequences| {
                        sequences.remove(&hash);
                    });
            }
        }
    }
}

/// Whether all of `set` stand within a stretch of `numbers` with few others.
fn are_together(set: &BTreeSet<String>, numbers: &[String]) -> bool {
    let length = (set.len() + MOST_BETWEEN).min(numbers.len());
    let mut stretches = numbers.windows(length);
    stretches.any(|stretch| set.iter().all(|number| stretch.contains(number)))
}

/// The words of a task's answer; none if that is the tests of a program, which are among its texts.
fn answer(task: &Task) -> Vec<String> {
    match cases::from_text(&task.answer) {
        Ok(_) => Vec::new(),
        Err(_) => words(&task.answer),
    }
}

/// The texts of the value at `path`, with the numbers where `has_numbers` says so.
fn collect_texts(
    value: &Value,
    path: &FieldPath,
    has_numbers: fn(&FieldPath) -> bool,
    texts: &mut Vec<String>,
) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Number(number) if has_numbers(path) => texts.push(number.to_string()),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_texts(item, &path.join(index), has_numbers, texts);
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                texts.push(key.clone());
                collect_texts(value, &path.join(key.as_str()), has_numbers, texts);
            }
        }
        Value::Number(_) | Value::Null | Value::Bool(_) => {}
    }
}

/// Whether what is at `path` belongs to a tool's parameters, all of which the model is shown. Other numbers
/// are settings that no model reads.
fn is_parameter(path: &FieldPath) -> bool {
    matches!(
        path.segments(),
        [Segment::Key(section), _, Segment::Key(field), ..]
            if section == "tools" && field == "parameters"
    )
}

/// The normalised words of `text`.
fn words(text: &str) -> Vec<String> {
    let words = split(text).into_iter();
    words.map(|(_, word)| word).collect()
}

/// The same, each with the signs before it.
fn signed(text: &str) -> Vec<String> {
    let words = split(text).into_iter();
    words.map(|(signs, word)| signs + &word).collect()
}

/// Whether one of [`signed`] has a sign.
fn has_sign(word: &str) -> bool {
    word.starts_with(|c: char| !c.is_alphanumeric())
}

/// The normalised words of `text`, and the signs before each.
fn split(text: &str) -> Vec<(String, String)> {
    let chars: Vec<char> = text.chars().flat_map(char::to_lowercase).collect();
    let is_digit = |at: Option<usize>| {
        at.and_then(|at| chars.get(at))
            .is_some_and(char::is_ascii_digit)
    };
    let mut words = vec![<(String, String)>::default()];
    for (at, c) in chars.iter().enumerate() {
        let is_inside_number = is_digit(at.checked_sub(1)) && is_digit(Some(at + 1));
        match c {
            ',' if is_inside_number => {}
            '.' if is_inside_number => push(&mut words, '.'),
            c if c.is_alphanumeric() => push(&mut words, *c),
            c => {
                // What isn't followed by a word keeps its signs for the one that comes.
                if words.last().is_none_or(|(_, word)| !word.is_empty()) {
                    words.push(Default::default());
                }
                if let (true, Some((signs, _))) = (is_sign(&chars, at), words.last_mut()) {
                    signs.push(one_sign(*c));
                }
            }
        }
    }
    words.retain(|(_, word)| !word.is_empty());
    for (_, word) in &mut words {
        *word = plain(word);
    }
    words
}

fn push(words: &mut [(String, String)], c: char) {
    if let Some((_, word)) = words.last_mut() {
        word.push(c);
    }
}

/// One way to write a sign that has several.
fn one_sign(sign: char) -> char {
    match sign {
        '\u{2212}' => '-',
        '\u{d7}' | '\u{b7}' => '*',
        '\u{f7}' => '/',
        sign => sign,
    }
}

/// A number without zeros that say nothing, as in 007 and 2.50; any other word as it is.
fn plain(word: &str) -> String {
    if !is_number(word) {
        return word.to_owned();
    }
    let number = match word.contains('.') {
        true => word.trim_end_matches('0').trim_end_matches('.'),
        false => word,
    };
    match number.trim_start_matches('0') {
        "" => "0".to_owned(),
        fraction if fraction.starts_with('.') => format!("0{fraction}"),
        number => number.to_owned(),
    }
}

/// Digits, with one point between them at most. "nan" and "inf" are words.
fn is_number(word: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match word.split_once('.') {
        Some((whole, fraction)) => is_part(whole) && is_part(fraction),
        None => is_part(word),
    }
}

fn numbers(words: &[String]) -> Vec<String> {
    let numbers = words.iter().filter(|word| is_number(word));
    numbers.cloned().collect()
}

fn digits(number: &str) -> usize {
    number.bytes().filter(u8::is_ascii_digit).count()
}

/// Digits between the zeros at both ends: round numbers meet by chance.
fn significant_digits(number: &str) -> usize {
    let number = match number.contains('.') {
        true => number,
        false => number.trim_end_matches('0'),
    };
    digits(number.trim_start_matches(['0', '.']))
}

fn hash(words: &[String]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for word in words {
        add_word(&mut hasher, word);
    }
    hasher.finalize()
}

fn add_word(hasher: &mut blake3::Hasher, word: &str) {
    hasher.update(word.as_bytes());
    // No word has one.
    hasher.update(b" ");
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests;
