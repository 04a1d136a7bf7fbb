//! Seeing one text through in a forked program: a whole program, or one call of several.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::time::{Instant, timeout};

use super::server::{ForkServer, Forked, ServerMessage};
use crate::execution::{Execution, Exit, Stop};
use crate::launch::{DRAIN_WITHIN, LaunchError, MEASURE_EVERY, SETUP_WITHIN, exceeds};
use crate::output::Capture;
use crate::policy::SandboxPolicy;
use crate::protocol::Ended;

/// What a program's channel says. Once the program runs, it can say anything itself; then only the
/// program is fooled.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProgramMessage {
    /// All limits and filters are in force; the next thing that happens is the program.
    Confined,
    /// They are not, and there will be no program.
    Failed(String),
    /// What is loaded already takes all of the memory that the program may have.
    TooSmall,
    /// A call is over; the interpreter waits for the next.
    Returned { call: u64, succeeded: bool },
}

/// How a text ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The program with it.
    Over(Execution),
    /// The interpreter lives on.
    Returned(Execution),
    /// Nothing was run, see [`ProgramMessage::TooSmall`].
    TooSmall,
}

/// Why following ended.
enum End {
    Stopped(Stop),
    Ended(Ended),
    Returned { succeeded: bool },
}

/// One text and its bounds.
#[derive(Debug)]
pub(super) struct Text<'a> {
    pub(super) source: &'a str,
    pub(super) policy: &'a SandboxPolicy,
    /// Number of the call in a program that keeps its state, from 1.
    pub(super) call: u64,
}

/// Sends a text, and captures what comes of it. On an error the server is not to be used again.
pub(super) async fn follow(
    server: &mut ForkServer,
    program: &mut Forked,
    text: Text<'_>,
) -> Result<Outcome, LaunchError> {
    let policy = text.policy;
    let Forked {
        stdout,
        stderr,
        messages,
        channel,
    } = program;
    let mut stdout = Capture::new(Some(stdout), policy.output_bytes);
    let mut stderr = Capture::new(Some(stderr), policy.output_bytes);
    let sending = send(channel, text.source);
    tokio::pin!(sending);
    let (mut is_sending, mut is_talking) = (true, true);
    // A program that has made calls before is confined.
    let mut started = (text.call > 1).then(Instant::now);
    let mut deadline = match started {
        Some(started) => started + policy.wall,
        None => Instant::now() + SETUP_WITHIN,
    };
    let measured = server.scratch().map(PathBuf::from);
    let file_bytes = (policy.file_mib << 20) + text.source.len() as u64;
    let mut measure = tokio::time::interval(MEASURE_EVERY);
    let mut is_too_small = false;

    let end = loop {
        tokio::select! {
            // A program that dies before it has read its text is told from the server's message.
            _ = &mut sending, if is_sending => is_sending = false,
            message = messages.next(), if is_talking => match message {
                Ok(Some(ProgramMessage::Confined)) if started.is_none() => {
                    let now = Instant::now();
                    (started, deadline) = (Some(now), now + policy.wall);
                }
                Ok(Some(ProgramMessage::Failed(detail))) if started.is_none() => {
                    let stage = "confining a forked program".to_owned();
                    return Err(LaunchError::Setup { stage, detail });
                }
                Ok(Some(ProgramMessage::TooSmall)) if started.is_none() => is_too_small = true,
                Ok(Some(ProgramMessage::Returned { call, succeeded })) if call == text.call => {
                    break End::Returned { succeeded };
                }
                Ok(None) => is_talking = false,
                // Nobody but the program itself can have said that.
                _ => break End::Stopped(Stop::Nonsense),
            },
            message = server.message() => {
                if let ServerMessage::Ended(ended) = message? {
                    break End::Ended(ended);
                }
            }
            () = stdout.read_more() => if stdout.is_truncated() { break End::Stopped(Stop::Output) },
            () = stderr.read_more() => if stderr.is_truncated() { break End::Stopped(Stop::Output) },
            () = tokio::time::sleep_until(deadline) => break End::Stopped(Stop::Wall),
            _ = measure.tick(), if measured.is_some() => {
                if measured.as_deref().is_some_and(|path| exceeds(path, file_bytes)) {
                    break End::Stopped(Stop::Disk);
                }
            }
        }
    };
    let duration = started.map(|at| at.elapsed()).unwrap_or_default();
    if let End::Stopped(_) = end {
        server.kill().await?;
    }
    if is_too_small {
        return Ok(Outcome::TooSmall);
    }
    match (started, &end) {
        (None, End::Stopped(_)) => return Err(LaunchError::Stuck),
        (None, _) => {
            let detail = "a forked program was lost before it was confined".to_owned();
            return Err(LaunchError::Lost { detail });
        }
        (Some(_), End::Returned { .. }) => {
            stdout.read_available();
            stderr.read_available();
        }
        (Some(_), _) => {
            // Nobody is left who could hold a pipe open.
            let rest = async { tokio::join!(stdout.drain(), stderr.drain()) };
            let _ = timeout(DRAIN_WITHIN, rest).await;
        }
    }
    Ok(outcome(end, stdout, stderr, policy, duration))
}

fn outcome<R: tokio::io::AsyncRead + Unpin>(
    end: End,
    stdout: Capture<R>,
    stderr: Capture<R>,
    policy: &SandboxPolicy,
    duration: Duration,
) -> Outcome {
    let is_truncated = stdout.is_truncated() || stderr.is_truncated();
    let (stdout, stderr) = (stdout.into_text(), stderr.into_text());
    let exit = match &end {
        End::Stopped(stop) => Exit::stopped(*stop),
        End::Ended(ended) => Exit::of(ended, &stderr, policy),
        End::Returned { succeeded } => {
            let ended = Ended {
                code: Some(i32::from(!succeeded)),
                signal: None,
                cpu_ms: 0,
                peak_kib: 0,
            };
            Exit::of(&ended, &stderr, policy)
        }
    };
    let execution = Execution {
        stdout,
        stderr,
        exit,
        is_truncated,
        duration,
    };
    match end {
        // What was printed last went beyond the cap, and the pipe still holds the rest.
        End::Returned { .. } if !is_truncated => Outcome::Returned(execution),
        _ => Outcome::Over(execution),
    }
}

async fn send(channel: &mut OwnedWriteHalf, source: &str) -> io::Result<()> {
    let length = u32::try_from(source.len()).map_err(io::Error::other)?;
    channel.write_all(&length.to_le_bytes()).await?;
    channel.write_all(source.as_bytes()).await
}
