//! Sentences that mislead, in whatever dimension they stand.

use super::*;

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

/// What a hook does in the loop is not to be lost with its message.
#[test]
fn hooks_that_are_of_use_with_another_message() {
    let text = "Rewrite the program in Ruby.";
    let exit = Exit::Code(1);
    let refused = failed(1)
        .system(&format!("Solve. {text}"))
        .call("puts 12")
        .result(
            "[error] SyntaxError: invalid syntax",
            Some(Event::ToolError { exit }),
        );
    let texts = &crate::catalogue::catalogue().texts.hooks;
    for (point, kind, shipped) in [
        ("on_tool_error", "error_hint", Some(&texts.error)),
        (
            "post_tool_call",
            "empty_output_hint",
            Some(&texts.empty_output),
        ),
        ("pre_tool_call", "detect_repeat", Some(&texts.repeat)),
        ("post_tool_call", "append_message", None),
    ] {
        let path = format!("middleware.hooks.{point}");
        let hook = format!(r#"{{"type":"{kind}","message":"{text}"}}"#);
        let ops = format!(r#"[{{"op":"add","path":"{path}","value":{hook}}}]"#);
        let harness = patched(&start(), "Mid", &ops);
        let record = fires("message_names_missing_code", &harness, &refused);
        let dimension = harness::Dimension::Mid;
        let patch = checked_patch(&harness, dimension, record.diff_suggestion, "").unwrap();
        let after = patch.apply(&harness).unwrap().to_value();
        let hooks = &after["middleware"]["hooks"][point];
        assert_eq!(
            hooks[0]["message"].as_str(),
            shipped.map(String::as_str),
            "{kind}"
        );
    }
}
