//! The sealed test: what weights solve under a harness. Nothing but reports reads this.
//!
//! A cell is one set of weights under one harness on all test problems, one attempt each. Every cell has
//! the same seeds, so cells can be compared problem by problem. The same weights under the same harness
//! are one cell, whatever it is called and however often it is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use rollout::task::Split;
use rollout::trajectory::Trajectory;

use crate::clock::unix_seconds;
use crate::config::MatrixKind;
use crate::error::RunError;
use crate::gate::evidence::PassRate;
use crate::harness_loop::Head;
use crate::report::{EvaluateRow, kind, rows_of};
use crate::rollouts::{Arm, Stretch, Trial, draw};
use crate::standing::Standing;
use crate::trained_weights::short;
use crate::workshop::Workshop;

impl Workshop {
    /// Score weights under a harness; `label` is the name of the cell in the report.
    ///
    /// # Errors
    /// When the run is to stop or a part fails; what was finished is stored.
    pub async fn evaluate(
        &self,
        round: u32,
        label: &str,
        head: &Head,
        adapter: Option<&str>,
    ) -> Result<(), RunError> {
        let title = EvaluateRow::title(label);
        let (row, _) = self.cell(round, label, &title, head, adapter).await?;
        self.line(row.outline(&title));
        Ok(())
    }

    /// Say what is rolled out from the sealed test of a round on, up to the first decision of the next one:
    /// its cells, those of the 2×2 among them where `start` is given, and what the next round begins with.
    /// Nothing where all cells are known: then nothing is rolled out beside which there could be room.
    ///
    /// # Errors
    /// When the weights can't be used, or the store fails.
    pub(crate) async fn foresee_test(
        &self,
        round: u32,
        start: Option<&Head>,
        standing: &Standing,
    ) -> Result<(), RunError> {
        let mut cells = vec![(&standing.head, standing.adapter.as_deref())];
        if let Some(start) = start {
            let crossed = crossed(start, standing).into_iter();
            cells.extend(crossed.map(|(_, head, weights)| (head, weights)));
        }
        let mut stretches = Vec::new();
        for (head, adapter) in cells {
            if self.known(head, adapter).await?.is_none() {
                stretches.push(Stretch {
                    arm: Arm {
                        policy: self.policy(adapter).await?,
                        harness: Arc::clone(&head.harness),
                    },
                    split: Split::Test,
                    trials: self.sealed(),
                    round,
                });
            }
        }
        if !stretches.is_empty() && round < self.loaded.config.run.rounds {
            let arm = self.arm_of(standing).await?;
            stretches.extend(self.cycle(round + 1, 1, &arm));
        }
        self.foresee(stretches).await;
        Ok(())
    }

    /// A cell that is in the journal, under whatever label.
    async fn known(
        &self,
        head: &Head,
        adapter: Option<&str>,
    ) -> Result<Option<EvaluateRow>, RunError> {
        let harness = head.harness.id().to_hex();
        let known: Vec<EvaluateRow> = rows_of(&self.store, kind::EVALUATE).await?;
        Ok(known.into_iter().find(|row| {
            row.harness.as_deref() == Some(harness.as_str()) && row.adapter.as_deref() == adapter
        }))
    }

    /// The trials of every cell.
    fn sealed(&self) -> Vec<Trial> {
        let tasks = &self.splits.test;
        draw(tasks, tasks.len(), self.seed().derive("test"))
    }

    /// A cell, recorded under its label; and whether it was known.
    async fn cell(
        &self,
        round: u32,
        label: &str,
        title: &str,
        head: &Head,
        adapter: Option<&str>,
    ) -> Result<(EvaluateRow, bool), RunError> {
        let harness = head.harness.id().to_hex();
        let known = self.known(head, adapter).await?;
        let is_known = known.is_some();
        let scored = match known {
            Some(row) => row,
            None => self.score(label, title, head, adapter).await?,
        };
        let row = EvaluateRow {
            label: label.to_owned(),
            version: head.name(),
            ..scored
        };
        let key = self.key(kind::EVALUATE, &[label, &harness, &row.policy]);
        self.store
            .record_step(&key, kind::EVALUATE, round, &row, unix_seconds())
            .await?;
        Ok((row, is_known))
    }

    /// The cells that a round's 2×2 has beside those of the table: its harness with the weights that the
    /// run began with, and its weights with that harness. If one of both is still the first, they are in
    /// the table.
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    pub async fn cross(
        &self,
        round: u32,
        start: &Head,
        standing: &Standing,
    ) -> Result<(), RunError> {
        let is_each = self.loaded.config.run.matrix == MatrixKind::EachRound;
        for (label, head, weights) in crossed(start, standing) {
            let mut title = EvaluateRow::title(label);
            if is_each {
                title.push_str(&format!(", round {round}"));
                if let Some(id) = weights {
                    title.push_str(&format!(" with {}", short(id)));
                }
            }
            let (row, is_known) = self.cell(round, label, &title, head, weights).await?;
            let mut line = row.outline(&title);
            if is_each && is_known {
                line.push_str(", known before");
            }
            self.line(line);
        }
        Ok(())
    }

    /// Roll the test problems out.
    async fn score(
        &self,
        label: &str,
        title: &str,
        head: &Head,
        adapter: Option<&str>,
    ) -> Result<EvaluateRow, RunError> {
        let policy = self.policy(adapter).await?;
        let rolled = self
            .roll(title, &policy, &head.harness, Split::Test, &self.sealed())
            .await?;
        let trajectories: Vec<&Trajectory> = rolled.iter().flatten().collect();
        let mut exits = BTreeMap::new();
        let mut tokens = 0;
        for trajectory in &trajectories {
            *exits.entry(trajectory.exit.name().to_owned()).or_insert(0) += 1;
            tokens += trajectory.usage.completion_tokens;
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let correct = trajectories.iter().filter(|t| t.verdict.correct).count();
        let undecided = trajectories.iter().filter(|t| t.verdict.undecided).count();
        Ok(EvaluateRow {
            label: label.to_owned(),
            version: head.name(),
            harness: Some(head.harness.id().to_hex()),
            policy: policy.id().to_string(),
            adapter: adapter.map(str::to_owned),
            rate: PassRate::of(count(correct), count(trajectories.len())),
            exits,
            mean_tokens: tokens as f64 / trajectories.len().max(1) as f64,
            undecided: count(undecided),
            left_out: count(rolled.len() - trajectories.len()),
        })
    }
}

/// The cells of a 2×2 that aren't in the table: label, harness, weights.
fn crossed<'a>(
    start: &'a Head,
    standing: &'a Standing,
) -> Vec<(&'static str, &'a Head, Option<&'a str>)> {
    let Standing { head, adapter } = standing;
    if adapter.is_none() || head.harness.id() == start.harness.id() {
        return Vec::new();
    }
    vec![
        ("old_weights_new_harness", head, None),
        ("new_weights_old_harness", start, adapter.as_deref()),
    ]
}
