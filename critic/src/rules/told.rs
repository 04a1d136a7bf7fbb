//! Sentences of the harness that the model was told, and those that explain what it did.
//!
//! A text that speaks against the tool, that changes the answer, or that names something which isn't
//! there is the same fault in every dimension; what differs is the field. So each dimension has a
//! rule of its own for it, and all of them ask here. A sentence counts only if it stands in the
//! trajectory, which also makes it the evidence.

use harness::{FieldPath, Harness, Hook, HookPoint, PROBLEM_SLOT, PatchOp, ToolName};
use serde_json::Value;

use super::finding::{At, Finding};
use super::text::in_json;
use super::view::View;
use crate::catalogue::catalogue;
use crate::record::{HarnessDim, Severity};
use crate::repairs::hooks::{messages_of, reworded, shipped};
use crate::repairs::{path, value};

/// Where a sentence stands in the harness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    System,
    Task,
    FinalAnswer,
    Tool(ToolName),
    Parameter(ToolName, String),
    Skill(String),
    Note(usize),
    Message(HookPoint, usize),
}

impl Place {
    fn dim(&self) -> HarnessDim {
        match self {
            Place::System | Place::Task | Place::FinalAnswer => HarnessDim::P,
            Place::Tool(_) | Place::Parameter(..) => HarnessDim::T,
            Place::Skill(_) => HarnessDim::S,
            Place::Note(_) => HarnessDim::M,
            Place::Message(..) => HarnessDim::Mid,
        }
    }
}

/// One sentence and its place.
#[derive(Clone, Debug)]
pub(crate) struct Sentence<'a> {
    pub(crate) place: Place,
    pub(crate) text: &'a str,
}

/// What may be asked about a sentence beside the rollout.
pub(super) type Asked = fn(&View<'_>, &Sentence<'_>) -> bool;

/// All sentences of the harness that stand in the trajectory.
pub(super) fn sentences<'a>(view: &View<'a>) -> impl Iterator<Item = Sentence<'a>> {
    let written = written(view.harness).into_iter();
    written.filter(move |sentence| view.said(sentence.text).is_some())
}

/// All sentences of a harness.
fn written(harness: &Harness) -> Vec<Sentence<'_>> {
    let prompts = &harness.prompts;
    let mut texts: Vec<(Place, &str)> = vec![(Place::System, prompts.system.as_str())];
    // The problem stands between what the task has around it, which may be on its line.
    let around = prompts.task.split(PROBLEM_SLOT);
    let around = around.filter(|part| part.contains(char::is_alphanumeric));
    texts.extend(around.map(|part| (Place::Task, part)));
    texts.push((Place::FinalAnswer, prompts.final_answer.as_str()));
    let tools = harness.tools.iter();
    texts.extend(tools.map(|(name, tool)| (Place::Tool(name.clone()), tool.description.as_str())));
    for (name, tool) in &harness.tools {
        let parameters = tool.parameters["properties"].as_object();
        for (parameter, schema) in parameters.into_iter().flatten() {
            let place = Place::Parameter(name.clone(), parameter.clone());
            texts.extend(schema["description"].as_str().map(|text| (place, text)));
        }
    }
    let skills = harness.skills.iter();
    texts.extend(skills.map(|(name, skill)| (Place::Skill(name.clone()), skill.body.as_str())));
    let notes = harness.memory.entries.iter().enumerate();
    texts.extend(notes.map(|(index, note)| (Place::Note(index), note.as_str())));
    for point in HookPoint::ALL {
        for (index, hook) in harness.middleware.hooks.at(point).iter().enumerate() {
            let messages = messages_of(hook).into_iter();
            texts.extend(messages.map(|message| (Place::Message(point, index), message)));
        }
    }
    let sentences = texts.into_iter().flat_map(|(place, text)| {
        split(text).map(move |text| Sentence {
            place: place.clone(),
            text,
        })
    });
    sentences.collect()
}

