//! The faults: working harnesses, and what is planted in one dimension of each.
//!
//! `shows` says by what a fault can be seen in a trajectory.

use critic::RootCause::{
    self, MemoryOverflow, MiddlewareMismatch, PromptAmbiguity, SkillMissing, ToolSchemaError,
};
use harness::{
    CallFormat, Example, ExampleStep, Harness, Hook, MemoryKind, Skill, Tool, ToolName, ToolState,
};
use serde_json::json;

use super::problems::Kind::{
    self, Average, Dozen, Grid, List, Long, Parts, Percent, Plain, Plan, Search, Steps, Sure,
};

/// A fault in a harness that works without it.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// The planted root cause; its dimension is the one that is changed.
    pub(crate) cause: RootCause,
    /// Another root cause that may be named as well, where something elsewhere would help as much.
    pub(crate) other_cause: Option<RootCause>,
    /// Kinds of problems on which it shows.
    pub(crate) kinds: &'static [Kind],
    /// What there is to see.
    pub(crate) shows: &'static str,
    pub(crate) working: fn() -> Harness,
    pub(crate) plant: fn(&mut Harness),
}

impl Fault {
    pub(super) fn new(
        cause: RootCause,
        name: &'static str,
        kinds: &'static [Kind],
        shows: &'static str,
        working: fn() -> Harness,
        plant: fn(&mut Harness),
    ) -> Self {
        Fault {
            name,
            cause,
            other_cause: None,
            kinds,
            shows,
            working,
            plant,
        }
    }

    pub(super) fn or(self, cause: RootCause) -> Self {
        Fault {
            other_cause: Some(cause),
            ..self
        }
    }

    pub(super) fn is_named_by(&self, cause: RootCause) -> bool {
        cause == self.cause || Some(cause) == self.other_cause
    }

    /// Dimensions of the root causes, the planted one first.
    pub(super) fn dimensions(&self) -> String {
        let planted = self.cause.harness_dim();
        match self.other_cause {
            Some(other) => format!("{planted}/{}", other.harness_dim()),
            None => planted.to_string(),
        }
    }
}

/// All faults, by dimension.
pub(crate) fn faults() -> Vec<Fault> {
    let dimensions = [prompts(), tools(), skills(), middleware(), memory()];
    dimensions.into_iter().flatten().collect()
}

fn prompts() -> Vec<Fault> {
    let fault = |name, kinds, shows, working, plant| {
        Fault::new(PromptAmbiguity, name, kinds, shows, working, plant)
    };
    vec![
        fault(
            "conflicting instructions",
            &[Plain],
            "no call; the task speaks against tools",
            bench,
            |h| h.prompts.task = "{{ problem }}\n\nDo not use any tools for this.".into(),
        ),
        fault(
            "no answer format",
            &[Plain],
            "result, then no answer",
            bench,
            |h| h.prompts.final_answer.clear(),
        ),
        fault(
            "answer in words",
            &[Plain],
            "result, then an answer that isn't read",
            bench,
            |h| h.prompts.final_answer = "Write the final answer in words.".into(),
        ),
        fault(
            "examples missing",
            &[Plain],
            "no call, no example",
            by_example,
            |h| h.prompts.examples.clear(),
        ),
        fault(
            "examples that call nothing",
            &[Plain],
            "no call; examples without one",
            by_example,
            |h| h.prompts.examples.iter_mut().for_each(|e| e.steps.clear()),
        ),
        fault(
            "tool left to choice",
            &[Plain],
            "no call; the system prompt says may",
            with_vague_tool,
            |h| h.prompts.system = "You may use the python tool to compute things.".into(),
        ),
        fault(
            "long explanations asked for",
            &[Plain],
            "reply cut before its call",
            bench,
            |h| {
                h.prompts.system = format!(
                    "{} Before you do anything, explain the problem in at least 300 words.",
                    h.prompts.system
                );
            },
        ),
        fault(
            "rounding asked for",
            &[Plain],
            "answer is the rounded result",
            bench,
            |h| {
                h.prompts.task = "{{ problem }}\n\nRound the answer to the nearest ten.".into();
            },
        ),
        fault(
            "examples with the sum in the box",
            &[Plain],
            "answer is an equation",
            by_example,
            |h| {
                let sums = ["17 + 5", "9 * 14", "61 - 20"];
                for (example, sum) in h.prompts.examples.iter_mut().zip(sums) {
                    example.answer = example.answer.replace('{', &format!("{{{sum} = "));
                }
            },
        ),
    ]
}

