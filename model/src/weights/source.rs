//! Where a model's weights come from while it is built: from a checkpoint, or from files one by one.

use std::collections::BTreeMap;

use candle_core::{DType, Device};

use super::{StoredWeight, TensorMap, WeightFiles, WeightsError};
use crate::kernels::blocks::BlockScales;

/// Gives weights by their Hugging Face names, each once. It keeps none that it has given: who takes one
/// and packs it may let go of it before the next.
pub(crate) trait WeightSource {
    type Error: From<candle_core::Error>;

    /// The weight of this name; none where the model has none.
    fn take(&mut self, name: &str) -> Result<Option<StoredWeight>, Self::Error>;

    /// The weight of this name.
    fn need(&mut self, name: &str) -> Result<StoredWeight, Self::Error> {
        let missing = || candle_core::Error::Msg(format!("{name} is missing"));
        Ok(self.take(name)?.ok_or_else(missing)?)
    }
}

/// Weights that are in memory.
pub(crate) struct AtHand {
    pub(crate) tensors: TensorMap,
    pub(crate) scales: BTreeMap<String, BlockScales>,
}

impl WeightSource for AtHand {
    type Error = candle_core::Error;

    fn take(&mut self, name: &str) -> candle_core::Result<Option<StoredWeight>> {
        let Some(tensor) = self.tensors.remove(name) else {
            return Ok(None);
        };
        Ok(Some(StoredWeight {
            tensor: tensor.contiguous()?,
            scales: self.scales.remove(name),
        }))
    }
}

/// Weights that are read when they are taken.
pub(crate) struct FromFiles<'a> {
    pub(crate) files: WeightFiles,
    pub(crate) dtype: DType,
    pub(crate) device: &'a Device,
}

impl WeightSource for FromFiles<'_> {
    type Error = WeightsError;

    fn take(&mut self, name: &str) -> Result<Option<StoredWeight>, WeightsError> {
        self.files.weight(name, self.dtype, self.device)
    }
}
