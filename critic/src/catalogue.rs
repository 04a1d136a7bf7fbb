//! The texts of all repairs, read from the YAML files in `critic/catalogue`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use harness::{Example, ExampleStep, Harness, Skill, Tool, ToolName, YamlError, yaml};
use serde::Deserialize;

/// Everything in `critic/catalogue`.
pub(crate) struct Catalogue {
    pub(crate) examples: Vec<WorkedProblem>,
    pub(crate) texts: Texts,
    pub(crate) skills: Vec<Skill>,
    pub(crate) notes: Notes,
}

/// A solved problem that doesn't know the harness's tool yet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkedProblem {
    pub(crate) title: String,
    pub(crate) problem: String,
    say: String,
    code: String,
    result: String,
    answer: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Texts {
    pub(crate) prompts: PromptTexts,
    pub(crate) tools: ToolTexts,
    pub(crate) hooks: HookTexts,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PromptTexts {
    pub(crate) system_use_tool: String,
    pub(crate) system_short: String,
    pub(crate) final_boxed: String,
    pub(crate) final_number_only: String,
    pub(crate) task_suffix: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolTexts {
    pub(crate) description_when: String,
    pub(crate) description_name: String,
    pub(crate) parameter_print: String,
    pub(crate) parameter_example: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HookTexts {
    pub(crate) empty_output: String,
    pub(crate) error: String,
    pub(crate) nudge: String,
    pub(crate) plan_next: String,
    pub(crate) force_final_answer: String,
    pub(crate) repeat: String,
    pub(crate) append: String,
    pub(crate) truncation_marker: String,
    pub(crate) compaction_marker: String,
    pub(crate) verify_prompt: String,
    pub(crate) verify_message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Notes {
    pub(crate) print: String,
    pub(crate) answer: String,
    pub(crate) call: String,
}

static SHIPPED: LazyLock<Catalogue> =
    LazyLock::new(|| read().expect("the shipped catalogue reads, as a test shows"));

/// The shipped catalogue.
pub(crate) fn catalogue() -> &'static Catalogue {
    &SHIPPED
}

fn read() -> Result<Catalogue, YamlError> {
    Ok(Catalogue {
        examples: yaml::from_str(include_str!("../catalogue/examples.yaml"))?,
        texts: yaml::from_str(include_str!("../catalogue/texts.yaml"))?,
        skills: yaml::from_str(include_str!("../catalogue/skills.yaml"))?,
        notes: yaml::from_str(include_str!("../catalogue/notes.yaml"))?,
    })
}

impl WorkedProblem {
    /// The example with its call addressed to `tool`; `None` if the tool takes no program.
    pub(crate) fn for_tool(&self, name: &ToolName, tool: &Tool) -> Option<Example> {
        let argument = tool.code_argument()?.to_owned();
        Some(Example {
            title: self.title.clone(),
            problem: self.problem.clone(),
            steps: vec![ExampleStep {
                say: self.say.clone(),
                tool: name.clone(),
                arguments: BTreeMap::from([(argument, self.code.clone())]),
                result: self.result.clone(),
            }],
            answer: self.answer.clone(),
        })
    }
}

/// The harness's first tool that runs a program; of several, one that speaks of programs goes first.
pub(crate) fn program_tool(harness: &Harness) -> Option<(&ToolName, &Tool)> {
    let runs = |(_, tool): &(&ToolName, &Tool)| tool.code_argument().is_some();
    let speaks = |(name, tool): &(&ToolName, &Tool)| {
        let argument = tool.code_argument().unwrap_or_default();
        let texts = [name.as_str(), argument, &tool.description];
        texts.into_iter().any(speaks_of_programs)
    };
    let tools = || harness.tools.iter().filter(runs);
    tools().find(speaks).or_else(|| tools().next())
}

/// Whether a text has a word for programs.
pub(crate) fn speaks_of_programs(text: &str) -> bool {
    const PROGRAM: [&str; 4] = ["code", "program", "script", "python"];
    let text = text.to_lowercase();
    PROGRAM.iter().any(|word| text.contains(word))
}

/// `text` with the name of the harness's tool filled in; `None` if it is needed and there is none.
pub(crate) fn with_tool_name(text: &str, harness: &Harness) -> Option<String> {
    const SLOT: &str = "{{ tool }}";
    if !text.contains(SLOT) {
        return Some(text.to_owned());
    }
    let (name, _) = program_tool(harness)?;
    Some(text.replace(SLOT, name.as_str()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn shipped_catalogue_reads() {
        let catalogue = read().unwrap();
        assert!(catalogue.examples.len() >= 3);
        assert!(catalogue.skills.len() >= 3);
    }
}
