//! How large each dimension of a harness may get.
//!
//! A search that only ever adds ends with a prompt that nobody can read and no context can hold, each
//! addition accepted on its own. A dimension may not grow beyond its limit; one that is larger already
//! may shrink or stay.

use std::fmt;

use harness::{Dimension, Harness, Hook, HookPoint};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Characters of one token, roughly.
const CHARS_PER_TOKEN: usize = 4;

/// The limits. Tokens are counted as four characters each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GrowthLimits {
    /// Tokens of prompts and examples, titles included.
    pub prompt_tokens: usize,
    /// Tokens of the tools' descriptions and parameters.
    pub tool_tokens: usize,
    /// Tokens of the skills' descriptions, triggers, texts and Python.
    pub skill_tokens: usize,
    /// Hooks, wherever they stand.
    pub hooks: usize,
    /// Tokens of the hooks' texts, and of those that end a reply.
    pub hook_tokens: usize,
    /// Tokens of the notes.
    pub memory_tokens: usize,
}

impl Default for GrowthLimits {
    fn default() -> Self {
        GrowthLimits {
            prompt_tokens: 2000,
            tool_tokens: 1000,
            skill_tokens: 1000,
            hooks: 12,
            hook_tokens: 500,
            memory_tokens: 500,
        }
    }
}

/// A dimension that would get too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{dimension} would have {size} {unit}, and the limit is {limit}")]
pub struct TooLarge {
    /// The dimension.
    pub dimension: Dimension,
    /// Its size after the patch.
    pub size: usize,
    /// The limit.
    pub limit: usize,
    /// What is counted.
    pub unit: Unit,
}

/// What the size of a dimension is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Tokens, estimated.
    Tokens,
    /// Hooks.
    Hooks,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Tokens => "tokens",
            Unit::Hooks => "hooks",
        })
    }
}

impl TooLarge {
    /// Whether the same limit is in the way of a change from `before` to `after`.
    pub fn holds(&self, before: &Harness, after: &Harness) -> bool {
        let is_it =
            |measure: &&Measure| (measure.dimension, measure.unit) == (self.dimension, self.unit);
        let mut measures = MEASURES.iter().filter(is_it);
        measures.any(|measure| measure.check(self.limit, before, after).is_err())
    }
}

impl GrowthLimits {
    /// Refuses a change from `before` to `after` that takes a dimension beyond its limit.
    ///
    /// # Errors
    /// [`TooLarge`] for the first such dimension.
    pub fn check(&self, before: &Harness, after: &Harness) -> Result<(), TooLarge> {
        let mut measures = MEASURES.iter();
        measures.try_for_each(|measure| measure.check((measure.limit)(self), before, after))
    }
}

/// A size that is limited.
struct Measure {
    dimension: Dimension,
    unit: Unit,
    size: fn(&Harness) -> usize,
    limit: fn(&GrowthLimits) -> usize,
}

impl Measure {
    fn check(&self, limit: usize, before: &Harness, after: &Harness) -> Result<(), TooLarge> {
        let size = (self.size)(after);
        if size <= limit || size <= (self.size)(before) {
            return Ok(());
        }
        Err(TooLarge {
            dimension: self.dimension,
            size,
            limit,
            unit: self.unit,
        })
    }
}

/// All of them: every text that a patch can make longer is counted in one.
static MEASURES: [Measure; 6] = [
    Measure {
        dimension: Dimension::P,
        unit: Unit::Tokens,
        size: prompt_tokens,
        limit: |limits| limits.prompt_tokens,
    },
    Measure {
        dimension: Dimension::T,
        unit: Unit::Tokens,
        size: tool_tokens,
        limit: |limits| limits.tool_tokens,
    },
    Measure {
        dimension: Dimension::S,
        unit: Unit::Tokens,
        size: skill_tokens,
        limit: |limits| limits.skill_tokens,
    },
    Measure {
        dimension: Dimension::Mid,
        unit: Unit::Hooks,
        size: |harness| hooks(harness).count(),
        limit: |limits| limits.hooks,
    },
    Measure {
        dimension: Dimension::Mid,
        unit: Unit::Tokens,
        size: hook_tokens,
        limit: |limits| limits.hook_tokens,
    },
    Measure {
        dimension: Dimension::M,
        unit: Unit::Tokens,
        size: |harness| tokens(&harness.memory.entries),
        limit: |limits| limits.memory_tokens,
    },
];

fn prompt_tokens(harness: &Harness) -> usize {
    let prompts = &harness.prompts;
    let texts = [&prompts.system, &prompts.task, &prompts.final_answer];
    let examples = prompts.examples.iter().flat_map(|example| {
        let steps = example.steps.iter().flat_map(|step| {
            let arguments = step.arguments.values();
            arguments.chain([&step.say, &step.result])
        });
        steps.chain([&example.title, &example.problem, &example.answer])
    });
    tokens(texts.into_iter().chain(examples))
}

fn tool_tokens(harness: &Harness) -> usize {
    let tools = harness.tools.values();
    tokens(tools.flat_map(|tool| [tool.description.clone(), tool.parameters.to_string()]))
}

fn skill_tokens(harness: &Harness) -> usize {
    let texts = harness.skills.values().flat_map(|skill| {
        let triggers = skill.triggers.iter();
        triggers.chain([&skill.description, &skill.body, &skill.python])
    });
    tokens(texts)
}

