//! Finished rollouts in the store: keeping them, finding them.
//!
//! One that was made ahead of the phase that needs it is found by its id, but neither listed nor counted
//! before a phase has asked for it: what a run says doesn't depend on what it had room for.

use std::collections::BTreeSet;

use rollout::task::Task;
use rollout::trajectory::{RolloutId, Trajectory};
use rollout::verifier::VerifierKind;
use serde::{Deserialize, Serialize};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{Store, StoreError};

/// When a rollout was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Round, 0 before the first one.
    pub round: u32,
    /// Unix seconds.
    pub at: i64,
}

/// What a verdict rests on beside the answer. A run has one for each of its problems, since its
/// configuration and its problems are fixed; an evaluation may meet another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Basis {
    /// The verifier.
    pub verifier: VerifierKind,
    /// Hash of the gold answer.
    pub gold: String,
}

impl Basis {
    /// The basis of a task's verdicts.
    pub fn of(task: &Task, verifier: &VerifierKind) -> Self {
        Basis {
            verifier: verifier.clone(),
            gold: hash_of(&task.answer),
        }
    }

    /// Whether this is the basis of verdicts under the task's gold answer.
    pub fn has_answer_of(&self, task: &Task) -> bool {
        self.gold == hash_of(&task.answer)
    }
}

fn hash_of(answer: &str) -> String {
    blake3::hash(answer.as_bytes()).to_hex().to_string()
}

/// A finished rollout without its body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrajectoryRow {
    /// All 64 hex digits of its id.
    pub id: String,
    /// The task.
    pub task: String,
    /// `evolve`, `gate` or `test`.
    pub split: String,
    /// Content id of the harness.
    pub harness: String,
    /// The policy.
    pub policy: String,
    /// Whether it solved the task.
    pub correct: bool,
    /// Exit reason.
    pub exit: String,
    /// Generated tokens.
    pub completion_tokens: i64,
    /// Wall time in milliseconds.
    pub wall_ms: i64,
    /// Round in which it was made.
    pub round: Option<u32>,
    /// Unix seconds at which it was made.
    pub done_at: Option<i64>,
}

/// Which rollouts are meant; `None` means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrajectoryFilter {
    /// The split.
    pub split: Option<String>,
    /// The round.
    pub round: Option<u32>,
    /// Whether the task was solved. Rollouts that were left out neither solved it nor failed.
    pub correct: Option<bool>,
    /// Exit reason.
    pub exit: Option<String>,
    /// The task's id.
    pub task: Option<String>,
    /// Content ids of harnesses.
    pub harnesses: Option<Vec<String>>,
    /// Beginning of the id.
    pub id_prefix: Option<String>,
}

impl Store {
    /// A finished rollout.
    ///
    /// # Errors
    /// When the database fails or the record is damaged.
    pub async fn trajectory(&self, id: &RolloutId) -> Result<Option<Trajectory>, StoreError> {
        self.trajectory_of(id.as_str()).await
    }

    /// A finished rollout by all digits of its id.
    ///
    /// # Errors
    /// When the database fails or the record is damaged.
    pub async fn trajectory_of(&self, id: &str) -> Result<Option<Trajectory>, StoreError> {
        let row = sqlx::query("SELECT body FROM trajectory WHERE id = ?")
            .bind(id)
            .fetch_optional(&self.pool)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let body: Vec<u8> = row.try_get("body")?;
        let json = zstd::decode_all(body.as_slice()).map_err(|source| StoreError::Body {
            id: id.to_owned(),
            source,
        })?;
        serde_json::from_slice(&json)
            .map(Some)
            .map_err(|source| StoreError::Record {
                key: id.to_owned(),
                source,
            })
    }

