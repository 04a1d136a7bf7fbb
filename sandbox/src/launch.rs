//! Starting a helper and seeing one run through.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::{Instant, timeout};

use crate::execution::{Execution, Exit, Stop};
use crate::helper;
use crate::output::Capture;
use crate::policy::SandboxPolicy;
use crate::protocol::{Applied, Ended, Reply, Request};

/// Building a box takes a few milliseconds; a machine under heavy load gets this long.
pub(crate) const SETUP_WITHIN: Duration = Duration::from_secs(20);

/// How long the helper may take to kill everything before it is killed itself.
pub(crate) const KILL_WITHIN: Duration = Duration::from_secs(2);

/// How long to read on when everything is dead. The pipes are at their end by then.
pub(crate) const DRAIN_WITHIN: Duration = Duration::from_millis(500);

/// How often the scratch directory is measured where the kernel does not limit it.
pub(crate) const MEASURE_EVERY: Duration = Duration::from_millis(25);

/// More than enough for a traceback of the fork server.
const LAST_WORDS_BYTES: usize = 16 << 10;

/// What a scratch directory holds besides the program's data.
const SPARE_BYTES: u64 = 64 << 10;

/// More files than any calculation needs, where the kernel does not limit them.
const MAXIMUM_FILES: usize = 1024;

/// The program to re-execute as a helper. With `arguments` before it, the program gets
/// [`helper::ARGUMENT`] and must then call [`helper::main`] before it starts any thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperCommand {
    /// Usually the running binary itself.
    pub program: PathBuf,
    /// What has to come first on its command line.
    pub arguments: Vec<OsString>,
}

impl HelperCommand {
    /// A program that needs no further arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        HelperCommand {
            program: program.into(),
            arguments: Vec::new(),
        }
    }
}

/// A fault of the machinery, never of the program inside.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The helper could not be started.
    #[error("cannot start the sandbox helper {}", program.display())]
    Spawn {
        /// The configured program.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The socket to the helper failed.
    #[error("cannot talk to the sandbox helper")]
    Channel(#[from] io::Error),
    /// A layer did not take hold; nothing was run.
    #[error("cannot build the sandbox: {stage}: {detail}")]
    Setup {
        /// What was being done.
        stage: String,
        /// Why it did not work.
        detail: String,
    },
    /// The helper went away without a word.
    #[error("the sandbox helper was lost: {detail}")]
    Lost {
        /// Its exit status and last words.
        detail: String,
    },
    /// The helper did not get the box ready.
    #[error("the sandbox was not ready within {} s", SETUP_WITHIN.as_secs())]
    Stuck,
}

/// Everything about one run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) applied: Applied,
    pub(crate) execution: Execution,
}

/// A helper that waits for its request. Dropping it, at any time, makes the helper kill what it
/// started and exit.
#[derive(Debug)]
pub(crate) struct HelperProcess {
    child: Child,
    replies: Lines<BufReader<OwnedReadHalf>>,
    channel: OwnedWriteHalf,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

impl HelperProcess {
    /// Starts the helper in its own process group with an empty environment. `stdout` is a pipe for
    /// a program, and the control socket for a fork server.
    pub(crate) fn launch(command: &HelperCommand, stdout: Stdio) -> Result<Self, LaunchError> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (replies, channel) = UnixStream::from_std(ours)?.into_split();
        let mut child = Command::new(&command.program)
            .args(&command.arguments)
            .arg(helper::ARGUMENT)
            .env_clear()
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| LaunchError::Spawn {
                program: command.program.clone(),
                source,
            })?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let replies = BufReader::new(replies).lines();
        Ok(HelperProcess {
            child,
            replies,
            channel,
            stdout,
            stderr,
        })
    }

    /// Sends the request of a fork server and waits until its interpreter starts.
    pub(crate) async fn start(&mut self, request: &Request) -> Result<Applied, LaunchError> {
        let mut progress = Progress::default();
        let starting = async {
            self.send(request).await?;
            while progress.started.is_none() && !progress.is_over() {
                match self.replies.next_line().await? {
                    Some(line) => progress.hear(&line)?,
                    None => break,
                }
            }
            Ok::<_, LaunchError>(())
        };
        timeout(SETUP_WITHIN, starting)
            .await
            .map_err(|_| LaunchError::Stuck)??;
        match progress {
            Progress {
                failed: Some((stage, detail)),
                ..
            } => Err(LaunchError::Setup { stage, detail }),
            Progress {
                started: Some(_),
                applied,
                ..
            } => Ok(applied),
            _ => {
                let words = self.last_words().await;
                let detail = words.unwrap_or_else(|| "it said nothing".to_owned());
                Err(LaunchError::Lost { detail })
            }
        }
    }

    /// The last line that a lost helper wrote to its standard error.
    pub(crate) async fn last_words(&mut self) -> Option<String> {
        let mut stderr = Capture::new(self.stderr.take(), LAST_WORDS_BYTES);
        // A helper that is not quite gone yet holds it open.
        let _ = timeout(DRAIN_WITHIN, stderr.drain()).await;
        stderr.into_text().lines().last().map(str::to_owned)
    }

    /// Runs one program to its end. `measured` is the scratch directory, when it is the parent who
    /// has to watch its size.
    pub(crate) async fn run(
        mut self,
        request: &Request,
        policy: &SandboxPolicy,
        measured: Option<&Path>,
    ) -> Result<Run, LaunchError> {
        let mut stdout = Capture::new(self.stdout.take(), policy.output_bytes);
        let mut stderr = Capture::new(self.stderr.take(), policy.output_bytes);
        let mut progress = Progress::default();
        let mut deadline = Instant::now() + SETUP_WITHIN;

        let sent = timeout(SETUP_WITHIN, self.send(request))
            .await
            .map_err(|_| LaunchError::Stuck);
        // A helper that died early breaks the socket; its last words say more than that.
        let mut is_connected = matches!(sent?, Ok(()));
        let mut measure = tokio::time::interval(MEASURE_EVERY);
        let stop = loop {
            if !is_connected || progress.is_over() {
                break None;
            }
            tokio::select! {
                line = self.replies.next_line() => match line {
                    Ok(Some(line)) => {
                        progress.hear(&line)?;
                        if let Some(started) = progress.started {
                            deadline = started + policy.wall;
                        }
                    }
                    Ok(None) | Err(_) => is_connected = false,
                },
                () = stdout.read_more() => if stdout.is_truncated() { break Some(Stop::Output) },
                () = stderr.read_more() => if stderr.is_truncated() { break Some(Stop::Output) },
                () = tokio::time::sleep_until(deadline) => break Some(Stop::Wall),
                _ = measure.tick(), if measured.is_some() => {
                    // The program's source lies there as well.
                    let limit = request.limits.file_bytes + request.purpose.source_bytes();
                    if measured.is_some_and(|path| exceeds(path, limit)) {
                        break Some(Stop::Disk);
                    }
                }
            }
        };
        let duration = progress
            .started
            .map(|started| started.elapsed())
            .unwrap_or_default();
        let status = finish(self.child, self.replies, self.channel).await?;
        let rest = async { tokio::join!(stdout.drain(), stderr.drain()) };
        // Only a survivor could hold a pipe open, and then waiting for it would be wrong.
        let _ = timeout(DRAIN_WITHIN, rest).await;

        let is_truncated = stdout.is_truncated() || stderr.is_truncated();
        let (stdout, stderr) = (stdout.into_text(), stderr.into_text());
        if let Some((stage, detail)) = progress.failed {
            return Err(LaunchError::Setup { stage, detail });
        }
        let exit = match (stop, &progress.ended) {
            (Some(Stop::Wall), _) if progress.started.is_none() => return Err(LaunchError::Stuck),
            (Some(stop), _) => Exit::stopped(stop),
            (None, Some(ended)) => Exit::of(ended, &stderr, policy),
            (None, None) => {
                let words = stderr.lines().last().unwrap_or("it said nothing");
                return Err(LaunchError::Lost {
                    detail: format!("{status}, {words}"),
                });
            }
        };
        let execution = Execution {
            stdout,
            stderr,
            exit,
            is_truncated,
            duration,
        };
        Ok(Run {
            applied: progress.applied,
            execution,
        })
    }

    async fn send(&mut self, request: &Request) -> io::Result<()> {
        let body = serde_json::to_vec(request)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        self.channel.write_all(&length.to_le_bytes()).await?;
        self.channel.write_all(&body).await
    }
}

