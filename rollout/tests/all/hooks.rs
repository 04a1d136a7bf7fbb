//! Each hook at its point: what it changes, and that its firing is recorded.

use harness::{CallFormat, Hook, RetryExit};
use rollout::{Event, ExitReason, StepKind};

use crate::world::{GOLD, code, cut, failed, fired, printed, reply, script};

const FENCED: CallFormat = CallFormat::Fenced;

#[tokio::test]
async fn repair_json_mends_a_call() {
    let outcome = script(CallFormat::Json)
        .hook(Hook::RepairJson {})
        .reply(reply(
            "{'name': 'python', 'arguments': {'code': 'print(1)',}",
        ))
        .run(printed("1"))
        .reply(reply(
            r#"{"name": "python", "arguments": {"code": "print(2)"}}"#,
        ))
        .run(printed("2"))
        .reply(reply("The answer is 2."))
        .play()
        .await;
    assert_eq!(outcome.programs, ["print(1)", "print(2)"]);
    assert_eq!(outcome.events(), [fired("repair_json")]);
}

#[tokio::test]
async fn extract_fenced_code_takes_a_block_as_a_call() {
    for format in [CallFormat::Json, CallFormat::Xml] {
        let play = |script: crate::world::Script| {
            script
                .reply(code("print(1)"))
                .run(printed("1"))
                .reply(reply("The answer is 1."))
                .play()
        };
        let outcome = play(script(format).hook(Hook::ExtractFencedCode {})).await;
        assert_eq!(outcome.programs, ["print(1)"]);
        assert_eq!(outcome.events(), [fired("extract_fenced_code")]);
        let outcome = play(script(format)).await;
        assert!(outcome.programs.is_empty());
        assert_eq!(outcome.events()[0], Event::NoToolCall);
    }
}

#[tokio::test]
async fn nudge_asks_as_often_as_it_may() {
    let nudge = || Hook::Nudge {
        message: "Call the tool.".into(),
        max: 1,
    };
    let outcome = script(FENCED)
        .hook(nudge())
        .reply(reply("First, I add 3 and 4."))
        .reply(code("print(7)"))
        .run(printed("7"))
        .reply(reply("That makes 7."))
        .play()
        .await;
    assert_eq!(outcome.events(), [Event::NoToolCall, fired("nudge")]);
    assert_eq!(outcome.said()[1], "Call the tool.");
    assert_eq!(outcome.trajectory.answer.as_deref(), Some("7"));

    let outcome = script(FENCED)
        .hook(nudge())
        .reply(reply("Well."))
        .reply(reply("Well."))
        .play()
        .await;
    assert_eq!(outcome.trajectory.exit, ExitReason::NoAnswer);
    let outcome = script(FENCED)
        .hook(nudge())
        .reply(reply("The answer is 7."))
        .play()
        .await;
    assert_eq!(outcome.events(), [Event::NoToolCall]);
}

#[tokio::test]
async fn force_final_answer_speaks_before_the_last_turn() {
    let message = "Now the answer.";
    let outcome = script(FENCED)
        .with(|script| script.harness.middleware.protocol.max_turns = 2)
        .hook(Hook::ForceFinalAnswer {
            message: message.into(),
        })
        .reply(code("print(7)"))
        .run(printed("7"))
        .reply(reply("The answer is 7."))
        .play()
        .await;
    assert_eq!(outcome.events(), [fired("force_final_answer")]);
    let last = outcome.requests[1].messages.last().expect("message");
    assert_eq!(last.content, message);
    assert!(
        outcome.requests[0]
            .messages
            .iter()
            .all(|m| m.content != message)
    );
}

