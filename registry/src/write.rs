//! Making versions: the first one, accepted patches, rollbacks.

use git2::Oid;
use harness::{Harness, Patch};

use crate::error::RegistryError;
use crate::id::{CommitId, VersionName};
use crate::message::{Message, one_line};
use crate::record::{Acceptance, Decision, Origin, Provenance, Version};
use crate::reference::{HEAD, Swap};
use crate::store::Registry;
use crate::wording;

/// How often a write starts over because head moved under it. Each time another writer got something done,
/// and the next look at the history nearly always ends in an answer.
const ATTEMPTS: u32 = 8;

impl Registry {
    /// Makes `v1`. Repeated with the same harness it returns the `v1` that is there.
    ///
    /// # Errors
    /// [`RegistryError::AlreadyStarted`] if the history starts with another harness.
    pub fn create_initial(
        &self,
        harness: &Harness,
        provenance: &Provenance,
    ) -> Result<Version, RegistryError> {
        self.check_writable()?;
        let id = harness.id();
        let message = wording::initial(&harness.name, provenance, &id)?;
        let files = harness::to_files(harness);
        let tree = self.write_tree(&files)?;
        for _ in 0..ATTEMPTS {
            let versions = self.named_commits()?;
            if let (Some(&(name, first)), Some(&(head, _))) = (versions.first(), versions.last()) {
                if self.tree(first)? != tree {
                    return Err(RegistryError::AlreadyStarted { head });
                }
                return self.existing(name, first);
            }
            let commit = self.write_commit(tree, None, &message, provenance.unix_seconds)?;
            self.read_back(commit, &files)?;
            if self.swap(HEAD, None, commit.0, &message.subject)? == Swap::Done {
                return self.existing(VersionName::FIRST, commit);
            }
        }
        Err(self.contended(VersionName::FIRST)?)
    }

    /// Puts an accepted patch on top of `parent`, which has to be head. Repeated for the same candidate, parent,
    /// run and round it returns the version that is there, wherever head is by then.
    ///
    /// # Errors
    /// [`RegistryError::HeadMoved`] if another version follows `parent`, [`RegistryError::PatchFails`] or
    /// [`RegistryError::PatchMismatch`] if the recorded patch does not lead from `parent` to `harness`,
    /// [`RegistryError::NothingChanged`], or [`RegistryError::InvalidField`].
    pub fn commit_patch(
        &self,
        parent: &Version,
        harness: &Harness,
        acceptance: &Acceptance,
    ) -> Result<Version, RegistryError> {
        self.check_writable()?;
        let Decision {
            run,
            round,
            patch,
            unix_seconds,
            ..
        } = &acceptance.decision;
        let id = harness.id();
        self.place(&self.named_commits()?, parent)?;
        self.check_patch(parent, patch, harness)?;
        let files = harness::to_files(harness);
        let tree = self.write_tree(&files)?;
        if tree == self.tree(parent.commit)? {
            return Err(RegistryError::NothingChanged {
                version: parent.name,
            });
        }
        for _ in 0..ATTEMPTS {
            let versions = self.named_commits()?;
            let place = self.place(&versions, parent)?;
            if let Some(&(name, child)) = versions.get(place + 1) {
                if self.tree(child)? == tree {
                    let version = self.version(name, child)?;
                    if is_from(&version, |found| found.run == *run && found.round == *round) {
                        return self.existing(name, child);
                    }
                }
                return Err(moved(parent.name, &versions));
            }
            let name = parent_name(&versions, place).next();
            let message = wording::accepted(name, acceptance, &id)?;
            let commit = self.write_commit(tree, Some(parent.commit), &message, *unix_seconds)?;
            self.read_back(commit, &files)?;
            if self.publish(parent.commit, commit, &message)? == Swap::Done {
                return self.existing(name, commit);
            }
        }
        Err(self.contended(parent.name)?)
    }

    /// Puts the tree of an older version on top of head: history is never rewritten. Repeated while the same
    /// rollback is head it returns that.
    ///
    /// # Errors
    /// [`RegistryError::UnknownVersion`] lists what exists, [`RegistryError::NothingChanged`] if head has that
    /// harness already, [`RegistryError::InvalidField`] for an empty reason.
    pub fn rollback(
        &self,
        to: VersionName,
        reason: &str,
        unix_seconds: u64,
    ) -> Result<Version, RegistryError> {
        self.check_writable()?;
        let target = self.restored(to)?;
        let tree = self.tree(target.commit)?;
        for _ in 0..ATTEMPTS {
            let head = self.head()?;
            if self.tree(head.commit)? == tree {
                if head.origin == rollback_origin(to, reason) {
                    return self.existing(head.name, head.commit);
                }
                return Err(RegistryError::NothingChanged { version: head.name });
            }
            let place = (head.name, head.commit);
            if let Some(version) = self.put_back(place, &target, reason, unix_seconds)? {
                return Ok(version);
            }
        }
        Err(self.contended(to)?)
    }

