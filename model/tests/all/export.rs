//! Models written for other programs are read again as what they were.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::Value;
use candle_core::{DType, Device, Tensor};
use model::adapter::Adapter;
use model::config::{ModelConfig, RopeScaling};
use model::export::{Export, ExportError, WeightType};
use model::kernels::gemm::Arithmetic;
use model::tokenizer::Tokenizer;
use model::transformer::Transformer;
use model::tree::TokenTree;
use model::weights::{Checkpoint, TensorMap, WeightFiles, expected_shapes};

const TEMPLATE: &str = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}";

pub(crate) const GOLDEN: [&str; 5] = [
    "llama_tied",
    "llama_untied",
    "qwen2_tied",
    "qwen3_tied",
    "qwen3_untied",
];

pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../trainer/tests/golden")
        .join(name)
}

pub(crate) fn load(path: &Path) -> Checkpoint {
    Checkpoint::load(path, DType::F32, &Device::Cpu).expect("a model")
}

/// A model and its tokenizer, wherever that is.
pub(crate) fn read(path: &Path) -> (Checkpoint, Tokenizer) {
    let checkpoint = load(path);
    let tokenizer = match &checkpoint.metadata {
        Some(metadata) => Tokenizer::from_gguf(metadata),
        None => Tokenizer::from_file(&path.join("tokenizer.json")),
    };
    (checkpoint, tokenizer.expect("a tokenizer"))
}

pub(crate) fn write(
    source: &Path,
    adapter: Option<&Adapter>,
    kind: WeightType,
    out: &Path,
) -> Result<(), ExportError> {
    let (checkpoint, tokenizer) = read(source);
    let mut export = Export {
        checkpoint,
        source,
        tokenizer: &tokenizer,
        template: TEMPLATE,
    };
    if let Some(adapter) = adapter {
        export.merge(adapter).expect("merged");
    }
    export.write(kind, out)
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    let flat = tensor.flatten_all().and_then(|t| t.to_vec1::<f32>());
    flat.expect("floats")
}

fn assert_same_weights(ours: &TensorMap, theirs: &TensorMap, what: &str) {
    assert!(ours.keys().eq(theirs.keys()), "{what}");
    for (name, tensor) in ours {
        assert_eq!(floats(tensor), floats(&theirs[name]), "{what} {name}");
    }
}

/// Logits of a few tokens, and what a greedy continuation of them says.
fn answers(checkpoint: Checkpoint, adapter: Option<&Adapter>) -> (Vec<f32>, Vec<u32>) {
    says(&Transformer::new(checkpoint).expect("model"), adapter)
}

/// The same of a model that is built.
pub(crate) fn says(model: &Transformer, adapter: Option<&Adapter>) -> (Vec<f32>, Vec<u32>) {
    let mut tokens: Vec<u32> = (3..20).collect();
    let logits = |tokens: &[u32]| {
        let tree = TokenTree::new(&[tokens]);
        let logits = model.tree_logits(&tree, adapter).expect("logits");
        floats(&logits)
    };
    let first = logits(&tokens);
    for _ in 0..8 {
        let all = logits(&tokens);
        let last = &all[all.len() - model.config.vocab_size..];
        let best = (0..last.len()).max_by(|a, b| last[*a].total_cmp(&last[*b]));
        tokens.push(best.expect("a token") as u32);
    }
    (first, tokens)
}

#[test]
fn weights_configuration_and_tokenizer_come_back_from_both_forms() {
    for name in GOLDEN {
        let place = tempfile::tempdir().expect("directory");
        let source = golden(name);
        let (original, tokenizer) = read(&source);
        let (file, folder) = (place.path().join("m.gguf"), place.path().join("m"));
        write(&source, None, WeightType::F32, &file).expect("written");
        write(&source, None, WeightType::F32, &folder).expect("written");
        // And on from the file, in both forms.
        let (again, other) = (place.path().join("b/m.gguf"), place.path().join("c"));
        std::fs::create_dir(place.path().join("b")).expect("folder");
        write(&file, None, WeightType::F32, &again).expect("written");
        write(&file, None, WeightType::F32, &other).expect("written");
        let bytes = |path: &Path| std::fs::read(path).expect("file");
        assert!(bytes(&file) == bytes(&again), "{name}: the same file again");
        for path in [&file, &folder, &other] {
            let what = format!("{name} in {}", path.display());
            let (found, found_tokenizer) = read(path);
            assert_eq!(found.config, original.config, "{what}");
            assert_same_weights(&found.tensors, &original.tensors, &what);
            let ids = |t: &Tokenizer| (t.bos_id(), t.eos_id(), t.special_tokens());
            assert_eq!(ids(&found_tokenizer), ids(&tokenizer), "{what}");
            for text in ["<|im_start|>user\nü 12 + 3<|im_end|>", "plain"] {
                let encode = |t: &Tokenizer| t.encode(text).expect("ids");
                assert_eq!(encode(&found_tokenizer), encode(&tokenizer), "{what}");
            }
        }
        let metadata = load(&file).metadata.expect("metadata");
        let template = metadata["tokenizer.chat_template"].to_string();
        assert_eq!(template.expect("text"), TEMPLATE);
    }
}

