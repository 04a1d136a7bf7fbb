//! Repairs of dimension P.

use harness::{Harness, PROBLEM_SLOT, PatchOp};

use super::{Repair, if_any, path, set, value};
use crate::catalogue::{WorkedProblem, catalogue, program_tool, with_tool_name};

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

pub(crate) const FEWER_EXAMPLES: Repair = Repair {
    name: "fewer_examples",
    summary: "show two of the examples",
    ops: |harness| {
        const LEFT: usize = 2;
        let surplus = harness.prompts.examples.len().checked_sub(LEFT)?;
        let last = path("prompts.examples").join(LEFT);
        if_any(vec![PatchOp::remove(last); surplus])
    },
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
        let text = PROBLEM_SLOT.to_owned();
        set("prompts.task", &harness.prompts.task, text)
    },
};

pub(crate) const BARE_EXAMPLES: Repair = Repair {
    name: "bare_examples",
    summary: "leave nothing but the number in the boxes of the examples",
    ops: |harness| {
        let examples = harness.prompts.examples.iter().enumerate();
        if_any(examples.filter_map(|(index, example)| {
            let field = path("prompts.examples").join(index).join("answer");
            Some(PatchOp::replace(field, value(bare_box(&example.answer)?)))
        }))
    },
};

/// `text` with its last box reduced to the one number in it, or to the one behind an equals sign;
/// `None` if there is nothing to reduce.
fn bare_box(text: &str) -> Option<String> {
    const BOX: &str = "\\boxed{";
    let start = text.rfind(BOX)? + BOX.len();
    let end = start + text[start..].find('}')?;
    let whole = text[start..end].trim();
    let content = whole.rsplit('=').next().unwrap_or(whole).trim();
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '-');
    let mut numbers = content
        .split(|c: char| !is_part(c))
        .filter(|part| part.contains(|c: char| c.is_ascii_digit()));
    let number = numbers.next()?;
    let is_bare = number == whole || numbers.next().is_some();
    (!is_bare).then(|| format!("{}{number}{}", &text[..start], &text[end..]))
}

/// Appends catalogue examples that the harness doesn't have until it has `count`.
fn add_examples(harness: &Harness, count: usize) -> Option<Vec<PatchOp>> {
    let (name, tool) = program_tool(harness)?;
    let shown = &harness.prompts.examples;
    let missing = count.min(MOST_EXAMPLES).checked_sub(shown.len())?;
    let is_new = |worked: &&WorkedProblem| {
        let mut shown = shown.iter();
        shown.all(|example| example.title != worked.title && example.problem != worked.problem)
    };
    let new = catalogue().examples.iter().filter(is_new);
    let new = new.filter_map(|worked| worked.for_tool(name, tool));
    let add = |example| PatchOp::add(path("prompts.examples"), value(example));
    if_any(new.take(missing).map(add))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_reduced_to_its_only_number() {
        let bare = |text| bare_box(text);
        assert_eq!(
            bare("So \\boxed{38 pencils}.").as_deref(),
            Some("So \\boxed{38}.")
        );
        assert_eq!(
            bare("So \\boxed{30 + 8 = 38}.").as_deref(),
            Some("So \\boxed{38}.")
        );
        assert_eq!(bare("So \\boxed{38}."), None);
        assert_eq!(bare("So \\boxed{38 or 39 pencils}."), None);
        assert_eq!(bare("So \\boxed{many}."), None);
        assert_eq!(bare("So 38 pencils."), None);
    }
}
