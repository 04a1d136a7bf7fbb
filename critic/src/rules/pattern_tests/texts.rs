//! Texts that mislead beside what the rollout shows.

use super::*;

#[test]
fn arguments_and_languages_that_only_a_text_knows() {
    let reason = "the argument `code` is missing".to_owned();
    let refused = |text: &str| {
        let call = r#"{"name": "python", "arguments": {"script": "print(12)"}}"#;
        failed(1)
            .system(&format!("Solve. {text}"))
            .with(
                StepKind::ToolCall,
                call,
                Some(Event::BadArguments {
                    reason: reason.clone(),
                }),
            )
            .result("[error] the argument `code` is missing", None)
    };
    let foreign = |text: &str| {
        failed(1)
            .system(&format!("Solve. {text}"))
            .call("console.log(12)")
            .result(
                "[error] NameError: name 'console' is not defined",
                Some(Event::ToolError {
                    exit: Exit::Code(1),
                }),
            )
    };
    let argument = "The program is the argument `script`.";
    let language = "Write it in Ruby or JavaScript.";
    for (dim, of_argument, of_language) in [
        (
            "P",
            "prompt_names_unknown_tool",
            "prompt_names_missing_code",
        ),
        (
            "Mid",
            "message_names_unknown_tool",
            "message_names_missing_code",
        ),
        ("M", "note_names_unknown_tool", "note_names_missing_code"),
    ] {
        fires(of_argument, &say_in(dim, argument), &refused(argument));
        fires(of_language, &say_in(dim, language), &foreign(language));
        let other = "Shells of all kinds are counted.";
        is_quiet(of_argument, &say_in(dim, other), &refused(other));
        is_quiet(of_language, &say_in(dim, other), &foreign(other));
    }
}

#[test]
fn texts_that_ask_for_call_after_call() {
    let text = "Run every program three times.";
    let first = failed(1)
        .system(&format!("Solve. {text}"))
        .call("print(12)")
        .result("12", None);
    let endless = first.clone().call("print(12)").result("12", None);
    let ended = first.answered("12");
    for (dim, rule) in of_dimensions([
        "prompt_asks_for_more",
        "tool_description_asks_for_more",
        "skill_asks_for_more",
        "message_asks_for_more",
        "note_asks_for_more",
    ]) {
        fires(rule, &say_in(dim, text), &endless);
        is_quiet(rule, &say_in(dim, text), &ended);
        is_quiet(rule, &start(), &endless);
    }
}

#[test]
fn a_call_after_an_error_is_no_further_call() {
    let text = "Run every program three times.";
    let error = Some(Event::ToolError {
        exit: Exit::Code(1),
    });
    let mended = failed(1)
        .system(&format!("Solve. {text}"))
        .call("print(mean([1, 2]))")
        .result("[error] NameError: name 'mean' is not defined", error)
        .call("print(12)")
        .result("12", None)
        .exit(ExitReason::TurnLimit);
    is_quiet("prompt_asks_for_more", &say_in("P", text), &mended);
    fires("turn_limit", &say_in("P", text), &mended);
}

#[test]
fn marks_that_only_a_text_knows() {
    let text = "The code stands between [RUN] and [END].";
    let system = format!("Solve. {text}");
    let marked = failed(1)
        .system(&system)
        .reply("[RUN]\nprint(5 + 7)\n[END]", Some(Event::NoToolCall));
    let prose = failed(1).system(&system).reply("[RUN] It is 13.", None);
    let called = failed(1).system(&system).call("print(5 + 7)");
    for (dim, rule) in of_dimensions([
        "prompt_gives_unread_marks",
        "tool_description_gives_unread_marks",
        "skill_gives_unread_marks",
        "message_gives_unread_marks",
        "note_gives_unread_marks",
    ]) {
        let harness = say_in(dim, text);
        assert_eq!(fires(rule, &harness, &marked).evidence.quote, text);
        assert_eq!(fires("example_missing", &harness, &marked).severity, Medium);
        for other in [&prose, &called] {
            is_quiet(rule, &harness, other);
        }
        is_quiet(rule, &start(), &marked);
    }
}

#[test]
fn texts_that_have_too_little_or_too_much_printed() {
    let (little, much) = ("There is no need to print.", "Print each part as well.");
    let rollout = |seed: u64, text: &str| failed(seed).system(&format!("Solve. {text}"));
    let silent = |seed| {
        let called = rollout(seed, little).call("x = 12\nx");
        called.result("", Some(Event::EmptyOutput))
    };
    let crowded = |seed| {
        let called = rollout(seed, much).call("print(12)\nprint(5)");
        called.result("12\n5", None).answered("5")
    };
    let single = rollout(1, much).call("print(5)").result("5", None);
    for (dim, rule) in of_dimensions([
        "prompt_misguides_print",
        "tool_description_misguides_print",
        "skill_misguides_print",
        "message_misguides_print",
        "note_misguides_print",
    ]) {
        let (of_little, of_much) = (say_in(dim, little), say_in(dim, much));
        assert_eq!(fires(rule, &of_little, &silent(1)).evidence.quote, little);
        assert_eq!(fires(rule, &of_much, &crowded(1)).evidence.quote, much);
        is_quiet(rule, &of_much, &single.clone().answered("5"));
        is_quiet(rule, &start(), &silent(1));
        // Where it serves as often, it isn't to blame.
        let mut rollouts: Vec<Trajectory> = (1..=4).map(crowded).collect();
        assert_eq!(named(&of_much, &rollouts, rule).len(), 4);
        rollouts.extend((5..=6).map(|seed| {
            let mut solved = crowded(seed);
            solved.verdict.correct = true;
            solved
        }));
        assert!(named(&of_much, &rollouts, rule).is_empty(), "{rule}");
    }
}

