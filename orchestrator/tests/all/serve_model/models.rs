//! The base model and adapters, each under its own name.

use serde_json::{Value, json};

use super::{Server, ask, golden};
use crate::Place;

#[test]
fn models_are_told_of_one_by_one() {
    let adapter = format!("team/tuned={}", golden().join("adapter").display());
    let server = Server::start(&["--adapter", &adapter], &[]);
    for name in ["llama_tied", "team/tuned", "team%2Ftuned"] {
        let (status, model) = server.send("GET", &format!("/v1/models/{name}"), None, None);
        let model: Value = serde_json::from_str(&model).expect("JSON");
        assert_eq!(
            (status, &model["id"]),
            (200, &json!(name.replace("%2F", "/")))
        );
        assert_eq!(
            (&model["object"], &model["max_model_len"]),
            (&json!("model"), &json!(512))
        );
    }
    let (status, error) = server.send("GET", "/v1/models/gpt", None, None);
    let error: Value = serde_json::from_str(&error).expect("JSON");
    assert_eq!(
        (status, &error["error"]["code"]),
        (404, &json!("model_not_found"))
    );
}

#[test]
fn two_models_of_one_name_are_not_served() {
    let place = Place::new();
    let model = format!("model.path={}", golden().display());
    let adapter = golden().join("adapter").display().to_string();
    for (names, refused) in [
        (
            vec![adapter.clone(), adapter.clone()],
            "\"adapter\": another has it",
        ),
        (
            vec![format!("llama_tied={adapter}")],
            "\"llama_tied\": that is the base model's",
        ),
        (vec![format!("={adapter}")], "\"\": it is empty"),
    ] {
        let mut arguments = vec!["serve-model", "--port", "0", "--set", &model];
        arguments.extend(names.iter().flat_map(|name| ["--adapter", name]));
        let said = place.run(&arguments);
        assert!(
            said.contains(refused) && said.contains("--adapter NAME=DIR"),
            "{said}"
        );
        assert!(said.ends_with("--- exit 2\n"), "{said}");
    }
}

#[test]
fn adapters_answer_under_their_own_names() {
    let adapter = format!("tuned={}", golden().join("adapter").display());
    let server = Server::start(&["--adapter", &adapter], &[]);
    let (status, models) = server.send("GET", "/v1/models", None, None);
    let models: Value = serde_json::from_str(&models).expect("JSON");
    assert_eq!((status, &models["data"][1]["id"]), (200, &json!("tuned")));
    let rows = std::fs::read_to_string(golden().join("greedy.json")).expect("greedy");
    let rows: Value = serde_json::from_str(&rows).expect("JSON");
    for (name, part) in [("tuned", "adapter"), ("llama_tied", "base")] {
        let reply = server.good(&ask(json!({"model": name, "return_token_ids": true})));
        assert_eq!(reply["choices"][0]["token_ids"], rows[1][part]["ids"]);
        assert_eq!(reply["model"], name);
    }
    let (status, error) = server.chat(&ask(json!({"model": "gpt"})));
    assert_eq!(
        (status, &error["error"]["code"]),
        (404, &json!("model_not_found"))
    );
}
