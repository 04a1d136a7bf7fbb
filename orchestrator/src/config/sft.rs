//! The section `model_loop.sft`.

use model::adapter::{AdapterConfig, Projection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trainer::{AdamWOptions, Method, Schedule, TrainOptions};

/// What is trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MethodKind {
    /// A low-rank adapter over the base weights.
    #[default]
    Lora,
    /// Every weight.
    Full,
}

/// The weights that a round's training starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StartKind {
    /// The base model's, in every round; an adapter is a fresh one.
    Base,
    /// Those that the run has accepted last.
    Current,
}

/// Where training runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// This machine's processor, in f32.
    #[default]
    Cpu,
    /// The first CUDA device.
    Cuda,
}

/// Where the activations of blocks are computed twice instead of being kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecomputeKind {
    /// On the CPU where there is too little memory to keep them; nowhere else.
    #[default]
    Auto,
    /// In every step, on every device.
    Always,
}

/// Supervised fine-tuning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SftConfig {
    /// What is trained: `lora`, an adapter, or `full`, every weight.
    pub method: MethodKind,
    /// The weights that a round's training starts from, `base` or `current`; left out, `base` for an
    /// adapter and `current` for every weight.
    pub start: Option<StartKind>,
    /// Where the base weights are trained: `cpu`, or `cuda` in a build with that feature.
    pub device: DeviceKind,
    /// Rank of the adapter.
    pub rank: usize,
    /// Its alpha; the update is scaled by alpha / rank.
    pub alpha: usize,
    /// Whether it is scaled by alpha / √rank instead, which keeps large ranks learning
    /// (Kalajdzievski, arXiv:2312.03732); PEFT's `use_rslora`.
    pub rank_stabilised: bool,
    /// Adapted projections.
    #[schemars(with = "Vec<String>")]
    pub targets: Vec<Projection>,
    /// Passes over the trajectories.
    pub epochs: usize,
    /// Trajectories computed together.
    pub batch: usize,
    /// Batches of one optimizer step: as one batch of so many times the trajectories, to the same
    /// weights but for rounding, in the memory of a small one.
    pub accumulate: usize,
    /// Share of the adapter's inputs that are set to zero in training, against learning by heart.
    pub dropout: f64,
    /// Peak learning rate; left out, 5e-4 for an adapter and 2e-5 for every weight.
    pub learning_rate: Option<f64>,
    /// Share of the steps spent warming up.
    pub warmup_share: f64,
    /// Shape of the rate after warm-up.
    #[schemars(with = "String")]
    pub schedule: Schedule,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Global norm gradients are clipped to.
    pub max_gradient_norm: f64,
    /// Longer rows are left out.
    pub max_tokens: usize,
    /// Share of the rows that may be left out because they are longer, or because nothing in them
    /// counts; where more are, the round trains nothing.
    pub max_refused: f64,
    /// Share of the problems, each with all its trajectories, that are validated on instead of
    /// learnt from: the weights with the smallest loss on them are kept. 0 keeps the last ones.
    pub validation: f64,
    /// Steps between validations; 0 validates after each pass over the trajectories.
    pub validate_every: usize,
    /// Validations without a smaller loss after which training stops; 0 goes on to the end.
    pub patience: usize,
    /// Steps between checkpoints.
    pub checkpoint_steps: usize,
    /// Whether the activations of blocks are computed twice, which takes a third more work and a fraction
    /// of the memory: `auto`, where a training on the CPU has too little of it, or `always`.
    pub recompute: RecomputeKind,
    /// Memory that a training on the CPU may take beyond the loaded model, in MiB; left out, all that
    /// is available when it starts.
    #[schemars(range(min = 1))]
    pub memory_mib: Option<u64>,
}

impl Default for SftConfig {
    fn default() -> Self {
        Self {
            method: MethodKind::Lora,
            start: None,
            device: DeviceKind::Cpu,
            rank: 16,
            alpha: 32,
            rank_stabilised: false,
            targets: Projection::ALL.to_vec(),
            epochs: 3,
            batch: 8,
            accumulate: 1,
            dropout: 0.0,
            learning_rate: None,
            warmup_share: 0.1,
            schedule: Schedule::Cosine,
            weight_decay: 0.0,
            max_gradient_norm: 1.0,
            max_tokens: 4096,
            max_refused: 0.2,
            validation: 0.0,
            validate_every: 0,
            patience: 0,
            checkpoint_steps: 5,
            recompute: RecomputeKind::Auto,
            memory_mib: None,
        }
    }
}

