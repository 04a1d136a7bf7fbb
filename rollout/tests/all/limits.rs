//! Limits of a rollout, and faults that aren't its own.

use std::time::Duration;

use harness::{CallFormat, Hook};
use rollout::{Event, ExitReason, PolicyError, ToolFault};
use sandbox::{Execution, Exit, SandboxError};

use crate::world::{GOLD, code, cut, printed, reply, script};

const FENCED: CallFormat = CallFormat::Fenced;

#[tokio::test]
async fn a_reply_cut_by_its_limit_is_an_event() {
    let outcome = script(FENCED).reply(cut("First we add 3 and")).play().await;
    assert_eq!(
        outcome.events()[..2],
        [Event::LengthLimit, Event::NoToolCall]
    );

    let outcome = script(FENCED)
        .reply(cut("<think>First we add 3 and"))
        .play()
        .await;
    assert_eq!(outcome.events()[0], Event::ReasoningLimit);
    assert_eq!(outcome.trajectory.answer, None);
    assert_eq!(outcome.trajectory.exit, ExitReason::ReasoningCut);

    // The right answer at the cut may be the beginning of another, and its ids end nowhere.
    let outcome = script(FENCED)
        .reply(cut(&format!("The answer is {GOLD}")))
        .play()
        .await;
    let trajectory = outcome.trajectory;
    assert_eq!(trajectory.exit, ExitReason::ReplyCut);
    assert!(!trajectory.verdict.correct && trajectory.answer.is_none());
    assert!(!trajectory.messages.iter().any(|message| message.train));
    assert!(trajectory.model_calls[0].output_ids.is_empty());
    // A nudge gives it another turn, which continues the ids all the same.
    let outcome = script(FENCED)
        .hook(Hook::Nudge {
            message: "Go on.".into(),
            max: 1,
        })
        .reply(cut(&format!("The answer is {GOLD}")))
        .reply(reply(&format!("The answer is {GOLD}.")))
        .play()
        .await;
    assert!(outcome.trajectory.verdict.correct);
    let prior = outcome.requests[1].prior.as_ref();
    assert_eq!(prior.map(Vec::len), Some(2 + "The answer is 987654".len()));

    // A program that was cut must not run; one whose fence the end of the reply stands for may.
    let outcome = script(FENCED)
        .reply(cut("```python\nprint(1"))
        .reply(reply("```python\nprint(2)"))
        .run(printed("2"))
        .reply(reply("The answer is 2."))
        .play()
        .await;
    assert_eq!(outcome.programs, ["print(2)"]);
    assert!(matches!(outcome.events()[1], Event::UnparsableCall { .. }));
}

#[tokio::test]
async fn budgets_end_a_rollout() {
    let tokens = |most| script(FENCED).with(|script| script.budget.max_tokens = most);
    let outcome = tokens(10).reply(code("1")).run(printed("1")).play().await;
    assert_eq!(outcome.trajectory.exit, ExitReason::TokenBudget);
    assert_eq!(outcome.requests[0].max_tokens, 10);
    assert!(!outcome.trajectory.verdict.correct);
    let outcome = tokens(10).reply(cut("and so on")).play().await;
    assert_eq!(outcome.trajectory.exit, ExitReason::TokenBudget);

    let short = |script: &mut crate::world::Script| script.budget.wall = Duration::from_millis(50);
    let outcome = script(FENCED).with(short).play().await;
    assert_eq!(outcome.trajectory.exit, ExitReason::WallBudget);
    assert!(!outcome.trajectory.verdict.correct);
    // The right answer, of a program that didn't end in time.
    let timed_out = Execution {
        exit: Exit::TimedOut,
        ..printed(GOLD)
    };
    let outcome = script(FENCED)
        .with(short)
        .reply(code("1"))
        .run(timed_out)
        .play()
        .await;
    assert_eq!(outcome.trajectory.exit, ExitReason::WallBudget);
    assert!(!outcome.trajectory.verdict.correct);
}

#[tokio::test]
async fn a_full_context_ends_a_rollout() {
    // The first turn used 110 tokens; 256 more don't fit.
    let outcome = script(FENCED)
        .with(|script| script.harness.middleware.context.max_tokens = 300)
        .reply(code("1"))
        .run(printed("1"))
        .play()
        .await;
    assert_eq!(outcome.trajectory.exit, ExitReason::ContextLimit);
    assert_eq!(outcome.requests.len(), 1);
    // Of the budget 90 are left, for which there is room.
    let outcome = script(FENCED)
        .with(|script| script.harness.middleware.context.max_tokens = 300)
        .with(|script| script.budget.max_tokens = 100)
        .reply(code("1"))
        .run(printed("1"))
        .reply(reply("\\boxed{1}"))
        .play()
        .await;
    assert_eq!(outcome.trajectory.exit, ExitReason::Answered);
    assert_eq!(outcome.requests[1].max_tokens, 90);
    let reason = "too long".to_owned();
    let outcome = script(FENCED)
        .refuse(PolicyError::ContextOverflow { reason })
        .play()
        .await;
    assert_eq!(outcome.trajectory.exit, ExitReason::ContextLimit);
    assert_eq!(
        outcome.events(),
        [Event::ContextLimit, Event::NoFinalAnswer]
    );
}

#[tokio::test]
async fn faults_of_the_surroundings_are_no_wrong_answers() {
    let reason = "connection refused".to_owned();
    let error = PolicyError::Unavailable {
        attempts: 5,
        reason,
    };
    let outcome = script(FENCED).refuse(error).play().await;
    let trajectory = outcome.trajectory;
    assert!(trajectory.exit.is_infrastructure());
    assert!(matches!(
        &trajectory.exit,
        ExitReason::Infrastructure { reason, is_retryable: true, .. } if reason.contains("refused")
    ));
    assert_eq!(trajectory.events().count(), 0);

    let fault = ToolFault {
        source: "no helper".into(),
    };
    let outcome = script(FENCED).reply(code("1")).fault(fault).play().await;
    assert!(matches!(
        outcome.trajectory.exit,
        ExitReason::Infrastructure { reason, .. } if reason == "cannot run the tool: no helper"
    ));
}

/// What the harness asks for and the sandbox can't give is the harness's fault.
#[tokio::test]
async fn a_tool_that_cannot_run_is_a_failed_call() {
    let fault = ToolFault {
        source: Box::new(SandboxError::NoForkServer {
            detail: "not here".into(),
        }),
    };
    let outcome = script(FENCED)
        .reply(code("1"))
        .fault(fault)
        .reply(reply("The answer is 2."))
        .play()
        .await;
    assert_eq!(outcome.trajectory.exit, ExitReason::Answered);
    assert_eq!(
        outcome.events(),
        [Event::ToolError {
            exit: Exit::Code(1)
        }]
    );
    let result = outcome.said()[1];
    assert!(
        result.starts_with("[error] the tool can't run: "),
        "{result}"
    );
}
