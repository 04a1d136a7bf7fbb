use harness::Harness;
use rollout::{Event, ExitReason, Trajectory};
use sandbox::Exit;

use super::view::numbers;
use super::*;
use crate::record::check_evidence;
use crate::testing::{Build, failed, patched, start};

mod good_harnesses;

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
fn what_any_hook_says_is_read() {
    let text = "Never use the tool for this.";
    let ignored = prose().system(&format!("Solve. {text}"));
    for (point, hook) in [
        (
            "on_start",
            r#"{"type":"plan","message":"Plan. TEXT","next":"Go on."}"#,
        ),
        (
            "on_start",
            r#"{"type":"plan","message":"Plan.","next":"Go on. TEXT"}"#,
        ),
        (
            "post_model_call",
            r#"{"type":"nudge","message":"Go on. TEXT","max":1}"#,
        ),
        (
            "on_finish",
            r#"{"type":"verify","prompt":"Check.","sceptics":1,"message":"TEXT","max":1}"#,
        ),
    ] {
        let hook = hook.replace("TEXT", text);
        let path = format!("middleware.hooks.{point}");
        let ops = format!(r#"[{{"op":"add","path":"{path}","value":{hook}}}]"#);
        let harness = patched(&start(), "Mid", &ops);
        let record = fires("message_against_tool", &harness, &ignored);
        assert_eq!(record.evidence.quote, text);
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

#[test]
fn skills() {
    let wrong = failed(1)
        .call("print(7 - 5)")
        .result("2", None)
        .answered("2");
    fires("equation_skill_missing", &start(), &wrong);
    fires("print_skill_missing", &start(), &silent());
    is_quiet("debugging_skill_missing", &start(), &error(Exit::Code(1)));
    let twice = error(Exit::Code(1)).call("print(y)");
    let twice = twice.result(
        "NameError: y",
        Some(Event::ToolError {
            exit: Exit::Code(1),
        }),
    );
    fires("debugging_skill_missing", &start(), &twice);
    let skill = |name: &str| {
        let ops = format!(
            r#"[{{"op":"add","path":"skills.{name}","value":{{"name":"{name}",
                "description":"About {name}.","triggers":["flying"],"body":"Count strings."}}}}]"#
        );
        patched(&start(), "S", &ops)
    };
    let record = fires("skill_not_triggered", &skill("kites"), &prose());
    assert_eq!(
        record.diff_suggestion[0].path.to_string(),
        "skills.kites.triggers"
    );
    is_quiet("skill_not_triggered", &skill("boats"), &prose());
    let shown = prose().system("Solve.\n\nCount strings.");
    is_quiet("skill_not_triggered", &skill("kites"), &shown);
}

#[test]
fn skills_by_topic() {
    let percent = "What is 15 percent of 200 kites?";
    let wrong = |system: &str| {
        failed(1)
            .system(system)
            .problem(percent)
            .call("print(15 * 200)")
            .result("3000", None)
            .answered("3000")
    };
    let record = fires("topic_skill_missing", &start(), &wrong("Solve."));
    assert_eq!(record.diff_suggestion[0].path.to_string(), "skills.percent");
    let skill = r#"[{"op":"add","path":"skills.shares","value":{"name":"shares",
        "description":"Shares.","triggers":["percent"],"body":"Multiply both."}}]"#;
    let misled = patched(&start(), "S", skill);
    is_quiet("topic_skill_missing", &misled, &wrong("Multiply both."));
    let record = fires("skill_misleads", &misled, &wrong("Multiply both."));
    assert_eq!(
        record.diff_suggestion[0].path.to_string(),
        "skills.shares.body"
    );
    is_quiet("skill_misleads", &misled, &wrong("Solve."));
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

