//! Faults of the loop: calls, hooks and limits.

use super::*;

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
    // Noise that spends the budget weighs more than the spent budget does.
    let endless = failed(1)
        .reply("So kites", None)
        .exit(ExitReason::TokenBudget);
    for (temperature, expected) in [("0.7", Severity::Low), ("1.4", Severity::High)] {
        let hot = hot.replace("0.7", temperature);
        let record = fires("sampling_hot", &patched(&start(), "Mid", &hot), &endless);
        assert_eq!(record.severity, expected, "{temperature}");
    }
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
