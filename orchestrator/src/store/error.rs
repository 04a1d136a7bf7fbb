//! Why the store fails, and whether for want of room.

use std::path::{Path, PathBuf};

use sqlx::migrate::MigrateError;

use super::filesystem;

/// Why the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database can't be opened or created.
    #[error("cannot open the run's database {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: sqlx::Error,
    },
    /// The database is of a later version of coharness, or its schema can't be changed.
    #[error("the run's database {path} can't be brought to this version")]
    Migrate {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: MigrateError,
    },
    /// The disk is full.
    #[error("no space left for the run's database")]
    Full,
    /// A statement failed.
    #[error("the run's database failed")]
    Query {
        /// The cause.
        source: sqlx::Error,
    },
    /// A record can't be read back.
    #[error("record {key} in the run's database can't be read")]
    Record {
        /// Its key.
        key: String,
        /// The cause.
        source: serde_json::Error,
    },
    /// A trajectory's body can't be decompressed.
    #[error("trajectory {id} in the run's database is damaged")]
    Body {
        /// The rollout.
        id: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The write-ahead log can't be brought onto the disk.
    #[error("cannot bring {path} onto the disk")]
    Log {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// What stands in the log isn't in the database yet, and can't be read without writing.
    #[error(
        "the run's database {path} can't be read where nothing can be written beside it: part of the run is still in its log"
    )]
    Unfolded {
        /// The file.
        path: PathBuf,
    },
    /// SQLite's write-ahead log does not work on network file systems.
    #[error(
        "{path} lies on a network file system ({kind}), where SQLite's log is not safe; choose a local directory with --dir"
    )]
    NetworkFilesystem {
        /// The directory.
        path: PathBuf,
        /// What was detected.
        kind: &'static str,
    },
}

impl From<sqlx::Error> for StoreError {
    fn from(source: sqlx::Error) -> Self {
        match is_full(&source) {
            true => Self::Full,
            false => Self::Query { source },
        }
    }
}

impl StoreError {
    /// Why the database at `path` can't be opened.
    pub(super) fn opening(source: sqlx::Error, path: &Path) -> Self {
        match is_full_at(&source, path) {
            true => Self::Full,
            false => Self::Open {
                path: path.to_owned(),
                source,
            },
        }
    }

    /// Whether a database can't be opened since something would have to be written: SQLITE_READONLY, and
    /// SQLITE_CANTOPEN where a file beside it can't be made. A medium that can't be written has no room either.
    pub(super) fn wants_to_write(&self) -> bool {
        let source = match self {
            Self::Open { source, .. } => source,
            Self::Full => return true,
            _ => return false,
        };
        let code = code(source).and_then(|code| code.parse::<u32>().ok());
        // The low byte is the primary code.
        code.is_some_and(|code| matches!(code & 0xff, 8 | 14))
    }

    /// Why the database at `path` can't be brought to this version.
    pub(super) fn migrating(source: MigrateError, path: &Path) -> Self {
        let is_full = match &source {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                is_full_at(error, path)
            }
            _ => false,
        };
        match is_full {
            true => Self::Full,
            false => Self::Migrate {
                path: path.to_owned(),
                source,
            },
        }
    }
}

/// Whether a statement failed for want of room: SQLITE_FULL; SQLITE_IOERR_WRITE, which a quota and some
/// file systems give instead; SQLITE_IOERR_SHMSIZE, where the log's index can't grow.
fn is_full(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some("13" | "778" | "4874"))
}

/// The same while the database at `path` is opened: SQLITE_CANTOPEN where no file can be made.
fn is_full_at(error: &sqlx::Error, path: &Path) -> bool {
    is_full(error) || code(error).as_deref() == Some("14") && filesystem::has_no_room(path)
}

/// SQLite's extended result code.
fn code(error: &sqlx::Error) -> Option<String> {
    let code = error.as_database_error()?.code()?;
    Some(code.into_owned())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::error::Error;

    use sqlx::error::{DatabaseError, ErrorKind};

    use super::*;

    /// What SQLite gives with this extended result code.
    #[derive(Debug, thiserror::Error)]
    #[error("disk I/O error")]
    struct Coded(u32);

    impl DatabaseError for Coded {
        fn message(&self) -> &str {
            "disk I/O error"
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.0.to_string().into())
        }

        fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> ErrorKind {
            ErrorKind::Other
        }
    }

    fn coded(code: u32) -> sqlx::Error {
        sqlx::Error::Database(Box::new(Coded(code)))
    }

    #[test]
    fn a_full_disk_is_told_from_other_faults_whatever_was_done() {
        let here = tempfile::tempdir().expect("directory");
        let path = here.path().join("run.db");
        // Full, no room to write, none for the log's index; busy, can't be opened, an error of the disk,
        // no database.
        for (code, is_full) in [
            (13, true),
            (778, true),
            (4874, true),
            (5, false),
            (14, false),
            (266, false),
            (26, false),
        ] {
            let errors = [
                StoreError::from(coded(code)),
                StoreError::opening(coded(code), &path),
                StoreError::migrating(MigrateError::Execute(coded(code)), &path),
                StoreError::migrating(MigrateError::ExecuteMigration(coded(code), 1), &path),
            ];
            for error in errors {
                assert_eq!(
                    matches!(error, StoreError::Full),
                    is_full,
                    "{code}: {error}"
                );
            }
        }
        let newer = StoreError::migrating(MigrateError::VersionMissing(9), &path);
        assert!(matches!(newer, StoreError::Migrate { .. }), "{newer}");
    }
}
