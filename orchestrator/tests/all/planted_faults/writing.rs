//! How the model writes programs and calls: their language, their form, and the arguments.

use serde_json::{Map, Value, json};

use super::mind::Mind;
use super::reading::{self, Language, has_any, is_call, sentences};

impl Mind<'_> {
    pub(super) fn call(&self) -> String {
        self.written(&self.program())
    }

    /// The program as a call, in the form that examples show or else the system message describes.
    pub(super) fn written(&self, program: &str) -> String {
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
    pub(super) fn as_json(&self, name: &str, arguments: Map<String, Value>) -> String {
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
    pub(super) fn schemas(&self) -> impl Iterator<Item = Value> {
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

    /// A module that the model is told to use.
    pub(super) fn imports(&self) -> String {
        let told = self.sentences().find_map(|sentence| {
            let before = ["with the module ", "of the package "];
            let (_, rest) = before.iter().find_map(|words| sentence.split_once(words))?;
            rest.split(|c: char| !c.is_alphanumeric()).next()
        });
        told.map_or_else(String::new, |module| format!("import {module}\n"))
    }

    pub(super) fn shown_value(&self, value: &str) -> String {
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

    fn prints(&self) -> bool {
        let told = self.sentences().filter_map(reading::printing).last();
        told.unwrap_or_else(|| self.shown().any(|text| text.contains("print(")))
    }

    fn language(&self) -> Language {
        let told = self.sentences().filter_map(reading::language);
        told.last().unwrap_or(Language::Python)
    }
}
