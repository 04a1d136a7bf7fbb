//! Attacks on the box, and the ordinary programs that have to work in it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "what fails to unwrap is a failed test, and tests say what they skip"
)]

mod cases;
mod confinement;
mod enforcement;
mod hostile;
mod kills;
mod limits;
mod programs;
mod sessions;
mod support;
