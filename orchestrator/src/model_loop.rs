//! The model loop: gather verified trajectories under the evolved harness, fine-tune, decide.

use std::sync::Arc;

use harness::Harness;
use registry::{AdapterId, ModelId, PairingRecord, RunId};
use rollout::policy::Policy;
use rollout::task::Split;

use crate::clock::unix_seconds;
use crate::config::MethodKind;
use crate::error::RunError;
use crate::gate::decide::Verdict;
use crate::gate::decision::Decision;
use crate::gate::martingale::Discoveries;
use crate::harness_loop::{Head, trailer};
use crate::report::{SelectionRow, WeightsRow, kind};
use crate::rollouts::{Arm, Trial, draw};
use crate::selection::{Chosen, Selector};
use crate::serving;
use crate::trained_weights::Dropped;
use crate::workshop::{Workshop, local_id};

impl Workshop {
    /// One round's model loop; returns the weights the next round starts from.
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
        let (mut chosen, mut counts) = self.gather(round, head, &policy).await?;
        self.record_choice(round, &chosen).await?;
        self.line(format!(
            "round {round}: {}",
            counts.told(config.max_per_task)
        ));
        if chosen.len() < config.min_trajectories {
            let reason = format!(
                "only {} to learn from, model_loop.min_trajectories is {}",
                chosen.len(),
                config.min_trajectories
            );
            self.skip_training(round, counts, reason).await?;
            return Ok(current);
        }
        let replayed = self.replayed(round, &chosen).await?;
        counts.replayed = replayed.len();
        chosen.extend(replayed);
        if counts.replayed > 0 {
            self.line(format!(
                "round {round}: {} of earlier rounds are learnt from again",
                counts.replayed
            ));
        }
        let (usable, left_out) = self.usable(&chosen)?;
        self.record_left_out(round, &left_out).await?;
        let lesson = match self.lesson(usable, counts) {
            // The same trajectories would fail the same way for ever; the round keeps its weights.
            Err(RunError::Dataset(error)) => {
                self.skip_training(round, counts, error.to_string()).await?;
                return Ok(current);
            }
            lesson => lesson?,
        };
        let stop_tokens = &self.require_base()?.stop_tokens;
        if let Err(error) = lesson.dataset.check_ends(stop_tokens)
            && !self.has_trained(round).await?
        {
            let reason = error.to_string();
            self.skip_training(round, counts, reason).await?;
            return Ok(current);
        }
        let candidate = self.fine_tune(round, &lesson, current.as_deref()).await?;
        let is_accepted = self
            .decide_weights(round, head, policy, &candidate, discoveries)
            .await?;
        Ok(if is_accepted {
            Some(candidate)
        } else {
            current
        })
    }

    /// Rollouts on evolve problems under the evolved harness, and which of them to learn from. A problem
    /// that has given enough is not rolled out again.
    async fn gather(
        &self,
        round: u32,
        head: &Head,
        policy: &Arc<dyn Policy>,
    ) -> Result<(Vec<Chosen>, SelectionRow), RunError> {
        let config = &self.loaded.config.model_loop;
        let seed = self.seed().derive("gather").derive(round);
        let tasks = draw(&self.splits.evolve, config.gather_tasks, seed);
        let harness = match config.temperature {
            None => Arc::clone(&head.harness),
            Some(temperature) => {
                let mut explorer = Harness::clone(&head.harness);
                explorer.middleware.sampling.temperature = temperature;
                Arc::new(explorer)
            }
        };
        let mut selector = Selector::new(config, &harness);
        for sample in 0..config.samples {
            let wanted = tasks.iter().map(|trial| &trial.task);
            let wanted = wanted.filter(|task| selector.wants(&task.content_hash()));
            let sampled = seed.derive(sample);
            let trials: Vec<Trial> = wanted
                .map(|task| Trial {
                    task: task.clone(),
                    seed: sampled.derive(task.content_hash().as_str()).value(),
                })
                .collect();
            if trials.is_empty() {
                break;
            }
            let mut title = format!("round {round} · gather under {}", head.name());
            if config.samples > 1 {
                title.push_str(&format!(", sample {}", sample + 1));
            }
            let rolled = self
                .roll(&title, policy, &harness, Split::Evolve, &trials)
                .await?;
            for trajectory in rolled.into_iter().flatten() {
                selector.offer(trajectory);
            }
        }
        Ok(selector.finish())
    }

    /// The gate for weights: both arms under the same harness. If too few of their pairs could be made, that
    /// says nothing about them, and they are measured once more with other seeds. What can't be measured then
    /// either, while other rollouts succeed, is like what is rejected, as it is for patches.
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
        let (old, new) = (arm(incumbent), arm(self.candidate(round, adapter).await?));
        let arms = [new];
        let mut is_again = false;
        loop {
            let more = if is_again { ", once more" } else { "" };
            let place = format!("round {round} · weights{more}");
            let decisions = self
                .contest(&place, &old, &arms, discoveries, is_again)
                .await?;
            let decision = &decisions[0];
            let key = self.decision_key(round, adapter, is_again);
            let known: Option<WeightsRow> = self.store.step(&key).await?;
            // Where an earlier version left it at that, full sets of weights are gone.
            let is_left = known.is_some_and(|row| !row.is_open);
            let is_open = decision.is_unmeasured && !is_again && !is_left;
            self.conclude_weights(round, head, adapter, decision, is_open)?;
            let row = WeightsRow {
                round,
                adapter: adapter.to_owned(),
                version: head.name(),
                stages: decision.stages.clone(),
                evidence: decision.evidence.clone(),
                rollouts: decision.rollouts,
                verdict: decision.verdict.clone(),
                spending: decision.spending(),
                is_open,
            };
            self.store
                .record_step(&key, kind::WEIGHTS, round, &row, unix_seconds())
                .await?;
            if !is_open {
                let is_accepted = decision.verdict == Verdict::Accepted;
                if !is_accepted {
                    self.drop_full_weights(adapter)?;
                }
                return Ok(is_accepted);
            }
            is_again = true;
        }
    }

    /// Tell of a decision on weights, and pair those that are accepted with the harness.
    fn conclude_weights(
        &self,
        round: u32,
        head: &Head,
        adapter: &str,
        decision: &Decision,
        is_open: bool,
    ) -> Result<(), RunError> {
        match decision.verdict.objection() {
            Some(objection) if is_open => self.line(format!(
                "  weights {adapter} couldn't be measured ({objection}); they are measured once more"
            )),
            Some(objection) => self.line(format!(
                "  rejected weights {adapter} ({objection}); the old ones stay"
            )),
            None => self.line(format!(
                "  accepted weights {adapter} ({})",
                decision.figures()
            )),
        }
        if decision.verdict == Verdict::Accepted {
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
        Ok(())
    }

    /// Key of a decision on weights; `is_again` of their second one.
    fn decision_key(&self, round: u32, weights: &str, is_again: bool) -> String {
        let round = round.to_string();
        let parts = [round.as_str(), weights, "again"];
        let count = if is_again { 3 } else { 2 };
        self.key(kind::WEIGHTS, &parts[..count])
    }

    /// The policy under weights that are to be decided on, or were.
    async fn candidate(&self, round: u32, weights: &str) -> Result<Arc<dyn Policy>, RunError> {
        if self.is_dropped(round, weights).await? {
            let id = local_id(self.require_base()?, Some(weights));
            return Ok(Arc::new(Dropped { id }));
        }
        self.policy(Some(weights)).await
    }

    /// Whether weights are gone because they were turned down, as full sets are: a run that starts again
    /// finds in the journal what they said.
    pub(crate) async fn is_dropped(&self, round: u32, weights: &str) -> Result<bool, RunError> {
        let is_full = self.loaded.config.model_loop.sft.method == MethodKind::Full;
        if !is_full || self.weights_directory(weights).exists() {
            return Ok(false);
        }
        let mut last = None;
        for is_again in [false, true] {
            let key = self.decision_key(round, weights, is_again);
            last = self.store.step::<WeightsRow>(&key).await?.or(last);
        }
        Ok(last.is_some_and(|row| row.verdict != Verdict::Accepted && !row.is_open))
    }
}
