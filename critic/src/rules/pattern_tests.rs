//! Rules that look at what the harness does around a failure, and at several rollouts together.

use harness::Harness;
use rollout::{Event, ExitReason, StepKind, Trajectory};
use sandbox::Exit;

use super::tests::{fires, is_quiet, say_in};
use super::view::View;
use crate::critic::{Critic, RulesCritic};
use crate::record::Record;
use crate::record::Severity::{High, Low, Medium};
use crate::testing::{Build, failed, patched, start};

fn named(harness: &Harness, rollouts: &[Trajectory], rule: &str) -> Vec<Record> {
    let records = RulesCritic::default()
        .diagnose(harness, rollouts)
        .records
        .into_iter();
    records.filter(|record| record.rule == rule).collect()
}

/// The rule of each dimension that ends so.
const fn of_dimensions(way: [&'static str; 5]) -> [(&'static str, &'static str); 5] {
    [
        ("P", way[0]),
        ("T", way[1]),
        ("S", way[2]),
        ("Mid", way[3]),
        ("M", way[4]),
    ]
}

const ALTERS: [(&str, &str); 5] = of_dimensions([
    "prompt_alters_answer",
    "tool_description_alters_answer",
    "skill_alters_answer",
    "message_alters_answer",
    "note_alters_answer",
]);

#[test]
fn what_all_answers_do_to_the_printed_numbers() {
    let rollout = |seed: u64, answer: String, text: &str| {
        failed(seed)
            .system(&format!("Solve. {text}"))
            .call("print(n)")
            .result(&(7000 + 1000 * seed).to_string(), None)
            .answered(&answer)
    };
    let parts = |seed: u64| (7 + seed).to_string();
    for (text, is_letter) in [
        ("Keep figures in thousands.", false),
        ("Finish with the letter of the right option.", true),
    ] {
        let answer = |n| if is_letter { "B".to_owned() } else { parts(n) };
        let rollouts: Vec<Trajectory> = (1..=4).map(|n| rollout(n, answer(n), text)).collect();
        for (dim, rule) in ALTERS {
            let harness = say_in(dim, text);
            for (_, other) in ALTERS {
                let found = named(&harness, &rollouts, other);
                assert_eq!(
                    found.len(),
                    if other == rule { 4 } else { 0 },
                    "{rule} {other}"
                );
            }
            let two = &rollouts[..2];
            assert!(named(&harness, two, rule).is_empty(), "two may be chance");
        }
    }
    // Words beside the number, or none at all.
    let unit = "State the outcome with its unit.";
    let worded = |seed: u64| rollout(seed, format!("{} kites", 7000 + 1000 * seed), unit);
    let mute = |seed: u64| {
        let rollout = failed(seed).system(&format!("Solve. {unit}"));
        rollout
            .call("print(n)")
            .result("8000", None)
            .reply("That is settled.", None)
    };
    let of_both = [(1..=4).map(worded).collect(), (1..=4).map(mute).collect()];
    for rollouts in of_both {
        let rollouts: Vec<Trajectory> = rollouts;
        assert_eq!(
            named(&say_in("M", unit), &rollouts, "note_alters_answer").len(),
            4
        );
        assert!(named(&start(), &rollouts, "prompt_alters_answer").is_empty());
        let harness = say_in("P", "State the outcome without units.");
        assert!(named(&harness, &rollouts, "prompt_alters_answer").is_empty());
    }
    // Where the same was said more often and nothing was altered, it isn't what altered it.
    let text = "Keep figures in thousands.";
    let mut rollouts: Vec<Trajectory> = (1..=3).map(|n| rollout(n, parts(n), text)).collect();
    rollouts.extend((4..=8).map(|n| {
        let mut solved = rollout(n, (7000 + 1000 * n).to_string(), text);
        solved.verdict.correct = true;
        solved
    }));
    assert!(named(&say_in("P", text), &rollouts, "prompt_alters_answer").is_empty());
}

fn halved(seed: u64, system: &str) -> Trajectory {
    let (length, width) = (30 + 7 * seed, 11 + seed);
    failed(seed)
        .system(system)
        .problem(&format!(
            "A meadow is {length} m long and {width} m wide. Find its outline."
        ))
        .call(&format!("print({length} * {width})"))
        .result(&(length * width).to_string(), None)
        .answered(&(length * width).to_string())
}

#[test]
fn examples_that_answer_with_another_number() {
    let slip = failed(1)
        .call("print(12)")
        .result("12", None)
        .answered("13");
    let examples = |answer: &str| {
        let ops = format!(
            r#"[{{"op":"add","path":"prompts.examples","value":{{"title":"t","problem":"5 and 7?",
            "steps":[{{"say":"","tool":"python","arguments":{{"code":"print(5 + 7)"}},"result":"12"}}],
            "answer":"The answer is {answer}."}}}}]"#
        );
        patched(&start(), "P", &ops)
    };
    fires("prompt_alters_answer", &examples("13"), &slip);
    is_quiet("prompt_alters_answer", &examples("12"), &slip);
}

