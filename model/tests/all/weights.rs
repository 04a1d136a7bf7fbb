//! Weights that don't fit their configuration are refused by name, and shards are joined.

use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use model::adapter::serialize;
use model::export::WeightType;
use model::kernels::gemm::Arithmetic;
use model::transformer::Transformer;
use model::weights::{Checkpoint, TensorMap, WeightFiles, WeightsError, load_safetensors};

use crate::export::{GOLDEN, says, write};

fn golden(name: &str) -> PathBuf {
    let folder = format!("../trainer/tests/golden/{name}");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

fn load(directory: &Path) -> Result<Checkpoint, WeightsError> {
    Checkpoint::load(directory, DType::F32, &Device::Cpu)
}

/// A directory with a golden model's configuration and these files of weights.
fn directory(name: &str, files: &[(&str, &TensorMap)]) -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("directory");
    let config = golden(name).join("config.json");
    std::fs::copy(config, place.path().join("config.json")).expect("config");
    for (file, tensors) in files {
        let bytes = serialize(tensors).expect("bytes");
        std::fs::write(place.path().join(file), bytes).expect("weights");
    }
    place
}

const SINGLE: &str = "model.safetensors";

#[test]
fn what_is_missing_left_over_or_of_another_shape_is_named() {
    let whole = load(&golden("llama_tied")).expect("model");
    let refused = |tensors: &TensorMap| {
        let place = directory("llama_tied", &[(SINGLE, tensors)]);
        load(place.path()).expect_err("refused")
    };
    let norm = "model.layers.1.post_attention_layernorm.weight";
    let mut less = whole.tensors.clone();
    less.remove(norm);
    match refused(&less) {
        WeightsError::Names {
            missing,
            unexpected,
        } => assert_eq!((missing, unexpected), (vec![norm.to_owned()], Vec::new())),
        other => panic!("{other}"),
    }
    let mut more = whole.tensors.clone();
    more.insert(
        "model.layers.2.mlp.up_proj.weight".into(),
        more[norm].clone(),
    );
    match refused(&more) {
        WeightsError::Names {
            missing,
            unexpected,
        } => {
            assert!(missing.is_empty());
            assert_eq!(unexpected, ["model.layers.2.mlp.up_proj.weight"]);
        }
        other => panic!("{other}"),
    }
    let mut other = whole.tensors.clone();
    let wrong = Tensor::zeros(7, DType::F32, &Device::Cpu).expect("tensor");
    other.insert(norm.into(), wrong);
    assert!(matches!(refused(&other), WeightsError::Shape { name, .. } if name == norm));
    // The same for weights that are at hand.
    let of = Checkpoint::of(whole.config.clone(), less).expect_err("refused");
    assert!(of.to_string().contains(norm), "{of}");
    assert!(Checkpoint::of(whole.config, whole.tensors).is_ok());
}

#[test]
fn a_tied_head_may_be_repeated_but_not_an_untied_one_left_out() {
    let tied = load(&golden("llama_tied")).expect("model");
    let mut repeated = tied.tensors.clone();
    let embedding = repeated["model.embed_tokens.weight"].clone();
    repeated.insert("lm_head.weight".into(), embedding);
    let place = directory("llama_tied", &[(SINGLE, &repeated)]);
    let read = load(place.path()).expect("model");
    assert!(read.tensors.keys().eq(tied.tensors.keys()));

    let mut headless = load(&golden("llama_untied")).expect("model").tensors;
    headless.remove("lm_head.weight");
    let place = directory("llama_untied", &[(SINGLE, &headless)]);
    let error = load(place.path()).expect_err("refused");
    assert!(error.to_string().contains("lm_head.weight"), "{error}");
}

