//! Sentences of the harness that the model was told, and those that explain what it did.
//!
//! A text that speaks against the tool, that changes the answer, or that names something which isn't
//! there is the same fault in every dimension; what differs is the field. So each dimension has a
//! rule of its own for it, and all of them ask here. A sentence counts only if it stands in the
//! trajectory, which also makes it the evidence.

use std::collections::BTreeSet;

use harness::{CallFormat, Harness, Hook, HookPoint, PatchOp, ToolName};
use rollout::Event;
use serde_json::Value;

use super::Finding;
use super::meaning::{
    alters, asks_for_bare_answer, asks_for_length, asks_for_more, asks_for_words,
    asks_to_print_more, calculates, forbids_print, forbids_tool, has_program_behind, marks,
    names_argument, names_code, names_older_version, names_other_language, names_tool,
    withholds_answer,
};
use super::view::{View, mentions, numbers};
use crate::mining::words;
use crate::record::{HarnessDim, Severity};
use crate::repairs::path;

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
pub(super) fn messages_of(hook: &Hook) -> Vec<&str> {
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
    finding_at(view, dim, |sentence| is_meant(sentence.text))
}

fn finding_at(
    view: &View<'_>,
    dim: HarnessDim,
    is_meant: impl Fn(&Sentence<'_>) -> bool,
) -> Option<Finding> {
    sentences(view)
        .into_iter()
        .filter(|sentence| sentence.place.dim() == dim && is_meant(sentence))
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
    finding(view, dim, |sentence| speaks_against_tool(view, sentence))
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
        .any(|sentence| speaks_against_tool(view, sentence.text))
}

/// Whether a sentence speaks against the tools, or asks for a bare number where one was given.
fn speaks_against_tool(view: &View<'_>, sentence: &str) -> bool {
    const BRIEF: usize = 80;
    let is_brief = || {
        let reply = view.first_reply();
        reply.is_some_and(|at| at.text().trim().chars().count() <= BRIEF)
    };
    forbids_tool(view.harness, sentence) || asks_for_bare_answer(sentence) && is_brief()
}

/// A sentence that says what the model did to the number that the tool had printed, by its words or by
/// what all rollouts show.
pub(crate) fn altering_answer(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    finding_at(view, dim, |sentence| is_altering(view, sentence))
}

/// Whether any sentence says what the model did to the printed number.
pub(crate) fn has_altering_sentence(view: &View<'_>) -> bool {
    let mut sentences = sentences(view).into_iter();
    sentences.any(|sentence| is_altering(view, &sentence))
}

fn is_altering(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    let numbers = view.differing_numbers();
    let is_said = numbers.is_some_and(|(printed, answer)| alters(sentence.text, printed, answer));
    is_said || view.facts.explains(view, sentence)
}

/// A sentence that says how to calculate on a topic of which every problem fails in the same way.
pub(crate) fn misleading(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    finding_at(view, dim, |sentence| is_misleading(view, sentence))
}

/// Whether a text outside the skills does.
pub(crate) fn is_misled_elsewhere(view: &View<'_>) -> bool {
    let mut sentences = sentences(view).into_iter();
    sentences
        .any(|sentence| sentence.place.dim() != HarnessDim::S && is_misleading(view, &sentence))
}

fn is_misleading(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    view.facts.misunderstanding(view).is_some_and(|known| {
        let words = words(sentence.text);
        calculates(sentence.text) && words.iter().any(|word| is_topic(&known.topics, word))
    })
}

/// Whether a word is one of a topic's, in whatever form.
pub(super) fn is_topic(topics: &BTreeSet<String>, word: &str) -> bool {
    let mut topics = topics.iter();
    topics.any(|topic| topic.starts_with(word) || word.starts_with(topic.as_str()))
}

/// A sentence with the name of a tool that the model called or of an argument that it gave, and that
/// doesn't exist.
pub(crate) fn naming_unknown_tool(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    finding(view, dim, |sentence| names_unknown(view, sentence))
}

/// Whether a text outside the tools themselves brought up the unknown tool or argument.
pub(crate) fn is_unknown_tool_named_elsewhere(view: &View<'_>) -> bool {
    sentences(view)
        .iter()
        .any(|sentence| sentence.place.dim() != HarnessDim::T && names_unknown(view, sentence.text))
}

fn names_unknown(view: &View<'_>, sentence: &str) -> bool {
    unknown_tool(view).is_some_and(|name| names_tool(sentence, name))
        || unknown_arguments(view)
            .iter()
            .any(|name| names_argument(sentence, name))
}

fn unknown_tool<'a>(view: &View<'a>) -> Option<&'a str> {
    let mut events = view.trajectory.events();
    events.find_map(|(_, event)| match event {
        Event::UnknownTool { name } => Some(name.as_str()),
        _ => None,
    })
}

/// Names of arguments in calls that were refused, which no tool has.
fn unknown_arguments(view: &View<'_>) -> BTreeSet<String> {
    let refused = view
        .calls()
        .filter(|call| matches!(call.step.event, Some(Event::BadArguments { .. })));
    let is_known = |name: &String| {
        let mut tools = view.harness.tools.values();
        tools.any(|tool| tool.parameters["properties"].get(name).is_some())
    };
    refused
        .filter_map(|call| {
            let text = call.text();
            let object = text.get(text.find('{')?..=text.rfind('}')?)?;
            serde_json::from_str::<Value>(object).ok()
        })
        .filter_map(|call| Some(call.get("arguments").unwrap_or(&call).as_object()?.clone()))
        .flat_map(|arguments| arguments.into_iter().map(|(name, _)| name))
        .filter(|name| !is_known(name))
        .collect()
}