    /// Whether a rollout is finished.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn has_trajectory(&self, id: &RolloutId) -> Result<bool, StoreError> {
        let row = sqlx::query("SELECT EXISTS (SELECT 1 FROM trajectory WHERE id = ?)")
            .bind(id.as_str())
            .fetch_one(&self.pool)
            .await?;
        Ok(row.try_get::<i64, _>(0)? == 1)
    }

    /// What the verdict of a finished rollout rests on. `None` where that isn't known.
    ///
    /// # Errors
    /// When the database fails or the record is damaged.
    pub async fn basis(&self, id: &RolloutId) -> Result<Option<Basis>, StoreError> {
        let row = sqlx::query("SELECT basis FROM trajectory WHERE id = ?")
            .bind(id.as_str())
            .fetch_optional(&self.pool)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let text: Option<String> = row.try_get("basis")?;
        let read = |text: String| serde_json::from_str(&text);
        text.map(read)
            .transpose()
            .map_err(|source| StoreError::Record {
                key: id.as_str().to_owned(),
                source,
            })
    }

    /// Record a finished rollout; one recorded before stays as it is.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn record_trajectory(
        &self,
        trajectory: &Trajectory,
        basis: &Basis,
        made: Made,
    ) -> Result<(), StoreError> {
        let id = trajectory.id.as_str();
        let body = body_of(trajectory)?;
        let text = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let split = text(serde_json::to_value(trajectory.split).map_err(unwritable(id))?);
        sqlx::query(
            "INSERT OR IGNORE INTO trajectory (id, task, split, harness, policy, seed, correct, exit, \
             completion_tokens, wall_ms, body, basis, round, done_at, prompt_tokens) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(id)
        .bind(trajectory.task.as_str())
        .bind(split)
        .bind(trajectory.harness.to_hex())
        .bind(trajectory.policy.as_str())
        .bind(trajectory.seed.to_string())
        .bind(i64::from(trajectory.verdict.correct))
        .bind(trajectory.exit.name())
        .bind(i64::try_from(trajectory.usage.completion_tokens).unwrap_or(i64::MAX))
        .bind(i64::try_from(trajectory.wall_ms).unwrap_or(i64::MAX))
        .bind(body)
        .bind(serde_json::to_string(basis).map_err(unwritable(id))?)
        .bind(i64::from(made.round))
        .bind(made.at)
        .bind(i64::try_from(trajectory.usage.prompt_tokens).unwrap_or(i64::MAX))
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Record a finished rollout that no phase has asked for yet; `made` names the round of the one that
    /// is to.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn record_ahead(
        &self,
        trajectory: &Trajectory,
        basis: &Basis,
        made: Made,
    ) -> Result<(), StoreError> {
        // In this order: a kill between leaves nothing that counts. One that counts already goes on counting.
        let ahead = "INSERT OR IGNORE INTO ahead (id) \
                     SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM trajectory WHERE id = ?1)";
        sqlx::query(ahead)
            .bind(trajectory.id.as_str())
            .execute(&self.pool)
            .await?;
        self.record_trajectory(trajectory, basis, made).await
    }

    /// Ids of what was made ahead and not asked for yet.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn made_ahead(&self) -> Result<BTreeSet<String>, StoreError> {
        let rows = sqlx::query("SELECT id FROM ahead")
            .fetch_all(&self.pool)
            .await?;
        let id = |row: SqliteRow| -> Result<String, StoreError> { Ok(row.try_get("id")?) };
        rows.into_iter().map(id).collect()
    }

    /// Count a rollout that was made ahead from now on, as one of `round`: a phase has asked for it, perhaps
    /// not the one that it was made for. One that counts already stays as it is.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn claim(&self, id: &RolloutId, round: u32) -> Result<(), StoreError> {
        // In this order: after a kill between it is claimed once more.
        sqlx::query(
            "UPDATE trajectory SET round = ? WHERE id = ? AND id IN (SELECT id FROM ahead)",
        )
        .bind(i64::from(round))
        .bind(id.as_str())
        .execute(&self.pool)
        .await?;
        sqlx::query("DELETE FROM ahead WHERE id = ?")
            .bind(id.as_str())
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Puts a rollout that was judged anew in its own place.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn replace_verdict(
        &self,
        trajectory: &Trajectory,
        basis: &Basis,
    ) -> Result<(), StoreError> {
        let id = trajectory.id.as_str();
        let body = body_of(trajectory)?;
        sqlx::query(
            "UPDATE trajectory SET correct = ?, exit = ?, body = ?, basis = ? WHERE id = ?",
        )
        .bind(i64::from(trajectory.verdict.correct))
        .bind(trajectory.exit.name())
        .bind(body)
        .bind(serde_json::to_string(basis).map_err(unwritable(id))?)
        .bind(id)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Forgets a rollout, so that it is made again.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn forget(&self, id: &RolloutId) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM trajectory WHERE id = ?")
            .bind(id.as_str())
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Forgets the rollouts that policy or sandbox kept from ending, so that they are made again.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn forget_left_out(&self) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM trajectory WHERE exit = 'infrastructure'")
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Finished rollouts, in the order in which they were made.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn trajectories(
        &self,
        filter: &TrajectoryFilter,
    ) -> Result<Vec<TrajectoryRow>, StoreError> {
        let harnesses = filter.harnesses.as_ref();
        let harnesses = harnesses.map(|ids| serde_json::json!(ids).to_string());
        // A pattern would give meaning to `%` and `_`; the end of a prefix's range needs none.
        let rows = sqlx::query(
            "SELECT id, task, split, harness, policy, correct, exit, completion_tokens, wall_ms, \
             round, done_at FROM trajectory \
             WHERE (?1 IS NULL OR split = ?1) AND (?2 IS NULL OR round = ?2) \
             AND (?3 IS NULL OR (correct = ?3 AND exit <> 'infrastructure')) AND (?4 IS NULL OR exit = ?4) \
             AND (?5 IS NULL OR task = ?5) AND (?6 IS NULL OR harness IN (SELECT value FROM json_each(?6))) \
             AND (?7 IS NULL OR substr(id, 1, length(?7)) = ?7) \
             AND id NOT IN (SELECT id FROM ahead) \
             ORDER BY round, done_at, split, task, id",
        )
        .bind(&filter.split)
        .bind(filter.round.map(i64::from))
        .bind(filter.correct.map(i64::from))
        .bind(&filter.exit)
        .bind(&filter.task)
        .bind(harnesses)
        .bind(&filter.id_prefix)
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                let round: Option<i64> = row.try_get("round")?;
                Ok(TrajectoryRow {
                    id: row.try_get("id")?,
                    task: row.try_get("task")?,
                    split: row.try_get("split")?,
                    harness: row.try_get("harness")?,
                    policy: row.try_get("policy")?,
                    correct: row.try_get::<i64, _>("correct")? != 0,
                    exit: row.try_get("exit")?,
                    completion_tokens: row.try_get("completion_tokens")?,
                    wall_ms: row.try_get("wall_ms")?,
                    round: round.and_then(|round| u32::try_from(round).ok()),
                    done_at: row.try_get("done_at")?,
                })
            })
            .collect()
    }
}

