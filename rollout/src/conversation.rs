//! The messages before the first reply: system prompt, examples and problem.

use harness::{CallFormat, Example, Harness, MemoryKind, Skill};
use serde_json::{Map, Value};

use crate::protocol;
use crate::retrieval::{relevant, words};
use crate::tools::render_result;
use crate::trajectory::{Message, Role, ToolCall};

/// The opening of a conversation about `problem` with calls in `format`. The system message is
/// absent if it would be empty.
pub(crate) fn open(harness: &Harness, format: CallFormat, problem: &str) -> Vec<Message> {
    let mut messages = Vec::new();
    let system = system_prompt(harness, format, problem);
    if !system.is_empty() {
        messages.push(Message::new(Role::System, system));
    }
    for example in &harness.prompts.examples {
        push_example(harness, format, example, &mut messages);
    }
    messages.push(Message::new(
        Role::User,
        harness.prompts.render_task(problem),
    ));
    messages
}

/// An assistant message with a call in the current format.
pub(crate) fn text_with_call(say: &str, call: &str) -> String {
    match say.trim() {
        "" => call.to_owned(),
        say => format!("{say}\n{call}"),
    }
}

fn system_prompt(harness: &Harness, format: CallFormat, problem: &str) -> String {
    let mut parts = vec![harness.prompts.system.trim().to_owned()];
    if harness.memory.kind == MemoryKind::Notes && !harness.memory.entries.is_empty() {
        let memory = &harness.memory;
        let notes = relevant(&memory.entries, memory.shown as usize, problem);
        let notes = notes.map(|entry| format!("- {}", entry.trim()));
        parts.push(format!("Notes:\n{}", notes.collect::<Vec<_>>().join("\n")));
    }
    parts.extend(skills(harness, problem).map(|skill| skill.body.trim().to_owned()));
    parts.push(protocol::render_tools(format, &harness.tools));
    parts.push(harness.prompts.final_answer.trim().to_owned());
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// The skills that a problem switches on, by name.
fn skills<'a>(harness: &'a Harness, problem: &'a str) -> impl Iterator<Item = &'a Skill> {
    let skills = harness.skills.values();
    skills.filter(move |skill| is_triggered(skill, problem))
}

/// The Python of the skills that a problem switches on; empty where they have none.
pub(crate) fn skills_python(harness: &Harness, problem: &str) -> String {
    let parts = skills(harness, problem).map(|skill| skill.python.trim_end());
    let parts: Vec<&str> = parts.filter(|python| !python.is_empty()).collect();
    parts.join("\n\n")
}

/// Whether any trigger stands in the problem as a whole word or phrase, in any case.
fn is_triggered(skill: &Skill, problem: &str) -> bool {
    let said = words(problem);
    let stands = |trigger: &String| match words(trigger).as_str() {
        // A sign, such as `%`, has no words.
        " " => problem.contains(trigger.trim()),
        trigger => said.contains(trigger),
    };
    skill.triggers.is_empty() || skill.triggers.iter().any(stands)
}

fn push_example(
    harness: &Harness,
    format: CallFormat,
    example: &Example,
    messages: &mut Vec<Message>,
) {
    let is_native = format == CallFormat::Native;
    let task = harness.prompts.render_task(&example.problem);
    messages.push(Message::new(Role::User, task));
    for (index, step) in example.steps.iter().enumerate() {
        let arguments: Map<String, Value> = step
            .arguments
            .iter()
            .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
            .collect();
        let content = if is_native {
            step.say.trim().to_owned()
        } else {
            let name = step.tool.as_str();
            let call = protocol::render_call(format, name, &harness.tools, &arguments);
            text_with_call(&step.say, &call)
        };
        let mut message = Message::new(Role::Assistant, content);
        message.is_native = is_native;
        message.tool_calls.push(ToolCall {
            id: format!("call_{}", index + 1),
            tool: step.tool.to_string(),
            arguments,
        });
        messages.push(message);
        let mut result = Message::new(Role::Tool, render_result(&step.result, ""));
        result.is_native = is_native;
        messages.push(result);
    }
    messages.push(Message::new(Role::Assistant, example.answer.trim()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(triggers: &[&str]) -> Skill {
        Skill {
            name: "percent".into(),
            description: String::new(),
            triggers: triggers.iter().map(|t| (*t).to_owned()).collect(),
            body: String::new(),
            python: String::new(),
        }
    }

    #[test]
    fn triggers_are_whole_words_in_any_case() {
        assert!(is_triggered(&skill(&[]), "anything"));
        assert!(is_triggered(&skill(&["Percent"]), "What percent, then?"));
        assert!(is_triggered(&skill(&["per cent"]), "ten per-cent of it"));
        assert!(is_triggered(&skill(&["x", "%"]), "take 5% of it"));
        assert!(!is_triggered(&skill(&["cent"]), "What percent?"));
    }
}
