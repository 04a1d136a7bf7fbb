//! What steps came to, by the keys of their inputs.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row;

use super::{Store, StoreError};

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

impl Store {
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
}