/// The sentences of a text: lines, and parts of them up to a full stop, question or exclamation mark.
fn split(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| {
        let mut parts = Vec::new();
        let mut rest = line.trim();
        while let Some(end) = end_of_sentence(rest) {
            parts.push(&rest[..end]);
            rest = rest[end..].trim_start();
        }
        parts.push(rest);
        parts.retain(|part| !part.is_empty());
        parts
    })
}

fn end_of_sentence(text: &str) -> Option<usize> {
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let is_followed_by_blank = characters.peek().is_some_and(|(_, c)| c.is_whitespace());
        if matches!(c, '.' | '!' | '?') && is_followed_by_blank {
            return Some(at + c.len_utf8());
        }
    }
    None
}

/// The first sentence of the rule's dimension that `is_meant`, quoted where it was said, with the
/// operations that take it out of the harness.
pub(super) fn blamed(view: &View<'_>, is_meant: Asked) -> Option<Finding> {
    written(view.harness)
        .into_iter()
        .filter(|sentence| sentence.place.dim() == view.dim && is_meant(view, sentence))
        .find_map(|sentence| {
            let finding = quoted(view.said(sentence.text)?, Severity::High, sentence.text)?;
            Some(finding.suggesting(without(view.harness, &sentence)))
        })
}

/// The first sentence of the rule's dimension that has to be another, with the operations that make it so.
pub(super) fn corrected(
    view: &View<'_>,
    correction: fn(&View<'_>, &Sentence<'_>) -> Option<String>,
) -> Option<Finding> {
    let sentences = written(view.harness).into_iter();
    let mut of_dimension = sentences.filter(|sentence| sentence.place.dim() == view.dim);
    of_dimension.find_map(|sentence| {
        let new = correction(view, &sentence)?;
        let finding = quoted(view.said(sentence.text)?, Severity::High, sentence.text)?;
        Some(finding.suggesting(instead_of(view.harness, &sentence, &new)))
    })
}

/// A finding that quotes a sentence as it stands in the step.
fn quoted(at: At<'_>, severity: Severity, sentence: &str) -> Option<Finding> {
    let in_json = in_json(sentence).filter(|_| !at.text().contains(sentence));
    at.quote(severity, in_json.as_deref().unwrap_or(sentence))
}

/// Whether any sentence `is_meant`.
pub(super) fn anywhere(view: &View<'_>, is_meant: Asked) -> bool {
    sentences(view).any(|sentence| is_meant(view, &sentence))
}

/// Whether any sentence of another dimension than the rule's `is_meant`.
pub(super) fn elsewhere(view: &View<'_>, is_meant: Asked) -> bool {
    sentences(view).any(|sentence| sentence.place.dim() != view.dim && is_meant(view, &sentence))
}

/// The last sentence that the model was told in the rule's dimension, where most rollouts fail. Nothing
/// but that speaks against it.
pub(super) fn suspected(view: &View<'_>) -> Option<Finding> {
    if !view.facts.is_failing() {
        return None;
    }
    let is_triggered = |name: &String| {
        let skill = view.harness.skills.get(name);
        skill.is_some_and(|skill| !skill.triggers.is_empty())
    };
    let of_dimension = sentences(view).filter(|sentence| match &sentence.place {
        Place::Skill(name) => view.dim == HarnessDim::S && is_triggered(name),
        place => place.dim() == view.dim,
    });
    let last = of_dimension.last()?;
    quoted(view.said(last.text)?, Severity::Low, last.text)
}

/// Operations that take a sentence out of the harness: a note and a skill that has nothing else as a whole,
/// and a message's hook where there is no shipped message for it. The form of the answer gives way to the
/// shipped one. `None` where the field needs the sentence.
fn without(harness: &Harness, sentence: &Sentence<'_>) -> Option<Vec<PatchOp>> {
    if let Place::Message(point, index) = sentence.place {
        return Some(vec![without_message(harness, point, index, sentence.text)?]);
    }
    let (field, whole) = field(harness, &sentence.place)?;
    let rest = remove(whole, sentence.text)?;
    let op = match &sentence.place {
        Place::Note(_) => PatchOp::remove(field),
        Place::Skill(name) if rest.is_empty() => {
            PatchOp::remove(path("skills").join(name.as_str()))
        }
        Place::FinalAnswer if rest.is_empty() => {
            let shipped = catalogue().texts.prompts.final_boxed.as_str();
            PatchOp::replace(field, Value::from(shipped))
        }
        _ => PatchOp::replace(field, Value::from(rest)),
    };
    Some(vec![op])
}

