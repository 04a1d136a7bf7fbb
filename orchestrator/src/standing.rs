//! What a run stands on, a harness version and weights; and the way back to what it stood on before.

use std::sync::Arc;

use registry::{Decision, Version};

use crate::clock::unix_seconds;
use crate::error::RunError;
use crate::harness_loop::Head;
use crate::history::History;
use crate::lineage::since;
use crate::report::{Cause, Place, RollbackRow, kind};
use crate::rollouts::Arm;
use crate::workshop::Workshop;

/// A harness version and weights.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The version.
    pub head: Head,
    /// The weights' adapter; none for the base model.
    pub adapter: Option<String>,
}

impl Standing {
    /// Whether the other one is the same harness with the same weights, under whatever name.
    pub fn is_like(&self, other: &Self) -> bool {
        self.adapter == other.adapter && self.head.harness.id() == other.head.harness.id()
    }

    /// Its names, for reports.
    pub(crate) fn place(&self) -> Place {
        Place {
            version: self.head.name(),
            adapter: self.adapter.clone(),
        }
    }
}

impl Workshop {
    /// Weights and harness, ready to be rolled out.
    pub(crate) async fn arm_of(&self, standing: &Standing) -> Result<Arm, RunError> {
        Ok(Arm {
            policy: self.policy(standing.adapter.as_deref()).await?,
            harness: Arc::clone(&standing.head.harness),
        })
    }

    /// Go back from what the run stands on to what it stood on before: the old harness becomes a new
    /// version with the reason, the old weights are taken again, and the patches in between count as
    /// rejected.
    ///
    /// # Errors
    /// When registry or store fail.
    pub(crate) async fn go_back(
        &self,
        round: u32,
        cause: Cause,
        reason: &str,
        [from, to]: [&Standing; 2],
        history: &mut History,
    ) -> Result<Standing, RunError> {
        let (old, target) = (&from.head, &to.head);
        let seconds = u64::try_from(unix_seconds()).unwrap_or(0);
        let made = if old.harness.id() == target.harness.id() {
            None
        } else {
            let name = target.version.name;
            Some(self.with_registry(|registry| {
                registry.rollback_from(&old.version, name, reason, seconds)
            })?)
        };
        // Where the harness is the same, whatever its versions are called, only weights go back.
        let undone = match made {
            Some(_) => self.made_since(&target.version, &old.version)?,
            None => Vec::new(),
        };
        for (_, decision) in &undone {
            history.withdraw(decision);
        }
        let row = RollbackRow {
            round,
            cause,
            from: from.place(),
            to: to.place(),
            version: made.as_ref().map(|version| version.name.to_string()),
            undone: undone.into_iter().map(|(name, _)| name).collect(),
            reason: reason.to_owned(),
        };
        self.line(row.outline());
        let key = self.key(kind::ROLLBACK, &[&round.to_string(), reason]);
        self.store
            .record_step(&key, kind::ROLLBACK, round, &row, unix_seconds())
            .await?;
        Ok(Standing {
            head: match made {
                Some(version) => Head {
                    version,
                    harness: Arc::clone(&target.harness),
                },
                None => old.clone(),
            },
            adapter: to.adapter.clone(),
        })
    }

    /// Versions made by patches and removals that `last` rests on and `first` doesn't. The history may be
    /// longer: a run that starts again finds what it did later.
    fn made_since(
        &self,
        first: &Version,
        last: &Version,
    ) -> Result<Vec<(String, Decision)>, RunError> {
        let mut history = self.with_registry(registry::Registry::history)?;
        history.retain(|version| version.name <= last.name);
        let made = since(&history, first.name).into_iter();
        Ok(made
            .map(|(version, decision)| (version.name.to_string(), decision.clone()))
            .collect())
    }
}
