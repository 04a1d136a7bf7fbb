//! A round's fine-tuning: from the chosen trajectories to trained weights, or to the reason why not.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use candle_core::{DType, Device};
use model::weights::Checkpoint;
use rollout::trajectory::Trajectory;
use serde::{Deserialize, Serialize};
use trainer::full::FullModel;
use trainer::{
    Dataset, Method, Outcome, Progress, Row, StepReport, TrainOptions, Trainee, train, validation,
};

use crate::clock::unix_seconds;
use crate::config::StartKind;
use crate::counted::counted;
use crate::error::RunError;
use crate::left_out::LeftOut;
use crate::observer::{Notice, Phase};
use crate::report::{SelectionRow, TrainRow, ValidationRow, kind};
use crate::selection::Chosen;
use crate::stop::StopReason;
use crate::trained_weights::{self, TrainedWeights};
use crate::training_rows::{Found, found, held_out};
use crate::workshop::Workshop;

/// Journal entry of a finished fine-tuning.
#[derive(Serialize, Deserialize)]
struct Trained {
    /// Id of what came out, an adapter or a full set of weights.
    adapter: String,
}

/// A trajectory with its rows.
pub(crate) type Usable<'a> = (&'a Trajectory, Vec<Row>);

/// What a round trains on.
pub(crate) struct Lesson {
    pub(crate) dataset: Dataset,
    /// Trajectories that are learnt from.
    trajectories: usize,
    /// Problems that are validated on instead.
    held_out: usize,
    /// How all of them were chosen.
    selection: SelectionRow,
}

/// What a training took, the part before an interruption not counted.
struct Spent {
    computed_tokens: u64,
    took: Duration,
}

