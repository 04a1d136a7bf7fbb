//! The far side: what the re-executed process does.
//!
//! A program that wants to use a [`crate::Sandbox`] calls [`main`] first thing when its first
//! argument is [`ARGUMENT`]:
//!
//! ```no_run
//! # use std::process::ExitCode;
//! fn main() -> ExitCode {
//!     let mut arguments = std::env::args_os().skip(1);
//!     if arguments.next().is_some_and(|first| first == sandbox::helper::ARGUMENT) {
//!         return sandbox::helper::main(arguments);
//!     }
//!     // … the program's own work, threads and runtimes included
//!     ExitCode::SUCCESS
//! }
//! ```
//!
//! Parts, in the order in which a run passes through them: `channel` receives the request,
//! `supervisor` enters the `namespaces` and forks, `init` builds the `file_system`, `program`
//! applies `limits`, `landlock` and `seccomp` and becomes Python. That Python is either the program
//! or a `server` that forks one child for each of many programs.

mod channel;
mod file_system;
mod init;
mod landlock;
pub(crate) mod limits;
mod namespaces;
mod program;
mod seccomp;
mod server;
mod supervisor;
mod system_calls;

use std::ffi::OsString;
use std::fmt::Display;
use std::process::ExitCode;

use channel::Channel;
pub(crate) use program::variable_names;

use crate::protocol::Reply;

/// First argument of a process that is to be a helper.
pub const ARGUMENT: &str = "__sandbox-helper";

/// Command line misuse, as in `sysexits.h`.
const USAGE: u8 = 64;

/// Serves one request from standard input. Must be called before the process starts any thread.
/// `arguments` are those after [`ARGUMENT`]; there are none.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    if arguments.into_iter().next().is_some() {
        return ExitCode::from(USAGE);
    }
    let Ok(mut channel) = Channel::from_standard_input() else {
        return ExitCode::FAILURE;
    };
    let outcome = match channel.receive() {
        // The parent changed its mind.
        Ok(None) => return ExitCode::SUCCESS,
        Ok(Some(request)) => supervisor::run(&request, &mut channel),
        Err(failure) => Err(failure),
    };
    // Every process of the family comes back here, each with its own outcome.
    outcome.unwrap_or_else(|Failure { stage, detail }| {
        // With the parent gone there is nobody left to tell.
        let _ = channel.send(&Reply::Failed {
            stage: stage.to_owned(),
            detail,
        });
        ExitCode::FAILURE
    })
}

/// A step that did not work.
#[derive(Debug)]
struct Failure {
    stage: &'static str,
    detail: String,
}

/// Names the step that an error belongs to.
trait At<T> {
    fn at(self, stage: &'static str) -> Result<T, Failure>;
}

impl<T, E: Display> At<T> for Result<T, E> {
    fn at(self, stage: &'static str) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            stage,
            detail: error.to_string(),
        })
    }
}
