//! Cheap checks of proposals, before any of them is measured.
//!
//! In this order: the leak guard; whether the patch applies and the result is a harness; the limits of
//! growth; whether the programs that it shows run and print what it says they print; and two rollouts
//! of problems that the critic has seen, which only have to be possible. A proposal that fails one is
//! remembered like one that the gate turned down, so nothing that may pass counts: a sandbox or a policy
//! that fails is tried again as rollouts are, and a program that ran out of time gets a second run. What
//! the checks that run something have said is kept in the journal.

use std::sync::Arc;
use std::time::Duration;

use critic::{Proposal, TooLarge, TriedPatch, at_risk};
use harness::{Example, Harness, Hook, HookPoint, Tool, ToolState};
use rollout::policy::Policy;
use rollout::tools::Script;
use rollout::trajectory::{ExitReason, Trajectory};
use sandbox::{Exit, SandboxPolicy};
use serde_json::Value;

use crate::clock::unix_seconds;
use crate::error::RunError;
use crate::harness_loop::Head;
use crate::observer::Notice;
use crate::report::{RefusedRow, kind};
use crate::rollouts::{Arm, Trial};
use crate::workshop::Workshop;

/// Rollouts that a candidate has to be able to make.
const SMOKE_ROLLOUTS: usize = 2;

/// A proposal that passed, with the harness it makes.
pub(crate) struct Screened {
    pub(crate) proposal: Proposal,
    pub(crate) harness: Arc<Harness>,
}

/// Why one is turned down.
struct Refusal {
    reason: String,
    /// The limit of growth that it would go beyond, if that is why.
    too_large: Option<TooLarge>,
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Refusal {
            reason,
            too_large: None,
        }
    }
}

/// What proposals are checked against.
pub(crate) struct Diagnosed<'a> {
    /// The round.
    pub(crate) round: u32,
    /// The cycle of its harness loop.
    pub(crate) iteration: u32,
    /// The harness that was diagnosed.
    pub(crate) head: &'a Head,
    /// The weights.
    pub(crate) policy: &'a Arc<dyn Policy>,
    /// The problems, with their seeds.
    pub(crate) trials: &'a [Trial],
    /// What became of each.
    pub(crate) trajectories: &'a [Trajectory],
}

impl Workshop {
    /// The first `count` proposals that pass, and those that were turned down on the way.
    ///
    /// # Errors
    /// When the run is to stop, the sandbox fails, or the store does.
    pub(crate) async fn screen(
        &self,
        diagnosed: &Diagnosed<'_>,
        proposals: Vec<Proposal>,
        count: usize,
        tried: &mut Vec<TriedPatch>,
    ) -> Result<(Vec<Screened>, Vec<RefusedRow>), RunError> {
        let (mut passed, mut refused) = (Vec::new(), Vec::new());
        for mut proposal in proposals {
            if passed.len() == count {
                break;
            }
            match self.check(diagnosed, &proposal).await? {
                Ok(harness) => {
                    let before = &diagnosed.head.harness;
                    let risks = at_risk(before, &harness, diagnosed.trajectories);
                    proposal.predicted.at_risk.extend(risks);
                    passed.push(Screened {
                        proposal,
                        harness: Arc::new(harness),
                    });
                }
                Err(Refusal { reason, too_large }) => {
                    let patch = &proposal.patch;
                    self.notice(Notice::Warning(format!(
                        "patch refused unmeasured: {} {} ({reason})",
                        patch.dimension, patch.summary
                    )));
                    refused.push(RefusedRow {
                        dimension: patch.dimension.to_string(),
                        summary: patch.summary.clone(),
                        reason,
                    });
                    let (before, policy) = (&diagnosed.head.harness, diagnosed.policy.id());
                    tried.push(TriedPatch {
                        too_large,
                        ..TriedPatch::new(before, proposal.patch, policy.clone(), false)
                    });
                }
            }
        }
        Ok((passed, refused))
    }