fn tools() -> Vec<Fault> {
    let fault = |name, kinds, shows, working, plant| {
        Fault::new(ToolSchemaError, name, kinds, shows, working, plant)
    };
    vec![
        fault(
            "missing print hint",
            &[Plain],
            "program prints nothing",
            bench,
            |h| {
                python(h).description =
                    "Runs a Python program. Use it for every calculation.".into();
            },
        ),
        fault(
            "wrong schema type",
            &[Plain],
            "arguments refused",
            with_digits,
            |h| python(h).parameters["properties"]["digits"]["type"] = json!("boolean"),
        ),
        fault(
            "parameter that a fence can't give",
            &[Plain],
            "arguments refused",
            bench,
            |h| {
                python(h).parameters["properties"]["language"] = json!({"type": "string"});
                python(h).parameters["required"] = json!(["code", "language"]);
            },
        ),
        fault(
            "description of another tool",
            &[Plain],
            "call of a tool that isn't there",
            by_tags,
            |h| {
                python(h).description =
                    "Runs a Python program and returns what it prints. Call calc for every calculation and print the result."
                        .into();
            },
        ),
        fault(
            "output limit 20 characters",
            &[Long],
            "output cut, no answer",
            bench,
            |h| python(h).limits.output_chars = 20,
        ),
        fault(
            "time limit 15 ms",
            &[Search],
            "program out of time",
            bench,
            |h| python(h).limits.timeout_ms = 15,
        ),
        fault(
            "memory limit 80 MiB",
            &[Grid],
            "program out of memory",
            bench,
            |h| python(h).limits.memory_mib = 80,
        ),
        fault(
            "tool missing",
            &[Plain],
            "no tool, wrong answer",
            bench,
            |h| h.tools.clear(),
        ),
        fault(
            "description against use",
            &[Plain],
            "no call; the tool's description speaks against it",
            bench,
            |h| {
                python(h).description =
                    "Runs a Python program that draws pictures. Never use it for calculations."
                        .into();
            },
        ),
        fault(
            "description that changes results",
            &[Plain],
            "answer is the result plus one",
            bench,
            |h| {
                let text = &mut python(h).description;
                text.push_str(" Add 1 to every number that it prints.");
            },
        ),
        fault(
            "description with a module that isn't there",
            &[Plain],
            "program fails over a name of the description",
            bench,
            |h| {
                let text = &mut python(h).description;
                text.push_str(" Calculate with the module tallies.");
            },
        ),
        fault(
            "variables lost between calls",
            &[Parts],
            "name of an earlier call isn't defined",
            with_state,
            |h| python(h).state = ToolState::Stateless,
        ),
    ]
}

fn skills() -> Vec<Fault> {
    let fault = |name, kinds, shows, working, plant| {
        Fault::new(SkillMissing, name, kinds, shows, working, plant)
    };
    vec![
        fault(
            "missing skill: percentages",
            &[Percent],
            "wrong program, no skill on the topic",
            bench,
            |h| drop(h.skills.remove("percentages")),
        ),
        fault(
            "missing skill: several steps",
            &[Steps],
            "program with half of the numbers",
            bench,
            |h| drop(h.skills.remove("steps")),
        ),
        fault(
            "trigger that never fits",
            &[Percent],
            "wrong program, skill not shown",
            bench,
            |h| skill(h, "percentages").triggers = vec!["percentage rate".into()],
        ),
        fault(
            "wrong formula",
            &[Percent],
            "wrong program, skill shown",
            bench,
            |h| skill(h, "percentages").body = "x percent of y is x * y.".into(),
        ),
        fault(
            "skill rounds",
            &[Percent],
            "answer is the rounded result",
            bench,
            |h| {
                let body = &mut skill(h, "percentages").body;
                body.push_str("\nRound every such amount to the nearest ten.");
            },
        ),
        fault(
            "skill against the tool",
            &[Percent],
            "no call; the skill speaks against it",
            with_vague_tool,
            |h| {
                let body = &mut skill(h, "percentages").body;
                body.push_str("\nDo such problems in your head.");
            },
        ),
        fault(
            "skill with a module that isn't there",
            &[Percent],
            "program fails over a name of the skill",
            bench,
            |h| {
                let body = &mut skill(h, "percentages").body;
                body.push_str("\nCalculate with the module percentages.");
            },
        ),
        fault(
            "skill that asks for an essay",
            &[Percent],
            "reply cut before its call",
            bench,
            |h| {
                let body = &mut skill(h, "percentages").body;
                body.push_str("\nFirst explain the problem in at least 300 words.");
            },
        ),
    ]
}

