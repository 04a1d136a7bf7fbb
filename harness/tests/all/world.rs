//! Harnesses to test with: one written by hand, and any valid one.

use std::collections::BTreeMap;

use harness::{
    Backend, CallFormat, Context, Eviction, Example, ExampleStep, FORMAT, Harness, Hook, Hooks,
    Memory, MemoryKind, Middleware, Prompts, Protocol, RetryExit, Runtime, Sampling, Skill, Tool,
    ToolLimits, ToolName,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A harness in which every kind of field is filled.
pub(crate) fn rich() -> Harness {
    let mut harness = harness::naive().unwrap();
    harness.name = "rich".to_owned();
    harness.prompts.examples.push(Example {
        title: "apples".to_owned(),
        problem: "Ann has 3 apples and buys 4. How many?".to_owned(),
        steps: vec![ExampleStep {
            say: "I add.".to_owned(),
            tool: "python".parse().unwrap(),
            arguments: BTreeMap::from([("code".to_owned(), "print(3 + 4)".to_owned())]),
            result: "7".to_owned(),
        }],
        answer: "The answer is \\boxed{7}.".to_owned(),
    });
    let skill = Skill {
        name: "unit-check".to_owned(),
        description: "Keeps units apart.".to_owned(),
        triggers: vec!["miles".to_owned()],
        body: "Convert first.".to_owned(),
        python: "def miles(km):\n    return km / 1.609344".to_owned(),
    };
    harness.skills.insert(skill.name.clone(), skill);
    harness.middleware.hooks.post_tool_call = vec![Hook::TruncateOutput {
        max_chars: 500,
        marker: "[cut]".to_owned(),
    }];
    harness.middleware.hooks.post_model_call = vec![Hook::RepairJson {}];
    harness.memory = Memory {
        kind: MemoryKind::Notes,
        capacity: 4,
        shown: 2,
        eviction: Eviction::Oldest,
        entries: vec!["Check units.".to_owned()],
    };
    harness
}

/// Texts made of what has broken readers before.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let troublesome = prop_oneof![
        Just("\n".to_owned()),
        Just("\n\n".to_owned()),
        Just("\\".to_owned()),
        Just("\\frac{1}{2}".to_owned()),
        Just(" #1 ".to_owned()),
        Just("#".to_owned()),
        Just("{{x}}".to_owned()),
        Just("}".to_owned()),
        Just("\n## result\n".to_owned()),
        Just("\n\\## answer\n".to_owned()),
        Just("\n```code\n".to_owned()),
        Just("\n````\n".to_owned()),
        Just("\n---\n".to_owned()),
        Just("\n...\n".to_owned()),
        Just(": ".to_owned()),
        Just("- ".to_owned()),
        Just("\t".to_owned()),
        Just("  ".to_owned()),
        Just("no".to_owned()),
        Just("~".to_owned()),
        Just("1e5".to_owned()),
        Just("\"'".to_owned()),
        Just("é∑😀".to_owned()),
        Just("\u{feff}\u{2028}".to_owned()),
        "[a-z ]{1,90}",
        any::<char>()
            .prop_filter("control", |c| !c.is_control())
            .prop_map(String::from),
    ];
    vec(troublesome, 0..8).prop_map(|parts| parts.concat())
}

fn filled() -> impl Strategy<Value = String> {
    text().prop_map(|text| format!("x{text}"))
}

fn line() -> impl Strategy<Value = String> {
    filled().prop_map(|text| text.replace('\n', " "))
}

