//! Warm interpreters: fork servers that are kept ready, and the programs that they fork.
//!
//! A server is a Python in a box of its own, confined like any program, with its imports done. For
//! each program it forks a child, which confines itself further before it sees the program's text,
//! and which cannot reach the server: no signals, no tracing, no descriptors, no shared memory. A
//! box holds one program at a time, so that user id, process count and scratch directory are the
//! program's alone; afterwards the scratch directory is replaced.
//!
//! * [`Pool`]: servers that are ready, and how many may exist.
//! * [`Session`]: an interpreter that lives on between calls.
//! * `server`: one server. `follow`: one text, to its end.

mod descriptors;
mod follow;
mod lines;
mod pool;
mod server;
mod session;

pub(crate) use pool::Pool;
pub use session::{Session, SessionCall};