#[test]
fn an_adapter_merged_says_what_it_said_beside_its_base() {
    for name in GOLDEN {
        let place = tempfile::tempdir().expect("directory");
        let source = golden(name);
        let base = load(&source);
        let adapter =
            Adapter::load(&source.join("adapter"), &base.config, &Device::Cpu).expect("adapter");
        let (plain, _) = answers(load(&source), None);
        let (expected, said) = answers(base, Some(&adapter));
        for out in ["m.gguf", "m"].map(|out| place.path().join(out)) {
            write(&source, Some(&adapter), WeightType::F32, &out).expect("written");
            let (logits, merged) = answers(load(&out), None);
            for (ours, theirs) in logits.iter().zip(&expected) {
                assert!((ours - theirs).abs() < 1e-4, "{name}: {ours} {theirs}");
            }
            assert_eq!(merged, said, "{name}");
        }
        let change = |(a, b): (&f32, &f32)| (a - b).abs();
        let moved = plain.iter().zip(&expected).map(change).fold(0.0, f32::max);
        assert!(
            moved > 1e-2,
            "{name}: the adapter changes something: {moved}"
        );
    }
}

/// A small Llama with rows of whole blocks, and any weights.
fn blocky() -> Checkpoint {
    let config = ModelConfig {
        hidden_size: 64,
        intermediate_size: 96,
        head_dim: 16,
        ..load(&golden("llama_untied")).config
    };
    let mut state = 1u32;
    let mut value = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    let tensors = expected_shapes(&config)
        .into_iter()
        .map(|(name, shape)| {
            let values: Vec<f32> = (0..shape.iter().product()).map(|_| value()).collect();
            (
                name,
                Tensor::from_vec(values, shape, &Device::Cpu).expect("tensor"),
            )
        })
        .collect();
    Checkpoint {
        config,
        tensors,
        scales: BTreeMap::new(),
        metadata: None,
    }
}

fn write_blocky(
    change: impl FnOnce(&mut Checkpoint),
    kind: WeightType,
    out: &Path,
) -> Result<(), ExportError> {
    let source = golden("llama_untied");
    let (_, tokenizer) = read(&source);
    let mut checkpoint = blocky();
    change(&mut checkpoint);
    let export = Export {
        checkpoint,
        source: &source,
        tokenizer: &tokenizer,
        template: TEMPLATE,
    };
    export.write(kind, out)
}

