//! Looking at a run without changing its database, not even the schema: a process of an earlier version may
//! be at work on it, and couldn't go on with it afterwards.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use sqlx::Row;
use sqlx::migrate::MigrateError;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use super::{Store, StoreError, filesystem};

/// What stands in for the parts that schemas of these versions are without. It belongs to the connection, and
/// SQLite finds a name there before it looks into the file.
const STAND_INS: [(RangeInclusive<i64>, &str); 6] = [
    (
        1..=1,
        "CREATE TEMP VIEW trajectory AS \
         SELECT *, NULL AS round, NULL AS done_at, NULL AS basis, NULL AS prompt_tokens FROM main.trajectory",
    ),
    (
        2..=2,
        "CREATE TEMP VIEW trajectory AS \
         SELECT *, NULL AS basis, NULL AS prompt_tokens FROM main.trajectory",
    ),
    (
        3..=6,
        "CREATE TEMP VIEW trajectory AS SELECT *, NULL AS prompt_tokens FROM main.trajectory",
    ),
    (
        1..=3,
        "CREATE TEMP VIEW session AS SELECT *, NULL AS note, NULL AS ran_s FROM main.session",
    ),
    (
        4..=4,
        "CREATE TEMP VIEW session AS SELECT *, NULL AS ran_s FROM main.session",
    ),
    (1..=5, "CREATE TEMP TABLE ahead (id TEXT PRIMARY KEY)"),
];

impl Store {
    /// Open `run.db` in `directory` to read it, without a change to it. A database of an earlier version is
    /// read as it is, and one that holds nothing yet as an empty one: a process that begins a run is about to
    /// give it its schema, and two that do so get into each other's way.
    ///
    /// # Errors
    /// As [`Self::open`], where there is no database, and where nothing can be written beside one that isn't
    /// whole without its log.
    pub async fn look_at(directory: &Path) -> Result<Self, StoreError> {
        let reached = match Self::reach(directory, SqliteConnectOptions::new()).await {
            Err(error) if error.wants_to_write() && !filesystem::is_writable(directory) => {
                Self::reach_as_it_lies(directory).await
            }
            reached => reached,
        };
        // Another connection would be without the stand-ins.
        let (pool, path, version) = reached?;
        if version == 0 {
            pool.close().await;
            return Self::empty().await;
        }
        let newest = sqlx::migrate!().iter().map(|known| known.version).max();
        if newest.is_some_and(|newest| version > newest) {
            let source = MigrateError::VersionMissing(version);
            return Err(StoreError::migrating(source, &path));
        }
        for (versions, stand_in) in STAND_INS {
            if versions.contains(&version) {
                sqlx::query(stand_in).execute(&pool).await?;
            }
        }
        Ok(Self { pool })
    }

    /// A connection to the database, where that is, and the version of its schema.
    async fn reach(
        directory: &Path,
        options: SqliteConnectOptions,
    ) -> Result<(SqlitePool, PathBuf, i64), StoreError> {
        let (pool, path) = Self::connect(directory, options).await?;
        let version = version(&pool)
            .await
            .map_err(|source| StoreError::opening(source, &path))?;
        Ok((pool, path, version))
    }

    /// The same for a person who can't write there. SQLite makes an index of the log for readers, even where
    /// there is no log; told that nobody changes the file it reads that alone.
    async fn reach_as_it_lies(directory: &Path) -> Result<(SqlitePool, PathBuf, i64), StoreError> {
        let log = std::fs::metadata(directory.join("run.db-wal"));
        if log.is_ok_and(|log| log.len() > 0) {
            return Err(StoreError::Unfolded {
                path: directory.join("run.db"),
            });
        }
        let options = SqliteConnectOptions::new().read_only(true).immutable(true);
        Self::reach(directory, options).await
    }

    /// A store of nothing, in memory.
    async fn empty() -> Result<Self, StoreError> {
        let path = Path::new(":memory:");
        let options = SqliteConnectOptions::new().in_memory(true);
        let pool = Self::one_connection(options, path).await?;
        sqlx::migrate!()
            .run(&pool)
            .await
            .map_err(|source| StoreError::migrating(source, path))?;
        Ok(Self { pool })
    }
}

/// Version of a database's schema, 0 where it has none.
async fn version(pool: &SqlitePool) -> Result<i64, sqlx::Error> {
    let kept = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = '_sqlx_migrations')";
    let row = sqlx::query(kept).fetch_one(pool).await?;
    if row.try_get::<i64, _>(0)? == 0 {
        return Ok(0);
    }
    let highest = "SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations";
    sqlx::query(highest).fetch_one(pool).await?.try_get(0)
}

