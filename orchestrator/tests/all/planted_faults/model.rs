//! A model that plays by rules: it reads the conversation as any model would, and nothing else.
//!
//! It never sees a harness, a gold answer or a fault's name: [`Policy::complete`] gives it messages.
//! What it can and can't do is written down here once, for all faults:
//!
//! - It understands each kind of problem and turns it into a program, but for what has to be told:
//!   how percentages work, how long the way around a rectangle is, that a program must print, to take
//!   problems with three numbers apart. A formula or a function that it is given it takes as it is.
//!   One problem in ten it misreads, whatever the harness says. Numbers it takes in the order in which
//!   the message with the problem gives them.
//! - Of instructions that contradict each other it obeys the last one. Instructions count more than
//!   examples, examples more than nothing.
//! - It calls the tool if it is told to, and else calculates in its head, wrongly.
//! - It writes a call in the form of the last example, and where that has a result in the same reply,
//!   it makes up one. Without any it can write a fenced block; where JSON is described it writes a
//!   fenced block all the same, and where tags are described it forgets a brace. Told of other marks
//!   around programs it writes those. The program's argument it calls as the last example does.
//! - It writes programs in the language that was spoken of last, and shows values by the function that
//!   was. Told to write a function it writes one and doesn't call it; told to escape line breaks it
//!   writes them so in a fence.
//! - After an error or an empty result it does the same again, unless it is told what to do.
//! - It takes the printed number from a line of its own, if there is none from an earlier result, and
//!   gives up without one.
//! - It gives the answer in the form it is told, with whatever it is told to do to the number; told that
//!   answers are handed in, by a call of the tool that takes them.
//! - Granted one call it makes no other after a result.
//! - Asked for a plan it writes one; asked for nothing but an answer it gives one; told to ask first,
//!   it asks.
//! - It believes notes.
//! - What it makes of single sentences is in `reading.rs`.
//! - Held to a grammar, it can't but write calls that are whole, of a tool that there is, with arguments of
//!   the right types.
//! - Four characters are a token. Above temperature 1 it talks nonsense now and then.

use rollout::{
    BoxFuture, Completion, CompletionRequest, Finish, Message, Policy, PolicyError, PolicyId, Role,
    Usage,
};
use serde_json::{Map, Value, json};

use super::problems::Kind;
use super::reading::{
    self, Form, Language, digit_word, has_any, is_call, printed_number, sentences,
};

const CHARS_PER_TOKEN: usize = 4;
/// Longest reply the model has in it.
const LONG_TEXT: usize = 1600;

/// The model.
pub(crate) struct Reader {
    id: PolicyId,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Reader {
            id: PolicyId::new("reader"),
        }
    }
}

impl Policy for Reader {
    fn id(&self) -> &PolicyId {
        &self.id
    }

    fn follows_grammars(&self) -> bool {
        true
    }

    fn complete(
        &self,
        request: CompletionRequest,
    ) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        Box::pin(async move {
            let characters: usize = request
                .messages
                .iter()
                .map(|message| message.content.chars().count())
                .sum();
            let prompt_tokens = characters.div_ceil(CHARS_PER_TOKEN) as u64;
            if prompt_tokens + 16 > u64::from(request.context_tokens) {
                let reason = format!("{prompt_tokens} tokens of {}", request.context_tokens);
                return Err(PolicyError::ContextOverflow { reason });
            }
            let mut text = if is_noise(&request) {
                "Perhaps, and then again perhaps not, as numbers have it.".to_owned()
            } else {
                reply(&request.messages, request.grammar.is_some())
            };
            let mut finish = Finish::Stop;
            let stops = request
                .stop
                .iter()
                .filter_map(|stop| text.find(stop.as_str()));
            if let Some(end) = stops.min() {
                text.truncate(end);
                finish = Finish::StopString;
            }
            let most = request.max_tokens as usize * CHARS_PER_TOKEN;
            if let Some((end, _)) = text.char_indices().nth(most) {
                text.truncate(end);
                finish = Finish::Length;
            }
            let completion_tokens = text.chars().count().div_ceil(CHARS_PER_TOKEN).max(1) as u64;
            Ok(Completion {
                text,
                reasoning: String::new(),
                finish,
                finish_reason: None,
                prompt_ids: Vec::new(),
                output_ids: Vec::new(),
                logprobs: Vec::new(),
                usage: Usage {
                    prompt_tokens,
                    completion_tokens,
                    ..Usage::default()
                },
                tool_calls: Vec::new(),
            })
        })
    }
}

