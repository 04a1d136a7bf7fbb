//! Rules of the harness document that its types can't state.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::check::{Check, is_argument_name};
use crate::document::{
    Backend, Example, FORMAT, Harness, Memory, MemoryKind, Prompts, Skill, Tool,
};
use crate::field_path::FieldPath;
use crate::middleware::{CallFormat, Hook, HookPoint, Middleware};

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The field that breaks the rule.
    pub path: FieldPath,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)
    }
}

/// Checks every rule: sizes and ranges, names, the task template, control characters, each hook at
/// its own point, parameter schemas, and references between fields.
///
/// # Errors
/// All broken rules, in document order.
pub fn validate(harness: &Harness) -> Result<(), Vec<Problem>> {
    let mut check = Check::default();
    let root = FieldPath::root();
    let format = harness.format;
    check.that(format == FORMAT, &root.join("format"), || {
        format!("format {format} is unknown; this version reads format {FORMAT}")
    });
    check.line(&root.join("name"), &harness.name);
    check.text(&root.join("description"), &harness.description);
    check_prompts(&mut check, &root.join("prompts"), harness);
    for (name, tool) in &harness.tools {
        check_tool(&mut check, &root.join("tools").join(name.as_str()), tool);
    }
    for (key, skill) in &harness.skills {
        check_skill(
            &mut check,
            &root.join("skills").join(key.as_str()),
            key,
            skill,
        );
    }
    check_middleware(&mut check, &root.join("middleware"), &harness.middleware);
    check_memory(&mut check, &root.join("memory"), &harness.memory);
    check.finish()
}

fn check_prompts(check: &mut Check, path: &FieldPath, harness: &Harness) {
    let Prompts {
        system,
        task,
        final_answer,
        examples,
    } = &harness.prompts;
    check.text(&path.join("system"), system);
    check.text(&path.join("task"), task);
    check.template(&path.join("task"), task);
    check.text(&path.join("final_answer"), final_answer);
    let mut titles = BTreeSet::new();
    check.that(examples.len() <= 99, &path.join("examples"), || {
        "more than 99 examples".into()
    });
    for (index, example) in examples.iter().enumerate() {
        let path = path.join("examples").join(index);
        check.slug(&path.join("title"), &example.title);
        check.that(titles.insert(&example.title), &path.join("title"), || {
            format!("another example is called {:?}", example.title)
        });
        check_example(check, &path, example, harness);
    }
}

fn check_example(check: &mut Check, path: &FieldPath, example: &Example, harness: &Harness) {
    check.filled(&path.join("problem"), &example.problem);
    check.text(&path.join("answer"), &example.answer);
    for (index, step) in example.steps.iter().enumerate() {
        let path = path.join("steps").join(index);
        check.text(&path.join("say"), &step.say);
        check.that(
            harness.tools.contains_key(&step.tool),
            &path.join("tool"),
            || format!("the harness has no tool {:?}", step.tool.as_str()),
        );
        for (name, argument) in &step.arguments {
            let path = path.join("arguments").join(name.as_str());
            check.that(is_argument_name(name), &path, || {
                "an argument's name is letters, digits, `_` or `-`".into()
            });
            check.text(&path, argument);
        }
        check.text(&path.join("result"), &step.result);
    }
}

fn check_tool(check: &mut Check, path: &FieldPath, tool: &Tool) {
    check.filled(&path.join("description"), &tool.description);
    check.schema(&path.join("parameters"), &tool.parameters);
    match tool.backend {
        Backend::Python => {
            check.that(
                tool.code_argument().is_some(),
                &path.join("parameters"),
                || {
                    "the python backend needs a required parameter of type string for the code"
                        .into()
                },
            );
        }
    }
    let limits = path.join("limits");
    check.range(
        &limits.join("timeout_ms"),
        tool.limits.timeout_ms,
        1,
        600_000,
    );
    check.range(
        &limits.join("memory_mib"),
        tool.limits.memory_mib,
        16,
        65_536,
    );
    check.range(
        &limits.join("output_chars"),
        tool.limits.output_chars,
        1,
        1_000_000,
    );
}

fn check_skill(check: &mut Check, path: &FieldPath, key: &str, skill: &Skill) {
    check.slug(&path.join("name"), &skill.name);
    check.that(skill.name == key, &path.join("name"), || {
        format!(
            "the name is {:?} but the skill stands under {key:?}",
            skill.name
        )
    });
    check.line(&path.join("description"), &skill.description);
    for (index, trigger) in skill.triggers.iter().enumerate() {
        check.line(&path.join("triggers").join(index), trigger);
    }
    check.filled(&path.join("body"), &skill.body);
    check.text(&path.join("python"), &skill.python);
}