    /// The patched harness, or why the proposal is turned down.
    async fn check(
        &self,
        diagnosed: &Diagnosed<'_>,
        proposal: &Proposal,
    ) -> Result<Result<Harness, Refusal>, RunError> {
        let before = &diagnosed.head.harness;
        if let Err(leak) = self.leak_guard().check(&proposal.patch) {
            return Ok(Err(leak.to_string().into()));
        }
        let after = match proposal.patch.apply(before) {
            Ok(after) => after,
            Err(error) => return Ok(Err(format!("it does not apply: {error}").into())),
        };
        if let Err(too_large) = self.loaded.config.critic.growth.check(before, &after) {
            return Ok(Err(Refusal {
                reason: too_large.to_string(),
                too_large: Some(too_large),
            }));
        }
        let harness = Arc::new(after);
        Ok(match self.try_out(diagnosed, &harness).await? {
            Some(reason) => Err(reason.into()),
            None => Ok(Arc::unwrap_or_clone(harness)),
        })
    }

    /// Runs the programs and the rollouts of a candidate; why that isn't possible. Both may end otherwise
    /// on another day, by the machine's load or a server's state, and the round's candidates would have
    /// other numbers: what was said once is taken from the journal.
    async fn try_out(
        &self,
        diagnosed: &Diagnosed<'_>,
        harness: &Arc<Harness>,
    ) -> Result<Option<String>, RunError> {
        let place = format!("{}.{}", diagnosed.round, diagnosed.iteration);
        let id = harness.id().to_hex();
        let parts = [place.as_str(), &id, diagnosed.policy.id().as_str()];
        let key = self.key(kind::CHECK, &parts);
        if let Some(known) = self.store.step::<Option<String>>(&key).await? {
            return Ok(known);
        }
        let before = &diagnosed.head.harness;
        let reason = match self.try_programs(before, harness).await? {
            Some(reason) => Some(reason),
            None => self.try_rollouts(diagnosed, harness).await?,
        };
        self.store
            .record_step(&key, kind::CHECK, diagnosed.round, &reason, unix_seconds())
            .await?;
        Ok(reason)
    }

    /// Runs the programs that are new in `after`; what is wrong with them.
    async fn try_programs(
        &self,
        before: &Harness,
        after: &Harness,
    ) -> Result<Option<String>, RunError> {
        let known = &before.prompts.examples;
        let new = after.prompts.examples.iter();
        for example in new.filter(|example| !known.contains(example)) {
            if let Some(reason) = self.try_example(after, example).await? {
                return Ok(Some(format!("example {}: {reason}", example.title)));
            }
        }
        for (name, skill) in &after.skills {
            let known = before.skills.get(name).map(|known| &known.python);
            if known == Some(&skill.python) || skill.python.is_empty() {
                continue;
            }
            if let Some(error) = self.fault_of_skill(after, name).await? {
                return Ok(Some(format!("skill {name}: its Python fails: {error}")));
            }
        }
        let known: Vec<&str> = texts(before).collect();
        let limits = SandboxPolicy::default();
        for text in texts(after).filter(|text| !known.contains(text)) {
            for program in python_blocks(text) {
                // Parsed, not run: a block of a text may be a part of a program.
                let source = Value::from(program);
                let parsing = format!("import ast\nast.parse({source})\n");
                let run = self.run_program(&parsing, &limits).await?;
                if let Some(error) = run.error {
                    return Ok(Some(format!("a code block isn't Python: {error}")));
                }
            }
        }
        Ok(None)
    }

