//! What a training changes: an adapter over weights that stay, or every weight.

use std::fmt;
use std::sync::Arc;

use candle_core::Device;
use model::adapter::{Adapter, AdapterConfig, AdapterError, serialize};
use model::config::ModelConfig;
use model::kernels::gemm::Arithmetic;
use model::transformer::{Gradients, PassOptions, Targets, Trainable, Transformer};
use model::tree::TokenTree;
use model::weights::TensorMap;
use safetensors::View;
use serde::{Deserialize, Serialize};

use crate::checkpoint::Contents;
use crate::full::FullModel;
use crate::optimizer::AdamW;

/// What is trained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// A low-rank adapter; the weights stay as they are.
    Lora(AdapterConfig),
    /// Every weight.
    Full,
}

impl Method {
    /// Checkpoints that stay while the next one is made. Those of an adapter are small: one more
    /// stays, in case that the newest is damaged.
    pub(crate) fn kept_checkpoints(&self) -> usize {
        match self {
            Self::Lora(_) => 2,
            Self::Full => 1,
        }
    }

    /// Whether both train the same parameters, under the same scale.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Lora(one), Self::Lora(other)) => one.is_like(other),
            (Self::Full, Self::Full) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lora(config) => write!(f, "an adapter ({config})"),
            Self::Full => f.write_str("every weight"),
        }
    }
}

impl From<AdapterConfig> for Method {
    fn from(config: AdapterConfig) -> Self {
        Self::Lora(config)
    }
}

/// A model with the parameters that a training changes. They are f32.
#[derive(Debug)]
pub enum Trainee {
    /// An adapter is trained.
    Lora {
        /// The weights that stay.
        model: Arc<Transformer>,
        /// The adapter.
        adapter: Adapter,
    },
    /// Every weight is.
    Full(Box<FullModel>),
}

impl Trainee {
    /// A fresh adapter for `model`, which changes nothing until it is trained.
    ///
    /// # Errors
    /// When a tensor operation fails.
    pub fn fresh(
        model: Arc<Transformer>,
        config: AdapterConfig,
        seed: u64,
    ) -> Result<Self, AdapterError> {
        let adapter = Adapter::fresh(&model.config, config, seed, model.device())?;
        Ok(Self::Lora { model, adapter })
    }

    /// What is trained of it.
    pub fn method(&self) -> Method {
        match self {
            Self::Lora { adapter, .. } => Method::Lora(adapter.config.clone()),
            Self::Full(_) => Method::Full,
        }
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        match self {
            Self::Lora { model, .. } => &model.config,
            Self::Full(full) => full.config(),
        }
    }

    /// Where the parameters are.
    pub fn device(&self) -> &Device {
        match self {
            Self::Lora { model, .. } => model.device(),
            Self::Full(_) => &Device::Cpu,
        }
    }

    /// What gradients are computed for.
    pub fn trainable(&self) -> Trainable {
        match self {
            Self::Lora { .. } => Trainable::Adapter,
            Self::Full(_) => Trainable::Base,
        }
    }

    /// What its products are computed in.
    pub fn arithmetic(&self) -> Arithmetic {
        match self {
            Self::Lora { model, .. } => model.arithmetic(),
            Self::Full(full) => full.arithmetic(),
        }
    }

    /// The parameters under their names in files: PEFT's, or the model's checkpoint's.
    pub fn parameters(&self) -> TensorMap {
        match self {
            Self::Lora { adapter, .. } => adapter.tensors(),
            Self::Full(full) => full.weights().clone(),
        }
    }

    /// Go on with other values of the parameters.
    ///
    /// # Errors
    /// When they don't fit the model.
    pub fn replace(&mut self, parameters: TensorMap) -> Result<(), AdapterError> {
        match self {
            Self::Lora { model, adapter } => {
                let config = adapter.config.clone();
                *adapter = Adapter::from_tensors(&model.config, config, parameters)?;
            }
            Self::Full(full) => full.replace(parameters),
        }
        Ok(())
    }

    /// Loss over `targets` of a tree, and its gradients by the parameters. What `options` say is
    /// trained must be [`Self::trainable`].
    ///
    /// # Errors
    /// When a tensor operation fails, or there is no target.
    pub fn loss_and_gradients(
        &self,
        tree: &TokenTree,
        targets: &Targets,
        options: impl Into<PassOptions>,
    ) -> candle_core::Result<(f64, Gradients)> {
        match self {
            Self::Lora { model, adapter } => {
                model.loss_and_gradients(tree, targets, Some(adapter), options)
            }
            Self::Full(full) => full.loss_and_gradients(tree, targets, options),
        }
    }

    /// Loss over `targets` of a tree, by the forward pass alone.
    ///
    /// # Errors
    /// As [`Self::loss_and_gradients`].
    pub fn loss(&self, tree: &TokenTree, targets: &Targets) -> candle_core::Result<f64> {
        match self {
            Self::Lora { model, adapter } => model.loss(tree, targets, Some(adapter)),
            Self::Full(full) => full.loss(tree, targets),
        }
    }

    /// Take one step of `optimizer` at `rate`.
    ///
    /// # Errors
    /// When a gradient is missing or a tensor operation fails.
    pub fn update(
        &mut self,
        optimizer: &mut AdamW,
        gradients: &Gradients,
        rate: f64,
    ) -> Result<(), AdapterError> {
        if let Self::Full(full) = self {
            return Ok(full.update(optimizer, gradients, rate)?);
        }
        let mut parameters = self.parameters();
        optimizer.update(&mut parameters, gradients, rate)?;
        self.replace(parameters)
    }

    /// The files that hold the parameters: PEFT's two, or the weights as safetensors.
    ///
    /// # Errors
    /// When a tensor can't be read back.
    pub fn files(
        &self,
        base_model: &str,
    ) -> Result<Vec<(&'static str, Contents<'_>)>, AdapterError> {
        Ok(match self {
            Self::Lora { adapter, .. } => {
                let (config, weights) = adapter.to_peft_files(base_model)?;
                vec![
                    ("adapter_config.json", Contents::Bytes(config)),
                    (self.weights_file(), Contents::Bytes(weights)),
                ]
            }
            Self::Full(full) => vec![(self.weights_file(), Contents::Tensors(full.weights()))],
        })
    }

    /// The one of [`Self::files`] that has the parameters.
    pub fn weights_file(&self) -> &'static str {
        match self {
            Self::Lora { .. } => "adapter_model.safetensors",
            Self::Full(_) => "model.safetensors",
        }
    }

    /// A name for the parameters by their values: 16 hexadecimal digits.
    ///
    /// # Errors
    /// When a tensor can't be read back.
    pub fn content_id(&self) -> Result<String, AdapterError> {
        let hash = match self {
            Self::Lora { adapter, .. } => {
                let file = serialize(&adapter.tensors())?;
                blake3::hash(&file).to_hex().to_string()
            }
            Self::Full(full) => content_hash(full.weights()),
        };
        Ok(hash[..16].to_owned())
    }
}

/// Hash of tensors' names, shapes and values, of one after the other.
pub(crate) fn content_hash(tensors: &TensorMap) -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, tensor) in tensors {
        hasher.update(format!("{name} {:?}\n", tensor.dims()).as_bytes());
        hasher.update(&View::data(tensor));
    }
    hasher.finalize().to_hex().to_string()
}