fn middleware() -> Vec<Fault> {
    let fault = |name, kinds, shows, working, plant| {
        Fault::new(MiddlewareMismatch, name, kinds, shows, working, plant)
    };
    vec![
        fault(
            "wrong call format: JSON",
            &[Plain],
            "call in a fence, not read",
            bench,
            |h| h.middleware.protocol.call_format = CallFormat::Json,
        ),
        fault(
            "wrong call format: tags",
            &[Plain],
            "call that can't be read",
            bench,
            |h| h.middleware.protocol.call_format = CallFormat::Xml,
        ),
        fault(
            "calls not repaired",
            &[Plain],
            "call that can't be read",
            by_tags,
            |h| h.middleware.hooks.post_model_call.clear(),
        ),
        fault(
            "calls not held to a grammar",
            &[Plain],
            "call that can't be read",
            with_grammar,
            |h| h.middleware.protocol.constrained = false,
        ),
        fault(
            "turn limit 1",
            &[Plain],
            "result, then the turn limit",
            bench,
            |h| h.middleware.protocol.max_turns = 1,
        ),
        fault(
            "output cut at 20 characters",
            &[Long],
            "output cut by a hook, no answer",
            bench,
            |h| {
                let marker = "[cut]".into();
                let hook = Hook::TruncateOutput {
                    max_chars: 20,
                    marker,
                };
                h.middleware.hooks.post_tool_call.push(hook);
            },
        ),
        fault(
            "replies of 5 tokens",
            &[Plain],
            "reply cut within its call",
            bench,
            |h| h.middleware.protocol.max_tokens_per_turn = 5,
        ),
        fault(
            "context too small",
            &[Plain],
            "conversation doesn't fit",
            bench,
            |h| {
                h.middleware.protocol.max_tokens_per_turn = 64;
                h.middleware.context.max_tokens = 160;
            },
        ),
        fault(
            "stop text within calls",
            &[Plain],
            "reply ends within its call",
            bench,
            |h| h.middleware.protocol.stop = vec!["print".into()],
        ),
        fault("sampling too hot", &[Plain], "nonsense", bench, |h| {
            h.middleware.sampling.temperature = 1.4
        }),
        fault("no nudge", &[Plan], "plan, then the end", with_nudge, |h| {
            h.middleware.hooks.post_model_call.clear()
        }),
        fault(
            "no word on repetition",
            &[Sure],
            "same call to the turn limit",
            with_repeat,
            |h| h.middleware.hooks.pre_tool_call.clear(),
        ),
        fault(
            "no word on errors",
            &[Average],
            "same failing program to the end",
            with_error_hint,
            |h| h.middleware.hooks.on_tool_error.clear(),
        ),
        fault(
            "results compacted at once",
            &[Long],
            "result replaced before it is read",
            bench,
            |h| {
                let hook = Hook::Compact {
                    above_tokens: 1,
                    keep_results: 0,
                    marker: "[removed]".into(),
                };
                h.middleware.hooks.pre_model_call.push(hook);
            },
        ),
        fault(
            "check that doubts everything",
            &[Plain],
            "right answer taken back",
            bench,
            |h| {
                let hook = Hook::Verify {
                    prompt: "Find the mistake, whatever it takes. End with WRONG.".into(),
                    sceptics: 1,
                    message: "There is a mistake in this.".into(),
                    max: 1,
                };
                h.middleware.hooks.on_finish.push(hook);
            },
        ),
        fault(
            "misleading message after results",
            &[Plain],
            "answer is the result plus one",
            bench,
            |h| {
                let message = "Add 1 to this number for the answer.".into();
                let hook = Hook::AppendMessage { message };
                h.middleware.hooks.post_tool_call.push(hook);
            },
        ),
        fault(
            "message that asks for words",
            &[Plain],
            "result, then an answer that isn't read",
            bench,
            |h| {
                let message = "Write this number in words.".into();
                let hook = Hook::AppendMessage { message };
                h.middleware.hooks.post_tool_call.push(hook);
            },
        ),
        fault(
            "long output not shortened",
            &[List],
            "output fills the context",
            with_shortening,
            |h| h.middleware.hooks.post_tool_call.clear(),
        ),
    ]
}

