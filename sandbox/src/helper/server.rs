//! What a fork server is told on its command line, and which descriptors it keeps.
//!
//! The server itself is Python, `python/server.py`: only what is imported before a fork is there
//! after it. Everything that confines its children is prepared here.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde::Serialize;

use super::seccomp::{self, OWN_PID, Permissions};
use super::{At, Failure, landlock};
use crate::protocol::Request;

/// The object that `server.py` reads.
#[derive(Serialize)]
struct Config<'a> {
    scratch: &'a Path,
    /// Descriptor of the children's Landlock domain.
    ruleset: Option<i32>,
    /// Descriptor of a socket to process 1, which renews the scratch directory.
    scratch_keeper: Option<i32>,
    /// The children's seccomp filter in hexadecimal digits.
    filter: String,
    own_pid: u32,
    modules: &'a [String],
}

/// Descriptors that the server inherits.
#[derive(Debug)]
pub(super) struct Preparation {
    ruleset: Option<OwnedFd>,
    scratch_keeper: Option<UnixStream>,
    filter: Vec<u8>,
}

impl Preparation {
    /// Prepares what children need. Call it before the process is confined.
    pub(super) fn new(
        request: &Request,
        permissions: Permissions,
        scratch_keeper: Option<UnixStream>,
    ) -> Result<Self, Failure> {
        Ok(Preparation {
            ruleset: landlock::children_domain(request)?,
            scratch_keeper,
            filter: seccomp::forked(permissions).at("preparing the children's filter")?,
        })
    }

    /// The argument that tells the server about them.
    pub(super) fn argument(
        &self,
        request: &Request,
        modules: &[String],
    ) -> Result<String, Failure> {
        let config = Config {
            scratch: &request.scratch,
            ruleset: self.ruleset.as_ref().map(AsRawFd::as_raw_fd),
            scratch_keeper: self.scratch_keeper.as_ref().map(AsRawFd::as_raw_fd),
            filter: self
                .filter
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            own_pid: OWN_PID,
            modules,
        };
        serde_json::to_string(&config).at("preparing the server's command line")
    }

    /// Lets the descriptors survive the start of the interpreter.
    pub(super) fn keep_open(&self) -> Result<(), Failure> {
        use std::os::fd::AsFd;
        let keep = |descriptor: BorrowedFd<'_>| {
            fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty()))
                .map(drop)
                .at("keeping the server's descriptors")
        };
        self.ruleset
            .as_ref()
            .map_or(Ok(()), |file| keep(file.as_fd()))?;
        let keeper = self.scratch_keeper.as_ref();
        keeper.map_or(Ok(()), |socket| keep(socket.as_fd()))
    }
}
