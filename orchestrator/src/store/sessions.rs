//! The stretches in which processes ran the run.

use sqlx::Row;

use super::{Store, StoreError};

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

impl Store {
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
}
