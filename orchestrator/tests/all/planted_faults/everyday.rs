//! Faults such as people make on a working day: half a merge, something brought along from another
//! project, one of two places changed, a setting that another one depends on, a memory that nobody
//! clears.
//!
//! They were written without the critic's rules, their repairs or their texts at hand, and are of other
//! kinds than those of the other lists where there was another kind.

use critic::RootCause::{
    MemoryOverflow, MiddlewareMismatch, PromptAmbiguity, SkillMissing, ToolSchemaError,
};
use harness::{CallFormat, Example, ExampleStep, Harness, Hook, MemoryKind, ToolName, ToolState};
use serde_json::json;

use super::planted::{Fault, add_skill, note, python, skill};
use super::problems::Kind::{Parts, Percent, Plain, Steps};

/// All of them, by dimension.
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
            "worked example left in the task",
            &[Plain],
            "program with the numbers of another problem",
            stall,
            |h| {
                h.prompts.task =
                    "For example, 12 crates of 8 pens hold 96 pens.\n\n{{ problem }}".into();
            },
        ),
        fault(
            "both sides of a merge",
            &[Plain],
            "no call; the prompt's other half is against it",
            stall,
            |h| {
                let system = &h.prompts.system;
                let other = "Work each question out mentally and give the figure at once.";
                h.prompts.system =
                    format!("<<<<<<< HEAD\n{system}\n=======\n{other}\n>>>>>>> help-desk");
            },
        ),
        fault(
            "task of a tutor",
            &[Plain],
            "result, then a hint in the place of an answer",
            stall,
            |h| {
                h.prompts.task =
                    "{{ problem }}\n\nLead the pupil to the solution by a hint, and never give it away."
                        .into();
            },
        ),
        fault(
            "examples with an argument's old name",
            &[Plain],
            "arguments refused, named as in the examples",
            with_examples,
            |h| {
                let examples = h.prompts.examples.iter_mut();
                for step in examples.flat_map(|example| &mut example.steps) {
                    let program = step.arguments.remove("code").expect("the program");
                    step.arguments.insert("script".into(), program);
                }
            },
        )
        .or(ToolSchemaError),
        fault(
            "exact and rounded figure asked for",
            &[Plain],
            "result, then two answers of which none counts",
            stall,
            |h| {
                h.prompts.final_answer =
                    "Close with the exact and the rounded figure, each in \\boxed{}.".into();
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
            "tool renamed, prompt not",
            &[Plain],
            "call of the tool by its old name",
            with_name_in_prompt,
            |h| {
                let tool = h.tools.remove("python").expect("the tool");
                let name = ToolName::new("interpreter").expect("a name");
                h.tools.insert(name, tool);
            },
        )
        .or(PromptAmbiguity),
        fault(
            "description of a notebook",
            &[Plain],
            "program fails over a function of notebooks",
            stall,
            |h| {
                python(h).description =
                    "Executes a Python script in a notebook; display(value) shows a value.".into();
            },
        ),
        fault(
            "line breaks to be escaped",
            &[Steps],
            "programs of two lines can't be read",
            stall,
            |h| {
                let text = &mut python(h).description;
                text.push_str(" Escape line breaks as \\n.");
            },
        ),
        fault(
            "tool to hand answers in",
            &[Plain],
            "answer goes into a call, to the turn limit",
            with_early_form,
            |h| {
                let mut tool = python(h).clone();
                tool.description = "Hands in the final figure.".into();
                tool.parameters = json!({
                    "type": "object",
                    "properties": {"figure": {"type": "string", "description": "The figure."}},
                    "required": ["figure"],
                });
                let name = ToolName::new("submit").expect("a name");
                h.tools.insert(name, tool);
            },
        ),
        fault(
            "one call per conversation",
            &[Parts],
            "answer is the first part's result",
            with_state,
            |h| {
                let text = &mut python(h).description;
                text.push_str(" It can be called once per conversation.");
            },
        ),
    ]
}

