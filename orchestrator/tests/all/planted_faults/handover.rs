//! Faults such as arise where a harness is handed on, from one team, model, language or product to
//! another: half a translation, units and customs of elsewhere, a schema that was tightened, a library
//! that stayed behind, hooks in another order, limits of a larger model, memories of other work.
//!
//! They were written without the critic's rules, their repairs or their texts at hand, and are of other
//! kinds than those of the other lists where there was another kind.

use critic::RootCause::{
    MemoryOverflow, MiddlewareMismatch, PromptAmbiguity, SkillMissing, ToolSchemaError,
};
use harness::{Harness, Hook, Tool, ToolName, ToolState};
use serde_json::json;

use super::bases::{
    Texts, add_hook, add_skill, append_to_results, examples, hooked, note, plain, python,
    rename_tool, require, say_of_tool, skill, stateful, tagged, with_skill_code,
};
use super::fault::Fault;
use super::problems::Kind::{Average, Fence, List, Parts, Percent, Plain, Steps};

/// All of them, by dimension.
pub(crate) fn faults() -> Vec<Fault> {
    let dimensions = [prompts(), tools(), skills(), middleware(), memory()];
    dimensions.into_iter().flatten().collect()
}

fn prompts() -> Vec<Fault> {
    let fault = Fault::of(PromptAmbiguity);
    vec![
        fault(
            "prompt of a planner for an executor",
            &[Plain],
            "no call; programs are said to be another's",
            depot,
            |h| {
                h.prompts.system = "You are the planner of a team of two. You state the plan for each question; the executor writes and runs the programs."
                    .into();
            },
        ),
        fault(
            "prompt translated half",
            &[Plain],
            "result, then no answer; its form got lost",
            depot,
            |h| h.prompts.final_answer = "Zum Schluss steht der Wert in einem Kasten.".into(),
        ),
        fault(
            "case number above the problem",
            &[Plain],
            "program with the numbers of the case",
            depot,
            |h| h.prompts.task = "Case 2024-117, desk 3.\n\n{{ problem }}".into(),
        ),
        fault(
            "answer in another depot's unit",
            &[Plain],
            "answer is a hundredth of the result",
            depot,
            |h| {
                h.prompts.final_answer =
                    "Give the amount in hundreds of pieces in \\boxed{}.".into();
            },
        ),
        fault(
            "final answer of a claim checker",
            &[Plain],
            "result, then yes or no",
            depot,
            |h| {
                h.prompts.final_answer =
                    "Say in \\boxed{} whether the claim holds: yes or no.".into();
            },
        ),
        fault(
            "examples of a ledger",
            &[Plain],
            "result, then no answer, as in the examples",
            with_examples,
            |h| {
                for example in &mut h.prompts.examples {
                    example.answer = "The ledger shows it now.".into();
                }
            },
        ),
    ]
}

fn tools() -> Vec<Fault> {
    let fault = Fault::of(ToolSchemaError);
    vec![
        fault(
            "second Python tool beside the first",
            &[Plain],
            "fence for Python, which now calls neither",
            with_interpreter,
            |h| {
                twin(h, "interpreter", "plotter").description =
                    "Draws charts by Python code.".into()
            },
        )
        .or(MiddlewareMismatch),
        fault(
            "output limit of a larger model",
            &[List],
            "output fills the context",
            depot,
            |h| python(h).limits.output_chars = 200_000,
        )
        .or(MiddlewareMismatch),
        fault(
            "schema that asks for modules",
            &[Plain],
            "arguments refused",
            with_tags,
            |h| {
                let modules = json!({"type": "array", "description": "Modules to load first."});
                require(python(h), "imports", modules);
            },
        ),
        fault(
            "schema closed, prompt not changed",
            &[Plain],
            "arguments refused, one too many",
            with_tickets,
            |h| python(h).parameters["additionalProperties"] = json!(false),
        )
        .or(PromptAmbiguity),
        fault(
            "description of a cloud function",
            &[Plain],
            "function that nobody calls prints nothing",
            depot,
            |h| {
                python(h).description =
                    "Runs Python as a cloud function does: define a function handler() that returns the value."
                        .into();
            },
        ),
        fault(
            "description of a cash desk's tool",
            &[Plain],
            "answer is a hundredth of the result",
            depot,
            |h| {
                say_of_tool(
                    h,
                    "Every amount that it prints is in cents, to be told in euros.",
                )
            },
        ),
        fault(
            "tool without a memory, listed first",
            &[Parts],
            "name of an earlier call isn't defined",
            || stateful(with_tags()),
            |h| twin(h, "python", "interpreter").state = ToolState::Stateless,
        ),
    ]
}