#[test]
fn smaller_types_round_as_much_as_they_must() {
    let place = tempfile::tempdir().expect("directory");
    let original = blocky();
    // Weights lie between -1 and 1; a block's scale is a 127th of its largest, in f16.
    for (kind, bound) in [
        (WeightType::F16, 2f32.powi(-12)),
        (WeightType::Bf16, 2f32.powi(-9)),
        (WeightType::Q8_0, 0.55 / 127.0),
    ] {
        let out = place.path().join(format!("{kind}.gguf"));
        write_blocky(|_| (), kind, &out).expect("written");
        let found = load(&out);
        let mut largest = 0f32;
        for (name, tensor) in &found.tensors {
            for (ours, theirs) in floats(tensor).iter().zip(floats(&original.tensors[name])) {
                if name.contains("norm") {
                    assert_eq!(*ours, theirs, "{kind} {name}");
                }
                largest = largest.max((ours - theirs).abs());
            }
        }
        assert!(
            largest <= bound && largest > bound / 4.0,
            "{kind}: {largest}"
        );
    }
    // Weights that stay quantised in memory say what their floats say.
    let quantised = || load(&place.path().join("q8_0.gguf"));
    assert_eq!(
        quantised().scales.len(),
        2 + 7 * original.config.num_hidden_layers
    );
    let plain = Checkpoint {
        scales: BTreeMap::new(),
        ..quantised()
    };
    let said = answers(plain, None);
    assert_eq!(answers(quantised(), None), said);
    // So they do when each is packed as it is read.
    let files = WeightFiles::open(&place.path().join("q8_0.gguf")).expect("files");
    let read = Transformer::read(files, DType::F32, &Device::Cpu, Arithmetic::F32);
    assert_eq!(says(&read.expect("a model"), None), said);
    // Rows of 48 aren't whole blocks: f16.
    let out = place.path().join("ragged.gguf");
    write(&golden("llama_tied"), None, WeightType::Q8_0, &out).expect("written");
    let (ours, theirs) = (load(&out).tensors, load(&golden("llama_tied")).tensors);
    for (name, tensor) in &ours {
        for (ours, theirs) in floats(tensor).iter().zip(floats(&theirs[name])) {
            assert!((ours - theirs).abs() <= theirs.abs() * 2f32.powi(-11) + 1e-7);
        }
    }
}

#[test]
fn scaled_rotary_frequencies_go_into_a_table_and_come_back() {
    let place = tempfile::tempdir().expect("directory");
    let scalings = [
        RopeScaling::Linear(2.0),
        RopeScaling::Llama3 {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_positions: 64.0,
        },
    ];
    for (number, scaling) in scalings.into_iter().enumerate() {
        let out = place.path().join(format!("scaled-{number}.gguf"));
        let source = load(&golden("llama_untied")).config;
        let config = ModelConfig {
            rope_scaling: scaling,
            ..source.clone()
        };
        let (scaled, plain) = (config.rope_frequencies(), source.rope_frequencies());
        assert_ne!(scaled, plain);
        let change = |checkpoint: &mut Checkpoint| {
            checkpoint.config.rope_scaling = config.rope_scaling.clone();
        };
        write_blocky(change, WeightType::F32, &out).expect("written");
        let found = load(&out).config;
        assert!(matches!(found.rope_scaling, RopeScaling::Divisors(_)));
        for (ours, theirs) in found
            .rope_frequencies()
            .iter()
            .zip(&blocky_frequencies(&config))
        {
            assert!((ours / theirs - 1.0).abs() < 1e-6, "{ours} {theirs}");
        }
    }
}

/// A GGUF file again, with positions divided by a factor.
fn write_divided(file: &Path, factor: f32, out: &Path) {
    let (mut checkpoint, tokenizer) = read(file);
    let metadata = checkpoint.metadata.as_mut().expect("a GGUF file");
    let linear = Value::String("linear".to_owned());
    metadata.insert("llama.rope.scaling.type".to_owned(), linear);
    let key = "llama.rope.scaling.factor".to_owned();
    metadata.insert(key, Value::F32(factor));
    let export = Export {
        checkpoint,
        source: file,
        tokenizer: &tokenizer,
        template: TEMPLATE,
    };
    export.write(WeightType::F32, out).expect("written");
}

#[test]
fn a_file_with_linear_scaling_keeps_it_as_a_directory() {
    let place = tempfile::tempdir().expect("directory");
    let at = |name: &str| place.path().join(name);
    write(
        &golden("llama_untied"),
        None,
        WeightType::F32,
        &at("plain.gguf"),
    )
    .expect("written");
    write_divided(&at("plain.gguf"), 2.5, &at("linear.gguf"));
    let file = load(&at("linear.gguf")).config;
    assert_eq!(file.rope_scaling, RopeScaling::Linear(2.5));
    write(&at("linear.gguf"), None, WeightType::F32, &at("linear")).expect("written");
    let directory = load(&at("linear")).config;
    assert_eq!(directory, file);
    assert_eq!(directory.rope_frequencies(), file.rope_frequencies());
    assert_ne!(
        file.rope_frequencies(),
        load(&at("plain.gguf")).config.rope_frequencies()
    );
}

