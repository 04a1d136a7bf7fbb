//! Where the model is in a conversation, what it was told, and what it does next.

use rollout::{Message, Role};

use super::problems::Kind;
use super::reading::{self, is_call, printed_number, sentences};
use super::understanding::Problem;

/// Longest reply the model has in it.
const LONG_TEXT: usize = 1600;

/// Where the model is in a conversation.
pub(super) struct Mind<'a> {
    pub(super) system: &'a str,
    pub(super) examples: &'a [Message],
    pub(super) task: &'a str,
    pub(super) later: &'a [Message],
    pub(super) problem: Problem,
    /// Whether it is held to a grammar.
    pub(super) is_held: bool,
}

impl Mind<'_> {
    pub(super) fn reply(&self) -> String {
        match self.later.last() {
            None => self.first(),
            Some(message) if message.role == Role::Tool => self.after_result(&message.content),
            Some(message) => self.after_message(&message.content),
        }
    }

    fn first(&self) -> String {
        if let Some(number) = self.number_in_notes() {
            return self.answer(number);
        }
        if self.sentences().any(reading::asks_back) {
            return "Is every word of that meant as it stands?".to_owned();
        }
        if self.problem.kind == Kind::Plan {
            return "First I look at the boxes, and then at what is sold.".to_owned();
        }
        let call = if self.wants_tool() {
            self.call()
        } else {
            self.answer_from_head()
        };
        if self.is_asked_for_length() {
            let talk = "This is a question that deserves to be looked at from all sides. ";
            return format!("{}\n{call}", talk.repeat(LONG_TEXT / talk.len()));
        }
        call
    }

    fn after_message(&self, message: &str) -> String {
        if asks_for_call(message) {
            return self.call();
        }
        if reading::asks_for_plan(message) {
            return "First I look at what is given, and then at what is asked.".to_owned();
        }
        let number = self.results().find_map(printed_number);
        match number {
            Some(number) if message.contains("mistake") => self.answer(number + 1),
            Some(number) => self.answer(number),
            None if !reading::asks_for_answer(message) && self.wants_tool() => self.call(),
            None => self.answer_from_head(),
        }
    }

    fn after_result(&self, result: &str) -> String {
        let tries = self.calls();
        if result.contains("[error]") {
            if reading::asks_for_guess(result) {
                return self.answer_from_head();
            }
            let is_program = !result.contains("the call can't be read")
                && !result.contains("there is no tool")
                && !result.contains("the argument");
            return match (is_program, tries) {
                (true, _) if self.knows_errors() => self.written(&self.mended()),
                (_, 0..=2) => self.call(),
                (true, _) => "I can't get it to run.".to_owned(),
                (false, _) => self.answer_from_head(),
            };
        }
        if result.contains("Use that result") {
            let number = self.results().find_map(printed_number);
            return match number {
                Some(number) => self.answer(number),
                None => self.answer_from_head(),
            };
        }
        if result.trim_start().starts_with("[no output]") || result.contains("printed nothing") {
            let earlier = self.results().find_map(printed_number);
            return match (tries, earlier) {
                (0 | 1, _) => self.call(),
                (_, Some(number)) => self.answer(number),
                (_, None) => self.answer_from_head(),
            };
        }
        let Some(number) = printed_number(result) else {
            if asks_for_call(result) {
                return self.call();
            }
            return match self.results().find_map(printed_number) {
                Some(number) => self.answer(number),
                None => "I can't tell from this output.".to_owned(),
            };
        };
        match self.problem.kind {
            _ if self.sentences().any(reading::grants_one_call) => self.answer(number),
            Kind::Parts if tries == 1 => self.call(),
            Kind::Sure if tries <= 3 => self.call(),
            _ => self.answer(number),
        }
    }

    /// Tool results, the latest first.
    fn results(&self) -> impl Iterator<Item = &str> {
        let results = self.later.iter().rev();
        results
            .filter(|message| message.role == Role::Tool)
            .map(|message| message.content.as_str())
    }

    /// How many calls or tries at one there were.
    pub(super) fn calls(&self) -> usize {
        let results = self.later.iter();
        results.filter(|message| message.role == Role::Tool).count()
    }

    /// Everything the model was told, in order: system message, problem, what hooks sent.
    fn told(&self) -> impl Iterator<Item = &str> {
        let later = self.later.iter();
        let later = later.filter(|message| message.role != Role::Assistant);
        [self.system, self.task]
            .into_iter()
            .chain(later.map(|message| message.content.as_str()))
    }

    pub(super) fn sentences(&self) -> impl Iterator<Item = &str> {
        self.told().flat_map(sentences)
    }

    pub(super) fn is_told(&self, texts: &[&str]) -> bool {
        self.told()
            .any(|told| texts.iter().any(|text| told.contains(text)))
    }

    /// What an example's assistant wrote.
    pub(super) fn shown(&self) -> impl Iterator<Item = &str> {
        let examples = self.examples.iter();
        examples
            .filter(|message| message.role == Role::Assistant)
            .map(|message| message.content.as_str())
    }

    fn wants_tool(&self) -> bool {
        let can_call = self.system.contains("To call ");
        let told = self.sentences().filter_map(reading::advice).last();
        let is_shown = self.shown().any(is_call);
        can_call && told.unwrap_or(is_shown)
    }

    fn is_asked_for_length(&self) -> bool {
        self.sentences().any(reading::asks_for_length)
    }

    fn knows_errors(&self) -> bool {
        let told = self.is_told(&[
            "last line of the error",
            "last line of an error",
            "simpler program",
            "what the error says",
        ]);
        told || self.sentences().any(reading::tells_to_change)
    }
}

/// Whether a message or a result tells to call the tool.
fn asks_for_call(text: &str) -> bool {
    sentences(text).any(|sentence| reading::advice(sentence) == Some(true))
}