fn slug() -> impl Strategy<Value = String> {
    "[a-z0-9]{1,6}(-[a-z0-9]{1,4}){0,2}"
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |x| x.is_finite())
            .prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(text(), inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn tool() -> impl Strategy<Value = Tool> {
    (filled(), any_json(), 1u64..600_000, 1usize..1_000_000).prop_map(
        |(description, default, timeout_ms, output_chars)| Tool {
            description,
            parameters: json!({
                "type": "object",
                "properties": {
                    "code": { "type": "string", "default": default },
                },
                "required": ["code"],
            }),
            backend: Backend::Python,
            state: harness::ToolState::default(),
            limits: ToolLimits {
                timeout_ms,
                memory_mib: 512,
                output_chars,
            },
        },
    )
}

fn example(tools: Vec<ToolName>) -> impl Strategy<Value = Example> {
    let arguments = btree_map("[a-z_]{1,6}", text(), 0..3);
    let step = (text(), proptest::sample::select(tools), arguments, text()).prop_map(
        |(say, tool, arguments, result)| ExampleStep {
            say,
            tool,
            arguments,
            result,
        },
    );
    (slug(), filled(), vec(step, 0..3), text()).prop_map(|(title, problem, steps, answer)| {
        Example {
            title,
            problem,
            steps,
            answer,
        }
    })
}

fn prompts(tools: Vec<ToolName>) -> impl Strategy<Value = Prompts> {
    let plain = || text().prop_map(|text| text.replace("{{x}}", "{{1}}"));
    let examples = vec(example(tools), 0..3).prop_map(|mut examples| {
        for (index, example) in examples.iter_mut().enumerate() {
            example.title = format!("{}-{index}", example.title);
        }
        examples
    });
    (text(), plain(), plain(), text(), examples).prop_map(
        |(system, before, after, final_answer, examples)| Prompts {
            system,
            task: format!("{before} {{{{ problem }}}} {after}"),
            final_answer,
            examples,
        },
    )
}

fn hooks() -> impl Strategy<Value = Hooks> {
    let nudge = (filled(), 1u32..64).prop_map(|(message, max)| Hook::Nudge { message, max });
    let after_model = prop_oneof![
        Just(Hook::RepairJson {}),
        Just(Hook::ExtractFencedCode {}),
        nudge
    ];
    let truncate = (1usize..1_000_000, text())
        .prop_map(|(max_chars, marker)| Hook::TruncateOutput { max_chars, marker });
    let after_tool = prop_oneof![
        truncate,
        filled().prop_map(|message| Hook::EmptyOutputHint { message }),
        filled().prop_map(|message| Hook::AppendMessage { message }),
    ];
    let before_tool = prop_oneof![
        Just(Hook::AutoPrintLastExpression {}),
        filled().prop_map(|message| Hook::DetectRepeat { message }),
    ];
    let compact =
        (1u32..10_000, 0u32..5, filled()).prop_map(|(above_tokens, keep_results, marker)| {
            Hook::Compact {
                above_tokens,
                keep_results,
                marker,
            }
        });
    let before_model = prop_oneof![
        filled().prop_map(|message| Hook::ForceFinalAnswer { message }),
        compact,
    ];
    let exits = vec![
        RetryExit::NoAnswer,
        RetryExit::ReplyCut,
        RetryExit::TurnLimit,
    ];
    let retry = (proptest::sample::subsequence(exits, 1..=3), 1u32..16)
        .prop_map(|(exits, max)| Hook::Retry { exits, max });
    let verify =
        (filled(), 1u32..=16, filled(), 1u32..=16).prop_map(|(prompt, sceptics, message, max)| {
            Hook::Verify {
                prompt,
                sceptics,
                message,
                max,
            }
        });
    let at_the_end = prop_oneof![
        Just(Hook::AnswerFromLastResult {}),
        retry,
        verify,
        (2u32..=64).prop_map(|samples| Hook::Vote { samples }),
    ];
    let plan = (filled(), filled()).prop_map(|(message, next)| Hook::Plan { message, next });
    (
        vec(plan, 0..2),
        vec(before_model, 0..3),
        vec(after_model, 0..3),
        vec(before_tool, 0..3),
        vec(after_tool, 0..3),
        vec(
            filled().prop_map(|message| Hook::ErrorHint { message }),
            0..2,
        ),
        vec(at_the_end, 0..3),
    )
        .prop_map(
            |(start, pre_model, post_model, pre_tool, post_tool, error, finish)| Hooks {
                on_start: start,
                pre_model_call: pre_model,
                post_model_call: post_model,
                pre_tool_call: pre_tool,
                post_tool_call: post_tool,
                on_tool_error: error,
                on_finish: finish,
            },
        )
}

fn middleware() -> impl Strategy<Value = Middleware> {
    let formats = vec![
        CallFormat::Json,
        CallFormat::Fenced,
        CallFormat::Xml,
        CallFormat::Native,
    ];
    (
        proptest::sample::select(formats),
        (1u32..=64, 1u32..1000, vec(filled(), 0..3)),
        (
            0.0f64..=2.0,
            0.001f64..=1.0,
            0u32..100,
            prop_oneof![Just(0.0), 0.0f64..=1.0],
        ),
        hooks(),
        (1000u32..100_000, 1u32..4096),
    )
        .prop_map(
            |(call_format, (max_turns, max_tokens_per_turn, stop), sampling, hooks, sizes)| {
                let (temperature, top_p, top_k, min_p) = sampling;
                Middleware {
                    protocol: Protocol {
                        call_format,
                        max_turns,
                        max_tokens_per_turn,
                        constrained: max_turns % 2 == 0
                            && matches!(call_format, CallFormat::Json | CallFormat::Xml),
                        stop,
                    },
                    sampling: Sampling {
                        temperature,
                        top_p,
                        top_k,
                        min_p,
                    },
                    hooks,
                    context: Context {
                        max_tokens: sizes.0,
                    },
                    runtime: Runtime {
                        parallel_rollouts: sizes.1,
                    },
                }
            },
        )
}

fn memory() -> impl Strategy<Value = Memory> {
    prop_oneof![
        Just(Memory {
            kind: MemoryKind::None,
            capacity: 0,
            shown: 0,
            eviction: Eviction::Refuse,
            entries: Vec::new()
        }),
        (vec(filled(), 0..4), 0u32..4, any::<bool>()).prop_map(|(entries, shown, evicts)| Memory {
            kind: MemoryKind::Notes,
            capacity: 8,
            shown,
            eviction: if evicts {
                Eviction::Oldest
            } else {
                Eviction::Refuse
            },
            entries,
        }),
    ]
}

fn skills() -> impl Strategy<Value = BTreeMap<String, Skill>> {
    let skill = (line(), vec(line(), 0..3), filled(), text(), text());
    btree_map(slug(), skill, 0..3).prop_map(|skills| {
        skills
            .into_iter()
            .map(|(name, (description, triggers, body, before, python))| {
                let body = format!("{before}{body}");
                (
                    name.clone(),
                    Skill {
                        name,
                        description,
                        triggers,
                        body,
                        python,
                    },
                )
            })
            .collect()
    })
}

/// Any valid harness.
pub(crate) fn harness() -> impl Strategy<Value = Harness> {
    let name = "[a-zA-Z_][a-zA-Z0-9_-]{0,8}".prop_map(|name| ToolName::new(name).unwrap());
    btree_map(name, tool(), 1..3).prop_flat_map(|tools| {
        let names: Vec<ToolName> = tools.keys().cloned().collect();
        let head = (line(), text());
        (
            head,
            prompts(names),
            Just(tools),
            skills(),
            middleware(),
            memory(),
        )
            .prop_map(
                |((name, description), prompts, tools, skills, middleware, memory)| Harness {
                    format: FORMAT,
                    name,
                    description,
                    prompts,
                    tools,
                    skills,
                    middleware,
                    memory,
                },
            )
    })
}
