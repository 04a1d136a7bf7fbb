//! Faults that were written without the critic's rules or their texts at hand: half of them of kinds
//! that stand in [`super::planted`] and [`super::reworded`], in other words, places and forms, half of
//! them of other kinds.

use critic::RootCause::{
    MemoryOverflow, MiddlewareMismatch, PromptAmbiguity, SkillMissing, ToolSchemaError,
};
use harness::{Harness, Hook, Tool};
use serde_json::json;

use super::bases::{
    Texts, add_skill, append_to_results, examples, hooked, note, plain, python, rename_tool,
    require, skill, tagged, with_skill_code,
};
use super::fault::Fault;
use super::problems::Kind::{Average, Fence, Long, Percent, Plain, Steps};

/// All of them, by dimension.
pub(crate) fn faults() -> Vec<Fault> {
    let dimensions = [prompts(), tools(), skills(), middleware(), memory()];
    dimensions.into_iter().flatten().collect()
}

fn prompts() -> Vec<Fault> {
    let fault = Fault::of(PromptAmbiguity);
    vec![
        fault(
            "marks of another system in the task",
            &[Plain],
            "program between marks that nobody reads",
            counter,
            |h| {
                h.prompts.task =
                    "{{ problem }}\n\nThe code goes between [PYTHON] and [/PYTHON].".into();
            },
        ),
        fault(
            "sentence asked for in the box",
            &[Plain],
            "result, then a sentence that isn't read",
            counter,
            |h| h.prompts.final_answer = "Close with a full sentence inside \\boxed{}.".into(),
        ),
        fault(
            "examples in the manner of a notebook",
            &[Plain],
            "program prints nothing, as in the examples",
            by_examples,
            |h| {
                let sums = ["46 + 7", "8 * 25", "90 - 33"];
                for (example, sum) in h.prompts.examples.iter_mut().zip(sums) {
                    let code = format!("total = {sum}\ntotal");
                    example.steps[0].arguments.insert("code".into(), code);
                }
            },
        )
        .or(ToolSchemaError),
        fault(
            "question back asked for",
            &[Plain],
            "no call; asks instead of solving",
            counter,
            |h| {
                h.prompts.task =
                    "{{ problem }}\n\nIf any word can be read in two ways, ask a clarifying question first."
                        .into();
            },
        ),
    ]
}

fn tools() -> Vec<Fault> {
    let fault = Fault::of(ToolSchemaError);
    vec![
        fault(
            "meanings of two arguments exchanged",
            &[Plain],
            "a title is run",
            with_titles,
            |h| {
                let properties = &mut interpreter(h).parameters["properties"];
                properties["source"]["description"] = json!("A few words for the log.");
                properties["title"]["description"] = json!("The program.");
            },
        ),
        fault(
            "description against the schema",
            &[Plain],
            "arguments refused",
            with_closed_schema,
            |h| {
                interpreter(h).description =
                    "Runs Python source and hands back what was written to standard output. Each call also gives `seconds`, the time that it may take. In the end, print the value."
                        .into();
            },
        ),
        fault(
            "description for an older interpreter",
            &[Plain],
            "program that the interpreter can't read",
            counter,
            |h| {
                python(h).description =
                    "Runs Python 2 code and hands back what was written to standard output; print the value in the end."
                        .into();
            },
        ),
    ]
}

fn skills() -> Vec<Fault> {
    let fault = Fault::of(SkillMissing);
    vec![
        fault(
            "triggers of two skills exchanged",
            &[Percent],
            "wrong program, the other skill shown",
            with_dozens,
            |h| {
                skill(h, "percentages").triggers = vec!["dozen".into()];
                skill(h, "dozens").triggers = vec!["percent".into()];
            },
        ),
        fault(
            "special case shown for all",
            &[Fence],
            "wrong program, two skills that disagree",
            with_fences,
            |h| {
                let body = "The perimeter of a garden that has a gate, with the sides x and y, is 2 * (x + y) - 1.";
                teach(h, "gates", &["garden"], body);
            },
        ),
        fault(
            "function renamed in a skill's code",
            &[Percent],
            "program fails over a name of the skill",
            with_function,
            |h| {
                let python = &mut skill(h, "percentages").python;
                *python = python.replace("share_of", "percent_of");
            },
        ),
        fault(
            "skill that prints the steps last",
            &[Steps],
            "result, and below it the number that is taken",
            counter,
            |h| {
                let body = &mut skill(h, "sequence").body;
                body.push_str("\nPrint the result first and the value of each step below it.");
            },
        ),
    ]
}

fn middleware() -> Vec<Fault> {
    let fault = Fault::of(MiddlewareMismatch);
    vec![
        fault(
            "stop text that is a usual variable",
            &[Plain],
            "reply ends where its program begins",
            with_last_values,
            |h| h.middleware.protocol.stop = vec!["result".into()],
        ),
        fault(
            "22 tokens for calls between tags",
            &[Steps],
            "longer calls cut",
            with_interpreter,
            |h| h.middleware.protocol.max_tokens_per_turn = 22,
        ),
        fault(
            "no turn for an answer after an error",
            &[Average],
            "error, result, then the turn limit",
            with_second_try,
            |h| h.middleware.protocol.max_turns = 2,
        ),
        fault(
            "message after results: another unit",
            &[Plain],
            "answer is a hundredth of the result",
            counter,
            |h| append_to_results(h, "That number counts cents, so report whole euros."),
        ),
        fault(
            "empty result that reads as a success",
            &[Plain],
            "program prints nothing, and isn't told",
            with_word_on_nothing,
            |h| {
                let message = "The program has ended.".into();
                h.middleware.hooks.post_tool_call = vec![Hook::EmptyOutputHint { message }];
            },
        )
        .or(ToolSchemaError),
    ]
}

