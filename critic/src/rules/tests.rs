use harness::Harness;
use rollout::{Event, ExitReason, Trajectory};
use sandbox::Exit;

use super::*;
use crate::record::{Severity, check_evidence};
use crate::testing::{Build, failed, patched, start};

mod good_harnesses;
mod knowledge;
mod loops;
mod sentences;

const FENCED: &str =
    r#"[{"op":"replace","path":"middleware.protocol.call_format","value":"fenced"}]"#;
const NOTE_17: &str = r#"[{"op":"replace","path":"memory.kind","value":"notes"},
    {"op":"replace","path":"memory.capacity","value":1},
    {"op":"add","path":"memory.entries","value":"The last answer was 17."}]"#;

/// Asserts that the rule fires, names its evidence rightly, and suggests a patch if it has repairs.
#[track_caller]
pub(super) fn fires(name: &str, harness: &Harness, trajectory: &Trajectory) -> Record {
    let rule = rule(name).unwrap();
    let record = rule.detect(harness, trajectory);
    let record = record.unwrap_or_else(|| panic!("{name} doesn't fire"));
    assert_eq!(check_evidence(&record, trajectory), Ok(()));
    assert_eq!(record.harness_dim, record.root_cause.harness_dim());
    assert_eq!(
        record.diff_suggestion.is_empty(),
        record.harness_dim.dimension().is_none(),
        "{name}"
    );
    record
}

#[track_caller]
pub(super) fn is_quiet(name: &str, harness: &Harness, trajectory: &Trajectory) {
    assert_eq!(rule(name).unwrap().detect(harness, trajectory), None);
}

fn with_examples(count: usize) -> Harness {
    let all = crate::repairs::prompts::ALL_EXAMPLES;
    let patch = all.patch(&start(), harness::Dimension::P).unwrap();
    let mut harness = patch.apply(&start()).unwrap();
    harness.prompts.examples.truncate(count);
    harness
}

fn prose() -> Trajectory {
    let text = "Let me think.\nMo has 5 + 7 = 13 kites.";
    failed(1).reply(text, Some(Event::NoToolCall)).with(
        rollout::StepKind::Final,
        "",
        Some(Event::NoFinalAnswer),
    )
}

fn silent() -> Trajectory {
    failed(1)
        .call("x = 5 + 7")
        .result("", Some(Event::EmptyOutput))
}

fn error(exit: Exit) -> Trajectory {
    let text = "Traceback\nNameError: name 'x' is not defined";
    failed(1)
        .call("print(x)")
        .result(text, Some(Event::ToolError { exit }))
}

#[test]
fn names_are_unique_and_every_rule_is_explained() {
    let mut names = std::collections::BTreeSet::new();
    for rule in rules() {
        assert!(names.insert(rule.name), "{} occurs twice", rule.name);
        assert!(
            rule.explain.len() > 40 && rule.explain.ends_with('.'),
            "{}",
            rule.name
        );
        let is_agent = rule.root_cause == RootCause::AgentError;
        assert_eq!(rule.repairs.is_empty(), is_agent, "{}", rule.name);
    }
    for cause in RootCause::ALL {
        assert!(
            rules().filter(|rule| rule.root_cause == cause).count() >= 3,
            "{cause}"
        );
    }
}

/// What can be said wrongly can be said in every dimension.
#[test]
fn every_dimension_has_a_rule_for_each_way_to_mislead() {
    let ways = [
        ("misleads", ""),
        ("suspected", ""),
        ("asks_for_more", ""),
        ("against_tool", "tool_forbidden"),
        ("alters_answer", ""),
        ("names_unknown_tool", "unknown_tool"),
        ("names_missing_code", ""),
        ("asks_for_length", "long_text_asked_for"),
        ("asks_for_words", ""),
        ("gives_unread_marks", ""),
        ("misguides_print", ""),
        ("asks_for_several", ""),
        ("sends_answer_to_tool", ""),
        ("limits_calls", ""),
        ("asks_first", ""),
        ("encodes_programs", ""),
        ("spoils_formula", ""),
        ("lends_numbers", ""),
    ];
    for (way, other) in ways {
        for cause in RootCause::ALL {
            let mut of_cause = rules().filter(|rule| rule.root_cause == cause);
            let is_there = of_cause.any(|rule| rule.name.ends_with(way) || rule.name == other);
            assert_eq!(is_there, cause != RootCause::AgentError, "{cause}: {way}");
        }
    }
}

