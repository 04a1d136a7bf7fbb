//! Whatever text comes in, the readers of this crate neither panic nor take long, and say the same of
//! the same text. Streams and replies of servers have such tests where they are read.

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use harness::json;
use model::chat_template::{ChatTemplate, RenderInput};
use proptest::prelude::*;
use rollout::protocol::{Leniency, read_arguments, unreadable_arguments};
use rollout::verifier::code::{CodeLimits, cases};
use rollout::{Columns, VerifierKind, load_tasks, verifier};
use serde_json::{Map, Value};

/// Longest time for one input.
const MOST: Duration = Duration::from_millis(100);

/// Parts that make readers of answers work.
const PARTS: [&str; 78] = [
    "\\boxed{",
    "\\boxed{1}",
    "}",
    "{",
    "$",
    "\\(",
    "\\)",
    "\\[",
    "\\]",
    "<answer>",
    "</answer>",
    "<think>",
    "</think>",
    "answer is ",
    "Answer: ",
    "####",
    "\n",
    " ",
    ",",
    "1,000",
    "0.5",
    "-3",
    "\\frac{1}{2}",
    "\\frac",
    "\\sqrt{",
    "^",
    "_",
    "^{9^{9",
    "x",
    "f(x)",
    "=",
    "\\le ",
    "\\pm ",
    "\\pi",
    "%",
    "\\%",
    "\\text{ cm}",
    " or ",
    " and ",
    "\\begin{pmatrix}",
    "&",
    "\\\\",
    "\\end{pmatrix}",
    "\\cup",
    "é",
    "\u{0}",
    "```python\n",
    "```\n",
    "-\\boxed{1}",
    "\\boxed 1",
    "\u{8}oxed{",
    "not ",
    "negative ",
    " million",
    " squared",
    "0.\\dot{3}",
    "0.333...",
    "0.(3)",
    "\\ldots",
    "\\gcd(",
    "max{",
    "{4 \\choose 2}",
    "\\over ",
    "C(4,2)",
    "_{4}",
    "!!",
    "]0,1[",
    "\\setminus",
    "\\{x : x>",
    "x<1 or x>2",
    "5 km/h",
    "2 hours 5 minutes",
    "10¹²",
    "³√",
    "\\color{",
    "<thought>",
    "</reasoning>",
    "<|channel|>final<|message|>",
];

/// Processor time of this thread: other work on the machine is no fault of a reader.
pub(crate) fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a count"))
}

/// What `work` comes to, which must be soon and the same again.
fn soon<T: PartialEq + std::fmt::Debug>(work: impl Fn() -> T) -> Result<T, TestCaseError> {
    let started = processor_time();
    let result = work();
    let took = processor_time() - started;
    prop_assert!(took < MOST, "{took:?}");
    prop_assert_eq!(&work(), &result);
    Ok(result)
}

fn parts() -> impl Strategy<Value = String> {
    let part = proptest::sample::select(&PARTS[..]);
    proptest::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

/// JSON with the names that data sets use.
fn rows() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}|####|[0-9,]{1,9}|stdin".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 30, 4, |inner| {
        let names = [
            "id", "problem", "question", "answer", "tests", "stdin", "stdout", "input", "output",
            "inputs", "outputs", "code", "testtype", "x",
        ];
        let name = proptest::sample::select(names.to_vec());
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((name, inner), 0..5).prop_map(|fields| {
                let fields = fields.into_iter();
                Value::Object(
                    fields
                        .map(|(name, value)| (name.to_owned(), value))
                        .collect(),
                )
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_answer_is_judged(gold in parts(), text in parts(), any in "\\PC{0,80}") {
        for kind in [
            VerifierKind::Integer,
            VerifierKind::Numeric { tolerance: 0.01 },
            VerifierKind::Math,
            VerifierKind::Exact,
        ] {
            let verifier = verifier::pure(&kind).expect("a pure kind");
            for (gold, text) in [(&gold, &text), (&text, &gold), (&gold, &any), (&any, &any)] {
                soon(|| verifier.extract(text))?;
                let verdict = soon(|| verifier.verify(gold, text))?;
                prop_assert!(!(verdict.correct && verdict.undecided));
            }
            soon(|| verifier.can_read(&gold))?;
        }
    }

    #[test]
    fn any_text_has_a_program_or_none(text in parts(), any in any::<String>()) {
        let verifier = verifier::build(&VerifierKind::Code(CodeLimits::default()), None);
        for text in [&text, &any] {
            soon(|| verifier.extract(text))?;
            soon(|| verifier.can_read(text))?;
        }
    }

    #[test]
    fn any_program_is_found_in_its_block(
        program in "[ -~é\n\t]{1,120}",
        before in "[a-z .\n]{0,30}",
        indent in " {0,4}",
    ) {
        prop_assume!(!program.trim().is_empty());
        // A fence longer than any in the program.
        let fence = "`".repeat(program.matches('`').count().max(2) + 1);
        prop_assume!(!before.contains('`'));
        let lines: String = program.lines().map(|line| format!("{indent}{line}\n")).collect();
        let text = format!("{before}\n{indent}{fence}python\n{lines}{indent}{fence}\nDone.");
        let verifier = verifier::build(&VerifierKind::Code(CodeLimits::default()), None);
        let found = verifier.extract(&text).expect("a program");
        let expected: String = program.lines().map(|line| format!("{line}\n")).collect();
        prop_assert_eq!(found.answer, expected);
    }

    #[test]
    fn any_file_of_tasks_is_read_or_refused(
        rows in proptest::collection::vec(rows(), 0..5),
        junk in "\\PC{0,40}",
    ) {
        let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
        for text in [lines.join("\n"), format!("{}\n{junk}", lines.join("\r\n\n"))] {
            let read = || match load_tasks(&text, "file", &Columns::default()) {
                Ok(tasks) => format!("{tasks:?}"),
                Err(error) => error.to_string(),
            };
            soon(read)?;
        }
        for row in &rows {
            let read = soon(|| cases::from_value(row))?;
            if let Ok(read) = read {
                prop_assert_eq!(cases::from_text(&cases::to_text(&read)), Ok(read));
            }
        }
    }

    #[test]
    fn any_arguments_are_read_or_kept(value in rows(), text in "\\PC{0,60}|[{}\\[\\]'\":,a-z1\\\\]{0,60}") {
        for value in [value, Value::from(text)] {
            for repair_json in [false, true] {
                let leniency = Leniency { repair_json, fenced_code: false };
                let _ = soon(|| read_arguments(&value, leniency))?;
            }
            let kept = Value::Object(unreadable_arguments(&value)).to_string();
            prop_assert!(json::parse(&kept).is_ok());
        }
    }
}

const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + \
    message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}\
    {{ '<|im_start|>assistant\n' }}{% endif %}";

