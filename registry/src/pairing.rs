//! Which adapter goes with which version.
//!
//! A pairing is an annotated tag under `refs/pairings/<adapter>/<version>`, so `git log` shows it beside the
//! version's commit and `git show` prints how it was judged. An adapter may go with several versions, and a
//! version with several adapters.

use crate::error::RegistryError;
use crate::id::VersionName;
use crate::record::{Pairing, PairingRecord, Version};
use crate::reference::Swap;
use crate::store::Registry;
use crate::wording;

const FOLDER: &str = "refs/pairings/";

impl Registry {
    /// Records that an adapter goes with a version. Repeated for the same two it returns the pairing that is
    /// there, with its first record.
    ///
    /// # Errors
    /// [`RegistryError::UnknownParent`] for a version that is not part of the history, or
    /// [`RegistryError::InvalidField`].
    pub fn pair_adapter(
        &self,
        version: &Version,
        record: &PairingRecord,
    ) -> Result<Pairing, RegistryError> {
        self.check_writable()?;
        let message = wording::pairing(version.name, record)?;
        let versions = self.named_commits()?;
        self.place(&versions, version)?;
        let name = format!("{FOLDER}{}/{}", record.adapter, version.name);
        if self.target(&name)?.is_none() {
            let commit = self.commit_object(version.commit)?;
            let tag = self
                .repository
                .tag_annotation_create(
                    name.trim_start_matches("refs/"),
                    commit.as_object(),
                    &self.author.signature(record.unix_seconds)?,
                    &message.to_string(),
                )
                .map_err(RegistryError::git("write a pairing"))?;
            // On a conflict another writer recorded the same two.
            let (Swap::Done | Swap::Conflict) = self.swap(&name, None, tag, "")?;
        }
        let target = self.target(&name)?;
        let tag = target.ok_or_else(|| RegistryError::ForeignRecord {
            reference: name.clone(),
            reason: "the pairing vanished while it was written".to_owned(),
        })?;
        self.read_pairing(&name, version.name, tag)
    }

    /// All pairings by version, then adapter.
    ///
    /// # Errors
    /// [`RegistryError::Damaged`] or [`RegistryError::ForeignRecord`] if one can't be read.
    pub fn pairings(&self) -> Result<Vec<Pairing>, RegistryError> {
        let mut found = Vec::new();
        for (name, tag) in self.references("refs/pairings/*")? {
            let version = name
                .rsplit_once('/')
                .and_then(|(_, version)| version.parse().ok());
            if let Some(version) = version {
                found.push(self.read_pairing(&name, version, tag)?);
            }
        }
        found.sort_by(|a, b| (a.version, &a.record.adapter).cmp(&(b.version, &b.record.adapter)));
        Ok(found)
    }

    fn read_pairing(
        &self,
        reference: &str,
        version: VersionName,
        tag: git2::Oid,
    ) -> Result<Pairing, RegistryError> {
        let foreign = |reason: String| RegistryError::ForeignRecord {
            reference: reference.to_owned(),
            reason,
        };
        let object = self.repository.find_object(tag, None);
        let object = object.map_err(|source| self.damaged(tag, source))?;
        let tag = object
            .as_tag()
            .ok_or_else(|| foreign("it is no annotated tag".to_owned()))?;
        let seconds = tag.tagger().map_or(0, |tagger| tagger.when().seconds());
        let text = String::from_utf8_lossy(tag.message_bytes().unwrap_or_default()).into_owned();
        let commit = crate::CommitId(tag.target_id());
        wording::read_pairing(
            version,
            commit,
            &text,
            u64::try_from(seconds).unwrap_or_default(),
        )
        .map_err(foreign)
    }
}
