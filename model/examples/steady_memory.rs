//! Whether the engine's memory stays flat over many rollouts: `steady_memory MODEL [ROLLOUTS]
//! [CACHE_MIB] [ARITHMETIC]`, 10,000 rollouts in 64 MiB by default.
//!
//! Prompts begin alike and go on differently, and replies are sampled: what is computed soon exceeds the
//! room for keys and values by far, and every rollout drives out what others left. Prints resident memory
//! at twenty points, and ends in an error if after the first tenth of the rollouts it has grown by more
//! than 16 MiB. MODEL is a GGUF file or a Hugging Face directory.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use candle_core::{DType, Device};
use model::decode::{Controls, Engine, EngineOptions, GenerationRequest, Sampling};
use model::kernels::gemm::Arithmetic;
use model::tokenizer::Tokenizer;
use model::transformer::Transformer;
use model::weights::WeightFiles;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Tokens that all prompts begin with, and those of a prompt's own.
const SHARED: usize = 32;
const OWN: usize = 20;
const MAX_NEW: usize = 4;
/// Growth after the first tenth, KiB.
const MOST_GROWTH: u64 = 16 << 10;
const POINTS: usize = 20;

#[expect(clippy::print_stdout, reason = "the example's result")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    model::memory::keep_freed();
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, rest @ ..] = arguments.as_slice() else {
        return Err("usage: steady_memory MODEL [ROLLOUTS] [CACHE_MIB] [ARITHMETIC]".into());
    };
    let path = Path::new(path);
    let rollouts: usize = rest.first().map_or(Ok(10_000), |v| v.parse())?;
    let cache_mib: usize = rest.get(1).map_or(Ok(64), |v| v.parse())?;
    let arithmetic = match rest.get(2).map(String::as_str) {
        None => Arithmetic::fastest(),
        Some("f32") => Arithmetic::F32,
        Some("split_bf16") => Arithmetic::SplitBf16,
        Some("bf16") => Arithmetic::Bf16,
        Some(other) => return Err(format!("no arithmetic {other}").into()),
    };
    let files = WeightFiles::open(path)?;
    let tokenizer = match &files.metadata {
        Some(metadata) => Tokenizer::from_gguf(metadata)?,
        None => Tokenizer::from_file(&path.join("tokenizer.json"))?,
    };
    let config = files.config.clone();
    let model = Transformer::read(files, DType::F32, &Device::Cpu, arithmetic)?;
    let model = Arc::new(model);
    let options = EngineOptions {
        cache_mib,
        ..EngineOptions::default()
    };
    let engine = Engine::new(model, Arc::new(tokenizer), options)?;

    let vocabulary = u32::try_from(config.vocab_size)?;
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let mut draw = |count: usize| -> Vec<u32> {
        (0..count)
            .map(|_| random.random_range(0..vocabulary))
            .collect()
    };
    let shared = draw(SHARED);
    let (sender, receiver) = channel();
    let mut submit = |seed: usize| {
        let sender = sender.clone();
        let request = GenerationRequest {
            prompt: [shared.clone(), draw(OWN)].concat(),
            adapter: None,
            max_new: MAX_NEW,
            sampling: Sampling {
                temperature: 1.0,
                ..Sampling::GREEDY
            },
            seed: seed as u64,
            stop_tokens: Vec::new(),
            stop_strings: Vec::new(),
        };
        engine.submit(request, Controls::default(), move |result| {
            let _ = sender.send(result.map(drop));
        });
    };
    // Some wait, so that the engine always has a full batch, but not all: they take memory too.
    let ahead = rollouts.min(2 * options.max_batch);
    (0..ahead).for_each(&mut submit);
    let start = Instant::now();
    let (mut warm, mut most) = (None, 0);
    for done in 1..=rollouts {
        receiver.recv()??;
        if ahead + done <= rollouts {
            submit(ahead + done - 1);
        }
        let resident = match done.is_multiple_of((rollouts / POINTS).max(1)) {
            true => resident_kib().ok_or("the system doesn't tell the process's memory")?,
            false => continue,
        };
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{done:>7} rollouts {seconds:>8.1} s {:>8.1} MiB",
            resident as f64 / 1024.0
        );
        if done * 10 >= rollouts {
            let warm = *warm.get_or_insert(resident);
            most = most.max(resident.saturating_sub(warm));
        }
    }
    let bytes_of_token =
        config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim * 4;
    let computed = engine.stats().prompt_tokens - engine.stats().cached_tokens
        + engine.stats().generated_tokens;
    println!(
        "{computed} tokens went through room for {}; {:.1} MiB grown after the first tenth",
        (cache_mib << 20) / bytes_of_token,
        most as f64 / 1024.0
    );
    if most > MOST_GROWTH {
        return Err(format!("grown by {most} KiB, more than {MOST_GROWTH}").into());
    }
    Ok(())
}

/// Resident memory now, KiB, where the system tells.
fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
