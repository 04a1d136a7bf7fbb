//! Answers as a program of the user's judges them.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{Comparison, Extracted, Outcome, Verifier, extract_math};

/// How often a running program is looked at.
const POLL: Duration = Duration::from_millis(2);
/// Bytes of its output that are read.
const MAX_REPLY: u64 = 64 * 1024;

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
struct Reply {
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

    fn ask(&self, gold: &str, answer: &str) -> std::io::Result<Outcome> {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let question = serde_json::json!({"gold": gold, "pred": answer});
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        // Both pipes have a thread of their own: a program that doesn't read or doesn't stop
        // writing can't hold up more than its own time.
        let writer = std::thread::spawn(move || {
            // A program that judges without reading closes its end.
            stdin.map(|mut stdin| writeln!(stdin, "{question}"))
        });
        let (sender, reply) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(stdout) = stdout {
                // What was read before an error is judged like any other reply.
                let _ = stdout.take(MAX_REPLY).read_to_end(&mut text);
            }
            // The receiver is gone when the time was up.
            let _ = sender.send(text);
        });
        let started = Instant::now();
        let Some(status) = wait(&mut child, self.timeout)? else {
            return Ok(Outcome::Undecided);
        };
        drop(writer);
        // A child of the program's may hold the pipe open.
        let left = self.timeout.saturating_sub(started.elapsed());
        let text = reply.recv_timeout(left.max(POLL)).unwrap_or_default();
        Ok(outcome(status, &text))
    }
}

impl Verifier for CommandVerifier {
    fn extract(&self, text: &str) -> Option<Extracted> {
        extract_math::answer_of(text)
    }

    fn compare(&self, gold: &str, answer: &str) -> Option<Comparison> {
        let outcome = without_blocking(|| self.ask(gold, answer)).unwrap_or_else(|error| {
            tracing::warn!(program = %self.program.display(), %error, "verifier can't be run");
            Outcome::Undecided
        });
        Some(outcome.into())
    }

    /// The program decides; its start isn't worth a question for every task.
    fn can_read(&self, gold: &str) -> bool {
        !gold.trim().is_empty()
    }
}

/// The exit status; `None` for a program that was killed for taking too long.
fn wait(child: &mut Child, timeout: Duration) -> std::io::Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() >= timeout {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

fn outcome(status: ExitStatus, text: &[u8]) -> Outcome {
    let reply = std::str::from_utf8(text).ok().map(str::trim);
    match (status.code(), reply) {
        (Some(0), Some("")) => Outcome::Equal,
        (Some(0), Some(reply)) => match serde_json::from_str(reply) {
            Ok(Reply { equal: true }) => Outcome::Equal,
            Ok(Reply { equal: false }) => Outcome::Different,
            Err(_) => Outcome::Undecided,
        },
        (Some(1), _) => Outcome::Different,
        _ => Outcome::Undecided,
    }
}

/// Runs what waits without holding up other tasks of an asynchronous runtime.
fn without_blocking<T>(work: impl FnOnce() -> T) -> T {
    let flavor = tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor());
    match flavor {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
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

    fn ask(script: &str) -> Outcome {
        let comparison = shell(script, 5_000).compare("4", "2+2");
        comparison.expect("a comparison").outcome
    }

    #[test]
    fn exit_codes_and_replies_decide() {
        assert_eq!(ask("exit 0"), Outcome::Equal);
        assert_eq!(ask("exit 1"), Outcome::Different);
        assert_eq!(ask("exit 7"), Outcome::Undecided);
        assert_eq!(ask("kill -9 $$"), Outcome::Undecided);
        assert_eq!(
            ask(r#"echo '{"equal": true, "why": "sum"}'"#),
            Outcome::Equal
        );
        assert_eq!(ask(r#"echo '{"equal": false}'"#), Outcome::Different);
        assert_eq!(ask("echo yes"), Outcome::Undecided);
        assert_eq!(ask("yes"), Outcome::Undecided);
    }

    #[test]
    fn the_program_reads_both_answers() {
        assert_eq!(
            ask(r#"read -r line; test "$line" = '{"gold":"4","pred":"2+2"}'"#),
            Outcome::Equal
        );
    }

    #[test]
    fn what_takes_too_long_or_cannot_start_is_undecided() {
        let started = Instant::now();
        let slow = shell("sleep 30", 100)
            .compare("1", "1")
            .expect("a comparison");
        assert_eq!(slow.outcome, Outcome::Undecided);
        assert!(started.elapsed() < Duration::from_secs(10));
        let missing = CommandVerifier::new(Path::new("/no/such/program"), &[], POLL);
        let missing = missing.compare("1", "1").expect("a comparison");
        assert_eq!(missing.outcome, Outcome::Undecided);
    }
}