/// A trajectory as it is kept.
fn body_of(trajectory: &Trajectory) -> Result<Vec<u8>, StoreError> {
    let id = trajectory.id.as_str();
    let json = serde_json::to_vec(trajectory).map_err(unwritable(id))?;
    zstd::encode_all(json.as_slice(), 3).map_err(|source| StoreError::Body {
        id: id.to_owned(),
        source,
    })
}

fn unwritable(id: &str) -> impl Fn(serde_json::Error) -> StoreError {
    let key = id.to_owned();
    move |source| StoreError::Record {
        key: key.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use rollout::task::TaskId;

    use super::*;
    use crate::rollouts::testing::trajectory;

    #[tokio::test]
    async fn what_was_made_ahead_is_found_at_once_and_counted_once_it_was_asked_for() {
        let here = tempfile::tempdir().expect("directory");
        let store = Store::open(here.path()).await.expect("a store");
        let trajectory = trajectory();
        let task = Task {
            id: TaskId::new("t"),
            problem: "How many?".into(),
            answer: "7".into(),
        };
        let basis = Basis::of(&task, &VerifierKind::Integer);
        let made = Made { round: 2, at: 0 };
        let recorded = store.record_ahead(&trajectory, &basis, made).await;
        recorded.expect("recorded");
        let counted = async || {
            let totals = store.totals().await.expect("totals");
            let filter = TrajectoryFilter::default();
            let rows = store.trajectories(&filter).await.expect("a list");
            let rounds: Vec<Option<u32>> = rows.iter().map(|row| row.round).collect();
            (totals.rollouts, totals.gate_rollouts, rounds)
        };
        assert_eq!(counted().await, (0, 0, Vec::new()));
        let id = &trajectory.id;
        assert!(store.has_trajectory(id).await.expect("an answer"));
        assert!(store.trajectory(id).await.expect("an answer").is_some());
        let waiting = store.made_ahead().await.expect("ids");
        assert!(waiting.len() == 1 && waiting.contains(id.as_str()));

        // In vain in its own round, and asked for in the next ones.
        for round in [3, 4] {
            store.claim(id, round).await.expect("a claim");
            assert_eq!(counted().await, (1, 1, vec![Some(3)]));
        }
        assert!(store.made_ahead().await.expect("ids").is_empty());
        // Made ahead once more, it goes on counting.
        let recorded = store.record_ahead(&trajectory, &basis, made).await;
        recorded.expect("recorded");
        assert_eq!(counted().await, (1, 1, vec![Some(3)]));
        store.forget(id).await.expect("forgotten");
        assert!(!store.has_trajectory(id).await.expect("an answer"));
    }
}
