//! More faults: other harnesses, other texts, and other ways to go wrong.
//!
//! They were written from the description of the harness document, without the critic's rules or
//! their texts at hand, and no sentence is one of [`super::planted`].

use critic::RootCause::{
    MemoryOverflow, MiddlewareMismatch, PromptAmbiguity, SkillMissing, ToolSchemaError,
};
use harness::{CallFormat, Eviction, Harness, Hook};
use serde_json::json;

use super::bases::{
    Texts, add_skill, append_to_results, cut_results, examples, hooked, note, plain, python,
    require, skill, stateful, tagged, with_skill_code,
};
use super::fault::Fault;
use super::problems::Kind::{
    Average, Dozen, Fence, Long, Parts, Percent, Plain, Plan, Search, Steps, Sure,
};

/// All of them, by dimension.
pub(crate) fn faults() -> Vec<Fault> {
    let dimensions = [prompts(), tools(), skills(), middleware(), memory()];
    dimensions.into_iter().flatten().collect()
}

fn prompts() -> Vec<Fault> {
    let fault = Fault::of(PromptAmbiguity);
    vec![
        fault(
            "task against the system prompt",
            &[Plain],
            "no call; the task asks for work by hand",
            desk,
            |h| {
                h.prompts.task =
                    "{{ problem }}\n\nWork this one out by hand; code is not wanted.".into();
            },
        ),
        fault(
            "nothing but a number asked for",
            &[Plain],
            "no call; a bare number at once",
            desk,
            |h| h.prompts.task = "{{ problem }}\n\nReply with the number only.".into(),
        ),
        fault(
            "prompt of a multiple-choice set",
            &[Plain],
            "result, then a letter",
            desk,
            |h| {
                h.prompts.final_answer =
                    "Finish with the letter of the right option inside \\boxed{}.".into();
            },
        ),
        fault(
            "answer with its confidence",
            &[Plain],
            "result, then JSON of which the wrong number is read",
            desk,
            |h| {
                h.prompts.final_answer =
                    "Finish with one line of JSON that has the keys answer and confidence, the latter in percent."
                        .into();
            },
        ),
        fault(
            "two significant figures",
            &[Plain],
            "answer is the result, rounded",
            desk,
            |h| {
                h.prompts.final_answer =
                    "State the outcome inside \\boxed{}, to two significant figures.".into();
            },
        ),
        fault(
            "examples from a ReAct agent",
            &[Plain],
            "call in another notation, result made up",
            with_examples,
            |h| {
                let calls = [("23 + 9", 32), ("6 * 31", 186), ("84 - 35", 49)];
                for (example, (sum, result)) in h.prompts.examples.iter_mut().zip(calls) {
                    example.steps.clear();
                    example.answer = format!(
                        "Action: python\nAction Input: print({sum})\nObservation: {result}\nThe outcome is \\boxed{{{result}}}."
                    );
                }
            },
        ),
        fault(
            "program in another language asked for",
            &[Plain],
            "call in a fence of another language",
            desk,
            |h| {
                h.prompts.task = "{{ problem }}\n\nSolve it with a few lines of JavaScript.".into();
            },
        ),
        fault(
            "discussion before the call",
            &[Plain],
            "reply cut before its call",
            desk,
            |h| {
                h.prompts
                    .system
                    .push_str(" Before any code, discuss the question in several paragraphs.");
            },
        ),
    ]
}

fn tools() -> Vec<Fault> {
    let fault = Fault::of(ToolSchemaError);
    vec![
        fault(
            "description with another argument",
            &[Plain],
            "arguments refused",
            with_tags,
            |h| {
                python(h).description =
                    "Executes Python code, which goes into the argument `script`; only printed text comes back, so print the outcome."
                        .into();
            },
        ),
        fault(
            "a text required before the program",
            &[Plain],
            "the wrong argument is run",
            with_tags,
            |h| {
                python(h).parameters["properties"]["purpose"] =
                    json!({"type": "string", "description": "What this is for, in a few words."});
                python(h).parameters["required"] = json!(["purpose", "code"]);
            },
        ),
        fault(
            "number declared as a text",
            &[Plain],
            "arguments refused",
            with_seconds,
            |h| python(h).parameters["properties"]["seconds"]["type"] = json!("string"),
        ),
        fault(
            "program described as an expression",
            &[Plain],
            "program prints nothing",
            desk,
            |h| {
                python(h).description =
                    "A calculator that understands Python: hand it an expression and its value comes back."
                        .into();
            },
        ),
        fault(
            "program described as JavaScript",
            &[Plain],
            "program fails over names of another language",
            with_tags,
            |h| {
                python(h).description =
                    "Executes JavaScript; only what console.log writes comes back.".into();
            },
        ),
        fault(
            "seconds taken for milliseconds",
            &[Search],
            "program out of time",
            desk,
            |h| python(h).limits.timeout_ms = 5,
        ),
        fault(
            "description for another purpose",
            &[Plain],
            "no call; the tool's description speaks against it",
            desk,
            |h| {
                python(h).description =
                    "Executes Python code that draws charts; print the outcome. The tool is not meant for arithmetic."
                        .into();
            },
        ),
    ]
}