fn hooks(harness: &Harness) -> impl Iterator<Item = &Hook> {
    let hooks = &harness.middleware.hooks;
    let points = HookPoint::ALL.into_iter();
    points.flat_map(move |point| hooks.at(point))
}

/// Texts of the hooks, and those that end a reply.
fn hook_tokens(harness: &Harness) -> usize {
    let stops = harness.middleware.protocol.stop.iter();
    let texts = hooks(harness).flat_map(Hook::texts);
    tokens(texts.chain(stops.map(String::as_str)))
}

/// Tokens of texts together, estimated.
fn tokens<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> usize {
    let characters = texts.into_iter().map(|text| text.as_ref().chars().count());
    characters.sum::<usize>().div_ceil(CHARS_PER_TOKEN)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use super::*;
    use crate::testing::{patched, start};

    const LIMITS: GrowthLimits = GrowthLimits {
        prompt_tokens: 60,
        tool_tokens: 100,
        skill_tokens: 10,
        hooks: 1,
        hook_tokens: 10,
        memory_tokens: 10,
    };

    #[test]
    fn a_dimension_may_grow_up_to_its_limit() {
        let skill = |body: &str| {
            let ops = format!(
                r#"[{{"op":"add","path":"skills.x","value":
                {{"name":"x","description":"X.","triggers":[],"body":"{body}"}}}}]"#
            );
            patched(&start(), "S", &ops)
        };
        // With the two characters of the description.
        assert_eq!(LIMITS.check(&start(), &skill(&"a".repeat(38))), Ok(()));
        let error = LIMITS.check(&start(), &skill(&"a".repeat(39))).unwrap_err();
        assert_eq!((error.dimension, error.size), (Dimension::S, 11));
        assert_eq!(
            error.to_string(),
            "S would have 11 tokens, and the limit is 10"
        );
    }

    #[test]
    fn hooks_are_counted_wherever_they_stand() {
        let add = |harness: &Harness, point: &str, kind: &str| {
            let ops = format!(
                r#"[{{"op":"add","path":"middleware.hooks.{point}","value":{{"type":"{kind}"}}}}]"#
            );
            patched(harness, "Mid", &ops)
        };
        let one = add(&start(), "post_model_call", "repair_json");
        assert_eq!(LIMITS.check(&start(), &one), Ok(()));
        let two = add(&one, "on_finish", "answer_from_last_result");
        let error = LIMITS.check(&one, &two).unwrap_err();
        assert_eq!((error.dimension, error.unit), (Dimension::Mid, Unit::Hooks));
        // One that is too large already may stay as it is.
        assert_eq!(LIMITS.check(&two, &two), Ok(()));
        assert_eq!(LIMITS.check(&two, &one), Ok(()));
    }

    #[test]
    fn every_text_counts_in_its_dimension() {
        let long = "a".repeat(2000);
        let skill = |description: &str, triggers: &str, python: &str| {
            format!(
                r#"[{{"op":"add","path":"skills.x","value":{{"name":"x","description":"{description}",
                "triggers":["{triggers}"],"body":"b","python":"{python}"}}}}]"#
            )
        };
        let example = |title: &str, problem: &str, result: &str| {
            format!(
                r#"[{{"op":"add","path":"prompts.examples","value":{{"title":"{title}",
                "problem":"{problem}","steps":[{{"tool":"python","arguments":{{"code":"1"}},
                "result":"{result}"}}],"answer":"1"}}}}]"#
            )
        };
        let hook = |point: &str, fields: &str| {
            format!(r#"[{{"op":"add","path":"middleware.hooks.{point}","value":{{{fields}}}}}]"#)
        };
        let nudge = format!(r#""type":"nudge","message":"{long}","max":1"#);
        let verify =
            format!(r#""type":"verify","prompt":"{long}","sceptics":1,"message":"Again.","max":1"#);
        let cut = format!(r#""type":"truncate_output","max_chars":9,"marker":"{long}""#);
        let plan = format!(r#""type":"plan","message":"Plan.","next":"{long}""#);
        let stop =
            format!(r#"[{{"op":"add","path":"middleware.protocol.stop","value":"{long}"}}]"#);
        for (dimension, ops) in [
            ("S", skill(&long, "t", "")),
            ("S", skill("X.", &long, "")),
            ("S", skill("X.", "t", &long)),
            ("P", example("x", &long, "1")),
            ("P", example("x", "1?", &long)),
            ("Mid", hook("post_model_call", &nudge)),
            ("Mid", hook("on_finish", &verify)),
            ("Mid", hook("post_tool_call", &cut)),
            ("Mid", hook("on_start", &plan)),
            ("Mid", stop),
        ] {
            let before = start();
            let after = patched(&before, dimension, &ops);
            let error = LIMITS.check(&before, &after).unwrap_err();
            let found = (error.dimension.to_string(), error.unit);
            assert_eq!(found, (dimension.to_owned(), Unit::Tokens), "{ops}");
            assert!(error.size >= 500, "{error}");
        }
        // A title is short, but many are long.
        let titled = patched(&start(), "P", &example(&"t".repeat(64), "1?", "1"));
        let untitled = patched(&start(), "P", &example("t", "1?", "1"));
        assert!(prompt_tokens(&titled) > prompt_tokens(&untitled) + 10);
    }

    #[test]
    fn what_ships_fits_with_room() {
        let limits = GrowthLimits::default();
        for measure in &MEASURES {
            let (size, limit) = ((measure.size)(&start()), (measure.limit)(&limits));
            assert!(size * 2 < limit, "{} {}", measure.dimension, measure.unit);
        }
    }
}
