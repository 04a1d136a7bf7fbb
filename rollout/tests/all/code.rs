//! Programs as answers: what is made of what the sandbox says, and what a trajectory shows of it.
//! Real programs run in the binary's tests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::CallFormat;
use rollout::verifier::code::CodeLimits;
use rollout::verifier::{Failure, Outcome};
use rollout::{BoxFuture, ExitReason, ToolFault, ToolRunner, Verifier, VerifierKind, verifier};
use sandbox::{Execution, Exit, SandboxPolicy};

use crate::world::{failed, printed, reply, script};

const TESTS: &str =
    r#"[{"stdin":"1 2","stdout":"3"},{"stdin":"secret-input","stdout":"secret-output"}]"#;
const PROGRAM: &str = "```python\nprint(3)\n```";

/// Plays executions and keeps what it was asked to run.
struct Scripted {
    executions: Mutex<VecDeque<Option<Execution>>>,
    asked: Mutex<Vec<(String, SandboxPolicy)>>,
}

impl ToolRunner for Scripted {
    fn run_python<'a>(
        &'a self,
        code: &'a str,
        policy: &'a SandboxPolicy,
    ) -> BoxFuture<'a, Result<Execution, ToolFault>> {
        self.asked
            .lock()
            .expect("lock")
            .push((code.to_owned(), policy.clone()));
        let next = self.executions.lock().expect("lock").pop_front();
        let result = next
            .expect("the script has an execution")
            .ok_or_else(|| ToolFault {
                source: "no box".into(),
            });
        Box::pin(async move { result })
    }
}

fn judge_of(executions: Vec<Option<Execution>>) -> (Arc<dyn Verifier>, Arc<Scripted>) {
    let runner = Arc::new(Scripted {
        executions: Mutex::new(executions.into()),
        asked: Mutex::default(),
    });
    let limits = CodeLimits {
        timeout_ms: 1500,
        memory_mib: 300,
    };
    let kind = VerifierKind::Code(limits);
    let verifier = verifier::build(&kind, Some(Arc::clone(&runner) as Arc<dyn ToolRunner>));
    (verifier, runner)
}

/// Outcome, the failed test, and how many programs were run.
async fn judged(executions: Vec<Option<Execution>>) -> (Outcome, Option<(usize, Failure)>, usize) {
    let (verifier, runner) = judge_of(executions);
    let assessment = verifier.assess(TESTS, PROGRAM).await;
    assert_eq!(assessment.rule, "python_block");
    let failed = assessment.failed_test.map(|test| {
        assert_eq!(test.of, 2);
        (test.number, test.failure)
    });
    let runs = runner.asked.lock().expect("lock").len();
    (assessment.outcome.expect("an answer"), failed, runs)
}

fn ended(exit: Exit) -> Option<Execution> {
    Some(Execution {
        exit,
        ..printed("3")
    })
}

fn timed_out_after(ms: u64) -> Option<Execution> {
    Some(Execution {
        exit: Exit::TimedOut,
        duration: Duration::from_millis(ms),
        ..printed("3")
    })
}

#[tokio::test]
async fn tests_decide_one_after_the_other() {
    let three = || Some(printed("3\n"));
    let right = || Some(printed("secret-output \n\n"));
    assert_eq!(
        judged(vec![three(), right()]).await,
        (Outcome::Equal, None, 2)
    );
    assert_eq!(
        judged(vec![three(), three()]).await,
        (Outcome::Different, Some((2, Failure::WrongOutput)), 2)
    );
    for (execution, failure) in [
        (Some(printed("4")), Failure::WrongOutput),
        (Some(failed("ValueError")), Failure::Error),
        (ended(Exit::Code(1)), Failure::Error),
        (ended(Exit::Signal(9)), Failure::Error),
        (ended(Exit::OutOfMemory), Failure::OutOfMemory),
        (timed_out_after(1600), Failure::TimedOut),
        (
            Some(Execution {
                is_truncated: true,
                ..printed("3")
            }),
            Failure::TooMuchOutput,
        ),
    ] {
        let expected = (Outcome::Different, Some((1, failure)), 1);
        assert_eq!(judged(vec![execution]).await, expected, "{failure:?}");
    }
}

