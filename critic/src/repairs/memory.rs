//! Repairs of dimension M.

use harness::{Eviction, Harness, MemoryKind, PatchOp};
use serde_json::json;

use super::{Repair, if_any, path, replace, value};
use crate::catalogue::{catalogue, with_tool_name};

/// Capacity of a memory that a repair switches on.
const CAPACITY: u32 = 8;
/// A larger memory is a fault of its own.
const MOST_CAPACITY: u32 = 64;

pub(crate) const NOTE_CALL_AND_ANSWER: Repair = Repair {
    name: "note_call_and_answer",
    summary: "keep two lessons in memory: calculate with the tool, answer with its number",
    ops: |harness| {
        let notes = &catalogue().notes;
        add_notes(harness, &[&notes.call, &notes.answer])
    },
};

pub(crate) const NOTE_PRINT: Repair = Repair {
    name: "note_print",
    summary: "keep a lesson in memory: a program prints its result",
    ops: |harness| add_notes(harness, &[&catalogue().notes.print]),
};

pub(crate) const CAPACITY_UP: Repair = Repair {
    name: "capacity_up",
    summary: "let memory hold more entries",
    ops: |harness| {
        let old = harness.memory.capacity;
        let new = (old.saturating_mul(2)).clamp(CAPACITY, MOST_CAPACITY);
        (new > old).then(|| replace("memory.capacity", new))
    },
};

pub(crate) const SHOW_ALL: Repair = Repair {
    name: "show_all",
    summary: "show every note for every problem",
    ops: |harness| {
        let memory = &harness.memory;
        let mut ops = Vec::new();
        if memory.kind == MemoryKind::None {
            ops.extend(replace("memory.kind", MemoryKind::Notes));
        }
        if memory.shown > 0 {
            ops.push(PatchOp::remove(path("memory.shown")));
        }
        if_any(ops)
    },
};

pub(crate) const DROP_OLDEST: Repair = Repair {
    name: "drop_oldest",
    summary: "remove the older half of memory",
    ops: |harness| {
        let count = harness.memory.entries.len().div_ceil(2);
        // Each removal moves the next entry to the front.
        if_any(vec![PatchOp::remove(path("memory.entries[0]")); count])
    },
};

pub(crate) const DROP_LONGEST: Repair = Repair {
    name: "drop_longest",
    summary: "remove the longest entry of memory",
    ops: |harness| {
        let entries = harness.memory.entries.iter().enumerate();
        let (index, _) = entries.max_by_key(|(_, entry)| entry.len())?;
        Some(vec![remove_entry(index)])
    },
};

pub(crate) const CLEAR: Repair = Repair {
    name: "clear_memory",
    summary: "empty the memory",
    ops: |harness| {
        let is_empty = harness.memory.entries.is_empty();
        (!is_empty).then(|| replace("memory.entries", json!([])))
    },
};

/// Removes the entry at `index`.
pub(crate) fn remove_entry(index: usize) -> PatchOp {
    PatchOp::remove(path("memory.entries").join(index))
}

fn add_notes(harness: &Harness, notes: &[&str]) -> Option<Vec<PatchOp>> {
    let memory = &harness.memory;
    let notes: Vec<String> = notes
        .iter()
        .filter_map(|note| with_tool_name(note, harness))
        .filter(|note| !memory.entries.contains(note))
        .collect();
    if notes.is_empty() {
        return None;
    }
    let mut ops = Vec::new();
    if memory.kind == MemoryKind::None {
        ops.extend(replace("memory.kind", MemoryKind::Notes));
    }
    let mut count = u32::try_from(memory.entries.len() + notes.len()).ok()?;
    if memory.eviction == Eviction::Oldest {
        // The older entries make room.
        count = u32::try_from(notes.len()).ok()?;
    }
    if count > memory.capacity {
        let capacity = count.max(CAPACITY);
        ops.extend(replace("memory.capacity", capacity));
    }
    ops.extend(
        notes
            .into_iter()
            .map(|note| PatchOp::add(path("memory.entries"), value(note))),
    );
    Some(ops)
}
