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

mod results;
mod texts;
mod ways;

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

/// A mark on the problem's own line is no part of it.
#[test]
fn numbers_above_a_problem() {
    let marked = |seed: u64, marks: &str| {
        let (more, less) = (200 + 7 * seed, 60 + seed);
        let sum = 4711 + more;
        let problem = format!("{marks}Mo has {more} kites and buys {less} more. Count the kites.");
        let called = failed(seed)
            .problem(&problem)
            .call(&format!("print(4711 + {more})"));
        let result = called.result(&sum.to_string(), None);
        result.answered(&sum.to_string())
    };
    let rule = "prompt_lends_numbers";
    let task = r#"[{"op":"replace","path":"prompts.task","value":"File 4711: {{ problem }}"}]"#;
    let filed = patched(&start(), "P", task);
    let rollouts: Vec<Trajectory> = (1..=4).map(|seed| marked(seed, "File 4711: ")).collect();
    let found = named(&filed, &rollouts, rule);
    assert_eq!(found.len(), 4);
    assert_eq!(found[0].evidence.quote, "File 4711:");
    let task = &found[0].diff_suggestion[0];
    assert_eq!(task.path.to_string(), "prompts.task");
    assert_eq!(task.value, Some("{{ problem }}".into()));
    let others = named(&filed, &rollouts, "topic_misunderstood");
    assert!(others.iter().all(|record| record.severity == Low));
    // One number and one rollout may be chance, and without the mark nothing is to blame.
    is_quiet(rule, &filed, &rollouts[0]);
    let unmarked: Vec<Trajectory> = (1..=4).map(|seed| marked(seed, "")).collect();
    assert!(named(&start(), &unmarked, rule).is_empty());
    let others = named(&start(), &unmarked, "topic_misunderstood");
    assert!(others.iter().all(|record| record.severity == High));
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