#[test]
fn a_table_of_frequencies_and_linear_scaling_both_count() {
    let place = tempfile::tempdir().expect("directory");
    let at = |name: &str| place.path().join(name);
    let change = |checkpoint: &mut Checkpoint| {
        checkpoint.config.rope_scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_positions: 64.0,
        };
    };
    write_blocky(change, WeightType::F32, &at("table.gguf")).expect("written");
    write_divided(&at("table.gguf"), 2.0, &at("both.gguf"));
    let frequencies = |name: &str| load(&at(name)).config.rope_frequencies();
    let (table, both) = (frequencies("table.gguf"), frequencies("both.gguf"));
    for (table, both) in table.iter().zip(&both) {
        assert!((2.0 * both / table - 1.0).abs() < 1e-6, "{table} {both}");
    }
    // A directory has no place for a table.
    let error = write(&at("both.gguf"), None, WeightType::F32, &at("both"));
    let error = error.expect_err("refused").to_string();
    assert!(
        error.ends_with("can't be written to a directory"),
        "{error}"
    );
}

/// The frequencies of [`blocky`] under another scaling.
fn blocky_frequencies(scaled: &ModelConfig) -> Vec<f32> {
    let config = ModelConfig {
        rope_scaling: scaled.rope_scaling.clone(),
        ..blocky().config
    };
    config.rope_frequencies()
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind() {
    let place = tempfile::tempdir().expect("directory");
    let at = |name: &str| place.path().join(name);
    let refused = |change: fn(&mut Checkpoint), kind, name: &str| {
        write_blocky(change, kind, &at(name))
            .expect_err("refused")
            .to_string()
    };
    let error = refused(|_| (), WeightType::Q8_0, "folder");
    assert!(error.contains("f32, f16 or bf16, not in q8_0"), "{error}");
    let spoil = |checkpoint: &mut Checkpoint, by: f64| {
        let name = "model.layers.1.mlp.up_proj.weight";
        let weight = (&checkpoint.tensors[name] * by).expect("product");
        checkpoint.tensors.insert(name.into(), weight);
    };
    let error = write_blocky(|c| spoil(c, f64::NAN), WeightType::F32, &at("m.gguf"));
    let error = error.expect_err("refused").to_string();
    assert!(error.contains("up_proj.weight has weights"), "{error}");
    let error = write_blocky(|c| spoil(c, 1e6), WeightType::F16, &at("m"));
    assert!(matches!(error, Err(ExportError::TooLarge { .. })));
    assert!(
        std::fs::read_dir(place.path())
            .expect("place")
            .next()
            .is_none()
    );

    std::fs::write(at("m.gguf"), "mine").expect("file");
    let error = refused(|_| (), WeightType::F32, "m.gguf");
    assert!(error.ends_with("m.gguf exists"), "{error}");
    assert_eq!(std::fs::read(at("m.gguf")).expect("file"), b"mine");
    // What a kill left is written over.
    std::fs::write(at(".part-n.gguf"), "half").expect("file");
    write_blocky(|_| (), WeightType::F32, &at("n.gguf")).expect("written");
    assert!(!at(".part-n.gguf").exists());
}

/// The small real model, where `scripts/test` put it: its own metadata, and half a gigabyte.
#[test]
fn the_real_model_comes_back_from_f32() {
    let Some(path) = std::env::var_os("COHARNESS_TEST_MODEL").map(PathBuf::from) else {
        println!("skipped: COHARNESS_TEST_MODEL is not set");
        return;
    };
    let place = tempfile::tempdir().expect("directory");
    let out = place.path().join("m.gguf");
    write(&path, None, WeightType::F32, &out).expect("written");
    let ((original, tokenizer), (found, found_tokenizer)) = (read(&path), read(&out));
    assert_eq!(found.config, original.config);
    assert_same_weights(&found.tensors, &original.tensors, "the real model");
    let text = "<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n";
    let encode = |t: &Tokenizer| t.encode(text).expect("ids");
    assert_eq!(encode(&found_tokenizer), encode(&tokenizer));

    // As a directory, with a tokenizer.json made of the metadata.
    let folder = place.path().join("m");
    write(&path, None, WeightType::Bf16, &folder).expect("written");
    let (halves, tokenizer) = read(&folder);
    assert_eq!(halves.config, original.config);
    assert_eq!(encode(&tokenizer), encode(&found_tokenizer));

    // Quantised in memory, and as floats.
    assert!(found.scales.is_empty() && original.scales.len() == 211);
    assert_eq!(answers(original, None), answers(found, None));
}
