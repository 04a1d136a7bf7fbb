//! Rules of dimension M: memory that is full, stale, too long, or not used.

use harness::MemoryKind;
use rollout::{Event, ExitReason};

use super::view::numbers;
use super::{Finding, Rule};
use crate::record::RootCause::MemoryOverflow;
use crate::record::Severity::{High, Low};
use crate::repairs::memory as repair;

/// Characters of one token, roughly.
const CHARS_PER_TOKEN: usize = 4;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "memory_full",
        root_cause: MemoryOverflow,
        explain: "Memory has reached its capacity, so that no new lesson finds room, and the \
                  rollout failed with the notes that are there.",
        repairs: &[repair::DROP_OLDEST, repair::CAPACITY_UP, repair::CLEAR],
        look: |view| {
            let memory = &view.harness.memory;
            let is_met = memory.kind != MemoryKind::None
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
            let chars: usize = view.harness.memory.entries.iter().map(String::len).sum();
            let context = view.harness.middleware.context.max_tokens as usize;
            let is_out = matches!(
                view.trajectory.exit,
                ExitReason::TokenBudget | ExitReason::ContextLimit
            );
            let is_met = is_out && chars / CHARS_PER_TOKEN > context / 4;
            is_met.then(|| view.last_words()?.last_line(High)).flatten()
        },
    },
    Rule {
        name: "stale_note",
        root_cause: MemoryOverflow,
        explain: "The wrong answer is a number that stands in memory and not in the problem: the \
                  model repeated a note from another problem.",
        repairs: &[repair::CLEAR],
        look: |view| {
            let answer = *numbers(view.value()?).last()?;
            let mut entries = view.harness.memory.entries.iter();
            let index = entries.position(|entry| numbers(entry).contains(&answer))?;
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
        },
    },
    Rule {
        name: "print_lesson_not_kept",
        root_cause: MemoryOverflow,
        explain: "A program printed nothing, and no note carries that lesson from one problem to \
                  the next.",
        repairs: &[repair::NOTE_PRINT],
        look: |view| {
            let call = view.call_before(|event| matches!(event, Event::EmptyOutput));
            call?.last_line(Low)
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
];
