//! Kept rollouts of an evaluation whose verdicts rest on other gold answers or another verifier.
//!
//! Neither is in a rollout's key, since rolling out is what costs. A run has one configuration and one
//! set of problems for all its life; an evaluation takes whatever it is given, so before it counts it
//! judges anew what was judged otherwise. A verdict that isn't known within its budget gets another try,
//! and so does one by a program of the user's, which may have been mended under its name.

use rollout::Recheck;
use rollout::trajectory::Trajectory;
use tokio::task::JoinSet;

use crate::counted::{are, counted};
use crate::error::RunError;
use crate::rollouts::{Arm, Trial};
use crate::store::Basis;
use crate::workshop::Workshop;

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    judged: usize,
    changed: usize,
    forgotten: usize,
}

/// A rollout that was judged anew.
struct Rechecked {
    before: Trajectory,
    /// None where it has to be made again.
    after: Option<Trajectory>,
    basis: Basis,
}

impl Workshop {
    /// Judges the kept rollouts of `trials` anew where their verdicts rest on something else than
    /// now, and forgets those that may have gone another way.
    ///
    /// # Errors
    /// When the run is to stop, or the store fails. What was judged by then is stored.
    pub(crate) async fn recheck(&self, arm: &Arm, trials: &[Trial]) -> Result<(), RunError> {
        let agent = self.agent(arm, &self.judge);
        let width = arm.harness.middleware.runtime.parallel_rollouts.max(1) as usize;
        let mut running = JoinSet::new();
        let mut tally = Tally::default();
        for trial in trials {
            if let Some(reason) = self.stop.reason() {
                return Err(RunError::Stopped { reason });
            }
            let id = self.rollout_id(&agent, trial);
            let Some(before) = self.store.trajectory(&id).await? else {
                continue;
            };
            let known = self.store.basis(&id).await?;
            let basis = self.judge.basis(&trial.task);
            let is_settled = known.as_ref() == Some(&basis)
                && !before.verdict.undecided
                && !basis.verifier.is_external();
            if is_settled || before.exit.is_infrastructure() {
                continue;
            }
            if running.len() >= width {
                self.settle(running.join_next().await, &mut tally).await?;
            }
            let (agent, gold) = (agent.clone(), trial.task.answer.clone());
            running.spawn(async move {
                let recheck = Recheck {
                    harness: &agent.harness,
                    kind: &basis.verifier,
                    verifier: agent.verifier.as_ref(),
                    gold: &gold,
                };
                let mut after = before.clone();
                let made_under = known.as_ref().map(|known| &known.verifier);
                let is_judged = recheck.judge(&mut after, made_under).await;
                Rechecked {
                    before,
                    after: is_judged.then_some(after),
                    basis,
                }
            });
        }
        while !running.is_empty() {
            self.settle(running.join_next().await, &mut tally).await?;
        }
        if let Some(text) = tally.text() {
            self.line(text);
        }
        Ok(())
    }

    /// Stores what a recheck came to.
    async fn settle(
        &self,
        joined: Option<Result<Rechecked, tokio::task::JoinError>>,
        tally: &mut Tally,
    ) -> Result<(), RunError> {
        let Some(joined) = joined else { return Ok(()) };
        let Rechecked {
            before,
            after,
            basis,
        } = joined.map_err(|error| RunError::Panic {
            reason: error.to_string(),
        })?;
        match after {
            Some(after) => {
                tally.judged += 1;
                tally.changed += usize::from(after.verdict != before.verdict);
                self.store.replace_verdict(&after, &basis).await?;
            }
            None => {
                tally.forgotten += 1;
                self.store.forget(&before.id).await?;
            }
        }
        Ok(())
    }
}

impl Tally {
    /// For whoever watches; none where nothing has become another.
    fn text(self) -> Option<String> {
        let mut parts = Vec::new();
        if self.changed > 0 {
            parts.push(format!(
                "{} of {} that {} judged anew got another verdict",
                self.changed,
                counted(self.judged, "kept rollout"),
                if self.judged == 1 { "was" } else { "were" }
            ));
        }
        if self.forgotten > 0 {
            parts.push(format!(
                "{} {} made again: hooks of the harness act on answers, which the verifier now finds or compares \
                 otherwise",
                counted(self.forgotten, "kept rollout"),
                are(self.forgotten)
            ));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}
