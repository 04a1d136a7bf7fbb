//! Integration tests of the critic, one binary.

#![expect(clippy::print_stdout, reason = "tests say aloud what they skip")]

mod cases;
