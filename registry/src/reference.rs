//! Moving references: the second phase of every write.

use std::thread;
use std::time::Duration;

use git2::{ErrorCode, Oid};

use crate::error::RegistryError;
use crate::id::{CommitId, VersionName};
use crate::store::Registry;

/// The branch that holds the history.
pub(crate) const HEAD: &str = "refs/heads/main";
/// How often and how long a held reference lock is waited for: git holds one for milliseconds.
const LOCK_ATTEMPTS: u32 = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// What became of a compare-and-swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swap {
    /// The reference points to the new object.
    Done,
    /// The reference did not have the expected value.
    Conflict,
}

impl Registry {
    /// The commit that `reference` points to; `None` if there is no such reference.
    pub(crate) fn target(&self, reference: &str) -> Result<Option<Oid>, RegistryError> {
        match self
            .repository
            .find_reference(reference)
            .and_then(|found| found.resolve())
        {
            Ok(found) => Ok(found.target()),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(source) => Err(RegistryError::Git {
                action: "read a reference",
                source,
            }),
        }
    }

    /// Names and targets of the references that fit a pattern.
    pub(crate) fn references(&self, pattern: &str) -> Result<Vec<(String, Oid)>, RegistryError> {
        let read = || -> Result<Vec<(String, Oid)>, git2::Error> {
            let mut found = Vec::new();
            for reference in self.repository.references_glob(pattern)? {
                let reference = reference?;
                if let (Ok(name), Some(target)) = (reference.name(), reference.target()) {
                    found.push((name.to_owned(), target));
                }
            }
            Ok(found)
        };
        read().map_err(RegistryError::git("list references"))
    }

    /// Points `reference` to `new` if it still points to `expected` (`None`: if it does not exist).
    pub(crate) fn swap(
        &self,
        reference: &str,
        expected: Option<Oid>,
        new: Oid,
        log: &str,
    ) -> Result<Swap, RegistryError> {
        // All zeros mean "must not exist", and unlike an unforced creation this is checked under the lock.
        let current = expected.unwrap_or(Oid::ZERO_SHA1);
        for _ in 0..LOCK_ATTEMPTS {
            let result = self
                .repository
                .reference_matching(reference, new, true, current, log);
            let Err(source) = result else {
                return Ok(Swap::Done);
            };
            match source.code() {
                ErrorCode::Modified | ErrorCode::NotFound => return Ok(Swap::Conflict),
                ErrorCode::Locked => thread::sleep(LOCK_PAUSE),
                _ => {
                    return Err(RegistryError::Git {
                        action: "move a reference",
                        source,
                    });
                }
            }
        }
        Err(RegistryError::Locked {
            file: self.git_folder().join(format!("{reference}.lock")),
        })
    }

    /// Tags a version that head already reaches; a tag that is there and right is fine.
    pub(crate) fn tag(&self, name: VersionName, commit: CommitId) -> Result<(), RegistryError> {
        let reference = name.tag_reference();
        let mut found = self.target(&reference)?;
        if found.is_none() && self.swap(&reference, None, commit.0, "")? == Swap::Conflict {
            found = self.target(&reference)?;
        }
        if found.is_none_or(|found| found == commit.0) {
            return Ok(());
        }
        Err(RegistryError::TagMoved {
            path: self.path.clone(),
            name,
            expected: commit,
        })
    }

    /// Adds the tags of versions that have none.
    ///
    /// # Errors
    /// [`RegistryError::TagMoved`] if a tag points elsewhere, and errors of reading or writing.
    pub fn repair_tags(&self) -> Result<(), RegistryError> {
        self.check_writable()?;
        for (name, commit) in self.named_commits()? {
            self.tag(name, commit)?;
        }
        Ok(())
    }
}