/// The template above, and those of published models where they lie beside the project.
static TEMPLATES: LazyLock<Vec<ChatTemplate>> = LazyLock::new(|| {
    let mut sources = vec![CHATML.to_owned()];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/hf-configs");
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    for file in entries(&folder).flat_map(|entry| entries(&entry.path())) {
        if file.path().extension().is_some_and(|end| end == "jinja") {
            sources.push(std::fs::read_to_string(file.path()).expect("a template"));
        }
    }
    if sources.len() == 1 {
        println!("skipped: templates of published models are not here");
    }
    let load = |source: &String| ChatTemplate::new(source).expect("a template");
    sources.iter().map(load).collect()
});

/// Texts of messages: templates and their marks, markup, anything.
fn content() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        proptest::sample::select(vec![
            "{{",
            "}}",
            "{%",
            "%}",
            "{{ messages }}",
            "<|im_start|>",
            "<|im_end|>",
            "<think>",
            "</think>",
            "<tool_call>",
            "</tool_response>",
            "\n",
            "\r",
            "\u{0}",
            "é",
            "'",
            "\"",
            "\\",
            "<|eot_id|>",
            "\u{1f600}",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,6}",
    ];
    proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// A message's text is a value, never a part of the template, and special tokens in it stay text.
    #[test]
    fn any_message_is_rendered_as_it_is(
        system in content(),
        user in content(),
        reply in content(),
        arguments in rows(),
        is_open in any::<bool>(),
    ) {
        let call = serde_json::json!({"type": "function", "function": {"name": "python", "arguments": arguments}});
        let messages = [
            serde_json::json!({"role": "system", "content": system}),
            serde_json::json!({"role": "user", "content": user}),
            serde_json::json!({"role": "assistant", "content": reply, "tool_calls": [call]}),
            serde_json::json!({"role": "tool", "content": user}),
            serde_json::json!({"role": "assistant", "content": reply}),
        ];
        let special: Vec<String> = ["<|im_start|>", "<|im_end|>", "<|eot_id|>"].map(str::to_owned).into();
        let variables = Map::new();
        for (index, template) in TEMPLATES.iter().enumerate() {
            for count in [1, 2, 5] {
                let input = RenderInput {
                    messages: &messages[..count],
                    tools: None,
                    add_generation_prompt: is_open,
                    variables: &variables,
                    special_tokens: &special,
                };
                let render = || template.render_marked(&input).map_err(|error| error.to_string());
                let rendered = soon(render)?;
                let Ok(rendered) = rendered else {
                    // A template may refuse a conversation; the plain one takes them all.
                    prop_assert!(index > 0);
                    continue;
                };
                for range in &rendered.literal {
                    let text = rendered.text.get(range.clone());
                    prop_assert!(text.is_some_and(|text| special.iter().any(|token| token == text)));
                }
                if index == 0 {
                    prop_assert!(rendered.text.contains(&user) || count == 1);
                    let marks = |text: &str| special.iter().map(|token| text.matches(token.as_str()).count()).sum::<usize>();
                    let said: usize = messages[..count].iter().map(|message| marks(message["content"].as_str().unwrap_or_default())).sum();
                    prop_assert_eq!(rendered.literal.len(), said);
                }
            }
        }
    }
}
