//! Retention: what a round must not lose elsewhere while it gets better at the run's own problems.
//!
//! At the end of every round the weights and the harness that it ends with are compared with those that
//! it started from, on each retention suite ([`crate::gate::loss`] says by what rule). If a suite has lost
//! more than it may, the whole round is taken back: which of its changes did it isn't known.

use std::sync::Arc;

use rollout::tools::ToolRunner;

use crate::clock::unix_seconds;
use crate::config::{Loaded, SuiteConfig};
use crate::error::RunError;
use crate::gate::evidence::PassRate;
use crate::gate::watch::{Ground, Watched};
use crate::history::History;
use crate::report::{Cause, Place, RetentionRow, kind};
use crate::rollouts::{Arm, Judge, Rolled};
use crate::splits::Suite;
use crate::standing::Standing;
use crate::workshop::Workshop;

/// Who judges a suite's answers.
pub(crate) fn judge_of(suite: &SuiteConfig, loaded: &Loaded, tools: &Arc<dyn ToolRunner>) -> Judge {
    let own = &loaded.config.tasks.verifier;
    Judge::new(loaded, suite.verifier.as_ref().unwrap_or(own), tools)
}

/// Share of the rollouts that solved their problems; without those that were left out.
pub(crate) fn solved(rolled: &[Rolled]) -> PassRate {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let all = rolled.iter().flatten();
    let correct = all.clone().filter(|t| t.verdict.correct).count();
    PassRate::of(count(correct), count(all.count()))
}

impl Workshop {
    /// What the next round starts from: what this one ended with, or what it started from if a retention
    /// suite has lost too much.
    ///
    /// # Errors
    /// When the run is to stop or a part fails; what was finished is stored.
    pub async fn retain(
        &self,
        round: u32,
        before: &Standing,
        after: Standing,
        history: &mut History,
    ) -> Result<Standing, RunError> {
        if self.splits.suites.is_empty() || after.is_like(before) {
            return Ok(after);
        }
        let arms = [self.arm_of(before).await?, self.arm_of(&after).await?];
        let mut losses = Vec::new();
        for suite in &self.splits.suites {
            let row = self
                .compare_on(suite, round, [before, &after], &arms)
                .await?;
            self.line(format!("  {}", row.outline()));
            if row.loss.is_shown {
                losses.push(row.outline());
            }
        }
        if losses.is_empty() {
            return Ok(after);
        }
        let reason = format!("round {round} lost too much: {}", losses.join("; "));
        self.go_back(round, Cause::Retention, &reason, [&after, before], history)
            .await
    }

    /// One suite under both arms.
    async fn compare_on(
        &self,
        suite: &Suite,
        round: u32,
        [before, after]: [&Standing; 2],
        [earlier, later]: &[Arm; 2],
    ) -> Result<RetentionRow, RunError> {
        let Suite { config, tasks } = suite;
        let key = self.key(kind::RETENTION, &[&round.to_string(), &config.name]);
        let places = [before.place(), after.place()];
        // An earlier version may have counted otherwise, and the registry has what came of it.
        let known: Option<RetentionRow> = self.store.step(&key).await?;
        if let Some(row) = known.filter(|row| row.before == places[0] && row.after == places[1]) {
            return Ok(row);
        }
        let ground = Ground {
            tasks,
            judge: &judge_of(config, &self.loaded, &self.tools),
            seed: self.seed().derive("retention").derive(&config.name),
            passes: config.passes,
            tolerance: config.tolerance(self.splits.suites.len()),
        };
        let title = format!("round {round} · retention {}", config.name);
        let watched = self.watch(&title, round, &ground, earlier, later).await?;
        let row = RetentionRow::of(config, round, places, watched);
        self.store
            .record_step(&key, kind::RETENTION, round, &row, unix_seconds())
            .await?;
        Ok(row)
    }
}

impl RetentionRow {
    fn of(config: &SuiteConfig, round: u32, [before, after]: [Place; 2], watched: Watched) -> Self {
        Self {
            round,
            suite: config.name.clone(),
            before,
            after,
            rate_before: solved(&watched.earlier),
            rate_after: solved(&watched.later),
            max_drop: config.max_drop_points / 100.0,
            rollouts: 2 * watched.trials.len(),
            loss: watched.loss,
        }
    }
}