#[tokio::test]
async fn auto_print_wraps_the_program_and_reads_its_marker() {
    let hook = || Hook::AutoPrintLastExpression {};
    let outcome = script(FENCED)
        .hook(hook())
        .reply(code("3 + 4"))
        .run(printed("7\n"))
        .reply(reply("The answer is 7."))
        .play()
        .await;
    let program = &outcome.programs[0];
    assert!(program.contains(r#"_run("3 + 4", "#), "{program}");
    // The program as the policy wrote it is what the record shows.
    let call = outcome
        .trajectory
        .steps
        .iter()
        .find(|step| step.kind == StepKind::ToolCall);
    assert_eq!(call.expect("call").text, "3 + 4");
    assert_eq!(
        outcome.events(),
        [],
        "nothing on standard error says that a value was printed"
    );

    let marker = program.rsplit('"').nth(1).expect("marker");
    let mut marked = printed("7\n");
    marked.stderr = format!("warning\n{marker}\n");
    let outcome = script(FENCED)
        .hook(hook())
        .reply(code("3 + 4"))
        .run(marked)
        .reply(reply("The answer is 7."))
        .play()
        .await;
    assert_eq!(outcome.events(), [fired("auto_print_last_expression")]);
}

#[tokio::test]
async fn detect_repeat_stands_in_for_the_second_run() {
    let message = "You ran this before.";
    let outcome = script(FENCED)
        .hook(Hook::DetectRepeat {
            message: message.into(),
        })
        .reply(code("print(7)"))
        .run(printed("7"))
        .reply(code("print(7)"))
        .reply(reply("The answer is 7."))
        .play()
        .await;
    assert_eq!(outcome.programs.len(), 1);
    assert_eq!(
        outcome.events(),
        [Event::RepeatedCall, fired("detect_repeat")]
    );
    assert_eq!(outcome.said()[3], message);
}

#[tokio::test]
async fn truncate_output_keeps_both_ends() {
    let outcome = script(FENCED)
        .hook(Hook::TruncateOutput {
            max_chars: 6,
            marker: "[..]".into(),
        })
        .hook(Hook::AppendMessage {
            message: "Go on.".into(),
        })
        .reply(code("print('aaaüzzzz')"))
        .run(printed("aaaü---zzzz"))
        .reply(reply("The answer is 7."))
        .play()
        .await;
    assert_eq!(outcome.said()[1], "aaa[..]zzz\nGo on.");
    assert_eq!(
        outcome.events(),
        [fired("truncate_output"), fired("append_message")]
    );
}

#[tokio::test]
async fn empty_output_and_errors_get_their_hints() {
    let outcome = script(FENCED)
        .hook(Hook::EmptyOutputHint {
            message: "Print the result.".into(),
        })
        .hook(Hook::ErrorHint {
            message: "Fix it.".into(),
        })
        .reply(code("x = 1"))
        .run(printed(""))
        .reply(code("y"))
        .run(failed("NameError: y"))
        .reply(reply("The answer is 7."))
        .play()
        .await;
    assert_eq!(outcome.said()[1], "Print the result.");
    assert_eq!(outcome.said()[3], "[error] NameError: y\nFix it.");
    let events = outcome.events();
    assert_eq!(
        events[..2],
        [Event::EmptyOutput, fired("empty_output_hint")]
    );
    assert!(matches!(events[2], Event::ToolError { .. }));
    assert_eq!(events[3], fired("error_hint"));
}

#[tokio::test]
async fn answer_from_last_result_takes_the_last_line_that_a_program_printed() {
    let play = |script: crate::world::Script| {
        script
            .with(|script| script.harness.middleware.protocol.max_turns = 2)
            .reply(code("print(987654)"))
            .run(printed("working\n987654\n\n"))
            .reply(code("y"))
            .run(failed("NameError: 5"))
            .play()
    };
    let outcome = play(script(FENCED).hook(Hook::AnswerFromLastResult {})).await;
    let trajectory = &outcome.trajectory;
    assert!(trajectory.verdict.correct);
    assert_eq!(trajectory.verdict.rule, "last_result");
    assert_eq!(trajectory.exit, ExitReason::TurnLimit);
    let events = outcome.events();
    assert_eq!(
        events[events.len() - 2..],
        [fired("answer_from_last_result"), Event::NoFinalAnswer]
    );
    let outcome = play(script(FENCED)).await;
    assert_eq!(outcome.trajectory.answer, None);

    // An answer in the final text is never replaced.
    let outcome = script(FENCED)
        .hook(Hook::AnswerFromLastResult {})
        .reply(code("print(987654)"))
        .run(printed("987654"))
        .reply(reply("The answer is 3."))
        .play()
        .await;
    assert_eq!(outcome.trajectory.answer.as_deref(), Some("3"));
}

#[tokio::test]
async fn compact_puts_a_marker_where_older_results_were() {
    let play = |above_tokens| {
        script(FENCED)
            .hook(Hook::Compact {
                above_tokens,
                keep_results: 1,
                marker: "[gone]".into(),
            })
            .reply(code("print('first')"))
            .run(printed("the first result"))
            .reply(code("print('second')"))
            .run(printed("the second result"))
            .reply(reply("The answer is 7."))
            .play()
    };
    let outcome = play(100).await;
    assert_eq!(outcome.events(), [fired("compact")]);
    let last = &outcome.requests[2];
    let said: Vec<&str> = last
        .messages
        .iter()
        .map(|message| message.content.as_str())
        .collect();
    assert_eq!(said[3], "[gone]");
    assert_eq!(said[5], "the second result");
    // The ids of the longer conversation are no beginning of this one.
    assert_eq!(
        (&last.prior, outcome.requests[1].prior.is_some()),
        (&None, true)
    );
    // The record has what happened.
    let has = |text: &str| {
        outcome
            .trajectory
            .steps
            .iter()
            .any(|step| step.text == text)
    };
    assert!(has("the first result") && has("1 older results were replaced"));
    assert_eq!(play(1000).await.events(), []);
}

#[tokio::test]
async fn retry_begins_again_after_the_exits_it_names() {
    let play = |exits: Vec<RetryExit>| {
        script(FENCED)
            .hook(Hook::Retry { exits, max: 1 })
            .reply(code("print(7)"))
            .run(printed("7"))
            .reply(cut(&format!("The answer is {GOLD}")))
            .reply(reply(&format!("The answer is {GOLD}.")))
            .play()
    };
    let outcome = play(vec![RetryExit::NoAnswer, RetryExit::ReplyCut]).await;
    let trajectory = &outcome.trajectory;
    assert!(trajectory.verdict.correct);
    assert_eq!(trajectory.exit, ExitReason::Answered);
    assert_eq!(outcome.said(), [format!("The answer is {GOLD}.")]);
    assert!(outcome.events().contains(&fired("retry")));
    assert_eq!(outcome.requests[2].messages, outcome.requests[0].messages);
    assert_ne!(outcome.requests[2].seed, outcome.requests[0].seed);
    // All of it was paid for, and only the second beginning is learnt from.
    assert_eq!(trajectory.usage.completion_tokens, 30);
    let ids: Vec<bool> = trajectory
        .model_calls
        .iter()
        .map(|call| call.output_ids.is_empty())
        .collect();
    assert_eq!(ids, [true, true, false]);

    let outcome = play(vec![RetryExit::TurnLimit]).await;
    assert_eq!(outcome.trajectory.exit, ExitReason::ReplyCut);
    let outcome = script(FENCED)
        .hook(Hook::Retry {
            exits: vec![RetryExit::NoAnswer],
            max: 1,
        })
        .reply(reply("Hm."))
        .reply(reply("Hm."))
        .play()
        .await;
    assert_eq!(
        (outcome.requests.len(), outcome.trajectory.exit),
        (2, ExitReason::NoAnswer)
    );
}

#[tokio::test]
async fn verify_asks_sceptics_apart_from_the_conversation() {
    let hook = || Hook::Verify {
        prompt: "Say RIGHT or WRONG.".into(),
        sceptics: 3,
        message: "Look again.".into(),
        max: 1,
    };
    let outcome = script(FENCED)
        .hook(hook())
        .reply(reply("<think>secret</think>The answer is 3."))
        .reply(reply("I find it RIGHT? No.\nWRONG"))
        .reply(reply("It is right."))
        .reply(reply("<think>RIGHT</think>Wrong."))
        .reply(reply(&format!("The answer is {GOLD}.")))
        .play()
        .await;
    let trajectory = &outcome.trajectory;
    assert!(trajectory.verdict.correct);
    assert_eq!(
        outcome.said()[1..],
        ["Look again.".to_owned(), format!("The answer is {GOLD}.")]
    );
    assert!(outcome.events().contains(&fired("verify")));
    let check = &outcome.requests[1].messages;
    assert_eq!(check[0].content, "Say RIGHT or WRONG.");
    assert_eq!(
        check[1].content,
        "Problem:\nHow many?\n\nSolution:\nThe answer is 3."
    );
    let seeds: std::collections::BTreeSet<u64> = outcome
        .requests
        .iter()
        .map(|request| request.seed)
        .collect();
    assert_eq!(seeds.len(), 5);
    let calls = trajectory.model_calls.iter();
    let ids: Vec<bool> = calls.map(|call| call.output_ids.is_empty()).collect();
    assert_eq!(ids, [false, true, true, true, false]);

    // A tie is no majority, and neither is silence.
    let outcome = script(FENCED)
        .hook(hook())
        .reply(reply("The answer is 3."))
        .reply(reply("WRONG"))
        .reply(reply("Well."))
        .reply(reply("RIGHT"))
        .play()
        .await;
    assert_eq!(outcome.trajectory.exit, ExitReason::Answered);
    assert!(!outcome.events().contains(&fired("verify")));
    let has = |text: &str| {
        outcome
            .trajectory
            .steps
            .iter()
            .any(|step| step.text == text)
    };
    assert!(has("1 of 3 checks doubt the answer"));
}

#[tokio::test]
async fn vote_takes_the_answer_that_most_samples_give() {
    let vote = |samples| script(FENCED).hook(Hook::Vote { samples });
    let outcome = vote(4)
        .reply(reply("The answer is 3."))
        .reply(reply(&format!("It is \\boxed{{{GOLD}}}.")))
        .reply(reply("I don't know."))
        .reply(reply("The answer is 987,654."))
        .play()
        .await;
    let trajectory = &outcome.trajectory;
    assert!(trajectory.verdict.correct);
    assert_eq!(trajectory.answer.as_deref(), Some(GOLD));
    assert_eq!(trajectory.usage.completion_tokens, 40);
    assert_eq!(trajectory.model_calls.len(), 1);
    assert!(outcome.events().contains(&fired("vote")));
    let texts: Vec<&str> = trajectory
        .steps
        .iter()
        .map(|step| step.text.as_str())
        .collect();
    assert!(texts.contains(&"2 of 4 samples answer 987654"), "{texts:?}");
    let seeds: std::collections::BTreeSet<u64> = outcome
        .requests
        .iter()
        .map(|request| request.seed)
        .collect();
    assert_eq!(seeds.len(), 4);

    // The budget is one for all samples.
    let outcome = vote(64)
        .with(|script| script.budget.max_tokens = 15)
        .reply(reply("The answer is 3."))
        .reply(cut("The"))
        .play()
        .await;
    assert_eq!(outcome.requests[1].max_tokens, 5);
    assert_eq!(outcome.requests.len(), 2);
    assert_eq!(outcome.trajectory.answer.as_deref(), Some("3"));

    // A fault in one sample is one of the rollout.
    let reason = "gone".to_owned();
    let outcome = vote(2)
        .reply(reply("The answer is 3."))
        .refuse(rollout::PolicyError::Unavailable {
            attempts: 1,
            reason,
        })
        .play()
        .await;
    assert!(outcome.trajectory.exit.is_infrastructure() && outcome.trajectory.answer.is_none());
}

fn plan() -> Hook {
    Hook::Plan {
        message: "Write a plan first.".into(),
        next: "Now do it.".into(),
    }
}

#[tokio::test]
async fn a_plan_stays_in_the_conversation_and_takes_no_turn() {
    let outcome = script(FENCED)
        .hook(plan())
        .with(|script| script.harness.middleware.protocol.max_turns = 2)
        // What looks like a call in a plan is none.
        .reply(reply("I run this:\n```python\nprint(1)\n```"))
        .reply(code("print(7)"))
        .run(printed("7"))
        .reply(reply("The answer is 7."))
        .play()
        .await;
    assert_eq!(outcome.trajectory.exit, ExitReason::Answered);
    assert_eq!(outcome.events(), [fired("plan")]);
    assert_eq!(outcome.programs, ["print(7)"]);
    let said = outcome.said();
    assert_eq!(said[0], "Write a plan first.");
    assert!(said[1].starts_with("I run this:"));
    assert_eq!(said[2], "Now do it.");
    // The plan is the policy's own, and the first turn goes on from its ids.
    assert!(outcome.trajectory.messages[3].train);
    let first = &outcome.trajectory.model_calls[0];
    let prior = [first.prompt_ids.clone(), first.output_ids.clone()].concat();
    assert_eq!(outcome.requests[1].prior, Some(prior));
    assert!(outcome.requests[0].tools.is_empty());
}

#[tokio::test]
async fn a_plan_is_no_answer_whatever_becomes_of_it() {
    let overflow = || rollout::PolicyError::ContextOverflow {
        reason: "long".into(),
    };
    let said = "The answer is \\boxed{987654}.";
    // The conversation ends before the first turn.
    let outcome = script(FENCED)
        .hook(plan())
        .reply(reply(said))
        .refuse(overflow())
        .play()
        .await;
    assert_eq!(outcome.trajectory.exit, ExitReason::ContextLimit);
    assert!(outcome.trajectory.answer.is_none() && !outcome.trajectory.verdict.correct);
    // One that was cut is nobody's to learn; one that says nothing isn't there.
    for (plan_reply, is_kept) in [(cut(said), true), (reply(" "), false)] {
        let outcome = script(FENCED)
            .hook(plan())
            .reply(plan_reply)
            .reply(reply("The answer is 5."))
            .play()
            .await;
        let trajectory = &outcome.trajectory;
        assert_eq!(trajectory.answer.as_deref(), Some("5"));
        let trained = trajectory.messages.iter().filter(|message| message.train);
        assert_eq!(trained.count(), 1);
        assert!(trajectory.model_calls[0].output_ids.is_empty());
        assert_eq!(outcome.said().contains(&said), is_kept);
    }
}

#[tokio::test]
async fn a_rollout_that_begins_again_plans_again() {
    let outcome = script(FENCED)
        .hook(plan())
        .hook(Hook::Retry {
            exits: vec![RetryExit::NoAnswer],
            max: 1,
        })
        .reply(reply("A plan."))
        .reply(reply("Well."))
        .reply(reply("A better plan."))
        .reply(reply("The answer is 7."))
        .play()
        .await;
    assert_eq!(outcome.trajectory.answer.as_deref(), Some("7"));
    assert_eq!(outcome.said()[1], "A better plan.");
}
