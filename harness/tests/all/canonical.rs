use harness::{Harness, HarnessId, canonical_json};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::world;

#[test]
fn keys_are_sorted_at_every_level_and_texts_escaped_as_json() {
    let value = json!({ "b": [{ "z": 1, "a": null }], "a": "\"\\\n", "ä": 1.0, "Z": true });
    let expected = r#"{"Z":true,"a":"\"\\\n","b":[{"a":null,"z":1}],"ä":1.0}"#;
    assert_eq!(canonical_json(&value), expected);
}

#[test]
fn an_id_shows_twelve_digits_and_reads_back_from_all() {
    let id = world::rich().id();
    assert_eq!(id.to_string(), id.to_hex()[..12]);
    assert_eq!(id.to_hex().len(), 64);
    assert_eq!(id.to_hex().parse(), Ok(id));
    assert_eq!(serde_json::to_value(id).unwrap(), Value::from(id.to_hex()));
    assert!(id.to_string().parse::<HarnessId>().is_err());
}

#[test]
fn the_order_of_keys_in_a_parameter_schema_is_not_content() {
    let read = |text: &str| harness::yaml::from_str::<harness::Tool>(text).unwrap();
    let one = "description: d\nbackend: python\nparameters:\n  type: object\n  properties: {b: {}, a: {}}\n";
    let two = "parameters:\n  properties: {a: {}, b: {}}\n  type: object\nbackend: python\ndescription: d\n";
    let (one, two) = (read(one), read(two));
    // Not only equal: the text that a model sees is the same.
    assert_eq!(one.parameters.to_string(), two.parameters.to_string());
}

#[test]
fn a_negative_zero_is_a_zero() {
    let mut value = world::rich().to_value();
    value["middleware"]["sampling"]["temperature"] = json!(0.0);
    let zero: Harness = serde_json::from_value(value.clone()).unwrap();
    value["middleware"]["sampling"]["temperature"] = json!(-0.0);
    let negative: Harness = serde_json::from_value(value).unwrap();
    assert_eq!(zero.id(), negative.id());
}

/// Content ids stand in registries and journals, so a field that came later must not change them.
#[test]
fn a_document_from_before_a_field_keeps_its_text_and_with_it_its_id() {
    let before = concat!(
        r#"{"description":"d","format":1,"memory":{"capacity":0,"entries":[],"kind":"none"},"#,
        r#""middleware":{"context":{"max_tokens":2048},"hooks":{"on_finish":[],"on_start":[],"#,
        r#""on_tool_error":[],"post_model_call":[],"post_tool_call":[],"pre_model_call":[],"#,
        r#""pre_tool_call":[]},"protocol":{"call_format":"json","max_tokens_per_turn":256,"#,
        r#""max_turns":4,"stop":[]},"runtime":{"parallel_rollouts":64},"#,
        r#""sampling":{"temperature":0.7,"top_k":0,"top_p":1.0}},"name":"n","#,
        r#""prompts":{"examples":[],"final_answer":"","system":"s","task":"{{ problem }}"},"#,
        r#""skills":{"x":{"body":"b","description":"d","name":"x","triggers":[]}},"#,
        r#""tools":{"python":{"backend":"python","description":"d","limits":{"memory_mib":512,"#,
        r#""output_chars":2000,"timeout_ms":5000},"parameters":{"type":"object"}}}}"#,
    );
    let harness: Harness = harness::json::from_str(before).unwrap();
    assert_eq!(canonical_json(&harness.to_value()), before);
}

#[test]
fn a_least_share_of_zero_is_none_and_any_other_changes_the_id() {
    let off = world::rich();
    let with = |number: &str| {
        let mut value = off.to_value();
        let read = serde_json::from_str::<Value>(number).unwrap();
        value["middleware"]["sampling"]["min_p"] = read;
        serde_json::from_value::<Harness>(value)
    };
    for zero in ["0", "0.0", "-0.0"] {
        let harness = with(zero).unwrap();
        assert_eq!(harness.id(), off.id(), "{zero}");
        assert!(!harness::to_files(&harness)["middleware.yaml"].contains("min_p"));
    }
    let on = with("0.05").unwrap();
    assert_ne!(on.id(), off.id());
    let files = harness::to_files(&on);
    assert!(files["middleware.yaml"].contains("\n  min_p: 0.05\n"));
    assert_eq!(harness::from_files(&files).unwrap(), on);
    for odd in ["null", "\"0.05\"", "true"] {
        assert!(with(odd).is_err(), "{odd}");
    }
}

/// The same value with every object's keys inserted in reverse. Under `preserve_order` this really
/// is another order; without it the test is trivial and still true.
fn reversed(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(reversed).collect(),
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.reverse();
            let reversed = entries
                .into_iter()
                .map(|(key, item)| (key.clone(), reversed(item)));
            Value::Object(Map::from_iter(reversed))
        }
        scalar => scalar.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_id_does_not_depend_on_map_order(harness in world::harness()) {
        let value = harness.to_value();
        prop_assert_eq!(canonical_json(&value), canonical_json(&reversed(&value)));
        let read: Harness = serde_json::from_value(reversed(&value)).unwrap();
        prop_assert_eq!(read.id(), harness.id());
    }

    #[test]
    fn canonical_text_is_json_of_the_same_value(harness in world::harness()) {
        let text = canonical_json(&harness.to_value());
        let read: Harness = harness::json::from_str(&text).unwrap();
        prop_assert_eq!(read, harness);
    }
}