/// A hook that the loop has for errors, empty results and the like is of use with another message.
fn without_message(
    harness: &Harness,
    point: HookPoint,
    index: usize,
    text: &str,
) -> Option<PatchOp> {
    let hook = harness.middleware.hooks.at(point).get(index)?;
    let is_rid = |new: &Hook| messages_of(new).iter().all(|said| !said.contains(text));
    let field = hook_field(point, index);
    Some(match shipped(harness, hook).filter(is_rid) {
        Some(new) => PatchOp::replace(field, value(new)),
        None => PatchOp::remove(field),
    })
}

/// Operations that put `new` in the place of a sentence.
fn instead_of(harness: &Harness, sentence: &Sentence<'_>, new: &str) -> Option<Vec<PatchOp>> {
    let text = sentence.text;
    let op = match sentence.place {
        Place::Message(point, index) => {
            let hook = harness.middleware.hooks.at(point).get(index)?;
            PatchOp::replace(hook_field(point, index), value(reworded(hook, text, new)))
        }
        _ => {
            let (field, whole) = field(harness, &sentence.place)?;
            PatchOp::replace(field, Value::from(whole.replacen(text, new, 1)))
        }
    };
    Some(vec![op])
}

fn hook_field(point: HookPoint, index: usize) -> FieldPath {
    path("middleware.hooks").join(point.name()).join(index)
}

/// The field of a sentence that isn't a message's, and the text in it.
fn field<'a>(harness: &'a Harness, place: &Place) -> Option<(FieldPath, &'a str)> {
    let prompts = &harness.prompts;
    Some(match place {
        Place::System => (path("prompts.system"), prompts.system.as_str()),
        Place::Task => (path("prompts.task"), prompts.task.as_str()),
        Place::FinalAnswer => (path("prompts.final_answer"), prompts.final_answer.as_str()),
        Place::Tool(name) => {
            let field = path("tools").join(name.as_str()).join("description");
            (field, harness.tools.get(name)?.description.as_str())
        }
        Place::Parameter(name, parameter) => {
            let schema = &harness.tools.get(name)?.parameters["properties"][parameter];
            let field = path("tools").join(name.as_str()).join("parameters");
            let field = field.join("properties").join(parameter.as_str());
            (field.join("description"), schema["description"].as_str()?)
        }
        Place::Skill(name) => {
            let field = path("skills").join(name.as_str()).join("body");
            (field, harness.skills.get(name)?.body.as_str())
        }
        Place::Note(index) => {
            let field = path("memory.entries").join(*index);
            (field, harness.memory.entries.get(*index)?.as_str())
        }
        Place::Message(..) => return None,
    })
}

/// `whole` without `part`, which stands in it.
fn remove(whole: &str, part: &str) -> Option<String> {
    let at = whole.find(part)?;
    let (before, after) = (&whole[..at], &whole[at + part.len()..]);
    let rest = match after.trim_start() {
        "" => before.trim_end().to_owned(),
        after if before.trim_end().is_empty() => after.to_owned(),
        after => format!("{before}{after}"),
    };
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_at_marks_and_lines() {
        let parts: Vec<&str> = split("Use 1.5 of it. Why?  So!\n\n- Then stop").collect();
        assert_eq!(parts, ["Use 1.5 of it.", "Why?", "So!", "- Then stop"]);
    }

    #[test]
    fn a_sentence_is_taken_out_whole() {
        let text = "One. Two.\nThree.";
        assert_eq!(remove(text, "Two.").as_deref(), Some("One. Three."));
        assert_eq!(remove(text, "One.").as_deref(), Some("Two.\nThree."));
        assert_eq!(remove(text, "Three.").as_deref(), Some("One. Two."));
        assert_eq!(remove("One.", "One.").as_deref(), Some(""));
        assert_eq!(remove(text, "Four."), None);
    }
}