/// Above temperature 1, a share of replies is nonsense.
fn is_noise(request: &CompletionRequest) -> bool {
    let share = (request.temperature - 1.0).max(0.0) * 2.0;
    (request.seed >> 40) as f64 / f64::from(1 << 24) < share
}

fn reply(messages: &[Message], is_held: bool) -> String {
    let system = match messages.first() {
        Some(message) if message.role == Role::System => message.content.as_str(),
        _ => "",
    };
    let last = messages
        .last()
        .map_or("", |message| message.content.as_str());
    if last.starts_with("Problem:") && last.contains("Solution:") {
        return check(system);
    }
    let is_problem =
        |message: &Message| message.role == Role::User && Problem::read(&message.content).is_some();
    let Some(at) = messages.iter().rposition(is_problem) else {
        return "What is the question?".to_owned();
    };
    let start = usize::from(!system.is_empty());
    let Some(problem) = Problem::read(&messages[at].content) else {
        return String::new();
    };
    let mind = Mind {
        system,
        examples: &messages[start..at],
        task: &messages[at].content,
        later: &messages[at + 1..],
        problem,
        is_held,
    };
    mind.reply()
}

/// The reply to a request to check a solution: whatever the prompt offers first.
fn check(prompt: &str) -> String {
    let words: Vec<&str> = prompt
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| matches!(*word, "RIGHT" | "WRONG"))
        .collect();
    format!("I have read it.\n{}", words.first().unwrap_or(&"RIGHT"))
}

/// A problem as the model understands it.
struct Problem {
    kind: Kind,
    /// The operation of a plain one.
    sign: char,
    numbers: Vec<u128>,
}

impl Problem {
    fn read(text: &str) -> Option<Self> {
        let has = |part: &str| text.contains(part);
        let (kind, sign) = if has(" percent of ") {
            (Kind::Percent, '*')
        } else if has("Work in two parts") {
            (Kind::Parts, '*')
        } else if has("Multiply ") {
            (Kind::Long, '*')
        } else if has("average of") {
            (Kind::Average, '+')
        } else if has(" dozen ") && has("How many") {
            (Kind::Dozen, '*')
        } else if has("can be divided by") {
            (Kind::Search, '+')
        } else if has("rows and") && has("cells") {
            (Kind::Grid, '*')
        } else if has("Count up from") {
            (Kind::List, '+')
        } else if has("boxes with") && has("sells") {
            let is_plan = has("Make a plan");
            (if is_plan { Kind::Plan } else { Kind::Steps }, '*')
        } else if has("metres of fence") {
            (Kind::Fence, '*')
        } else if has("Make sure") && has("more.") {
            (Kind::Sure, '+')
        } else if has(" buys ") {
            (Kind::Plain, '+')
        } else if has(" gives away ") {
            (Kind::Plain, '-')
        } else if has(" in each of ") || has("rows with") || has("packs with") {
            (Kind::Plain, '*')
        } else {
            return None;
        };
        let numbers: Vec<u128> = text
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .collect();
        (numbers.len() >= if kind == Kind::Dozen { 1 } else { 2 }).then_some(Problem {
            kind,
            sign,
            numbers,
        })
    }

    /// One in ten is read with its first number one too high.
    fn misread(mut self) -> Self {
        let sum: u128 = self.numbers.iter().sum();
        let is_misread = sum % 10 == 3 && self.kind != Kind::List;
        if is_misread {
            self.numbers[0] += 1;
        }
        self
    }

    /// What comes out in the head: near, and wrong.
    fn guess(&self) -> u128 {
        let all = &self.numbers;
        let near = match (self.kind, self.sign) {
            (Kind::Steps | Kind::Plan | Kind::Parts, _) => all[0] * all[1],
            (Kind::Dozen, _) => all[0] * 12,
            (Kind::Percent, _) => all[0] * all[1] / 100,
            (_, '+') => all[0] + all[1],
            (_, '-') => all[0].saturating_sub(all[1]),
            _ => all[0] * all[1],
        };
        near + 10
    }
}

/// Where the model is in a conversation.
struct Mind<'a> {
    system: &'a str,
    examples: &'a [Message],
    task: &'a str,
    later: &'a [Message],
    problem: Problem,
    /// Whether it is held to a grammar.
    is_held: bool,
}