fn memory() -> Vec<Fault> {
    let fault = |name, kinds, shows, working, plant| {
        Fault::new(MemoryOverflow, name, kinds, shows, working, plant)
    };
    vec![
        fault(
            "stale memory: an answer",
            &[Plain],
            "answer is a note's number",
            bench,
            |h| note(h, "The answer to the last problem is 4172."),
        ),
        fault(
            "stale memory: a wrong fact",
            &[Dozen],
            "program with a note's number",
            bench,
            |h| note(h, "A dozen is 20 things."),
        ),
        fault(
            "notes that fill the context",
            &[Plain],
            "conversation doesn't fit",
            bench,
            |h| {
                for number in 0..6 {
                    let text = "It went well, as far as anybody could tell at the time. ";
                    note(h, &format!("Day {number}: {}", text.repeat(25)));
                }
            },
        ),
        fault(
            "note against the tool",
            &[Plain],
            "no call; a note speaks against it",
            with_vague_tool,
            |h| note(h, "It is quicker to work numbers out in your head."),
        ),
        fault(
            "note with another tool's name",
            &[Plain],
            "call of a tool that isn't there",
            by_tags,
            |h| note(h, "Since Monday the tool is called calc."),
        ),
        fault(
            "note that asks for words",
            &[Plain],
            "result, then an answer that isn't read",
            with_early_box,
            |h| note(h, "People like the answer in words."),
        ),
        fault(
            "note that changes results",
            &[Plain],
            "answer is the result plus one",
            bench,
            |h| note(h, "Add 1 to every number that the tool prints."),
        ),
    ]
}

pub(super) fn python(harness: &mut Harness) -> &mut Tool {
    harness.tools.get_mut("python").expect("the tool")
}

pub(super) fn skill<'a>(harness: &'a mut Harness, name: &str) -> &'a mut Skill {
    harness.skills.get_mut(name).expect("the skill")
}

pub(super) fn add_skill(
    harness: &mut Harness,
    name: &str,
    description: &str,
    triggers: &[&str],
    body: &str,
) {
    let skill = Skill {
        name: name.into(),
        description: description.into(),
        triggers: triggers.iter().map(|word| (*word).to_owned()).collect(),
        body: body.into(),
        python: String::new(),
    };
    harness.skills.insert(name.into(), skill);
}

pub(super) fn note(harness: &mut Harness, text: &str) {
    harness.memory.entries.push(text.to_owned());
}

/// A harness that says everything once, without examples.
pub(super) fn bench() -> Harness {
    let mut harness = harness::naive().expect("the shipped harness");
    harness.prompts.system = "You solve problems about numbers. Always call the python tool first, and then give the number that it printed.".into();
    harness.prompts.final_answer = "Write the final answer as \\boxed{number}.".into();
    python(&mut harness).description = "Runs a Python program and returns what it prints. Use it for every calculation and print the result.".into();
    let skill = |name: &str, triggers: &[&str], body: &str| Skill {
        name: name.into(),
        description: format!("Problems with {name}."),
        triggers: triggers.iter().map(|word| (*word).to_owned()).collect(),
        body: body.into(),
        python: String::new(),
    };
    let percentages = skill(
        "percentages",
        &["percent"],
        "x percent of y is y * x / 100.",
    );
    let steps = skill(
        "steps",
        &[],
        "Each step of a problem has its own line in the program.",
    );
    for skill in [percentages, steps] {
        harness.skills.insert(skill.name.clone(), skill);
    }
    harness.memory.kind = MemoryKind::Notes;
    harness.memory.capacity = 16;
    note(&mut harness, "Problems are short and have one answer.");
    harness.middleware.protocol.call_format = CallFormat::Fenced;
    harness.middleware.runtime.parallel_rollouts = 16;
    harness
}

