//! Answers as a program of the user's judges them.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdout, Command};
use tokio::time::{Instant, timeout};

use super::{Comparison, Extracted, Outcome, Verifier, extract_math};
use crate::policy::BoxFuture;

/// Time for reading what a program that has ended left in its pipe.
const GRACE: Duration = Duration::from_millis(500);
/// Bytes of its output that are read.
const MAX_REPLY: usize = 64 * 1024;

pub(super) fn default_timeout_ms() -> u64 {
    10_000
}

/// Runs a program for every comparison.
///
/// The program reads `{"gold": …, "pred": …}` as one line of JSON. It answers with its exit code,
/// 0 for equal and 1 for different, or with code 0 and a line of JSON `{"equal": …}` on its
/// standard output. Anything else, a program that can't be started, and one that takes too long
/// are undecided.
pub(super) struct CommandVerifier {
    program: PathBuf,
    arguments: Vec<String>,
    timeout: Duration,
}

/// What a program may print. Further fields are its own.
#[derive(Deserialize)]
struct Answer {
    equal: bool,
}

impl CommandVerifier {
    pub(super) fn new(program: &Path, arguments: &[String], timeout: Duration) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments.to_vec(),
            timeout,
        }
    }

    async fn ask(&self, gold: &str, answer: &str) -> std::io::Result<Outcome> {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let question = serde_json::json!({"gold": gold, "pred": answer});
        let stdin = child.stdin.take();
        let writing = async move {
            if let Some(mut stdin) = stdin {
                // A program that judges without reading closes its end.
                let _ = stdin.write_all(format!("{question}\n").as_bytes()).await;
            }
        };
        tokio::pin!(writing);
        let mut is_writing = true;
        let mut reply = Reply {
            pipe: child.stdout.take(),
            text: Vec::new(),
        };
        let deadline = Instant::now() + self.timeout;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status?,
                () = reply.read_more(), if reply.pipe.is_some() => {}
                () = &mut writing, if is_writing => is_writing = false,
                () = tokio::time::sleep_until(deadline) => {
                    child.kill().await?;
                    return Ok(Outcome::Undecided);
                }
            }
        };
        // A child of the program's may hold the pipe open for ever.
        let rest = async {
            while reply.pipe.is_some() {
                reply.read_more().await;
            }
        };
        let _ = timeout(GRACE, rest).await;
        Ok(outcome(status, &reply.text))
    }
}

/// What a program prints, up to [`MAX_REPLY`].
struct Reply {
    pipe: Option<ChildStdout>,
    text: Vec<u8>,
}

impl Reply {
    /// Reads once. Cancelling loses nothing. At the end of the output or of what is read of it, the
    /// pipe is closed, which ends a program that doesn't stop writing.
    async fn read_more(&mut self) {
        if let Some(pipe) = &mut self.pipe {
            // What was read before an error is judged like any other reply.
            let count = pipe.read_buf(&mut self.text).await.unwrap_or(0);
            if count == 0 || self.text.len() >= MAX_REPLY {
                self.pipe = None;
            }
        }
    }
}

impl Verifier for CommandVerifier {
    fn extract(&self, text: &str) -> Option<Extracted> {
        extract_math::answer_of(text)
    }

    fn compare<'a>(&'a self, gold: &'a str, answer: &'a str) -> BoxFuture<'a, Option<Comparison>> {
        Box::pin(async move {
            let outcome = self.ask(gold, answer).await.unwrap_or_else(|error| {
                let program = self.program.display();
                tracing::warn!(%program, %error, "verifier can't be run");
                Outcome::Undecided
            });
            Some(outcome.into())
        })
    }

    /// The program decides; its start isn't worth a question for every task.
    fn can_read(&self, gold: &str) -> bool {
        !gold.trim().is_empty()
    }
}

