//! `docs/harness.md` against the code: it has every field and every hook, and its examples are valid.
//!
//! The tables at its end are made from the schema; `UPDATE_DOCS=1 cargo test -p harness docs` writes
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use harness::{Hook, HookPoint, Patch, from_files, json_schema, naive, to_files};
use serde_json::Value;

const BEGIN: &str = "<!-- made from the schema, see harness/tests/all/docs.rs -->\n";
const END: &str = "<!-- end of what is made from the schema -->\n";

fn page_path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/harness.md"))
}

fn page() -> String {
    std::fs::read_to_string(page_path()).unwrap()
}

/// The schema a reference leads to.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(place) => resolved(root, root.pointer(place.trim_start_matches('#')).unwrap()),
        None => schema,
    }
}

/// A description in one line, without the code's own marks.
fn described(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line
        .replace("[`", "`")
        .replace("`]", "`")
        .replace('|', "\\|");
    line.replace("`Harness::skills`", "`skills`")
        .replace("`FORMAT`", "1")
        .replace("`PROBLEM_SLOT`", "`{{ problem }}`")
}

/// The values that an enumeration allows, with what they mean.
fn values(schema: &Value) -> Option<Vec<(String, String)>> {
    if let Some(names) = schema["enum"].as_array() {
        let name = |name: &Value| (name.as_str().unwrap().to_owned(), String::new());
        return Some(names.iter().map(name).collect());
    }
    let variants = schema["oneOf"].as_array()?.iter();
    variants
        .map(|variant| Some((variant["const"].as_str()?.to_owned(), described(variant))))
        .collect()
}

fn kind(root: &Value, schema: &Value) -> String {
    let schema = resolved(root, schema);
    if let Some(values) = values(schema) {
        let names: Vec<String> = values.iter().map(|(name, _)| format!("`{name}`")).collect();
        return names.join(", ");
    }
    match schema["type"].as_str() {
        Some("array") => match kind(root, &schema["items"]) {
            items if items.starts_with('`') => format!("list of {items}"),
            items => format!("list of {items}s"),
        },
        Some("object") if schema["additionalProperties"].is_object() => "map".into(),
        Some("object") => "object".into(),
        Some("string") => "text".into(),
        Some("integer") => "whole number".into(),
        Some("number") => "number".into(),
        Some("boolean") => "boolean".into(),
        _ if schema["oneOf"].is_array() => "hook".into(),
        other => panic!("no word for {other:?}: {schema}"),
    }
}

struct Row {
    path: String,
    kind: String,
    default: String,
    meaning: String,
}

/// Every field below a schema, in the document's order.
fn fields(root: &Value, schema: &Value, path: &str, rows: &mut Vec<Row>) {
    let schema = resolved(root, schema);
    if let Some(properties) = schema["properties"].as_object() {
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        for (name, field) in properties {
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            let target = resolved(root, field);
            let mut meaning = described(field);
            if let Some(values) = values(target) {
                let values = values.iter().filter(|(_, meaning)| !meaning.is_empty());
                for (name, text) in values {
                    write!(meaning, " `{name}`: {text}").unwrap();
                }
            }
            let default = match (&field["default"], required.contains(&name.as_str())) {
                (_, true) => "required".to_owned(),
                (Value::Null, false) => "may be left out".to_owned(),
                (Value::Object(map), false) if map.is_empty() => "empty".to_owned(),
                (Value::Object(_), false) => "its fields' own".to_owned(),
                (default, false) => format!("`{default}`"),
            };
            rows.push(Row {
                path: path.clone(),
                kind: kind(root, field),
                default,
                meaning,
            });
            // Hooks have a table of their own.
            if kind(root, field) != "list of hooks" {
                fields(root, field, &path, rows);
            }
        }
    }
    if schema["additionalProperties"].is_object() {
        fields(
            root,
            &schema["additionalProperties"],
            &format!("{path}.<name>"),
            rows,
        );
    }
    if schema["items"].is_object() {
        fields(root, &schema["items"], &format!("{path}[]"), rows);
    }
}

/// The tables of fields and of hooks.
fn reference() -> String {
    let root = json_schema();
    let mut rows = Vec::new();
    fields(&root, &root, "", &mut rows);
    let mut text = String::from("\n| Field | Type | Default | Meaning |\n|---|---|---|---|\n");
    for Row {
        path,
        kind,
        default,
        meaning,
    } in &rows
    {
        writeln!(text, "| `{path}` | {kind} | {default} | {meaning} |").unwrap();
    }
    text.push_str("\n| Hook | Stands at | Its fields | What it does |\n|---|---|---|---|\n");
    for variant in hooks(&root) {
        let mut meaning = described(&variant);
        let point = meaning.split(':').next().unwrap().to_owned();
        meaning = meaning[point.len() + 1..].trim().to_owned();
        let properties = variant["properties"].as_object().unwrap();
        let fields: Vec<String> = properties
            .iter()
            .filter(|(name, _)| *name != "type")
            .map(|(name, field)| {
                let meaning = described(field);
                format!("`{name}` ({}): {meaning}", kind(&root, field))
            })
            .collect();
        let name = properties["type"]["const"].as_str().unwrap();
        writeln!(
            text,
            "| `{name}` | {point} | {} | {meaning} |",
            fields.join(" ")
        )
        .unwrap();
    }
    text.push('\n');
    text
}