#[test]
fn solved_undecided_and_infrastructure_are_not_read() {
    let mut solved = prose();
    solved.verdict.correct = true;
    let mut undecided = prose();
    undecided.verdict.undecided = true;
    assert!(rules().any(|rule| rule.detect(&start(), &prose()).is_some()));
    let reason = "no server".to_owned();
    let broken = prose().exit(ExitReason::Infrastructure {
        reason,
        is_retryable: true,
        wait_s: None,
    });
    for rule in rules() {
        assert_eq!(rule.detect(&start(), &solved), None);
        assert_eq!(rule.detect(&start(), &undecided), None);
        assert_eq!(rule.detect(&start(), &broken), None);
    }
}

#[test]
fn prompts_without_a_call() {
    let record = fires("example_missing", &start(), &prose());
    assert_eq!(record.evidence.quote, "Let me think.");
    is_quiet("example_missing", &with_examples(2), &prose());
    fires("examples_too_few", &with_examples(2), &prose());
    is_quiet("examples_too_few", &with_examples(3), &prose());
    fires("tool_not_asked_for", &start(), &prose());
    let record = fires("calculates_in_prose", &start(), &prose());
    assert_eq!(record.evidence.quote, "Mo has 5 + 7 = 13 kites.");
    // Code in a reply is a call that the loop didn't read; an example is not what it needs most.
    let code = failed(1).reply("```python\nprint(12)\n```", Some(Event::NoToolCall));
    let record = fires("example_missing", &start(), &code);
    assert_eq!(record.severity, Severity::Medium);
    let record = fires("example_missing", &start(), &prose());
    assert_eq!(record.severity, Severity::High);
}

#[test]
fn prompts_without_an_answer() {
    let none = r#"[{"op":"replace","path":"prompts.final_answer","value":""}]"#;
    let silent_prompt = patched(&start(), "P", none);
    fires("final_answer_instruction_missing", &silent_prompt, &prose());
    is_quiet("final_answer_instruction_missing", &start(), &prose());
    let unanswered = failed(1)
        .call("print(12)")
        .result("12", None)
        .reply("So that's it.", None);
    let record = fires("final_answer_ignored", &start(), &unanswered);
    assert_eq!(record.evidence.quote, "So that's it.");
    fires(
        "answer_has_words",
        &start(),
        &failed(1).answered("12 kites"),
    );
    is_quiet("answer_has_words", &start(), &failed(1).answered("12"));
}

#[test]
fn prompts_with_one_operation_only() {
    let long = "Mo has 5 kites, 7 balls and 9 hoops. Count his toys.";
    let short = failed(1)
        .problem(long)
        .call("print(5 + 7)")
        .result("12", None)
        .answered("12");
    let mut harness = with_examples(2);
    harness.prompts.examples.remove(0);
    fires("two_step_example_missing", &harness, &short);
    is_quiet("two_step_example_missing", &with_examples(2), &short);
    fires("decomposition_skill_missing", &start(), &short);
}

#[test]
fn tools() {
    let bad = Event::BadArguments {
        reason: "no code".to_owned(),
    };
    fires(
        "wrong_arguments",
        &start(),
        &failed(1).reply("{\"name\": \"python\"}", Some(bad)),
    );
    let unknown = Event::UnknownTool {
        name: "calc".to_owned(),
    };
    fires(
        "unknown_tool",
        &start(),
        &failed(1).reply("{\"name\": \"calc\"}", Some(unknown)),
    );
    let record = fires("print_not_described", &start(), &silent());
    assert_eq!(record.evidence.quote, "x = 5 + 7");
    fires("tool_description_vague", &start(), &prose());
    let none = patched(&start(), "T", r#"[{"op":"remove","path":"tools.python"}]"#);
    fires("tool_missing", &none, &prose());
    is_quiet("tool_missing", &start(), &prose());
}

#[test]
fn tool_limits() {
    let limits = r#"[{"op":"replace","path":"tools.python.limits",
        "value":{"timeout_ms":100,"memory_mib":32,"output_chars":20}}]"#;
    let tight = patched(&start(), "T", limits);
    fires("tool_timeout_short", &tight, &error(Exit::TimedOut));
    is_quiet("tool_timeout_short", &start(), &error(Exit::TimedOut));
    fires("tool_memory_small", &tight, &error(Exit::OutOfMemory));
    is_quiet("tool_memory_small", &tight, &error(Exit::Code(1)));
    let cut = failed(1)
        .call("print(3)")
        .result("1234", Some(Event::OutputTruncated));
    fires("tool_output_cut", &tight, &cut);
    is_quiet("tool_output_cut", &start(), &cut);
}

