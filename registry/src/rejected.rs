//! Candidates the gate turned down. They stay reachable, so that a person can look at them and `git gc`
//! keeps them.

use harness::Harness;

use crate::error::RegistryError;
use crate::id::{CommitId, RejectedName};
use crate::record::{RejectedEntry, Rejection, Version};
use crate::reference::Swap;
use crate::store::Registry;
use crate::wording;

impl Registry {
    /// Keeps a rejected candidate as a child of `parent`, beside the history. Repeated for the same candidate,
    /// parent, run and round it returns the commit that is there.
    ///
    /// # Errors
    /// [`RegistryError::PatchFails`] or [`RegistryError::PatchMismatch`] if the recorded patch does not lead from
    /// `parent` to `candidate`, [`RegistryError::UnknownParent`], or [`RegistryError::InvalidField`].
    pub fn record_rejected(
        &self,
        parent: &Version,
        candidate: &Harness,
        rejection: &Rejection,
    ) -> Result<RejectedEntry, RegistryError> {
        self.check_writable()?;
        let decision = &rejection.decision;
        let message = wording::rejected(rejection, &candidate.id())?;
        self.place(&self.named_commits()?, parent)?;
        self.check_patch(parent, &decision.patch, candidate)?;
        let files = harness::to_files(candidate);
        let tree = self.write_tree(&files)?;
        let mut commit = None;
        loop {
            let siblings: Vec<_> = self
                .rejected_commits()?
                .into_iter()
                .filter(|(name, _)| name.run == decision.run && name.round == decision.round)
                .collect();
            for (name, sibling) in &siblings {
                if self.tree(*sibling)? == tree && self.parent(*sibling)? == Some(parent.commit) {
                    return self.rejected_entry(name.clone(), *sibling);
                }
            }
            let commit = match commit {
                Some(commit) => commit,
                None => {
                    let new = self.write_commit(
                        tree,
                        Some(parent.commit),
                        &message,
                        decision.unix_seconds,
                    )?;
                    self.read_back(new, &files)?;
                    *commit.insert(new)
                }
            };
            let last = siblings
                .iter()
                .map(|(name, _)| name.index)
                .max()
                .unwrap_or(0);
            let name = RejectedName {
                run: decision.run.clone(),
                round: decision.round,
                index: last.saturating_add(1),
            };
            // A conflict means that another writer took the number: count again.
            if self.swap(&name.reference(), None, commit.0, "")? == Swap::Done {
                return self.rejected_entry(name, commit);
            }
        }
    }

    /// All rejected candidates by run, round and number.
    ///
    /// # Errors
    /// [`RegistryError::Damaged`] if a commit can't be read, [`RegistryError::ForeignRecord`] if one was not written
    /// by coharness.
    pub fn rejected(&self) -> Result<Vec<RejectedEntry>, RegistryError> {
        self.rejected_commits()?
            .into_iter()
            .map(|(name, commit)| self.rejected_entry(name, commit))
            .collect()
    }

    /// The names and commits of rejected candidates; references of another form are not ours to judge.
    pub(crate) fn rejected_commits(&self) -> Result<Vec<(RejectedName, CommitId)>, RegistryError> {
        let mut found: Vec<_> = self
            .references("refs/rejected/*")?
            .into_iter()
            .filter_map(|(name, target)| Some((name.parse().ok()?, CommitId(target))))
            .collect();
        found.sort();
        Ok(found)
    }

    pub(crate) fn rejected_entry(
        &self,
        name: RejectedName,
        commit: CommitId,
    ) -> Result<RejectedEntry, RegistryError> {
        let (message, unix_seconds) = self.message(commit)?;
        let foreign = |reason| RegistryError::ForeignRecord {
            reference: name.reference(),
            reason,
        };
        let rejection = wording::read_rejection(&message, unix_seconds).map_err(foreign)?;
        let parent = self
            .parent(commit)?
            .ok_or_else(|| foreign("no parent".to_owned()))?;
        let harness = wording::read_harness_id(&message)
            .ok_or_else(|| foreign("no trailer Harness-Id".to_owned()))?;
        Ok(RejectedEntry {
            name,
            commit,
            parent,
            harness,
            rejection,
        })
    }
}
