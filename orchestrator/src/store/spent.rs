//! What the rollouts in the store took. What was spent counts every one of them, also those made ahead that no
//! phase has asked for; what a run says of itself counts those that were asked for.

use serde::Serialize;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{Store, StoreError};

/// Sums over all stored rollouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RolloutSums {
    /// Rollouts.
    pub rollouts: u64,
    /// Prompt tokens of every turn, cached ones included, as far as they were counted.
    pub prompt_tokens: u64,
    /// Generated tokens.
    pub completion_tokens: u64,
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

impl Store {
    /// What all stored rollouts took.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn rollout_sums(&self) -> Result<RolloutSums, StoreError> {
        let row = sqlx::query(
            "SELECT COUNT(*) AS rollouts, COALESCE(SUM(prompt_tokens), 0) AS prompt, \
             COALESCE(SUM(completion_tokens), 0) AS completion FROM trajectory",
        )
        .fetch_one(&self.pool)
        .await?;
        let sum = |name: &str| -> Result<u64, StoreError> {
            let value: i64 = row.try_get(name)?;
            Ok(u64::try_from(value).unwrap_or(0))
        };
        Ok(RolloutSums {
            rollouts: sum("rollouts")?,
            prompt_tokens: sum("prompt")?,
            completion_tokens: sum("completion")?,
        })
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

    /// Count the prompt tokens of rollouts that an earlier version stored. A damaged one stays uncounted.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn count_prompt_tokens(&self) -> Result<(), StoreError> {
        let rows = sqlx::query("SELECT id FROM trajectory WHERE prompt_tokens IS NULL")
            .fetch_all(&self.pool)
            .await?;
        // A commit for each would write its pages once more for each.
        for some in rows.chunks(500) {
            let counts = self.prompt_tokens_of(some).await?;
            let mut transaction = self.pool.begin().await?;
            for (id, tokens) in counts {
                sqlx::query("UPDATE trajectory SET prompt_tokens = ? WHERE id = ?")
                    .bind(tokens)
                    .bind(id)
                    .execute(&mut *transaction)
                    .await?;
            }
            transaction.commit().await?;
        }
        Ok(())
    }

    /// Prompt tokens of the rollouts whose ids stand in `rows`, but for damaged ones.
    async fn prompt_tokens_of(&self, rows: &[SqliteRow]) -> Result<Vec<(String, i64)>, StoreError> {
        let mut counts = Vec::with_capacity(rows.len());
        for row in rows {
            let id: String = row.try_get("id")?;
            let trajectory = match self.trajectory_of(&id).await {
                Ok(Some(trajectory)) => trajectory,
                Ok(None) | Err(StoreError::Body { .. } | StoreError::Record { .. }) => continue,
                Err(error) => return Err(error),
            };
            let tokens = i64::try_from(trajectory.usage.prompt_tokens).unwrap_or(i64::MAX);
            counts.push((id, tokens));
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use rollout::Usage;
    use rollout::task::{Task, TaskId};
    use rollout::trajectory::Trajectory;
    use rollout::verifier::VerifierKind;

    use super::*;
    use crate::rollouts::testing::trajectory;
    use crate::store::{Basis, Made};

    #[tokio::test]
    async fn rollouts_of_an_earlier_version_are_counted_once_a_run_goes_on() {
        let here = tempfile::tempdir().expect("directory");
        let store = Store::open(here.path()).await.expect("a store");
        let task = Task {
            id: TaskId::new("t"),
            problem: "How many?".into(),
            answer: "7".into(),
        };
        let kept = Trajectory {
            usage: Usage {
                prompt_tokens: 300,
                completion_tokens: 40,
                ..Usage::default()
            },
            ..trajectory()
        };
        let basis = Basis::of(&task, &VerifierKind::Integer);
        let made = Made { round: 1, at: 0 };
        let recorded = store.record_ahead(&kept, &basis, made).await;
        recorded.expect("recorded");
        let sums = RolloutSums {
            rollouts: 1,
            prompt_tokens: 300,
            completion_tokens: 40,
        };
        assert_eq!(store.rollout_sums().await.expect("sums"), sums);

        for statement in [
            "UPDATE trajectory SET prompt_tokens = NULL",
            "INSERT INTO trajectory (id, task, split, harness, policy, seed, correct, exit, completion_tokens, \
             wall_ms, body) VALUES ('damaged', 't', 'gate', 'h', 'p', '0', 1, 'answered', 7, 1, x'')",
        ] {
            sqlx::query(statement)
                .execute(&store.pool)
                .await
                .expect("a statement");
        }
        let uncounted = store.rollout_sums().await.expect("sums");
        assert_eq!(uncounted.prompt_tokens, 0);
        store.count_prompt_tokens().await.expect("counted");
        let sums = RolloutSums {
            rollouts: 2,
            prompt_tokens: 300,
            completion_tokens: 47,
        };
        assert_eq!(store.rollout_sums().await.expect("sums"), sums);
    }
}
