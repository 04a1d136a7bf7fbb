//! The row of the run itself.

use sqlx::Row;

use super::{Store, StoreError};

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

impl Store {
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
}
