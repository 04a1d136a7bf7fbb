//! Speed, memory and losses of fine-tuning, one JSON line:
//! `sft_rate MODEL.gguf ROWS [--mode lora|full] [--batch N] [--steps N] [--rank N] [--alpha N]
//! [--lr X] [--adapter DIR] [--arithmetic f32|split_bf16|bf16] [--products]`.
//!
//! ROWS is a file of chats, each line `{"messages": [{"role", "content", "train"?}]}`, whose assistant
//! messages count unless `train` is false; or `random:N`: rows of N tokens that share nothing, the last
//! quarter of each counting. Batches go in file order, starting over at the end; the rate is constant,
//! gradients are not clipped, weights do not decay. Times leave the first step out; `tokens_per_s`
//! counts the rows' tokens, `computed_tokens` those left after shared prefixes are computed once.
//!
//! `--products` says what share of the machine's rate the steps reach: the multiply-adds that they need
//! ([`trainer::work`] says which are counted) over their time, beside the best rate of the packed
//! product at the shapes that a step has, measured after them in the same process. Where the rest of the
//! time goes: `forward_s` is a forward pass alone, `packing_s` storing changed parameters for products,
//! `update_s` the optimizer's step, `products_s` what the counted products would take at that rate.

#[path = "../../model/examples/rate/mod.rs"]
mod rate;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use candle_core::{DType, Device};
use model::adapter::{Adapter, AdapterConfig, Projection};
use model::chat_template::ChatTemplate;
use model::config::ModelConfig;
use model::kernels::gemm::Arithmetic;
use model::tokenizer::Tokenizer;
use model::transformer::{Targets, Transformer};
use model::tree::TokenTree;
use model::weights::{Metadata, WeightFiles};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};
use trainer::conversation::Encoder;
use trainer::full::FullModel;
use trainer::optimizer::{AdamW, AdamWOptions};
use trainer::work::Work;
use trainer::{Method, Row, Trainee};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    model::memory::keep_freed();
    let arguments: Vec<String> = std::env::args().collect();
    let [_, weights, rows, options @ ..] = arguments.as_slice() else {
        return Err("usage: sft_rate MODEL.gguf ROWS [--batch N] [--steps N] …".into());
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
    let arithmetic = match option("--arithmetic") {
        None => Arithmetic::fastest(),
        Some("f32") => Arithmetic::F32,
        Some("split_bf16") => Arithmetic::SplitBf16,
        Some("bf16") => Arithmetic::Bf16,
        Some(other) => return Err(format!("no arithmetic {other}").into()),
    };

    let files = WeightFiles::open(Path::new(weights))?;
    let rows = match rows.strip_prefix("random:") {
        Some(length) => random_rows(length.parse()?, batch * steps, files.config.vocab_size),
        None => {
            let metadata = files.metadata.as_ref();
            read_rows(rows, metadata.ok_or("a GGUF file is needed")?)?
        }
    };
    let constants = AdamWOptions {
        weight_decay: 0.0,
        ..AdamWOptions::default()
    };
    let mode = option("--mode").unwrap_or("lora");
    let (method, mut trainee) = match mode {
        "lora" => {
            let model = Transformer::read(files, DType::F32, &Device::Cpu, arithmetic)?;
            let model = Arc::new(model);
            let adapter = match option("--adapter") {
                Some(directory) => {
                    Adapter::load(&PathBuf::from(directory), &model.config, &Device::Cpu)?
                }
                None => Adapter::fresh(&model.config, config, 0, &Device::Cpu)?,
            };
            let method = Method::Lora(adapter.config.clone());
            (method, Trainee::Lora { model, adapter })
        }
        "full" => {
            let full = FullModel::new(files.load(DType::F32, &Device::Cpu)?, arithmetic);
            (Method::Full, Trainee::Full(Box::new(full)))
        }
        other => return Err(format!("no mode {other}").into()),
    };
    let mut optimizer = AdamW::new(constants, &trainee.parameters())?;

    let (mut losses, mut seconds, mut updates) = (Vec::new(), Vec::new(), Vec::new());
    let (mut tokens, mut computed, mut supervised) = (Vec::new(), Vec::new(), Vec::new());
    let (mut work, mut last) = (Vec::new(), None);
    for step in 0..steps {
        let start = Instant::now();
        let batch: Vec<&Row> = (0..batch)
            .map(|index| &rows[(step * batch + index) % rows.len()])
            .collect();
        let sequences: Vec<&[u32]> = batch.iter().map(|row| row.tokens.as_slice()).collect();
        let masks: Vec<Vec<bool>> = batch.iter().map(|row| row.mask.clone()).collect();
        let tree = TokenTree::new(&sequences);
        let targets = Targets::new(&tree, &masks);
        let (loss, gradients) = trainee.loss_and_gradients(&tree, &targets, trainee.trainable())?;
        losses.push(loss);
        let update = Instant::now();
        trainee.update(&mut optimizer, &gradients, rate)?;
        updates.push(update.elapsed().as_secs_f64());
        seconds.push(start.elapsed().as_secs_f64());
        tokens.push(sequences.iter().map(|s| s.len()).sum::<usize>());
        computed.push(tree.len());
        supervised.push(targets.total_weight());
        work.push(Work::of(trainee.config(), &method, &tree, &targets));
        last = Some((tree, targets));
    }
    let wall: f64 = seconds.iter().skip(1).sum();
    let rate_of = |counts: &[usize]| counts.iter().skip(1).sum::<usize>() as f64 / wall;
    let mut result = json!({
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
    if let Some((tree, targets)) = last
        && options.iter().any(|option| option == "--products")
    {
        let operations = |work: &Work| 2.0 * work.total() as f64;
        let reached = work.iter().skip(1).map(operations).sum::<f64>() / wall;
        let products = product_rates(trainee.config(), &method, tree.len(), arithmetic);
        let best = products.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        // The first pass packs what the last update has changed.
        let mut passes = [0.0; 2];
        for seconds in &mut passes {
            let start = Instant::now();
            trainee.loss(&tree, &targets)?;
            *seconds = start.elapsed().as_secs_f64();
        }
        let per_step = (steps - 1).max(1) as f64;
        result["products"] = json!({
            "gflop_per_step": work.iter().skip(1).map(operations).sum::<f64>() / 1e9 / per_step,
            "gflop_per_s": reached / 1e9,
            "best_product_gflop_per_s": best / 1e9,
            "share": reached / best,
            "step_s": wall / per_step,
            "forward_s": passes[1],
            "packing_s": passes[0] - passes[1],
            "update_s": updates.iter().skip(1).sum::<f64>() / per_step,
            "products_s": work.iter().skip(1).map(operations).sum::<f64>() / best / per_step,
            "rates": products
                .iter()
                .map(|(shape, rate)| json!({"m_n_k": shape, "gflop_per_s": rate / 1e9}))
                .collect::<Vec<_>>(),
        });
    }
    #[expect(clippy::print_stdout, reason = "the example's result")]
    {
        println!("{result}");
    }
    Ok(())
}

/// Rows that have no prefix in common.
fn random_rows(length: usize, count: usize, vocabulary: usize) -> Vec<Row> {
    let mut random = ChaCha8Rng::seed_from_u64(0);
    (0..count)
        .map(|index| Row {
            id: format!("row {}", index + 1),
            tokens: (0..length)
                .map(|_| random.random_range(0..vocabulary as u32))
                .collect(),
            mask: (0..length).map(|at| at >= length - length / 4).collect(),
            weight: 1.0,
            group: None,
        })
        .collect()
}

/// Chats as the model's template writes them.
fn read_rows(path: &str, metadata: &Metadata) -> Result<Vec<Row>, Failure> {
    let tokenizer = Tokenizer::from_gguf(metadata)?;
    let template = metadata
        .get("tokenizer.chat_template")
        .ok_or("no chat template")?;
    let template = ChatTemplate::new(template.to_string()?)?;
    let end = tokenizer.eos_id().ok_or("no end-of-turn token")?;
    let encoder = Encoder {
        tokenizer: &tokenizer,
        template: &template,
        variables: &Map::new(),
        stop_tokens: &[end],
    };
    std::fs::read_to_string(path)?
        .lines()
        .enumerate()
        .map(|(index, line)| {
            let row: Value = serde_json::from_str(line)?;
            let messages = row["messages"].as_array().ok_or("a row without messages")?;
            Ok(encoder.encode(&format!("row {}", index + 1), messages, None)?)
        })
        .collect()
}

/// Operations a second of the packed product at the shapes of a step on so many tokens: the projections'
/// on the way there and back, and where they are trained for the weights' gradients.
fn product_rates(
    config: &ModelConfig,
    method: &Method,
    tokens: usize,
    arithmetic: Arithmetic,
) -> Vec<([usize; 3], f64)> {
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let query = config.num_attention_heads * config.head_dim;
    let mut shapes = Vec::new();
    for (out, input) in [(query, hidden), (inner, hidden), (hidden, inner)] {
        shapes.push([tokens, out, input]);
        shapes.push([tokens, input, out]);
        if *method == Method::Full {
            shapes.push([out, input, tokens]);
        }
    }
    shapes.sort_unstable();
    shapes.dedup();
    shapes
        .into_iter()
        .map(|shape| (shape, rate::of_product(shape, arithmetic)))
        .collect()
}

/// The largest resident memory so far, MiB, where the system tells.
fn peak_rss_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}
