//! Weights that don't fit their configuration are refused by name, and shards are joined.

use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use model::adapter::serialize;
use model::weights::{Checkpoint, TensorMap, WeightsError};

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
fn a_damaged_count_of_layers_is_an_error_and_no_list_of_as_many_names() {
    let whole = load(&golden("llama_tied")).expect("model");
    let mut config = whole.config;
    config.num_hidden_layers |= 1 << 40;
    let error = Checkpoint::of(config, whole.tensors).expect_err("refused");
    assert!(error.to_string().contains("layers"), "{error}");
}