fn hooks(root: &Value) -> Vec<Value> {
    root["$defs"]["Hook"]["oneOf"].as_array().unwrap().clone()
}

#[test]
fn the_tables_are_those_of_the_schema() {
    let text = page();
    let (before, rest) = text.split_once(BEGIN).expect("the beginning of the tables");
    let (tables, after) = rest.split_once(END).expect("the end of the tables");
    let reference = reference();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let text = format!("{before}{BEGIN}{reference}{END}{after}");
        std::fs::write(page_path(), text).unwrap();
        return;
    }
    assert_eq!(tables, reference, "UPDATE_DOCS=1 writes the tables");
}

/// The guide, which people write, speaks of every field and value too.
#[test]
fn the_guide_has_every_field_and_every_value() {
    let text = page();
    let (guide, _) = text.split_once(BEGIN).unwrap();
    let words: BTreeSet<&str> = guide
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .collect();
    let root = json_schema();
    let mut names = BTreeSet::new();
    collect(&root, &mut names);
    let missing: Vec<&String> = names
        .iter()
        .filter(|name| !words.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    for hook in hooks(&root) {
        let name = hook["properties"]["type"]["const"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(names.contains(&name), "{name}");
    }
    for point in HookPoint::ALL {
        assert!(words.contains(point.name()), "{point}");
    }
}

/// Names of properties, and values of enumerations.
fn collect(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            let properties = map.get("properties").and_then(Value::as_object);
            names.extend(
                properties
                    .into_iter()
                    .flat_map(|properties| properties.keys().cloned()),
            );
            let value = map.get("const").and_then(Value::as_str);
            names.extend(value.map(str::to_owned));
            let list = map.get("enum").and_then(Value::as_array);
            let list = list.into_iter().flatten().filter_map(Value::as_str);
            names.extend(list.map(str::to_owned));
            map.values().for_each(|value| collect(value, names));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, names)),
        _ => {}
    }
}

/// Fenced blocks of a language with the heading that they stand under.
fn blocks(language: &str) -> Vec<(String, String)> {
    let text = page();
    let mut blocks = Vec::new();
    let mut heading = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with('#') {
            heading = line.trim_start_matches('#').trim().to_owned();
        }
        let fence: String = line.chars().take_while(|c| *c == '`').collect();
        if fence.len() < 3 {
            continue;
        }
        let content: Vec<&str> = lines.by_ref().take_while(|line| *line != fence).collect();
        if &line[fence.len()..] == language {
            blocks.push((heading.clone(), content.join("\n") + "\n"));
        }
    }
    blocks
}

fn block(language: &str, heading: &str) -> String {
    let found = blocks(language)
        .into_iter()
        .filter(|(under, _)| under == heading);
    found.map(|(_, text)| text).collect()
}

/// The harness that the page's examples make together.
fn files() -> BTreeMap<String, String> {
    let mut files = to_files(&naive().unwrap());
    let mut put = |name: &str, text: String| {
        assert!(!text.is_empty(), "no example for {name}");
        files.insert(name.into(), text);
    };
    put("harness.yaml", block("yaml", "harness.yaml"));
    put("tools/python.yaml", block("yaml", "tools/<name>.yaml"));
    put("memory.yaml", block("yaml", "memory.yaml"));
    put(
        "skills/percent/SKILL.md",
        block("markdown", "skills/<name>/SKILL.md"),
    );
    put(
        "skills/percent/skill.py",
        block("python", "skills/<name>/skill.py"),
    );
    let example = block("markdown", "prompts/examples/NN-title.md");
    put("prompts/examples/01-rolls.md", example);
    let hooks = block("yaml", "Hooks");
    let middleware = block("yaml", "middleware.yaml");
    let (before, after) = middleware
        .split_once("hooks: {}")
        .expect("a place for hooks");
    let (_, after) = after.split_once('\n').unwrap();
    put("middleware.yaml", format!("{before}{hooks}{after}"));
    files
}

#[test]
fn the_examples_are_a_valid_harness_with_every_hook() {
    let harness = from_files(&files()).unwrap();
    let shown: BTreeSet<&str> = HookPoint::ALL
        .into_iter()
        .flat_map(|point| harness.middleware.hooks.at(point))
        .map(Hook::kind)
        .collect();
    let root = json_schema();
    let all = hooks(&root);
    let all: BTreeSet<&str> = all
        .iter()
        .map(|hook| hook["properties"]["type"]["const"].as_str().unwrap())
        .collect();
    assert_eq!(shown, all);
    // No example of a language stands where this test doesn't read it.
    for (language, headings) in [
        (
            "yaml",
            &[
                "harness.yaml",
                "tools/<name>.yaml",
                "middleware.yaml",
                "Hooks",
                "memory.yaml",
            ][..],
        ),
        (
            "markdown",
            &["prompts/examples/NN-title.md", "skills/<name>/SKILL.md"],
        ),
        ("python", &["skills/<name>/skill.py"]),
        ("json", &["Patches"]),
    ] {
        for (heading, text) in blocks(language) {
            assert!(headings.contains(&heading.as_str()), "{heading}: {text}");
        }
    }
}

#[test]
fn the_patch_applies() {
    let patches = blocks("json");
    assert!(!patches.is_empty());
    for (_, text) in patches {
        Patch::from_json(&text)
            .unwrap()
            .apply(&naive().unwrap())
            .unwrap();
    }
}
