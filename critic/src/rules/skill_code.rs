//! Rules of dimension S about the Python that skills bring along.

use harness::Skill;
use rollout::Event;

use super::Fault;
use super::finding::At;
use super::meaning::prints;
use super::skills::{shown, wrong_program};
use super::text::{has_word, last_line, mentions, numbers, word_places};
use super::view::View;
use crate::record::Severity::{High, Low, Medium};
use crate::repairs::skills as repair;

/// Functions of Python's own that programs use.
const BUILTINS: &str = "print sum len int float str round abs min max range sorted list dict set divmod pow map \
                        filter zip any all enumerate reversed";

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "skill_code_fails",
        explain: "A skill brings Python along, and all programs that it was loaded for failed with one \
                  and the same error, or with one that has a name of that Python in it.",
        repairs: &[repair::SHIPPED_BODIES, repair::REMOVE_TRIGGERED],
        look: |view| {
            let skill = shown(view).find(|skill| !skill.python.trim().is_empty())?;
            let error = view.event(|event| matches!(event, Event::ToolError { .. }))?;
            let mut lines = error.text().lines();
            let line = lines.find(|line| line.starts_with("[error]"))?;
            let is_repeated = view.last_good_result().is_none();
            let is_named = identifiers(line).any(|name| has_word(&skill.python, name));
            let severity = match (is_repeated, is_named) {
                (true, true) => High,
                (true, false) => Medium,
                (false, _) => Low,
            };
            let finding = error.quote(severity, line)?;
            Some(finding.suggesting(repair::without_code(skill)))
        },
    },
    Fault {
        name: "skill_code_shapes_result",
        explain: "A program showed what a function of a skill's Python returned, and that was no plain \
                  number, such as `1.2k`, so that no answer came of it or one with its digits alone.",
        repairs: &[repair::SHIPPED_BODIES, repair::REMOVE_TRIGGERED],
        look: |view| {
            let (result, skill) = shaped_result(view)?;
            let finding = result.last_line(High)?;
            Some(finding.suggesting(repair::without_code(skill)))
        },
    },
    Fault {
        name: "skill_code_shadows",
        explain: "A skill's Python gives another meaning to a function of Python's own, such as print or sum, \
                  sends printed text elsewhere or ends the program, and a program that prints showed \
                  nothing, or one that uses the function showed a wrong result.",
        repairs: &[repair::SHIPPED_BODIES, repair::REMOVE_TRIGGERED],
        look: |view| {
            let (call, skill) = shadowed_call(view)?;
            let finding = call.last_line(High)?;
            Some(finding.suggesting(repair::without_code(skill)))
        },
    },
];

/// A result that a skill's function gave another form than that of a number, which kept the answer from
/// being one.
pub(super) fn shaped_result<'a>(view: &View<'a>) -> Option<(At<'a>, &'a Skill)> {
    const SHAPING: [&str; 4] = ["'", "\"", "str(", "format("];
    let result = view.last_good_result()?;
    let call = view.calls().rfind(|call| call.index < result.index)?;
    // What the program itself made of the value is no skill's doing.
    let is_plain = !mentions(call.text(), &SHAPING);
    let skill = shown(view).find(|skill| {
        let mut names = defined(&skill.python);
        names.any(|name| has_word(call.text(), name))
    })?;
    let line = last_line(view.output(result))?;
    let is_number = |text: &str| text.trim().parse::<f64>().is_ok_and(f64::is_finite);
    // A fraction is a number too.
    let is_shaped = !line.replace([',', '_'], "").split('/').all(is_number);
    let is_copied = || {
        let answer = numbers(view.value().unwrap_or_default());
        let shown = numbers(line);
        answer.last().is_some_and(|number| shown.contains(number))
    };
    let is_lost = !view.states_answer() || is_copied();
    (is_plain && is_shaped && is_lost).then_some((result, skill))
}

/// Names of the functions that a piece of Python defines.
fn defined(python: &str) -> impl Iterator<Item = &str> {
    let heads = python.lines().filter_map(|line| {
        let of_def = line.strip_prefix("def ").map(|rest| rest.split('(').next());
        let of_lambda = line.split_once("= lambda").map(|(name, _)| Some(name));
        of_def.or(of_lambda)?
    });
    heads.map(str::trim).filter(|name| !name.is_empty())
}

/// A call that showed nothing although it prints, or a wrong result, by a function that a skill's Python
/// puts in the place of Python's own.
fn shadowed_call<'a>(view: &View<'a>) -> Option<(At<'a>, &'a Skill)> {
    let silent = view.call_before(|event| matches!(event, Event::EmptyOutput));
    let silent = silent.filter(|call| prints(call.text()));
    let wrong = view.calls().next_back();
    let wrong = wrong.filter(|_| wrong_program(view).is_some());
    shown(view).find_map(|skill| {
        let python = skill.python.as_str();
        let is_shadowed = |call: &At<'a>| {
            let mut names = BUILTINS.split_whitespace();
            names.any(|name| calls(call.text(), name) && binds(python, name))
        };
        let is_silenced = |call: &At<'a>| is_shadowed(call) || diverts_output(python);
        let call = silent.filter(is_silenced).or(wrong.filter(is_shadowed))?;
        Some((call, skill))
    })
}

/// Whether a program calls a function by this name.
fn calls(program: &str, name: &str) -> bool {
    let mut places = word_places(program, name);
    places.any(|(_, after)| after.trim_start().starts_with('('))
}

/// Whether a piece of Python makes a name its own, by a definition, a value or an import.
fn binds(python: &str, name: &str) -> bool {
    let is_imported = |line: &str| {
        let names = line.split_once("import ").map(|(_, names)| names);
        line.starts_with("from ") && names.is_some_and(|names| has_word(names, name))
    };
    let is_set = |line: &str| {
        let value = line.strip_prefix(name).map(str::trim_start);
        value.is_some_and(|value| value.starts_with('=') && !value.starts_with("=="))
    };
    let mut lines = python.lines();
    defined(python).any(|known| known == name)
        || lines.any(|line| is_imported(line) || is_set(line))
}

/// Whether a piece of Python may send printed text elsewhere, or end the program.
fn diverts_output(python: &str) -> bool {
    const SIGNS: [&str; 8] = [
        "stdout",
        "devnull",
        "builtins",
        "os.dup2",
        "os.close",
        "exit(",
        "quit(",
        "systemexit",
    ];
    mentions(python, &SIGNS)
}

/// Names that stand in an error's line, beside the error's own.
fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.len() > 1 && *word != "error" && !word.ends_with("Error"))
}