#[cfg(test)]
mod tests {
    use sqlx::migrate::{Migration, Migrator};

    use super::*;
    use crate::report::Report;
    use crate::rollouts::testing::trajectory;
    use crate::store::TrajectoryFilter;

    async fn connected(directory: &Path) -> SqlitePool {
        let options = SqliteConnectOptions::new()
            .filename(directory.join("run.db"))
            .create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await;
        pool.expect("a database")
    }

    /// A run of the version whose migrations these are, with a rollout and a stretch of running.
    async fn run_of(directory: &Path, migrations: &[Migration]) {
        let pool = connected(directory).await;
        let migrator = Migrator::with_migrations(migrations.to_vec());
        migrator.run(&pool).await.expect("a schema");
        for statement in [
            "INSERT INTO run (id, name, config, created_at) VALUES (1, 'small', '{}', 1)",
            "INSERT INTO session (started_at, seen_at, process) VALUES (20, 50, 1)",
        ] {
            sqlx::query(statement).execute(&pool).await.expect("a row");
        }
        sqlx::query(
            "INSERT INTO trajectory (id, task, split, harness, policy, seed, correct, exit, \
             completion_tokens, wall_ms, body) VALUES (?, 't', 'gate', 'h', 'p', '0', 1, 'answered', 7, 1, x'')",
        )
        .bind(trajectory().id.as_str())
        .execute(&pool)
        .await
        .expect("a row");
        pool.close().await;
    }

    #[tokio::test]
    async fn a_run_of_any_version_can_be_looked_at_and_keeps_its_schema() {
        let all = sqlx::migrate!().iter().cloned().collect::<Vec<_>>();
        for count in 1..=all.len() {
            let here = tempfile::tempdir().expect("directory");
            run_of(here.path(), &all[..count]).await;
            // Twice: what stands in for the rest is gone with its connection.
            for _ in 0..2 {
                let store = Store::look_at(here.path()).await.expect("a store");
                let report = Report::read(&store).await.expect("a report");
                let counts = (report.rollouts, report.gate.rollouts, report.wall_s);
                assert_eq!(counts, (1, 1, 30), "schema {count}");
                let sums = store.rollout_sums().await.expect("sums");
                assert_eq!((sums.rollouts, sums.completion_tokens), (1, 7));
                let rows = store.trajectories(&TrajectoryFilter::default()).await;
                assert_eq!(rows.expect("a list").len(), 1);
                let basis = store.basis(&trajectory().id).await;
                assert_eq!(basis.expect("a read"), None);
                assert_eq!(store.sessions().await.expect("a list")[0].note, None);
                store.close().await;
            }
            let pool = connected(here.path()).await;
            let kept = version(&pool).await.expect("a version");
            assert_eq!(kept, all[count - 1].version);
            pool.close().await;
            // Going on with it is another matter.
            let store = Store::open(here.path()).await.expect("a store");
            assert_eq!(store.totals().await.expect("totals").rollouts, 1);
            store.close().await;
            let pool = connected(here.path()).await;
            let now = version(&pool).await.expect("a version");
            assert_eq!(Some(now), all.last().map(|migration| migration.version));
        }
    }

    #[tokio::test]
    async fn where_no_run_is_none_is_made() {
        let here = tempfile::tempdir().expect("directory");
        let missing = Store::look_at(here.path()).await.expect_err("no database");
        assert!(matches!(missing, StoreError::Open { .. }), "{missing}");
        assert!(!Store::exists(here.path()));
        // One that was killed before it wrote anything.
        std::fs::write(here.path().join("run.db"), "").expect("file");
        let store = Store::look_at(here.path()).await.expect("a store");
        assert_eq!(store.run().await.expect("a read"), None);
        let left = std::fs::metadata(here.path().join("run.db")).expect("the file");
        assert_eq!(left.len(), 0);
    }

    /// What it finds while the schema is made may be anything.
    async fn look_often(directory: PathBuf) {
        while !Store::exists(&directory) {
            tokio::task::yield_now().await;
        }
        for _ in 0..20 {
            let _ = Store::look_at(&directory).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_run_begins_while_others_look_at_it() {
        for _ in 0..20 {
            let here = tempfile::tempdir().expect("directory");
            let looking = [(), ()].map(|()| tokio::spawn(look_often(here.path().to_owned())));
            Store::open(here.path()).await.expect("a store");
            for looked in looking {
                looked.await.expect("no panic");
            }
        }
    }
}