/// Three examples, and prompts that leave the rest to them.
fn by_example() -> Harness {
    let mut harness = with_vague_tool();
    harness.prompts.system = "You solve problems about numbers.".into();
    harness.prompts.final_answer.clear();
    let example = |title: &str, problem: &str, code: &str, result: &str| Example {
        title: title.into(),
        problem: problem.into(),
        steps: vec![ExampleStep {
            say: String::new(),
            tool: ToolName::new("python").expect("a name"),
            arguments: [("code".to_owned(), code.to_owned())].into(),
            result: result.into(),
        }],
        answer: format!("The answer is \\boxed{{{result}}}."),
    };
    harness.prompts.examples = vec![
        example(
            "pears",
            "A cook peels 17 pears and then 5 more. How many is that?",
            "print(17 + 5)",
            "22",
        ),
        example(
            "tiles",
            "A wall of 9 by 14 tiles has how many tiles?",
            "print(9 * 14)",
            "126",
        ),
        example(
            "bread",
            "Of 61 loaves and 8 rolls 20 loaves are sold. How many loaves remain?",
            "print(61 - 20)",
            "41",
        ),
    ];
    harness
}

/// The tool's description says how, not when.
fn with_vague_tool() -> Harness {
    let mut harness = bench();
    python(&mut harness).description = "Runs a Python program, which must print its result.".into();
    harness
}

/// The form of the answer is told before the notes.
fn with_early_box() -> Harness {
    let mut harness = bench();
    let form = std::mem::take(&mut harness.prompts.final_answer);
    harness.prompts.system.push_str(&format!(" {form}"));
    harness
}

/// Calls between tags, repaired where a brace is missing.
fn by_tags() -> Harness {
    let mut harness = bench();
    harness.middleware.protocol.call_format = CallFormat::Xml;
    let hooks = &mut harness.middleware.hooks;
    hooks.post_model_call.push(Hook::RepairJson {});
    harness
}

/// Calls between tags, held to a grammar.
fn with_grammar() -> Harness {
    let mut harness = by_tags();
    harness.middleware.hooks.post_model_call.clear();
    harness.middleware.protocol.constrained = true;
    harness
}

/// A second parameter.
fn with_digits() -> Harness {
    let mut harness = by_tags();
    let parameters = &mut python(&mut harness).parameters;
    parameters["properties"]["digits"] =
        json!({"type": "integer", "description": "Digits after the point, such as 2."});
    parameters["required"] = json!(["code", "digits"]);
    harness
}

fn with_state() -> Harness {
    let mut harness = bench();
    python(&mut harness).state = ToolState::Stateful;
    harness
}

fn with_nudge() -> Harness {
    let mut harness = by_example();
    harness.prompts.system = bench().prompts.system;
    let message = "Now call the python tool.".into();
    let hooks = &mut harness.middleware.hooks;
    hooks.post_model_call.push(Hook::Nudge { message, max: 1 });
    harness
}

fn with_repeat() -> Harness {
    let mut harness = bench();
    let message = "This call was made before. Use that result.".into();
    let hooks = &mut harness.middleware.hooks;
    hooks.pre_tool_call.push(Hook::DetectRepeat { message });
    harness
}

fn with_error_hint() -> Harness {
    let mut harness = bench();
    let message = "Read the last line of the error and write another program.".into();
    let hooks = &mut harness.middleware.hooks;
    hooks.on_tool_error.push(Hook::ErrorHint { message });
    harness
}

fn with_shortening() -> Harness {
    let mut harness = bench();
    python(&mut harness).limits.output_chars = 100_000;
    let marker = "\n[cut]\n".into();
    let hooks = &mut harness.middleware.hooks;
    hooks.post_tool_call.push(Hook::TruncateOutput {
        max_chars: 400,
        marker,
    });
    harness
}