fn check_middleware(check: &mut Check, path: &FieldPath, middleware: &Middleware) {
    let Middleware {
        protocol,
        sampling,
        hooks,
        context,
        runtime,
    } = middleware;
    let at = path.join("protocol");
    check.range(&at.join("max_turns"), protocol.max_turns, 1, 64);
    check.range(
        &at.join("max_tokens_per_turn"),
        protocol.max_tokens_per_turn,
        1,
        131_072,
    );
    check.that(
        !protocol.constrained || matches!(protocol.call_format, CallFormat::Json | CallFormat::Xml),
        &at.join("constrained"),
        || "only calls of the formats json and xml can be decoded under a grammar".into(),
    );
    check.that(protocol.stop.len() <= 16, &at.join("stop"), || {
        "more than 16 stop texts".into()
    });
    for (index, stop) in protocol.stop.iter().enumerate() {
        let path = at.join("stop").join(index);
        check.text(&path, stop);
        check.that(!stop.is_empty(), &path, || {
            "an empty stop text ends every message".into()
        });
    }

    let at = path.join("sampling");
    check.range(&at.join("temperature"), sampling.temperature, 0.0, 2.0);
    check.range(&at.join("top_p"), sampling.top_p, f64::MIN_POSITIVE, 1.0);
    check.range(&at.join("top_k"), sampling.top_k, 0, 1_000_000);
    check.range(&at.join("min_p"), sampling.min_p, 0.0, 1.0);

    for point in HookPoint::ALL {
        for (index, hook) in hooks.at(point).iter().enumerate() {
            let path = path.join("hooks").join(point.name()).join(index);
            check_hook(check, &path, point, hook);
        }
    }

    let at = path.join("context").join("max_tokens");
    check.range(&at, context.max_tokens, 16, 1_048_576);
    check.that(
        protocol.max_tokens_per_turn < context.max_tokens,
        &at,
        || {
            format!(
                "one turn may take {} tokens, which leaves no prompt",
                protocol.max_tokens_per_turn
            )
        },
    );
    let at = path.join("runtime").join("parallel_rollouts");
    check.range(&at, runtime.parallel_rollouts, 1, 4096);
}

fn check_hook(check: &mut Check, path: &FieldPath, point: HookPoint, hook: &Hook) {
    check.that(hook.point() == point, &path.join("type"), || {
        format!(
            "{} belongs to {}, not to {point}",
            hook.kind(),
            hook.point()
        )
    });
    match hook {
        Hook::RepairJson {}
        | Hook::ExtractFencedCode {}
        | Hook::AutoPrintLastExpression {}
        | Hook::AnswerFromLastResult {} => {}
        Hook::Nudge { message, max } => {
            check.filled(&path.join("message"), message);
            check.range(&path.join("max"), *max, 1, 64);
        }
        Hook::TruncateOutput { max_chars, marker } => {
            check.range(&path.join("max_chars"), *max_chars, 1, 1_000_000);
            check.text(&path.join("marker"), marker);
        }
        Hook::Compact {
            above_tokens,
            keep_results,
            marker,
        } => {
            check.range(&path.join("above_tokens"), *above_tokens, 1, 1_048_576);
            check.range(&path.join("keep_results"), *keep_results, 0, 64);
            check.filled(&path.join("marker"), marker);
        }
        Hook::Retry { exits, max } => {
            check.that(!exits.is_empty(), &path.join("exits"), || {
                "no exit is named, so it never begins again".into()
            });
            check.range(&path.join("max"), *max, 1, 16);
        }
        Hook::Verify {
            prompt,
            sceptics,
            message,
            max,
        } => {
            check.filled(&path.join("prompt"), prompt);
            check.range(&path.join("sceptics"), *sceptics, 1, 16);
            check.filled(&path.join("message"), message);
            check.range(&path.join("max"), *max, 1, 16);
        }
        Hook::Vote { samples } => check.range(&path.join("samples"), *samples, 2, 64),
        Hook::Plan { message, next } => {
            check.filled(&path.join("message"), message);
            check.filled(&path.join("next"), next);
        }
        Hook::ForceFinalAnswer { message }
        | Hook::DetectRepeat { message }
        | Hook::EmptyOutputHint { message }
        | Hook::AppendMessage { message }
        | Hook::ErrorHint { message } => check.filled(&path.join("message"), message),
    }
}

fn check_memory(check: &mut Check, path: &FieldPath, memory: &Memory) {
    let count = memory.entries.len();
    check.range(&path.join("capacity"), memory.capacity, 0, 10_000);
    check.range(&path.join("shown"), memory.shown, 0, 10_000);
    check.that(
        count as u64 <= u64::from(memory.capacity),
        &path.join("entries"),
        || {
            let entries = if count == 1 { "entry" } else { "entries" };
            format!("{count} {entries}, and the capacity is {}", memory.capacity)
        },
    );
    check.that(
        memory.kind != MemoryKind::None || count == 0,
        &path.join("entries"),
        || "memory of kind none shows no entries".into(),
    );
    for (index, entry) in memory.entries.iter().enumerate() {
        check.filled(&path.join("entries").join(index), entry);
    }
}