fn memory() -> Vec<Fault> {
    let fault = Fault::of(MemoryOverflow);
    vec![
        fault(
            "note on printing that is out of date",
            &[Plain],
            "program prints nothing; a note says it needn't",
            with_early_print,
            |h| {
                note(
                    h,
                    "Since the update the last value comes back by itself; print is no longer needed.",
                )
            },
        ),
        fault(
            "note on how readers write numbers",
            &[Long],
            "answer is the result with points in it",
            counter,
            |h| {
                note(
                    h,
                    "Our readers expect a point between thousands, as in 12.500.",
                )
            },
        ),
        fault(
            "lesson crowded out by a log",
            &[Percent],
            "wrong program, other notes shown",
            with_lesson,
            |h| {
                for day in ["Monday", "Tuesday", "Thursday", "Friday"] {
                    let text = format!("On {day} a guest asked what 20 percent of 50 is.");
                    note(h, &text);
                }
            },
        ),
        fault(
            "note on a package that is gone",
            &[Plain],
            "program fails over a name of a note",
            counter,
            |h| note(h, "Sums are done by the functions of the package ledger."),
        ),
    ]
}

/// Says everything once, without examples, and calls in fences.
fn counter() -> Harness {
    let mut harness = plain(&Texts {
        system: "Every message holds one sum in prose. Turn it into a Python program, run the program, and pass on the value.",
        tool: "Runs Python source and hands back what was written to standard output; print the value in the end.",
        final_answer: "Wrap the value in \\boxed{} to close.",
        note: "Names are made up.",
        most_notes: 20,
    });
    let body = "To take x percent of y, compute y * x / 100.";
    teach(&mut harness, "percentages", &["percent"], body);
    let body = "A sum with several steps gets one line of code for each of them.";
    teach(&mut harness, "sequence", &[], body);
    harness
}

fn teach(harness: &mut Harness, name: &str, triggers: &[&str], body: &str) {
    add_skill(harness, "For sums on", name, triggers, body);
}

/// Leaves tool, printing and the answer's form to examples.
fn by_examples() -> Harness {
    let mut harness = counter();
    harness.prompts.system = "Every message holds one sum in prose.".into();
    harness.prompts.final_answer.clear();
    python(&mut harness).description = "Runs Python source.".into();
    let worked = [
        [
            "ferry",
            "A ferry with 46 cars takes on 7 at the next pier. What does it carry then?",
            "46 + 7",
            "53",
        ],
        [
            "choir",
            "A choir stands in 8 lines of 25 singers. How large is it?",
            "8 * 25",
            "200",
        ],
        [
            "candles",
            "Of 90 candles the wind blows out 33. What is the number that still burn?",
            "90 - 33",
            "57",
        ],
    ];
    harness.prompts.examples = examples("That makes", worked);
    harness
}

/// The tool has another name, and calls stand between tags.
fn with_interpreter() -> Harness {
    let mut harness = tagged(counter());
    python(&mut harness).parameters = json!({
        "type": "object",
        "properties": {"source": {"type": "string", "description": "The program."}},
        "required": ["source"],
    });
    rename_tool(&mut harness, "interpreter");
    harness
}

fn interpreter(harness: &mut Harness) -> &mut Tool {
    harness.tools.get_mut("interpreter").expect("the tool")
}

fn with_titles() -> Harness {
    let mut harness = with_interpreter();
    let title = json!({"type": "string", "description": "A few words for the log."});
    require(interpreter(&mut harness), "title", title);
    harness
}

fn with_closed_schema() -> Harness {
    let mut harness = with_interpreter();
    interpreter(&mut harness).parameters["additionalProperties"] = json!(false);
    harness
}

fn with_dozens() -> Harness {
    let mut harness = counter();
    teach(&mut harness, "dozens", &["dozen"], "One dozen counts 12.");
    harness
}

fn with_fences() -> Harness {
    let mut harness = counter();
    let body = "The perimeter of a plot with the sides x and y is 2 * (x + y).";
    teach(&mut harness, "fences", &["fence"], body);
    harness
}

fn with_function() -> Harness {
    with_skill_code(
        counter(),
        "share_of(x, y) is x percent of y; it is there already.",
        "def share_of(x, y):\n    return x * y // 100\n",
    )
}

/// A hook prints what stands on a program's last line.
fn with_last_values() -> Harness {
    let mut harness = counter();
    python(&mut harness).description =
        "Runs Python source and hands back the value of the line it ends with.".into();
    hooked(harness, Hook::AutoPrintLastExpression {})
}

/// An error comes with what to do about it.
fn with_second_try() -> Harness {
    let message = "The traceback ends with what went wrong; do it another way.".into();
    hooked(counter(), Hook::ErrorHint { message })
}

/// That a program has to print is told once one hasn't.
fn with_word_on_nothing() -> Harness {
    let mut harness = counter();
    python(&mut harness).description = "Runs Python source.".into();
    let message = "No output: run the program again, with print(value) as its end.".into();
    hooked(harness, Hook::EmptyOutputHint { message })
}

/// That a program has to print is told before the notes.
fn with_early_print() -> Harness {
    let mut harness = counter();
    harness.prompts.system = "Every message holds one sum in prose. Turn it into a Python program, run the program, print the value and pass it on.".into();
    python(&mut harness).description = "Runs Python source.".into();
    harness
}

/// What has to be known about percentages stands in a note, of which the two that fit best are shown.
fn with_lesson() -> Harness {
    let mut harness = counter();
    harness.skills.remove("percentages");
    harness.memory.shown = 2;
    note(&mut harness, "To take x percent of y, compute y * x / 100.");
    note(&mut harness, "Texts are short.");
    harness
}
