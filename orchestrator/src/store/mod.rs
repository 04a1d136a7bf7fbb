//! The run's database: what is done, so that nothing is done twice.
//!
//! SQLite in WAL mode with one writer connection. Every write is one statement or one immediate
//! transaction; a kill between two writes loses at most the unit in flight, which is done again
//! from the same inputs with the same result.

mod filesystem;
mod looking;
mod spent;
mod trajectories;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row;
use sqlx::migrate::MigrateError;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

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
    fn opening(source: sqlx::Error, path: &Path) -> Self {
        match is_full_at(&source, path) {
            true => Self::Full,
            false => Self::Open {
                path: path.to_owned(),
                source,
            },
        }
    }

    /// Why the database at `path` can't be brought to this version.
    fn migrating(source: MigrateError, path: &Path) -> Self {
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

pub use spent::RolloutSums;
pub use trajectories::{Basis, Made, TrajectoryFilter, TrajectoryRow};

/// A finished step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRow {
    /// Its key.
    pub key: String,
    /// Its kind.
    pub kind: String,
    /// Its round.
    pub round: u32,
    /// Its output as JSON.
    pub output: String,
}

/// Facts of the run row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// The run's name.
    pub name: String,
    /// Its configuration as JSON.
    pub config: String,
    /// Unix seconds of its creation.
    pub created_at: i64,
    /// Unix seconds of its end.
    pub finished_at: Option<i64>,
}

/// A stretch of running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Unix seconds of its start.
    pub started_at: i64,
    /// Unix seconds of its last sign of life.
    pub seen_at: i64,
    /// Unix seconds of its orderly end.
    pub ended_at: Option<i64>,
    /// Process id.
    pub process: i64,
    /// What it waits for or, once it has ended, why, if the run isn't finished.
    pub note: Option<String>,
    /// Seconds that it has run; unknown for stretches of earlier versions.
    pub ran_s: Option<i64>,
}

/// A sign of life of a stretch of running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sign {
    /// Unix seconds.
    pub now: i64,
    /// Seconds since the stretch began, by a clock that doesn't jump.
    pub ran_s: i64,
    /// What the stretch waits for or, at its end, why it ends.
    pub note: Option<String>,
    /// Whether it is the last one.
    pub is_end: bool,
}

/// Totals over all trajectories that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RolloutTotals {
    /// Rollouts.
    pub rollouts: i64,
    /// Those on gate problems.
    pub gate_rollouts: i64,
    /// Those that policy or sandbox kept from ending.
    pub left_out: i64,
    /// Generated tokens.
    pub completion_tokens: i64,
}

/// The database of one run.
#[derive(Clone, Debug)]
pub struct Store {
    pool: SqlitePool,
}

