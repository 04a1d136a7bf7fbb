//! Reading back: the history, and anything by its name.

use std::fmt;

use harness::Harness;

use crate::error::RegistryError;
use crate::id::{CommitId, RejectedName, VersionName};
use crate::message::Message;
use crate::record::{Entry, Version};
use crate::reference::HEAD;
use crate::store::Registry;
use crate::wording;

/// Shortest commit prefix that is looked up, as in git.
const MIN_PREFIX: usize = 4;
/// How many names an error lists before it only counts.
const LISTED: usize = 8;

/// The name of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    Version(VersionName),
    Rejected(RejectedName),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(name) => name.fmt(f),
            Self::Rejected(name) => name.fmt(f),
        }
    }
}

fn ambiguous<'a, I: fmt::Display + 'a>(
    spec: &str,
    fitting: impl Iterator<Item = (&'a Name, &'a I)>,
) -> RegistryError {
    let matches: Vec<String> = fitting
        .take(LISTED)
        .map(|(name, id)| format!("{name} ({id})"))
        .collect();
    RegistryError::AmbiguousVersion {
        spec: spec.to_owned(),
        matches: matches.join(", "),
    }
}

impl Registry {
    /// All versions, the first one first. Hand-made commits take part.
    ///
    /// # Errors
    /// [`RegistryError::Damaged`] if a commit can't be read.
    pub fn history(&self) -> Result<Vec<Version>, RegistryError> {
        self.named_commits()?
            .into_iter()
            .map(|(name, commit)| self.version(name, commit))
            .collect()
    }

    /// The current version.
    ///
    /// # Errors
    /// [`RegistryError::Empty`] if there is none.
    pub fn head(&self) -> Result<Version, RegistryError> {
        let (name, commit) = self
            .named_commits()?
            .pop()
            .ok_or_else(|| RegistryError::Empty {
                path: self.path.clone(),
            })?;
        self.version(name, commit)
    }

    /// The commits of the history with the names their places give them.
    pub(crate) fn named_commits(&self) -> Result<Vec<(VersionName, CommitId)>, RegistryError> {
        let mut commits = Vec::new();
        let mut next = self.target(HEAD)?;
        while let Some(id) = next {
            let commit = self.commit_object(CommitId(id))?;
            commits.push(CommitId(id));
            next = commit.parent_id(0).ok();
        }
        commits.reverse();
        let names = std::iter::successors(Some(VersionName::FIRST), |name| Some(name.next()));
        Ok(names.zip(commits).collect())
    }

    pub(crate) fn version(
        &self,
        name: VersionName,
        id: CommitId,
    ) -> Result<Version, RegistryError> {
        let (message, unix_seconds) = self.message(id)?;
        let harness = match wording::read_harness_id(&message) {
            Some(harness) => Some(harness),
            None => self.harness(id).ok().map(|harness| harness.id()),
        };
        Ok(Version {
            name,
            commit: id,
            parent: self.parent(id)?,
            harness,
            summary: message.summary(name),
            unix_seconds,
            origin: wording::read_origin(&message, unix_seconds),
        })
    }

    pub(crate) fn parent(&self, id: CommitId) -> Result<Option<CommitId>, RegistryError> {
        Ok(self.commit_object(id)?.parent_id(0).ok().map(CommitId))
    }

    pub(crate) fn message(&self, id: CommitId) -> Result<(Message, u64), RegistryError> {
        let commit = self.commit_object(id)?;
        let text = String::from_utf8_lossy(commit.message_raw_bytes());
        // Only a hand-made commit can be older than 1970.
        let unix_seconds = u64::try_from(commit.time().seconds()).unwrap_or_default();
        Ok((Message::parse(&text), unix_seconds))
    }

    /// The harness of any commit in the repository.
    pub(crate) fn harness(&self, commit: CommitId) -> Result<Harness, RegistryError> {
        let files = self.read_files(commit)?;
        harness::from_files(&files).map_err(|source| RegistryError::Folder { commit, source })
    }

    /// Loads a harness by name: `v3`, `head`, `rejected/<run>/<round>-<n>` with or without its first
    /// part, or a prefix of at least four digits of the commit of one of these. A prefix that fits no commit
    /// may be one of a harness id; of several entries with that harness the newest version is meant.
    ///
    /// # Errors
    /// [`RegistryError::UnknownVersion`] lists what exists, [`RegistryError::AmbiguousVersion`] what fits.
    pub fn load(&self, spec: &str) -> Result<(Entry, Harness), RegistryError> {
        let entry = self.find(spec)?;
        let harness = self.harness(entry.commit())?;
        Ok((entry, harness))
    }

