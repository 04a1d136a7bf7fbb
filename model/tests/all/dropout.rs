//! Dropout in the training pass: its gradients against differences of its own loss.

use std::path::Path;

use candle_core::{DType, Device, Tensor};
use model::adapter::Adapter;
use model::dropout::Dropout;
use model::transformer::{Gradients, PassOptions, Targets, Trainable, Transformer};
use model::tree::TokenTree;
use model::weights::{Checkpoint, TensorMap};

struct Case {
    model: Transformer,
    adapter: Adapter,
    tree: TokenTree,
    targets: Targets,
}

impl Case {
    fn new(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../trainer/tests/golden")
            .join(name);
        let files = Checkpoint::load(&directory, DType::F32, &Device::Cpu).expect("golden model");
        let model = Transformer::new(files).expect("model");
        let adapter = Adapter::load(&directory.join("adapter"), &model.config, &Device::Cpu)
            .expect("adapter");
        // Two sequences that begin alike.
        let sequences: Vec<Vec<u32>> = (0..2u32)
            .map(|s| {
                (0..20)
                    .chain((0..12).map(|i| 20 + (i * 13 + s * 5) % 200))
                    .collect()
            })
            .collect();
        let masks = vec![(0..32).map(|at| at > 15).collect::<Vec<bool>>(); 2];
        let tree = TokenTree::new(&sequences);
        let targets = Targets::new(&tree, &masks);
        Self {
            model,
            adapter,
            tree,
            targets,
        }
    }

    fn pass(&self, adapter: &Adapter, options: PassOptions) -> (f64, Gradients) {
        self.model
            .loss_and_gradients(&self.tree, &self.targets, Some(adapter), options)
            .expect("pass")
    }

    fn with(&self, parameters: TensorMap) -> Adapter {
        let config = self.adapter.config.clone();
        Adapter::from_tensors(&self.model.config, config, parameters).expect("adapter")
    }
}

fn options(probability: f64) -> PassOptions {
    PassOptions {
        dropout: Some(Dropout {
            probability,
            seed: 11,
        }),
        ..PassOptions::from(Trainable::Adapter)
    }
}

fn bits(gradients: &Gradients) -> Vec<Vec<f32>> {
    let floats = |t: &Tensor| t.flatten_all().and_then(|t| t.to_vec1::<f32>());
    gradients
        .values()
        .map(|gradient| floats(gradient).expect("floats"))
        .collect()
}

#[test]
fn every_gradient_is_the_slope_of_the_loss_under_the_same_masks() {
    for name in ["llama_tied", "qwen3_untied"] {
        let case = Case::new(name);
        let (_, gradients) = case.pass(&case.adapter, options(0.3));
        for (parameter, gradient) in &gradients {
            let norm = gradient
                .sqr()
                .and_then(|t| t.sum_all()?.to_scalar::<f32>())
                .expect("norm");
            let norm = f64::from(norm).sqrt();
            let step = 1e-2;
            let loss = |sign: f64| {
                let mut parameters = case.adapter.tensors();
                let moved = (gradient * (sign * step / norm))
                    .and_then(|change| &parameters[parameter] + change)
                    .expect("moved");
                parameters.insert(parameter.clone(), moved);
                case.pass(&case.with(parameters), options(0.3)).0
            };
            let slope = (loss(1.0) - loss(-1.0)) / (2.0 * step);
            assert!(
                (slope - norm).abs() < 0.02 * norm,
                "{name} {parameter}: {slope} and {norm}"
            );
        }
    }
}

#[test]
fn blocks_computed_twice_drop_the_same_and_a_share_of_nothing_drops_nothing() {
    let case = Case::new("llama_tied");
    let (loss, gradients) = case.pass(&case.adapter, options(0.3));
    let twice = PassOptions {
        recompute: true,
        ..options(0.3)
    };
    let (again, recomputed) = case.pass(&case.adapter, twice);
    assert_eq!(loss, again);
    assert_eq!(bits(&gradients), bits(&recomputed));

    let plain = case.pass(&case.adapter, Trainable::Adapter.into());
    assert_ne!(loss, plain.0);
    let (kept, whole) = case.pass(&case.adapter, options(0.0));
    assert_eq!(kept, plain.0);
    for (ours, theirs) in bits(&whole).iter().zip(bits(&plain.1)) {
        let largest = theirs.iter().fold(0f32, |most, v| most.max(v.abs()));
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert!((ours - theirs).abs() <= 1e-5 * largest, "{ours} {theirs}");
        }
    }
}
