//! What both benches need.

use std::path::PathBuf;

use sandbox::HelperCommand;

/// The helper of this crate, built with the bench.
pub(crate) fn helper() -> HelperCommand {
    HelperCommand::new(PathBuf::from(env!(
        "CARGO_BIN_EXE_coharness-sandbox-helper"
    )))
}

/// What stands on the command line after the bench's name; without what cargo adds.
pub(crate) fn arguments() -> impl Iterator<Item = String> {
    std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
}
