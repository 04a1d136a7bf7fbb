//! Untrusted Python in a box.
//!
//! Programs that a language model wrote run in a short-lived helper process that locks itself up
//! before it becomes the Python interpreter. Nothing is applied in the parent: it may be
//! multi-threaded, and code between `fork` and `exec` of such a process must not allocate.
//!
//! ```text
//! parent (async)      Sandbox::run_python: sends one request over a socket, reads capped output
//!   └ supervisor      re-executed binary, `helper::main`: enters namespaces, kills on hang-up
//!       └ init        process 1 of the process namespace: private file system, reaps
//!           └ program limits, own user id, no_new_privs, Landlock, seccomp; then exec python
//! ```
//!
//! Parts, from the top down:
//!
//! * [`Sandbox`]: the public entry; [`SandboxPolicy`] bounds a run, [`Execution`] is what came out.
//! * [`EnforcementReport`]: what is really in force here, found by attacking the box from inside
//!   when it is created. A box that does not hold is refused unless the caller allows it.
//! * [`helper`]: the code on the far side of the socket.
//!
//! A process that has been launched and waits for its request is a value of its own
//! (`launch::HelperProcess`): a pool of warm interpreters keeps such values ready, and a session
//! with state keeps one and sends it further requests over the same socket.
//!
//! Linux only. The library reads neither the environment nor the home directory.

mod enforcement;
mod execution;
pub mod helper;
mod interpreter;
mod launch;
mod output;
mod policy;
mod probe;
mod protocol;
mod sandbox;
mod view;

pub use enforcement::{EnforcementReport, Guarantees, Isolation, Layers, Status};
pub use execution::{Execution, Exit};
pub use interpreter::InterpreterError;
pub use launch::{HelperCommand, LaunchError};
pub use policy::{PolicyError, SandboxPolicy};
pub use sandbox::{Sandbox, SandboxError, SandboxOptions};