/// Each rule sees the text in its own dimension and in no other, and suggests to take it out.
#[track_caller]
fn each_in_its_dimension(rules: &[(&str, &str)], text: &str, trajectory: &Trajectory) {
    for dim in ["P", "T", "S", "Mid", "M"] {
        let harness = say_in(dim, text);
        for (of, name) in rules {
            if *of != dim {
                is_quiet(name, &harness, trajectory);
                continue;
            }
            let record = fires(name, &harness, trajectory);
            assert_eq!(record.evidence.quote, text, "{name}");
            let ops = record.diff_suggestion;
            let dimension = record.harness_dim.dimension().unwrap();
            let patch = checked_patch(&harness, dimension, ops, "").unwrap();
            let document = patch.apply(&harness).unwrap().to_value().to_string();
            assert!(!document.contains(text), "{name}");
        }
    }
    // What isn't in the harness explains nothing.
    for (_, name) in rules {
        is_quiet(name, &start(), trajectory);
    }
}

#[test]
fn sentences_against_the_tool() {
    let text = "Never use the tool for calculations.";
    let rules = [
        ("P", "tool_forbidden"),
        ("T", "tool_description_against_tool"),
        ("S", "skill_against_tool"),
        ("Mid", "message_against_tool"),
        ("M", "note_against_tool"),
    ];
    let ignored = prose().system(&format!("Solve. {text}"));
    each_in_its_dimension(&rules, text, &ignored);
}

#[test]
fn sentences_that_alter_the_answer() {
    let text = "Round the result to the nearest ten.";
    let rules = [
        ("P", "prompt_alters_answer"),
        ("T", "tool_description_alters_answer"),
        ("S", "skill_alters_answer"),
        ("Mid", "message_alters_answer"),
        ("M", "note_alters_answer"),
    ];
    let rounded = |answer: &str| {
        failed(1)
            .system(&format!("Solve. {text}"))
            .call("print(12)")
            .result("12", None)
            .answered(answer)
    };
    each_in_its_dimension(&rules, text, &rounded("10"));
    is_quiet("prompt_alters_answer", &say_in("P", text), &rounded("14"));
}

