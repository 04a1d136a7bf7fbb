//! Speed, memory and losses of fine-tuning over chat rows, one JSON line:
//! `sft_rate MODEL.gguf ROWS.jsonl [--mode lora|full] [--batch N] [--steps N] [--rank N] [--alpha N]
//! [--lr X] [--adapter DIR] [--arithmetic f32|split_bf16|bf16]`.
//!
//! Each line of the rows is `{"messages": [{"role", "content", "train"?}]}`; assistant messages count
//! unless `train` is false. Batches go in file order, starting over at the end; the rate is constant,
//! gradients are not clipped, weights do not decay. Times leave the first step out; `tokens_per_s`
//! counts the rows' tokens, `computed_tokens` those left after shared prefixes are computed once.

use std::path::{Path, PathBuf};
use std::time::Instant;

use candle_core::{DType, Device};
use model::adapter::{Adapter, AdapterConfig, Projection};
use model::chat_template::ChatTemplate;
use model::kernels::gemm::Arithmetic;
use model::tokenizer::Tokenizer;
use model::transformer::{Targets, Trainable, Transformer};
use model::tree::TokenTree;
use model::weights::{Checkpoint, TensorMap};
use serde_json::{Map, Value, json};
use trainer::Row;
use trainer::conversation::Encoder;
use trainer::full::FullModel;
use trainer::optimizer::{AdamW, AdamWOptions};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    model::memory::keep_freed();
    let arguments: Vec<String> = std::env::args().collect();
    let [_, weights, rows, options @ ..] = arguments.as_slice() else {
        return Err("usage: sft_rate MODEL.gguf ROWS.jsonl [--batch N] [--steps N] …".into());
    };
    let option = |name: &str| {
        let at = options.iter().position(|o| o == name)?;
        options.get(at + 1).map(String::as_str)
    };
    let count = |name, default: usize| option(name).map_or(Ok(default), str::parse);
    let (batch, steps) = (count("--batch", 4)?, count("--steps", 8)?);
    let rate: f64 = option("--lr").map_or(Ok(1e-4), str::parse)?;
    let config = AdapterConfig {
        rank: count("--rank", 16)?,
        alpha: count("--alpha", 32)?,
        rank_stabilised: false,
        targets: Projection::ALL.to_vec(),
    };

    let checkpoint = Checkpoint::load(Path::new(weights), DType::F32, &Device::Cpu)?;
    let metadata = checkpoint
        .metadata
        .as_ref()
        .ok_or("a GGUF file is needed")?;
    let tokenizer = Tokenizer::from_gguf(metadata)?;
    let template = metadata
        .get("tokenizer.chat_template")
        .ok_or("no chat template")?;
    let template = ChatTemplate::new(template.to_string()?)?;
    let arithmetic = match option("--arithmetic") {
        None => Arithmetic::fastest(),
        Some("f32") => Arithmetic::F32,
        Some("split_bf16") => Arithmetic::SplitBf16,
        Some("bf16") => Arithmetic::Bf16,
        Some(other) => return Err(format!("no arithmetic {other}").into()),
    };
    let end = tokenizer.eos_id().ok_or("no end-of-turn token")?;
    let encoder = Encoder {
        tokenizer: &tokenizer,
        template: &template,
        variables: &Map::new(),
        stop_tokens: &[end],
    };
    let rows = std::fs::read_to_string(rows)?
        .lines()
        .enumerate()
        .map(|(index, line)| {
            let row: Value = serde_json::from_str(line)?;
            let messages = row["messages"].as_array().ok_or("a row without messages")?;
            Ok(encoder.encode(&format!("row {}", index + 1), messages, None)?)
        })
        .collect::<Result<Vec<Row>, Failure>>()?;
    let constants = AdamWOptions {
        weight_decay: 0.0,
        ..AdamWOptions::default()
    };
    let mode = option("--mode").unwrap_or("lora");
    let mut trainee = match mode {
        "lora" => {
            let model = Transformer::with_arithmetic(checkpoint, arithmetic)?;
            let adapter = match option("--adapter") {
                Some(directory) => {
                    Adapter::load(&PathBuf::from(directory), &model.config, &Device::Cpu)?
                }
                None => Adapter::fresh(&model.config, config, 0, &Device::Cpu)?,
            };
            Trainee::Lora(model, adapter)
        }
        "full" => Trainee::Full(FullModel::new(checkpoint, arithmetic)),
        other => return Err(format!("no mode {other}").into()),
    };
    let mut optimizer = AdamW::new(constants, &trainee.parameters())?;

    let (mut losses, mut seconds) = (Vec::new(), Vec::new());
    let (mut tokens, mut computed, mut supervised) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..steps {
        let start = Instant::now();
        let batch: Vec<&Row> = (0..batch)
            .map(|index| &rows[(step * batch + index) % rows.len()])
            .collect();
        let sequences: Vec<&[u32]> = batch.iter().map(|row| row.tokens.as_slice()).collect();
        let masks: Vec<Vec<bool>> = batch.iter().map(|row| row.mask.clone()).collect();
        let tree = TokenTree::new(&sequences);
        let targets = Targets::new(&tree, &masks);
        losses.push(trainee.step(&tree, &targets, &mut optimizer, rate)?);
        seconds.push(start.elapsed().as_secs_f64());
        tokens.push(sequences.iter().map(|s| s.len()).sum::<usize>());
        computed.push(tree.len());
        supervised.push(targets.total_weight());
    }
    let wall: f64 = seconds.iter().skip(1).sum();
    let rate_of = |counts: &[usize]| counts.iter().skip(1).sum::<usize>() as f64 / wall;
    let result = json!({
        "mode": mode,
        "arithmetic": format!("{arithmetic:?}"),
        "tokens_per_s": rate_of(&tokens),
        "computed_tokens_per_s": rate_of(&computed),
        "supervised_tokens_per_s": supervised.iter().skip(1).sum::<f64>() / wall,
        "wall_s": wall,
        "step_s": seconds,
        "losses": losses,
        "tokens": tokens.iter().sum::<usize>(),
        "computed_tokens": computed.iter().sum::<usize>(),
        "peak_rss_mib": peak_rss_mib(),
    });
    #[expect(clippy::print_stdout, reason = "the example's result")]
    {
        println!("{result}");
    }
    Ok(())
}

/// What is trained.
enum Trainee {
    Lora(Transformer, Adapter),
    Full(FullModel),
}

impl Trainee {
    fn parameters(&self) -> TensorMap {
        match self {
            Self::Lora(_, adapter) => adapter.tensors(),
            Self::Full(model) => model.weights().clone(),
        }
    }

    /// One step; returns the loss before it.
    fn step(
        &mut self,
        tree: &TokenTree,
        targets: &Targets,
        optimizer: &mut AdamW,
        rate: f64,
    ) -> Result<f64, Failure> {
        match self {
            Self::Lora(model, adapter) => {
                let (loss, gradients) =
                    model.loss_and_gradients(tree, targets, Some(adapter), Trainable::Adapter)?;
                let mut parameters = adapter.tensors();
                optimizer.update(&mut parameters, &gradients, rate)?;
                *adapter =
                    Adapter::from_tensors(&model.config, adapter.config.clone(), parameters)?;
                Ok(loss)
            }
            Self::Full(model) => {
                let (loss, gradients) = model.loss_and_gradients(tree, targets, Trainable::Base)?;
                model.update(optimizer, &gradients, rate)?;
                Ok(loss)
            }
        }
    }
}

/// The largest resident memory so far, MiB, where the system tells.
fn peak_rss_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}