    /// The same on top of `parent`, which has to be head. Repeated for the same parent, version and reason it
    /// returns the version that is there, wherever head is by then: a run that starts again asks for every
    /// rollback that it ever made.
    ///
    /// # Errors
    /// As [`Registry::rollback`], and [`RegistryError::HeadMoved`] if another version follows `parent`.
    pub fn rollback_from(
        &self,
        parent: &Version,
        to: VersionName,
        reason: &str,
        unix_seconds: u64,
    ) -> Result<Version, RegistryError> {
        self.check_writable()?;
        let target = self.restored(to)?;
        if self.tree(target.commit)? == self.tree(parent.commit)? {
            return Err(RegistryError::NothingChanged {
                version: parent.name,
            });
        }
        for _ in 0..ATTEMPTS {
            let versions = self.named_commits()?;
            let place = self.place(&versions, parent)?;
            if let Some(&(name, child)) = versions.get(place + 1) {
                if self.version(name, child)?.origin == rollback_origin(to, reason) {
                    return self.existing(name, child);
                }
                return Err(moved(parent.name, &versions));
            }
            if let Some(version) = self.put_back(versions[place], &target, reason, unix_seconds)? {
                return Ok(version);
            }
        }
        Err(self.contended(parent.name)?)
    }

    /// The version that a rollback brings back.
    fn restored(&self, to: VersionName) -> Result<Version, RegistryError> {
        match self.find(&to.to_string())? {
            crate::Entry::Version(version) => Ok(version),
            crate::Entry::Rejected(entry) => Err(RegistryError::UnknownParent {
                commit: entry.commit,
            }),
        }
    }

    /// Writes a rollback to `target` as a child of `parent` and moves head there; `None` if another writer was
    /// faster.
    fn put_back(
        &self,
        (name, parent): (VersionName, CommitId),
        target: &Version,
        reason: &str,
        unix_seconds: u64,
    ) -> Result<Option<Version>, RegistryError> {
        let name = name.next();
        let message = wording::rollback(name, target.name, reason, target.harness.as_ref())?;
        let tree = self.tree(target.commit)?;
        let commit = self.write_commit(tree, Some(parent), &message, unix_seconds)?;
        Ok(match self.publish(parent, commit, &message)? {
            Swap::Done => Some(self.existing(name, commit)?),
            Swap::Conflict => None,
        })
    }

    /// Moves head from `parent` to its child `commit`: the moment a version comes into being.
    pub(crate) fn publish(
        &self,
        parent: CommitId,
        commit: CommitId,
        message: &Message,
    ) -> Result<Swap, RegistryError> {
        self.swap(HEAD, Some(parent.0), commit.0, &message.subject)
    }

    /// A version that head reaches, with its tag in place.
    fn existing(&self, name: VersionName, commit: CommitId) -> Result<Version, RegistryError> {
        self.tag(name, commit)?;
        self.version(name, commit)
    }

    pub(crate) fn tree(&self, commit: CommitId) -> Result<Oid, RegistryError> {
        Ok(self.commit_object(commit)?.tree_id())
    }

    /// Where `parent` stands in the history.
    pub(crate) fn place(
        &self,
        versions: &[(VersionName, CommitId)],
        parent: &Version,
    ) -> Result<usize, RegistryError> {
        let is_parent = |(_, commit): &(VersionName, CommitId)| *commit == parent.commit;
        let place = versions.iter().position(is_parent);
        place.ok_or(RegistryError::UnknownParent {
            commit: parent.commit,
        })
    }

    /// What is recorded has to be what happened: the patch, confined to its dimension, makes the candidate.
    pub(crate) fn check_patch(
        &self,
        parent: &Version,
        patch: &Patch,
        candidate: &Harness,
    ) -> Result<(), RegistryError> {
        let base = self.harness(parent.commit)?;
        let patched = patch
            .apply(&base)
            .map_err(|source| RegistryError::PatchFails {
                parent: parent.name,
                source,
            })?;
        if patched.id() != candidate.id() {
            return Err(RegistryError::PatchMismatch {
                parent: parent.name,
            });
        }
        Ok(())
    }

    fn contended(&self, expected: VersionName) -> Result<RegistryError, RegistryError> {
        Ok(RegistryError::HeadMoved {
            expected,
            found: self.head()?.name,
        })
    }
}

/// How a rollback reads back.
fn rollback_origin(to: VersionName, reason: &str) -> Origin {
    Origin::Rollback {
        to,
        reason: one_line(reason),
    }
}

fn is_from(version: &Version, matches: impl Fn(&Decision) -> bool) -> bool {
    matches!(&version.origin, Origin::Patch(acceptance) if matches(&acceptance.decision))
}

fn parent_name(versions: &[(VersionName, CommitId)], place: usize) -> VersionName {
    versions
        .get(place)
        .map_or(VersionName::FIRST, |(name, _)| *name)
}

fn moved(expected: VersionName, versions: &[(VersionName, CommitId)]) -> RegistryError {
    let found = versions.last().map_or(expected, |(name, _)| *name);
    RegistryError::HeadMoved { expected, found }
}