fn skills() -> Vec<Fault> {
    let fault = |name, kinds, shows, working, plant| {
        Fault::new(SkillMissing, name, kinds, shows, working, plant)
    };
    vec![
        fault(
            "two skills define one function",
            &[Percent],
            "wrong result of the later skill's function",
            with_function,
            |h| {
                let body = "The ratio of the amounts x and y is part_of(x, y).";
                teach(h, "shares", &[], body);
                skill(h, "shares").python = "def part_of(x, y):\n    return x // y\n".into();
            },
        ),
        fault(
            "skill left as a stub",
            &[Percent],
            "wrong program, a skill that says nothing",
            stall,
            |h| skill(h, "percentages").body = "TODO: write down how percentages go.".into(),
        ),
        fault(
            "script to be a function",
            &[Plain],
            "function that nobody calls prints nothing",
            stall,
            |h| {
                let body = &mut skill(h, "steps").body;
                body.push_str("\nWrite the script as a function solve() that returns the figure.");
            },
        ),
        fault(
            "skill's function for a dashboard",
            &[Percent],
            "result in thousands, digits lost",
            with_function,
            |h| {
                skill(h, "percentages").python =
                    "def part_of(x, y):\n    return f'{y * x / 100_000:.1f}k'\n".into();
            },
        ),
        fault(
            "skill on style against one on steps",
            &[Steps],
            "program with half of the numbers, on one line",
            stall,
            |h| teach(h, "style", &[], "A script has one line and no more."),
        ),
    ]
}

fn middleware() -> Vec<Fault> {
    let fault = |name, kinds, shows, working, plant| {
        Fault::new(MiddlewareMismatch, name, kinds, shows, working, plant)
    };
    vec![
        fault(
            "exit status below every result",
            &[Plain],
            "answer is the status",
            stall,
            |h| {
                let message = "Exit status:\n0".into();
                let hook = Hook::AppendMessage { message };
                h.middleware.hooks.post_tool_call.push(hook);
            },
        ),
        fault(
            "replies longer, context not",
            &[Plain],
            "result, then no room for a reply",
            stall,
            |h| h.middleware.protocol.max_tokens_per_turn = 2000,
        ),
        fault(
            "stop text of a two-stage prompt",
            &[Plain],
            "result, then an empty reply",
            stall,
            |h| h.middleware.protocol.stop = vec!["The answer is".into()],
        ),
        fault(
            "calls by an interface that isn't there",
            &[Plain],
            "call that can't be read",
            stall,
            |h| h.middleware.protocol.call_format = CallFormat::Native,
        ),
        fault(
            "last message of a classifier",
            &[Plain],
            "result, then yes or no",
            with_last_message,
            |h| {
                let message = "This is the last message: yes or no?".into();
                h.middleware.hooks.pre_model_call = vec![Hook::ForceFinalAnswer { message }];
            },
        ),
    ]
}

fn memory() -> Vec<Fault> {
    let fault = |name, kinds, shows, working, plant| {
        Fault::new(MemoryOverflow, name, kinds, shows, working, plant)
    };
    vec![
        fault(
            "running total never reset",
            &[Plain],
            "answer is the result and a note's number",
            stall,
            |h| {
                note(
                    h,
                    "Add each result to the running total, which stands at 812.",
                )
            },
        ),
        fault(
            "note on an outage that is over",
            &[Plain],
            "no call; a note says that the tool is down",
            stall,
            |h| note(h, "The Python tool has been down since Tuesday."),
        ),
        fault(
            "memory switched off",
            &[Percent],
            "wrong program, the note on it isn't shown",
            with_lesson,
            |h| {
                h.memory.kind = MemoryKind::None;
                h.memory.entries.clear();
            },
        )
        .or(SkillMissing),
        fault(
            "note on other readers' numerals",
            &[Plain],
            "answer is the result in hexadecimal",
            stall,
            |h| note(h, "The firmware team reads hexadecimal numbers only."),
        ),
        fault(
            "note on an order that was open",
            &[Plain],
            "no call; asks instead of solving",
            stall,
            |h| note(h, "Before anything else, ask for the order number."),
        ),
    ]
}

