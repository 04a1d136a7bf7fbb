use harness::{Dimension, FieldPath, Segment};
use proptest::prelude::*;

fn path(text: &str) -> FieldPath {
    text.parse().unwrap()
}

#[test]
fn the_paper_s_own_form_reads_and_shows() {
    let text = "middleware.hooks.post_tool_call[0].type";
    let expected: Vec<Segment> = vec![
        "middleware".into(),
        "hooks".into(),
        "post_tool_call".into(),
        0.into(),
        "type".into(),
    ];
    assert_eq!(path(text).segments(), expected);
    assert_eq!(path(text).to_string(), text);
    assert_eq!(
        path("prompts.examples[2]").to_string(),
        "prompts.examples[2]"
    );
}

#[test]
fn keys_with_special_characters_are_quoted() {
    let odd = FieldPath::root().join("tools").join("a.b[0] \"c\"");
    assert_eq!(odd.to_string(), r#"tools["a.b[0] \"c\""]"#);
    assert_eq!(path(&odd.to_string()), odd);
    assert_eq!(
        path(r#"tools["python"].description"#),
        path("tools.python.description")
    );
}

#[test]
fn malformed_paths_are_refused() {
    for text in [
        "",
        ".a",
        "a.",
        "a..b",
        "a[",
        "a[]",
        "a[x]",
        "a[-1]",
        "a[+1]",
        "a[01]",
        "a[0",
        "a]",
        "a[0]b",
        "a b",
        "a[\"b]",
        "a[\"b\"",
        "a[99999999999999999999999]",
        "..",
    ] {
        let error = text.parse::<FieldPath>().unwrap_err();
        assert!(
            error.to_string().contains("isn't a field path"),
            "{text:?}: {error}"
        );
    }
}

#[test]
fn the_first_key_tells_the_dimension() {
    let dimensions = [
        "prompts",
        "tools.x",
        "skills[\"a b\"]",
        "middleware",
        "memory.entries[0]",
    ];
    let found: Vec<_> = dimensions
        .iter()
        .map(|text| Dimension::of(&path(text)))
        .collect();
    assert_eq!(found, Dimension::ALL.map(Some));
    for outside in ["name", "format", ".", "budget", "[0]"] {
        assert_eq!(Dimension::of(&path(outside)), None, "{outside}");
    }
    let names = serde_json::to_string(&Dimension::ALL).unwrap();
    assert_eq!(names, r#"["P","T","S","Mid","M"]"#);
}

proptest! {
    #[test]
    fn text_form_round_trips(path in any_path()) {
        let text = path.to_string();
        prop_assert_eq!(text.parse::<FieldPath>().unwrap(), path);
    }

    #[test]
    fn any_text_that_reads_shows_as_a_text_that_reads_the_same(text in "[a-c.\\[\\]\"0-2 ]{0,12}") {
        if let Ok(path) = text.parse::<FieldPath>() {
            prop_assert_eq!(path.to_string().parse::<FieldPath>().unwrap(), path);
        }
    }
}

fn any_path() -> impl Strategy<Value = FieldPath> {
    let segment = prop_oneof![
        any::<String>().prop_map(Segment::Key),
        "[a-z_]{1,8}".prop_map(Segment::Key),
        "[.\\[\\]\"\\\\ ]{0,4}".prop_map(Segment::Key),
        any::<usize>().prop_map(Segment::Index),
    ];
    proptest::collection::vec(segment, 0..6).prop_map(FieldPath::from_iter)
}
