use harness::{CallFormat, Example, Harness, Hook, HookPoint, Hooks, Shipped, ToolName, shipped};
use serde_json::{Value, json};

use crate::world;

#[test]
fn a_starting_harness_is_its_shipped_folder_and_plain() {
    for shipped in shipped::ALL {
        let harness = Shipped::named(shipped.name).unwrap().read().unwrap();
        assert_eq!(harness.name, shipped.name);
        let tools: Vec<&str> = harness.tools.keys().map(ToolName::as_str).collect();
        assert_eq!(tools, ["python"]);
        assert_eq!(harness.middleware.hooks, Hooks::default());
        assert_eq!(harness.prompts.examples, Vec::<Example>::new());
        assert_eq!(harness.tools["python"].code_argument(), Some("code"));
    }
    assert_eq!(shipped::NAIVE.read(), harness::naive());
    assert!(Shipped::named("absent").is_none());
}

#[test]
fn the_list_of_shipped_files_is_complete_and_written_as_we_write() {
    for shipped in shipped::ALL {
        let written = harness::to_files(&shipped.read().unwrap());
        let files = shipped
            .files
            .map(|(file, text)| (file.to_owned(), text.to_owned()));
        assert_eq!(written, files.into(), "{}", shipped.name);
    }
}

#[test]
fn the_harness_for_reasoning_samples_and_leaves_room() {
    let middleware = shipped::REASONING.read().unwrap().middleware;
    let sampling = &middleware.sampling;
    let drawn = (sampling.temperature, sampling.top_p, sampling.top_k);
    assert_eq!(drawn, (0.6, 0.95, 20));
    // The form that Qwen3 was trained on.
    assert_eq!(middleware.protocol.call_format, CallFormat::Xml);
    // A reply may take what the configuration's budget gives a problem, with as much for what it answers to.
    assert_eq!(middleware.protocol.max_tokens_per_turn, 16_384);
    assert_eq!(middleware.context.max_tokens, 2 * 16_384);
}

#[test]
fn a_problem_is_inserted_as_it_is() {
    let mut prompts = world::rich().prompts;
    prompts.task = "Solve:\n{{ problem }}\nNow.".to_owned();
    assert_eq!(
        prompts.render_task("{{ problem }} $1"),
        "Solve:\n{{ problem }} $1\nNow."
    );
}

#[test]
fn tool_names_are_checked_wherever_they_are_read() {
    for good in ["python", "_x", "run-2", "A"] {
        assert!(ToolName::new(good).is_ok(), "{good}");
    }
    for bad in ["", "2x", "a b", "a.b", "a/b", "é", &"x".repeat(65)] {
        assert!(ToolName::new(bad).is_err(), "{bad}");
    }
    let mut value = world::rich().to_value();
    let tool = value["tools"]["python"].clone();
    value["tools"]["../python"] = tool;
    let error = serde_json::from_value::<Harness>(value).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("\"../python\" isn't a tool name"),
        "{error}"
    );
}

#[test]
fn unknown_keys_are_refused_at_every_level() {
    for pointer in [
        "",
        "/prompts",
        "/prompts/examples/0",
        "/prompts/examples/0/steps/0",
        "/tools/python",
        "/tools/python/limits",
        "/skills/unit-check",
        "/middleware",
        "/middleware/protocol",
        "/middleware/sampling",
        "/middleware/context",
        "/middleware/runtime",
        "/middleware/hooks",
        "/middleware/hooks/post_tool_call/0",
        "/middleware/hooks/post_model_call/0",
        "/memory",
    ] {
        let mut value = world::rich().to_value();
        value.pointer_mut(pointer).unwrap()["surprise"] = json!(1);
        let error = serde_json::from_value::<Harness>(value).unwrap_err();
        assert!(
            error.to_string().contains("unknown field `surprise`"),
            "{pointer}: {error}"
        );
    }
}

#[test]
fn hooks_carry_their_name_under_type() {
    let hook = Hook::TruncateOutput {
        max_chars: 5,
        marker: "x".to_owned(),
    };
    let value = serde_json::to_value(&hook).unwrap();
    assert_eq!(
        value,
        json!({ "type": "truncate_output", "max_chars": 5, "marker": "x" })
    );
    assert_eq!(
        serde_json::to_value(Hook::RepairJson {}).unwrap(),
        json!({ "type": "repair_json" })
    );
    assert_eq!(serde_json::from_value::<Hook>(value).unwrap(), hook);
    // The order is the same with and without serde_json's `preserve_order`.
    let nudge = Hook::Nudge {
        message: "m".to_owned(),
        max: 1,
    };
    let text = r#"{"type":"nudge","max":1,"message":"m"}"#;
    assert_eq!(serde_json::to_string(&nudge).unwrap(), text);
}

#[test]
fn a_wrong_hook_is_told_by_action_and_field() {
    let reason = |value: Value| {
        serde_json::from_value::<Hook>(value)
            .unwrap_err()
            .to_string()
    };
    let nudge = |max: Value| reason(json!({ "type": "nudge", "message": "m", "max": max }));
    let expected = "field `max` of `nudge`: invalid type: string \"2\", expected u32";
    assert_eq!(nudge(json!("2")), expected);
    assert!(nudge(json!(-1)).contains("field `max` of `nudge`"));
    assert!(nudge(json!(2.5)).contains("field `max` of `nudge`"));
    assert!(reason(json!({ "type": "nudge", "max": 1 })).contains("missing field `message`"));
    assert!(reason(json!({ "max": 1 })).contains("missing field `type`"));
    assert!(reason(json!({ "type": 3 })).contains("field `type`"));
    assert!(reason(json!({ "type": "vanish" })).contains("unknown variant `vanish`"));
}

#[test]
fn every_hook_knows_its_point_and_name() {
    let points = HookPoint::ALL.map(HookPoint::name);
    let value = serde_json::to_value(Hooks::default()).unwrap();
    assert_eq!(points.len(), value.as_object().unwrap().len());
    assert!(points.iter().all(|point| value.get(point).is_some()));
    let hook = Hook::DetectRepeat {
        message: "m".to_owned(),
    };
    assert_eq!(serde_json::to_value(&hook).unwrap()["type"], hook.kind());
    assert_eq!(hook.point(), HookPoint::PreToolCall);
}

#[test]
fn the_schema_describes_the_document() {
    let schema = harness::json_schema();
    assert_eq!(schema["additionalProperties"], json!(false));
    let hooks = schema["$defs"]["Hook"]["oneOf"].as_array().unwrap();
    assert_eq!(hooks.len(), 16);
    for hook in hooks {
        assert!(hook["properties"]["type"]["const"].is_string(), "{hook}");
        assert!(
            hook["required"]
                .as_array()
                .unwrap()
                .contains(&json!("type")),
            "{hook}"
        );
    }
    assert_eq!(
        schema["$defs"]["Tool"]["properties"]["parameters"]["type"],
        "object"
    );
}

#[test]
fn the_state_of_a_tool_is_stateless_unless_said_and_changes_the_id() {
    let plain = harness::naive().unwrap();
    let tool = &plain.tools["python"];
    assert_eq!(tool.state, harness::ToolState::Stateless);
    // Harnesses from before the field keep their ids.
    assert!(plain.to_value()["tools"]["python"].get("state").is_none());
    let mut stateful = plain.clone();
    let tool = stateful.tools.values_mut().next().unwrap();
    tool.state = harness::ToolState::Stateful;
    assert_ne!(stateful.id(), plain.id());
    let read = harness::from_files(&harness::to_files(&stateful)).unwrap();
    assert_eq!(read, stateful);
}
