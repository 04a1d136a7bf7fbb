//! Whether a training has room, in memory and on the disk: before a run's first rollout as far as it is
//! known then, and before a training's first step.

use std::path::Path;

use nix::sys::statvfs::statvfs;
use trainer::available::available_memory;
use trainer::plan::{DiskPlan, MemoryPlan};
use trainer::{Dataset, Method, TrainError, TrainOptions};

use crate::error::RunError;
use crate::serving;
use crate::workshop::Workshop;

impl Workshop {
    /// Tell what fine-tuning will take of the memory, before a run has done anything. How long its
    /// batches get isn't known yet; where there is no room for the shortest, the rollouts would be for
    /// nothing.
    ///
    /// # Errors
    /// [`TrainError::FixedMemory`] or [`TrainError::Memory`] when no batch can be held.
    pub(crate) async fn foresee_training(&self) -> Result<(), RunError> {
        if !serving::trains(&self.loaded.config) || !self.store.is_untouched().await? {
            return Ok(());
        }
        let model = &self.require_base()?.model;
        // A card's memory is not the machine's.
        if !model.device().is_cpu() {
            return Ok(());
        }
        let sft = &self.loaded.config.model_loop.sft;
        let options = sft.options(0);
        let is_validated = sft.validation > 0.0;
        let plan = MemoryPlan::least(&model.config, model.arithmetic(), &options, is_validated);
        plan.recompute_within(self.memory_to_train())?;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        self.line(format!(
            "{} takes {:.1} GiB of memory, and {:.1} MiB more for each token of a batch ({:.1} with blocks computed twice)",
            work(&options.method),
            gib(plan.fixed_bytes()),
            mib(plan.activations),
            mib(plan.recomputed_activations),
        ));
        Ok(())
    }

    /// The options with what the machine's memory decides, once it is certain that the largest batch
    /// and the checkpoints can be held.
    ///
    /// # Errors
    /// [`RunError::NoRoom`] on the disk, [`TrainError::FixedMemory`] or [`TrainError::Memory`] in memory.
    pub(crate) fn planned(
        &self,
        round: u32,
        mut options: TrainOptions,
        dataset: &Dataset,
    ) -> Result<TrainOptions, RunError> {
        let model = &self.require_base()?.model;
        let disk = DiskPlan::new(&model.config, dataset, &options);
        let there = trainer::checkpoint::bytes_below(&self.training_directory(round))
            .map_err(TrainError::from)?;
        let (to_write, free) = (
            disk.bytes().saturating_sub(there),
            free_bytes(&self.directory),
        );
        if to_write > free {
            return Err(RunError::NoRoom {
                path: self.directory.clone(),
                needed_mib: to_write >> 20,
                free_mib: free >> 20,
            });
        }
        if !model.device().is_cpu() {
            return Ok(options);
        }
        let plan = MemoryPlan::new(&model.config, model.arithmetic(), dataset, &options);
        options.recompute |= plan.recompute_within(self.memory_to_train())?;
        let twice = if options.recompute {
            ", computing blocks twice to save memory"
        } else {
            ""
        };
        let on_disk = match options.method {
            Method::Lora(_) => String::new(),
            Method::Full => format!(" of memory and {:.1} GiB of disk", gib(disk.bytes())),
        };
        self.line(format!(
            "round {round}: {} needs up to {:.1} GiB{on_disk} for batches of up to {} tokens{twice}",
            work(&options.method),
            gib(plan.bytes(options.recompute)),
            plan.batch_tokens,
        ));
        Ok(options)
    }

    /// Bytes that a training may take: what there is, as far as the system tells, and no more than the
    /// configuration allows.
    fn memory_to_train(&self) -> u64 {
        let allowed = self.loaded.config.model_loop.sft.memory_mib;
        let allowed = allowed.map_or(u64::MAX, |mib| mib.saturating_mul(1 << 20));
        available_memory().map_or(allowed, |available| available.min(allowed))
    }
}

/// What a training is called.
fn work(method: &Method) -> &'static str {
    match method {
        Method::Lora(_) => "fine-tuning",
        Method::Full => "fine-tuning every weight",
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Bytes that can be written below a directory; as many as can be asked for where the system doesn't tell.
fn free_bytes(directory: &Path) -> u64 {
    let told = statvfs(directory).map(|disk| disk.blocks_available() * disk.fragment_size());
    told.unwrap_or(u64::MAX)
}