fn skills() -> Vec<Fault> {
    let fault = Fault::of(SkillMissing);
    vec![
        fault(
            "triggers in other languages",
            &[Percent],
            "wrong program, skill not shown",
            desk,
            |h| skill(h, "percentages").triggers = vec!["Prozent".into(), "pour cent".into()],
        ),
        fault(
            "trigger that nobody writes",
            &[Steps],
            "program with half of the numbers, skill not shown",
            desk,
            |h| skill(h, "several-steps").triggers = vec!["multi-step".into()],
        ),
        fault(
            "formula upside down",
            &[Percent],
            "wrong program, skill shown",
            desk,
            |h| {
                skill(h, "percentages").body =
                    "For x percent of y the program computes y // x.".into()
            },
        ),
        fault(
            "wrong fact in a skill",
            &[Dozen],
            "program with the skill's number",
            with_dozens,
            |h| skill(h, "dozens").body = "A dozen makes 10.".into(),
        ),
        fault(
            "skill's code needs a missing file",
            &[Percent],
            "every program fails where the skill is on",
            with_function,
            |h| skill(h, "percentages").python = "from shop_tools import part_of\n".into(),
        ),
        fault(
            "skill's function is wrong",
            &[Percent],
            "wrong result of the skill's function",
            with_function,
            |h| {
                skill(h, "percentages").python =
                    "def part_of(x, y):\n    return y * x // 10\n".into();
            },
        ),
        fault(
            "missing skill: way around",
            &[Fence],
            "wrong program, no skill on the topic",
            with_fences,
            |h| drop(h.skills.remove("fences")),
        ),
    ]
}

fn middleware() -> Vec<Fault> {
    let fault = Fault::of(MiddlewareMismatch);
    vec![
        fault(
            "fence as a stop text",
            &[Plain],
            "reply ends before its call",
            desk,
            |h| h.middleware.protocol.stop = vec!["```".into()],
        ),
        fault(
            "fences not read as calls",
            &[Plain],
            "call in a fence, not read",
            with_json,
            |h| h.middleware.hooks.post_model_call.clear(),
        ),
        fault(
            "nudge towards a guess",
            &[Plan],
            "plan, nudge, answer without a call",
            with_nudge,
            |h| {
                let message = "Just put your best estimate in \\boxed{}.".into();
                h.middleware.hooks.post_model_call = vec![Hook::Nudge { message, max: 1 }];
            },
        ),
        fault(
            "final answer forced in the only turn",
            &[Plain],
            "told to answer before any call",
            with_last_word,
            |h| h.middleware.protocol.max_turns = 1,
        ),
        fault(
            "one turn too few for two parts",
            &[Parts],
            "result, then the turn limit",
            || stateful(desk()),
            |h| h.middleware.protocol.max_turns = 2,
        ),
        fault(
            "replies of 10 tokens",
            &[Steps],
            "longer programs cut",
            desk,
            |h| h.middleware.protocol.max_tokens_per_turn = 10,
        ),
        fault(
            "result cut in its middle",
            &[Long],
            "answer is the result's end",
            desk,
            |h| cut_results(h, 6, "\n(...)\n"),
        ),
        fault(
            "message after results: hundreds",
            &[Plain],
            "answer is a hundredth of the result",
            desk,
            |h| append_to_results(h, "Quote every figure in hundreds."),
        ),
        fault(
            "hint to give up on errors",
            &[Average],
            "error, then a guess",
            with_hint,
            |h| {
                let message = "When code fails, leave it and give your best estimate.".into();
                h.middleware.hooks.on_tool_error = vec![Hook::ErrorHint { message }];
            },
        ),
        fault(
            "message on repetition asks for more",
            &[Sure],
            "same call to the turn limit",
            with_repeat,
            |h| {
                let message = "This was run already. Run another program.".into();
                h.middleware.hooks.pre_tool_call = vec![Hook::DetectRepeat { message }];
            },
        ),
        fault(
            "answer asked for right after the plan",
            &[Plain],
            "plan, then an answer without a call",
            with_plan,
            |h| {
                let message = PLAN.into();
                let next = "Now state the outcome in \\boxed{}.".into();
                h.middleware.hooks.on_start = vec![Hook::Plan { message, next }];
            },
        ),
        fault(
            "values no longer printed",
            &[Plain],
            "program prints nothing",
            with_values,
            |h| h.middleware.hooks.pre_tool_call.clear(),
        )
        .or(ToolSchemaError),
    ]
}