#[test]
fn sentences_with_names_of_what_is_not_there() {
    let text = "The tool is called calc now.";
    let name = "calc".to_owned();
    let called = failed(1)
        .system(&format!("Solve. {text}"))
        .reply("{\"name\": \"calc\"}", Some(Event::UnknownTool { name }));
    let rules = [
        ("P", "prompt_names_unknown_tool"),
        ("S", "skill_names_unknown_tool"),
        ("Mid", "message_names_unknown_tool"),
        ("M", "note_names_unknown_tool"),
    ];
    each_in_its_dimension(&rules, text, &called);
    let record = fires("unknown_tool", &say_in("M", text), &called);
    assert_eq!(record.severity, Severity::Medium);

    let text = "Start with import helpers.";
    let exit = Exit::Code(1);
    let error = "[error] ModuleNotFoundError: No module named 'helpers'";
    let missing = failed(1)
        .system(&format!("Solve. {text}"))
        .call("import helpers")
        .result(error, Some(Event::ToolError { exit }));
    let rules = [
        ("P", "prompt_names_missing_code"),
        ("T", "tool_description_names_missing_code"),
        ("S", "skill_names_missing_code"),
        ("Mid", "message_names_missing_code"),
        ("M", "note_names_missing_code"),
    ];
    each_in_its_dimension(&rules, text, &missing);
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
fn sentences_that_ask_for_too_much() {
    let text = "Explain everything in at least 300 words.";
    let cut = failed(1)
        .system(&format!("Solve. {text}"))
        .reply("So, to begin with", Some(Event::LengthLimit));
    let rules = [
        ("P", "long_text_asked_for"),
        ("T", "tool_description_asks_for_length"),
        ("S", "skill_asks_for_length"),
        ("Mid", "message_asks_for_length"),
        ("M", "note_asks_for_length"),
    ];
    each_in_its_dimension(&rules, text, &cut);
    is_quiet("long_text_asked_for", &say_in("P", text), &prose());

    let text = "Write the answer in words.";
    let spelled = failed(1)
        .system(&format!("Solve. {text}"))
        .call("print(12)")
        .result("12", None)
        .reply("The answer is twelve.", None);
    let rules = [
        ("P", "prompt_asks_for_words"),
        ("T", "tool_description_asks_for_words"),
        ("S", "skill_asks_for_words"),
        ("Mid", "message_asks_for_words"),
        ("M", "note_asks_for_words"),
    ];
    each_in_its_dimension(&rules, text, &spelled);
    // The loop needn't be blamed for what a sentence explains.
    let blamed = fires("no_answer_after_result", &say_in("M", text), &spelled);
    assert_eq!(blamed.severity, Severity::Medium);
    let blamed = fires("no_answer_after_result", &start(), &spelled);
    assert_eq!(blamed.severity, Severity::High);
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

fn hook_step(trajectory: Trajectory, hook: &str) -> Trajectory {
    let fired = Event::HookFired {
        hook: hook.to_owned(),
    };
    trajectory.with(rollout::StepKind::Hook, "it acted", Some(fired))
}

#[test]
fn middleware_that_takes_results_away() {
    let compact = r#"[{"op":"add","path":"middleware.hooks.pre_model_call",
        "value":{"type":"compact","above_tokens":1,"keep_results":0,"marker":"-"}}]"#;
    let compacting = patched(&start(), "Mid", compact);
    let calm = failed(1).call("print(12)").result("12", None);
    is_quiet("compaction_hides_result", &compacting, &calm);
    let hidden = hook_step(calm, "compact").reply("I see no result.", None);
    fires("compaction_hides_result", &compacting, &hidden);

    let verify = r#"[{"op":"add","path":"middleware.hooks.on_finish","value":
        {"type":"verify","prompt":"Doubt.","sceptics":1,"message":"Again.","max":1}}]"#;
    let doubting = patched(&start(), "Mid", verify);
    let doubted = |first: &str| {
        let first = format!("It is \\boxed{{{first}}}.");
        let reply = failed(1).call("print(12)").result("12", None);
        hook_step(reply.reply(&first, None), "verify").answered("13")
    };
    fires("check_overturns_result", &doubting, &doubted("12"));
    is_quiet("check_overturns_result", &doubting, &doubted("14"));

    let flood = failed(1)
        .call("print(list)")
        .result(&"1\n".repeat(4000), None)
        .exit(ExitReason::ContextLimit);
    fires("output_floods_context", &start(), &flood);
    let full = failed(1).reply("Hm.", None).exit(ExitReason::ContextLimit);
    is_quiet("output_floods_context", &start(), &full);
}

#[test]
fn stop_texts_within_calls() {
    let stop = r#"[{"op":"replace","path":"middleware.protocol.stop","value":["print"]}]"#;
    let stopping = patched(&start(), "Mid", stop);
    let mut cut = failed(1).reply("```python\nx = 12\n", None);
    is_quiet("stop_cuts_call", &stopping, &cut);
    cut.model_calls.push(rollout::ModelCall {
        seed: 1,
        prompt_ids: Vec::new(),
        output_ids: Vec::new(),
        logprobs: Vec::new(),
        usage: rollout::Usage::default(),
        finish: rollout::Finish::StopString,
        finish_reason: None,
        reasoning: String::new(),
    });
    fires("stop_cuts_call", &stopping, &cut);
    is_quiet("stop_cuts_call", &start(), &cut);
    // Before the call as well.
    cut.steps.pop();
    let mute = cut
        .clone()
        .reply("I run a program.", Some(Event::NoToolCall));
    fires("stop_cuts_call", &stopping, &mute);
    let done = cut.call("print(12)").result("12", None).answered("12");
    is_quiet("stop_cuts_call", &stopping, &done);
}

#[test]
fn notes_with_wrong_facts() {
    let noted = say_in("M", "A dozen is 20 things.");
    let used = |code: &str| {
        failed(1)
            .system("Solve. A dozen is 20 things.")
            .call(code)
            .result("140", None)
            .answered("140")
    };
    let record = fires("stale_number", &noted, &used("print(7 * 20)"));
    assert_eq!(record.evidence.quote, "print(7 * 20)");
    is_quiet("stale_number", &noted, &used("print(7 * 12)"));
    is_quiet("stale_number", &start(), &used("print(7 * 20)"));
}

