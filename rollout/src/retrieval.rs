//! Which notes of a memory a problem is shown: those that share most words with it.

use std::collections::{BTreeMap, BTreeSet};

/// What the rarest word weighs. Weights are whole numbers, so that the choice is the same everywhere.
const WEIGHT: usize = 1 << 20;

/// The words of a text in lower case, with a blank on either side of each.
pub(crate) fn words(text: &str) -> String {
    let lower = text.to_lowercase();
    let mut words = " ".to_owned();
    for word in lower.split(|c: char| !c.is_alphanumeric()) {
        if !word.is_empty() {
            words.push_str(word);
            words.push(' ');
        }
    }
    words
}

/// The `most` entries that share most with a problem, in their own order; 0 means all. A shared word
/// weighs the more the fewer entries have it. Of equal ones the later go first: they were learned
/// last.
pub(crate) fn relevant<'a>(
    entries: &'a [String],
    most: usize,
    problem: &str,
) -> impl Iterator<Item = &'a str> {
    let chosen = if most == 0 || most >= entries.len() {
        (0..entries.len()).collect()
    } else {
        choose(entries, most, problem)
    };
    chosen.into_iter().map(|index| entries[index].as_str())
}

/// The places of the chosen entries.
fn choose(entries: &[String], most: usize, problem: &str) -> BTreeSet<usize> {
    let texts: Vec<String> = entries.iter().map(|entry| words(entry)).collect();
    let sets: Vec<BTreeSet<&str>> = texts
        .iter()
        .map(|text| text.split_whitespace().collect())
        .collect();
    let mut having: BTreeMap<&str, usize> = BTreeMap::new();
    for &word in sets.iter().flatten() {
        *having.entry(word).or_insert(0) += 1;
    }
    let problem = words(problem);
    let asked: BTreeSet<&str> = problem.split_whitespace().collect();
    let score = |set: &BTreeSet<&str>| -> usize {
        let shared = set.intersection(&asked);
        shared.map(|word| WEIGHT / having[word]).sum()
    };
    let mut order: Vec<(usize, usize)> = sets.iter().map(score).zip(0..).collect();
    order.sort_unstable_by(|a, b| b.cmp(a));
    order.truncate(most);
    order.into_iter().map(|(_, index)| index).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chosen(entries: &[&str], most: usize, problem: &str) -> Vec<String> {
        let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        relevant(&entries, most, problem)
            .map(str::to_owned)
            .collect()
    }

    const NOTES: [&str; 4] = [
        "A percent is a hundredth of the number.",
        "The speed of the boat is the distance by the time.",
        "The last digit decides whether the number is even.",
        "A program prints the result.",
    ];

    #[test]
    fn notes_that_share_rare_words_with_the_problem_are_shown_in_their_order() {
        let problem = "What PERCENT of the boats sails at a speed of 5?";
        assert_eq!(chosen(&NOTES, 2, problem), NOTES[..2]);
        assert_eq!(
            chosen(&NOTES, 1, "Is the last digit of 7^7 even?"),
            NOTES[2..3]
        );
    }

    #[test]
    fn all_are_shown_without_a_limit_and_the_latest_where_nothing_is_shared() {
        for most in [0, 4, 9] {
            assert_eq!(chosen(&NOTES, most, "x"), NOTES);
        }
        assert_eq!(chosen(&NOTES, 2, "qqq"), NOTES[2..]);
        assert!(chosen(&[], 3, "x").is_empty());
    }

    proptest! {
        #[test]
        fn any_memory_gives_as_many_as_it_may(
            entries in proptest::collection::vec("[a-cé ]{0,12}", 0..8),
            most in 0usize..9,
            problem in "[a-cé ]{0,20}",
        ) {
            let shown: Vec<&str> = relevant(&entries, most, &problem).collect();
            let count = if most == 0 { entries.len() } else { most.min(entries.len()) };
            prop_assert_eq!(shown.len(), count);
        }
    }
}
