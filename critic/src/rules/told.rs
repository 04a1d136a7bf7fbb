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
use super::view::{View, has_word, numbers};
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
            if let Some(message) = message_of(hook) {
                texts.push((Place::Message(point, index), message));
            }
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
fn message_of(hook: &Hook) -> Option<&str> {
    match hook {
        Hook::Nudge { message, .. }
        | Hook::ForceFinalAnswer { message }
        | Hook::DetectRepeat { message }
        | Hook::EmptyOutputHint { message }
        | Hook::AppendMessage { message }
        | Hook::ErrorHint { message } => Some(message),
        _ => None,
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
    finding(view, dim, |sentence| has_word(sentence, name))
}

/// Whether a text outside the tools themselves brought up the unknown tool.
pub(crate) fn is_unknown_tool_named_elsewhere(view: &View<'_>) -> bool {
    unknown_tool(view).is_some_and(|name| {
        sentences(view)
            .iter()
            .any(|sentence| sentence.place.dim() != HarnessDim::T && has_word(sentence.text, name))
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
    finding(view, dim, |sentence| has_word(sentence, name))
}

/// A sentence of the prompts that asks for a long text, where a limit cut a reply.
pub(crate) fn asking_for_length(view: &View<'_>) -> Option<Finding> {
    const LENGTH: [&str; 7] = [
        "at length",
        "in detail",
        "every detail",
        "long explanation",
        "words or more",
        "as long as possible",
        "essay",
    ];
    if !view.is_cut() || view.has_call() {
        return None;
    }
    finding(view, HarnessDim::P, |sentence| {
        let sentence = sentence.to_lowercase();
        let counts_words = sentence.contains("at least")
            && ["words", "sentences", "paragraphs", "lines"]
                .iter()
                .any(|unit| has_word(&sentence, unit));
        counts_words || LENGTH.iter().any(|words| sentence.contains(words))
    })
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

/// Whether a sentence speaks against calling a tool.
fn forbids_tool(harness: &Harness, sentence: &str) -> bool {
    const REFUSALS: [&str; 14] = [
        "do not use",
        "don't use",
        "never use",
        "do not call",
        "don't call",
        "never call",
        "without tools",
        "without the tool",
        "without any tool",
        "without a tool",
        "no tools",
        "no tool ",
        "avoid",
        "not for calculat",
    ];
    const ALONE: [&str; 4] = ["in your head", "in the head", "by hand", "mentally"];
    let sentence = sentence.to_lowercase();
    let names_tool = ["tool", "tools", "program", "programs", "python", "code"]
        .iter()
        .any(|word| has_word(&sentence, word))
        || harness
            .tools
            .keys()
            .any(|name| has_word(&sentence, &name.as_str().to_lowercase()));
    // A tool's own description says "it".
    let speaks_of_it = has_word(&sentence, "it") && sentence.contains("calculat");
    let is_refusal = REFUSALS.iter().any(|refusal| sentence.contains(refusal));
    let is_alone = ALONE.iter().any(|words| {
        sentence.find(words).is_some_and(|at| {
            let before = sentence[..at].trim_end();
            !before.ends_with("never") && !before.ends_with("not")
        })
    });
    is_alone || is_refusal && (names_tool || speaks_of_it)
}

/// Whether `sentence` tells to turn `printed` into `answer`.
fn alters(sentence: &str, printed: f64, answer: f64) -> bool {
    const MEANT: [&str; 9] = [
        "answer", "answers", "result", "results", "output", "amount", "amounts", "number",
        "printed",
    ];
    let lower = sentence.to_lowercase();
    if !MEANT.iter().any(|word| has_word(&lower, word)) {
        return false;
    }
    let mut amounts = numbers(sentence);
    amounts.extend(
        NUMBER_WORDS
            .iter()
            .filter(|(word, _)| has_word(&lower, word))
            .map(|(_, number)| *number),
    );
    amounts.retain(|amount| *amount > 0.0);
    let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0);
    let rounds = ["round", "nearest", "approximat"]
        .iter()
        .any(|word| lower.contains(word));
    if rounds {
        return amounts.iter().any(|unit| {
            let steps = answer / unit;
            *unit >= 1.0 && is_near(steps, steps.round()) && (answer - printed).abs() < *unit
        });
    }
    amounts.iter().any(|amount| {
        let results = [
            printed + amount,
            printed - amount,
            printed * amount,
            printed / amount,
        ];
        results.iter().any(|result| is_near(*result, answer))
    })
}

/// Words that stand for an amount in an instruction.
const NUMBER_WORDS: [(&str, f64); 18] = [
    ("one", 1.0),
    ("two", 2.0),
    ("twice", 2.0),
    ("double", 2.0),
    ("half", 2.0),
    ("three", 3.0),
    ("four", 4.0),
    ("five", 5.0),
    ("six", 6.0),
    ("seven", 7.0),
    ("eight", 8.0),
    ("nine", 9.0),
    ("ten", 10.0),
    ("tens", 10.0),
    ("hundred", 100.0),
    ("hundreds", 100.0),
    ("thousand", 1000.0),
    ("thousands", 1000.0),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start;

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

    #[test]
    fn what_speaks_against_a_tool() {
        let harness = start();
        for sentence in [
            "Never use tools like python.",
            "Work it out in your head.",
            "Do not call python for small numbers.",
            "Never use it for calculations.",
            "Solve this without any tool, please.",
        ] {
            assert!(forbids_tool(&harness, sentence), "{sentence}");
        }
        for sentence in [
            "Numbers are calculated with the python tool, never in the head.",
            "Use it for every calculation and print the result.",
            "You may use the python tool to compute things.",
            "Do not use abbreviations.",
            "Avoid long texts.",
        ] {
            assert!(!forbids_tool(&harness, sentence), "{sentence}");
        }
    }

    #[test]
    fn what_alters_an_answer() {
        let rounding = "Round the answer to the nearest ten.";
        assert!(alters(rounding, 37.0, 40.0));
        assert!(!alters(rounding, 37.0, 39.0));
        assert!(!alters(rounding, 37.0, 90.0));
        assert!(alters(
            "Add one to every number that is printed.",
            37.0,
            38.0
        ));
        assert!(alters("The answer is half of the output.", 38.0, 19.0));
        assert!(!alters("Give the answer in a box.", 37.0, 38.0));
        // An arithmetic rule that speaks of no answer tells how to calculate, not what to reply.
        assert!(!alters("Divide by 2 for pairs.", 38.0, 19.0));
    }
}