    async fn try_example(
        &self,
        harness: &Harness,
        example: &Example,
    ) -> Result<Option<String>, RunError> {
        let hooks = &harness.middleware.hooks.pre_tool_call;
        let prints = hooks
            .iter()
            .any(|hook| matches!(hook, Hook::AutoPrintLastExpression {}));
        let script = Script::new(harness, &example.problem);
        let mut earlier = String::new();
        for step in &example.steps {
            let tool = harness.tools.get(step.tool.as_str());
            let Some((tool, code)) = tool.and_then(|tool| {
                let code = step.arguments.get(tool.code_argument()?)?;
                Some((tool, code))
            }) else {
                continue;
            };
            let source = format!("{earlier}{code}\n");
            let whole = script.of(&source, ToolState::Stateless, None);
            let run = self.run_program(&whole, &limits(tool)).await?;
            if let Some(error) = run.error {
                return Ok(Some(format!("its program fails: {error}")));
            }
            // With what earlier steps printed in front of it, where they share an interpreter.
            let (said, printed) = (step.result.trim(), run.stdout.trim());
            let is_shown = printed == said || !earlier.is_empty() && printed.ends_with(said);
            let is_missing = prints && printed.is_empty();
            if !is_shown && !is_missing {
                return Ok(Some(format!(
                    "its program prints {printed:?}, and the example says {said:?}"
                )));
            }
            if tool.state == ToolState::Stateful {
                earlier = source;
            }
        }
        Ok(None)
    }

    /// Runs the Python of a skill with as much as a tool gives it, and if it fails, behind that of the skills
    /// before it, which it may build on; what is wrong with it.
    ///
    /// # Errors
    /// When the run is to stop, or the sandbox fails.
    pub(crate) async fn fault_of_skill(
        &self,
        harness: &Harness,
        name: &str,
    ) -> Result<Option<String>, RunError> {
        let limits = most_given(harness);
        let mut source = String::new();
        for (other, skill) in &harness.skills {
            if other == name {
                let alone = self.run_program(&skill.python, &limits).await?.error;
                if alone.is_none() || source.is_empty() {
                    return Ok(alone);
                }
                source.push_str(&skill.python);
                let together = self.run_program(&source, &limits).await?.error;
                return Ok(alone.filter(|_| together.is_some()));
            }
            if !skill.python.is_empty() {
                source.push_str(skill.python.trim_end());
                source.push_str("\n\n");
            }
        }
        Ok(None)
    }

    async fn run_program(
        &self,
        source: &str,
        limits: &SandboxPolicy,
    ) -> Result<ProgramRun, RunError> {
        let execution = match self.run_checked(source, limits).await? {
            Ok(execution) => execution,
            Err(reason) => {
                return Ok(ProgramRun {
                    stdout: String::new(),
                    error: Some(reason),
                });
            }
        };
        let last_line = execution.stderr.lines().rev().map(str::trim);
        let last_line = last_line.into_iter().find(|line| !line.is_empty());
        let error = match &execution.exit {
            Exit::Code(0) => None,
            Exit::Code(code) => Some(last_line.map_or(format!("exit code {code}"), str::to_owned)),
            other => Some(format!("{other:?}")),
        };
        Ok(ProgramRun {
            stdout: execution.stdout,
            error,
        })
    }

    /// Rolls out a few of the diagnosed problems; why that isn't possible.
    async fn try_rollouts(
        &self,
        diagnosed: &Diagnosed<'_>,
        harness: &Arc<Harness>,
    ) -> Result<Option<String>, RunError> {
        let arm = |harness: &Arc<Harness>| Arm {
            policy: Arc::clone(diagnosed.policy),
            harness: Arc::clone(harness),
        };
        let (candidate, incumbent) = (arm(harness), arm(&diagnosed.head.harness));
        let failed = diagnosed.trials.iter().zip(diagnosed.trajectories);
        let failed = failed.filter(|(_, trajectory)| !trajectory.verdict.correct);
        let mut tried = 0;
        let mut unread = 0;
        let mut impossible = None;
        for (trial, before) in failed.take(SMOKE_ROLLOUTS) {
            let after = match self.try_smoke(&candidate, &incumbent, trial).await? {
                Smoke::Ended(after) => after,
                Smoke::Impossible(reason) => {
                    impossible = Some(reason);
                    continue;
                }
                Smoke::Unknown => continue,
            };
            tried += 1;
            let is_unread = |t: &Trajectory| t.model_calls.is_empty();
            if matches!(after.exit, ExitReason::ContextLimit) && is_unread(&after) {
                unread += usize::from(!is_unread(before));
            }
        }
        // One problem that can be rolled out shows that it is the other one's fault.
        if let Some(reason) = impossible.filter(|_| tried == 0) {
            return Ok(Some(format!("it can't be rolled out: {reason}")));
        }
        let is_too_long = tried > 0 && unread == tried;
        Ok(is_too_long.then(|| "its prompts leave no room for a problem".to_owned()))
    }

