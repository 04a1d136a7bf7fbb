//! The model loop: gather verified trajectories under the evolved harness, fine-tune, decide.

use std::sync::Arc;
use std::time::Instant;

use harness::Harness;
use registry::{AdapterId, ModelId, PairingRecord, RunId};
use rollout::policy::Policy;
use rollout::task::Split;
use rollout::trajectory::Trajectory;
use serde::{Deserialize, Serialize};
use trainer::plan::{MemoryPlan, available_memory};
use trainer::{Dataset, Progress, Row, StepReport, TrainError, TrainOptions, train};

use crate::clock::unix_seconds;
use crate::error::RunError;
use crate::gate::decide::Verdict;
use crate::gate::martingale::Discoveries;
use crate::harness_loop::{Head, trailer};
use crate::observer::{Notice, Phase};
use crate::report::{TrainRow, WeightsRow, kind};
use crate::rollouts::{Arm, Trial, draw};
use crate::serving;
use crate::training_rows::{row_of_messages, rows, select};
use crate::workshop::Workshop;

/// Share of rows that may be refused before the whole set is.
const MAX_REFUSED_SHARE: f64 = 0.2;

/// Journal entry of a finished fine-tuning: the adapter with what it was trained on.
#[derive(Serialize, Deserialize)]
struct Trained {
    adapter: String,
}

impl Workshop {
    /// One round's model loop; returns the adapter the next round starts from.
    ///
    /// # Errors
    /// When the run is to stop or a part fails; what was finished is stored.
    pub async fn model_loop(
        &self,
        round: u32,
        head: &Head,
        current: Option<String>,
        discoveries: &mut Discoveries,
    ) -> Result<Option<String>, RunError> {
        let config = &self.loaded.config.model_loop;
        if !config.is_enabled || !serving::trains(&self.loaded.config) {
            self.line(format!("round {round}: the model loop is off"));
            return Ok(current);
        }
        let policy = self.policy(current.as_deref()).await?;
        let trajectories = self.gather(round, head, &policy).await?;
        let chosen = select(&trajectories, config.max_per_task);
        let gathered = trajectories.len();
        if chosen.len() < config.min_trajectories {
            let reason = format!(
                "{} verified trajectories, model_loop.min_trajectories is {}",
                chosen.len(),
                config.min_trajectories
            );
            self.skip_training(round, gathered, reason).await?;
            return Ok(current);
        }
        let (rows, used) = self.rows(&chosen)?;
        let dataset = match Dataset::new(rows, config.sft.max_tokens, MAX_REFUSED_SHARE) {
            Ok(dataset) => dataset,
            // The same trajectories would fail the same way for ever; the round keeps its weights.
            Err(error) => {
                self.skip_training(round, gathered, error.to_string())
                    .await?;
                return Ok(current);
            }
        };
        let candidate = self.fine_tune(round, &dataset, used, gathered).await?;
        let is_accepted = self
            .decide_weights(round, head, policy, &candidate, discoveries)
            .await?;
        Ok(if is_accepted {
            Some(candidate)
        } else {
            current
        })
    }

    /// Rollouts on evolve problems under the evolved harness.
    async fn gather(
        &self,
        round: u32,
        head: &Head,
        policy: &Arc<dyn Policy>,
    ) -> Result<Vec<Trajectory>, RunError> {
        let config = &self.loaded.config.model_loop;
        let seed = self.seed().derive("gather").derive(round);
        let tasks = draw(&self.splits.evolve, config.gather_tasks, seed);
        let trials: Vec<Trial> = (0..config.samples)
            .flat_map(|sample| {
                tasks.iter().map(move |trial| Trial {
                    task: trial.task.clone(),
                    seed: seed
                        .derive(sample)
                        .derive(trial.task.content_hash().as_str())
                        .value(),
                })
            })
            .collect();
        let title = format!("round {round} · gather under {}", head.name());
        let harness = match config.temperature {
            None => Arc::clone(&head.harness),
            Some(temperature) => {
                let mut explorer = Harness::clone(&head.harness);
                explorer.middleware.sampling.temperature = temperature;
                Arc::new(explorer)
            }
        };
        let rolled = self
            .roll(&title, policy, &harness, Split::Evolve, &trials)
            .await?;
        Ok(rolled.into_iter().flatten().collect())
    }

    /// Rows of the chosen trajectories, and how many of these gave any.
    fn rows(&self, chosen: &[&Trajectory]) -> Result<(Vec<Row>, usize), RunError> {
        let base = self.require_base()?;
        let mut all = Vec::new();
        let mut used = 0;
        for trajectory in chosen {
            let mut found = rows(trajectory, &base.stop_tokens);
            if found.is_empty() {
                found.extend(row_of_messages(base, trajectory)?);
            }
            used += usize::from(!found.is_empty());
            all.extend(found);
        }
        if used < chosen.len() {
            let lost = chosen.len() - used;
            self.notice(Notice::Warning(format!(
                "{lost} of {} trajectories can't be trained on: the chat template changes earlier turns, or \
                 calls are native and the server gives no token ids",
                chosen.len()
            )));
        }
        Ok((all, used))
    }

