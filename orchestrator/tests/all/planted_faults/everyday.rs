//! Faults such as people make on a working day: half a merge, something brought along from another
//! project, one of two places changed, a setting that another one depends on, a memory that nobody
//! clears.
//!
//! They were written without the critic's rules, their repairs or their texts at hand, and are of other
//! kinds than those of the other lists where there was another kind.

use critic::RootCause::{
    MemoryOverflow, MiddlewareMismatch, PromptAmbiguity, SkillMissing, ToolSchemaError,
};
use harness::{CallFormat, Harness, Hook, MemoryKind, ToolName};
use serde_json::json;

use super::bases::{
    Texts, add_skill, append_to_results, examples, hooked, note, plain, python, rename_tool,
    say_of_tool, skill, stateful, tagged, with_early_form, with_skill_code,
};
use super::fault::Fault;
use super::problems::Kind::{Parts, Percent, Plain, Steps};

/// All of them, by dimension.
pub(crate) fn faults() -> Vec<Fault> {
    let dimensions = [prompts(), tools(), skills(), middleware(), memory()];
    dimensions.into_iter().flatten().collect()
}

fn prompts() -> Vec<Fault> {
    let fault = Fault::of(PromptAmbiguity);
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
    let fault = Fault::of(ToolSchemaError);
    vec![
        fault(
            "tool renamed, prompt not",
            &[Plain],
            "call of the tool by its old name",
            with_name_in_prompt,
            |h| rename_tool(h, "interpreter"),
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
            |h| say_of_tool(h, "Escape line breaks as \\n."),
        ),
        fault(
            "tool to hand answers in",
            &[Plain],
            "answer goes into a call, to the turn limit",
            || with_early_form(with_tags()),
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
            || stateful(stall()),
            |h| say_of_tool(h, "It can be called once per conversation."),
        ),
    ]
}

fn skills() -> Vec<Fault> {
    let fault = Fault::of(SkillMissing);
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
    let fault = Fault::of(MiddlewareMismatch);
    vec![
        fault(
            "exit status below every result",
            &[Plain],
            "answer is the status",
            stall,
            |h| append_to_results(h, "Exit status:\n0"),
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
    let fault = Fault::of(MemoryOverflow);
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
    let mut harness = plain(&Texts {
        system: "You answer the questions of a stationer's customers. For each question write a small Python script, run the script, and give the figure that it shows.",
        tool: "Executes a Python script. Nothing but what it prints comes back, so print the figure.",
        final_answer: "Close with the figure in \\boxed{}.",
        note: "Customers are in a hurry.",
        most_notes: 16,
    });
    let body = "Of y pieces, x percent are y * x / 100.";
    teach(&mut harness, "percentages", &["percent"], body);
    let body = "Every step of a calculation stands on a line of its own.";
    teach(&mut harness, "steps", &[], body);
    harness
}

fn teach(harness: &mut Harness, name: &str, triggers: &[&str], body: &str) {
    let lead = "Questions that have to do with";
    add_skill(harness, lead, name, triggers, body);
}

fn with_tags() -> Harness {
    tagged(stall())
}

/// The prompt speaks of the tool by its name.
fn with_name_in_prompt() -> Harness {
    let mut harness = with_tags();
    harness.prompts.system = "You answer the questions of a stationer's customers. Call python with a short script for each question, and give the figure that it shows.".into();
    harness
}

fn with_examples() -> Harness {
    let mut harness = with_tags();
    let worked = [
        [
            "ink",
            "A shelf with 38 bottles of ink gets 14 more. What does it hold then?",
            "38 + 14",
            "52",
        ],
        [
            "paper",
            "A pallet of 7 cartons of 45 pads is unloaded. What is the number of pads?",
            "7 * 45",
            "315",
        ],
        [
            "chalk",
            "Of 73 sticks of chalk 26 are broken. What is the number of whole ones?",
            "73 - 26",
            "47",
        ],
    ];
    harness.prompts.examples = examples("The figure is", worked);
    harness
}

fn with_function() -> Harness {
    with_skill_code(
        stall(),
        "part_of(x, y) gives x percent of y; it is defined already.",
        "def part_of(x, y):\n    return y * x // 100\n",
    )
}

/// Two turns, of which the second is announced as the last.
fn with_last_message() -> Harness {
    let mut harness = stall();
    harness.middleware.protocol.max_turns = 2;
    let message = "This is the last message: close with the figure in \\boxed{}.".into();
    hooked(harness, Hook::ForceFinalAnswer { message })
}

/// What has to be known about percentages stands in a note.
fn with_lesson() -> Harness {
    let mut harness = stall();
    let lesson = harness.skills.remove("percentages").expect("the skill");
    note(&mut harness, &lesson.body);
    harness
}
