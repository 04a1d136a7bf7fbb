//! What `--set` changes: one field, named by its path.

use serde_json::Value;

use super::{Config, ConfigError};

/// One `path=value` override; the value is JSON, a mapping or list in YAML's short form, or a word that
/// stands for itself.
pub(super) fn apply(config: &Config, setting: &str) -> Result<Config, ConfigError> {
    let fail = |reason: String| ConfigError::Override {
        setting: setting.to_owned(),
        reason,
    };
    let Some((path, value)) = setting.split_once('=') else {
        return Err(fail("expected path=value, as in run.seed=7".into()));
    };
    let value: Value = match serde_json::from_str(value) {
        Ok(value) => value,
        Err(_) if value.starts_with(['{', '[']) => {
            harness::yaml::from_str(value).map_err(|e| fail(e.to_string()))?
        }
        Err(_) => Value::from(value),
    };
    let mut document = serde_json::to_value(config).map_err(|e| fail(e.to_string()))?;
    let mut slot = &mut document;
    for (depth, key) in path.split('.').enumerate() {
        let known = match slot {
            Value::Object(map) if map.contains_key(key) => None,
            Value::Object(map) => Some(map.keys().cloned().collect::<Vec<_>>().join(", ")),
            other => {
                let place: Vec<&str> = path.split('.').take(depth).collect();
                let place = place.join(".");
                return Err(fail(format!(
                    "{place} is {other} and has no fields; set it as a whole, as in --set '{place}={{{key}: ...}}'"
                )));
            }
        };
        if let Some(known) = known {
            let parent: Vec<&str> = path.split('.').take(depth).collect();
            let place = if parent.is_empty() {
                "the configuration".into()
            } else {
                parent.join(".")
            };
            return Err(fail(format!("{place} has no field {key}; it has: {known}")));
        }
        slot = &mut slot[key];
    }
    if path == "policy.kind"
        && *slot != value
        && let Some(whole) = other_policy(&value)
    {
        return Err(fail(format!(
            "the fields of another kind of policy are others; set it as a whole, as in --set 'policy={whole}'"
        )));
    }
    *slot = value;
    serde_path_to_error::deserialize(document).map_err(|e| {
        let reason = e.inner().to_string();
        fail(format!("{}: {}", e.path(), plainly(&reason)))
    })
}

/// Whether a setting changes `field`, a part of it, or something that it is a part of.
pub(super) fn touches(setting: &str, field: &str) -> bool {
    let path = setting.split_once('=').map_or(setting, |(path, _)| path);
    let is_in = |part: &str, whole: &str| {
        let rest = part.strip_prefix(whole);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    is_in(path, field) || is_in(field, path)
}

/// A policy of this kind with all that it needs.
fn other_policy(kind: &Value) -> Option<&'static str> {
    match kind.as_str()? {
        "local" => Some("{kind: local}"),
        "openai" => Some("{kind: openai, base_url: ..., model: ...}"),
        _ => None,
    }
}

