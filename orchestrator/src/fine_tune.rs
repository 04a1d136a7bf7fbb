//! A round's fine-tuning: from the chosen trajectories to an adapter, or to the reason why not.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rollout::trajectory::Trajectory;
use serde::{Deserialize, Serialize};
use trainer::plan::{MemoryPlan, available_memory};
use trainer::{
    Dataset, Outcome, Progress, StepReport, TrainError, TrainOptions, train, validation,
};

use crate::clock::unix_seconds;
use crate::error::RunError;
use crate::observer::{Notice, Phase};
use crate::report::{TrainRow, ValidationRow, kind};
use crate::stop::StopReason;
use crate::training_rows::{held_out, row_of_messages, rows};
use crate::workshop::Workshop;

/// Share of rows that may be refused before the whole set is.
const MAX_REFUSED_SHARE: f64 = 0.2;

/// Journal entry of a finished fine-tuning: the adapter with what it was trained on.
#[derive(Serialize, Deserialize)]
struct Trained {
    adapter: String,
}

/// What a round trains on.
pub(crate) struct Lesson {
    dataset: Dataset,
    /// Trajectories that are learnt from.
    trajectories: usize,
    /// Problems that are validated on instead.
    held_out: usize,
    /// Rollouts all of them were chosen from.
    gathered: usize,
}

/// What a training took, the part before an interruption not counted.
struct Spent {
    computed_tokens: u64,
    took: Duration,
}

impl Workshop {
    /// What the chosen trajectories teach.
    ///
    /// # Errors
    /// [`RunError::Dataset`] when that is nothing.
    pub(crate) fn lesson(
        &self,
        chosen: &[&Trajectory],
        gathered: usize,
    ) -> Result<Lesson, RunError> {
        let base = self.require_base()?;
        let sft = &self.loaded.config.model_loop.sft;
        let mut usable = Vec::with_capacity(chosen.len());
        for trajectory in chosen {
            let mut found = rows(trajectory, &base.stop_tokens);
            if found.is_empty() {
                found.extend(row_of_messages(base, trajectory)?);
            }
            if !found.is_empty() {
                usable.push((*trajectory, found));
            }
        }
        let lost = chosen.len() - usable.len();
        let problems = usable
            .iter()
            .map(|(trajectory, _)| trajectory.task_hash.as_str());
        let aside = held_out(problems, sft.validation, self.seed().derive("validation"));
        let (mut all, mut validated) = (Vec::new(), BTreeSet::new());
        let mut trajectories = 0;
        for (trajectory, found) in usable {
            if aside.contains(trajectory.task_hash.as_str()) {
                validated.extend(found.iter().map(|row| row.id.clone()));
            } else {
                trajectories += 1;
            }
            all.extend(found);
        }
        if lost > 0 {
            self.notice(Notice::Warning(format!(
                "{lost} of {} trajectories can't be trained on: the chat template changes earlier turns, or \
                 calls are native and the server gives no token ids",
                chosen.len()
            )));
        }
        let dataset = Dataset::new(all, sft.max_tokens, MAX_REFUSED_SHARE)?
            .hold_out(|row| validated.contains(&row.id))?;
        if sft.validation > 0.0 && dataset.validation().is_empty() {
            self.notice(Notice::Warning(
                "too few problems were solved to validate on any; the last adapter is kept".into(),
            ));
        }
        Ok(Lesson {
            dataset,
            trajectories,
            held_out: aside.len(),
            gathered,
        })
    }

    /// Record that a round trains nothing, and why.
    pub(crate) async fn skip_training(
        &self,
        round: u32,
        gathered: usize,
        reason: String,
    ) -> Result<(), RunError> {
        self.line(format!("round {round}: no fine-tuning: {reason}"));
        let row = TrainRow {
            round,
            adapter: None,
            skipped: Some(reason),
            trajectories: 0,
            gathered,
            steps: 0,
            loss: None,
            validation: None,
            tokens: 0,
            computed_tokens: 0,
            wall_s: 0.0,
        };
        let key = self.key(kind::TRAIN, &[&round.to_string()]);
        Ok(self
            .store
            .record_step(&key, kind::TRAIN, round, &row, unix_seconds())
            .await?)
    }

    /// The options with what the machine's memory decides, once it is certain that the largest batch
    /// can be held.
    fn planned(
        &self,
        round: u32,
        mut options: TrainOptions,
        dataset: &Dataset,
    ) -> Result<TrainOptions, RunError> {
        let model = &self.require_base()?.model;
        // A card's memory is not the machine's.
        if !model.device().is_cpu() {
            return Ok(options);
        }
        let plan = MemoryPlan::new(&model.config, model.arithmetic(), dataset, &options);
        let tokens = plan.batch_tokens;
        let available = available_memory().unwrap_or(u64::MAX);
        options.recompute = plan.bytes(false) > available;
        let needed = plan.bytes(options.recompute);
        if needed > available {
            return Err(TrainError::Memory {
                tokens,
                needed_mib: needed >> 20,
                available_mib: available >> 20,
            }
            .into());
        }
        let twice = if options.recompute {
            ", computing blocks twice to save memory"
        } else {
            ""
        };
        let gib = needed as f64 / f64::from(1 << 30);
        self.line(format!(
            "round {round}: fine-tuning needs up to {gib:.1} GiB for batches of up to {tokens} tokens{twice}"
        ));
        Ok(options)
    }

