//! The check before the first step: the loss reaches every parameter that is to be trained.

use candle_core::{DType, Tensor};
use model::adapter::Adapter;
use model::transformer::{Gradients, PassOptions};
use model::weights::TensorMap;

use crate::dataset::{Row, pack};
use crate::train::TrainError;
use crate::trainee::Trainee;

/// One pass on one row: every parameter must get a gradient that is finite and not all zero.
///
/// A fresh adapter's B is zero, which makes A's gradient zero too; so an adapter is checked by a copy
/// with B moved off zero. Blocks are computed twice where training will: the check must not need more
/// memory than a step.
pub(crate) fn self_check(
    trainee: &Trainee,
    rows: &[Row],
    recompute: bool,
) -> Result<(), TrainError> {
    // A target that sees one token alone says nothing of queries and keys: attention over one token
    // is 1 whatever they are.
    let telling = |row: &&Row| row.mask.iter().skip(2).any(|is_target| *is_target);
    let Some(row) = rows.iter().find(telling).or(rows.first()) else {
        return Ok(());
    };
    let (tree, targets) = pack(&[row]);
    let pass = PassOptions {
        recompute,
        ..trainee.trainable().into()
    };
    let (_, gradients) = match trainee {
        Trainee::Lora { model, adapter } => {
            let parameters = off_zero(adapter.tensors())?;
            let probe = Adapter::from_tensors(&model.config, adapter.config.clone(), parameters)?;
            model.loss_and_gradients(&tree, &targets, Some(&probe), pass)?
        }
        Trainee::Full(full) => full.loss_and_gradients(&tree, &targets, pass)?,
    };
    check_gradients(&trainee.parameters(), &gradients)
}

/// An adapter's parameters, every B moved a little.
fn off_zero(mut parameters: TensorMap) -> Result<TensorMap, TrainError> {
    for (name, parameter) in &mut parameters {
        if name.contains("lora_B") {
            let count = parameter.elem_count();
            let nudge: Vec<f32> = (0..count).map(|i| 1e-3 * ((i % 7) as f32 - 3.0)).collect();
            let nudge = Tensor::from_vec(nudge, parameter.shape(), parameter.device())?;
            *parameter = (&*parameter + nudge)?;
        }
    }
    Ok(parameters)
}

fn check_gradients(parameters: &TensorMap, gradients: &Gradients) -> Result<(), TrainError> {
    for name in parameters.keys() {
        let what = match gradients.get(name) {
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
        let name = name.clone();
        return Err(TrainError::NoGradient { name, what });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use candle_core::Device;
    use model::adapter::{AdapterConfig, Projection};
    use model::kernels::gemm::Arithmetic;
    use model::transformer::Transformer;
    use model::weights::Checkpoint as ModelFiles;

    use super::*;
    use crate::full::FullModel;

    fn trainees() -> [Trainee; 2] {
        let directory =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama_tied");
        let load = || ModelFiles::load(&directory, DType::F32, &Device::Cpu).expect("golden model");
        let model = Transformer::new(load()).expect("model");
        let config = AdapterConfig {
            rank: 2,
            alpha: 4,
            rank_stabilised: false,
            targets: vec![Projection::Query, Projection::Down],
        };
        [
            Trainee::fresh(Arc::new(model), config, 0).expect("adapter"),
            Trainee::Full(Box::new(FullModel::new(load(), Arithmetic::F32))),
        ]
    }

    #[test]
    fn the_self_check_names_a_parameter_without_gradient() {
        for trainee in trainees() {
            let row = |mask: [bool; 4]| Row {
                id: "r".into(),
                tokens: vec![5, 6, 7, 8],
                mask: mask.to_vec(),
                weight: 1.0,
                group: None,
            };
            let full = row([false, true, true, true]);
            // With a target after one token alone, queries and keys have a gradient of rounding errors.
            let short = row([false, true, false, false]);
            for (rows, recompute) in [([&full, &short], false), ([&short, &full], true)] {
                let rows = rows.map(Row::clone);
                self_check(&trainee, &rows, recompute).expect("all parameters are reached");
            }
            let parameters = trainee.parameters();
            let mut gradients = Gradients::new();
            for (name, tensor) in &parameters {
                gradients.insert(name.clone(), tensor.ones_like().expect("ones"));
            }
            let name = gradients.keys().next_back().expect("some").clone();
            let lost = gradients.remove(&name).expect("present");
            let error = check_gradients(&parameters, &gradients).expect_err("missing");
            assert!(error.to_string().contains(&name) && error.to_string().contains("no gradient"));
            gradients.insert(name.clone(), lost.zeros_like().expect("zeros"));
            let error = check_gradients(&parameters, &gradients).expect_err("zero");
            assert!(error.to_string().contains("a zero gradient"));
        }
    }
}