/// What serde says of a value of a wrong type, in the words that are used of a file.
fn plainly(reason: &str) -> String {
    let wrong = ["invalid type: ", "invalid value: "];
    let wrong = wrong.iter().find_map(|start| reason.strip_prefix(start));
    let Some((_, expected)) = wrong.and_then(|rest| rest.rsplit_once(", expected ")) else {
        return reason.to_owned();
    };
    let said = match expected {
        "u32" => "a whole number, at least 0 and below 2^32",
        "u64" | "usize" => "a whole number, at least 0 and below 2^64",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "a text",
        "a sequence" => "a list",
        other if other.starts_with("struct ") => "fields, as in {name: value}",
        _ => return reason.to_owned(),
    };
    format!("expected {said}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Objective, PolicyConfig};

    fn plain() -> Config {
        let text = "
run: {name: small}
model: {path: m.gguf}
tasks: {path: t.jsonl, verifier: integer, splits: {evolve: 1, gate: 4, test: 1}}
harness: naive
budget: {tokens_per_problem: 1, seconds_per_problem: 1}
";
        harness::yaml::from_str(text).expect("a configuration")
    }

    fn set(setting: &str) -> Config {
        apply(&plain(), setting).unwrap_or_else(|error| panic!("{error}"))
    }

    fn refused(setting: &str) -> String {
        let error = apply(&plain(), setting).expect_err("refused");
        assert!(matches!(error, ConfigError::Override { .. }), "{error}");
        let told = error.to_string();
        let reason = told.strip_prefix(&format!("--set {setting}: "));
        reason.expect("the setting comes first").to_owned()
    }

    #[test]
    fn a_value_is_json_or_a_word_that_stands_for_itself() {
        assert_eq!(set("run.seed=7").run.seed, 7);
        assert_eq!(set("run.name=other").run.name, "other");
        // As JSON it is a text too.
        assert_eq!(set("run.name=\"7\"").run.name, "7");
        assert_eq!(set("harness=").harness, "");
        assert_eq!(set("harness=a=b").harness, "a=b");
        let rate = set("model_loop.sft.learning_rate=2e-4").model_loop.sft;
        assert_eq!(rate.learning_rate, Some(2e-4));
        let none = apply(&set("budget.run_seconds=9"), "budget.run_seconds=null");
        assert_eq!(none.expect("set").budget.run_seconds, None);
    }

    #[test]
    fn lists_and_mappings_may_be_in_short_form() {
        for list in ["[\"a.jsonl\", \"b.jsonl\"]", "[a.jsonl, b.jsonl]"] {
            let also = set(&format!("tasks.also={list}")).tasks.also;
            assert_eq!(also, ["a.jsonl", "b.jsonl"]);
        }
        let under = set("objective={accuracy_under: {tokens_per_problem: 300}}");
        assert!(matches!(under.objective, Objective::AccuracyUnder(_)));
        // Set as a whole, a section takes its defaults, and so does a value of another kind.
        let served = set("policy={kind: openai, base_url: 'http://h/v1', model: m}");
        let PolicyConfig::Openai { in_flight, .. } = served.policy else {
            panic!("{:?}", served.policy);
        };
        assert_eq!(in_flight, 256);
        let broken = refused("tasks.also=[a.jsonl");
        assert!(!broken.contains("invalid type"), "{broken}");
    }

    #[test]
    fn only_the_named_field_changes() {
        let mut expected = plain();
        expected.model_loop.sft.rank = 4;
        assert_eq!(set("model_loop.sft.rank=4"), expected);
        assert_eq!(set("run.seed=0"), plain());
    }

    #[test]
    fn a_path_that_leads_nowhere_is_told_with_what_there_is() {
        assert_eq!(refused("run.seed"), "expected path=value, as in run.seed=7");
        assert_eq!(
            refused("run.sed=7"),
            "run has no field sed; it has: name, seed, rounds, matrix"
        );
        let top = refused("runs.seed=7");
        assert!(
            top.starts_with("the configuration has no field runs; it has: run, model, "),
            "{top}"
        );
        assert!(refused("=7").starts_with("the configuration has no field ; it has: "));
        // Fields of another kind of policy are none of this one.
        assert_eq!(
            refused("policy.in_flight=2"),
            "policy has no field in_flight; it has: kind, cache_mib"
        );
        for kind in ["openai", "local"] {
            let served = set("policy={kind: openai, base_url: 'http://h/v1', model: m}");
            let from = if kind == "local" { served } else { plain() };
            let setting = format!("policy.kind={kind}");
            let error = apply(&from, &setting).expect_err("refused").to_string();
            let whole = format!("set it as a whole, as in --set 'policy={{kind: {kind}");
            assert!(error.contains(&whole), "{error}");
        }
        assert_eq!(set("policy.kind=local"), plain());
        let unknown = refused("policy.kind=remote");
        assert!(unknown.contains("unknown variant `remote`"), "{unknown}");
        for setting in ["run.seed.low=7", "tasks.also.0=a.jsonl"] {
            let told = refused(setting);
            assert!(told.contains("has no fields; set it as a whole"), "{told}");
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_told_with_its_field() {
        for (setting, field) in [
            ("run.seed=seven", "run.seed: "),
            ("run.seed=-1", "run.seed: "),
            ("run.name=7", "run.name: "),
            (
                "model_loop.sft={rank: 4, ranks: 4}",
                "model_loop.sft.ranks: ",
            ),
            (
                "model_loop.sft.targets=[q_proj, lm_head]",
                "model_loop.sft.targets[1]",
            ),
        ] {
            let told = refused(setting);
            assert!(told.starts_with(field), "{told}");
        }
    }

    #[test]
    fn what_does_not_fit_is_told_in_the_words_of_a_file() {
        for (setting, expected) in [
            ("run.seed=-1", "a whole number, at least 0 and below 2^64"),
            (
                "run.rounds=2.5",
                "a whole number, at least 0 and below 2^32",
            ),
            (
                "gate.tasks=many",
                "a whole number, at least 0 and below 2^64",
            ),
            ("model_loop.sft.dropout=none", "a number"),
            ("model_loop.is_enabled=yes", "true or false"),
            ("run.name=[a]", "a text"),
            ("tasks.also=a.jsonl", "a list"),
            ("budget=7", "fields, as in {name: value}"),
        ] {
            let (field, _) = setting.split_once('=').expect("a value");
            let told = format!("{field}: expected {expected}");
            assert_eq!(refused(setting), told, "{setting}");
        }
    }

    #[test]
    fn a_setting_touches_a_field_its_parts_and_what_it_is_a_part_of() {
        let touched = |field| touches("tasks.splits=1", field);
        assert!(touched("tasks.splits") && touched("tasks.splits.gate") && touched("tasks"));
        assert!(!touched("tasks.splitsize") && !touched("tasks.path") && !touched("task"));
    }
}