/// Puts one text into a dimension of the starting harness.
pub(super) fn say_in(dim: &str, text: &str) -> Harness {
    let ops = match dim {
        "P" => format!(r#"[{{"op":"replace","path":"prompts.system","value":"Solve. {text}"}}]"#),
        "T" => format!(
            r#"[{{"op":"replace","path":"tools.python.description","value":"Runs it. {text}"}}]"#
        ),
        "S" => format!(
            r#"[{{"op":"add","path":"skills.s","value":
            {{"name":"s","description":"S.","triggers":[],"body":"Go on. {text}"}}}}]"#
        ),
        "Mid" => format!(
            r#"[{{"op":"add","path":"middleware.hooks.post_tool_call",
            "value":{{"type":"append_message","message":"{text}"}}}}]"#
        ),
        _ => format!(
            r#"[{{"op":"replace","path":"memory.kind","value":"notes"}},
            {{"op":"replace","path":"memory.capacity","value":1}},
            {{"op":"add","path":"memory.entries","value":"{text}"}}]"#
        ),
    };
    patched(&start(), dim, &ops)
}

#[test]
fn tools_without_state() {
    let error = "[error] NameError: name 'part' is not defined";
    let exit = Exit::Code(1);
    let lost = failed(1)
        .call("part = 5 * 7\nprint(part)")
        .result("35", None)
        .call("print(part - 3)")
        .result(error, Some(Event::ToolError { exit }));
    let record = fires("state_lost", &start(), &lost);
    assert_eq!(record.evidence.quote, error);
    // A name that nobody has defined isn't lost.
    is_quiet("state_lost", &start(), &self::error(Exit::Code(1)));
}

#[test]
fn answers_with_words_beside_the_number() {
    let words = failed(1)
        .call("print(12)")
        .result("12", None)
        .answered("12 kites");
    let record = fires("answer_has_words", &start(), &words);
    assert_eq!(record.severity, Severity::High);
    is_quiet("wrong_program", &start(), &words);
}

#[test]
fn agent() {
    let clean = failed(1)
        .call("print(7 - 5)")
        .result("2", None)
        .answered("2");
    fires("wrong_program", &start(), &clean);
    is_quiet("wrong_answer", &start(), &clean);
    fires("wrong_answer", &start(), &failed(1).answered("13"));
    is_quiet("wrong_answer", &start(), &prose());
    fires("unexplained", &start(), &failed(1).reply("Hm.", None));
}

/// Where the verifier judges programs, an answer's numbers and words say nothing.
#[test]
fn programs_are_no_values() {
    let program = |text: &str| {
        let mut trajectory = failed(1)
            .system("Solve. The last answer was 17.")
            .call("print(12)")
            .result("12", None)
            .answered(text);
        trajectory.verdict.rule = "python_block".into();
        trajectory
    };
    let noted = patched(&start(), "M", NOTE_17);
    for (rule, harness, text) in [
        (
            "answer_has_words",
            start(),
            "for kite in range(12): print(kite)",
        ),
        ("answer_differs_from_result", start(), "print(14)"),
        ("stale_note", noted, "17"),
        ("wrong_program", start(), "12"),
    ] {
        let mut value = program(text);
        value.verdict.rule = "boxed".into();
        let is_met = super::rule(rule).unwrap().detect(&harness, &value);
        assert!(is_met.is_some(), "{rule} doesn't fire for a value");
        is_quiet(rule, &harness, &program(text));
    }
    is_quiet("final_answer_ignored", &start(), &program("print(14)"));
}

#[test]
fn numbers_in_text() {
    assert_eq!(numbers("1,200 kites, -3 and 4.5."), [1200.0, -3.0, 4.5]);
    assert_eq!(numbers("10-3 and (2)-1"), [10.0, 3.0, 2.0, 1.0]);
}

#[test]
fn quotes_are_short_and_whole_characters() {
    let long = failed(1).reply(&"ü".repeat(500), Some(Event::NoToolCall));
    let record = fires("example_missing", &start(), &long);
    assert_eq!(record.evidence.quote.chars().count(), 200);
}