impl SftConfig {
    /// As the trainer takes it.
    pub fn options(&self, seed: u64) -> TrainOptions {
        TrainOptions {
            method: match self.method {
                MethodKind::Lora => Method::Lora(AdapterConfig {
                    rank: self.rank,
                    alpha: self.alpha,
                    rank_stabilised: self.rank_stabilised,
                    targets: self.targets.clone(),
                }),
                MethodKind::Full => Method::Full,
            },
            epochs: self.epochs,
            batch: self.batch,
            accumulate: self.accumulate,
            dropout: self.dropout,
            learning_rate: self.learning_rate(),
            warmup_share: self.warmup_share,
            schedule: self.schedule,
            max_gradient_norm: self.max_gradient_norm,
            optimizer: AdamWOptions {
                weight_decay: self.weight_decay,
                ..AdamWOptions::default()
            },
            seed,
            validate_every: self.validate_every,
            patience: self.patience,
            checkpoint_steps: self.checkpoint_steps,
            // With `auto`, the memory there is decides when the training begins.
            recompute: self.recompute == RecomputeKind::Always,
        }
    }

    /// The peak learning rate.
    pub fn learning_rate(&self) -> f64 {
        self.learning_rate.unwrap_or(match self.method {
            MethodKind::Lora => 5e-4,
            // TRL's default for training every weight.
            MethodKind::Full => 2e-5,
        })
    }

    /// The weights that a round's training starts from.
    pub fn start(&self) -> StartKind {
        self.start.unwrap_or(match self.method {
            MethodKind::Lora => StartKind::Base,
            MethodKind::Full => StartKind::Current,
        })
    }

