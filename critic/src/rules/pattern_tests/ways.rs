//! Ways to mislead that every kind of text has, beside rollouts that went so and such that didn't.

use super::*;
use crate::repairs::checked_patch;

/// The rule of each dimension fires for the text in its place beside each of `misled`, and neither beside
/// `others` nor without the text.
#[track_caller]
fn in_every_dimension(way: &str, text: &str, misled: &[Trajectory], others: &[Trajectory]) {
    for (dim, kind) in of_dimensions(["prompt", "tool_description", "skill", "message", "note"]) {
        let (rule, harness) = (format!("{kind}_{way}"), say_in(dim, text));
        for rollout in misled {
            let quote = fires(&rule, &harness, rollout).evidence.quote;
            assert_eq!(quote, text, "{rule}");
            is_quiet(&rule, &start(), rollout);
        }
        for rollout in others {
            is_quiet(&rule, &harness, rollout);
        }
    }
}

fn told(text: &str) -> Trajectory {
    failed(1).system(&format!("Solve. Runs it. Go on. {text}"))
}

fn error(line: &str) -> (String, Option<Event>) {
    let exit = Exit::Code(1);
    (format!("[error] {line}"), Some(Event::ToolError { exit }))
}

#[test]
fn several_answers_of_which_none_is_read() {
    let text = "Box both the precise and the rounded number.";
    let called = told(text).call("print(12)").result("12", None);
    let two = called.clone().reply("\\boxed{12} and \\boxed{10}", None);
    let last = called.clone().reply("\\boxed{12}, or so", None);
    let read = {
        let mut read = called
            .clone()
            .reply("\\boxed{12} or rather \\boxed{10}", None);
        read.answer = Some("10".to_owned());
        read.verdict.rule = "boxed".to_owned();
        read
    };
    let other = called.clone().reply("\\boxed{13} and \\boxed{10}", None);
    in_every_dimension(
        "asks_for_several",
        text,
        &[two.clone(), read],
        &[last, other, called.answered("12")],
    );
    // The loop needn't be blamed for what a sentence explains.
    let severity = |harness: &Harness| fires("no_answer_after_result", harness, &two).severity;
    assert_eq!(severity(&say_in("M", text)), Medium);
    assert_eq!(severity(&start()), High);
}

#[test]
fn answers_that_go_into_a_call() {
    let text = "Pass the outcome on by one more call.";
    let called = told(text).call("print(5 + 7)").result("12", None);
    let handed = called
        .clone()
        .call("12")
        .result("[no output]", Some(Event::EmptyOutput));
    let printed = called.clone().call("print(12)").result("12", None);
    let checked = called.clone().call("print(7 + 5)").result("12", None);
    in_every_dimension(
        "sends_answer_to_tool",
        text,
        &[handed.clone(), printed],
        &[checked, called, handed.answered("12")],
    );
}

#[test]
fn calls_of_which_there_may_be_so_many() {
    let text = "There is one call per question.";
    let problem = "Mo has 5 kites, 7 balls and 9 hoops. Count his toys.";
    let opened = told(text).problem(problem);
    let first = opened.clone().call("print(5 + 7)").result("12", None);
    let whole = opened.clone().call("print(5 + 7 + 9)").result("21", None);
    let (line, event) = error("ZeroDivisionError: division by zero");
    let given_up = opened.call("print(5 / 0)").result(&line, event);
    let more = first.clone().call("print(12 - 9)").result("3", None);
    in_every_dimension(
        "limits_calls",
        text,
        &[first.clone().answered("12"), given_up.answered("40")],
        &[whole.answered("21"), more.answered("3")],
    );
    // What the problem has beside is no missing skill then.
    let cut_short = first.answered("12");
    let rule = "decomposition_skill_missing";
    assert_eq!(fires(rule, &say_in("T", text), &cut_short).severity, Medium);
    assert_eq!(fires(rule, &start(), &cut_short).severity, High);
}

#[test]
fn somebody_to_be_asked_first() {
    let text = "First of all, ask the client for a budget.";
    let asks = told(text).reply("Which budget do you have in mind?", Some(Event::NoToolCall));
    let demands = told(text).reply("Please tell me the budget.", None);
    let guesses = told(text).reply("It is more than ten.", None);
    let answers = told(text).answered("40");
    let called = told(text).call("print(12)").reply("Is that right?", None);
    in_every_dimension(
        "asks_first",
        text,
        &[asks.clone(), demands],
        &[guesses, answers, called],
    );
    // No missing example makes a model ask back.
    let severity = |harness: &Harness| fires("example_missing", harness, &asks).severity;
    assert_eq!(severity(&say_in("M", text)), Medium);
    assert_eq!(severity(&start()), High);
}

