//! Repairs of dimension P.

use harness::{Harness, PROBLEM_SLOT, PatchOp};

use super::{Repair, path, set, value};
use crate::catalogue::{catalogue, program_tool, with_tool_name};

/// More examples than this cost context and teach a small model little: SmolLM2-135M solved fewer
/// problems with eight than with five.
const MOST_EXAMPLES: usize = 5;

pub(crate) const TWO_EXAMPLES: Repair = Repair {
    name: "two_examples",
    summary: "show two worked examples, one of them with two steps",
    ops: |harness| add_examples(harness, 2),
};

pub(crate) const THREE_EXAMPLES: Repair = Repair {
    name: "three_examples",
    summary: "show three worked examples",
    ops: |harness| add_examples(harness, 3),
};

pub(crate) const ONE_EXAMPLE: Repair = Repair {
    name: "one_example",
    summary: "show one worked example",
    ops: |harness| add_examples(harness, 1),
};

pub(crate) const NEXT_EXAMPLE: Repair = Repair {
    name: "next_example",
    summary: "show one more worked example",
    ops: |harness| add_examples(harness, harness.prompts.examples.len() + 1),
};

pub(crate) const ALL_EXAMPLES: Repair = Repair {
    name: "all_examples",
    summary: "show five worked examples",
    ops: |harness| add_examples(harness, MOST_EXAMPLES),
};

pub(crate) const SYSTEM_USE_TOOL: Repair = Repair {
    name: "system_use_tool",
    summary: "say in the system prompt that the tool comes first",
    ops: |harness| {
        let text = with_tool_name(&catalogue().texts.prompts.system_use_tool, harness)?;
        set("prompts.system", &harness.prompts.system, text)
    },
};

pub(crate) const SYSTEM_SHORT: Repair = Repair {
    name: "system_short",
    summary: "shorten the system prompt to one sentence",
    ops: |harness| {
        let text = catalogue().texts.prompts.system_short.clone();
        set("prompts.system", &harness.prompts.system, text)
    },
};

pub(crate) const FINAL_BOXED: Repair = Repair {
    name: "final_boxed",
    summary: "say when and how to write the final answer",
    ops: |harness| {
        let text = catalogue().texts.prompts.final_boxed.clone();
        set("prompts.final_answer", &harness.prompts.final_answer, text)
    },
};

pub(crate) const FINAL_NUMBER_ONLY: Repair = Repair {
    name: "final_number_only",
    summary: "ask for a bare number as the final answer",
    ops: |harness| {
        let text = catalogue().texts.prompts.final_number_only.clone();
        set("prompts.final_answer", &harness.prompts.final_answer, text)
    },
};

pub(crate) const TASK_SUFFIX: Repair = Repair {
    name: "task_suffix",
    summary: "ask for a program below every problem",
    ops: |harness| {
        let text = catalogue().texts.prompts.task_suffix.clone();
        set("prompts.task", &harness.prompts.task, text)
    },
};

pub(crate) const TASK_PLAIN: Repair = Repair {
    name: "task_plain",
    summary: "show the problem alone, without text around it",
    ops: |harness| {
        set(
            "prompts.task",
            &harness.prompts.task,
            PROBLEM_SLOT.to_owned(),
        )
    },
};

/// Appends catalogue examples that the harness doesn't have until it has `count`.
fn add_examples(harness: &Harness, count: usize) -> Option<Vec<PatchOp>> {
    let (name, tool) = program_tool(harness)?;
    let shown = &harness.prompts.examples;
    let missing = count.min(MOST_EXAMPLES).checked_sub(shown.len())?;
    let ops: Vec<PatchOp> = catalogue()
        .examples
        .iter()
        .filter(|worked| {
            shown
                .iter()
                .all(|example| example.title != worked.title && example.problem != worked.problem)
        })
        .filter_map(|worked| worked.for_tool(name, tool))
        .take(missing)
        .map(|example| PatchOp::add(path("prompts.examples"), value(example)))
        .collect();
    (!ops.is_empty()).then_some(ops)
}
