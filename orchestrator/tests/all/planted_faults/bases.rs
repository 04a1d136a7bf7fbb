//! What the working harnesses of all lists are made of, and small changes to a harness.

use harness::{
    CallFormat, Example, ExampleStep, Harness, Hook, HookPoint, MemoryKind, Skill, Tool, ToolName,
    ToolState,
};
use serde_json::Value;

/// What a list's harness says, each in its own words, and how many notes it keeps.
pub(super) struct Texts {
    pub(super) system: &'static str,
    /// Description of the tool.
    pub(super) tool: &'static str,
    pub(super) final_answer: &'static str,
    pub(super) note: &'static str,
    pub(super) most_notes: u32,
}

/// The shipped harness with other texts; it has no examples yet and no skills, and takes fenced blocks
/// for calls.
pub(super) fn plain(texts: &Texts) -> Harness {
    let mut harness = harness::naive().expect("the shipped harness");
    harness.prompts.system = texts.system.into();
    harness.prompts.final_answer = texts.final_answer.into();
    python(&mut harness).description = texts.tool.into();
    harness.memory.kind = MemoryKind::Notes;
    harness.memory.capacity = texts.most_notes;
    note(&mut harness, texts.note);
    harness.middleware.protocol.call_format = CallFormat::Fenced;
    harness.middleware.runtime.parallel_rollouts = 16;
    harness
}

/// Worked examples of one call each, by title, problem, sum and result; `lead` begins their answers.
pub(super) fn examples(lead: &str, worked: [[&str; 4]; 3]) -> Vec<Example> {
    let example = |[title, problem, sum, result]: [&str; 4]| Example {
        title: title.into(),
        problem: problem.into(),
        steps: vec![ExampleStep {
            say: String::new(),
            tool: ToolName::new("python").expect("a name"),
            arguments: [("code".to_owned(), format!("print({sum})"))].into(),
            result: result.into(),
        }],
        answer: format!("{lead} \\boxed{{{result}}}."),
    };
    worked.into_iter().map(example).collect()
}

/// Calls stand between tags; a missing brace is forgiven.
pub(super) fn tagged(mut harness: Harness) -> Harness {
    harness.middleware.protocol.call_format = CallFormat::Xml;
    hooked(harness, Hook::RepairJson {})
}

/// Variables outlive a call.
pub(super) fn stateful(mut harness: Harness) -> Harness {
    python(&mut harness).state = ToolState::Stateful;
    harness
}

/// The form of the answer is told in the system prompt, before tools and notes.
pub(super) fn with_early_form(mut harness: Harness) -> Harness {
    let form = std::mem::take(&mut harness.prompts.final_answer);
    harness.prompts.system.push_str(&format!(" {form}"));
    harness
}

/// Percentages are computed by a function that a skill brings along.
pub(super) fn with_skill_code(mut harness: Harness, body: &str, code: &str) -> Harness {
    let skill = skill(&mut harness, "percentages");
    skill.body = body.into();
    skill.python = code.into();
    harness
}

pub(super) fn hooked(mut harness: Harness, hook: Hook) -> Harness {
    add_hook(&mut harness, hook);
    harness
}

pub(super) fn add_hook(harness: &mut Harness, hook: Hook) {
    let hooks = &mut harness.middleware.hooks;
    let standing = match hook.point() {
        HookPoint::OnStart => &mut hooks.on_start,
        HookPoint::PreModelCall => &mut hooks.pre_model_call,
        HookPoint::PostModelCall => &mut hooks.post_model_call,
        HookPoint::PreToolCall => &mut hooks.pre_tool_call,
        HookPoint::PostToolCall => &mut hooks.post_tool_call,
        HookPoint::OnToolError => &mut hooks.on_tool_error,
        HookPoint::OnFinish => &mut hooks.on_finish,
    };
    standing.push(hook);
}

/// Has a hook append a message to every result.
pub(super) fn append_to_results(harness: &mut Harness, message: &str) {
    let message = message.into();
    add_hook(harness, Hook::AppendMessage { message });
}

/// Has a hook cut results.
pub(super) fn cut_results(harness: &mut Harness, max_chars: usize, marker: &str) {
    let marker = marker.into();
    add_hook(harness, Hook::TruncateOutput { max_chars, marker });
}

pub(super) fn python(harness: &mut Harness) -> &mut Tool {
    harness.tools.get_mut("python").expect("the tool")
}

/// Gives the tool another name.
pub(super) fn rename_tool(harness: &mut Harness, name: &str) {
    let tool = harness.tools.remove("python").expect("the tool");
    let name = ToolName::new(name).expect("a name");
    harness.tools.insert(name, tool);
}

/// Adds a parameter that every call has to give.
pub(super) fn require(tool: &mut Tool, name: &str, property: Value) {
    tool.parameters["properties"][name] = property;
    let required = tool.parameters["required"].as_array_mut();
    required.expect("names").push(name.into());
}

/// Adds a sentence to the tool's description.
pub(super) fn say_of_tool(harness: &mut Harness, sentence: &str) {
    let description = &mut python(harness).description;
    description.push_str(&format!(" {sentence}"));
}

pub(super) fn skill<'a>(harness: &'a mut Harness, name: &str) -> &'a mut Skill {
    harness.skills.get_mut(name).expect("the skill")
}

/// Adds a skill; `lead` begins its description, which ends in its name.
pub(super) fn add_skill(
    harness: &mut Harness,
    lead: &str,
    name: &str,
    triggers: &[&str],
    body: &str,
) {
    let skill = Skill {
        name: name.into(),
        description: format!("{lead} {name}."),
        triggers: triggers.iter().map(|word| (*word).to_owned()).collect(),
        body: body.into(),
        python: String::new(),
    };
    harness.skills.insert(name.into(), skill);
}

pub(super) fn note(harness: &mut Harness, text: &str) {
    harness.memory.entries.push(text.to_owned());
}
