//! `coharness data`: what a person sees of training rows, and what moves in and out.

use std::path::Path;

use insta::assert_snapshot;

use crate::Place;

fn inspect(place: &Place, file: &str) -> String {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trainer/tests/golden/llama_tied");
    let golden = golden.canonicalize().expect("golden model");
    let model = format!("model.path={}", golden.display());
    let arguments = [
        "data",
        "inspect",
        file,
        "--set",
        &model,
        "--set",
        "model.arithmetic=f32",
    ];
    place.run(&arguments)
}

#[test]
fn rows_are_shown_with_what_counts_marked_and_faults_named() {
    let place = Place::new();
    place.write(
        "rows.jsonl",
        r#"{"id": "sum", "messages": [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2", "train": false}, {"role": "user", "content": "2+2\ttwice"}, {"role": "assistant", "content": "4 <|im_end|>\n4"}]}
{"messages": [{"role": "user", "content": "1+1"}]}
"#,
    );
    assert_snapshot!("inspect", inspect(&place, "rows.jsonl"));
}

#[test]
fn other_forms_are_imported_and_a_wrong_line_is_named() {
    let place = Place::new();
    place.write(
        "alpaca.jsonl",
        "{\"instruction\": \"Add.\", \"input\": \"1+1\", \"output\": \"2\"}\n",
    );
    place.write("bad.jsonl", "{\"messages\": []}\n");
    let import = |file| place.run(&["data", "import", file]);
    let shown = [
        import("alpaca.jsonl"),
        import("bad.jsonl"),
        import("absent.jsonl"),
    ];
    assert_snapshot!("import", shown.join("\n---\n"));
}
