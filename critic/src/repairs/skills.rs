//! Repairs of dimension S.

use harness::{Harness, PatchOp};
use serde_json::json;

use super::{Repair, path, value};
use crate::catalogue::catalogue;

pub(crate) const WORDS_TO_EQUATION: Repair = Repair {
    name: "words_to_equation",
    summary: "add a skill: turn the words into one expression",
    ops: |harness| add_skill(harness, "words-to-equation"),
};

pub(crate) const PRINT_THE_RESULT: Repair = Repair {
    name: "print_the_result",
    summary: "add a skill: a program prints its result",
    ops: |harness| add_skill(harness, "print-the-result"),
};

pub(crate) const ONE_STEP_A_LINE: Repair = Repair {
    name: "one_step_a_line",
    summary: "add a skill: one step a line",
    ops: |harness| add_skill(harness, "one-step-a-line"),
};

pub(crate) const FIX_THE_NAMED_LINE: Repair = Repair {
    name: "fix_the_named_line",
    summary: "add a skill: repair the line that the error names",
    ops: |harness| add_skill(harness, "fix-the-named-line"),
};

pub(crate) const SHOW_ALWAYS: Repair = Repair {
    name: "show_always",
    summary: "show every skill for every problem",
    ops: |harness| {
        let ops: Vec<PatchOp> = harness
            .skills
            .iter()
            .filter(|(_, skill)| !skill.triggers.is_empty())
            .map(|(name, _)| {
                let field = path("skills").join(name.as_str()).join("triggers");
                PatchOp::replace(field, json!([]))
            })
            .collect();
        (!ops.is_empty()).then_some(ops)
    },
};

fn add_skill(harness: &Harness, name: &str) -> Option<Vec<PatchOp>> {
    if harness.skills.contains_key(name) {
        return None;
    }
    let skill = catalogue().skills.iter().find(|skill| skill.name == name)?;
    Some(vec![PatchOp::add(path("skills").join(name), value(skill))])
}
