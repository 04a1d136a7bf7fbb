//! What can go wrong in the registry, each with what a person can do about it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::id::{CommitId, VersionName};

/// An error of the registry.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Nothing to open.
    #[error("no registry at `{}`", path.display())]
    NotFound {
        /// Where it was looked for.
        path: PathBuf,
        /// What git said.
        #[source]
        source: git2::Error,
    },
    /// A registry would be made among files that have nothing to do with it.
    #[error(
        "`{}` holds other files and is no registry; choose an absent or empty folder", path.display()
    )]
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// The repository belongs to another user, so its settings can't be trusted.
    #[error(
        "the registry `{0}` belongs to another user; take it over with `chown -R \"$(id -u)\" '{0}'`, \
         or trust it with `git config --global --add safe.directory '{0}'`",
        path.display()
    )]
    ForeignOwner {
        /// The folder.
        path: PathBuf,
        /// What git said.
        #[source]
        source: git2::Error,
    },
    /// A newer coharness made this registry.
    #[error(
        "the registry `{}` has format {found}, this program writes up to format {supported}; \
         upgrade coharness, or open it read-only", path.display()
    )]
    NewerFormat {
        /// The folder.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format this program writes.
        supported: i64,
    },
    /// A write through a registry that was opened for reading.
    #[error("the registry `{}` was opened read-only", path.display())]
    ReadOnly {
        /// The folder.
        path: PathBuf,
    },
    /// The registry has no version.
    #[error("the registry `{}` has no version yet", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// A first version was to be made where another harness already started the history.
    #[error("the registry already starts with another harness (head is {head})")]
    AlreadyStarted {
        /// The current version.
        head: VersionName,
    },
    /// Nothing of that name.
    #[error("no version `{spec}`; there is {known}")]
    UnknownVersion {
        /// What was asked for.
        spec: String,
        /// What exists, in words.
        known: String,
    },
    /// A commit prefix that fits several commits.
    #[error("`{spec}` fits several commits: {matches}")]
    AmbiguousVersion {
        /// What was asked for.
        spec: String,
        /// The commits it fits.
        matches: String,
    },
    /// A parent that is not part of the history.
    #[error("{commit} is not a version of this registry")]
    UnknownParent {
        /// The commit.
        commit: CommitId,
    },
    /// Another writer was faster.
    #[error("head is {found}, not {expected}: another writer or a rollback moved it")]
    HeadMoved {
        /// The version the write was based on.
        expected: VersionName,
        /// The version head is now.
        found: VersionName,
    },
    /// A new version would equal the one it follows.
    #[error("nothing changes: the harness is that of {version} already")]
    NothingChanged {
        /// The version with the same harness.
        version: VersionName,
    },
    /// The recorded patch does not apply to the version it is said to be for.
    #[error("the recorded patch does not apply to {parent}")]
    PatchFails {
        /// The version.
        parent: VersionName,
        /// Which field, and why.
        #[source]
        source: harness::PatchError,
    },
    /// The recorded patch leads to another harness than the one to be committed.
    #[error("the recorded patch turns {parent} into another harness than the candidate")]
    PatchMismatch {
        /// The version.
        parent: VersionName,
    },
    /// A commit's files are no harness.
    #[error("the files of commit {commit} are no valid harness")]
    Folder {
        /// The commit.
        commit: CommitId,
        /// File, line and reason.
        #[source]
        source: harness::FolderError,
    },
    /// A commit holds something that is no text file.
    #[error("`{file}` in commit {commit} {reason}")]
    TreeEntry {
        /// The commit.
        commit: CommitId,
        /// The path inside it.
        file: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A value that can't be recorded.
    #[error("{field} {reason}: {value:?}")]
    InvalidField {
        /// Which value.
        field: &'static str,
        /// The value.
        value: String,
        /// Which rule it breaks.
        reason: String,
    },
    /// A reference is locked by another process, or by one that died.
    #[error(
        "the reference lock `{0}` is held; if no git or coharness process is at work in this \
         repository, its owner died and the file can go: rm '{0}'",
        file.display()
    )]
    Locked {
        /// The lock file.
        file: PathBuf,
    },
    /// Another run writes to this registry.
    #[error("another run holds `{}`; wait for it or stop it", file.display())]
    Busy {
        /// The lock file.
        file: PathBuf,
    },
    /// A version's tag points elsewhere.
    #[error(
        "the tag {name} in `{0}` does not point to {expected}, the commit at that place of the history; \
         set it right with: git -C '{0}' tag -f {name} {expected}",
        path.display()
    )]
    TagMoved {
        /// The repository.
        path: PathBuf,
        /// The tag.
        name: VersionName,
        /// Where it should point.
        expected: CommitId,
    },
    /// An object can't be read, for example after a power loss or a full disk.
    #[error("the git object {object} in `{}` is damaged or missing; {recovery}", path.display())]
    Damaged {
        /// The repository.
        path: PathBuf,
        /// The object's id.
        object: String,
        /// What to do, as a sentence.
        recovery: String,
        /// What git said.
        #[source]
        source: git2::Error,
    },
    /// Something under our own references was not written by coharness.
    #[error("{reference} was not written by coharness: {reason}")]
    ForeignRecord {
        /// The reference.
        reference: String,
        /// What is missing.
        reason: String,
    },
    /// A file operation failed.
    #[error("failed to access `{}`", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Anything else git reports.
    #[error("failed to {action}")]
    Git {
        /// What was being done.
        action: &'static str,
        /// What git said.
        #[source]
        source: git2::Error,
    },
}

impl RegistryError {
    /// Whether there was no room for what was to be written: a full disk, or a quota that is used up.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => {
                matches!(
                    source.kind(),
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded
                )
            }
            // libgit2 keeps the system's word for it at the end of its message, and no number.
            Self::Git { source, .. } => {
                let words = ["No space left on device", "Disk quota exceeded"];
                words.into_iter().any(|end| source.message().ends_with(end))
            }
            _ => false,
        }
    }

    pub(crate) fn git(action: &'static str) -> impl FnOnce(git2::Error) -> Self {
        move |source| Self::Git { action, source }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}