fn skills() -> Vec<Fault> {
    let fault = Fault::of(SkillMissing);
    vec![
        fault(
            "skill's code sends prints to a log",
            &[Plain],
            "program prints, and nothing comes back",
            depot,
            |h| {
                skill(h, "steps").python =
                    "import logging\n\n\ndef print(*values):\n    logging.getLogger('depot').info(*values)\n"
                        .into();
            },
        ),
        fault(
            "skill's function called otherwise",
            &[Average],
            "program fails inside the skill's function",
            with_means,
            |h| {
                skill(h, "averages").python =
                    "def mean(*values):\n    return sum(values) // len(values)\n".into();
            },
        ),
        fault(
            "skill for a library left behind",
            &[Percent],
            "program fails over a name of the skill",
            depot,
            |h| {
                skill(h, "percentages").body =
                    "For x percent of y, call share_of(x, y) from the pricing library.".into();
            },
        ),
        fault(
            "skill for cells of a notebook",
            &[Plain],
            "program prints nothing; a skill says so",
            with_early_print,
            |h| {
                let body = &mut skill(h, "steps").body;
                body.push_str(
                    "\nThe last value of a cell is shown by itself, so print is not needed.",
                );
            },
        ),
        fault(
            "triggers lost on the way",
            &[Plain],
            "answer is a hundredth; a skill on other sales",
            with_wholesale,
            |h| skill(h, "wholesale").triggers.clear(),
        ),
        fault(
            "skill that reckons in feet",
            &[Fence],
            "wrong program, skill shown",
            with_fences,
            |h| {
                skill(h, "fences").body =
                    "The perimeter in feet of a rectangle with the sides x and y in metres is 2 * (x + y) * 3."
                        .into();
            },
        ),
        fault(
            "skill's code for an older interpreter",
            &[Percent],
            "every program fails where the skill is on",
            with_function,
            |h| {
                skill(h, "percentages").python =
                    "def part_of(x, y):\n    print 'part_of', x, y\n    return x * y // 100\n"
                        .into();
            },
        ),
    ]
}

fn middleware() -> Vec<Fault> {
    let fault = Fault::of(MiddlewareMismatch);
    vec![
        fault(
            "two hooks in another order",
            &[Plain],
            "program prints nothing; the advice is replaced",
            with_two_messages,
            |h| h.middleware.hooks.post_tool_call.reverse(),
        )
        .or(ToolSchemaError),
        fault(
            "status line that reads as an error",
            &[Plain],
            "result, and the same call again to the end",
            depot,
            |h| append_to_results(h, "status 0, [error] none"),
        ),
        fault(
            "hint on errors in another language",
            &[Average],
            "error, then a fence of another language",
            with_error_hint,
            |h| {
                let message = "On a failure, send it again in JavaScript.".into();
                h.middleware.hooks.on_tool_error = vec![Hook::ErrorHint { message }];
            },
        ),
        fault(
            "plan asked for with a brewery's plan",
            &[Plain],
            "program with the numbers of a hook's message",
            with_plan,
            |h| {
                let message = "Write a plan in two lines, such as: Multiply 24 crates by 12 bottles, then take 30 broken ones away."
                    .into();
                let next = NEXT.into();
                h.middleware.hooks.on_start = vec![Hook::Plan { message, next }];
            },
        ),
        fault(
            "loop no longer takes the last line",
            &[Plain],
            "result, then no answer",
            with_last_line,
            |h| h.middleware.hooks.on_finish.clear(),
        )
        .or(PromptAmbiguity),
        fault(
            "check of a mail product's replies",
            &[Plain],
            "right answer taken back",
            depot,
            |h| {
                let hook = Hook::Verify {
                    prompt: "Say WRONG if the reply doesn't greet the customer by name, and RIGHT if it does."
                        .into(),
                    sceptics: 1,
                    message: "Our editor found a mistake in this reply.".into(),
                    max: 1,
                };
                add_hook(h, hook);
            },
        ),
    ]
}

fn memory() -> Vec<Fault> {
    let fault = Fault::of(MemoryOverflow);
    vec![
        fault(
            "note on the head office's reports",
            &[Plain],
            "answer is the result, rounded",
            depot,
            |h| note(h, "The head office wants two significant digits."),
        ),
        fault(
            "note on the last team's language",
            &[Plain],
            "no call; a fence of another language",
            with_plain_tool,
            |h| note(h, "Programs of this team are written in JavaScript."),
        ),
        fault(
            "note with the marks of another loop",
            &[Plain],
            "program between marks that nobody reads",
            with_tags,
            |h| note(h, "Since May code goes between <run> and </run>."),
        ),
        fault(
            "note on the old host's contract",
            &[Parts],
            "answer is the first part's result",
            || stateful(depot()),
            |h| {
                note(
                    h,
                    "The contract with our host covers one call per question.",
                )
            },
        ),
        fault(
            "asterisks lost in an export of notes",
            &[Fence],
            "program fails over a note's formula",
            with_lesson,
            |h| {
                for entry in &mut h.memory.entries {
                    *entry = entry.replace("* ", "");
                }
            },
        ),
        fault(
            "note on the old gateway",
            &[Steps],
            "programs of two lines can't be read",
            depot,
            |h| note(h, "The gateway wants every newline in code escaped."),
        ),
    ]
}

