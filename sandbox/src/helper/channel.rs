//! The helper's end of the socket.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::unistd::dup2_stdin;

use super::{At, Failure};
use crate::protocol::{MAXIMUM_REQUEST_BYTES, Reply, Request};

/// The socket that was standard input.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
}

impl Channel {
    /// Moves the socket to a descriptor that is closed on exec, and puts `/dev/null` in its place.
    pub(super) fn from_standard_input() -> Result<Self, Failure> {
        let socket: OwnedFd = std::io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .at("taking over standard input")?;
        let null = File::open("/dev/null").at("opening /dev/null")?;
        dup2_stdin(&null).at("replacing standard input")?;
        Ok(Channel {
            stream: UnixStream::from(socket),
        })
    }

    /// The request, or nothing when the parent hung up before sending one.
    pub(super) fn receive(&mut self) -> Result<Option<Request>, Failure> {
        const STAGE: &str = "reading the request";
        let mut length = [0; 4];
        match self.stream.read_exact(&mut length) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            result => result.at(STAGE)?,
        }
        let length = u32::from_le_bytes(length);
        if length > MAXIMUM_REQUEST_BYTES {
            let detail = format!("{length} bytes are too many");
            return Err(Failure {
                stage: STAGE,
                detail,
            });
        }
        let mut body = Vec::new();
        (&self.stream)
            .take(u64::from(length))
            .read_to_end(&mut body)
            .at(STAGE)?;
        serde_json::from_slice(&body).map(Some).at(STAGE)
    }

    /// Sends one line.
    pub(super) fn send(&mut self, reply: &Reply) -> Result<(), Failure> {
        const STAGE: &str = "answering the parent";
        let mut line = serde_json::to_vec(reply).at(STAGE)?;
        line.push(b'\n');
        self.stream.write_all(&line).at(STAGE)
    }

    /// Whether the parent has hung up. Call it when the descriptor is readable.
    pub(super) fn is_closed(&mut self) -> bool {
        // One request per helper: anything but the end is noise and is dropped.
        !matches!(self.stream.read(&mut [0; 64]), Ok(count) if count > 0)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