    /// Train, or take the finished training from the journal; returns the adapter's id.
    pub(crate) async fn fine_tune(&self, round: u32, lesson: &Lesson) -> Result<String, RunError> {
        let base = self.require_base()?;
        let dataset = &lesson.dataset;
        for (id, reason) in dataset.refused() {
            self.notice(Notice::Warning(format!(
                "row {id} is left out of training: {reason}"
            )));
        }
        let sft = &self.loaded.config.model_loop.sft;
        let options = sft.options(self.seed().derive("train").derive(round).value());
        let identity = format!("{options:?}");
        let key = self.key(kind::TRAINED, &[&base.id, &dataset.hash(), &identity]);
        if let Some(done) = self.store.step::<Trained>(&key).await? {
            let kept = self.adapter_directory(&done.adapter);
            // A lost or damaged adapter is made again, from the last checkpoint if that is whole.
            if trainer::checkpoint::verify_directory(&kept).is_ok() {
                return Ok(done.adapter);
            }
        }
        let options = self.planned(round, options, dataset)?;
        let (outcome, spent) = self.train_to_the_end(round, lesson, &options)?;
        let (config, weights) = outcome.adapter.to_peft_files(&base.id)?;
        let adapter = blake3::hash(&weights).to_hex()[..16].to_owned();
        let files = [
            ("adapter_config.json", config),
            ("adapter_model.safetensors", weights),
        ];
        trainer::checkpoint::write_directory(&self.adapter_directory(&adapter), &files)
            .map_err(TrainError::from)?;
        let taken = outcome.losses.len();
        let row = TrainRow {
            round,
            adapter: Some(adapter.clone()),
            skipped: None,
            trajectories: lesson.trajectories,
            gathered: lesson.gathered,
            steps: taken,
            loss: outcome
                .losses
                .first()
                .copied()
                .zip(outcome.losses.last().copied()),
            validation: self.validated(round, lesson, &outcome),
            tokens: tokens(dataset, &options, taken),
            computed_tokens: spent.computed_tokens,
            wall_s: spent.took.as_secs_f64(),
        };
        let report_key = self.key(kind::TRAIN, &[&round.to_string()]);
        self.store
            .record_step(&report_key, kind::TRAIN, round, &row, unix_seconds())
            .await?;
        let done = Trained {
            adapter: adapter.clone(),
        };
        self.store
            .record_step(&key, kind::TRAINED, round, &done, unix_seconds())
            .await?;
        Ok(adapter)
    }

    /// Train from the newest checkpoint, telling the observer; an error if a stop comes before the end.
    fn train_to_the_end(
        &self,
        round: u32,
        lesson: &Lesson,
        options: &TrainOptions,
    ) -> Result<(Outcome, Spent), RunError> {
        let base = self.require_base()?;
        let directory = self
            .directory
            .join("training")
            .join(format!("round-{round}"));
        let dataset = &lesson.dataset;
        let order = options.order(dataset);
        self.notice(Notice::Began(Phase {
            title: format!(
                "round {round} · fine-tune on {} trajectories",
                lesson.trajectories
            ),
            total: order.len() as u64,
            unit: "steps",
        }));
        let started = Instant::now();
        let mut computed_tokens = 0;
        let mut is_first = true;
        let mut validated = String::new();
        let report = |step: &StepReport| {
            computed_tokens += step.computed_tokens as u64;
            // The first report after a resume stands for all steps before it as well.
            let by = if is_first { step.step as u64 } else { 1 };
            is_first = false;
            if let Some(loss) = step.validation_loss {
                validated = format!(", validation {loss:.3}");
            }
            self.notice(Notice::Advanced {
                by,
                tokens: step.tokens as u64,
                figure: format!("loss {:.3}{validated}", step.loss),
            });
            if self.stop.reason().is_some() {
                Progress::Stop
            } else {
                Progress::Continue
            }
        };
        // Training keeps every core busy for long; other tasks of the runtime go elsewhere.
        let outcome = tokio::task::block_in_place(|| {
            train(
                &base.model,
                &base.id,
                None,
                dataset,
                options,
                &directory,
                report,
            )
        })?;
        let took = started.elapsed();
        self.notice(Notice::Ended { took });
        for reason in &outcome.skipped_checkpoints {
            self.notice(Notice::Warning(format!("checkpoint not used: {reason}")));
        }
        if !outcome.is_finished {
            let reason = self.stop.reason().unwrap_or(StopReason::Signal);
            return Err(RunError::Stopped { reason });
        }
        let spent = Spent {
            computed_tokens,
            took,
        };
        Ok((outcome, spent))
    }

    /// What validation said in a finished training, told to the observer too.
    fn validated(&self, round: u32, lesson: &Lesson, outcome: &Outcome) -> Option<ValidationRow> {
        let best = validation::best(&outcome.evaluations)?;
        let early = if outcome.is_early {
            "; training ended early"
        } else {
            ""
        };
        self.line(format!(
            "round {round}: validation loss {:.3} after step {} of {} is the smallest; that adapter is kept{early}",
            best.loss,
            best.step,
            outcome.losses.len()
        ));
        Some(ValidationRow {
            problems: lesson.held_out,
            rows: lesson.dataset.validation().len(),
            evaluations: outcome.evaluations.clone(),
            best_step: best.step,
            is_early: outcome.is_early,
        })
    }
}

/// Tokens of the rows of the first `taken` steps.
fn tokens(dataset: &Dataset, options: &TrainOptions, taken: usize) -> u64 {
    options
        .order(dataset)
        .iter()
        .take(taken)
        .flatten()
        .map(|row| dataset.rows()[*row].tokens.len() as u64)
        .sum()
}
