//! The `coharness` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    coharness::cli::main()
}
