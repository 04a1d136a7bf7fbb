use std::collections::BTreeMap;

use harness::{Harness, Hook, Hooks, MemoryKind, validate};
use proptest::prelude::*;
use serde_json::json;

use crate::world;

/// Problems of the rich harness after a change, as text.
fn problems(change: impl FnOnce(&mut Harness)) -> Vec<String> {
    let mut harness = world::rich();
    change(&mut harness);
    match validate(&harness) {
        Ok(()) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

#[track_caller]
fn assert_one(expected: &str, change: impl FnOnce(&mut Harness)) {
    let problems = problems(change);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains(expected), "{problems:?}");
}

#[test]
fn every_action_stands_only_at_its_own_point() {
    let text = || "m".to_owned();
    let all = [
        Hook::RepairJson {},
        Hook::ExtractFencedCode {},
        Hook::Nudge {
            message: text(),
            max: 1,
        },
        Hook::ForceFinalAnswer { message: text() },
        Hook::AutoPrintLastExpression {},
        Hook::DetectRepeat { message: text() },
        Hook::TruncateOutput {
            max_chars: 1,
            marker: text(),
        },
        Hook::EmptyOutputHint { message: text() },
        Hook::AppendMessage { message: text() },
        Hook::ErrorHint { message: text() },
        Hook::AnswerFromLastResult {},
    ];
    let all = all.to_vec();
    let everywhere = Hooks {
        on_start: all.clone(),
        pre_model_call: all.clone(),
        post_model_call: all.clone(),
        pre_tool_call: all.clone(),
        post_tool_call: all.clone(),
        on_tool_error: all.clone(),
        on_finish: all.clone(),
    };
    let problems = problems(|harness| harness.middleware.hooks = everywhere);
    assert_eq!(problems.len(), 7 * all.len() - all.len());
    let misplaced = "middleware.hooks.on_start[0].type: repair_json belongs to post_model_call, \
                     not to on_start";
    assert!(problems.contains(&misplaced.to_owned()), "{problems:?}");
}

#[test]
fn the_task_template_names_the_problem_once() {
    let task = |text: &str| {
        let text = text.to_owned();
        problems(|harness| harness.prompts.task = text)
    };
    assert_eq!(
        task("Solve {{ problem }} with \\frac{{1}}{2} and {x}."),
        Vec::<String>::new()
    );
    assert!(task("Solve it.")[0].contains("exactly once, and occurs 0 times"));
    assert!(task("{{ problem }} {{ problem }}")[0].contains("occurs 2 times"));
    assert!(task("{{ problem }} {{question}}")[0].contains("{{question}} isn't known"));
    assert!(task("{{problem}}")[1].contains("the only slot is {{ problem }}, spelled so"));
}

#[test]
fn control_characters_are_found_in_every_text() {
    let bad = || "line\nwith \u{c}rac".to_owned();
    assert_one("prompts.system: control character U+000C in line 2", |h| {
        h.prompts.system = bad()
    });
    assert_one("final_answer: control", |h| {
        h.prompts.final_answer = "a\r\n".to_owned()
    });
    assert_one("examples[0].answer: control", |h| {
        h.prompts.examples[0].answer = bad()
    });
    assert_one("steps[0].result: control", |h| {
        h.prompts.examples[0].steps[0].result = bad()
    });
    assert_one("steps[0].arguments.code: control", |h| {
        h.prompts.examples[0].steps[0].arguments = BTreeMap::from([("code".to_owned(), bad())]);
    });
    assert_one("skills.unit-check.body: control", |h| {
        h.skills.get_mut("unit-check").unwrap().body = bad();
    });
    assert_one("tools.python.description: control", |h| {
        h.tools.get_mut("python").unwrap().description = bad();
    });
    assert_one("memory.entries[0]: control", |h| {
        h.memory.entries[0] = bad()
    });
    assert_one("hooks.on_tool_error[0].message: control", |h| {
        h.middleware.hooks.on_tool_error = vec![Hook::ErrorHint { message: bad() }];
    });
}

#[test]
fn numbers_are_in_range() {
    assert_one("max_turns: 0 is outside 1..=64", |h| {
        h.middleware.protocol.max_turns = 0
    });
    assert_one("max_turns: 65", |h| h.middleware.protocol.max_turns = 65);
    assert_one("temperature: NaN", |h| {
        h.middleware.sampling.temperature = f64::NAN
    });
    assert_one("temperature: inf", |h| {
        h.middleware.sampling.temperature = f64::INFINITY
    });
    assert_one("temperature: -0.1", |h| {
        h.middleware.sampling.temperature = -0.1
    });
    assert_one("top_p: 0 is", |h| h.middleware.sampling.top_p = 0.0);
    assert_one("min_p: -0.1 is outside 0..=1", |h| {
        h.middleware.sampling.min_p = -0.1
    });
    assert_one("min_p: 1.1", |h| h.middleware.sampling.min_p = 1.1);
    assert_one("min_p: NaN", |h| h.middleware.sampling.min_p = f64::NAN);
    assert_one("parallel_rollouts: 0", |h| {
        h.middleware.runtime.parallel_rollouts = 0
    });
    assert_one("leaves no prompt", |h| {
        h.middleware.context.max_tokens = 256
    });
    assert_one("timeout_ms: 0", |h| {
        h.tools.get_mut("python").unwrap().limits.timeout_ms = 0
    });
    assert_one("format 2 is unknown", |h| h.format = 2);
    assert_one("stop[0]: an empty stop", |h| {
        h.middleware.protocol.stop = vec![String::new()]
    });
}

#[test]
fn names_are_unique_known_and_fit_for_files() {
    assert_one("another example is called \"apples\"", |h| {
        let again = h.prompts.examples[0].clone();
        h.prompts.examples.push(again);
    });
    assert_one("examples[0].title: \"../x\" isn't a name", |h| {
        h.prompts.examples[0].title = "../x".to_owned();
    });
    assert_one("the harness has no tool \"sage\"", |h| {
        h.prompts.examples[0].steps[0].tool = "sage".parse().unwrap();
    });
    assert_one(
        "the name is \"other\" but the skill stands under \"unit-check\"",
        |h| {
            h.skills.get_mut("unit-check").unwrap().name = "other".to_owned();
        },
    );
    assert_one("name: the text has more than one line", |h| {
        h.name = "a\nb".to_owned()
    });
}

#[test]
fn memory_holds_no_more_than_its_capacity() {
    assert_one("1 entry, and the capacity is 0", |h| h.memory.capacity = 0);
    assert_one("kind none shows no entries", |h| {
        h.memory.kind = MemoryKind::None
    });
}

#[test]
fn parameters_are_an_object_schema_with_a_place_for_the_code() {
    let schema = |value| {
        problems(|harness| harness.tools.get_mut("python").unwrap().parameters = value).join("\n")
    };
    assert!(schema(json!({})).contains("parameters.type: the arguments of a call are an object"));
    let untyped = json!({ "type": "array", "properties": {} });
    assert!(schema(untyped).contains("parameters.type"));
    let unknown = json!({
        "type": "object",
        "properties": { "code": { "type": "string" } },
        "required": ["code", "speed"],
    });
    assert!(schema(unknown).contains("required[1]: there is no parameter \"speed\""));
    let no_code = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    assert!(schema(no_code).contains("needs a required parameter of type string"));
    let renamed = json!({
        "type": "object",
        "properties": { "program": { "type": "string" } },
        "required": ["program"],
    });
    assert_eq!(schema(renamed), "");
    let mut deep = json!(0);
    for _ in 0..40 {
        deep = json!([deep]);
    }
    let deep = json!({
        "type": "object",
        "properties": { "code": { "type": "string", "default": deep } },
        "required": ["code"],
    });
    assert!(schema(deep).contains("nested deeper than 32 levels"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn generated_harnesses_are_valid(harness in world::harness()) {
        prop_assert_eq!(validate(&harness), Ok(()));
    }
}
