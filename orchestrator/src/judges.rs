//! Verifiers that are programs of the user's: whether they can be started at all.

use std::process::{Command, Stdio};

use rollout::verifier::VerifierKind;

use crate::config::Loaded;
use crate::error::RunError;

/// Start every program that judges answers once, without input, and end it.
///
/// A program that can't be started leaves every answer undecided: a run would go on to its end without a
/// single right one.
///
/// # Errors
/// [`RunError::NoJudge`] for the first that can't be started.
pub(crate) fn try_all(loaded: &Loaded) -> Result<(), RunError> {
    let config = &loaded.config;
    let own = loaded.resolve_verifier(&config.tasks.verifier);
    try_one("tasks.verifier", &own)?;
    for suite in &config.retention {
        if let Some(kind) = &suite.verifier {
            let field = format!("retention: {}: verifier", suite.name);
            try_one(&field, &loaded.resolve_verifier(kind))?;
        }
    }
    Ok(())
}

/// The same for one verifier, its program's path resolved; `field` says whose it is.
///
/// # Errors
/// As [`try_all`].
pub(crate) fn try_one(field: &str, kind: &VerifierKind) -> Result<(), RunError> {
    let VerifierKind::Command {
        program, arguments, ..
    } = kind
    else {
        return Ok(());
    };
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut child = started.map_err(|source| RunError::NoJudge {
        field: field.to_owned(),
        program: program.clone(),
        source,
    })?;
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
    Ok(())
}
