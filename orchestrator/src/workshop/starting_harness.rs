//! The harness that a run or an evaluation starts with: whether it can be run here.

use std::path::Path;

use harness::{CallFormat, Harness, Hook, Tool, ToolState};
use rollout::verifier::VerifierKind;
use sandbox::{SandboxError, SandboxPolicy};

use super::Workshop;
use crate::config::PolicyConfig;
use crate::error::RunError;
use crate::observer::Notice;

impl Workshop {
    /// Check a starting harness, which stands at `path`, against the policy, this machine and the verifier. A patch
    /// that asks for what can't be had loses at the gate; a run that starts so would learn nothing.
    ///
    /// # Errors
    /// When it asks for what can't be had, or a tool can't run here.
    pub(crate) async fn check_harness(
        &self,
        harness: &Harness,
        path: &Path,
    ) -> Result<(), RunError> {
        check_asked(harness, path, &self.loaded.config.policy)?;
        for (name, tool) in &harness.tools {
            let mut tried = self.tools.run_python("", &bounds(tool)).await.map(drop);
            if tool.state == ToolState::Stateful && tried.is_ok() {
                tried = self.tools.open_session().await.map(drop);
            }
            let Err(fault) = tried else {
                continue;
            };
            let cause = fault.source.downcast_ref::<SandboxError>();
            if let Some(error @ SandboxError::NoForkServer { .. }) = cause {
                return Err(RunError::Harness {
                    path: path.to_owned(),
                    reason: format!("tools/{name}.yaml: state: {error}"),
                });
            }
            return Err(fault.into());
        }
        self.warn_of_calls(harness);
        Ok(())
    }

    /// Check that the Python of each skill runs: where it doesn't, every call fails. A patch with such a skill is
    /// refused by the same look.
    ///
    /// # Errors
    /// When it doesn't run, the run is to stop, or the sandbox fails.
    pub(crate) async fn check_skills(
        &self,
        harness: &Harness,
        path: &Path,
    ) -> Result<(), RunError> {
        for (name, skill) in &harness.skills {
            if skill.python.is_empty() {
                continue;
            }
            if let Some(error) = self.fault_of_skill(harness, name).await? {
                return Err(RunError::Harness {
                    path: path.to_owned(),
                    reason: format!("skills/{name}/skill.py fails: {error}"),
                });
            }
        }
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

/// Check what can be told without a sandbox: that `policy` can do what `harness`, which stands at `path`, asks of
/// it, and that its tools are given what an interpreter needs.
///
/// # Errors
/// When every rollout would fail, or every call.
pub(crate) fn check_asked(
    harness: &Harness,
    path: &Path,
    policy: &PolicyConfig,
) -> Result<(), RunError> {
    let refused = |reason| RunError::Harness {
        path: path.to_owned(),
        reason,
    };
    if let Some(reason) = policy.lacks(harness) {
        return Err(refused(reason.to_owned()));
    }
    for (name, tool) in &harness.tools {
        // The memory is all that a harness sets of these bounds.
        bounds(tool)
            .validate(true)
            .map_err(|error| refused(format!("tools/{name}.yaml: limits.memory_mib: {error}")))?;
    }
    Ok(())
}

/// Bounds of a program that only shows whether a tool can run.
fn bounds(tool: &Tool) -> SandboxPolicy {
    SandboxPolicy {
        memory_mib: tool.limits.memory_mib,
        ..SandboxPolicy::default()
    }
}
