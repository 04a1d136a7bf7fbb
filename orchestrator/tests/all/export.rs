//! `coharness model export`: a model with its adapter merged, for other programs.

use std::path::{Path, PathBuf};

use insta::assert_snapshot;

use crate::Place;

fn golden() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trainer/tests/golden/llama_tied");
    root.canonicalize().expect("golden model")
}

fn export(place: &Place, model: &str, more: &[&str]) -> String {
    let model = format!("model.path={model}");
    let mut arguments = vec!["model", "export", "--set", &model];
    arguments.extend(more);
    place.run(&arguments)
}

#[test]
fn what_is_written_is_a_model_again() {
    let place = Place::new();
    place.write(
        "rows.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"1+1\"}, {\"role\": \"assistant\", \"content\": \"2\"}]}\n",
    );
    let inspect = |model: &str| {
        let model = format!("model.path={model}");
        place.run(&["data", "inspect", "rows.jsonl", "--set", &model])
    };
    let golden = golden().display().to_string();
    let adapter = format!("{golden}/adapter");
    let shown = inspect(&golden);
    let mut source = golden.as_str();
    // From a directory to a file, and from that to a directory.
    for out in ["merged.gguf", "again"] {
        let said = export(&place, source, &["--out", out, "--adapter", &adapter]);
        assert!(said.starts_with(&format!("{out}\n")), "{said}");
        assert!(said.contains(&format!("with {adapter} in f16")), "{said}");
        assert_eq!(inspect(out), shown, "the same template and tokens");
        source = out;
    }
    assert!(place.path().join("again/generation_config.json").is_file());
}

#[test]
fn what_is_not_written_says_why_and_what_to_do() {
    let place = Place::new();
    place.write("there.gguf", "something else");
    std::fs::create_dir(place.path().join("empty")).expect("folder");
    let golden = golden().display().to_string();
    let refused = [
        export(&place, &golden, &["--out", "there.gguf"]),
        export(&place, &golden, &["--out", "folder", "--type", "q8_0"]),
        export(&place, &golden, &["--out", "m.gguf", "--adapter", "12ab"]),
        export(&place, &golden, &["--out", "m.gguf", "--adapter", "empty"]),
        export(&place, "absent.gguf", &["--out", "m.gguf"]),
    ];
    assert_snapshot!("refused_exports", refused.concat());
}
