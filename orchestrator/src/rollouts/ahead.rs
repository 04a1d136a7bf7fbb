//! Rollouts that are made ahead of the phase that needs them.
//!
//! At the end of a phase a few long rollouts run alone. Where it is known what comes next, whatever they
//! come to, the run says so ([`Workshop::foresee`]), and that is begun in the room beside them. Nothing
//! else differs: problems, seeds and policies are those of the later phase, which finds such a rollout in
//! the journal, or in flight and waits for it. What no phase asks for in the end isn't counted anywhere.
//!
//! One that policy or sandbox keep from ending is forgotten. Its own phase makes it, and meets the fault
//! as any other.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use model::decode::EngineOptions;
use rollout::agent::{Agent, rollout};
use rollout::task::Split;
use rollout::trajectory::{RolloutId, Trajectory};
use tokio::task::{JoinError, JoinSet};

use super::rest::Rest;
use super::{Arm, Trial};
use crate::clock::unix_seconds;
use crate::config::PolicyConfig;
use crate::error::RunError;
use crate::stop::Stop;
use crate::store::{Basis, Made, Store, StoreError};
use crate::workshop::Workshop;

/// Rollouts that a phase to come asks for.
pub(crate) struct Stretch {
    pub(crate) arm: Arm,
    pub(crate) split: Split,
    pub(crate) trials: Vec<Trial>,
    /// The round of that phase.
    pub(crate) round: u32,
}

/// A rollout to be made ahead.
struct Coming {
    id: RolloutId,
    agent: Agent,
    trial: Trial,
    split: Split,
    basis: Basis,
    round: u32,
    /// It is begun only beside fewer rollouts than this.
    most: usize,
}

impl Coming {
    /// Makes it and, unless policy or sandbox kept it from ending, stores it.
    async fn make(self, store: Store, stop: Arc<Stop>) -> Result<Trajectory, StoreError> {
        let Self {
            agent,
            trial,
            split,
            basis,
            round,
            ..
        } = self;
        let trajectory = rollout(&agent, &trial.task, split, trial.seed).await;
        if !trajectory.exit.is_infrastructure() {
            let at = unix_seconds();
            store
                .record_ahead(&trajectory, &basis, Made { round, at })
                .await?;
            stop.budget().rolled_out(&trajectory.usage);
        }
        Ok(trajectory)
    }
}

/// What goes from one phase to the next: what is made ahead, in flight or still to be begun, in order, and
/// the rest that the server asked for.
#[derive(Default)]
pub(crate) struct Ahead {
    coming: VecDeque<Coming>,
    flights: JoinSet<Result<Trajectory, StoreError>>,
    /// Those of the flights.
    ids: BTreeSet<RolloutId>,
    pub(super) rest: Rest,
}

impl Ahead {
    /// How many are in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Whether this one is in flight.
    pub(super) fn is_in_flight(&self, id: &RolloutId) -> bool {
        self.ids.contains(id)
    }

    /// Leave these to the phase that asks for them now.
    pub(super) fn leave(&mut self, ids: &[RolloutId]) {
        if !self.coming.is_empty() {
            let ids: BTreeSet<&RolloutId> = ids.iter().collect();
            self.coming.retain(|next| !ids.contains(&next.id));
        }
    }

    /// Leave everything that isn't in flight to its own phase.
    pub(super) fn leave_all(&mut self) {
        self.coming.clear();
    }

