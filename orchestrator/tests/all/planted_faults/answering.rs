//! How the model gives an answer: in what form, and what notes or its head have it say.

use serde_json::{Map, Value};

use super::mind::Mind;
use super::reading::{self, Form, digit_word, has_any};

impl Mind<'_> {
    /// A note that claims to know the answer.
    pub(super) fn number_in_notes(&self) -> Option<u128> {
        let notes = self.system.lines().filter(|line| line.starts_with("- "));
        notes
            .filter(|note| has_any(note, &["answer", "olution"]) && has_any(note, &[" is ", ": "]))
            .find_map(|note| {
                let words = note.split(|c: char| !c.is_ascii_digit());
                words.rev().find_map(|word| word.parse().ok())
            })
    }

    pub(super) fn answer_from_head(&self) -> String {
        let guess = self.problem.guess();
        let answer = self.answer(guess);
        match self.form() {
            Some(Form::Bare | Form::Hint) => answer,
            _ => format!("I work it out. It comes to {guess}.\n{answer}"),
        }
    }

    /// The final reply with a number.
    pub(super) fn answer(&self, number: u128) -> String {
        let value = self.sentences().fold(number, reading::altered);
        let number = if self.sentences().any(reading::writes_hexadecimal) {
            format!("{value:#x}")
        } else if self.sentences().any(reading::parts_thousands) {
            reading::in_thousands(value)
        } else {
            value.to_string()
        };
        match self.form() {
            Some(Form::Boxed) => format!("The answer is \\boxed{{{number}}}."),
            Some(Form::Equation) => {
                let numbers: Vec<String> =
                    self.problem.numbers.iter().map(u128::to_string).collect();
                let sum = numbers.join(&format!(" {} ", self.problem.sign));
                format!("The answer is \\boxed{{{sum} = {number}}}.")
            }
            Some(Form::Sentence) => format!("\\boxed{{The value asked for is {number}}}"),
            Some(Form::Words) => {
                let digits = number.bytes().filter(u8::is_ascii_digit);
                let words: Vec<&str> = digits.map(digit_word).collect();
                format!("The answer is {}.", words.join(" "))
            }
            Some(Form::Letter) => "The answer is \\boxed{B}.".to_owned(),
            Some(Form::Json) => format!("{{\"answer\": {number}, \"confidence\": 95}}"),
            Some(Form::Bare) => number,
            Some(Form::Hint) => "You are nearly there. Which step comes next?".to_owned(),
            Some(Form::Twice) => {
                let rounded = reading::rounded(value, 1);
                format!("The answer is \\boxed{{{number}}} and \\boxed{{{rounded}}}.")
            }
            Some(Form::HandedIn) => self.handed_in(&number),
            Some(Form::YesNo) => "Yes.".to_owned(),
            None => "So that is settled.".to_owned(),
        }
    }

    /// How the model is told or shown to give its answer.
    fn form(&self) -> Option<Form> {
        let shown = || {
            let text = self.shown().find(|text| text.contains("\\boxed{"))?;
            let (_, rest) = text.split_once("\\boxed{")?;
            let (content, _) = rest.split_once('}')?;
            Some(match content.contains('=') {
                true => Form::Equation,
                false => Form::Boxed,
            })
        };
        self.sentences()
            .filter_map(reading::form)
            .last()
            .or_else(shown)
    }

    /// A call of the tool that takes answers, or words to that effect where there is none.
    fn handed_in(&self, number: &str) -> String {
        let takes_answers = |tool: &Value| {
            let description = tool["description"].as_str().unwrap_or_default();
            reading::hands_in(&description.to_lowercase())
        };
        let Some(tool) = self.schemas().find(takes_answers) else {
            return format!("I hand in {number}.");
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let argument = text(&tool["parameters"]["required"][0]);
        let arguments = Map::from_iter([(argument, Value::from(number))]);
        self.as_json(&text(&tool["name"]), arguments)
    }
}