#[test]
fn middleware_and_calls() {
    let fenced = patched(&start(), "Mid", FENCED);
    fires("call_format_unused", &start(), &prose());
    is_quiet("call_format_unused", &fenced, &prose());
    let unparsable = Event::UnparsableCall {
        reason: "no end".to_owned(),
    };
    fires(
        "call_unparsable",
        &start(),
        &failed(1).reply("{\"name\":", Some(unparsable)),
    );
    let code = failed(1).reply(
        "Like so:\n```python\nprint(1)\n```",
        Some(Event::NoToolCall),
    );
    let record = fires("fenced_code_ignored", &start(), &code);
    assert_eq!(record.evidence.quote, "```python");
    is_quiet("fenced_code_ignored", &fenced, &code);
    fires("neither_call_nor_answer", &start(), &prose());
    let on = Event::TextAfterCall { characters: 9 };
    fires(
        "invents_result",
        &start(),
        &failed(1).reply("```\n1\n```\nOutput: 9", Some(on)),
    );
    let hot = r#"[{"op":"replace","path":"middleware.sampling.temperature","value":0.7}]"#;
    fires("sampling_hot", &patched(&start(), "Mid", hot), &prose());
    is_quiet("sampling_hot", &start(), &prose());
}

#[test]
fn calls_that_a_grammar_would_hold() {
    let unread = |text: &str| {
        let reason = "expected value".to_owned();
        failed(1).reply(text, Some(Event::UnparsableCall { reason }))
    };
    let begun = "I calculate.\n{ \"name\": \"python\", \"arguments\": print(12)}";
    let record = fires("call_without_grammar", &start(), &unread(begun));
    assert_eq!(record.severity, Severity::High);
    let field = record.diff_suggestion[0].path.to_string();
    assert_eq!(field, "middleware.protocol.constrained");
    let name = "calc".to_owned();
    let unknown = failed(1).reply("{\"name\": \"calc\"}", Some(Event::UnknownTool { name }));
    let record = fires("call_without_grammar", &start(), &unknown);
    assert_eq!(record.severity, Severity::Medium);
    // What opens no call is free, and the token limit cuts what is held too.
    let other = unread("{\"tool\": \"python\", \"code\": \"print(12)\"");
    is_quiet("call_without_grammar", &start(), &other);
    let cut = unread(begun).reply("", Some(Event::LengthLimit));
    is_quiet("call_without_grammar", &start(), &cut);
    let held = r#"[{"op":"add","path":"middleware.protocol.constrained","value":true}]"#;
    let held = patched(&start(), "Mid", held);
    is_quiet("call_without_grammar", &held, &unread(begun));
    let fenced = patched(&start(), "Mid", FENCED);
    is_quiet("call_without_grammar", &fenced, &unread(begun));
    // A fence has no grammar, so the way to it gives up the one that is there.
    let mut repairs = super::rule("call_unparsable").unwrap().repairs.iter();
    let repair = repairs.find(|repair| repair.name == "fenced").unwrap();
    let patch = repair.patch(&held, harness::Dimension::Mid).unwrap();
    let protocol = patch.apply(&held).unwrap().middleware.protocol;
    assert_eq!(protocol.call_format, harness::CallFormat::Fenced);
    assert!(!protocol.constrained);
}

#[test]
fn middleware_and_results() {
    fires("prints_nothing", &start(), &silent());
    let record = fires("error_without_hint", &start(), &error(Exit::Code(1)));
    assert_eq!(record.evidence.quote, "NameError: name 'x' is not defined");
    let unanswered = failed(1).call("print(12)").result("12", None);
    let record = fires("no_answer_after_result", &start(), &unanswered);
    assert_eq!(record.evidence.quote, "12");
    let differs = failed(1)
        .call("print(12)")
        .result("12", None)
        .answered("14");
    fires("answer_differs_from_result", &start(), &differs);
    let repeated = unanswered.clone().call("print(12)");
    fires("repeated_call", &start(), &repeated);
    is_quiet("repeated_call", &start(), &unanswered);
    let truncate = r#"[{"op":"add","path":"middleware.hooks.post_tool_call",
        "value":{"type":"truncate_output","max_chars":20,"marker":"..."}}]"#;
    let cut = failed(1).call("print(3)").result("1234...", None).with(
        rollout::StepKind::Hook,
        "output of 40 characters was cut",
        Some(Event::HookFired {
            hook: "truncate_output".to_owned(),
        }),
    );
    fires("output_cut", &patched(&start(), "Mid", truncate), &cut);
    is_quiet("output_cut", &start(), &cut);
}

