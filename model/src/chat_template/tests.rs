use super::*;
use serde_json::json;
use std::time::{Duration, UNIX_EPOCH};

fn variables() -> Map<String, Value> {
    Map::new()
}

fn render(source: &str, messages: Value) -> Result<String, ChatTemplateError> {
    let messages = messages.as_array().cloned().expect("valid");
    ChatTemplate::new(source)?.render(&messages, None, false, &variables())
}

fn text(source: &str) -> String {
    render(source, json!([])).expect("valid")
}

fn marked(source: &str, messages: &Value, special_tokens: &[&str]) -> Rendered {
    let special_tokens: Vec<String> = special_tokens.iter().map(|t| (*t).to_owned()).collect();
    let input = RenderInput {
        messages: messages.as_array().expect("valid"),
        tools: None,
        add_generation_prompt: false,
        variables: &variables(),
        special_tokens: &special_tokens,
    };
    ChatTemplate::new(source)
        .expect("valid")
        .render_marked(&input)
        .expect("valid")
}

fn generated(rendered: &Rendered) -> Vec<&str> {
    rendered
        .generation
        .iter()
        .map(|range| &rendered.text[range.clone()])
        .collect()
}

#[test]
fn tojson_writes_what_python_writes() {
    let tools: Value = serde_json::from_str(
        r#"[{"type": "function", "function": {"name": "py", "description": "a < b & 'c' é",
            "parameters": {"z": 1, "a": 2}}}]"#,
    )
    .expect("valid");
    let dump = |source: &str| {
        let template = ChatTemplate::new(source).expect("valid");
        template
            .render(&[], Some(&tools), false, &variables())
            .expect("valid")
    };
    assert_eq!(
        dump("{{ tools[0] | tojson }}"),
        r#"{"type": "function", "function": {"name": "py", "description": "a < b & 'c' é", "parameters": {"z": 1, "a": 2}}}"#
    );
    assert_eq!(
        dump("{{ tools[0].function.parameters | tojson(indent=4) }}"),
        "{\n    \"z\": 1,\n    \"a\": 2\n}"
    );
    assert_eq!(
        dump(
            "{{ tools[0].function | tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) }}"
        ),
        r#"{"description":"a < b & 'c' \u00e9","name":"py","parameters":{"a":2,"z":1}}"#
    );
    assert_eq!(
        text(r#"{{ [1.0, 1e16, 0.0001, 0.00001, -2.5e-7, 1e22, none, true, {}, []] | tojson }}"#),
        "[1.0, 1e+16, 0.0001, 1e-05, -2.5e-07, 1e+22, null, true, {}, []]"
    );
    assert_eq!(
        text(r#"{{ "\u0001\b\f\n\r\t\"\\/\u007f😀" | tojson }}"#),
        "\"\\u0001\\b\\f\\n\\r\\t\\\"\\\\/\u{7f}😀\""
    );
    assert_eq!(text("{{ '😀' | tojson(true) }}"), r#""\ud83d\ude00""#);
    assert!(render("{{ missing | tojson }}", json!([])).is_err());
}

#[test]
fn values_print_as_in_python() {
    assert_eq!(
        text("{{ true }} {{ none }} {{ 1.0 }} {{ 1e16 }} {{ ['a', 1] }} {{ missing }}|"),
        "True None 1.0 1e+16 ['a', 1] |"
    );
    assert_eq!(text("{{ '<&>' }}{{ '<' | e }}"), "<&>&lt;");
}

#[test]
fn undefined_is_falsy_and_has_no_fields() {
    assert_eq!(
        text("{% if missing %}a{% else %}b{% endif %}{{ missing is defined }}"),
        "bFalse"
    );
    assert_eq!(
        text("{% for x in missing %}a{% endfor %}{{ missing | length }}"),
        "0"
    );
    for source in [
        "{{ missing.field }}",
        "{{ missing['field'] }}",
        "{{ 'a' + missing }}",
    ] {
        assert!(matches!(
            render(source, json!([])),
            Err(ChatTemplateError::Render { line: 1, .. })
        ));
    }
    // Absent tools are none, as in transformers.
    assert_eq!(
        text("{{ tools is none }}{{ tools is defined }}"),
        "TrueTrue"
    );
}

#[test]
fn string_methods_follow_python() {
    for (expression, expected) in [
        (r"'a</think>\n\nb'.split('</think>')[-1].lstrip('\n')", "b"),
        (r"'\x1c a\x1f'.strip()", "a"),
        ("' a  b '.split()", "['a', 'b']"),
        ("' a  b  c '.split(none, 1)", "['a', 'b  c ']"),
        ("' a  b  c '.rsplit(maxsplit=1)", "[' a  b', 'c']"),
        ("'a,b,c'.split(',', 1)", "['a', 'b,c']"),
        ("'a,b,c'.rsplit(',', 1)", "['a,b', 'c']"),
        ("''.split(',')", "['']"),
        (r"'a\r\nb\x0bc\n'.splitlines()", "['a', 'b', 'c']"),
        (r"'a\r\nb'.splitlines(keepends=true)", r"['a\r\n', 'b']"),
        ("'k=v=w'.partition('=')", "('k', '=', 'v=w')"),
        ("'k=v=w'.rpartition('=')", "('k=v', '=', 'w')"),
        ("'abc'.removeprefix('a').removesuffix('c')", "b"),
        ("\"they're\".title()", "They'Re"),
        (r"'\xa0 x ' | trim", "x"),
        ("none is iterable", "False"),
        ("'a' is sequence", "True"),
    ] {
        assert_eq!(
            text(&format!("{{{{ {expression} }}}}")),
            expected,
            "{expression}"
        );
    }
}

#[test]
fn blocks_are_trimmed_and_loops_controlled() {
    let source = "  {% for x in [1, 2, 3] %}\n  {% if x == 2 %}{% continue %}{% endif %}\n  \
                  {{ x }}\r\n  {% if x == 3 %}\n{% break %}{% endif %}\n  {% endfor %}\nend\n";
    assert_eq!(text(source), "  1\n  3\nend");
}

#[test]
fn generation_blocks_become_byte_ranges() {
    // The template of mitsuhiko/minijinja#815.
    let source = "{% for m in messages %}{% if m.role=='assistant' %}{% generation %}\
                  {{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
    let messages = json!([
        {"role": "user", "content": "é"}, {"role": "assistant", "content": "x"},
        {"role": "user", "content": "y"}, {"role": "assistant", "content": "\u{100000}é"},
        {"role": "assistant", "content": ""},
    ]);
    let rendered = marked(source, &messages, &[]);
    assert_eq!(rendered.text, "éxy\u{100000}é");
    assert_eq!(generated(&rendered), ["x", "\u{100000}é"]);
    assert!(ChatTemplate::new(source).expect("valid").has_generation());
    assert!(!ChatTemplate::new("x").expect("valid").has_generation());
}

#[test]
fn generation_blocks_keep_scope_and_white_space() {
    let source = "{% set a = 1 %}\n  {% generation %}\n{% set a = 2 %}\n b{{ a }}\n  \
                  {%- endgeneration -%}\n  {{ a }}\n";
    let rendered = marked(source, &json!([]), &[]);
    assert_eq!(rendered.text, " b21");
    assert_eq!(generated(&rendered), [" b2"]);

    let through_macro = "{% macro turn(m) %}[{% generation %}{{ m }}{% endgeneration %}]\
                         {% endmacro %}{% set s %}{{ turn('a') }}{{ turn('b') }}{% endset %}\
                         {{ s | upper }}";
    let rendered = marked(through_macro, &json!([]), &[]);
    assert_eq!(
        (rendered.text.as_str(), generated(&rendered)),
        ("[A][B]", vec!["A", "B"])
    );

    let cut = "{% set s %}{% generation %}abc{% endgeneration %}{% endset %}{{ s[:2] }}";
    assert!(matches!(
        render(cut, json!([])),
        Err(ChatTemplateError::BrokenGeneration)
    ));
}

/// Keeps thinking only after the last user message, as Qwen3 does.
const KEEPS_LAST_THINKING: &str = "\
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
    {%- set content = m.content %}
    {%- if m.role == 'assistant' %}
        {%- if loop.index0 < ns.last %}{% set content = content.split('</think>')[-1] %}{% endif %}
        {{- '<a>' }}
        {%- generation %}{{ content + '<eot>' }}{% endgeneration %}
    {%- else %}
        {{- '<u>' + content + '<eot>' }}
    {%- endif %}
{%- endfor %}";

#[test]
fn the_mask_belongs_to_the_final_rendering() {
    let messages = json!([
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>t1</think>x"},
        {"role": "user", "content": "b"}, {"role": "assistant", "content": "<think>t2</think>y"},
    ]);
    let rendered = marked(KEEPS_LAST_THINKING, &messages, &[]);
    assert_eq!(
        rendered.text,
        "<u>a<eot><a>x<eot><u>b<eot><a><think>t2</think>y<eot>"
    );
    assert_eq!(generated(&rendered), ["x<eot>", "<think>t2</think>y<eot>"]);
}

#[test]
fn special_tokens_in_messages_are_literal() {
    let messages = json!([
        {"role": "user", "content": "hi<eot><a>"},
        {"role": "assistant", "content": "<eot>yo", "tool_calls": [{"<u>": 1}]},
    ]);
    let source = KEEPS_LAST_THINKING.to_owned() + "{{ messages[1].tool_calls | tojson }}";
    let rendered = marked(&source, &messages, &["<eot>", "<a>", "<u>"]);
    assert_eq!(
        rendered.text,
        "<u>hi<eot><a><eot><a><eot>yo<eot>[{\"<u>\": 1}]"
    );
    assert_eq!(rendered.literal, [5..10, 10..13, 21..26, 36..39]);
    assert_eq!(generated(&rendered), ["<eot>yo<eot>"]);
    let escaped = "{{ messages | tojson(ensure_ascii=true) }}";
    let rendered = marked(escaped, &json!([{"content": "é<eot>"}]), &["<eot>"]);
    assert_eq!(rendered.text, r#"[{"content": "\u00e9<eot>"}]"#);
    assert_eq!(rendered.literal.as_slice(), std::slice::from_ref(&(20..25)));
    // What the template adds is its own, and without a list nothing is literal.
    assert!(marked(&source, &messages, &[]).literal.is_empty());
}

#[test]
fn templates_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<ChatTemplate>();
    shared::<crate::tokenizer::Tokenizer>();
}

#[test]
fn refusals_carry_the_words_of_the_template() {
    match render("\n{{ raise_exception('no ' ~ 'way') }}", json!([])) {
        Err(ChatTemplateError::Refused { message }) => assert_eq!(message, "no way"),
        other => panic!("{other:?}"),
    }
    // Inside a macro too.
    let nested = "{% macro f() %}{{ raise_exception('x') }}{% endmacro %}{{ f() }}";
    assert!(matches!(
        render(nested, json!([])),
        Err(ChatTemplateError::Refused { .. })
    ));
}

#[test]
fn time_is_what_the_caller_says() {
    let source = "{{ strftime_now('%Y') }}";
    let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let template = ChatTemplate::new(source).expect("valid").with_now(now);
    assert_eq!(
        template
            .render(&[], None, false, &variables())
            .expect("valid"),
        "2023"
    );
    assert!(render(source, json!([])).is_err());
    let with_default =
        "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}2024{% endif %}";
    assert_eq!(text(with_default), "2024");
}

#[test]
fn missing_constructs_are_reported_when_loading_with_their_line() {
    for (source, line, what) in [
        ("\n{{ x | wordcount }}", 2, "filter \"wordcount\""),
        ("{% if x\n is prime %}{% endif %}", 2, "test \"prime\""),
        ("\n\n{{ x.zfill(3) }}", 3, "method \"zfill\""),
        ("{{ lipsum() }}", 1, "function \"lipsum\""),
        (
            "a\n{% include 'other' %}",
            2,
            "tag that needs another template \"include\"",
        ),
        (
            "{% filter wordcount %}{% endfilter %}",
            1,
            "filter \"wordcount\"",
        ),
        ("\n{% generation %}", 2, "generation without endgeneration"),
    ] {
        match ChatTemplate::new(source) {
            Err(ChatTemplateError::Unsupported {
                line: found,
                construct,
            }) => {
                assert_eq!((found, construct.as_str()), (line, what), "{source}");
            }
            other => panic!("{source}: {other:?}"),
        }
    }
    for (source, line) in [
        ("\n{% nonsense %}", 2),
        ("{{ x", 1),
        ("a\n{% if x %}\nb", 3),
    ] {
        match ChatTemplate::new(source) {
            Err(ChatTemplateError::Syntax { line: found, .. }) => assert_eq!(found, line),
            other => panic!("{source}: {other:?}"),
        }
    }
    // Guarded, defined or merely mentioned names are fine.
    for source in [
        "{% if f is defined %}{{ f() }}{% endif %}",
        "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(1) }}",
        "{% for x in messages recursive %}{{ loop(x) }}{% endfor %}",
        "{# {{ x | nothing }} #}{% raw %}{{ x | nothing }}{% endraw %}{{ 'x | nothing' }}",
    ] {
        assert!(ChatTemplate::new(source).is_ok(), "{source}");
    }
}
