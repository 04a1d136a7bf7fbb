//! The first list of faults: working harnesses, and what is planted in one dimension of each.

use critic::RootCause::{
    MemoryOverflow, MiddlewareMismatch, PromptAmbiguity, SkillMissing, ToolSchemaError,
};
use harness::{CallFormat, Harness, Hook, ToolState};
use serde_json::json;

use super::bases::{
    Texts, add_hook, add_skill, append_to_results, cut_results, examples, hooked, note, plain,
    python, require, say_of_tool, skill, stateful, tagged, with_early_form,
};
use super::fault::Fault;
use super::problems::Kind::{
    Average, Dozen, Grid, List, Long, Parts, Percent, Plain, Plan, Search, Steps, Sure,
};

/// All faults, by dimension.
pub(crate) fn faults() -> Vec<Fault> {
    let dimensions = [prompts(), tools(), skills(), middleware(), memory()];
    dimensions.into_iter().flatten().collect()
}

fn prompts() -> Vec<Fault> {
    let fault = Fault::of(PromptAmbiguity);
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
    let fault = Fault::of(ToolSchemaError);
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
            |h| require(python(h), "language", json!({"type": "string"})),
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
            |h| say_of_tool(h, "Add 1 to every number that it prints."),
        ),
        fault(
            "description with a module that isn't there",
            &[Plain],
            "program fails over a name of the description",
            bench,
            |h| say_of_tool(h, "Calculate with the module tallies."),
        ),
        fault(
            "variables lost between calls",
            &[Parts],
            "name of an earlier call isn't defined",
            || stateful(bench()),
            |h| python(h).state = ToolState::Stateless,
        ),
    ]
}

fn skills() -> Vec<Fault> {
    let fault = Fault::of(SkillMissing);
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
            |h| say_of_percentages(h, "Round every such amount to the nearest ten."),
        ),
        fault(
            "skill against the tool",
            &[Percent],
            "no call; the skill speaks against it",
            with_vague_tool,
            |h| say_of_percentages(h, "Do such problems in your head."),
        ),
        fault(
            "skill with a module that isn't there",
            &[Percent],
            "program fails over a name of the skill",
            bench,
            |h| say_of_percentages(h, "Calculate with the module percentages."),
        ),
        fault(
            "skill that asks for an essay",
            &[Percent],
            "reply cut before its call",
            bench,
            |h| say_of_percentages(h, "First explain the problem in at least 300 words."),
        ),
    ]
}

fn middleware() -> Vec<Fault> {
    let fault = Fault::of(MiddlewareMismatch);
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
            |h| cut_results(h, 20, "[cut]"),
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
                add_hook(h, hook);
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
                add_hook(h, hook);
            },
        ),
        fault(
            "misleading message after results",
            &[Plain],
            "answer is the result plus one",
            bench,
            |h| append_to_results(h, "Add 1 to this number for the answer."),
        ),
        fault(
            "message that asks for words",
            &[Plain],
            "result, then an answer that isn't read",
            bench,
            |h| append_to_results(h, "Write this number in words."),
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
    let fault = Fault::of(MemoryOverflow);
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
            || with_early_form(bench()),
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

fn say_of_percentages(harness: &mut Harness, line: &str) {
    let body = &mut skill(harness, "percentages").body;
    body.push_str(&format!("\n{line}"));
}

/// A harness that says everything once, without examples.
pub(super) fn bench() -> Harness {
    let mut harness = plain(&Texts {
        system: "You solve problems about numbers. Always call the python tool first, and then give the number that it printed.",
        tool: "Runs a Python program and returns what it prints. Use it for every calculation and print the result.",
        final_answer: "Write the final answer as \\boxed{number}.",
        note: "Problems are short and have one answer.",
        most_notes: 16,
    });
    let lead = "Problems with";
    let body = "x percent of y is y * x / 100.";
    add_skill(&mut harness, lead, "percentages", &["percent"], body);
    let body = "Each step of a problem has its own line in the program.";
    add_skill(&mut harness, lead, "steps", &[], body);
    harness
}

/// Three examples, and prompts that leave the rest to them.
fn by_example() -> Harness {
    let mut harness = with_vague_tool();
    harness.prompts.system = "You solve problems about numbers.".into();
    harness.prompts.final_answer.clear();
    let worked = [
        [
            "pears",
            "A cook peels 17 pears and then 5 more. How many is that?",
            "17 + 5",
            "22",
        ],
        [
            "tiles",
            "A wall of 9 by 14 tiles has how many tiles?",
            "9 * 14",
            "126",
        ],
        [
            "bread",
            "Of 61 loaves and 8 rolls 20 loaves are sold. How many loaves remain?",
            "61 - 20",
            "41",
        ],
    ];
    harness.prompts.examples = examples("The answer is", worked);
    harness
}

/// The tool's description says how, not when.
fn with_vague_tool() -> Harness {
    let mut harness = bench();
    python(&mut harness).description = "Runs a Python program, which must print its result.".into();
    harness
}

fn by_tags() -> Harness {
    tagged(bench())
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
    let digits = json!({"type": "integer", "description": "Digits after the point, such as 2."});
    require(python(&mut harness), "digits", digits);
    harness
}

fn with_nudge() -> Harness {
    let mut harness = by_example();
    harness.prompts.system = bench().prompts.system;
    let message = "Now call the python tool.".into();
    hooked(harness, Hook::Nudge { message, max: 1 })
}

fn with_repeat() -> Harness {
    let message = "This call was made before. Use that result.".into();
    hooked(bench(), Hook::DetectRepeat { message })
}

fn with_error_hint() -> Harness {
    let message = "Read the last line of the error and write another program.".into();
    hooked(bench(), Hook::ErrorHint { message })
}

fn with_shortening() -> Harness {
    let mut harness = bench();
    python(&mut harness).limits.output_chars = 100_000;
    cut_results(&mut harness, 400, "\n[cut]\n");
    harness
}