impl Mind<'_> {
    fn reply(&self) -> String {
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
    fn calls(&self) -> usize {
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

    fn sentences(&self) -> impl Iterator<Item = &str> {
        self.told().flat_map(sentences)
    }

    fn is_told(&self, texts: &[&str]) -> bool {
        self.told()
            .any(|told| texts.iter().any(|text| told.contains(text)))
    }

    /// What an example's assistant wrote.
    fn shown(&self) -> impl Iterator<Item = &str> {
        let examples = self.examples.iter();
        examples
            .filter(|message| message.role == Role::Assistant)
            .map(|message| message.content.as_str())
    }

    /// A note that claims to know the answer.
    fn number_in_notes(&self) -> Option<u128> {
        let notes = self.system.lines().filter(|line| line.starts_with("- "));
        notes
            .filter(|note| has_any(note, &["answer", "olution"]) && has_any(note, &[" is ", ": "]))
            .find_map(|note| {
                let words = note.split(|c: char| !c.is_ascii_digit());
                words.rev().find_map(|word| word.parse().ok())
            })
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

    fn prints(&self) -> bool {
        let told = self.sentences().filter_map(reading::printing).last();
        told.unwrap_or_else(|| self.shown().any(|text| text.contains("print(")))
    }

    fn prints_steps_last(&self) -> bool {
        let told = self.sentences().filter_map(reading::prints_steps_last);
        told.last().unwrap_or(false)
    }

    fn takes_apart(&self) -> bool {
        let last = self.sentences().filter_map(reading::keeps_steps_apart);
        if last.last() == Some(false) {
            return false;
        }
        let told = self.is_told(&["its own line", "very number of the question"])
            || self.sentences().any(reading::gives_steps_lines);
        let is_shown = self.examples.iter().any(|message| {
            message.role == Role::User
                && message
                    .content
                    .split(|c: char| !c.is_ascii_digit())
                    .filter(|word| !word.is_empty())
                    .count()
                    >= 3
        });
        told || is_shown
    }

    fn call(&self) -> String {
        self.written(&self.program())
    }

    fn program(&self) -> String {
        let problem = Problem {
            numbers: self.problem.numbers.clone(),
            ..self.problem
        }
        .misread();
        let n = &problem.numbers;
        let value = match problem.kind {
            Kind::Plain | Kind::Sure => format!("{} {} {}", n[0], problem.sign, n[1]),
            Kind::Long => format!("{} * {}", n[0], n[1]),
            Kind::Steps | Kind::Plan if self.takes_apart() => {
                let mut program = format!(
                    "first = {} * {}\n{}",
                    n[0],
                    n[1],
                    self.shown_value(&format!("first - {}", n[2]))
                );
                if self.prints_steps_last() {
                    program.push('\n');
                    program.push_str(&self.shown_value("first"));
                }
                return program;
            }
            Kind::Steps | Kind::Plan => format!("{} * {}", n[0], n[1]),
            Kind::Percent if self.is_told(&["/ 100"]) => format!("{} * {} / 100", n[1], n[0]),
            Kind::Percent => self.by_rule(&["percent"], n),
            Kind::Fence => self.by_rule(&["round a rectangle", "perimeter"], n),
            Kind::Dozen => format!("{} * {}", n[0], self.dozen()),
            Kind::Average if self.is_told(&["sum(values) / len(values)"]) => self.average(n),
            Kind::Average => format!("mean({n:?})"),
            Kind::Parts if self.calls() == 0 => {
                return format!("part = {} * {}\n{}", n[0], n[1], self.shown_value("part"));
            }
            Kind::Parts => format!("part - {}", n[2]),
            Kind::Search => format!(
                "sum(1 for n in range({}, {} + 1) if n % {} == 0 and n % {} != 0)",
                n[0], n[1], n[2], n[3]
            ),
            Kind::Grid => {
                return format!(
                    "cells = [0] * ({} * {})\n{}",
                    n[0],
                    n[1],
                    self.shown_value("len(cells)")
                );
            }
            Kind::List => {
                let range = format!("range({}, {} + 1, {})", n[0], n[1], n[2]);
                return format!(
                    "for n in {range}:\n    print(n)\n{}",
                    self.shown_value(&format!("len({range})"))
                );
            }
        };
        format!("{}{}", self.imports(), self.shown_value(&value))
    }

    /// The program after an error that the model knows how to read.
    fn mended(&self) -> String {
        let n = &self.problem.numbers;
        match self.problem.kind {
            Kind::Average => self.shown_value(&self.average(n)),
            Kind::Parts => self.shown_value(&format!("{} * {} - {}", n[0], n[1], n[2])),
            _ => self.program(),
        }
    }

    fn average(&self, numbers: &[u128]) -> String {
        format!("sum({numbers:?}) // {}", numbers.len())
    }

    /// By the last rule that was given for a topic, or else a product.
    fn by_rule(&self, topic: &[&str], n: &[u128]) -> String {
        let told = self.sentences();
        told.filter(|sentence| has_any(sentence, topic))
            .filter_map(|sentence| reading::rule(sentence, n[0], n[1]))
            .last()
            .unwrap_or_else(|| format!("{} * {}", n[0], n[1]))
    }

    fn dozen(&self) -> u128 {
        let told = self.sentences().filter_map(reading::dozen);
        told.last().unwrap_or(12)
    }

    fn language(&self) -> Language {
        let told = self.sentences().filter_map(reading::language);
        told.last().unwrap_or(Language::Python)
    }

    /// A module that the model is told to use.
    fn imports(&self) -> String {
        let told = self.sentences().find_map(|sentence| {
            let before = ["with the module ", "of the package "];
            let (_, rest) = before.iter().find_map(|words| sentence.split_once(words))?;
            rest.split(|c: char| !c.is_alphanumeric()).next()
        });
        told.map_or_else(String::new, |module| format!("import {module}\n"))
    }

    fn shown_value(&self, value: &str) -> String {
        if let Some(function) = self.showing_function() {
            return format!("{function}({value})");
        }
        match self.language() {
            Language::JavaScript => format!("console.log({value})"),
            _ if !self.prints() => format!("result = {value}\nresult"),
            Language::Python2 => format!("print {value}"),
            Language::Python => format!("print({value})"),
        }
    }

    /// Another function than `print`, where that is the last that was told to show values by.
    fn showing_function(&self) -> Option<&'static str> {
        let told = self.sentences().filter(|sentence| {
            reading::printing(sentence).is_some() || reading::showing_function(sentence).is_some()
        });
        reading::showing_function(told.last()?)
    }

    /// The program as a call, in the form that examples show or else the system message describes.
    fn written(&self, program: &str) -> String {
        let wanted = self.sentences().filter_map(reading::wanted_function);
        let program = &match wanted.last() {
            Some(name) => format!("def {name}():\n    {}", program.replace('\n', "\n    ")),
            None => program.to_owned(),
        };
        if let Some((open, close)) = self.marks() {
            return format!("{open}\n{program}\n{close}");
        }
        let word = match self.language() {
            Language::Python | Language::Python2 => "python",
            Language::JavaScript => "javascript",
        };
        let lines = match self.sentences().any(reading::escapes_lines) {
            true => program.replace('\n', "\\n"),
            false => program.clone(),
        };
        let fence = format!("```{word}\n{lines}\n```");
        let shown = self.shown().filter(|text| is_call(text)).last();
        let text = shown.unwrap_or(self.system);
        if shown.is_some_and(|text| text.contains("Observation:")) {
            let (name, guess) = (self.tool_name(), self.problem.guess());
            return format!(
                "Action: {name}\nAction Input: {program}\nObservation: {guess}\n{}",
                self.answer(guess)
            );
        }
        let is_tag = text.contains("<tool_call>");
        if !is_tag && (shown.is_none() || text.contains("```")) {
            return fence;
        }
        self.as_json(&self.tool_name(), self.arguments(program))
    }

    /// A call as JSON, between tags where examples or else the system message have them.
    fn as_json(&self, name: &str, arguments: Map<String, Value>) -> String {
        let shown = self.shown().filter(|text| is_call(text)).last();
        let mut call = json!({"name": name, "arguments": arguments}).to_string();
        if shown.is_none() && !self.is_held {
            call.pop();
        }
        if shown.unwrap_or(self.system).contains("<tool_call>") {
            format!("<tool_call>\n{call}\n</tool_call>")
        } else {
            call
        }
    }

    /// Other marks around programs than a tool's, where those were told last.
    fn marks(&self) -> Option<(&str, &str)> {
        let told = self.sentences();
        let last = told
            .filter(|sentence| sentence.contains("```") || reading::marks(sentence).is_some())
            .last()?;
        let marks = reading::marks(last).filter(|(open, _)| *open != "<tool_call>");
        marks.filter(|_| !self.is_held)
    }

    /// The name that the last text about it gives the tool.
    fn tool_name(&self) -> String {
        let known = || Some(self.schema()?.get("name")?.as_str()?.to_owned());
        if self.is_held {
            return known().unwrap_or_default();
        }
        let told = self.sentences().filter_map(|sentence| {
            let before = ["is called ", "called it ", "Call "];
            let (_, rest) = before.iter().find_map(|words| sentence.split_once(words))?;
            let name = rest.split(|c: char| !c.is_alphanumeric()).next()?;
            (!matches!(name, "it" | "the" | "" | "one")).then(|| name.to_owned())
        });
        told.last()
            .or_else(known)
            .unwrap_or_else(|| "python".to_owned())
    }

    /// The first tool as the system message describes it.
    fn schema(&self) -> Option<Value> {
        self.schemas().next()
    }

    /// The tools as the system message describes them.
    fn schemas(&self) -> impl Iterator<Item = Value> {
        self.system.lines().filter_map(|line| {
            let value: Value = serde_json::from_str(line).ok()?;
            value.get("parameters").is_some().then_some(value)
        })
    }

    /// What the last example calls its argument, where it has one alone.
    fn shown_argument(&self) -> Option<String> {
        let text = self.shown().filter(|text| is_call(text)).last()?;
        let object = text.get(text.find('{')?..=text.rfind('}')?)?;
        let call: Value = serde_json::from_str(object).ok()?;
        let arguments = call.get("arguments")?.as_object()?;
        let name = arguments.keys().next()?;
        (arguments.len() == 1).then(|| name.clone())
    }

    /// A value for every parameter that the tool requires: the program for the first text that is
    /// about one, and for others what the description gives as an example, or else something of the
    /// type. Of the names that the program's parameter has in other texts the last one counts, and
    /// without any that of the last example.
    fn arguments(&self, program: &str) -> Map<String, Value> {
        let Some(schema) = self.schema() else {
            return Map::from_iter([("code".to_owned(), Value::from(program))]);
        };
        let parameters = &schema["parameters"];
        let property = |name: &str, field: &str| {
            let value = &parameters["properties"][name][field];
            value.as_str().unwrap_or_default().to_owned()
        };
        let required = parameters["required"].as_array();
        let names = required.into_iter().flatten().filter_map(Value::as_str);
        let texts = names
            .clone()
            .filter(|name| property(name, "type") == "string");
        let about_programs = texts.clone().find(|name| {
            let words = format!("{name} {}", property(name, "description"));
            has_any(&words.to_lowercase(), &["code", "program"])
        });
        let of_program = about_programs.or(texts.clone().next());
        let told = [self.system, self.task].into_iter().flat_map(sentences);
        let shown_name = self.shown_argument();
        let told_name = told.filter_map(reading::argument_name).last();
        let other_name = told_name.or(shown_name.as_deref());
        let mut arguments = Map::new();
        for name in names {
            let (kind, description) = (property(name, "type"), property(name, "description"));
            let of_type = match kind.as_str() {
                "integer" | "number" => json!(1),
                "boolean" => json!(true),
                _ => json!("the total"),
            };
            let example = description.split_once("such as ").map(|(_, example)| {
                let example = example.trim_end_matches('.');
                serde_json::from_str(example).unwrap_or_else(|_| Value::from(example))
            });
            let is_let = |value: &Value| {
                let is_same = std::mem::discriminant(value) == std::mem::discriminant(&of_type);
                is_same || !self.is_held
            };
            let value = if Some(name) == of_program {
                Value::from(program)
            } else {
                example.filter(is_let).unwrap_or(of_type)
            };
            let name = other_name
                .filter(|_| Some(name) == of_program && !self.is_held)
                .unwrap_or(name);
            arguments.insert(name.to_owned(), value);
        }
        let further = self.sentences().filter_map(reading::further_argument);
        for name in further.filter(|_| !self.is_held) {
            arguments.entry(name).or_insert(json!(5));
        }
        arguments
    }

    fn answer_from_head(&self) -> String {
        let guess = self.problem.guess();
        let answer = self.answer(guess);
        match self.form() {
            Some(Form::Bare | Form::Hint) => answer,
            _ => format!("I work it out. It comes to {guess}.\n{answer}"),
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

    /// The final reply with a number.
    fn answer(&self, number: u128) -> String {
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

/// Whether a message or a result tells to call the tool.
fn asks_for_call(text: &str) -> bool {
    sentences(text).any(|sentence| reading::advice(sentence) == Some(true))
}
