//! One fork server, as its parent sees it.
//!
//! Two sockets lead into the box. The helper's channel is the same as for any run: closing it kills
//! everything. The control socket leads to the server itself, `python/server.py`. A program gets a
//! third one of its own, over which its text comes, so that the server never holds it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process::Stdio;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedWriteHalf, pipe};
use tokio::time::timeout;

use super::descriptors;
use super::lines::Messages;
use crate::launch::{HelperCommand, HelperProcess, KILL_WITHIN, LaunchError, SETUP_WITHIN};
use crate::protocol::{Applied, Ended, Request};

/// What a server says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ServerMessage {
    /// It waits for a program.
    Ready {
        /// What has been imported of what was asked for.
        #[expect(dead_code, reason = "for people who read the socket")]
        modules: Vec<String>,
    },
    /// The program is over and reaped.
    Ended(Ended),
    /// An order has been carried out.
    Done(Order),
}

/// What a server does to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// End it.
    Kill,
    /// Stop it until further notice.
    Freeze,
    /// Let it go on.
    Thaw,
}

/// Starts a program.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Start<'a> {
    Run {
        keeps_state: bool,
        /// Resource, soft limit, hard limit; infinity is -1.
        limits: &'a [(u32, i64, i64)],
    },
}

/// A confined interpreter that forks programs. Dropping it kills everything in its box.
#[derive(Debug)]
pub(super) struct ForkServer {
    helper: HelperProcess,
    messages: Messages,
    control: OwnedWriteHalf,
    applied: Applied,
    /// The scratch directory, where it is on disk and not in a private file system.
    scratch: Option<TempDir>,
    is_ready: bool,
}

/// A program that a server has been asked to start, by its parent's ends.
#[derive(Debug)]
pub(super) struct Forked {
    pub(super) stdout: pipe::Receiver,
    pub(super) stderr: pipe::Receiver,
    pub(super) messages: Messages,
    pub(super) channel: OwnedWriteHalf,
}

impl ForkServer {
    /// Starts a server and waits until its imports are done.
    pub(super) async fn start(
        command: &HelperCommand,
        request: &Request,
        scratch: Option<TempDir>,
    ) -> Result<Self, LaunchError> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (read, control) = UnixStream::from_std(ours)?.into_split();
        let stdout = Stdio::from(OwnedFd::from(theirs));
        let mut helper = HelperProcess::launch(command, stdout)?;
        let applied = helper.start(request).await?;
        let mut server = ForkServer {
            helper,
            messages: Messages::new(read),
            control,
            applied,
            scratch,
            is_ready: false,
        };
        server.wait_until_ready().await?;
        Ok(server)
    }

    /// What has been put in force for the server, and so for its children.
    pub(super) fn applied(&self) -> &Applied {
        &self.applied
    }

    /// The scratch directory, where the parent has to look after it.
    pub(super) fn scratch(&self) -> Option<&Path> {
        self.scratch.as_ref().map(TempDir::path)
    }

    /// Waits until the last program's traces are gone and another one can be started.
    pub(super) async fn wait_until_ready(&mut self) -> Result<(), LaunchError> {
        let ready = async {
            while !self.is_ready {
                self.message().await?;
            }
            Ok(())
        };
        match timeout(SETUP_WITHIN, ready).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.explain(error).await),
            Err(_) => Err(LaunchError::Stuck),
        }
    }

    /// The next message. Cancelling loses nothing.
    pub(super) async fn message(&mut self) -> Result<ServerMessage, LaunchError> {
        let Some(message) = self.messages.next().await? else {
            let detail = "the fork server is gone".to_owned();
            return Err(LaunchError::Lost { detail });
        };
        self.is_ready = matches!(message, ServerMessage::Ready { .. });
        Ok(message)
    }

    /// Starts a program with these limits. It waits for its text.
    pub(super) async fn fork(
        &mut self,
        limits: &[(u32, i64, i64)],
        keeps_state: bool,
    ) -> Result<Forked, LaunchError> {
        self.wait_until_ready().await?;
        let (stdout, their_stdout) = std::io::pipe()?;
        let (stderr, their_stderr) = std::io::pipe()?;
        let (channel, their_channel) = StdUnixStream::pair()?;
        channel.set_nonblocking(true)?;
        let (read, channel) = UnixStream::from_std(channel)?.into_split();
        let start = Start::Run {
            keeps_state,
            limits,
        };
        let descriptors = [
            their_stdout.as_fd(),
            their_stderr.as_fd(),
            their_channel.as_fd(),
        ];
        self.send(&start, Some(descriptors)).await?;
        self.is_ready = false;
        Ok(Forked {
            stdout: pipe::Receiver::from_owned_fd(stdout.into())?,
            stderr: pipe::Receiver::from_owned_fd(stderr.into())?,
            messages: Messages::new(read),
            channel,
        })
    }

    /// Gives an order for the program that runs. A program that has just ended is beyond orders.
    pub(super) async fn order(&mut self, order: Order) -> Result<(), LaunchError> {
        self.send(&order, None).await
    }

    /// Kills the program if it still runs, and waits until it is reaped.
    pub(super) async fn kill(&mut self) -> Result<Option<Ended>, LaunchError> {
        if self.is_ready {
            return Ok(None);
        }
        self.order(Order::Kill).await?;
        let ended = async {
            loop {
                match self.message().await? {
                    ServerMessage::Ended(ended) => return Ok(Some(ended)),
                    ServerMessage::Ready { .. } => return Ok(None),
                    ServerMessage::Done(_) => {}
                }
            }
        };
        timeout(KILL_WITHIN, ended)
            .await
            .unwrap_or(Err(LaunchError::Stuck))
    }

    /// Sends one line. Descriptors travel with its first byte.
    async fn send(
        &mut self,
        message: &impl Serialize,
        descriptors: Option<[BorrowedFd<'_>; 3]>,
    ) -> Result<(), LaunchError> {
        let mut line = serde_json::to_vec(message).map_err(io::Error::from)?;
        line.push(b'\n');
        let socket = self.control.as_ref();
        loop {
            socket.writable().await?;
            let sent = match descriptors {
                Some(descriptors) => socket.try_io(Interest::WRITABLE, || {
                    descriptors::send(socket.as_fd(), &line, descriptors)
                }),
                None => socket.try_write(&line),
            };
            match sent {
                Ok(count) if count == line.len() => return Ok(()),
                // A line is far shorter than the socket's buffer.
                Ok(_) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// An error with the helper's last words, if it has any.
    async fn explain(&mut self, error: LaunchError) -> LaunchError {
        match self.helper.last_words().await {
            Some(detail) => LaunchError::Lost { detail },
            None => error,
        }
    }
}
