//! The text of one file in `prompts/examples/`.
//!
//! Sections `## problem`, then for every step `## say` (if any), `## call <tool>` and `## result`,
//! and last `## answer`. An empty line follows a heading and another one ends a section. A call holds
//! one fenced block per argument, whose info string is the argument's name. In the other sections a
//! line that would read as a heading carries one backslash more, so that every text comes back as
//! it was.

use std::collections::BTreeMap;

use crate::check::is_argument_name;
use crate::document::{Example, ExampleStep, ToolName};

/// Why an example file was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExampleError {
    /// Line, from 1.
    pub(crate) line: u64,
    pub(crate) reason: String,
}

pub(crate) fn write(example: &Example) -> String {
    let mut sections = vec![text_section("problem", &example.problem)];
    for step in &example.steps {
        if !step.say.is_empty() {
            sections.push(text_section("say", &step.say));
        }
        sections.push(call_section(step));
        sections.push(text_section("result", &step.result));
    }
    sections.push(text_section("answer", &example.answer));
    sections.join("\n")
}

pub(crate) fn read(title: &str, text: &str) -> Result<Example, ExampleError> {
    let mut sections = split_sections(text)?.into_iter().peekable();
    let end = text.lines().count() as u64;
    let mut next = |wanted: &[&str]| match sections.next() {
        Some(section) if wanted.contains(&section.kind()) => Ok(section),
        Some(section) => Err(ExampleError {
            line: section.line,
            reason: format!(
                "expected {}, found `## {}`",
                headings(wanted),
                section.heading
            ),
        }),
        None => Err(ExampleError {
            line: end,
            reason: format!("expected {}, found the end", headings(wanted)),
        }),
    };
    let problem = next(&["problem"])?.text();
    let mut steps = Vec::new();
    let answer = loop {
        let mut section = next(&["say", "call", "answer"])?;
        if section.kind() == "answer" {
            break section;
        }
        let mut say = String::new();
        if section.kind() == "say" {
            say = section.text();
            section = next(&["call"])?;
        }
        let tool = section.tool()?;
        let arguments = section.arguments()?;
        let result = next(&["result"])?.text();
        steps.push(ExampleStep {
            say,
            tool,
            arguments,
            result,
        });
    };
    if let Some(section) = sections.next() {
        let reason = format!("`## {}` after the answer", section.heading);
        return Err(ExampleError {
            line: section.line,
            reason,
        });
    }
    Ok(Example {
        title: title.to_owned(),
        problem,
        steps,
        answer: answer.text(),
    })
}

struct Section<'a> {
    /// What stands after `## `.
    heading: &'a str,
    /// The heading's line, from 1.
    line: u64,
    lines: Vec<&'a str>,
}

fn text_section(heading: &str, text: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| {
            let escape = if is_heading(line.trim_start_matches('\\')) {
                "\\"
            } else {
                ""
            };
            format!("{escape}{line}\n")
        })
        .collect();
    format!("## {heading}\n\n{}", lines.concat())
}

fn call_section(step: &ExampleStep) -> String {
    let mut text = format!("## call {}\n", step.tool);
    for (name, argument) in &step.arguments {
        let longest = argument.split('\n').filter_map(fence_of).max().unwrap_or(0);
        let fence = "`".repeat(longest.max(2) + 1);
        text.push_str(&format!("\n{fence}{name}\n{argument}\n{fence}\n"));
    }
    text
}

fn split_sections(text: &str) -> Result<Vec<Section<'_>>, ExampleError> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    // Inside a fence of a call, nothing is a heading.
    let mut open_fence: Option<usize> = None;
    for (index, line) in text.split('\n').enumerate() {
        let is_call = sections
            .last()
            .is_some_and(|section| section.kind() == "call");
        if open_fence.is_none() && is_heading(line) {
            let heading = line.trim_start_matches('#').trim();
            sections.push(Section {
                heading,
                line: index as u64 + 1,
                lines: Vec::new(),
            });
            continue;
        }
        if is_call {
            open_fence = match (open_fence, fence_of(line)) {
                (None, Some(length)) => Some(length),
                (Some(length), _) if closes(line, length) => None,
                (open, _) => open,
            };
        }
        match sections.last_mut() {
            Some(section) => section.lines.push(line),
            None if line.trim().is_empty() => {}
            None => {
                let reason = "expected `## problem` before any text".to_owned();
                return Err(ExampleError {
                    line: index as u64 + 1,
                    reason,
                });
            }
        }
    }
    Ok(sections)
}

impl Section<'_> {
    fn kind(&self) -> &str {
        match self.heading.split_once(' ') {
            Some(("call", _)) => "call",
            _ => self.heading,
        }
    }

    fn text(&self) -> String {
        let lines = self.lines.strip_prefix(&[""][..]).unwrap_or(&self.lines);
        let lines = lines.strip_suffix(&[""][..]).unwrap_or(lines);
        let unescaped: Vec<&str> = lines
            .iter()
            .map(|line| match line.strip_prefix('\\') {
                Some(rest) if is_heading(rest.trim_start_matches('\\')) => rest,
                _ => line,
            })
            .collect();
        unescaped.join("\n")
    }

    fn tool(&self) -> Result<ToolName, ExampleError> {
        let name = self.heading.strip_prefix("call").unwrap_or_default().trim();
        ToolName::new(name).map_err(|error| ExampleError {
            line: self.line,
            reason: error.to_string(),
        })
    }

    fn arguments(&self) -> Result<BTreeMap<String, String>, ExampleError> {
        let mut arguments = BTreeMap::new();
        let mut lines = (self.line + 1..).zip(&self.lines);
        while let Some((line, opening)) = lines.next() {
            if opening.trim().is_empty() {
                continue;
            }
            let fail = |reason: &str| ExampleError {
                line,
                reason: reason.to_owned(),
            };
            let length = fence_of(opening).ok_or_else(|| fail("expected a fenced argument"))?;
            let name = opening[length..].trim();
            if !is_argument_name(name) {
                return Err(fail("expected the argument's name after the fence"));
            }
            let mut body = Vec::new();
            loop {
                match lines.next() {
                    Some((_, line)) if closes(line, length) => break,
                    Some((_, line)) => body.push(*line),
                    None => return Err(fail("the fence isn't closed")),
                }
            }
            if arguments.insert(name.to_owned(), body.join("\n")).is_some() {
                return Err(fail("the argument occurs twice"));
            }
        }
        Ok(arguments)
    }
}

fn headings(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`## {name}`")).collect();
    quoted.join(" or ")
}

fn is_heading(line: &str) -> bool {
    line == "##" || line.starts_with("## ")
}

/// Length of the fence that a line starts with, if it does.
fn fence_of(line: &str) -> Option<usize> {
    let length = line.bytes().take_while(|byte| *byte == b'`').count();
    (length >= 3).then_some(length)
}

/// Whether a line ends a block that a fence of this length opened.
fn closes(line: &str, length: usize) -> bool {
    fence_of(line).is_some_and(|own| own >= length) && line.trim_end().bytes().all(|b| b == b'`')
}