#[test]
fn topics_that_always_fail_in_one_way() {
    let text = "The outline of a meadow is x * y.";
    let misleads = of_dimensions([
        "prompt_misleads",
        "tool_description_misleads",
        "",
        "message_misleads",
        "note_misleads",
    ]);
    let told: Vec<Trajectory> = (1..=4)
        .map(|n| halved(n, &format!("Solve. {text}")))
        .collect();
    for (dim, rule) in misleads.into_iter().filter(|(_, rule)| !rule.is_empty()) {
        assert_eq!(named(&say_in(dim, text), &told, rule).len(), 4, "{rule}");
        assert!(named(&start(), &told, rule).is_empty(), "{rule}");
    }
    let rule = "topic_misunderstood";
    let severity = |harness: &Harness, rollouts: &[Trajectory]| {
        let found = named(harness, rollouts, rule);
        found.first().map(|record| record.severity)
    };
    assert_eq!(severity(&say_in("M", text), &told), Some(Low));
    let untold: Vec<Trajectory> = (1..=4).map(|n| halved(n, "Solve.")).collect();
    assert_eq!(severity(&start(), &untold), Some(High));
    assert_eq!(severity(&start(), &untold[..2]), None);
    // With some of the topic solved, the others may be slips.
    let mut mixed = untold;
    mixed.extend((5..=6).map(|n| {
        let mut solved = halved(n, "Solve.");
        solved.verdict.correct = true;
        solved
    }));
    assert_eq!(severity(&start(), &mixed), None);
}

#[test]
fn skills_and_notes_that_the_topic_lacks() {
    let rollouts: Vec<Trajectory> = (1..=4).map(|n| halved(n, "Solve.")).collect();
    let skill = r#"[{"op":"add","path":"skills.rims","value":{"name":"rims","description":"Rims.",
        "triggers":["circumscribe"],"body":"Twice the sum of both."}}]"#;
    let idle = patched(&start(), "S", skill);
    let found = named(&idle, &rollouts, "skill_not_triggered");
    assert_eq!(found.len(), 4);
    assert_eq!(found[0].severity, High);
    let notes = |note: &str| {
        let ops = format!(
            r#"[{{"op":"replace","path":"memory.kind","value":"notes"}},
            {{"op":"replace","path":"memory.capacity","value":2}},
            {{"op":"add","path":"memory.shown","value":1}},
            {{"op":"add","path":"memory.entries","value":"{note}"}},
            {{"op":"add","path":"memory.entries","value":"Solve."}}]"#
        );
        patched(&start(), "M", &ops)
    };
    let hidden = notes("The outline is twice the sum of both sides.");
    let record = fires("note_not_shown", &hidden, &rollouts[0]);
    assert_eq!(record.diff_suggestion[0].path.to_string(), "memory.shown");
    is_quiet(
        "note_not_shown",
        &notes("Shells are counted."),
        &rollouts[0],
    );
}

