//! Finished rollouts under another gold answer or another verifier.

use harness::{CallFormat, Harness, Hook, RetryExit};
use rollout::{ExitReason, Recheck, StepKind, Trajectory, VerifierKind, verifier};

use crate::world::{GOLD, Script, code, printed, reply, script};

/// What scripts are judged by.
const INTEGER: VerifierKind = VerifierKind::Integer;

/// A finished rollout with its harness.
async fn finished(script: Script) -> (Harness, Trajectory) {
    let harness = script.harness.clone();
    (harness, script.play().await.trajectory)
}

/// Judges a rollout anew that was made under the kind `from`; whether it could be.
async fn judge(
    harness: &Harness,
    trajectory: &mut Trajectory,
    from: &VerifierKind,
    kind: &VerifierKind,
    gold: &str,
) -> bool {
    let verifier = verifier::build(kind, None);
    let recheck = Recheck {
        harness,
        kind,
        verifier: verifier.as_ref(),
        gold,
    };
    recheck.judge(trajectory, Some(from)).await
}

fn final_step(trajectory: &Trajectory) -> (&str, bool) {
    let mut steps = trajectory.steps.iter();
    let step = steps.find(|step| step.kind == StepKind::Final);
    let step = step.expect("an end");
    (step.text.as_str(), step.event.is_some())
}

fn numeric() -> VerifierKind {
    VerifierKind::Numeric { tolerance: 1e-6 }
}

#[tokio::test]
async fn another_gold_answer_changes_the_verdict_and_nothing_else() {
    let play = script(CallFormat::Fenced)
        .reply(code("print(5)"))
        .run(printed("5\n"))
        .reply(reply("The answer is \\boxed{5}."));
    let (harness, before) = finished(play).await;
    assert!(!before.verdict.correct);
    let mut after = before.clone();
    assert!(judge(&harness, &mut after, &INTEGER, &INTEGER, "5").await);
    assert!(after.verdict.correct);
    assert_eq!(after.verdict.rule, "boxed");
    after.verdict = before.verdict.clone();
    assert_eq!(after, before);
}

#[tokio::test]
async fn another_verifier_finds_its_own_answer_in_the_final_text() {
    let play = script(CallFormat::Fenced).reply(reply("The capital of France is\nParis"));
    let (harness, mut trajectory) = finished(play).await;
    assert_eq!(trajectory.exit, ExitReason::NoAnswer);
    assert_eq!(final_step(&trajectory), ("", true));
    assert!(
        judge(
            &harness,
            &mut trajectory,
            &INTEGER,
            &VerifierKind::Exact,
            "Paris"
        )
        .await
    );
    assert_eq!(trajectory.exit, ExitReason::Answered);
    assert_eq!(trajectory.answer.as_deref(), Some("Paris"));
    assert_eq!(final_step(&trajectory), ("Paris", false));
    assert!(trajectory.verdict.correct);
    // And back again, to the same record.
    let play = script(CallFormat::Fenced).reply(reply("The capital of France is\nParis"));
    let (_, before) = finished(play).await;
    assert!(
        judge(
            &harness,
            &mut trajectory,
            &VerifierKind::Exact,
            &INTEGER,
            GOLD
        )
        .await
    );
    assert_eq!(
        (trajectory.verdict, trajectory.exit, trajectory.answer),
        (before.verdict, before.exit, before.answer)
    );
}

#[tokio::test]
async fn a_rollout_whose_hooks_act_on_answers_is_made_again_only_where_they_are_read_otherwise() {
    let nudge = Hook::Nudge {
        message: "And the answer?".into(),
        max: 1,
    };
    let retry = |exit| Hook::Retry {
        exits: vec![exit],
        max: 1,
    };
    for (hook, is_asking) in [
        (nudge, true),
        (Hook::AnswerFromLastResult {}, true),
        (retry(RetryExit::NoAnswer), true),
        (retry(RetryExit::TurnLimit), false),
        (Hook::RepairJson {}, false),
    ] {
        let name = hook.kind();
        let play = script(CallFormat::Fenced)
            .hook(hook)
            .reply(reply("The answer is 5."));
        let (harness, before) = finished(play).await;
        let mut after = before.clone();
        assert!(
            judge(&harness, &mut after, &INTEGER, &numeric(), "5").await,
            "{name}: numbers are read alike"
        );
        assert!(after.verdict.correct, "{name}");
        let mut after = before.clone();
        let is_judged = judge(&harness, &mut after, &INTEGER, &VerifierKind::Math, "5").await;
        assert_eq!(is_judged, !is_asking, "{name}");
        assert_eq!(after == before, is_asking, "{name}");
    }
}

#[tokio::test]
async fn a_vote_is_made_again_under_any_other_verifier() {
    let mut play = script(CallFormat::Fenced).hook(Hook::Vote { samples: 2 });
    for _ in 0..2 {
        play = play.reply(reply("The answer is 5."));
    }
    let (harness, mut trajectory) = finished(play).await;
    assert!(!judge(&harness, &mut trajectory, &INTEGER, &numeric(), "5").await);
    assert!(judge(&harness, &mut trajectory, &INTEGER, &INTEGER, "5").await);
    assert!(trajectory.verdict.correct);
}
