//! What a training takes of the memory is what its plan says.

use std::process::Command;
use std::sync::Arc;

use candle_core::{Device, Tensor};
use model::adapter::{AdapterConfig, Projection};
use model::config::{Family, ModelConfig, RopeScaling};
use model::kernels::gemm::Arithmetic;
use model::transformer::{Targets, Transformer};
use model::tree::TokenTree;
use model::weights::{Checkpoint, expected_shapes};
use trainer::full::FullModel;
use trainer::plan::MemoryPlan;
use trainer::{Dataset, Method, Progress, Row, TrainOptions, Trainee, train};

/// Names the case in the process of its own.
const CASE: &str = "COHARNESS_TEST_MEMORY_CASE";

/// The plan over the measured peak, at least and at most. It may say a little too much; too little is a
/// run that is killed after an hour.
const BOUNDS: std::ops::RangeInclusive<f64> = 0.95..=1.35;

/// A model that is large enough for its arrays to be most of the process.
fn config() -> ModelConfig {
    ModelConfig {
        family: Family::Llama,
        vocab_size: 8192,
        hidden_size: 256,
        intermediate_size: 768,
        num_hidden_layers: 8,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 64,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        max_position_embeddings: 1024,
        tie_word_embeddings: true,
        eos_token_ids: Vec::new(),
    }
}

fn checkpoint() -> Checkpoint {
    let config = config();
    let tensors = expected_shapes(&config).into_iter().map(|(name, shape)| {
        let tensor = Tensor::randn(0f32, 0.02, shape, &Device::Cpu);
        (name, tensor.expect("weights"))
    });
    let tensors = tensors.collect();
    Checkpoint::of(config, tensors).expect("a model")
}

fn dataset(tokens: u32) -> Dataset {
    let row = |index: u32| Row {
        id: index.to_string(),
        tokens: (0..tokens).map(|at| (977 * index + at) % 8192).collect(),
        mask: (0..tokens).map(|at| at > 0).collect(),
        weight: 1.0,
        group: None,
    };
    Dataset::new((0..8).map(row).collect(), 4096, 0.0).expect("rows")
}

/// A figure of this process, in KiB.
fn figure(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    value.expect("a number")
}

#[test]
#[ignore = "run by the test below, in a process of its own"]
fn in_a_process_of_its_own() {
    model::memory::keep_freed();
    let case = std::env::var(CASE).expect("a case");
    let is = |word: &str| case.contains(word);
    let arithmetic = if is("bf16") {
        Arithmetic::Bf16
    } else {
        Arithmetic::F32
    };
    let adapter = AdapterConfig {
        rank: 16,
        alpha: 32,
        rank_stabilised: false,
        targets: Projection::ALL.to_vec(),
    };
    let method = if is("full") {
        Method::Full
    } else {
        Method::Lora(adapter.clone())
    };
    let options = TrainOptions {
        batch: if is("parts") { 2 } else { 4 },
        accumulate: if is("parts") { 2 } else { 1 },
        checkpoint_steps: 100,
        recompute: is("twice"),
        ..TrainOptions::plain(method)
    };
    let dataset = dataset(if is("long") { 512 } else { 128 });
    let dataset = match is("validated") {
        true => dataset.hold_out(|row| row.id.as_str() < "4").expect("rows"),
        false => dataset,
    };
    // What is there before: the model of a run, which has decoded and so has its weights packed.
    let model = Transformer::with_arithmetic(checkpoint(), arithmetic).expect("model");
    let tree = TokenTree::new(&[[1, 2]]);
    let targets = Targets::new(&tree, &[vec![false, true]]);
    model.loss(&tree, &targets, None).expect("a loss");
    let before = figure("VmRSS:");
    let trainee = if is("full") {
        Trainee::Full(Box::new(FullModel::new(checkpoint(), arithmetic)))
    } else {
        Trainee::fresh(Arc::new(model), adapter, 0).expect("adapter")
    };
    let directory = tempfile::tempdir().expect("directory");
    let report = |_: &trainer::StepReport| Progress::Continue;
    train(trainee, "m", &dataset, &options, directory.path(), report).expect("training");
    let taken = figure("VmHWM:") - before;
    let plan = MemoryPlan::new(&config(), arithmetic, &dataset, &options);
    println!("figures {} {}", plan.bytes(options.recompute) / 1024, taken);
}

#[test]
fn the_plan_agrees_with_the_peak_of_a_training() {
    let mut cases = vec![
        "lora",
        "lora long",
        "lora long twice",
        "lora parts validated",
        "full",
        "full long",
        "full long twice",
        "full parts validated",
    ];
    if Arithmetic::Bf16.is_available() {
        cases.extend(["lora long bf16", "full long bf16"]);
    }
    let program = std::env::current_exe().expect("this program");
    let mut outside = Vec::new();
    for case in cases {
        let output = Command::new(&program)
            .args(["--exact", "memory::in_a_process_of_its_own"])
            .args(["--ignored", "--nocapture", "--test-threads", "1"])
            .env(CASE, case)
            // As `keep_freed` sets it; here threads of the test harness come before that.
            .env("MALLOC_ARENA_MAX", "1")
            .output()
            .expect("a process");
        let text = String::from_utf8_lossy(&output.stdout);
        let figures = text.lines().find_map(|line| line.split_once("figures "));
        let (_, figures) = figures.unwrap_or_else(|| panic!("{case}: {output:?}"));
        let (planned, taken) = figures.split_once(' ').expect("two figures");
        let number = |text: &str| text.trim().parse::<f64>().expect("a number");
        let ratio = number(planned) / number(taken);
        println!("{case}: planned {planned} KiB, taken {taken} KiB, {ratio:.2}");
        if !BOUNDS.contains(&ratio) {
            outside.push(format!("{case}: {ratio:.2}"));
        }
    }
    assert!(outside.is_empty(), "{outside:?}");
}