#[test]
fn messages_that_an_answer_without_a_call_replies_to() {
    let guess = |hook: &str, message: &str| {
        failed(1)
            .reply("I would begin with the kites.", Some(Event::NoToolCall))
            .with(
                StepKind::Hook,
                message,
                Some(Event::HookFired {
                    hook: hook.to_owned(),
                }),
            )
            .with(StepKind::User, message, None)
            .answered("40")
    };
    let nudge = |message: &str| {
        let ops = format!(
            r#"[{{"op":"add","path":"middleware.hooks.post_model_call",
            "value":{{"type":"nudge","message":"{message}","max":1}}}}]"#
        );
        patched(&start(), "Mid", &ops)
    };
    let severity = |message: &str| {
        let harness = nudge(message);
        let record = fires("message_before_guess", &harness, &guess("nudge", message));
        record.severity
    };
    assert_eq!(severity("Settle on something."), High);
    assert_eq!(severity("Call the tool, or settle on something."), Low);
    let harness = nudge("Settle on something.");
    is_quiet(
        "message_before_guess",
        &harness,
        &guess("verify", "Settle on something."),
    );
    let with_result = failed(1)
        .call("print(12)")
        .result("12", None)
        .answered("40");
    is_quiet("message_before_guess", &harness, &with_result);
    let plan = r#"[{"op":"add","path":"middleware.hooks.on_start",
        "value":{"type":"plan","message":"Plan.","next":"Settle on something."}}]"#;
    let planned = failed(1)
        .with(
            StepKind::Hook,
            "Plan.",
            Some(Event::HookFired {
                hook: "plan".to_owned(),
            }),
        )
        .with(StepKind::User, "Plan.", None)
        .reply("I would begin with the kites.", None)
        .with(StepKind::User, "Settle on something.", None)
        .answered("40");
    let planning = patched(&start(), "Mid", plan);
    fires("message_before_guess", &planning, &planned);
    // A hook's message is no problem.
    let problem = View::new(&planning, &planned).problem();
    assert_eq!(problem, Some(crate::testing::PROBLEM));
    // Neither the missing example nor the call format is to blame for it.
    let rollout = guess("nudge", "Settle on something.");
    for rule in ["example_missing", "call_format_unused"] {
        assert_ne!(fires(rule, &harness, &rollout).severity, High, "{rule}");
    }
    let hint = r#"[{"op":"add","path":"middleware.hooks.on_tool_error",
        "value":{"type":"error_hint","message":"Let it be."}}]"#;
    let error = Some(Event::ToolError {
        exit: Exit::Code(1),
    });
    let given_up = failed(1)
        .call("print(mean([1, 2]))")
        .result("[error] NameError\nLet it be.", error)
        .answered("40");
    fires(
        "message_before_guess",
        &patched(&start(), "Mid", hint),
        &given_up,
    );
}

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
fn programs_that_never_reach_the_interpreter() {
    let schema = r#"[{"op":"replace","path":"tools.python.parameters","value":{"type":"object",
        "properties":{"title":{"type":"string"},"code":{"type":"string"}},
        "required":["title","code"]}}]"#;
    let two = patched(&start(), "T", schema);
    let error = Some(Event::ToolError {
        exit: Exit::Code(1),
    });
    let written = |run: &str| {
        failed(1)
            .reply(
                r#"{"arguments": {"title": "Kites", "code": "print(5 + 7)"}}"#,
                None,
            )
            .with(StepKind::ToolCall, run, None)
            .result("[error] SyntaxError: invalid syntax", error.clone())
    };
    let record = fires("program_in_wrong_argument", &two, &written("Kites"));
    let patch =
        crate::repairs::checked_patch(&two, harness::Dimension::T, record.diff_suggestion, "");
    let mended = patch.unwrap().apply(&two).unwrap();
    assert_eq!(
        mended.tools.values().next().unwrap().code_argument(),
        Some("code")
    );
    is_quiet("program_in_wrong_argument", &two, &written("print(5 + 7)"));
    is_quiet("program_in_wrong_argument", &start(), &written("Kites"));

    let skill = r#"[{"op":"add","path":"skills.kites","value":{"name":"kites","description":"Kites.",
        "triggers":[],"body":"Use total().","python":"import kitelib"}}]"#;
    let loaded = patched(&start(), "S", skill);
    let broken = failed(1)
        .system("Solve. Use total().")
        .call("print(total(5, 7))")
        .result(
            "[error] ModuleNotFoundError: No module named 'kitelib'",
            error,
        );
    let record = fires("skill_code_fails", &loaded, &broken);
    assert_eq!(record.severity, High);
    is_quiet("skill_code_fails", &start(), &broken);
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
