//! What loading a model takes of the memory: what it takes afterwards, and little more.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;
use std::process::Command;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use model::config::{Family, ModelConfig, RopeScaling};
use model::kernels::gemm::Arithmetic;
use model::transformer::Transformer;
use model::weights::{WeightFiles, expected_shapes};
use serde_json::json;

/// Names the model in the process of its own.
const MODEL: &str = "COHARNESS_TEST_LOADED_MODEL";

/// A model whose weights are 50 million numbers, 200 MB in f32.
fn config() -> ModelConfig {
    ModelConfig {
        family: Family::Llama,
        vocab_size: 1024,
        hidden_size: 512,
        intermediate_size: 1536,
        num_hidden_layers: 16,
        num_attention_heads: 8,
        num_key_value_heads: 4,
        head_dim: 64,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        max_position_embeddings: 1024,
        tie_word_embeddings: true,
        eos_token_ids: Vec::new(),
    }
}

/// Weights of every shape that the model has; layers share theirs.
fn by_shape() -> BTreeMap<Vec<usize>, Tensor> {
    let shapes = expected_shapes(&config()).into_values();
    let weights = shapes.map(|shape| {
        let weight = Tensor::randn(0f32, 0.02, shape.as_slice(), &Device::Cpu);
        (shape, weight.expect("weights"))
    });
    weights.collect()
}

/// GGUF's name of a weight.
fn gguf_name(name: &str) -> String {
    let parts = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("model.layers", "blk"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    let renamed = parts.iter();
    renamed.fold(name.to_owned(), |name, (from, to)| name.replace(*from, to))
}

/// The model as a GGUF file in four bits.
fn write_gguf(path: &Path) {
    let config = config();
    let text = |text: &str| Value::String(text.to_owned());
    let number = |number: usize| Value::U32(number as u32);
    let metadata = [
        ("general.architecture", text("llama")),
        (
            "llama.context_length",
            number(config.max_position_embeddings),
        ),
        ("llama.embedding_length", number(config.hidden_size)),
        ("llama.block_count", number(config.num_hidden_layers)),
        (
            "llama.feed_forward_length",
            number(config.intermediate_size),
        ),
        (
            "llama.attention.head_count",
            number(config.num_attention_heads),
        ),
        (
            "llama.attention.head_count_kv",
            number(config.num_key_value_heads),
        ),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
    ];
    let quantised = by_shape().into_iter().map(|(shape, weight)| {
        let kind = match shape.len() {
            1 => GgmlDType::F32,
            _ => GgmlDType::Q4_0,
        };
        let weight = QTensor::quantize(&weight, kind).expect("quantised");
        (shape, weight)
    });
    let quantised: BTreeMap<Vec<usize>, QTensor> = quantised.collect();
    let shapes = expected_shapes(&config).into_iter();
    let named: Vec<(String, &QTensor)> = shapes
        .map(|(name, shape)| (gguf_name(&name), &quantised[&shape]))
        .collect();
    let tensors: Vec<(&str, &QTensor)> = named.iter().map(|(n, t)| (n.as_str(), *t)).collect();
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(k, v)| (*k, v)).collect();
    let mut file = File::create(path).expect("file");
    gguf_file::write(&mut file, &metadata, &tensors).expect("written");
}

/// The model as a directory in bfloat16, in two shards.
fn write_directory(path: &Path) {
    let config = config();
    std::fs::create_dir(path).expect("folder");
    let shape = json!({
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": config.max_position_embeddings,
        "tie_word_embeddings": true,
    });
    std::fs::write(path.join("config.json"), shape.to_string()).expect("configuration");
    let halves = by_shape().into_iter().map(|(shape, weight)| {
        let weight = weight.to_dtype(DType::BF16).expect("halves");
        (shape, weight)
    });
    let halves: BTreeMap<Vec<usize>, Tensor> = halves.collect();
    let files = [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ];
    let mut shards = [HashMap::new(), HashMap::new()];
    let mut index = serde_json::Map::new();
    for (number, (name, shape)) in expected_shapes(&config).into_iter().enumerate() {
        index.insert(name.clone(), files[number % 2].into());
        shards[number % 2].insert(name, halves[&shape].clone());
    }
    for (file, shard) in files.iter().zip(&shards) {
        candle_core::safetensors::save(shard, path.join(file)).expect("shard");
    }
    let index = json!({"weight_map": index}).to_string();
    std::fs::write(path.join("model.safetensors.index.json"), index).expect("index");
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
    let path = std::env::var(MODEL).expect("a model");
    let before = figure("VmRSS:");
    let files = WeightFiles::open(Path::new(&path)).expect("files");
    let model = Transformer::read(files, DType::F32, &Device::Cpu, Arithmetic::F32);
    assert_eq!(model.expect("a model").config.num_hidden_layers, 16);
    println!("figures {}", figure("VmHWM:") - before);
}

#[test]
fn loading_never_holds_all_weights_in_f32() {
    let place = tempfile::tempdir().expect("directory");
    let (file, folder) = (place.path().join("m.gguf"), place.path().join("m"));
    write_gguf(&file);
    write_directory(&folder);
    let floats = 4 * config().parameters() as u64 / 1024;
    let program = std::env::current_exe().expect("this program");
    // Packed, the weights are a sixth of their floats, and a half.
    for (path, most) in [(file, floats / 2), (folder, floats * 3 / 4)] {
        let output = Command::new(&program)
            .args(["--exact", "memory::in_a_process_of_its_own"])
            .args(["--ignored", "--nocapture", "--test-threads", "1"])
            .env(MODEL, &path)
            // As `keep_freed` sets it; here threads of the test harness come before that.
            .env("MALLOC_ARENA_MAX", "1")
            .output()
            .expect("a process");
        let text = String::from_utf8_lossy(&output.stdout);
        let figures = text.lines().find_map(|line| line.split_once("figures "));
        let (_, taken) = figures.unwrap_or_else(|| panic!("{}: {output:?}", path.display()));
        let taken: u64 = taken.trim().parse().expect("a number");
        println!("{}: {taken} KiB of {floats} in f32", path.display());
        assert!(taken < most, "{}: {taken} KiB, not {most}", path.display());
    }
}