#[tokio::test]
async fn what_the_machine_does_isnt_the_programs_fault() {
    let right = || Some(printed("secret-output"));
    // A fault that passes.
    assert_eq!(
        judged(vec![None, Some(printed("3")), right()]).await,
        (Outcome::Equal, None, 3)
    );
    // One that stays.
    assert_eq!(
        judged(vec![Some(printed("3")), None, None]).await,
        (Outcome::Undecided, Some((2, Failure::Sandbox)), 3)
    );
    // Out of wall time without having had its processor time: once more, alone.
    assert_eq!(
        judged(vec![timed_out_after(4501), Some(printed("3")), right()]).await,
        (Outcome::Equal, None, 3)
    );
    assert_eq!(
        judged(vec![timed_out_after(4501), timed_out_after(4502)]).await,
        (Outcome::Different, Some((1, Failure::TimedOut)), 2)
    );
}

#[tokio::test]
async fn programs_get_their_limits_and_their_input_and_nothing_that_is_expected() {
    let (verifier, runner) = judge_of(vec![Some(printed("3")), Some(printed("no"))]);
    let assessment = verifier.assess(TESTS, PROGRAM).await;
    assert_eq!(assessment.outcome, Some(Outcome::Different));
    let asked = runner.asked.lock().expect("lock");
    for (code, policy) in asked.iter() {
        assert!(!code.contains("secret-output"));
        assert_eq!(policy.cpu, Duration::from_millis(1500));
        assert_eq!(policy.wall, Duration::from_millis(4500));
        assert_eq!((policy.memory_mib, policy.processes), (300, 1));
    }
    assert!(asked[1].0.contains("secret-input"));
}

#[tokio::test]
async fn gold_answers_that_are_no_tests_are_told() {
    let (verifier, _) = judge_of(Vec::new());
    assert!(verifier.can_read(TESTS));
    for gold in ["42", "[]", "[{\"stdin\": \"1\"}]"] {
        assert!(!verifier.can_read(gold), "{gold}");
        let assessment = verifier.assess(gold, PROGRAM).await;
        assert_eq!(assessment.outcome, Some(Outcome::Different), "{gold}");
    }
    let assessment = verifier.assess(TESTS, "I don't know.").await;
    assert_eq!(assessment.name(), "no_answer");
}

/// In a rollout, a program is an answer where a fenced block is no call, and the record shows
/// neither what the tests read nor what they expect.
#[tokio::test]
async fn a_rollout_may_end_in_a_program() {
    let (verifier, _) = judge_of(vec![Some(printed("3")), Some(printed("secret-output"))]);
    let outcome = script(CallFormat::Json)
        .with(|script| {
            script.verifier = Some(verifier);
            script.task.answer = TESTS.into();
        })
        .reply(reply(
            r#"{"name": "python", "arguments": {"code": "print(1 + 2)"}}"#,
        ))
        .run(printed("3\n"))
        .reply(reply(&format!("So:\n{PROGRAM}\nThat is it.")))
        .play()
        .await;
    let trajectory = outcome.trajectory;
    assert_eq!(trajectory.exit, ExitReason::Answered);
    assert!(trajectory.verdict.correct && !trajectory.verdict.undecided);
    assert_eq!(trajectory.verdict.rule, "python_block");
    assert_eq!(trajectory.answer.as_deref(), Some("print(3)\n"));
    let record = serde_json::to_string(&trajectory).expect("text");
    assert!(!record.contains("secret"), "{record}");
}

#[tokio::test]
async fn a_verdict_that_the_machine_kept_from_being_found_is_undecided() {
    let (verifier, _) = judge_of(vec![None, None]);
    let outcome = script(CallFormat::Json)
        .with(|script| {
            script.verifier = Some(verifier);
            script.task.answer = TESTS.into();
        })
        .reply(reply(PROGRAM))
        .play()
        .await;
    let verdict = outcome.trajectory.verdict;
    assert!(!verdict.correct && verdict.undecided);
}
