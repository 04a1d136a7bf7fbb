//! The lock of the one run that writes, and recovery from writers that died.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::error::RegistryError;
use crate::store::Registry;

const LOCK_FILE: &str = "coharness.lock";

/// Held by the one run that writes to a registry; released when dropped or when the process dies.
#[derive(Debug)]
pub struct RegistryLock {
    // Closing the file releases the lock.
    _file: File,
    folder: PathBuf,
}

impl Registry {
    /// Takes the run's lock without waiting.
    ///
    /// Writes don't need it, since they are compare-and-swaps. It is what makes it safe to say that a
    /// reference lock has no owner.
    ///
    /// # Errors
    /// [`RegistryError::Busy`] if another run holds it.
    pub fn lock(&self) -> Result<RegistryLock, RegistryError> {
        self.check_writable()?;
        let file_path = self.git_folder().join(LOCK_FILE);
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&file_path)
            .map_err(RegistryError::io(&file_path))?;
        match file.try_lock() {
            Ok(()) => Ok(RegistryLock {
                _file: file,
                folder: self.git_folder().to_owned(),
            }),
            Err(TryLockError::WouldBlock) => Err(RegistryError::Busy { file: file_path }),
            Err(TryLockError::Error(source)) => Err(RegistryError::Io {
                path: file_path,
                source,
            }),
        }
    }

    /// Removes reference locks that a dead writer left, then completes missing tags; returns the files that
    /// were removed.
    ///
    /// `held` shows that no other run is writing, which leaves only a person's git command as a possible owner.
    /// Such a command holds a lock for moments, so a lock counts as stale once it stood unchanged for
    /// `quiet`. Without locks there is nothing to wait for. An `index.lock` is left alone: nothing here uses
    /// the index.
    ///
    /// # Errors
    /// Errors of reading the folder, removing a file, or [`Registry::repair_tags`].
    pub fn remove_stale_locks(
        &self,
        held: &RegistryLock,
        quiet: Duration,
    ) -> Result<Vec<PathBuf>, RegistryError> {
        self.check_writable()?;
        let before = reference_locks(&held.folder)?;
        let mut removed = Vec::new();
        if !before.is_empty() {
            thread::sleep(quiet);
            let after = reference_locks(&held.folder)?;
            for (path, changed) in after {
                if before.contains(&(path.clone(), changed)) {
                    fs::remove_file(&path).map_err(RegistryError::io(&path))?;
                    removed.push(path);
                }
            }
        }
        self.repair_tags()?;
        Ok(removed)
    }
}

/// Every lock file of a reference with the time it was written. No reference may itself be called `*.lock`.
fn reference_locks(folder: &Path) -> Result<Vec<(PathBuf, Option<SystemTime>)>, RegistryError> {
    let mut found = Vec::new();
    let mut pending = vec![folder.join("refs")];
    while let Some(folder) = pending.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // Git removes folders that become empty.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(source) => {
                return Err(RegistryError::Io {
                    path: folder,
                    source,
                });
            }
        };
        for entry in entries {
            let entry = entry.map_err(RegistryError::io(&folder))?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(entry.path());
            } else if entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "lock")
            {
                found.push(entry.path());
            }
        }
    }
    found.extend(["HEAD.lock", "packed-refs.lock"].map(|name| folder.join(name)));
    let stamp = |path: PathBuf| {
        let metadata = fs::symlink_metadata(&path).ok()?;
        Some((path, metadata.modified().ok()))
    };
    let mut stamped: Vec<_> = found.into_iter().filter_map(stamp).collect();
    stamped.sort();
    Ok(stamped)
}