    /// The field that is out of range, and what would be right.
    ///
    /// # Errors
    /// When there is one.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let counts = [
            self.rank,
            self.alpha,
            self.batch,
            self.accumulate,
            self.epochs,
            self.targets.len(),
        ];
        if counts.contains(&0) {
            return Err((
                "model_loop.sft",
                "rank, alpha, batch, accumulate, epochs and targets must not be zero or empty",
            ));
        }
        if self.max_tokens == 0 {
            return Err((
                "model_loop.sft.max_tokens",
                "must be at least 1: every row has tokens",
            ));
        }
        if self.checkpoint_steps == 0 {
            return Err(("model_loop.sft.checkpoint_steps", "must be at least 1"));
        }
        let plain = Self::default();
        let is_plain = self.rank == plain.rank
            && self.alpha == plain.alpha
            && self.rank_stabilised == plain.rank_stabilised
            && self.targets == plain.targets
            && self.dropout == 0.0;
        if self.method == MethodKind::Full && !is_plain {
            return Err((
                "model_loop.sft",
                "rank, alpha, rank_stabilised, targets and dropout are an adapter's; leave them out where method is full",
            ));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err((
                "model_loop.sft.dropout",
                "must be at least 0 and below 1; 0.05 to 0.1 is usual",
            ));
        }
        let is_rate = self.learning_rate() > 0.0 && self.learning_rate() < 1.0;
        if !is_rate || !(0.0..=1.0).contains(&self.warmup_share) {
            return Err((
                "model_loop.sft",
                "learning_rate must lie between 0 and 1, warmup_share from 0 to 1",
            ));
        }
        if !(self.max_gradient_norm > 0.0 && self.weight_decay >= 0.0) {
            return Err((
                "model_loop.sft",
                "max_gradient_norm must be positive, weight_decay not negative",
            ));
        }
        if !(0.0..=1.0).contains(&self.max_refused) {
            return Err((
                "model_loop.sft.max_refused",
                "must lie between 0 and 1: it is a share of the rows",
            ));
        }
        if !(0.0..=0.5).contains(&self.validation) {
            return Err((
                "model_loop.sft.validation",
                "must lie between 0 and 0.5: what is validated on teaches nothing",
            ));
        }
        if self.validation == 0.0 && (self.patience > 0 || self.validate_every > 0) {
            return Err((
                "model_loop.sft",
                "patience and validate_every need problems to validate on: set validation above 0, to 0.1 for example",
            ));
        }
        if self.memory_mib == Some(0) {
            return Err((
                "model_loop.sft.memory_mib",
                "must be at least 1; left out, a training takes what is available",
            ));
        }
        if self.memory_mib.is_some() && self.device == DeviceKind::Cuda {
            return Err((
                "model_loop.sft.memory_mib",
                "is of this machine's memory, not of a card's; leave it out where device is cuda",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_their_range_and_what_follows_from_validation_needs_it() {
        let refused = |config: SftConfig| config.check().expect_err("refused").0;
        let with = |validation| SftConfig {
            validation,
            ..SftConfig::default()
        };
        assert_eq!(refused(with(0.6)), "model_loop.sft.validation");
        assert_eq!(refused(with(f64::NAN)), "model_loop.sft.validation");
        let lossy = SftConfig {
            max_refused: 1.5,
            ..SftConfig::default()
        };
        assert_eq!(refused(lossy), "model_loop.sft.max_refused");
        let patient = |validation| SftConfig {
            patience: 2,
            ..with(validation)
        };
        assert_eq!(refused(patient(0.0)), "model_loop.sft");
        assert_eq!(patient(0.1).check(), Ok(()));
        let all_dropped = SftConfig {
            dropout: 1.0,
            ..SftConfig::default()
        };
        assert_eq!(refused(all_dropped), "model_loop.sft.dropout");
    }

    #[test]
    fn a_limit_of_memory_is_the_machines_and_leaves_something() {
        let limited = |memory_mib, device| SftConfig {
            memory_mib: Some(memory_mib),
            device,
            ..SftConfig::default()
        };
        assert_eq!(limited(1, DeviceKind::Cpu).check(), Ok(()));
        for (memory_mib, device) in [(0, DeviceKind::Cpu), (4096, DeviceKind::Cuda)] {
            let (field, _) = limited(memory_mib, device).check().expect_err("refused");
            assert_eq!(field, "model_loop.sft.memory_mib");
        }
        // What is trained is the same: neither checkpoints nor the journal may know it.
        let plain = SftConfig::default().options(3);
        assert_eq!(limited(1, DeviceKind::Cpu).options(3), plain);
    }

    #[test]
    fn blocks_are_computed_twice_where_that_is_said() {
        let of = |text: &str| {
            let config: SftConfig = harness::yaml::from_str(text).expect("a configuration");
            config.options(0).recompute
        };
        assert!(!of("{batch: 8}") && !of("{recompute: auto}"));
        assert!(of("{recompute: always}") && of("{recompute: always, device: cuda}"));
    }

    #[test]
    fn a_full_training_has_nothing_of_an_adapters() {
        let full = SftConfig {
            method: MethodKind::Full,
            ..SftConfig::default()
        };
        assert_eq!(full.check(), Ok(()));
        assert_eq!(full.options(0).method, Method::Full);
        let ways: [fn(&mut SftConfig); 5] = [
            |config| config.rank = 8,
            |config| config.alpha = 64,
            |config| config.rank_stabilised = true,
            |config| config.targets = vec![Projection::Query],
            |config| config.dropout = 0.1,
        ];
        for change in ways {
            let mut config = full.clone();
            change(&mut config);
            assert_eq!(config.check().expect_err("refused").0, "model_loop.sft");
            config.method = MethodKind::Lora;
            assert_eq!(config.check(), Ok(()));
        }
    }

    #[test]
    fn an_adapter_is_scaled_by_its_rank_or_by_the_root_of_it() {
        let scale = |text: &str| {
            let config: SftConfig = harness::yaml::from_str(text).expect("a configuration");
            match config.options(0).method {
                Method::Lora(adapter) => adapter.scale(),
                Method::Full => panic!("an adapter is the default"),
            }
        };
        assert_eq!(scale("{rank: 64, alpha: 16}"), 0.25);
        let stabilised = scale("{rank: 64, alpha: 16, rank_stabilised: true}");
        assert_eq!(stabilised, 2.0);
    }

    #[test]
    fn rate_and_start_follow_from_the_method_unless_they_are_said() {
        let of = |method| SftConfig {
            method,
            ..SftConfig::default()
        };
        let (lora, full) = (of(MethodKind::Lora), of(MethodKind::Full));
        assert_eq!((lora.learning_rate(), full.learning_rate()), (5e-4, 2e-5));
        assert_eq!(
            (lora.start(), full.start()),
            (StartKind::Base, StartKind::Current)
        );
        let said = SftConfig {
            learning_rate: Some(1e-3),
            start: Some(StartKind::Base),
            ..full
        };
        assert_eq!(said.options(0).learning_rate, 1e-3);
        assert_eq!(said.start(), StartKind::Base);
    }
}
