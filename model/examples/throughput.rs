//! Decoding throughput over chat requests: `throughput MODEL.gguf REQUESTS.jsonl [MAX_NEW] [BATCH]
//! [ARITHMETIC] [ADAPTERS]`.
//!
//! Each line of the requests is `{"messages": [...]}`; every reply has exactly MAX_NEW tokens. With adapters
//! the requests are dealt out to so many fresh ones, of rank 16 on every projection.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use candle_core::{DType, Device};
use model::adapter::{Adapter, AdapterConfig, Projection};
use model::chat_template::ChatTemplate;
use model::decode::{Controls, Engine, EngineOptions, GenerationRequest, Sampling};
use model::kernels::gemm::Arithmetic;
use model::tokenizer::Tokenizer;
use model::transformer::Transformer;
use model::weights::WeightFiles;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    model::memory::keep_freed();
    let arguments: Vec<String> = std::env::args().collect();
    let [_, weights, requests, rest @ ..] = arguments.as_slice() else {
        let usage =
            "usage: throughput MODEL.gguf REQUESTS.jsonl [MAX_NEW] [BATCH] [ARITHMETIC] [ADAPTERS]";
        return Err(usage.into());
    };
    let max_new = rest.first().map_or(Ok(64), |v| v.parse())?;
    let max_batch = rest.get(1).map_or(Ok(64), |v| v.parse())?;
    let arithmetic = match rest.get(2).map(String::as_str) {
        None => Arithmetic::fastest(),
        Some("f32") => Arithmetic::F32,
        Some("split_bf16") => Arithmetic::SplitBf16,
        Some("bf16") => Arithmetic::Bf16,
        Some(other) => return Err(format!("no arithmetic {other}").into()),
    };
    let adapters: u64 = rest.get(3).map_or(Ok(0), |v| v.parse())?;
    let start = Instant::now();
    let files = WeightFiles::open(Path::new(weights))?;
    let metadata = files.metadata.as_ref().ok_or("a GGUF file is needed")?;
    let tokenizer = Arc::new(Tokenizer::from_gguf(metadata)?);
    let template = metadata
        .get("tokenizer.chat_template")
        .ok_or("no chat template")?;
    let template = ChatTemplate::new(template.to_string()?)?;
    let model = Transformer::read(files, DType::F32, &Device::Cpu, arithmetic)?;
    let model = Arc::new(model);
    let loaded = start.elapsed();
    let options = EngineOptions {
        max_batch,
        ..EngineOptions::default()
    };
    let engine = Engine::new(Arc::clone(&model), Arc::clone(&tokenizer), options)?;
    let adapters = (0..adapters)
        .map(|seed| {
            let shape = AdapterConfig {
                rank: 16,
                alpha: 32,
                rank_stabilised: false,
                targets: Projection::ALL.to_vec(),
            };
            let adapter = Adapter::fresh(&model.config, shape, seed, &Device::Cpu)?;
            engine.add_adapter(Arc::new(adapter))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    let (sender, receiver) = channel();
    let mut count = 0usize;
    for line in std::fs::read_to_string(requests)?.lines() {
        let request: serde_json::Value = serde_json::from_str(line)?;
        let messages = request["messages"].as_array().ok_or("no messages")?;
        let variables = serde_json::Map::new();
        let text = template.render(messages, None, true, &variables)?;
        let sender = sender.clone();
        engine.submit(
            GenerationRequest {
                prompt: tokenizer.encode(&text)?,
                adapter: adapters.get(count % adapters.len().max(1)).cloned(),
                max_new,
                sampling: Sampling {
                    temperature: 0.7,
                    ..Sampling::GREEDY
                },
                seed: count as u64,
                stop_tokens: Vec::new(),
                stop_strings: Vec::new(),
            },
            Controls::default(),
            move |result| {
                let _ = sender.send(result);
            },
        );
        count += 1;
    }
    let mut sample = String::new();
    for _ in 0..count {
        sample = receiver.recv()??.text;
    }
    let seconds = start.elapsed().as_secs_f64();
    let stats = engine.stats();
    #[expect(clippy::print_stdout, reason = "the example's result")]
    {
        println!("loaded in {loaded:.1?}; {count} rollouts in {seconds:.2} s");
        println!(
            "{:.2} rollouts/s, {:.0} generated tokens/s, {} of {} prompt tokens cached",
            count as f64 / seconds,
            stats.generated_tokens as f64 / seconds,
            stats.cached_tokens,
            stats.prompt_tokens
        );
        println!("last reply: {sample:?}");
    }
    Ok(())
}