impl Store {
    /// Open `run.db` in `directory`, creating it and bringing it to the current schema.
    ///
    /// # Errors
    /// When the directory is on a network file system or the database can't be opened.
    pub async fn open(directory: &Path) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new()
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // Survives a killed process in full; a power cut may take the last commits, which are
            // then simply done again. What the registry builds on is flushed before.
            .synchronous(SqliteSynchronous::Normal);
        let (pool, path) = Self::connect(directory, options).await?;
        sqlx::migrate!()
            .run(&pool)
            .await
            .map_err(|source| StoreError::migrating(source, &path))?;
        Ok(Self { pool })
    }

    /// The one connection to `run.db` in `directory`, kept for as long as the store is, and where that is.
    async fn connect(
        directory: &Path,
        options: SqliteConnectOptions,
    ) -> Result<(SqlitePool, PathBuf), StoreError> {
        if let Some(kind) = filesystem::network_kind(directory) {
            return Err(StoreError::NetworkFilesystem {
                path: directory.to_owned(),
                kind,
            });
        }
        let path = directory.join("run.db");
        let options = options
            .filename(&path)
            .busy_timeout(Duration::from_secs(30));
        let pool = Self::one_connection(options, &path).await?;
        Ok((pool, path))
    }

    /// One connection that is kept for as long as the pool is.
    async fn one_connection(
        options: SqliteConnectOptions,
        path: &Path,
    ) -> Result<SqlitePool, StoreError> {
        SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options)
            .await
            .map_err(|source| StoreError::opening(source, path))
    }

    /// Whether `directory` holds a run.
    pub fn exists(directory: &Path) -> bool {
        directory.join("run.db").is_file()
    }

    /// The run row, if the run was registered.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn run(&self) -> Result<Option<RunRow>, StoreError> {
        let row = sqlx::query("SELECT name, config, created_at, finished_at FROM run")
            .fetch_optional(&self.pool)
            .await?;
        row.map(|row| {
            Ok(RunRow {
                name: row.try_get("name")?,
                config: row.try_get("config")?,
                created_at: row.try_get("created_at")?,
                finished_at: row.try_get("finished_at")?,
            })
        })
        .transpose()
    }

    /// Register the run.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn create_run(&self, name: &str, config: &str, now: i64) -> Result<(), StoreError> {
        sqlx::query("INSERT INTO run (id, name, config, created_at) VALUES (1, ?, ?, ?)")
            .bind(name)
            .bind(config)
            .bind(now)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Replace the configuration by one that extends it; `is_open` makes a finished run go on.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn extend_run(&self, config: &str, is_open: bool) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE run SET config = ?, finished_at = CASE WHEN ? THEN NULL ELSE finished_at END",
        )
        .bind(config)
        .bind(is_open)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Whether nothing was done yet: no rollout and no step.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn is_untouched(&self) -> Result<bool, StoreError> {
        let row = sqlx::query(
            "SELECT NOT EXISTS (SELECT 1 FROM trajectory) AND NOT EXISTS (SELECT 1 FROM step)",
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(row.try_get::<i64, _>(0)? == 1)
    }

    /// Mark the run finished.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn finish_run(&self, now: i64) -> Result<(), StoreError> {
        sqlx::query("UPDATE run SET finished_at = ? WHERE finished_at IS NULL")
            .bind(now)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Begin a stretch of running; returns its id.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn begin_session(&self, now: i64, process: u32) -> Result<i64, StoreError> {
        let done =
            sqlx::query("INSERT INTO session (started_at, seen_at, process) VALUES (?, ?, ?)")
                .bind(now)
                .bind(now)
                .bind(i64::from(process))
                .execute(&self.pool)
                .await?;
        Ok(done.last_insert_rowid())
    }

    /// Keep a sign of life of a stretch.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn touch_session(&self, id: i64, sign: &Sign) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE session SET seen_at = ?, ended_at = ?, note = ?, ran_s = ? WHERE id = ?",
        )
        .bind(sign.now)
        .bind(sign.is_end.then_some(sign.now))
        .bind(sign.note.as_deref())
        .bind(sign.ran_s)
        .bind(id)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// All stretches, oldest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn sessions(&self) -> Result<Vec<SessionRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT started_at, seen_at, ended_at, process, note, ran_s FROM session ORDER BY id",
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(SessionRow {
                    started_at: row.try_get("started_at")?,
                    seen_at: row.try_get("seen_at")?,
                    ended_at: row.try_get("ended_at")?,
                    process: row.try_get("process")?,
                    note: row.try_get("note")?,
                    ran_s: row.try_get("ran_s")?,
                })
            })
            .collect()
    }

    /// A finished step's output.
    ///
    /// # Errors
    /// When the database fails or the record can't be read.
    pub async fn step<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StoreError> {
        let row = sqlx::query("SELECT output FROM step WHERE key = ?")
            .bind(key)
            .fetch_optional(&self.pool)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let output: String = row.try_get("output")?;
        serde_json::from_str(&output)
            .map(Some)
            .map_err(|source| StoreError::Record {
                key: key.to_owned(),
                source,
            })
    }

    /// Record a finished step; a step recorded before stays as it is.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn record_step<T: Serialize>(
        &self,
        key: &str,
        kind: &str,
        round: u32,
        output: &T,
        now: i64,
    ) -> Result<(), StoreError> {
        let output = serde_json::to_string(output).map_err(|source| StoreError::Record {
            key: key.to_owned(),
            source,
        })?;
        sqlx::query(
            "INSERT OR IGNORE INTO step (key, kind, round, output, done_at) VALUES (?, ?, ?, ?, ?)",
        )
        .bind(key)
        .bind(kind)
        .bind(i64::from(round))
        .bind(output)
        .bind(now)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Steps of one kind, in the order they were done.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn steps(&self, kind: &str) -> Result<Vec<StepRow>, StoreError> {
        let rows =
            sqlx::query("SELECT key, kind, round, output FROM step WHERE kind = ? ORDER BY rowid")
                .bind(kind)
                .fetch_all(&self.pool)
                .await?;
        rows.into_iter()
            .map(|row| {
                let round: i64 = row.try_get("round")?;
                Ok(StepRow {
                    key: row.try_get("key")?,
                    kind: row.try_get("kind")?,
                    round: u32::try_from(round).unwrap_or(u32::MAX),
                    output: row.try_get("output")?,
                })
            })
            .collect()
    }

    /// Totals over all rollouts that were asked for.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn totals(&self) -> Result<RolloutTotals, StoreError> {
        let row = sqlx::query(
            "SELECT COUNT(*) AS rollouts, COUNT(*) FILTER (WHERE split = 'gate') AS gate_rollouts, \
             COUNT(*) FILTER (WHERE exit = 'infrastructure') AS left_out, \
             COALESCE(SUM(completion_tokens), 0) AS tokens FROM trajectory \
             WHERE id NOT IN (SELECT id FROM ahead)",
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(RolloutTotals {
            rollouts: row.try_get("rollouts")?,
            gate_rollouts: row.try_get("gate_rollouts")?,
            left_out: row.try_get("left_out")?,
            completion_tokens: row.try_get("tokens")?,
        })
    }

    /// Bring everything onto the disk, so that no power cut takes it. What a version of the registry was
    /// decided on has to be there before the version is: a served policy that were asked once more could come
    /// to another one, and the run would find its own version in its way for good.
    ///
    /// # Errors
    /// When the database or its log can't be written.
    pub async fn flush(&self) -> Result<(), StoreError> {
        sqlx::query("PRAGMA wal_checkpoint(PASSIVE)")
            .fetch_all(&self.pool)
            .await?;
        // Whoever reads the database keeps that from taking all of the log. What stands there is as safe.
        let mut path = self.pool.connect_options().get_filename().to_owned();
        path.as_mut_os_string().push("-wal");
        let log = match tokio::fs::File::open(&path).await {
            Ok(log) => log.sync_data().await,
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        log.map_err(|source| match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::Full,
            _ => StoreError::Log { path, source },
        })
    }

    /// Check the database's pages; `ok` or what is wrong.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn integrity(&self) -> Result<String, StoreError> {
        let row = sqlx::query("PRAGMA quick_check")
            .fetch_one(&self.pool)
            .await?;
        Ok(row.try_get(0)?)
    }

    /// Close all connections, so that the write-ahead log is folded in.
    pub async fn close(self) {
        self.pool.close().await;
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::error::Error;

    use sqlx::ConnectOptions;
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

    #[tokio::test]
    async fn what_is_flushed_needs_no_log() {
        let here = tempfile::tempdir().expect("directory");
        let store = Store::open(here.path()).await.expect("a store");
        let step = |key: &str| {
            let (store, key) = (store.clone(), key.to_owned());
            async move {
                let recorded = store.record_step(&key, "kind", 1, &7, 0).await;
                recorded.expect("a step");
            }
        };
        step("before").await;
        store.flush().await.expect("a flush");
        step("after").await;
        // What a power cut leaves: the file, without what only stands in the log.
        let there = tempfile::tempdir().expect("directory");
        let copied = std::fs::copy(here.path().join("run.db"), there.path().join("run.db"));
        copied.expect("a copy");
        let left = Store::open(there.path()).await.expect("a whole database");
        assert_eq!(left.step::<i64>("before").await.expect("a read"), Some(7));
        assert_eq!(left.step::<i64>("after").await.expect("a read"), None);
    }

    #[tokio::test]
    async fn a_reader_holds_no_flush_up() {
        let here = tempfile::tempdir().expect("directory");
        let store = Store::open(here.path()).await.expect("a store");
        let options = SqliteConnectOptions::new().filename(here.path().join("run.db"));
        let mut reader = options.connect().await.expect("a reader");
        for statement in ["BEGIN", "SELECT count(*) FROM step"] {
            let read = sqlx::query(statement).fetch_all(&mut reader).await;
            read.expect("a read");
        }
        let recorded = store.record_step("late", "kind", 1, &7, 0).await;
        recorded.expect("a step");
        let flushed = tokio::time::timeout(Duration::from_secs(10), store.flush()).await;
        flushed.expect("no wait").expect("a flush");
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