#[test]
fn errors_reminders_and_appended_texts_are_no_output() {
    let refused = failed(1)
        .with(rollout::StepKind::ToolCall, "{}", None)
        .result("[error] there is no tool calc", None);
    is_quiet("no_answer_after_result", &start(), &refused);
    let append = r#"[{"op":"add","path":"middleware.hooks.post_tool_call",
        "value":{"type":"append_message","message":"Answer in 1 line."}}]"#;
    let appended = patched(&start(), "Mid", append);
    let call = failed(1)
        .call("print(12)")
        .result("12\nAnswer in 1 line.", None);
    let record = fires("no_answer_after_result", &appended, &call);
    assert_eq!(record.evidence.quote, "12");
    is_quiet(
        "answer_differs_from_result",
        &appended,
        &call.answered("12"),
    );
}

#[test]
fn middleware_and_limits() {
    let limit = failed(1).reply("Hm.", None).exit(ExitReason::TurnLimit);
    fires("turn_limit", &start(), &limit);
    let open = failed(1).reply("```python\nx = 1 +", Some(Event::LengthLimit));
    fires("reply_cut", &start(), &open);
    is_quiet("reply_rambles", &start(), &open);
    let circles = "So it goes on and then ".to_owned() + &"and then ".repeat(9) + "and th";
    let rambles = failed(1).reply(&circles, Some(Event::LengthLimit));
    fires("reply_rambles", &start(), &rambles);
    is_quiet("solution_cut", &start(), &rambles);
    is_quiet("reply_cut", &start(), &rambles);
    let working = "Let x be the kites. Then x - 5 = 7, so x is 12, and twice as many are";
    let working = failed(1).reply(working, Some(Event::LengthLimit));
    fires("solution_cut", &start(), &working);
    is_quiet("reply_rambles", &start(), &working);
    let thinks = failed(1).reply("<think>Hm", Some(Event::ReasoningLimit));
    fires("reasoning_cut", &start(), &thinks);
    let full = failed(1).reply("Hm.", None).exit(ExitReason::ContextLimit);
    fires("context_full", &start(), &full);
    let spent = failed(1).reply("Hm.", None).exit(ExitReason::TokenBudget);
    fires("budget_spent", &start(), &spent);
    is_quiet("budget_spent", &start(), &full);
}

#[test]
fn memory() {
    let noted = patched(&start(), "M", NOTE_17);
    fires("memory_full", &noted, &prose());
    is_quiet("memory_full", &start(), &prose());
    let told = "Solve. The last answer was 17.";
    let stale = failed(1).system(told).answered("17");
    let record = fires("stale_note", &noted, &stale);
    assert_eq!(
        record.diff_suggestion[0].path.to_string(),
        "memory.entries[0]"
    );
    let calculated = failed(1)
        .system(told)
        .call("print(17)")
        .result("17", None)
        .answered("17");
    is_quiet("stale_note", &noted, &calculated);
    let mut filled = noted.clone();
    let long = "kites ".repeat(1000);
    let full = |system: &str| {
        let reply = failed(1).system(system).reply("Hm.", None);
        reply.exit(ExitReason::ContextLimit)
    };
    filled.memory.entries = vec![long.clone()];
    fires("notes_fill_context", &filled, &full(&long));
    // Of many notes a few are shown.
    is_quiet("notes_fill_context", &filled, &full("Solve."));
    fires("print_lesson_not_kept", &start(), &silent());
    fires("protocol_lesson_not_kept", &start(), &prose());
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