    /// Finds an entry by name as [`Registry::load`] does, without reading its files.
    ///
    /// # Errors
    /// As [`Registry::load`].
    pub fn find(&self, spec: &str) -> Result<Entry, RegistryError> {
        if spec.eq_ignore_ascii_case("head") {
            return self.head().map(Entry::Version);
        }
        let names = self.names()?;
        let candidate: Result<RejectedName, _> = spec.parse();
        let candidate = candidate.or_else(|_| format!("rejected/{spec}").parse());
        let wanted = match (spec.parse(), candidate) {
            (Ok(version), _) => Some(Name::Version(version)),
            (_, Ok(rejected)) => Some(Name::Rejected(rejected)),
            _ => None,
        };
        if let Some(wanted) = wanted {
            return match names.into_iter().find(|(name, _)| *name == wanted) {
                Some((name, commit)) => self.entry(name, commit),
                None => Err(self.unknown(spec)?),
            };
        }
        let prefix = spec.to_ascii_lowercase();
        if prefix.len() < MIN_PREFIX || !prefix.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(self.unknown(spec)?);
        }
        let fits = |(_, commit): &&(Name, CommitId)| commit.to_string().starts_with(&prefix);
        let fitting: Vec<_> = names.iter().filter(fits).collect();
        match fitting[..] {
            [] => self.find_harness(spec, &prefix, names),
            [(name, commit)] => self.entry(name.clone(), *commit),
            _ => Err(ambiguous(
                spec,
                fitting.iter().map(|(name, commit)| (name, commit)),
            )),
        }
    }

    fn find_harness(
        &self,
        spec: &str,
        prefix: &str,
        names: Vec<(Name, CommitId)>,
    ) -> Result<Entry, RegistryError> {
        let mut fitting = Vec::new();
        for (name, commit) in names {
            let (message, _) = self.message(commit)?;
            match wording::read_harness_id(&message).map(|id| id.to_hex()) {
                Some(id) if id.starts_with(prefix) => fitting.push((name, commit, id)),
                _ => {}
            }
        }
        if fitting.windows(2).any(|pair| pair[0].2 != pair[1].2) {
            return Err(ambiguous(
                spec,
                fitting.iter().map(|(name, _, id)| (name, id)),
            ));
        }
        // Versions come in order, and before rejected candidates.
        let newest = fitting
            .iter()
            .rposition(|(name, ..)| matches!(name, Name::Version(_)));
        let newest = newest.unwrap_or_default();
        match fitting.into_iter().nth(newest) {
            Some((name, commit, _)) => self.entry(name, commit),
            None => Err(self.unknown(spec)?),
        }
    }

    /// All names: versions in order, then rejected candidates in order.
    fn names(&self) -> Result<Vec<(Name, CommitId)>, RegistryError> {
        let versions = self.named_commits()?.into_iter();
        let rejected = self.rejected_commits()?.into_iter();
        let versions = versions.map(|(name, commit)| (Name::Version(name), commit));
        let rejected = rejected.map(|(name, commit)| (Name::Rejected(name), commit));
        Ok(versions.chain(rejected).collect())
    }

    fn entry(&self, name: Name, commit: CommitId) -> Result<Entry, RegistryError> {
        match name {
            Name::Version(name) => self.version(name, commit).map(Entry::Version),
            Name::Rejected(name) => Ok(Entry::Rejected(Box::new(
                self.rejected_entry(name, commit)?,
            ))),
        }
    }

    /// The error for a name nobody has, with the names that exist.
    fn unknown(&self, spec: &str) -> Result<RegistryError, RegistryError> {
        let versions = self.named_commits()?;
        let rejected = self.rejected_commits()?;
        let mut known = match versions.len() {
            0 => "no version yet".to_owned(),
            1 => "v1, which is head".to_owned(),
            count => format!("v1 to v{count}, which is head"),
        };
        if !rejected.is_empty() {
            let names: Vec<String> = rejected
                .iter()
                .rev()
                .take(LISTED)
                .map(|(name, _)| name.to_string())
                .collect();
            known.push_str(", and ");
            known.push_str(&names.join(", "));
            if rejected.len() > LISTED {
                known.push_str(&format!(
                    " and {} older rejected ones",
                    rejected.len() - LISTED
                ));
            }
        }
        Ok(RegistryError::UnknownVersion {
            spec: spec.to_owned(),
            known,
        })
    }
}
