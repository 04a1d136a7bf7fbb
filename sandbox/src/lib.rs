//! Untrusted Python in a box.
//!
//! Programs that a language model wrote run in a helper process that locks itself up before it
//! becomes the Python interpreter. Nothing is applied in the parent: it may be multi-threaded, and
//! code between `fork` and `exec` of such a process must not allocate.
//!
//! ```text
//! parent (async)        Sandbox::run_python: sends requests over sockets, reads capped output
//!   └ supervisor        re-executed binary, `helper::main`: enters namespaces, kills on hang-up
//!       └ init          process 1 of the process namespace: private file system, reaps
//!           └ python    own user id, no_new_privs, Landlock, seccomp, limits; then exec python
//!               └ fork  warm: one child for each program, confined further by `server.py`
//! ```
//!
//! Started cold, the Python is the program and everything ends with it. Started warm, it is a fork
//! server with its imports done, and the box is used again, by one program at a time.
//!
//! Parts, from the top down:
//!
//! * [`Sandbox`]: the public entry; [`SandboxPolicy`] bounds a run, [`Execution`] is what came out.
//! * [`EnforcementReport`]: what is really in force here, found by attacking the box from inside
//!   when it is created. A box that does not hold is refused unless the caller allows it.
//! * `forks`: the fork servers that are kept ready; [`Session`] is an interpreter that keeps its
//!   variables from call to call.
//! * [`helper`]: the code on the far side of the socket.
//!
//! Linux only. The library reads neither the environment nor the home directory.

mod enforcement;
mod execution;
mod forks;
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
pub use forks::{Session, SessionCall};
pub use interpreter::InterpreterError;
pub use launch::{HelperCommand, LaunchError};
pub use policy::{PolicyError, SandboxPolicy};
pub use sandbox::{Sandbox, SandboxError, SandboxOptions, Start};
