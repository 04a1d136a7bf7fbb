//! Hooks at the beginning and at the end of a rollout: plans, new beginnings, checks, votes.

use harness::{CallFormat, Hook, RetryExit};
use rollout::{Event, ExitReason};

use crate::world::{GOLD, code, cut, failed, fired, printed, reply, script};

const FENCED: CallFormat = CallFormat::Fenced;

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