/// A sentence with a name that Python doesn't know, as its error says, or with another language or an
/// older version where programs aren't today's Python.
pub(crate) fn naming_missing_code(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    let missing = view.missing_name();
    let is_other = is_in_other_language(view);
    finding(view, dim, |sentence| {
        missing.is_some_and(|(_, name)| names_code(sentence, name))
            || is_other && (names_other_language(sentence) || names_older_version(sentence))
    })
}

/// A sentence with a mark behind which the model put a program that the loop then didn't read.
pub(crate) fn giving_unread_mark(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    finding(view, dim, |sentence| gives_unread_mark(view, sentence))
}

/// Whether any sentence has such a mark.
pub(crate) fn has_unread_mark(view: &View<'_>) -> bool {
    let mut sentences = sentences(view).into_iter();
    sentences.any(|sentence| gives_unread_mark(view, sentence.text))
}

fn gives_unread_mark(view: &View<'_>, sentence: &str) -> bool {
    let is_xml = view.harness.middleware.protocol.call_format == CallFormat::Xml;
    let is_own = |mark: &str| is_xml && mark == "<tool_call>";
    let is_used = |mark: &str| {
        let mut replies = view.replies();
        replies.any(|at| has_program_behind(at.text(), mark))
    };
    // Where programs are the answers, the marks may be the answer's.
    view.ignores_tool()
        && !view.answers_with_program()
        && marks(sentence).any(|mark| !is_own(mark) && is_used(mark))
}

/// A sentence that says of printing what the program then did: that it isn't needed, where it printed
/// nothing, or to print more than the result, where the answer is the last of several numbers.
pub(crate) fn misguiding_print(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    finding(view, dim, |sentence| misguides_print(view, sentence))
}

/// Whether a text outside the skills does.
pub(crate) fn is_print_misguided_elsewhere(view: &View<'_>) -> bool {
    sentences(view).iter().any(|sentence| {
        sentence.place.dim() != HarnessDim::S && misguides_print(view, sentence.text)
    })
}

fn misguides_print(view: &View<'_>, sentence: &str) -> bool {
    let is_silent = || view.has_event(|event| matches!(event, Event::EmptyOutput));
    let is_last_of_several = || {
        let Some(result) = view.last_good_result() else {
            return false;
        };
        let lines = view.output(result).lines();
        let printed = lines.filter(|line| !numbers(line).is_empty()).count();
        printed > 1 && view.value().is_some() && view.differing_numbers().is_none()
    };
    forbids_print(sentence) && is_silent() || asks_to_print_more(sentence) && is_last_of_several()
}

/// Whether programs seem to be in another language: their fence says so, or Python can't read them.
fn is_in_other_language(view: &View<'_>) -> bool {
    let is_refused = |text: &str| {
        text.lines().any(|line| {
            [
                "[error] SyntaxError",
                "[error] IndentationError",
                "[error] NameError",
            ]
            .iter()
            .any(|error| line.starts_with(error))
        })
    };
    let has_label = |text: &str| {
        let fences = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("```"));
        let mut labels = fences.map(str::trim).filter(|label| !label.is_empty());
        labels.any(names_other_language)
    };
    view.last_good_result().is_none()
        && (view.results().any(|at| is_refused(at.text()))
            || view.replies().any(|at| has_label(at.text())))
}

/// A sentence that asks for a long text, where a limit cut a reply.
pub(crate) fn asking_for_length(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    if !view.is_cut() || view.has_call() {
        return None;
    }
    finding(view, dim, asks_for_length)
}

/// A sentence that asks for further calls, where a result was followed by calls alone.
pub(crate) fn asking_for_more(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    // A call after an error is no further one.
    let first = view.good_results().next()?;
    let goes_on = view.calls().any(|call| call.index > first.index);
    if !goes_on || view.states_answer() {
        return None;
    }
    finding(view, dim, asks_for_more)
}

/// A sentence that asks for the answer in words, where there is none that can be read.
pub(crate) fn asking_for_words(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    if view.states_answer() {
        return None;
    }
    finding(view, dim, |sentence| is_against_answer(view, sentence))
}

/// Whether a sentence asks for the answer in words or, with a result at hand, for none.
fn is_against_answer(view: &View<'_>, sentence: &str) -> bool {
    let has_result = view.last_good_result().is_some();
    asks_for_words(sentence) || has_result && withholds_answer(sentence)
}

/// Whether any sentence asks for the answer in words or in another form, or for none.
pub(crate) fn is_asked_for_words(view: &View<'_>) -> bool {
    let mut sentences = sentences(view).into_iter();
    sentences.any(|sentence| {
        is_against_answer(view, sentence.text) || view.facts.explains(view, &sentence)
    })
}

/// The last sentence that the model was told in a dimension, where most rollouts fail. Nothing but that
/// speaks against it.
pub(crate) fn suspected(view: &View<'_>, dim: HarnessDim) -> Option<Finding> {
    let mut told = sentences(view).into_iter();
    let is_triggered = |name: &String| {
        let skill = view.harness.skills.get(name);
        skill.is_some_and(|skill| !skill.triggers.is_empty())
    };
    let last = told.rfind(|sentence| match &sentence.place {
        Place::Skill(name) => dim == HarnessDim::S && is_triggered(name),
        place => place.dim() == dim,
    })?;
    let at = view.said(last.text).filter(|_| view.facts.is_failing())?;
    at.quote(Severity::Low, last.text)
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
        Place::Parameter(name, parameter) => {
            let schema = &harness.tools.get(name)?.parameters["properties"][parameter];
            let rest = remove(schema["description"].as_str()?, text)?;
            let field = path("tools").join(name.as_str()).join("parameters");
            let field = field.join("properties").join(parameter.as_str());
            PatchOp::replace(field.join("description"), Value::from(rest))
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