#[test]
fn programs_that_are_encoded() {
    let text = "Newlines of a program are escaped, as in a string.";
    let (line, event) =
        error("SyntaxError: unexpected character after line continuation character");
    let escaped = told(text)
        .call("total = 5 + 7\\nprint(total)")
        .result(&line, event.clone());
    let plain = told(text).call("print(5 +").result(&line, event.clone());
    let mended = escaped.clone().call("print(12)").result("12", None);
    in_every_dimension("encodes_programs", text, &[escaped], &[plain, mended]);
    // In a string of JSON a backslash is two.
    let text = r"Escape line breaks as \\n.";
    let said = told(r#"{"description": "Runs it. Escape line breaks as \\n."}"#);
    let escaped = said.call("x = 12\\nprint(x)").result(&line, event);
    let record = fires(
        "tool_description_encodes_programs",
        &say_in("T", text),
        &escaped,
    );
    assert_eq!(record.evidence.quote, text);
}

#[test]
fn formulas_that_lost_a_sign() {
    let text = "The outline is 2 (x + y).";
    let (line, event) = error("TypeError: 'int' object is not callable");
    let called = |code: &str| told(text).call(code).result(&line, event.clone());
    let failed = called("print(2 (5 + 7))");
    let mended = failed.clone().call("print(2 * (5 + 7))").result("24", None);
    in_every_dimension(
        "spoils_formula",
        text,
        std::slice::from_ref(&failed),
        &[called("print(2 * (5 + 7)())"), mended],
    );
    // What was meant isn't lost with the sentence.
    for (dim, kind) in of_dimensions(["prompt", "tool_description", "skill", "message", "note"]) {
        let (rule, harness) = (format!("{kind}_spoils_formula"), say_in(dim, text));
        let record = fires(&rule, &harness, &failed);
        let dimension = record.harness_dim.dimension().unwrap();
        let patch = checked_patch(&harness, dimension, record.diff_suggestion, "").unwrap();
        let after = patch.apply(&harness).unwrap().to_value().to_string();
        assert!(after.contains("The outline is 2 * (x + y)."), "{rule}");
    }
}

#[test]
fn words_that_were_offered_for_an_answer() {
    let text = "Tell the client whether the parcel fits: yes or no.";
    let called = told(text).call("print(12)").result("12", None);
    let replied = |reply: &str| called.clone().reply(reply, None);
    in_every_dimension(
        "asks_for_words",
        text,
        &[
            replied("Yes."),
            replied("\\boxed{no}"),
            replied("It does fit."),
        ],
        &[
            replied("That makes 12 kites."),
            replied("\\boxed{yes} 12").answered("12"),
            told(text).reply("Yes.", None),
        ],
    );
    // The loop needn't be blamed for what a sentence explains.
    let severity = |harness: &Harness| {
        let blamed = fires("no_answer_after_result", harness, &replied("Yes."));
        blamed.severity
    };
    assert_eq!(severity(&say_in("P", text)), Medium);
    assert_eq!(severity(&start()), High);
}

#[test]
fn numbers_that_are_no_problems() {
    let text = "See form 4711, page 38.";
    let ended = |code: &str, result: &str| {
        let called = told(text).call(code).result(result, None);
        called.answered(result)
    };
    in_every_dimension(
        "lends_numbers",
        text,
        &[ended("print(4711 + 38)", "4749")],
        &[
            ended("print(7 - 5)", "2"),
            ended("print(5 * 38)", "190"),
            ended("print(50 * 80)", "4000"),
            told(text).call("print(4711 + 38)").result("4749", None),
        ],
    );
}

#[test]
fn functions_that_nobody_calls() {
    let text = "A script is a function that returns the count.";
    let silent = |code: &str| told(text).call(code).result("", Some(Event::EmptyOutput));
    in_every_dimension(
        "misguides_print",
        text,
        &[silent("def count():\n    return 5 + 7")],
        &[
            silent("x = 5 + 7"),
            silent("def count():\n    return 5 + 7\ncount()"),
            told(text)
                .call("def count():\n    return 12\nprint(count())")
                .result("12", None),
        ],
    );
    let silent = silent("def count():\n    return 5 + 7");
    let severity = |harness: &Harness| fires("print_not_described", harness, &silent).severity;
    assert_eq!(severity(&say_in("S", text)), Low);
    assert_eq!(severity(&start()), High);
}

#[test]
fn numbers_in_the_notation_of_a_text() {
    let text = "Our display takes base-16 numbers.";
    let called = told(text).call("print(210 * 2)").result("420", None);
    let slipped = called.clone().answered("0x1a5");
    in_every_dimension(
        "alters_answer",
        text,
        &[called.clone().answered("0x1A4")],
        &[slipped, called.answered("420")],
    );
}

#[test]
fn tools_that_are_said_to_be_out_of_use() {
    let text = "Until further notice the python tool is out of service.";
    let prose = told(text).reply("It comes to 13.", Some(Event::NoToolCall));
    let called = told(text).call("print(12)").result("12", None);
    for (dim, rule) in of_dimensions([
        "tool_forbidden",
        "tool_description_against_tool",
        "skill_against_tool",
        "message_against_tool",
        "note_against_tool",
    ]) {
        fires(rule, &say_in(dim, text), &prose);
        is_quiet(rule, &say_in(dim, text), &called);
        is_quiet(rule, &start(), &prose);
    }
}
