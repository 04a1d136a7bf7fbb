//! Answers as programs, judged by tests that run in the sandbox.
//!
//! The gold answer is a list of tests ([`cases`]). What a test expects stays outside the sandbox: a
//! program gets its input and nothing else, and what it prints is compared here.

mod block;
pub mod cases;
mod script;

use std::sync::Arc;
use std::time::Duration;

use sandbox::{Execution, Exit, SandboxPolicy};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::{Comparison, Extracted, Outcome, Verifier};
use crate::policy::BoxFuture;
use crate::tools::{ToolFault, ToolRunner};
pub(super) use block::without_programs;
use cases::TestCase;

/// Wall time of a test, in multiples of its processor time. On a busy machine a program waits; one
/// that sleeps or waits for nothing is ended here.
const WALL_FACTOR: u32 = 3;
/// Least bytes that a program may print.
const LEAST_OUTPUT: usize = 1 << 20;

/// What a test may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CodeLimits {
    /// Processor time of one test in milliseconds; the kernel counts whole seconds, rounded up. A
    /// program that needs more is wrong.
    pub timeout_ms: u64,
    /// Memory in MiB. A program that needs more is wrong.
    pub memory_mib: u64,
}

impl Default for CodeLimits {
    fn default() -> Self {
        CodeLimits {
            timeout_ms: 10_000,
            memory_mib: 1024,
        }
    }
}

/// The first test that a program failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FailedTest {
    /// Which one, from 1.
    pub number: usize,
    /// How many there are.
    pub of: usize,
    /// How.
    pub failure: Failure,
}

/// How a program failed a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// It printed something else.
    WrongOutput,
    /// It ended with an error, or was killed.
    Error,
    /// It ran too long.
    TimedOut,
    /// It needed too much memory.
    OutOfMemory,
    /// It printed too much.
    TooMuchOutput,
    /// The sandbox failed: nothing is known of the program.
    Sandbox,
}

/// Runs programs on tests.
pub(super) struct CodeVerifier {
    limits: CodeLimits,
    runner: Option<Arc<dyn ToolRunner>>,
    /// As many programs are judged at a time as there are processors: more would only make each
    /// other late.
    places: Arc<Semaphore>,
    /// How many there are.
    count: u32,
}

impl CodeVerifier {
    pub(super) fn new(limits: CodeLimits, runner: Option<Arc<dyn ToolRunner>>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let count = u32::try_from(processors).unwrap_or(1);
        CodeVerifier {
            limits,
            runner,
            places: Arc::new(Semaphore::new(processors)),
            count,
        }
    }

    /// Runs the tests in their order up to the first that fails.
    async fn failed_test(&self, cases: &[TestCase], program: &str) -> Option<FailedTest> {
        for (index, case) in cases.iter().enumerate() {
            let failure = match self.run(case, program).await {
                Ok(execution) => failure(case, &execution),
                Err(error) => {
                    tracing::warn!(error = %crate::agent::with_causes(&error), "test can't be run");
                    Some(Failure::Sandbox)
                }
            };
            if let Some(failure) = failure {
                return Some(FailedTest {
                    number: index + 1,
                    of: cases.len(),
                    failure,
                });
            }
        }
        None
    }

    /// Runs one test. A program that ran out of wall time, not of processor time, may have been kept
    /// waiting: it gets a second run with no other beside it.
    async fn run(&self, case: &TestCase, program: &str) -> Result<Execution, ToolFault> {
        let script = script::of(program, case);
        let policy = self.policy(case);
        let execution = {
            let _place = self.places.acquire().await;
            self.run_once(&script, &policy).await?
        };
        if execution.exit != Exit::TimedOut || execution.duration < policy.wall {
            return Ok(execution);
        }
        let _all = self.places.acquire_many(self.count).await;
        self.run_once(&script, &policy).await
    }

