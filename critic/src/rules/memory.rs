//! Rules of dimension M: memory that is full, stale, too long, or not used.

use harness::{Eviction, MemoryKind};
use rollout::Event;

use super::finding::Finding;
use super::skills::wrong_program;
use super::text::{mentions, numbers};
use super::view::{CHARS_PER_TOKEN, View};
use super::{Fault, obeyed, ways};
use crate::mining::words;
use crate::record::Severity::{High, Low};
use crate::repairs::memory as repair;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "memory_full",
        explain: "Memory has reached its capacity and doesn't make room, so that no new lesson can be \
                  kept, and the rollout failed with the notes that are there.",
        repairs: &[repair::DROP_OLDEST, repair::CAPACITY_UP, repair::CLEAR],
        look: |view| {
            let memory = &view.harness.memory;
            let is_met = memory.kind != MemoryKind::None
                && memory.eviction != Eviction::Oldest
                && memory.entries.len() as u64 >= u64::from(memory.capacity);
            view.last_words()?.last_line(Low).filter(|_| is_met)
        },
    },
    Fault {
        name: "notes_fill_context",
        explain: "Memory takes more than a quarter of the context, and the rollout ran out of \
                  tokens.",
        repairs: &[repair::DROP_LONGEST, repair::DROP_OLDEST, repair::CLEAR],
        look: |view| {
            let is_met = view.is_out_of_tokens() && notes_fill_context(view);
            view.last_words()?.last_line(High).filter(|_| is_met)
        },
    },
    Fault {
        name: "stale_note",
        explain: "The wrong answer is a number that stands in memory and not in the problem: the \
                  model repeated a note from another problem.",
        repairs: &[repair::CLEAR],
        look: stale_answer,
    },
    Fault {
        name: "stale_number",
        explain: "The program calculates with a number that stands in memory and not in the \
                  problem: a note of another problem, or a wrong one.",
        repairs: &[repair::CLEAR],
        look: stale_number,
    },
    Fault {
        name: "note_not_shown",
        explain: "A note in memory was kept from the model, and it is about this problem, or every problem \
                  of the topic fails in one way.",
        repairs: &[repair::SHOW_ALL],
        look: |view| {
            hidden_note(view)?;
            Some(wrong_program(view)?.rated(High))
        },
    },
    ways::MISLEADS,
    ways::AGAINST_TOOL,
    ways::ALTERS_ANSWER,
    ways::NAMES_UNKNOWN_TOOL,
    ways::NAMES_MISSING_CODE,
    ways::ASKS_FOR_LENGTH,
    ways::ASKS_FOR_WORDS,
    Fault {
        name: "print_lesson_not_kept",
        explain: "A program printed nothing, and no note carries that lesson from one problem to \
                  the next.",
        repairs: &[repair::NOTE_PRINT],
        look: |view| {
            let mut entries = view.harness.memory.entries.iter();
            let is_kept = entries.any(|entry| mentions(entry, &["print"]));
            let call = view.call_before(|event| matches!(event, Event::EmptyOutput));
            call.filter(|_| !is_kept)?.last_line(Low)
        },
    },
    Fault {
        name: "protocol_lesson_not_kept",
        explain: "The model didn't call the tool or didn't give an answer, and no note carries \
                  that lesson from one problem to the next.",
        repairs: &[repair::NOTE_CALL_AND_ANSWER],
        look: |view| {
            let is_met = view.harness.memory.kind == MemoryKind::None
                && (view.ignores_tool() || !view.has_answer());
            view.last_words()?.last_line(Low).filter(|_| is_met)
        },
    },
];

/// Numbers that programs use whatever the problem: a note that holds one explains nothing.
pub(super) const COMMON: [f64; 4] = [0.0, 1.0, 2.0, 100.0];
/// Up to here, a number is often the same by chance.
const SMALL: f64 = 10.0;

/// Notes that the model was shown, by their place in memory.
fn shown<'a>(view: &View<'a>) -> impl Iterator<Item = (usize, &'a String)> {
    let entries = view.harness.memory.entries.iter().enumerate();
    entries.filter(move |(_, entry)| view.said(entry.trim()).is_some())
}

/// A note that wasn't shown and that shares a word with the problem; where the topic is
/// misunderstood, any.
pub(super) fn hidden_note(view: &View<'_>) -> Option<usize> {
    wrong_program(view)?;
    let topics = words(view.problem()?);
    let is_lost = view.facts.misunderstanding(view).is_some();
    let mut hidden = view.harness.memory.entries.iter().enumerate();
    let about = |note: &str| {
        let mut words = words(note).into_iter();
        words.any(|word| obeyed::is_topic(&topics, &word))
    };
    hidden
        .find(|(_, note)| view.said(note.trim()).is_none() && (is_lost || about(note)))
        .map(|(index, _)| index)
}

/// A wrong answer that is a number of memory, and of nothing else that the model saw.
pub(super) fn stale_answer(view: &View<'_>) -> Option<Finding> {
    let answer = *numbers(view.value()?).last()?;
    let is_telling = answer.abs() > SMALL && !COMMON.contains(&answer);
    let (index, _) = shown(view).find(|(_, entry)| {
        let is_of_answers = mentions(entry, &["answer", "result"]);
        numbers(entry).contains(&answer) && (is_telling || is_of_answers)
    })?;
    let is_in_problem = numbers(view.problem()?).contains(&answer);
    let is_result = view
        .last_good_result()
        .is_some_and(|at| numbers(at.text()).contains(&answer));
    let finding = view
        .replies()
        .rev()
        .find_map(|at| at.line(High, |line| numbers(line).contains(&answer)))?;
    let is_of_note = !is_in_problem && !is_result;
    is_of_note.then(|| finding.suggesting(Some(vec![repair::remove_entry(index)])))
}

/// A program that calculates with a number of memory, and of nothing else that the model saw.
pub(super) fn stale_number(view: &View<'_>) -> Option<Finding> {
    let problem = numbers(view.problem()?);
    let call = view.calls().next_back()?;
    let used = numbers(call.text());
    let is_strange = |number: &f64| {
        used.contains(number) && !problem.contains(number) && !COMMON.contains(number)
    };
    let (index, _) = shown(view).find(|(_, entry)| numbers(entry).iter().any(is_strange))?;
    let finding = call.line(High, |line| numbers(line).iter().any(is_strange))?;
    Some(finding.suggesting(Some(vec![repair::remove_entry(index)])))
}

/// Whether the notes take more than a quarter of the context.
pub(super) fn notes_fill_context(view: &View<'_>) -> bool {
    let chars: usize = shown(view).map(|(_, entry)| entry.len()).sum();
    chars / CHARS_PER_TOKEN > view.context() / 4
}