    /// Begin the next one beside `running` others, if there is room for it; whether there was.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) async fn begin(
        &mut self,
        store: &Store,
        stop: &Arc<Stop>,
        running: usize,
    ) -> Result<bool, StoreError> {
        while self.coming.front().is_some_and(|next| running < next.most)
            && let Some(next) = self.coming.pop_front()
        {
            if self.is_in_flight(&next.id) || store.has_trajectory(&next.id).await? {
                continue;
            }
            self.ids.insert(next.id.clone());
            self.flights
                .spawn(next.make(store.clone(), Arc::clone(stop)));
            return Ok(true);
        }
        Ok(false)
    }

    /// The next one to end; none if none is in flight. Nothing is lost if the caller stops waiting.
    pub(super) async fn landed(&mut self) -> Option<Result<Trajectory, RunError>> {
        let landed = self.flights.join_next().await?;
        Some(self.took(landed))
    }

    /// Take what has landed already, without waiting: between phases nobody looks, and it may be that the server
    /// asks for a rest.
    ///
    /// # Errors
    /// When the store failed, or a rollout did.
    pub(super) fn settle(&mut self) -> Result<(), RunError> {
        while let Some(landed) = self.flights.try_join_next() {
            if self.took(landed)?.exit.is_infrastructure() {
                self.leave_all();
            }
        }
        Ok(())
    }

    fn took(
        &mut self,
        landed: Result<Result<Trajectory, StoreError>, JoinError>,
    ) -> Result<Trajectory, RunError> {
        let landed = match landed {
            Ok(made) => made.map_err(RunError::from),
            Err(error) => Err(RunError::Panic {
                reason: error.to_string(),
            }),
        };
        if let Ok(trajectory) = &landed {
            self.ids.remove(&trajectory.id);
            self.rest.heed(&trajectory.exit);
        }
        // Those that came to an error have no id any more.
        if self.flights.is_empty() {
            self.ids.clear();
        }
        landed
    }

    /// Wait for what is in flight, and begin nothing more.
    ///
    /// # Errors
    /// The first fault of the store. All the others are waited for in every case.
    pub(crate) async fn finish(&mut self) -> Result<(), RunError> {
        self.leave_all();
        let mut outcome = Ok(());
        while let Some(landed) = self.landed().await {
            outcome = outcome.and(landed.map(drop));
        }
        outcome
    }
}

impl Workshop {
    /// Say what the phases from now on ask for whatever becomes of the one in between, in their order. It
    /// takes the place of what was said before.
    pub(crate) async fn foresee(&self, stretches: Vec<Stretch>) {
        let coming = stretches.iter().flat_map(|stretch| self.coming(stretch));
        let coming: VecDeque<Coming> = coming.collect();
        self.ahead.lock().await.coming = coming;
    }

    fn coming(&self, stretch: &Stretch) -> Vec<Coming> {
        let Stretch {
            arm,
            split,
            trials,
            round,
        } = stretch;
        let agent = self.agent(arm, &self.judge);
        // Beyond these requests wait for each other: those of the last rollouts of a phase would wait for
        // those of the next one.
        let places = match &self.loaded.config.policy {
            PolicyConfig::Openai { in_flight, .. } => *in_flight,
            PolicyConfig::Local { .. } => EngineOptions::default().max_batch,
        };
        let coming = trials.iter().map(|trial| Coming {
            id: self.rollout_id(&agent, trial),
            agent: agent.clone(),
            trial: trial.clone(),
            split: *split,
            basis: self.judge.basis(&trial.task),
            round: *round,
            most: arm.width().min(places),
        });
        coming.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rollout::trajectory::ExitReason;

    use super::*;
    use crate::rollouts::testing::trajectory;

    #[tokio::test]
    async fn a_rest_that_the_server_asked_for_between_phases_is_known_to_the_next_one() {
        let mut refused = trajectory();
        refused.exit = ExitReason::Infrastructure {
            reason: "busy".into(),
            is_retryable: true,
            wait_s: Some(60),
        };
        let mut ahead = Ahead::default();
        ahead.ids.insert(refused.id.clone());
        ahead.flights.spawn(async move { Ok(refused) });
        tokio::time::sleep(Duration::from_millis(20)).await;
        ahead.settle().expect("nothing fails");
        assert!(ahead.rest.until(Instant::now()).is_some());
        assert_eq!((ahead.in_flight(), ahead.ids.len()), (0, 0));
    }
}