    /// Runs a script; again, if the sandbox fails.
    async fn run_once(&self, script: &str, policy: &SandboxPolicy) -> Result<Execution, ToolFault> {
        let runner = self.runner.as_ref().ok_or_else(|| ToolFault {
            source: "there is no sandbox".into(),
        })?;
        match runner.run_python(script, policy).await {
            Ok(execution) => Ok(execution),
            Err(_) => runner.run_python(script, policy).await,
        }
    }

    fn policy(&self, case: &TestCase) -> SandboxPolicy {
        let cpu = Duration::from_millis(self.limits.timeout_ms);
        let defaults = SandboxPolicy::default();
        SandboxPolicy {
            wall: cpu.saturating_mul(WALL_FACTOR),
            cpu,
            memory_mib: self.limits.memory_mib,
            output_bytes: LEAST_OUTPUT.max(case.stdout.len().saturating_mul(2)),
            // The input lies in the scratch directory.
            file_mib: defaults.file_mib + (case.stdin.len() >> 20) as u64 + 1,
            ..defaults
        }
    }
}

impl Verifier for CodeVerifier {
    fn extract(&self, text: &str) -> Option<Extracted> {
        block::last_program(text)
    }

    fn compare<'a>(&'a self, gold: &'a str, answer: &'a str) -> BoxFuture<'a, Option<Comparison>> {
        Box::pin(async move {
            let cases = cases::from_text(gold).ok()?;
            let failed_test = self.failed_test(&cases, answer).await;
            let outcome = match failed_test {
                None => Outcome::Equal,
                Some(FailedTest {
                    failure: Failure::Sandbox,
                    ..
                }) => Outcome::Undecided,
                Some(_) => Outcome::Different,
            };
            Some(Comparison {
                outcome,
                failed_test,
                ..Comparison::default()
            })
        })
    }

    fn can_read(&self, gold: &str) -> bool {
        cases::from_text(gold).is_ok()
    }
}

/// How a run fails its test; `None` if it passes.
fn failure(case: &TestCase, execution: &Execution) -> Option<Failure> {
    if execution.is_truncated {
        return Some(Failure::TooMuchOutput);
    }
    match execution.exit {
        Exit::Code(0) if is_same_output(&case.stdout, &execution.stdout) => None,
        Exit::Code(0) => Some(Failure::WrongOutput),
        Exit::TimedOut => Some(Failure::TimedOut),
        Exit::OutOfMemory => Some(Failure::OutOfMemory),
        Exit::Code(_) | Exit::Signal(_) => Some(Failure::Error),
    }
}

/// Whether two outputs have the same lines. White space at the end of a line doesn't count, nor do
/// blank lines at the end.
fn is_same_output(expected: &str, printed: &str) -> bool {
    let lines = |text| str::trim_end(text).lines().map(str::trim_end);
    lines(expected).eq(lines(printed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_compared_by_lines_without_white_space_at_their_ends() {
        for (expected, printed) in [
            ("3", "3\n"),
            ("1\n2\n", "1 \r\n2\t\n\n \n"),
            ("", "\n"),
            ("a\n\nb", "a\n\nb"),
        ] {
            assert!(
                is_same_output(expected, printed),
                "{expected:?} {printed:?}"
            );
        }
        for (expected, printed) in [
            ("3", ""),
            ("3", "3\n4"),
            ("1 2", "1  2"),
            ("1\n2", "1 2"),
            ("a\nb", "a\n\nb"),
            (" 3", "3"),
            ("3", "3.0"),
        ] {
            assert!(
                !is_same_output(expected, printed),
                "{expected:?} {printed:?}"
            );
        }
    }

    #[tokio::test]
    async fn without_a_sandbox_nothing_is_known() {
        let verifier = CodeVerifier::new(CodeLimits::default(), None);
        let gold = r#"[{"stdin": "", "stdout": "1"}]"#;
        let assessment = verifier.assess(gold, "```python\nprint(1)\n```").await;
        assert_eq!(assessment.outcome, Some(Outcome::Undecided));
        let failed = assessment.failed_test.expect("a test");
        assert_eq!((failed.number, failed.failure), (1, Failure::Sandbox));
    }
}
