//! `coharness serve-model` with several adapters: one engine, and every request under the one it names.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::Place;
use crate::serve_model::{Server, ask, golden};

/// The golden adapter at another scale, which makes it another one.
fn scaled(place: &Place, alpha: u32) -> PathBuf {
    let from = golden().join("adapter");
    let config = std::fs::read_to_string(from.join("adapter_config.json")).expect("config");
    let changed = config.replace("\"lora_alpha\": 8", &format!("\"lora_alpha\": {alpha}"));
    assert_ne!(changed, config);
    place.write(&format!("alpha{alpha}/adapter_config.json"), &changed);
    let to = place.path().join(format!("alpha{alpha}"));
    let file = "adapter_model.safetensors";
    std::fs::copy(from.join(file), to.join(file)).expect("weights");
    to
}

fn named(name: &str, directory: &Path) -> String {
    format!("{name}={}", directory.display())
}

fn reply(server: &Server, model: &str) -> Value {
    server.good(&ask(json!({"model": model, "return_token_ids": true})))
}

fn ids(server: &Server, model: &str) -> Value {
    reply(server, model)["choices"][0]["token_ids"].clone()
}

fn cached(server: &Server, model: &str) -> u64 {
    let usage = &reply(server, model)["usage"];
    let cached = &usage["prompt_tokens_details"]["cached_tokens"];
    cached.as_u64().expect("a number")
}

#[test]
fn requests_to_all_adapters_at_once_get_each_its_own_reply() {
    let place = Place::new();
    let tuned = named("tuned", &golden().join("adapter"));
    let loud = named("team/loud", &scaled(&place, 60));
    // What it says where nobody is beside it.
    let alone = ids(&Server::start(&["--adapter", &loud], &[]), "team/loud");
    let rows = std::fs::read_to_string(golden().join("greedy.json")).expect("greedy");
    let rows: Value = serde_json::from_str(&rows).expect("JSON");
    let expected = [
        ("llama_tied", rows[1]["base"]["ids"].clone()),
        ("tuned", rows[1]["adapter"]["ids"].clone()),
        ("team/loud", alone),
    ];
    assert!(expected[2].1 != expected[0].1 && expected[2].1 != expected[1].1);
    let server = &Server::start(&["--adapter", &tuned, "--adapter", &loud], &[]);
    std::thread::scope(|scope| {
        for (model, expected) in expected.iter().cycle().take(12) {
            scope.spawn(move || assert_eq!(&ids(server, model), expected, "{model}"));
        }
    });
    // Several replies to one request are all under its adapter.
    let body = ask(json!({"model": "tuned", "n": 2, "return_token_ids": true}));
    let choices = &server.good(&body)["choices"];
    for index in 0..2 {
        assert_eq!(choices[index]["token_ids"], expected[1].1);
    }
}

#[test]
fn every_adapter_is_a_model_of_its_own() {
    let place = Place::new();
    let adapters = [scaled(&place, 16), scaled(&place, 24)];
    let [first, second] = adapters.map(|directory| directory.display().to_string());
    let server = Server::start(&["--adapter", &first, "--adapter", &second], &[]);
    let (_, models) = server.send("GET", "/v1/models", None, None);
    let models: Value = serde_json::from_str(&models).expect("JSON");
    let names: Vec<&Value> = models["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|model| &model["id"])
        .collect();
    assert_eq!(names, ["llama_tied", "alpha16", "alpha24"]);
    for name in names {
        let path = format!("/v1/models/{}", name.as_str().expect("a name"));
        let (status, model) = server.send("GET", &path, None, None);
        let model: Value = serde_json::from_str(&model).expect("JSON");
        assert_eq!((status, &model["id"]), (200, name));
    }
    let (status, error) = server.chat(&ask(json!({"model": "alpha32"})));
    assert_eq!(status, 404);
    assert_eq!(
        error["error"]["message"],
        "there is no model alpha32, only llama_tied, alpha16, alpha24"
    );
    assert_eq!(error["error"]["param"], "model");
    // Who names none gets the base model, however many there are.
    let unnamed = server.good(&ask(json!({})));
    assert_eq!(unnamed["model"], "llama_tied");
}

#[test]
fn prefixes_are_cached_for_each_adapter_alone() {
    let place = Place::new();
    let tuned = named("tuned", &golden().join("adapter"));
    let loud = named("loud", &scaled(&place, 60));
    let server = Server::start(&["--adapter", &tuned, "--adapter", &loud], &[]);
    for model in ["tuned", "llama_tied", "loud"] {
        assert_eq!(cached(&server, model), 0, "{model}");
        assert_eq!(cached(&server, model), 32, "{model}");
    }
}

#[test]
fn an_adapter_that_cannot_be_served_is_named_before_anything_is() {
    let place = Place::new();
    let model = format!("model.path={}", golden().display());
    let good = named("good", &golden().join("adapter"));
    let broken = scaled(&place, 16);
    std::fs::write(broken.join("adapter_model.safetensors"), "no tensors").expect("file");
    let strange = golden().with_file_name("llama_untied").join("adapter");
    for (directory, cause) in [
        (place.path().join("nowhere"), "adapter_config.json"),
        (broken, "adapter_model.safetensors"),
        (strange, "adapter does not fit the model"),
    ] {
        let bad = named("bad", &directory);
        let arguments = [
            "serve-model",
            "--port",
            "0",
            "--set",
            &model,
            "--adapter",
            &good,
            "--adapter",
            &bad,
        ];
        let said = place.run(&arguments);
        assert!(said.starts_with("--- stderr\n"), "{said}");
        assert!(
            said.contains("can't be served as \"bad\": ") && said.contains(cause),
            "{said}"
        );
        assert!(said.ends_with("--- exit 2\n"), "{said}");
    }
}
