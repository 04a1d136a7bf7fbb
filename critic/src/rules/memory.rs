//! Rules of dimension M: memory that is full, stale, too long, or not used.

use harness::{Eviction, MemoryKind};
use rollout::{Event, ExitReason};

use super::skills::wrong_program;
use super::view::{View, mentions, numbers};
use super::{Finding, Rule, told};
use crate::mining::words;
use crate::record::HarnessDim::M;
use crate::record::RootCause::MemoryOverflow;
use crate::record::Severity::{High, Low};
use crate::repairs::memory as repair;

/// Characters of one token, roughly.
const CHARS_PER_TOKEN: usize = 4;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "memory_full",
        root_cause: MemoryOverflow,
        explain: "Memory has reached its capacity and doesn't make room, so that no new lesson can be \
                  kept, and the rollout failed with the notes that are there.",
        repairs: &[repair::DROP_OLDEST, repair::CAPACITY_UP, repair::CLEAR],
        look: |view| {
            let memory = &view.harness.memory;
            let is_met = memory.kind != MemoryKind::None
                && memory.eviction != Eviction::Oldest
                && memory.entries.len() as u64 >= u64::from(memory.capacity);
            is_met.then(|| view.last_words()?.last_line(Low)).flatten()
        },
    },
    Rule {
        name: "notes_fill_context",
        root_cause: MemoryOverflow,
        explain: "Memory takes more than a quarter of the context, and the rollout ran out of \
                  tokens.",
        repairs: &[repair::DROP_LONGEST, repair::DROP_OLDEST, repair::CLEAR],
        look: |view| {
            let is_out = matches!(
                view.trajectory.exit,
                ExitReason::TokenBudget | ExitReason::ContextLimit
            );
            let is_met = is_out && notes_fill_context(view);
            is_met.then(|| view.last_words()?.last_line(High)).flatten()
        },
    },
    Rule {
        name: "stale_note",
        root_cause: MemoryOverflow,
        explain: "The wrong answer is a number that stands in memory and not in the problem: the \
                  model repeated a note from another problem.",
        repairs: &[repair::CLEAR],
        look: stale_answer,
    },
    Rule {
        name: "stale_number",
        root_cause: MemoryOverflow,
        explain: "The program calculates with a number that stands in memory and not in the \
                  problem: a note of another problem, or a wrong one.",
        repairs: &[repair::CLEAR],
        look: stale_number,
    },
    Rule {
        name: "note_not_shown",
        root_cause: MemoryOverflow,
        explain: "A note in memory was kept from the model, and it is about this problem, or every problem \
                  of the topic fails in one way.",
        repairs: &[repair::SHOW_ALL],
        look: |view| {
            hidden_note(view)?;
            Some(Finding {
                severity: High,
                ..wrong_program(view)?
            })
        },
    },
    Rule {
        name: "note_misleads",
        root_cause: MemoryOverflow,
        explain: "A note says how to calculate on a topic, and every problem of that topic fails by a \
                  program of the same form.",
        repairs: &[repair::CLEAR],
        look: |view| told::misleading(view, M),
    },
    Rule {
        name: "note_against_tool",
        root_cause: MemoryOverflow,
        explain: "A note speaks against a tool that the harness offers, and the model didn't call \
                  it.",
        repairs: &[repair::CLEAR],
        look: |view| told::against_tool(view, M),
    },
    Rule {
        name: "note_alters_answer",
        root_cause: MemoryOverflow,
        explain: "The answer is what a note makes of the number that the tool printed.",
        repairs: &[repair::CLEAR],
        look: |view| told::altering_answer(view, M),
    },
    Rule {
        name: "note_names_unknown_tool",
        root_cause: MemoryOverflow,
        explain: "The model called a tool or gave an argument that doesn't exist, by a name that a note \
                  gives.",
        repairs: &[repair::CLEAR],
        look: |view| told::naming_unknown_tool(view, M),
    },
    Rule {
        name: "note_names_missing_code",
        root_cause: MemoryOverflow,
        explain: "A program failed over a name that Python doesn't know and that a note gives.",
        repairs: &[repair::CLEAR],
        look: |view| told::naming_missing_code(view, M),
    },
    Rule {
        name: "note_asks_for_length",
        root_cause: MemoryOverflow,
        explain: "A note asks for a long text, and a reply reached its token limit before it came to a \
                  call or an answer.",
        repairs: &[repair::CLEAR],
        look: |view| told::asking_for_length(view, M),
    },
    Rule {
        name: "note_asks_for_words",
        root_cause: MemoryOverflow,
        explain: "A note asks for the answer in words, and no answer could be read.",
        repairs: &[repair::CLEAR],
        look: |view| told::asking_for_words(view, M),
    },
    Rule {
        name: "print_lesson_not_kept",
        root_cause: MemoryOverflow,
        explain: "A program printed nothing, and no note carries that lesson from one problem to \
                  the next.",
        repairs: &[repair::NOTE_PRINT],
        look: |view| {
            let is_kept = view
                .harness
                .memory
                .entries
                .iter()
                .any(|entry| mentions(entry, &["print"]));
            let call = view.call_before(|event| matches!(event, Event::EmptyOutput));
            call.filter(|_| !is_kept)?.last_line(Low)
        },
    },
    Rule {
        name: "protocol_lesson_not_kept",
        root_cause: MemoryOverflow,
        explain: "The model didn't call the tool or didn't give an answer, and no note carries \
                  that lesson from one problem to the next.",
        repairs: &[repair::NOTE_CALL_AND_ANSWER],
        look: |view| {
            let is_met = view.harness.memory.kind == MemoryKind::None
                && (view.ignores_tool() || !view.has_answer());
            is_met.then(|| view.last_words()?.last_line(Low)).flatten()
        },
    },
    Rule {
        name: "note_asks_for_more",
        root_cause: MemoryOverflow,
        explain: "A note asks for further calls, and the rollout had a result and went on calling without an \
                  answer.",
        repairs: &[repair::CLEAR],
        look: |view| told::asking_for_more(view, M),
    },
    Rule {
        name: "note_gives_unread_marks",
        root_cause: MemoryOverflow,
        explain: "A note gives marks for programs that the loop doesn't read, and the model put its \
                  program between them instead of calling the tool.",
        repairs: &[repair::CLEAR],
        look: |view| told::giving_unread_mark(view, M),
    },
    Rule {
        name: "note_misguides_print",
        root_cause: MemoryOverflow,
        explain: "A note says that a program needn't print, and one printed nothing; or to print more \
                  than the result, and the answer is the last of several numbers.",
        repairs: &[repair::CLEAR],
        look: |view| told::misguiding_print(view, M),
    },
    Rule {
        name: "note_suspected",
        root_cause: MemoryOverflow,
        explain: "Most rollouts fail, nothing explains this one, and the notes may be why: the gate can tell, with \
                  the shipped text or none in their place.",
        repairs: &[repair::CLEAR],
        look: |view| told::suspected(view, M),
    },
];

/// Numbers that programs use whatever the problem: a note that holds one explains nothing.
const COMMON: [f64; 4] = [0.0, 1.0, 2.0, 100.0];
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
        words.any(|word| told::is_topic(&topics, &word))
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
    (!is_in_problem && !is_result).then(|| Finding {
        ops: Some(vec![repair::remove_entry(index)]),
        ..finding
    })
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
    Some(Finding {
        ops: Some(vec![repair::remove_entry(index)]),
        ..finding
    })
}

/// Whether the notes take more than a quarter of the context.
pub(super) fn notes_fill_context(view: &View<'_>) -> bool {
    let chars: usize = shown(view).map(|(_, entry)| entry.len()).sum();
    let context = view.harness.middleware.context.max_tokens as usize;
    chars / CHARS_PER_TOKEN > context / 4
}