impl Workshop {
    /// The rows of the chosen trajectories that have some, and what of them all isn't learnt from.
    ///
    /// # Errors
    /// When the model's template or tokenizer fails.
    pub(crate) fn usable<'a>(
        &self,
        chosen: &'a [Chosen],
    ) -> Result<(Vec<Usable<'a>>, LeftOut), RunError> {
        let base = self.require_base()?;
        let sft = &self.loaded.config.model_loop.sft;
        let mut left_out = LeftOut::default();
        let mut usable = Vec::with_capacity(chosen.len());
        for Chosen { trajectory, weight } in chosen {
            let Found {
                mut rows,
                left_out: reasons,
                endless,
            } = found(base, trajectory)?;
            for reason in reasons {
                left_out.add(reason, trajectory.id.as_str());
            }
            for row in &mut rows {
                row.weight = *weight;
                // Rollouts of one problem begin alike.
                row.group = Some(trajectory.task_hash.as_str().to_owned());
                match row.refusal(sft.max_tokens) {
                    Some(reason) => left_out.add(reason.into(), &row.id),
                    None => {
                        left_out.kept += 1;
                        left_out.endless += usize::from(endless.contains(&row.id));
                    }
                }
            }
            if !rows.is_empty() {
                usable.push((trajectory, rows));
            }
        }
        Ok((usable, left_out))
    }

    /// What these teach.
    ///
    /// # Errors
    /// [`RunError::Dataset`] when there is nothing to learn, or too much would be left out.
    pub(crate) fn lesson(
        &self,
        usable: Vec<Usable<'_>>,
        selection: SelectionRow,
    ) -> Result<Lesson, RunError> {
        let sft = &self.loaded.config.model_loop.sft;
        let problems = usable
            .iter()
            .map(|(trajectory, _)| trajectory.task_hash.as_str());
        let aside = held_out(problems, sft.validation, self.seed().derive("validation"));
        let (mut all, mut validated) = (Vec::new(), BTreeSet::new());
        let mut trajectories = 0;
        for (trajectory, rows) in usable {
            if aside.contains(trajectory.task_hash.as_str()) {
                validated.extend(rows.iter().map(|row| row.id.clone()));
            } else if rows.iter().any(|row| row.refusal(sft.max_tokens).is_none()) {
                trajectories += 1;
            }
            all.extend(rows);
        }
        let dataset = Dataset::new(all, sft.max_tokens, sft.max_refused)?
            .hold_out(|row| validated.contains(&row.id))?;
        if sft.validation > 0.0 && dataset.validation().is_empty() {
            self.notice(Notice::Warning(
                "too few problems were solved to validate on any; the last weights are kept".into(),
            ));
        }
        Ok(Lesson {
            dataset,
            trajectories,
            held_out: aside.len(),
            selection,
        })
    }

    /// Whether a round's training has come to weights: in a run that an earlier version began, of rows too that
    /// would be refused now.
    pub(crate) async fn has_trained(&self, round: u32) -> Result<bool, RunError> {
        let key = self.key(kind::TRAIN, &[&round.to_string()]);
        let row: Option<TrainRow> = self.store.step(&key).await?;
        Ok(row.is_some_and(|row| row.adapter.is_some()))
    }

    /// Record that a round trains nothing, and why.
    pub(crate) async fn skip_training(
        &self,
        round: u32,
        selection: SelectionRow,
        reason: String,
    ) -> Result<(), RunError> {
        self.line(format!("round {round}: no fine-tuning: {reason}"));
        let row = TrainRow {
            round,
            adapter: None,
            skipped: Some(reason),
            trajectories: 0,
            gathered: selection.gathered,
            selection: Some(selection),
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

    /// Where a round's training keeps its checkpoints.
    pub(crate) fn training_directory(&self, round: u32) -> PathBuf {
        self.directory
            .join("training")
            .join(format!("round-{round}"))
    }

    /// What is trained, as the training starts: from the weights `start`, or from the base model.
    fn trainee(&self, options: &TrainOptions, start: Option<&str>) -> Result<Trainee, RunError> {
        let base = self.require_base()?;
        let start = start.map(|id| self.weights(id).map(|weights| (id, weights)));
        let tensors = match (&options.method, start.transpose()?) {
            (Method::Lora(config), None) => {
                let model = Arc::clone(&base.model);
                return Ok(Trainee::fresh(model, config.clone(), options.seed)?);
            }
            (Method::Lora(_), Some((_, TrainedWeights::Adapter(adapter)))) => {
                let model = Arc::clone(&base.model);
                return Ok(Trainee::Lora { model, adapter });
            }
            (Method::Full, None) => Checkpoint::load(&base.path, DType::F32, &Device::Cpu)?.tensors,
            (Method::Full, Some((_, TrainedWeights::Full(tensors)))) => tensors,
            (_, Some((id, _))) => {
                return Err(RunError::ModelPart {
                    path: self.weights_directory(id),
                    reason: "these weights were trained by another model_loop.sft.method".into(),
                });
            }
        };
        let checkpoint = Checkpoint::of(base.model.config.clone(), tensors)?;
        let full = FullModel::new(checkpoint, base.model.arithmetic());
        Ok(Trainee::Full(Box::new(full)))
    }

    /// Train, or take the finished training from the journal; returns the id of what came out. `current`
    /// are the weights that the run stands on.
    pub(crate) async fn fine_tune(
        &self,
        round: u32,
        lesson: &Lesson,
        current: Option<&str>,
    ) -> Result<String, RunError> {
        let base = self.require_base()?;
        let dataset = &lesson.dataset;
        let sft = &self.loaded.config.model_loop.sft;
        let options = sft.options(self.seed().derive("train").derive(round).value());
        let start = current.filter(|_| sft.start() == StartKind::Current);
        // What is computed twice changes no weights.
        let identity = TrainOptions {
            recompute: false,
            ..options.clone()
        };
        let (identity, hash) = (format!("{identity:?}"), dataset.hash());
        let mut parts = vec![base.id.as_str(), &hash, &identity];
        parts.extend(start);
        let key = self.key(kind::TRAINED, &parts);
        if let Some(done) = self.store.step::<Trained>(&key).await? {
            let kept = self.weights_directory(&done.adapter);
            // What was lost or damaged is made again, from the last checkpoint if that is whole; what was
            // turned down isn't needed again.
            let is_whole = trainer::checkpoint::verify_directory(&kept).is_ok();
            if is_whole || self.is_dropped(round, &done.adapter).await? {
                self.clear_checkpoints(round, &options)?;
                return Ok(done.adapter);
            }
        }
        // A training takes every core for long. A rollout in flight beside it could run out of its time, and
        // the decision on the weights may ask for that one.
        self.ahead.lock().await.finish().await?;
        let options = self.planned(round, options, dataset)?;
        let (outcome, spent) = self.train_to_the_end(round, lesson, &options, start)?;
        let adapter = trained_weights::keep(&outcome.trainee, &base.id, &self.directory)?;
        let taken = outcome.losses.len();
        let row = TrainRow {
            round,
            adapter: Some(adapter.clone()),
            skipped: None,
            trajectories: lesson.trajectories,
            gathered: lesson.selection.gathered,
            selection: Some(lesson.selection),
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
        self.clear_checkpoints(round, &options)?;
        Ok(adapter)
    }

    /// Let go of a finished training's checkpoints, where they are large: those of every weight.
    fn clear_checkpoints(&self, round: u32, options: &TrainOptions) -> Result<(), RunError> {
        let path = self.training_directory(round);
        if options.method != Method::Full || !path.exists() {
            return Ok(());
        }
        std::fs::remove_dir_all(&path).map_err(|source| RunError::Io { path, source })
    }

    /// Train from the newest checkpoint, telling the observer; an error if a stop comes before the end.
    fn train_to_the_end(
        &self,
        round: u32,
        lesson: &Lesson,
        options: &TrainOptions,
        start: Option<&str>,
    ) -> Result<(Outcome, Spent), RunError> {
        let base = self.require_base()?;
        let trainee = self.trainee(options, start)?;
        let directory = self.training_directory(round);
        let dataset = &lesson.dataset;
        let order = options.order(dataset);
        self.notice(Notice::Began(Phase {
            title: format!(
                "round {round} · fine-tune on {}",
                counted(lesson.trajectories, "trajectory")
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
                tokens: Some(step.tokens as u64),
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
            train(trainee, &base.id, dataset, options, &directory, report)
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
            "round {round}: validation loss {:.3} after step {} of {} is the smallest; those weights are kept{early}",
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
