//! The harness that a run or an evaluation starts with: whether it can be run here.

use std::path::{Path, PathBuf};

use harness::{CallFormat, Harness, Hook, ToolState};
use rollout::verifier::VerifierKind;
use sandbox::{SandboxError, SandboxPolicy};

use super::Workshop;
use crate::config::PolicyConfig;
use crate::error::RunError;
use crate::observer::Notice;

impl Workshop {
    /// Check a starting harness against the policy, this machine and the verifier. A patch that asks for what can't
    /// be had loses at the gate; a run that starts so would learn nothing.
    ///
    /// # Errors
    /// When it asks for what the policy can't do, or a tool can't run here.
    pub(crate) async fn check_harness(&self, harness: &Harness) -> Result<(), RunError> {
        check_asked(
            harness,
            Path::new(&harness.name),
            &self.loaded.config.policy,
        )?;
        for (name, tool) in &harness.tools {
            let policy = SandboxPolicy {
                memory_mib: tool.limits.memory_mib,
                ..SandboxPolicy::default()
            };
            let mut tried = self.tools.run_python("", &policy).await.map(drop);
            if tool.state == ToolState::Stateful && tried.is_ok() {
                tried = self.tools.open_session().await.map(drop);
            }
            let Err(fault) = tried else {
                continue;
            };
            match fault.source.downcast_ref::<SandboxError>() {
                Some(SandboxError::Policy(_) | SandboxError::NoForkServer { .. }) => {
                    return Err(RunError::Harness {
                        path: PathBuf::from(&harness.name),
                        reason: format!("the tool {name} can't run here: {}", fault.source),
                    });
                }
                _ => return Err(fault.into()),
            }
        }
        self.warn_of_calls(harness);
        Ok(())
    }

    /// Warn where `harness` takes the programs that are asked for as answers for calls.
    fn warn_of_calls(&self, harness: &Harness) {
        let middleware = &harness.middleware;
        let takes_blocks = middleware.protocol.call_format == CallFormat::Fenced
            || middleware
                .hooks
                .post_model_call
                .contains(&Hook::ExtractFencedCode {});
        let is_asked_for = matches!(self.loaded.config.tasks.verifier, VerifierKind::Code(_));
        if is_asked_for && takes_blocks && !harness.tools.is_empty() {
            let text = "tasks.verifier is code, but the harness takes fenced code for a call of its tool: a \
                        program that is meant as the answer is run as a call. Use another call format, \
                        without extract_fenced_code, or no tool";
            self.notice(Notice::Warning(text.into()));
        }
    }
}

/// Check that `policy` can do what `harness`, named by `path`, asks of it.
///
/// # Errors
/// When it can't, so that every rollout would fail.
pub(crate) fn check_asked(
    harness: &Harness,
    path: &Path,
    policy: &PolicyConfig,
) -> Result<(), RunError> {
    match policy.lacks(harness) {
        Some(reason) => Err(RunError::Harness {
            path: path.to_owned(),
            reason: reason.to_owned(),
        }),
        None => Ok(()),
    }
}
