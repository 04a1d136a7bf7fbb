//! Small inputs that broke other systems, through the readers that users meet.

use harness::{Memory, Sampling, ToolLimits, json, yaml};
use serde_json::Value;

fn limits(text: &str) -> Result<ToolLimits, String> {
    yaml::from_str(text).map_err(|error| error.to_string())
}

fn entries(entry: &str) -> Result<Vec<String>, String> {
    yaml::from_str::<Memory>(&format!(
        "kind: notes\ncapacity: 4\nentries:\n  - {entry}\n"
    ))
    .map(|memory| memory.entries)
    .map_err(|error| error.to_string())
}

/// Reads one number where the document wants a finite one.
fn temperature(number: &str) -> Result<f64, String> {
    yaml::from_str::<Sampling>(&format!("temperature: {number}\ntop_p: 1\n"))
        .map(|sampling| sampling.temperature)
        .map_err(|error| error.to_string())
}

#[test]
fn an_id_that_looks_like_a_number_stays_text() {
    assert_eq!(entries("1234e56").unwrap(), ["1234e56"]);
    assert_eq!(entries("1234567").unwrap(), ["1234567"]);
    assert_eq!(entries("0o17").unwrap(), ["0o17"]);
    assert_eq!(entries("no").unwrap(), ["no"]);
    assert_eq!(
        yaml::from_str::<Value>("a: no\n").unwrap(),
        serde_json::json!({ "a": "no" })
    );
}