#[test]
fn shards_are_joined_and_each_of_the_index_is_needed() {
    let whole = load(&golden("llama_tied")).expect("model").tensors;
    let (mut first, mut second) = (TensorMap::new(), TensorMap::new());
    let mut map = serde_json::Map::new();
    for (index, (name, tensor)) in whole.iter().enumerate() {
        let (shard, file) = if index % 2 == 0 {
            (&mut first, "model-00001-of-00002.safetensors")
        } else {
            (&mut second, "model-00002-of-00002.safetensors")
        };
        shard.insert(name.clone(), tensor.clone());
        map.insert(name.clone(), file.into());
    }
    let files = [
        ("model-00001-of-00002.safetensors", &first),
        ("model-00002-of-00002.safetensors", &second),
    ];
    let place = directory("llama_tied", &files);
    let index = serde_json::json!({"weight_map": map}).to_string();
    std::fs::write(place.path().join("model.safetensors.index.json"), index).expect("index");
    let read = load(place.path()).expect("model").tensors;
    assert!(serialize(&read).expect("bytes") == serialize(&whole).expect("bytes"));
    std::fs::remove_file(place.path().join(files[1].0)).expect("removed");
    let error = load(place.path()).expect_err("refused");
    assert!(error.to_string().contains(files[1].0), "{error}");
}

#[test]
fn weights_read_one_by_one_are_those_of_the_checkpoint() {
    for name in GOLDEN {
        let place = tempfile::tempdir().expect("directory");
        let file = place.path().join("m.gguf");
        write(&golden(name), None, WeightType::Bf16, &file).expect("written");
        for path in [golden(name), file] {
            let what = format!("{name} in {}", path.display());
            let whole = load(&path).expect("model");
            let mut files = WeightFiles::open(&path).expect("files");
            assert_eq!(files.config, whole.config, "{what}");
            // From the last to the first: none depends on what was read before it.
            for (name, tensor) in whole.tensors.iter().rev() {
                let weight = files.weight(name, DType::F32, &Device::Cpu).expect("read");
                let weight = weight.expect("a weight").into_tensor();
                let bits = |tensor: &Tensor| {
                    let flat = tensor.flatten_all().and_then(|t| t.to_vec1::<f32>());
                    flat.expect("floats")
                        .into_iter()
                        .map(f32::to_bits)
                        .collect::<Vec<_>>()
                };
                assert_eq!(weight.dims(), tensor.dims(), "{what} {name}");
                assert!(bits(&weight) == bits(tensor), "{what} {name}");
            }
            let absent = files.weight("model.norm.bias", DType::F32, &Device::Cpu);
            assert!(absent.expect("none").is_none(), "{what}");
            let arithmetics = [Arithmetic::F32, Arithmetic::SplitBf16, Arithmetic::Bf16];
            for arithmetic in arithmetics.into_iter().filter(|a| a.is_available()) {
                let files = WeightFiles::open(&path).expect("files");
                let read = Transformer::read(files, DType::F32, &Device::Cpu, arithmetic);
                let built = Transformer::with_arithmetic(load(&path).expect("model"), arithmetic);
                let (read, built) = (read.expect("a model"), built.expect("a model"));
                assert_eq!(says(&read, None), says(&built, None), "{what}");
            }
        }
    }
}

#[test]
fn a_file_that_is_cut_or_is_none_is_refused_before_its_weights_are_read() {
    let place = tempfile::tempdir().expect("directory");
    let path = place.path().join(SINGLE);
    let whole = std::fs::read(golden("llama_tied").join(SINGLE)).expect("file");
    let header = u64::from_le_bytes(whole[..8].try_into().expect("a length")) as usize;
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("file");
        let error = load_safetensors(&path, &Device::Cpu).expect_err("refused");
        assert!(matches!(error, WeightsError::Corrupt { .. }), "{error}");
        error.to_string()
    };
    for (length, reason) in [
        (whole.len() - 1, "not fully covered"),
        (8 + header - 1, "invalid header length"),
        (5, "header too small"),
    ] {
        let error = refused(&whole[..length]);
        assert!(error.contains(reason), "{length}: {error}");
    }
    let error = refused(b"something else");
    assert!(error.contains("header too large"), "{error}");
    let longer = [whole.as_slice(), &[0]].concat();
    assert!(refused(&longer).contains("not fully covered"));
    let mut torn = whole;
    torn[8] = b'!';
    assert!(refused(&torn).contains("invalid JSON"));
}

#[test]
fn a_damaged_count_of_layers_is_an_error_and_no_list_of_as_many_names() {
    let whole = load(&golden("llama_tied")).expect("model");
    let mut config = whole.config;
    config.num_hidden_layers |= 1 << 40;
    let error = Checkpoint::of(config, whole.tensors).expect_err("refused");
    assert!(error.to_string().contains("layers"), "{error}");
}