    /// One rollout of a candidate: again while the incumbent's succeeds and it doesn't, as often as
    /// `faults.attempts` say. A fault that passes is no fault of the patch.
    async fn try_smoke(
        &self,
        candidate: &Arm,
        incumbent: &Arm,
        trial: &Trial,
    ) -> Result<Smoke, RunError> {
        let faults = self.loaded.config.faults;
        let mut strikes = 0;
        loop {
            let after = self.try_rollout(candidate, trial).await?;
            let ExitReason::Infrastructure { reason, wait_s, .. } = &after.exit else {
                return Ok(Smoke::Ended(Box::new(after)));
            };
            // A server that asks to wait has refused nothing: the next attempt comes after that.
            if wait_s.is_some() {
                continue;
            }
            let now = self.try_rollout_afresh(incumbent, trial).await;
            if now.exit.is_infrastructure() {
                return Ok(Smoke::Unknown);
            }
            strikes += 1;
            if strikes >= faults.attempts {
                return Ok(Smoke::Impossible(reason.clone()));
            }
            self.pause(faults.pause(strikes)).await?;
        }
    }
}

/// What a rollout of a candidate came to.
enum Smoke {
    /// It ended by itself.
    Ended(Box<Trajectory>),
    /// It failed each time, while the incumbent's didn't: why.
    Impossible(String),
    /// Neither can be rolled out now: the surroundings, which the gate will meet and report.
    Unknown,
}

/// What a program came to.
struct ProgramRun {
    stdout: String,
    /// Its error in one line, if it failed.
    error: Option<String>,
}

fn limits(tool: &Tool) -> SandboxPolicy {
    let wall = Duration::from_millis(tool.limits.timeout_ms);
    let usual = SandboxPolicy::default();
    SandboxPolicy {
        wall: wall.max(usual.wall),
        cpu: wall.max(usual.cpu),
        memory_mib: tool.limits.memory_mib.max(usual.memory_mib),
        ..usual
    }
}

/// The most that a tool of a harness gives a program.
fn most_given(harness: &Harness) -> SandboxPolicy {
    let tools = harness.tools.values().map(limits);
    tools.fold(SandboxPolicy::default(), |most, tool| SandboxPolicy {
        wall: most.wall.max(tool.wall),
        cpu: most.cpu.max(tool.cpu),
        memory_mib: most.memory_mib.max(tool.memory_mib),
        ..most
    })
}

/// Texts of a harness that may hold code.
fn texts(harness: &Harness) -> impl Iterator<Item = &str> {
    let prompts = &harness.prompts;
    let hooks = &harness.middleware.hooks;
    let hooks = HookPoint::ALL
        .into_iter()
        .flat_map(move |point| hooks.at(point));
    [&prompts.system, &prompts.task, &prompts.final_answer]
        .into_iter()
        .chain(harness.tools.values().map(|tool| &tool.description))
        .chain(harness.skills.values().map(|skill| &skill.body))
        .chain(&harness.memory.entries)
        .map(String::as_str)
        .chain(hooks.flat_map(Hook::texts))
}

/// Blocks of Python in fences.
fn python_blocks(text: &str) -> Vec<&str> {
    let parts: Vec<&str> = text.split("```").collect();
    // Every second part is inside of a fence; one that isn't closed is no block.
    let inside = parts.iter().skip(1).step_by(2);
    let closed = parts.len().saturating_sub(1) / 2;
    inside
        .take(closed)
        .filter_map(|part| {
            let (word, code) = part.split_once('\n')?;
            matches!(word.trim(), "python" | "py").then_some(code)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_python_are_found_in_texts() {
        let text =
            "Like so:\n```python\nprint(1)\n```\nor\n```\nx\n```\n```py\ny\n```\n```python\nopen";
        assert_eq!(python_blocks(text), ["print(1)\n", "y\n"]);
        assert!(python_blocks("no code").is_empty());
    }
}