#[test]
fn a_large_integer_stays_exact_or_is_a_range_error() {
    let text = "timeout_ms: 12345678901234567890\n";
    assert_eq!(limits(text).unwrap().timeout_ms, 12_345_678_901_234_567_890);
    let error = limits("timeout_ms: 12345678901234567890123\n").unwrap_err();
    assert!(error.starts_with("line 1, column 13: "), "{error}");
    let read = |text: &str| json::from_str::<ToolLimits>(text);
    let exact = read(r#"{"timeout_ms": 12345678901234567890}"#).unwrap();
    assert_eq!(exact.timeout_ms, 12_345_678_901_234_567_890);
    let error = read(r#"{"timeout_ms": 12345678901234567890123}"#).unwrap_err();
    assert!(error.to_string().starts_with("timeout_ms: "), "{error}");
}

#[test]
fn numbers_are_finite() {
    for number in [
        ".nan", ".NaN", ".inf", "-.inf", "+.inf", "1e400", "-1e400", "~", "warm",
    ] {
        let error = temperature(number).unwrap_err();
        assert!(
            error.starts_with("line 1, column 14: "),
            "{number}: {error}"
        );
    }
    assert_eq!(temperature("0.7").unwrap(), 0.7);
    assert_eq!(temperature("1").unwrap(), 1.0);
    assert!(yaml::from_str::<Value>("a: .nan\n").is_err());
    for text in ["NaN", "Infinity", "1e400", "-1e400"] {
        assert!(json::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_key_that_occurs_twice_is_an_error_with_key_and_line() {
    let protocol = "call_format: json\nmax_tokens_per_turn: 9\nmax_turns: 8\nmax_turns: 80\n";
    let error = yaml::from_str::<harness::Protocol>(protocol).unwrap_err();
    assert_eq!(error.line, 4);
    assert!(error.reason.contains("max_turns"), "{error}");
    let error = yaml::from_str::<Value>("a:\n  b: 1\n  b: 2\n").unwrap_err();
    assert_eq!(error.line, 3);
    assert!(error.reason.contains('b'), "{error}");

    let error = json::parse("{\"path\":\"a\",\n\"path\":\"b\"}").unwrap_err();
    let json::JsonError::Syntax { line, reason, .. } = error else {
        panic!("{error}")
    };
    assert_eq!((line, reason.as_str()), (2, "key \"path\" occurs twice"));
    assert!(json::parse(r#"[{"a": {"b": 1, "b": 1}}]"#).is_err());
    assert!(json::parse(r#"[{"b": 1}, {"b": 1}]"#).is_ok());
}

#[test]
fn a_line_is_read_after_a_mark_and_is_nothing_where_it_is_blank() {
    let one = serde_json::json!({"a": 1});
    for line in ["{\"a\": 1}", "\u{feff}{\"a\": 1}\r\n", "  {\"a\": 1} "] {
        assert_eq!(json::parse_line(line), Ok(Some(one.clone())), "{line:?}");
    }
    for blank in ["", "\n", " \t\r\n", "\u{feff}\n"] {
        assert_eq!(json::parse_line(blank), Ok(None), "{blank:?}");
    }
    for (line, error) in [
        ("no", "column 2: can't be read as JSON: expected ident"),
        (
            "\u{feff}  ?",
            "column 3: can't be read as JSON: expected value",
        ),
        (
            "[1] 2",
            "column 5: can't be read as JSON: trailing characters",
        ),
    ] {
        let refused = json::parse_line(line).unwrap_err();
        assert_eq!(refused.to_string(), error);
    }
    let twice = json::parse_line(r#"{"a": 1, "a": 1}"#).unwrap_err();
    assert_eq!(twice.reason, "key \"a\" occurs twice");
}

#[test]
fn what_is_wrong_is_said_without_options_of_the_library_and_types_of_rust() {
    let protocol = |max_turns: &str| {
        let text = format!("call_format: json\nmax_tokens_per_turn: 9\nmax_turns: {max_turns}\n");
        yaml::from_str::<harness::Protocol>(&text)
            .unwrap_err()
            .reason
    };
    for number in ["-1", "many", "99999999999"] {
        assert_eq!(
            protocol(number),
            "expected a whole number, at least 0 and below 2^32",
            "{number}"
        );
    }
    assert_eq!(
        protocol("8\nmax_turns: 9"),
        "key \"max_turns\" occurs twice"
    );
    let memory = |text: &str| yaml::from_str::<Memory>(text).unwrap_err().reason;
    assert_eq!(memory("- a\n"), "expected fields, as in name: value");
    assert_eq!(
        memory("kind: notes\ncapacity: 4\nentries: a\n"),
        "expected a list"
    );
    assert_eq!(
        memory("kind: notes\ncapacity: 4\nentries: [{a: b}]\n"),
        "expected a text"
    );
    assert_eq!(
        temperature("warm").unwrap_err(),
        "line 1, column 14: expected a number"
    );
}

#[test]
fn plain_text_that_yaml_would_alter_is_refused_with_a_position() {
    let error = entries("{{question}}").unwrap_err();
    assert!(error.starts_with("line 4, column 5: "), "{error}");
    let description = |text: &str| {
        let text = format!("format: 1\nname: n\ndescription: {text}\n");
        yaml::from_str::<std::collections::BTreeMap<String, String>>(&text).unwrap_err()
    };
    let error = description("a: b");
    assert_eq!(error.line, 3, "{error}");
    let error = yaml::from_str::<Value>("k:\n\tv: 1\n").unwrap_err();
    assert_eq!((error.line, error.column > 0), (2, true), "{error}");
}

#[test]
fn a_backslash_escape_in_double_quotes_reaches_validation_as_a_control_character() {
    let decoded = entries("\"\\frac{1}{2}\"").unwrap();
    assert_eq!(decoded, ["\u{c}rac{1}{2}"]);
    let mut harness = harness::naive().unwrap();
    harness.memory.kind = harness::MemoryKind::Notes;
    harness.memory.capacity = 1;
    harness.memory.entries = decoded;
    let problems = harness::validate(&harness).unwrap_err();
    assert!(
        problems[0].reason.contains("control character U+000C"),
        "{problems:?}"
    );
}

#[test]
fn merge_keys_unknown_tags_and_second_documents_are_refused() {
    for text in [
        "base: &b {x: 1}\nown:\n  <<: *b\n",
        "a: !secret x\n",
        "a: 1\n---\na: 2\n",
        "a: *missing\n",
        "a: [1\n",
    ] {
        let error = yaml::from_str::<Value>(text).unwrap_err();
        assert!(error.line > 0, "{text:?}: {error}");
    }
    let memory = "kind: none\ncapacity: 0\n";
    let error = |text: &str| yaml::from_str::<Memory>(text).unwrap_err().to_string();
    assert_eq!(
        error(&format!("{memory}---\n{memory}")),
        "line 4, column 1: a second document begins here, and a file holds one"
    );
    let merged = error(&format!("<<: {{shown: 1}}\n{memory}"));
    assert!(
        merged.ends_with(": `<<` isn't read; write the fields out"),
        "{merged}"
    );
}

#[test]
fn a_file_without_anything_is_said_to_be_empty() {
    for text in ["", "\n \n"] {
        let error = yaml::from_str::<Memory>(text).unwrap_err();
        assert_eq!(error.reason, "the file is empty", "{text:?}");
    }
}

#[test]
fn json_errors_tell_line_and_column_once() {
    let error = json::parse("{\"a\": 1,\n  oops}").unwrap_err().to_string();
    assert_eq!(error, "line 2, column 3: key must be a string");
    assert!(
        json::parse("1 2")
            .unwrap_err()
            .to_string()
            .contains("trailing characters")
    );
    let error = json::from_str::<ToolLimits>(r#"{"memory_mib": -1}"#).unwrap_err();
    assert!(
        error.to_string().starts_with("memory_mib: invalid value"),
        "{error}"
    );
}
