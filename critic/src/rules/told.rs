//! Sentences of the harness that the model was told, and those that explain what it did.
//!
//! A text that speaks against the tool, that changes the answer, or that names something which isn't
//! there is the same fault in every dimension; what differs is the field. So each dimension has a
//! rule of its own for it, and all of them ask here. A sentence counts only if it stands in the
//! trajectory, which also makes it the evidence.

use harness::{Harness, Hook, HookPoint, PatchOp, ToolName};
use rollout::Event;
use serde_json::Value;

use super::Finding;
use super::meaning::{
    alters, asks_for_length, asks_for_words, forbids_tool, names_code, names_tool,
};
use super::view::{View, mentions};
use crate::record::{HarnessDim, Severity};
use crate::repairs::path;

/// Where a sentence stands in the harness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    System,
    Task,
    FinalAnswer,
    Tool(ToolName),
    Skill(String),
    Note(usize),
    Message(HookPoint, usize),
}

impl Place {
    fn dim(&self) -> HarnessDim {
        match self {
            Place::System | Place::Task | Place::FinalAnswer => HarnessDim::P,
            Place::Tool(_) => HarnessDim::T,
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

/// All sentences of the harness that stand in the trajectory.
pub(crate) fn sentences<'a>(view: &View<'a>) -> Vec<Sentence<'a>> {
    let harness = view.harness;
    let prompts = &harness.prompts;
    let mut texts: Vec<(Place, &str)> = vec![
        (Place::System, prompts.system.as_str()),
        (Place::Task, prompts.task.as_str()),
        (Place::FinalAnswer, prompts.final_answer.as_str()),
    ];
    let tools = harness.tools.iter();
    texts.extend(tools.map(|(name, tool)| (Place::Tool(name.clone()), tool.description.as_str())));
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
    texts
        .into_iter()
        .flat_map(|(place, text)| {
            split(text).map(move |text| Sentence {
                place: place.clone(),
                text,
            })
        })
        .filter(|sentence| view.said(sentence.text).is_some())
        .collect()
}

/// What a hook says to the model.
fn messages_of(hook: &Hook) -> Vec<&str> {
    match hook {
        Hook::Nudge { message, .. }
        | Hook::ForceFinalAnswer { message }
        | Hook::DetectRepeat { message }
        | Hook::EmptyOutputHint { message }
        | Hook::AppendMessage { message }
        | Hook::ErrorHint { message }
        | Hook::Verify { message, .. } => vec![message.as_str()],
        Hook::Plan { message, next } => vec![message.as_str(), next.as_str()],
        Hook::RepairJson {}
        | Hook::ExtractFencedCode {}
        | Hook::AutoPrintLastExpression {}
        | Hook::TruncateOutput { .. }
        | Hook::AnswerFromLastResult {}
        | Hook::Compact { .. }
        | Hook::Retry { .. }
        | Hook::Vote { .. } => Vec::new(),
    }
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

/// The first sentence of dimension `dim` that `is_meant`, quoted where it was said, with the
/// operations that take it out of the harness.
fn finding(view: &View<'_>, dim: HarnessDim, is_meant: impl Fn(&str) -> bool) -> Option<Finding> {
    sentences(view)
        .into_iter()
        .filter(|sentence| sentence.place.dim() == dim && is_meant(sentence.text))
        .find_map(|sentence| {
            let at = view.said(sentence.text)?;
            Some(Finding {
                ops: without(view.harness, &sentence),
                ..at.quote(Severity::High, sentence.text)?
            })
        })
}

/// A sentence that speaks against a tool that the model then didn't call.
pub(crate) fn against_tool(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    if !view.ignores_tool() {
        return None;
    }
    finding(view, dim, |sentence| forbids_tool(view.harness, sentence))
}

/// Whether any sentence has one of these words.
pub(crate) fn is_said(view: &View<'_>, words: &[&str]) -> bool {
    let mut sentences = sentences(view).into_iter();
    sentences.any(|sentence| mentions(sentence.text, words))
}

/// Whether any sentence speaks against the tools.
pub(crate) fn has_word_against_tool(view: &View<'_>) -> bool {
    sentences(view)
        .iter()
        .any(|sentence| forbids_tool(view.harness, sentence.text))
}

/// A sentence that says what the model did to the number that the tool had printed.
pub(crate) fn altering_answer(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    let (printed, answer) = view.differing_numbers()?;
    finding(view, dim, |sentence| alters(sentence, printed, answer))
}

/// Whether any sentence says what the model did to the printed number.
pub(crate) fn has_altering_sentence(view: &View<'_>) -> bool {
    let numbers = view.differing_numbers();
    numbers.is_some_and(|(printed, answer)| {
        sentences(view)
            .iter()
            .any(|sentence| alters(sentence.text, printed, answer))
    })
}

/// A sentence with the name of a tool that the model called and that doesn't exist.
pub(crate) fn naming_unknown_tool(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    let name = unknown_tool(view)?;
    finding(view, dim, |sentence| names_tool(sentence, name))
}

/// Whether a text outside the tools themselves brought up the unknown tool.
pub(crate) fn is_unknown_tool_named_elsewhere(view: &View<'_>) -> bool {
    unknown_tool(view).is_some_and(|name| {
        sentences(view).iter().any(|sentence| {
            sentence.place.dim() != HarnessDim::T && names_tool(sentence.text, name)
        })
    })
}

fn unknown_tool<'a>(view: &View<'a>) -> Option<&'a str> {
    let mut events = view.trajectory.events();
    events.find_map(|(_, event)| match event {
        Event::UnknownTool { name } => Some(name.as_str()),
        _ => None,
    })
}

