//! The check before the first step: the loss reaches every parameter that is to be trained.

use candle_core::{DType, Tensor};
use model::adapter::Adapter;
use model::transformer::{Gradients, Trainable, Transformer};

use crate::dataset::{Row, pack};
use crate::train::TrainError;

/// One pass on one row: every parameter must get a gradient that is finite and not all zero.
///
/// A fresh adapter's B is zero, which makes A's gradient zero too; so the check runs on a copy
/// with B moved off zero.
pub(crate) fn self_check(
    model: &Transformer,
    adapter: &Adapter,
    row: &Row,
) -> Result<(), TrainError> {
    let mut parameters = adapter.tensors();
    for (name, parameter) in &mut parameters {
        if name.contains("lora_B") {
            let count = parameter.elem_count();
            let nudge: Vec<f32> = (0..count).map(|i| 1e-3 * ((i % 7) as f32 - 3.0)).collect();
            let nudge = Tensor::from_vec(nudge, parameter.shape(), parameter.device())?;
            *parameter = (&*parameter + nudge)?;
        }
    }
    let probe = Adapter::from_tensors(&model.config, adapter.config.clone(), parameters)?;
    let (tree, targets) = pack(&[row]);
    let (_, gradients) =
        model.loss_and_gradients(&tree, &targets, Some(&probe), Trainable::Adapter)?;
    check_gradients(&probe, &gradients)
}

fn check_gradients(adapter: &Adapter, gradients: &Gradients) -> Result<(), TrainError> {
    for name in adapter.tensors().into_keys() {
        let what = match gradients.get(&name) {
            None => "no gradient",
            Some(gradient) => {
                let largest = gradient
                    .to_dtype(DType::F32)?
                    .abs()?
                    .max_all()?
                    .to_scalar::<f32>()?;
                if largest == 0.0 {
                    "a zero gradient"
                } else if largest.is_finite() {
                    continue;
                } else {
                    "a gradient that is not finite"
                }
            }
        };
        return Err(TrainError::NoGradient { name, what });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use model::adapter::{AdapterConfig, Projection};
    use model::weights::Checkpoint as ModelFiles;

    fn model() -> Transformer {
        let directory =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama_tied");
        let files = ModelFiles::load(&directory, DType::F32, &Device::Cpu).expect("golden model");
        Transformer::new(files).expect("model")
    }

    #[test]
    fn the_self_check_names_a_parameter_without_gradient() {
        let model = model();
        let config = AdapterConfig {
            rank: 2,
            alpha: 4,
            rank_stabilised: false,
            targets: vec![Projection::Query, Projection::Down],
        };
        let adapter = Adapter::fresh(&model.config, config, 0, &Device::Cpu).expect("adapter");
        let row = Row {
            id: "r".into(),
            tokens: vec![5, 6, 7, 8],
            mask: vec![false, true, true, true],
        };
        self_check(&model, &adapter, &row).expect("all parameters are reached");
        let mut gradients = Gradients::new();
        for (name, tensor) in adapter.tensors() {
            gradients.insert(name, tensor.ones_like().expect("ones"));
        }
        let name = gradients.keys().next_back().expect("some").clone();
        let lost = gradients.remove(&name).expect("present");
        let error = check_gradients(&adapter, &gradients).expect_err("missing");
        assert!(error.to_string().contains(&name) && error.to_string().contains("no gradient"));
        gradients.insert(name.clone(), lost.zeros_like().expect("zeros"));
        let error = check_gradients(&adapter, &gradients).expect_err("zero");
        assert!(error.to_string().contains("a zero gradient"));
    }
}