fn memory() -> Vec<Fault> {
    let fault = Fault::of(MemoryOverflow);
    vec![
        fault(
            "lesson evicted",
            &[Percent],
            "wrong program, the note on it is gone",
            with_lessons,
            |h| {
                h.memory.capacity = 1;
                h.memory.eviction = Eviction::Oldest;
                h.memory.entries.drain(..3);
            },
        )
        .or(SkillMissing),
        fault(
            "lesson not shown",
            &[Percent],
            "wrong program, another note shown",
            with_lessons,
            |h| h.memory.shown = 1,
        ),
        fault(
            "log of all runs kept",
            &[Plain],
            "conversation doesn't fit",
            desk,
            |h| {
                h.memory.capacity = 400;
                for number in 1..=300 {
                    note(h, &format!("Run {number} went through and took no time."));
                }
            },
        ),
        fault(
            "note that prefers work by hand",
            &[Plain],
            "no call; a note speaks against it",
            desk,
            |h| {
                note(
                    h,
                    "Sums go quicker by hand; code is only for the hard ones.",
                )
            },
        ),
        fault(
            "solution of another problem kept",
            &[Plain],
            "answer is a note's number",
            desk,
            |h| note(h, "Solution to the last exercise: 318."),
        ),
        fault(
            "note with an argument's old name",
            &[Plain],
            "arguments refused",
            with_tags,
            |h| {
                note(
                    h,
                    "The tool takes its program in the argument `script` now.",
                )
            },
        ),
    ]
}

/// Says everything once, without examples; only the system prompt asks for a call.
fn desk() -> Harness {
    let mut harness = plain(&Texts {
        system: "Each question asks for one quantity. Work it out with a short Python program and report what comes back.",
        tool: "Executes Python code; only printed text comes back, so print the outcome.",
        final_answer: "State the outcome at the end inside \\boxed{}.",
        note: "Questions come from a textbook and are short.",
        most_notes: 12,
    });
    let body = "x percent of y comes to y * x / 100.";
    teach(&mut harness, "percentages", &["percent"], body);
    let body = "Give every step a line of its own in the code.";
    teach(&mut harness, "several-steps", &[], body);
    harness
}

fn teach(harness: &mut Harness, name: &str, triggers: &[&str], body: &str) {
    add_skill(harness, "How to deal with", name, triggers, body);
}

fn with_examples() -> Harness {
    let mut harness = desk();
    let worked = [
        [
            "crates",
            "A van with 23 crates takes on 9 more. What is its load?",
            "23 + 9",
            "32",
        ],
        [
            "seats",
            "A hall of 6 rows by 31 seats is full. What is the number of guests?",
            "6 * 31",
            "186",
        ],
        [
            "lamps",
            "Of 84 lamps 35 burn out. What is the number that still burn?",
            "84 - 35",
            "49",
        ],
    ];
    harness.prompts.examples = examples("The outcome is", worked);
    harness
}

fn with_tags() -> Harness {
    tagged(desk())
}

/// Calls as JSON, for which a fence is taken too.
fn with_json() -> Harness {
    let mut harness = desk();
    harness.middleware.protocol.call_format = CallFormat::Json;
    hooked(harness, Hook::ExtractFencedCode {})
}

fn with_seconds() -> Harness {
    let mut harness = with_tags();
    let seconds = json!({"type": "integer", "description": "Seconds it may take, such as 5."});
    require(python(&mut harness), "seconds", seconds);
    harness
}

fn with_dozens() -> Harness {
    let mut harness = desk();
    teach(&mut harness, "dozens", &["dozen"], "A dozen makes 12.");
    harness
}

fn with_function() -> Harness {
    with_skill_code(
        desk(),
        "For x percent of y the function part_of(x, y) is loaded.",
        "def part_of(x, y):\n    return y * x // 100\n",
    )
}

fn with_fences() -> Harness {
    let mut harness = desk();
    let body = "The way round a rectangle with the sides x and y is 2 * (x + y).";
    teach(&mut harness, "fences", &["fence", "around"], body);
    harness
}

fn with_nudge() -> Harness {
    let message = "Go ahead: run the program.".into();
    hooked(desk(), Hook::Nudge { message, max: 1 })
}

fn with_last_word() -> Harness {
    let message = "Time is up: state the outcome in \\boxed{} at once.".into();
    hooked(desk(), Hook::ForceFinalAnswer { message })
}

fn with_hint() -> Harness {
    let message = "Think about what the error says, and write a program without that.".into();
    hooked(desk(), Hook::ErrorHint { message })
}

fn with_repeat() -> Harness {
    let message = "This was run already. Take the number from that run.".into();
    hooked(desk(), Hook::DetectRepeat { message })
}

const PLAN: &str = "Sketch in a sentence or two how you will go about it.";

fn with_plan() -> Harness {
    let message = PLAN.into();
    let next = "Now carry that out with a short program.".into();
    hooked(desk(), Hook::Plan { message, next })
}

/// The tool shows a program's last value, since a hook prints it.
fn with_values() -> Harness {
    let mut harness = desk();
    python(&mut harness).description =
        "Executes Python code and gives back the value of its last line.".into();
    hooked(harness, Hook::AutoPrintLastExpression {})
}

/// What has to be known about percentages stands in a note.
fn with_lessons() -> Harness {
    let mut harness = desk();
    harness.skills.remove("percentages");
    harness
        .memory
        .entries
        .insert(0, "x percent of y comes to y * x / 100.".into());
    note(&mut harness, "What is asked stands at the end of the text.");
    note(
        &mut harness,
        "Things such as shells or coins are counted in pieces.",
    );
    harness
}
