//! Repairs of dimension S.

use harness::{FieldPath, Harness, PatchOp, Skill};
use serde_json::json;

use super::{Repair, if_any, path, value};
use crate::catalogue::catalogue;
use crate::rules::has_word;

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
        let triggered = triggered(harness);
        if_any(triggered.map(without_triggers))
    },
};

pub(crate) const SHIPPED_BODIES: Repair = Repair {
    name: "shipped_bodies",
    summary: "put the shipped text into every skill that has a shipped one",
    ops: |harness| {
        let skills = harness.skills.values();
        let ops = skills.filter_map(|skill| shipped_body(harness, skill));
        if_any(ops.flatten())
    },
};

pub(crate) const REMOVE_TRIGGERED: Repair = Repair {
    name: "remove_triggered",
    summary: "remove the skills that only some problems switch on",
    ops: |harness| {
        let triggered = triggered(harness);
        if_any(triggered.map(|skill| PatchOp::remove(field(skill))))
    },
};

pub(crate) const DROP_LONGEST: Repair = Repair {
    name: "drop_longest_skill",
    summary: "remove the skill with the longest text",
    ops: |harness| {
        let skills = harness.skills.values();
        let longest = skills.max_by_key(|skill| skill.body.len())?;
        Some(vec![PatchOp::remove(field(longest))])
    },
};

/// Shows a skill for every problem.
pub(crate) fn without_triggers(skill: &Skill) -> PatchOp {
    PatchOp::replace(field(skill).join("triggers"), json!([]))
}

/// Takes a skill's Python away, and the skill with it where its text needs it.
pub(crate) fn without_code(skill: &Skill) -> Option<Vec<PatchOp>> {
    let field = field(skill);
    let shipped = catalogue().skills.iter().find(|known| {
        let mut triggers = known.triggers.iter();
        triggers.any(|trigger| skill.triggers.contains(trigger))
    });
    let no_code = PatchOp::replace(field.join("python"), json!(""));
    (!skill.python.is_empty()).then(|| match shipped {
        _ if !speaks_of_code(skill) => vec![no_code],
        Some(known) => vec![
            PatchOp::replace(field.join("body"), value(&known.body)),
            no_code,
        ],
        None => vec![PatchOp::remove(field)],
    })
}

/// Whether a skill's text has a call, or a name that its Python defines.
fn speaks_of_code(skill: &Skill) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut opening = skill.body.match_indices('(');
    let mut definitions = skill.python.lines().filter_map(|line| {
        let line = line.trim_start();
        let rest = line
            .strip_prefix("def ")
            .or_else(|| line.strip_prefix("class "))?;
        rest.split(|c: char| !is_part(c)).next()
    });
    opening.any(|(at, _)| skill.body[..at].ends_with(is_part))
        || definitions.any(|name| !name.is_empty() && has_word(&skill.body, name))
}

/// Adds a skill of the catalogue.
pub(crate) fn add(skill: &Skill) -> Vec<PatchOp> {
    vec![PatchOp::add(field(skill), value(skill))]
}

/// Puts the catalogue's text of the same topic into `skill`, or removes the skill where the
/// catalogue has nothing on its topic. `None` if the text is there already.
pub(crate) fn shipped_body(harness: &Harness, skill: &Skill) -> Option<Vec<PatchOp>> {
    let field = field(skill);
    let shares_trigger = |known: &&Skill| {
        let mut triggers = known.triggers.iter();
        known.name == skill.name || triggers.any(|trigger| skill.triggers.contains(trigger))
    };
    let op = match catalogue().skills.iter().find(shares_trigger) {
        Some(known) if known.body.trim() == skill.body.trim() => return None,
        Some(known) => PatchOp::replace(field.join("body"), value(&known.body)),
        None => PatchOp::remove(field),
    };
    harness.skills.contains_key(&skill.name).then(|| vec![op])
}

fn add_skill(harness: &Harness, name: &str) -> Option<Vec<PatchOp>> {
    if harness.skills.contains_key(name) {
        return None;
    }
    let skill = catalogue().skills.iter().find(|skill| skill.name == name)?;
    Some(add(skill))
}

/// Skills that only some problems switch on.
fn triggered(harness: &Harness) -> impl Iterator<Item = &Skill> {
    let skills = harness.skills.values();
    skills.filter(|skill| !skill.triggers.is_empty())
}

fn field(skill: &Skill) -> FieldPath {
    path("skills").join(skill.name.as_str())
}