/// Says everything once, without examples, and calls in fences.
fn depot() -> Harness {
    let mut harness = plain(&Texts {
        system: "You reckon for the clerks of a depot. Put each question into a short Python program, run the program, and report what it prints.",
        tool: "Runs Python on the depot's machine and shows standard output only; print the value at the end of a program.",
        final_answer: "Give the value in \\boxed{} when you are done.",
        note: "Questions come in by telephone.",
        most_notes: 10,
    });
    let body = "x percent of y pieces are x * y / 100.";
    teach(&mut harness, "percentages", &["percent"], body);
    let body = "A question with several steps gets a line of the program for every step.";
    teach(&mut harness, "steps", &[], body);
    harness
}

fn teach(harness: &mut Harness, name: &str, triggers: &[&str], body: &str) {
    add_skill(harness, "What clerks know of", name, triggers, body);
}

/// A copy of a tool under another name.
fn twin<'a>(harness: &'a mut Harness, of: &str, name: &str) -> &'a mut Tool {
    let tool = harness.tools[of].clone();
    let name = ToolName::new(name).expect("a name");
    harness.tools.entry(name).or_insert(tool)
}

fn with_tags() -> Harness {
    tagged(depot())
}

/// Leaves the answer's form to examples.
fn with_examples() -> Harness {
    let mut harness = depot();
    harness.prompts.final_answer.clear();
    let worked = [
        [
            "barrels",
            "A cellar with 58 barrels takes in 6 more. What does it hold then?",
            "58 + 6",
            "64",
        ],
        [
            "sacks",
            "A cart is loaded with 15 layers of 18 sacks. What is its load in sacks?",
            "15 * 18",
            "270",
        ],
        [
            "ropes",
            "Of 82 ropes 27 are torn. What is the number of whole ones?",
            "82 - 27",
            "55",
        ],
    ];
    harness.prompts.examples = examples("The value is", worked);
    harness
}

/// The tool has another name, and a fence for Python calls it since it is the only one.
fn with_interpreter() -> Harness {
    let mut harness = depot();
    rename_tool(&mut harness, "interpreter");
    harness
}

/// The prompt asks for an argument that the schema lets pass.
fn with_tickets() -> Harness {
    let mut harness = with_tags();
    let system = &mut harness.prompts.system;
    system.push_str(" Each call also gives `ticket`, the number of the question.");
    harness
}

fn with_means() -> Harness {
    let mut harness = depot();
    let body = "The mean of several numbers is mean([a, b, c]), which is loaded.";
    teach(&mut harness, "averages", &["average"], body);
    skill(&mut harness, "averages").python =
        "def mean(values):\n    return sum(values) // len(values)\n".into();
    harness
}

/// That a program has to print is told before the skills.
fn with_early_print() -> Harness {
    let mut harness = depot();
    harness.prompts.system = "You reckon for the clerks of a depot. Put each question into a short Python program, run the program, print the value and report it.".into();
    python(&mut harness).description = "Runs Python on the depot's machine.".into();
    harness
}

/// A skill for sales of another kind.
fn with_wholesale() -> Harness {
    let mut harness = depot();
    let body = "A wholesale amount is given in hundreds of pieces.";
    teach(&mut harness, "wholesale", &["wholesale"], body);
    harness
}

const PERIMETER: &str = "The perimeter of a rectangle with the sides x and y is 2 * (x + y).";

fn with_fences() -> Harness {
    let mut harness = depot();
    teach(&mut harness, "fences", &["fence"], PERIMETER);
    harness
}

fn with_function() -> Harness {
    with_skill_code(
        depot(),
        "part_of(x, y) is x percent of y; it is loaded.",
        "def part_of(x, y):\n    return x * y // 100\n",
    )
}

/// One hook says that nothing was printed, and the next what to do about it.
fn with_two_messages() -> Harness {
    let mut harness = depot();
    python(&mut harness).description = "Runs Python on the depot's machine.".into();
    let message = "The program printed nothing.".into();
    add_hook(&mut harness, Hook::EmptyOutputHint { message });
    append_to_results(&mut harness, "Every program has to print its value.");
    harness
}

fn with_error_hint() -> Harness {
    let message = "A traceback asks for a program that goes about it differently.".into();
    hooked(depot(), Hook::ErrorHint { message })
}

const NEXT: &str = "Now run a short program.";

fn with_plan() -> Harness {
    let message = "Write a plan in two lines.".into();
    let next = NEXT.into();
    hooked(depot(), Hook::Plan { message, next })
}

/// The answer is what was printed last, so that none is asked for.
fn with_last_line() -> Harness {
    let mut harness = hooked(depot(), Hook::AnswerFromLastResult {});
    harness.prompts.final_answer.clear();
    harness
}

/// Python is spoken of before the notes alone.
fn with_plain_tool() -> Harness {
    let mut harness = depot();
    python(&mut harness).description =
        "Runs the program and shows standard output only; print the value at its end.".into();
    harness
}

/// What has to be known about fences stands in a note.
fn with_lesson() -> Harness {
    let mut harness = depot();
    note(&mut harness, PERIMETER);
    harness
}
