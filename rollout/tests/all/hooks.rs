//! Each hook at its point: what it changes, and that its firing is recorded.

use harness::{CallFormat, Hook};
use rollout::{Event, ExitReason, StepKind};

use crate::world::{code, failed, fired, printed, reply, script};

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
