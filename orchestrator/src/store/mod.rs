//! The run's database: what is done, so that nothing is done twice.
//!
//! SQLite in WAL mode with one writer connection. Every write is one statement or one immediate
//! transaction; a kill between two writes loses at most the unit in flight, which is done again
//! from the same inputs with the same result.
//!
//! Each kind of record has a file of its own; here the database is opened, flushed and closed.

mod error;
mod filesystem;
mod looking;
mod run;
mod sessions;
mod spent;
mod steps;
mod trajectories;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::Row;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

pub use self::error::StoreError;
pub use self::run::RunRow;
pub use self::sessions::{SessionRow, Sign};
pub use self::spent::{RolloutSums, RolloutTotals};
pub use self::steps::StepRow;
pub use self::trajectories::{Basis, Made, TrajectoryFilter, TrajectoryRow};

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
    use sqlx::ConnectOptions;

    use super::*;

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
}