/// Hangs up, which makes the helper kill what is left, and waits until it is gone. By then
/// everything that it started has been killed and reaped.
async fn finish(
    mut child: Child,
    mut replies: Lines<BufReader<OwnedReadHalf>>,
    channel: OwnedWriteHalf,
) -> Result<std::process::ExitStatus, LaunchError> {
    drop(channel);
    let gone = async {
        // Late replies are of no interest, but unread they would block nobody either.
        while let Ok(Some(_)) = replies.next_line().await {}
        child.wait().await
    };
    match timeout(KILL_WITHIN, gone).await {
        Ok(status) => Ok(status?),
        Err(_) => {
            // Init is told by the kernel when its supervisor dies, and everything dies with it.
            child.start_kill()?;
            let killed = timeout(KILL_WITHIN, child.wait()).await;
            let stuck = "it does not die of SIGKILL".to_owned();
            Ok(killed.map_err(|_| LaunchError::Lost { detail: stuck })??)
        }
    }
}

/// What the helper has said so far.
#[derive(Default)]
struct Progress {
    applied: Applied,
    started: Option<Instant>,
    ended: Option<Ended>,
    failed: Option<(String, String)>,
}

impl Progress {
    fn hear(&mut self, line: &str) -> Result<(), LaunchError> {
        match serde_json::from_str(line).map_err(io::Error::from)? {
            Reply::Applied(applied) => self.applied = applied,
            Reply::Started => self.started = Some(Instant::now()),
            Reply::Ended(ended) => self.ended = Some(ended),
            Reply::Failed { stage, detail } => self.failed = Some((stage, detail)),
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.ended.is_some() || self.failed.is_some()
    }
}

/// Whether a directory holds more than `limit` bytes, or more files than anyone needs.
pub(crate) fn exceeds(directory: &Path, limit: u64) -> bool {
    let mut pending = vec![directory.to_owned()];
    let (mut bytes, mut files) = (0, 0);
    while let Some(directory) = pending.pop() {
        // Entries may vanish while they are counted.
        let Ok(entries) = std::fs::read_dir(directory) else {
            continue;
        };
        for entry in entries.filter_map(Result::ok) {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            files += 1;
            bytes += metadata.blocks() * 512;
            if metadata.is_dir() {
                pending.push(entry.path());
            }
            // Directories and rounding to blocks take some room too.
            if bytes > limit + SPARE_BYTES || files > MAXIMUM_FILES {
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn size_of_a_directory_is_measured_through_its_depths() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        assert!(!exceeds(directory.path(), 1 << 20));
        std::fs::write(deep.join("file"), vec![1; 2 << 20]).unwrap();
        assert!(exceeds(directory.path(), 1 << 20));
        assert!(!exceeds(directory.path(), 4 << 20));
    }
}