/// Says everything once, without examples, and calls in fences.
fn stall() -> Harness {
    let mut harness = harness::naive().expect("the shipped harness");
    harness.prompts.system = "You answer the questions of a stationer's customers. For each question write a small Python script, run the script, and give the figure that it shows.".into();
    harness.prompts.final_answer = "Close with the figure in \\boxed{}.".into();
    python(&mut harness).description =
        "Executes a Python script. Nothing but what it prints comes back, so print the figure."
            .into();
    let body = "Of y pieces, x percent are y * x / 100.";
    teach(&mut harness, "percentages", &["percent"], body);
    let body = "Every step of a calculation stands on a line of its own.";
    teach(&mut harness, "steps", &[], body);
    harness.memory.kind = MemoryKind::Notes;
    harness.memory.capacity = 16;
    note(&mut harness, "Customers are in a hurry.");
    harness.middleware.protocol.call_format = CallFormat::Fenced;
    harness.middleware.runtime.parallel_rollouts = 16;
    harness
}

fn teach(harness: &mut Harness, name: &str, triggers: &[&str], body: &str) {
    let description = format!("Questions that have to do with {name}.");
    add_skill(harness, name, &description, triggers, body);
}

/// Calls between tags; a missing brace is forgiven.
fn with_tags() -> Harness {
    let mut harness = stall();
    harness.middleware.protocol.call_format = CallFormat::Xml;
    harness.middleware.hooks.post_model_call = vec![Hook::RepairJson {}];
    harness
}

/// The prompt speaks of the tool by its name.
fn with_name_in_prompt() -> Harness {
    let mut harness = with_tags();
    harness.prompts.system = "You answer the questions of a stationer's customers. Call python with a short script for each question, and give the figure that it shows.".into();
    harness
}

/// The form of the answer is told before the tools.
fn with_early_form() -> Harness {
    let mut harness = with_tags();
    let form = std::mem::take(&mut harness.prompts.final_answer);
    harness.prompts.system.push_str(&format!(" {form}"));
    harness
}

fn with_examples() -> Harness {
    let mut harness = with_tags();
    let example = |title: &str, problem: &str, sum: &str, result: &str| Example {
        title: title.into(),
        problem: problem.into(),
        steps: vec![ExampleStep {
            say: String::new(),
            tool: ToolName::new("python").expect("a name"),
            arguments: [("code".to_owned(), format!("print({sum})"))].into(),
            result: result.into(),
        }],
        answer: format!("The figure is \\boxed{{{result}}}."),
    };
    harness.prompts.examples = vec![
        example(
            "ink",
            "A shelf with 38 bottles of ink gets 14 more. What does it hold then?",
            "38 + 14",
            "52",
        ),
        example(
            "paper",
            "A pallet of 7 cartons of 45 pads is unloaded. What is the number of pads?",
            "7 * 45",
            "315",
        ),
        example(
            "chalk",
            "Of 73 sticks of chalk 26 are broken. What is the number of whole ones?",
            "73 - 26",
            "47",
        ),
    ];
    harness
}

fn with_state() -> Harness {
    let mut harness = stall();
    python(&mut harness).state = ToolState::Stateful;
    harness
}

/// Percentages by a function that a skill brings along.
fn with_function() -> Harness {
    let mut harness = stall();
    let skill = skill(&mut harness, "percentages");
    skill.body = "part_of(x, y) gives x percent of y; it is defined already.".into();
    skill.python = "def part_of(x, y):\n    return y * x // 100\n".into();
    harness
}

/// Two turns, of which the second is announced as the last.
fn with_last_message() -> Harness {
    let mut harness = stall();
    harness.middleware.protocol.max_turns = 2;
    let message = "This is the last message: close with the figure in \\boxed{}.".into();
    harness.middleware.hooks.pre_model_call = vec![Hook::ForceFinalAnswer { message }];
    harness
}

/// What has to be known about percentages stands in a note.
fn with_lesson() -> Harness {
    let mut harness = stall();
    let lesson = harness.skills.remove("percentages").expect("the skill");
    note(&mut harness, &lesson.body);
    harness
}
