//! What does its part in a harness isn't blamed for what goes wrong beside it.

use super::*;

/// What a good harness has beside a rollout that failed by itself isn't the rollout's fault.
#[test]
fn prompts_that_say_enough() {
    // All forms in which an answer is stated.
    for rule in ["answer_tag", "whole", "boxed+units"] {
        let mut stated = failed(1)
            .call("print(12)")
            .result("12", None)
            .answered("13");
        stated.verdict.rule = rule.to_owned();
        is_quiet("final_answer_ignored", &start(), &stated);
    }
    let formula = r"\frac{1}{2} + \sqrt{3}";
    is_quiet("answer_has_words", &start(), &failed(1).answered(formula));
    let unit = r"12 \text{ kites}";
    fires("answer_has_words", &start(), &failed(1).answered(unit));
    // The program was right; what became of its result is another matter.
    let long = "Mo has 5 kites, 7 balls and 9 hoops. Count his toys.";
    let changed = failed(1)
        .problem(long)
        .call("print(5 + 7 + 9)")
        .result("21", None)
        .answered("12");
    let mut harness = with_examples(2);
    harness.prompts.examples.remove(0);
    is_quiet("two_step_example_missing", &harness, &changed);
    let asked = r#"[{"op":"replace","path":"prompts.task",
        "value":"{{ problem }}\n\nWrite a program."}]"#;
    let asked = patched(&start(), "P", asked);
    is_quiet("tool_not_asked_for", &asked, &prose());
    is_quiet("calculates_in_prose", &asked, &prose());
}

#[test]
fn tools_that_are_enough() {
    let printing = "Use python and print the result.";
    let ops = format!(r#"[{{"op":"replace","path":"prompts.system","value":"{printing}"}}]"#);
    let told = patched(&start(), "P", &ops);
    let record = fires("print_not_described", &told, &silent().system(printing));
    assert_eq!(record.severity, Severity::Low);
    let record = fires("print_not_described", &with_examples(2), &silent());
    assert_eq!(record.severity, Severity::Low);
    let record = fires("print_not_described", &start(), &silent());
    assert_eq!(record.severity, Severity::High);
    let none = patched(&start(), "T", r#"[{"op":"remove","path":"tools.python"}]"#);
    let question = failed(1)
        .problem("Who wrote the Iliad?")
        .reply("His brother.", None);
    is_quiet("tool_missing", &none, &question);
}

#[test]
fn loops_that_do_their_part() {
    let mut program = failed(1).reply("```python\nprint(1)\n```", Some(Event::NoToolCall));
    program.answer = Some("print(1)".to_owned());
    program.verdict.rule = "python_block".to_owned();
    is_quiet("fenced_code_ignored", &start(), &program);
    let record = fires("example_missing", &start(), &program);
    assert_eq!(record.severity, Severity::Medium);
    let hint = r#"[{"op":"add","path":"middleware.hooks.post_tool_call",
        "value":{"type":"empty_output_hint","message":"Print it."}}]"#;
    is_quiet("prints_nothing", &patched(&start(), "Mid", hint), &silent());
    // The same number in another form.
    for (printed, answer) in [
        ("0.5", r"\frac{1}{2}"),
        ("0.25", "1/4"),
        ("0.5", r"50\%"),
        ("3.14159", "3.14"),
        ("37.6", "38"),
    ] {
        let given = failed(1)
            .call("print(x)")
            .result(printed, None)
            .answered(answer);
        is_quiet("answer_differs_from_result", &start(), &given);
    }
    // Tags hold JSON as well, and it can be repaired there.
    let tags = r#"[{"op":"replace","path":"middleware.protocol.call_format","value":"xml"}]"#;
    let tags = patched(&start(), "Mid", tags);
    let mut repairs = super::rule("call_unparsable").unwrap().repairs.iter();
    let repair = repairs.find(|repair| repair.name == "repair_json").unwrap();
    assert!(repair.patch(&tags, harness::Dimension::Mid).is_some());
}

#[test]
fn skills_and_notes_that_are_beside_the_point() {
    let skill = r#"[{"op":"add","path":"skills.leftovers","value":{"name":"leftovers",
        "description":"What is left after sharing.","triggers":["remainder"],"body":"a % b"}}]"#;
    let skilled = patched(&start(), "S", skill);
    let noon = prose().problem("Mo has 5 kites and 7 more after noon. Count the kites.");
    is_quiet("skill_not_triggered", &skilled, &noon);
    let noted = patched(&start(), "M", NOTE_17);
    // A note that wasn't shown, and a number that many have.
    is_quiet("stale_note", &noted, &failed(1).answered("17"));
    let small = say_in("M", "Try 3 times at most.");
    let three = failed(1).system("Solve. Try 3 times at most.");
    is_quiet("stale_note", &small, &three.answered("3"));
    let oldest = r#"[{"op":"add","path":"memory.eviction","value":"oldest"}]"#;
    let oldest = patched(&noted, "M", oldest);
    fires("memory_full", &noted, &prose());
    is_quiet("memory_full", &oldest, &prose());
}
