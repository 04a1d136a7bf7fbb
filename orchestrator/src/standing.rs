//! What a run stands on, a harness version and weights; and the way back to what it stood on before.

use std::path::Path;
use std::sync::Arc;

use registry::{Origin, RegistryError, Version, VersionName};

use crate::clock::unix_seconds;
use crate::error::RunError;
use crate::harness_loop::Head;
use crate::history::History;
use crate::lineage::lost;
use crate::reference::Reference;
use crate::report::{BeginRow, Cause, EvaluateRow, Place, RollbackRow, kind, rows_of};
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

    /// What a round starts from: what the run stands on, or the harness that a person has put in its place
    /// since, with the same weights. The journal keeps it: a round that goes on starts from where it
    /// started, whatever the registry's head is by then.
    ///
    /// # Errors
    /// When what a person has put there can't be run, or registry or store fail.
    pub async fn begin(
        &self,
        round: u32,
        standing: Standing,
        reference: &mut Reference,
        history: &mut History,
    ) -> Result<Standing, RunError> {
        let key = self.key(kind::BEGIN, &[&round.to_string()]);
        let known: Option<BeginRow> = self.store.step(&key).await?;
        let version = match known {
            Some(row) => row.version,
            None => {
                let version = match self.is_over(round).await? {
                    true => standing.head.version.clone(),
                    false => self.put_by_hand(&standing.head.version).await?,
                };
                let (head, name) = (standing.head.version.name, version.name);
                if name != head {
                    // Once it is in the journal, no later commit changes it.
                    self.check_by_hand(&version, head).await?;
                }
                let version = name.to_string();
                let row = BeginRow { round, version };
                self.store
                    .record_step(&key, kind::BEGIN, round, &row, unix_seconds())
                    .await?;
                row.version
            }
        };
        if version == standing.head.name() {
            return Ok(standing);
        }
        let begun = Standing {
            head: self.head(&version)?,
            adapter: standing.adapter.clone(),
        };
        self.follow(round, [&standing, &begun], history).await?;
        if !begun.is_like(&standing) {
            // Else a look at the best so far could bring back what the person didn't want.
            reference.best = begun.clone();
        }
        Ok(begun)
    }

    /// Whether a round has its place in the table. Without a start of its own it is one of a version that
    /// didn't keep it, and what a person did since is for the next one.
    async fn is_over(&self, round: u32) -> Result<bool, RunError> {
        let cells: Vec<EvaluateRow> = rows_of(&self.store, kind::EVALUATE).await?;
        let label = EvaluateRow::label_of(round);
        Ok(cells.iter().any(|cell| cell.label == label))
    }

    /// Check that `version`, which a person has put on top of `head`, is a harness that can be run here.
    async fn check_by_hand(&self, version: &Version, head: VersionName) -> Result<(), RunError> {
        let name = version.name.to_string();
        let path = Path::new(&name);
        let checked = async {
            let put = self.head(&name)?;
            self.check_harness(&put.harness, path).await?;
            self.check_skills(&put.harness, path).await
        }
        .await;
        checked.map_err(|error| match error {
            RunError::Harness { .. }
            | RunError::Registry(
                RegistryError::Folder { .. } | RegistryError::TreeEntry { .. },
            ) => RunError::PutByHand {
                version: version.name,
                head,
                source: Box::new(error),
            },
            other => other,
        })
    }

    /// The version that a person has put on top of `head`; without one, `head` itself. What the run itself
    /// did on top of it is no person's.
    async fn put_by_hand(&self, head: &Version) -> Result<Version, RunError> {
        let own: Vec<RollbackRow> = rows_of(&self.store, kind::ROLLBACK).await?;
        let history = self.with_registry(registry::Registry::history)?;
        let is_own = |name: &str| {
            let mut own = own.iter().filter(|row| row.cause != Cause::Hand);
            own.any(|row| row.version.as_deref() == Some(name))
        };
        let later = history.iter().skip_while(|later| later.name <= head.name);
        let by_hand = later.take_while(|later| match &later.origin {
            Origin::Foreign { .. } => true,
            Origin::Rollback { .. } => !is_own(&later.name.to_string()),
            Origin::Initial(_) | Origin::Patch(_) => false,
        });
        Ok(by_hand.last().unwrap_or(head).clone())
    }

    /// Tell what a person has put in the place of what the run stood on.
    async fn follow(
        &self,
        round: u32,
        [from, to]: [&Standing; 2],
        history: &mut History,
    ) -> Result<(), RunError> {
        let new = &to.head.version;
        let (target, reason) = match &new.origin {
            Origin::Rollback { to, reason } => (*to, reason.clone()),
            _ => (new.name, "committed by hand".to_owned()),
        };
        let row = RollbackRow {
            round: round.saturating_sub(1),
            cause: Cause::Hand,
            from: from.place(),
            to: Place {
                version: target.to_string(),
                adapter: to.adapter.clone(),
            },
            version: Some(new.name.to_string()),
            undone: Vec::new(),
            reason,
        };
        let (name, outline) = (new.name, row.outline());
        self.line(format!("round {round} starts from {name}: {outline}"));
        let key = self.key(kind::ROLLBACK, &["hand", &name.to_string()]);
        let versions = [from.head.version.name, name];
        self.withdraw(&key, versions, row, history).await
    }

    /// Go back from what the run stands on to what it stood on before: the old harness becomes a new
    /// version with the reason, and the old weights are taken again.
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
        let (left, taken) = (from.place(), to.place());
        let seconds = u64::try_from(unix_seconds()).unwrap_or(0);
        // The registry knows a rollback by its reason, and an earlier version may have had other words for it.
        let made_before: Vec<RollbackRow> = rows_of(&self.store, kind::ROLLBACK).await?;
        let known = made_before.into_iter().find(|row| {
            (row.round, row.cause) == (round, cause) && row.from == left && row.to == taken
        });
        let reason = known.map_or_else(|| reason.to_owned(), |row| row.reason);
        // Where the harness is the same, whatever its versions are called, only weights go back.
        let made = if old.harness.id() == target.harness.id() {
            None
        } else {
            let name = target.version.name;
            self.store.flush().await?;
            let version = self.with_registry(|registry| {
                registry.rollback_from(&old.version, name, &reason, seconds)
            })?;
            Some(Head {
                version,
                harness: Arc::clone(&target.harness),
            })
        };
        let row = RollbackRow {
            round,
            cause,
            from: left,
            to: taken,
            version: made.as_ref().map(Head::name),
            undone: Vec::new(),
            reason,
        };
        self.line(row.outline());
        let key = self.key(kind::ROLLBACK, &[&round.to_string(), &row.reason]);
        let head = made.unwrap_or_else(|| old.clone());
        let versions = [old.version.name, head.version.name];
        self.withdraw(&key, versions, row, history).await?;
        Ok(Standing {
            head,
            adapter: to.adapter.clone(),
        })
    }

    /// Record that the run went back from version `old` to `new`. Patches that `new` is without count as
    /// rejected.
    async fn withdraw(
        &self,
        key: &str,
        [old, new]: [VersionName; 2],
        mut row: RollbackRow,
        history: &mut History,
    ) -> Result<(), RunError> {
        let versions = self.with_registry(registry::Registry::history)?;
        for (version, decision) in lost(&versions, [old, new]) {
            // Only the first version has none, and no decision made it.
            if let Some(parent) = version.parent {
                let (_, before) =
                    self.with_registry(|registry| registry.load(&parent.to_string()))?;
                history.withdraw(decision, &before);
            }
            row.undone.push(version.name.to_string());
        }
        Ok(self
            .store
            .record_step(key, kind::ROLLBACK, row.round, &row, unix_seconds())
            .await?)
    }
}