/// A sentence with a name that Python doesn't know, as its error says.
pub(crate) fn naming_missing_code(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    let (_, name) = view.missing_name()?;
    finding(view, dim, |sentence| names_code(sentence, name))
}

/// A sentence that asks for a long text, where a limit cut a reply.
pub(crate) fn asking_for_length(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    if !view.is_cut() || view.has_call() {
        return None;
    }
    finding(view, dim, asks_for_length)
}

/// A sentence that asks for the answer in words, where there is none that can be read.
pub(crate) fn asking_for_words(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    if view.states_answer() {
        return None;
    }
    finding(view, dim, asks_for_words)
}

/// Whether any sentence asks for the answer in words.
pub(crate) fn is_asked_for_words(view: &View<'_>) -> bool {
    let mut sentences = sentences(view).into_iter();
    sentences.any(|sentence| asks_for_words(sentence.text))
}

/// Operations that take a sentence out of the harness: a note, a message's hook and a skill that has
/// nothing else as a whole. `None` where the field needs it.
pub(crate) fn without(harness: &Harness, sentence: &Sentence<'_>) -> Option<Vec<PatchOp>> {
    let text = sentence.text;
    let shortened = |field: &str, whole: &str| {
        let rest = remove(whole, text)?;
        Some(PatchOp::replace(path(field), Value::from(rest)))
    };
    let prompts = &harness.prompts;
    let op = match &sentence.place {
        Place::System => shortened("prompts.system", &prompts.system)?,
        Place::Task => shortened("prompts.task", &prompts.task)?,
        Place::FinalAnswer => shortened("prompts.final_answer", &prompts.final_answer)?,
        Place::Tool(name) => {
            let rest = remove(&harness.tools.get(name)?.description, text)?;
            let field = path("tools").join(name.as_str()).join("description");
            PatchOp::replace(field, Value::from(rest))
        }
        Place::Skill(name) => {
            let rest = remove(&harness.skills.get(name)?.body, text)?;
            let field = path("skills").join(name.as_str());
            match rest.is_empty() {
                true => PatchOp::remove(field),
                false => PatchOp::replace(field.join("body"), Value::from(rest)),
            }
        }
        Place::Note(index) => PatchOp::remove(path("memory.entries").join(*index)),
        Place::Message(point, index) => {
            PatchOp::remove(path("middleware.hooks").join(point.name()).join(*index))
        }
    };
    Some(vec![op])
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