    /// Record that a round trains nothing, and why.
    async fn skip_training(
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
    async fn fine_tune(
        &self,
        round: u32,
        dataset: &Dataset,
        trajectories: usize,
        gathered: usize,
    ) -> Result<String, RunError> {
        let base = self.require_base()?;
        let sft = &self.loaded.config.model_loop.sft;
        for (id, reason) in dataset.refused() {
            self.notice(Notice::Warning(format!(
                "row {id} is left out of training: {reason}"
            )));
        }
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
        let directory = self
            .directory
            .join("training")
            .join(format!("round-{round}"));
        let order = dataset.order(options.batch, options.epochs, options.seed);
        let total = order.len() as u64;
        let tokens = order
            .iter()
            .flatten()
            .map(|row| dataset.rows()[*row].tokens.len() as u64)
            .sum();
        let title = format!("round {round} · fine-tune on {trajectories} trajectories");
        self.notice(Notice::Began(Phase {
            title,
            total,
            unit: "steps",
        }));
        let started = Instant::now();
        let mut computed = 0;
        let mut is_first = true;
        let outcome = {
            let report = |step: &StepReport| {
                computed += step.computed_tokens as u64;
                // The first report after a resume stands for all steps before it as well.
                let by = if is_first { step.step as u64 } else { 1 };
                is_first = false;
                let figure = format!("loss {:.3}", step.loss);
                self.notice(Notice::Advanced {
                    by,
                    tokens: step.tokens as u64,
                    figure,
                });
                if self.stop.reason().is_some() {
                    Progress::Stop
                } else {
                    Progress::Continue
                }
            };
            // Training keeps every core busy for long; other tasks of the runtime go elsewhere.
            tokio::task::block_in_place(|| {
                train(
                    &base.model,
                    &base.id,
                    None,
                    dataset,
                    &options,
                    &directory,
                    report,
                )
            })?
        };
        self.notice(Notice::Ended {
            took: started.elapsed(),
        });
        for reason in &outcome.skipped_checkpoints {
            self.notice(Notice::Warning(format!("checkpoint not used: {reason}")));
        }
        if !outcome.is_finished {
            let reason = self
                .stop
                .reason()
                .unwrap_or(crate::stop::StopReason::Signal);
            return Err(RunError::Stopped { reason });
        }
        let (config, weights) = outcome.adapter.to_peft_files(&base.id)?;
        let adapter = blake3::hash(&weights).to_hex()[..16].to_owned();
        let files = [
            ("adapter_config.json", config),
            ("adapter_model.safetensors", weights),
        ];
        trainer::checkpoint::write_directory(&self.adapter_directory(&adapter), &files)
            .map_err(trainer::TrainError::from)?;
        let row = TrainRow {
            round,
            adapter: Some(adapter.clone()),
            skipped: None,
            trajectories,
            gathered,
            steps: outcome.losses.len(),
            loss: outcome
                .losses
                .first()
                .copied()
                .zip(outcome.losses.last().copied()),
            tokens,
            computed_tokens: computed,
            wall_s: started.elapsed().as_secs_f64(),
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

    /// The gate for weights: both arms under the same harness.
    async fn decide_weights(
        &self,
        round: u32,
        head: &Head,
        incumbent: Arc<dyn Policy>,
        adapter: &str,
        discoveries: &mut Discoveries,
    ) -> Result<bool, RunError> {
        let arm = |policy| Arm {
            policy,
            harness: Arc::clone(&head.harness),
        };
        let (old, new) = (arm(incumbent), arm(self.policy(Some(adapter)).await?));
        let place = format!("round {round} · weights");
        let decisions = self.contest(&place, &old, &[new], discoveries).await?;
        let decision = &decisions[0];
        let is_accepted = decision.verdict == Verdict::Accepted;
        match decision.verdict.objection() {
            Some(objection) => self.line(format!(
                "  rejected weights {adapter} ({objection}); the old ones stay"
            )),
            None => self.line(format!(
                "  accepted weights {adapter} ({})",
                decision.figures()
            )),
        }
        if is_accepted {
            let totals = decision.totals();
            let base = self.require_base()?;
            let record = PairingRecord {
                adapter: AdapterId::new(adapter)?,
                run: RunId::new(self.run_name())?,
                round,
                model: ModelId::new(base.id.as_str())?,
                gate_mode: self.loaded.config.gate.mode.name().to_owned(),
                delta_in: Some(trailer(totals.delta_in)),
                delta_out: Some(trailer(totals.delta_out)),
                unix_seconds: u64::try_from(unix_seconds()).unwrap_or(0),
            };
            self.with_registry(|registry| registry.pair_adapter(&head.version, &record))?;
        }
        let row = WeightsRow {
            round,
            adapter: adapter.to_owned(),
            version: head.name(),
            stages: decision.stages.clone(),
            evidence: decision.evidence.clone(),
            rollouts: decision.rollouts,
            verdict: decision.verdict.clone(),
        };
        let key = self.key(kind::WEIGHTS, &[&round.to_string(), adapter]);
        self.store
            .record_step(&key, kind::WEIGHTS, round, &row, unix_seconds())
            .await?;
        Ok(is_accepted)
    }
}