fn outcome(status: ExitStatus, text: &[u8]) -> Outcome {
    let reply = std::str::from_utf8(text).ok().map(str::trim);
    match (status.code(), reply) {
        (Some(0), Some("")) => Outcome::Equal,
        (Some(0), Some(reply)) => match serde_json::from_str(reply) {
            Ok(Answer { equal: true }) => Outcome::Equal,
            Ok(Answer { equal: false }) => Outcome::Different,
            Err(_) => Outcome::Undecided,
        },
        (Some(1), _) => Outcome::Different,
        _ => Outcome::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout_ms: u64) -> CommandVerifier {
        CommandVerifier::new(
            Path::new("sh"),
            &["-c".into(), script.into()],
            Duration::from_millis(timeout_ms),
        )
    }

    async fn ask(script: &str) -> Outcome {
        let comparison = shell(script, 5_000).compare("4", "2+2").await;
        comparison.expect("a comparison").outcome
    }

    #[tokio::test]
    async fn exit_codes_and_replies_decide() {
        assert_eq!(ask("exit 0").await, Outcome::Equal);
        assert_eq!(ask("exit 1").await, Outcome::Different);
        assert_eq!(ask("exit 7").await, Outcome::Undecided);
        assert_eq!(ask("kill -9 $$").await, Outcome::Undecided);
        assert_eq!(
            ask(r#"echo '{"equal": true, "why": "sum"}'"#).await,
            Outcome::Equal
        );
        assert_eq!(ask(r#"echo '{"equal": false}'"#).await, Outcome::Different);
        assert_eq!(ask("echo yes").await, Outcome::Undecided);
        assert_eq!(ask("yes").await, Outcome::Undecided);
    }

    #[tokio::test]
    async fn what_is_no_verdict_is_not_taken_for_one() {
        for reply in [
            "{}",
            r#"{"score": "NaN"}"#,
            r#"{"score": null}"#,
            r#"{"error": 0.0, "timeout": true}"#,
            r#"{"equal": null}"#,
            r#"{"equal": "true"}"#,
            r#"{"equal": 1.0}"#,
            r#"{"equal": NaN}"#,
            "true",
        ] {
            let outcome = ask(&format!("echo '{reply}'")).await;
            assert_eq!(outcome, Outcome::Undecided, "{reply}");
        }
    }

    #[tokio::test]
    async fn the_program_reads_both_answers() {
        assert_eq!(
            ask(r#"read -r line; test "$line" = '{"gold":"4","pred":"2+2"}'"#).await,
            Outcome::Equal
        );
    }

    #[tokio::test]
    async fn a_child_that_holds_the_pipe_open_neither_hides_nor_holds_up_the_reply() {
        let started = Instant::now();
        let verifier = shell("sleep 30 & echo '{\"equal\": false}'", 300);
        let comparison = verifier.compare("1", "1").await.expect("a comparison");
        assert_eq!(comparison.outcome, Outcome::Different);
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[tokio::test]
    async fn what_takes_too_long_or_cannot_start_is_undecided() {
        let started = Instant::now();
        let slow = shell("sleep 30", 100).compare("1", "1").await;
        assert_eq!(slow.expect("a comparison").outcome, Outcome::Undecided);
        assert!(started.elapsed() < Duration::from_secs(10));
        let missing = CommandVerifier::new(Path::new("/no/such/program"), &[], GRACE);
        let missing = missing.compare("1", "1").await;
        assert_eq!(missing.expect("a comparison").outcome, Outcome::Undecided);
    }

    /// One thread has both to wait in turn if waiting blocks it.
    #[tokio::test(flavor = "current_thread")]
    async fn comparisons_wait_side_by_side() {
        let verifier = shell("sleep 1", 5_000);
        let started = Instant::now();
        tokio::join!(
            verifier.compare("1", "1"),
            verifier.compare("2", "2"),
            verifier.compare("3", "3")
        );
        assert!(started.elapsed() < Duration::from_millis(2500));
    }
}