#[test]
fn programs_for_an_older_interpreter() {
    let failing = |text: &str, error: &str| {
        let event = Some(Event::ToolError {
            exit: Exit::Code(1),
        });
        let system = format!("Solve. {text}");
        failed(1)
            .system(&system)
            .call("print 12")
            .result(error, event)
    };
    let refused = "[error] SyntaxError: Missing parentheses in call to 'print'";
    let (older, today) = ("It runs Python 2.7.", "It runs Python 3.12.");
    for (dim, rule) in of_dimensions([
        "prompt_names_missing_code",
        "tool_description_names_missing_code",
        "skill_names_missing_code",
        "message_names_missing_code",
        "note_names_missing_code",
    ]) {
        fires(rule, &say_in(dim, older), &failing(older, refused));
        is_quiet(rule, &say_in(dim, today), &failing(today, refused));
        let other = "[error] ZeroDivisionError: division by zero";
        is_quiet(rule, &say_in(dim, older), &failing(older, other));
    }
}

#[test]
fn the_form_of_the_answer_is_not_blamed_for_its_value() {
    let form = "Wrap the value in \\\\boxed{} to close.";
    let parted = |n: u64| format!("{}.{:03}.{:03}", 700 + n, n, 2 * n);
    let hundredth = |n: u64| (70 + n).to_string();
    let printed = |answer: &str| answer.replace('.', "");
    for (text, is_parted) in [
        ("Thousands are set off by points.", true),
        ("It counts pence, and pounds are wanted.", false),
    ] {
        let rollouts: Vec<Trajectory> = (1..=4)
            .map(|n| {
                let (result, answer) = match is_parted {
                    true => (printed(&parted(n)), parted(n)),
                    false => (format!("{}00", hundredth(n)), hundredth(n)),
                };
                let system = format!("Solve. {text} Wrap the value in \\boxed{{}} to close.");
                let called = failed(n).system(&system).call("print(n)");
                called.result(&result, None).answered(&answer)
            })
            .collect();
        for (dim, rule) in ALTERS {
            let ops =
                format!(r#"[{{"op":"replace","path":"prompts.final_answer","value":"{form}"}}]"#);
            let harness = patched(&say_in(dim, text), "P", &ops);
            let found = named(&harness, &rollouts, rule);
            assert_eq!(found.len(), 4, "{rule}: {text}");
            assert_eq!(found[0].evidence.quote, text);
            // With nothing else to blame, nothing is.
            let harness = patched(&start(), "P", &ops);
            assert!(named(&harness, &rollouts, rule).is_empty(), "{rule}");
        }
    }
}

#[test]
fn texts_that_leave_no_room() {
    let long = "Kites are counted in pieces. ".repeat(1000);
    let full = |system: &str| failed(1).system(system).exit(ExitReason::ContextLimit);
    for (dim, rule) in [
        ("P", "prompt_fills_context"),
        ("T", "tool_description_fills_context"),
        ("S", "skill_fills_context"),
    ] {
        let harness = say_in(dim, long.trim());
        let shown = format!("Solve. Go on. {}", long.trim());
        fires(rule, &harness, &full(&shown));
        is_quiet(rule, &say_in(dim, "Kites."), &full("Solve. Go on. Kites."));
        let context = fires("context_full", &harness, &full(&shown));
        assert_eq!(context.severity, Medium);
    }
}

#[test]
fn suspicions_are_for_what_nothing_explains() {
    let text = "Kites are counted in pieces.";
    let lost = |seed| {
        failed(seed)
            .system(&format!("Solve. {text}"))
            .call("print(12)")
            .result("12", None)
            .answered("12")
    };
    let solved = |seed| {
        let mut solved = lost(seed);
        solved.verdict.correct = true;
        solved
    };
    let harness = say_in("M", text);
    let mostly: Vec<Trajectory> = (1..=4).map(lost).chain((5..=6).map(solved)).collect();
    assert_eq!(named(&harness, &mostly, "note_suspected").len(), 4);
    let rarely: Vec<Trajectory> = (1..=3).map(lost).chain((4..=9).map(solved)).collect();
    assert!(named(&harness, &rarely, "note_suspected").is_empty());
    let silent = |seed| {
        let silent = failed(seed)
            .system(&format!("Solve. {text}"))
            .call("x = 12");
        silent.result("", Some(Event::EmptyOutput))
    };
    let explained: Vec<Trajectory> = (1..=4).map(silent).collect();
    let records = RulesCritic::default()
        .diagnose(&harness, &explained)
        .records;
    let high = |record: &&Record| record.severity == High;
    let is_explained = records.iter().any(|record| high(&record));
    let is_suspected = records.iter().any(|record| record.rule == "note_suspected");
    assert!(is_explained && !is_suspected);
}
