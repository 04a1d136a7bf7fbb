//! How large each dimension of a harness may get.
//!
//! A search that only ever adds ends with a prompt that nobody can read and no context can hold, each
//! addition accepted on its own. A dimension may not grow beyond its limit; one that is larger already
//! may shrink or stay.

use std::fmt;

use harness::{Dimension, Harness, HookPoint};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scoreboard::DIMENSIONS;

/// Characters of one token, roughly.
const CHARS_PER_TOKEN: usize = 4;

/// The limits. Tokens are counted as four characters each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GrowthLimits {
    /// Tokens of prompts and examples.
    pub prompt_tokens: usize,
    /// Tokens of the tools' descriptions and parameters.
    pub tool_tokens: usize,
    /// Tokens of the skills' texts and of their Python.
    pub skill_tokens: usize,
    /// Hooks, wherever they stand.
    pub hooks: usize,
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

impl GrowthLimits {
    /// Refuses a change from `before` to `after` that takes a dimension beyond its limit.
    ///
    /// # Errors
    /// [`TooLarge`] for the first such dimension.
    pub fn check(&self, before: &Harness, after: &Harness) -> Result<(), TooLarge> {
        for dimension in DIMENSIONS {
            let (size, limit) = (size(after, dimension), self.of(dimension));
            if size > limit && size > self::size(before, dimension) {
                return Err(TooLarge {
                    dimension,
                    size,
                    limit,
                    unit: match dimension {
                        Dimension::Mid => Unit::Hooks,
                        _ => Unit::Tokens,
                    },
                });
            }
        }
        Ok(())
    }

    fn of(&self, dimension: Dimension) -> usize {
        match dimension {
            Dimension::P => self.prompt_tokens,
            Dimension::T => self.tool_tokens,
            Dimension::S => self.skill_tokens,
            Dimension::Mid => self.hooks,
            Dimension::M => self.memory_tokens,
        }
    }
}

/// Size of a dimension: hooks of Mid, tokens of the others.
pub fn size(harness: &Harness, dimension: Dimension) -> usize {
    let characters = |text: &str| text.chars().count();
    let total = match dimension {
        Dimension::P => {
            let prompts = &harness.prompts;
            let texts = [&prompts.system, &prompts.task, &prompts.final_answer];
            let examples = prompts.examples.iter().map(|example| {
                let steps = example.steps.iter().map(|step| {
                    let arguments = step.arguments.values().map(|text| characters(text));
                    characters(&step.say) + characters(&step.result) + arguments.sum::<usize>()
                });
                characters(&example.problem) + characters(&example.answer) + steps.sum::<usize>()
            });
            texts
                .into_iter()
                .map(|text| characters(text))
                .sum::<usize>()
                + examples.sum::<usize>()
        }
        Dimension::T => {
            let tools = harness.tools.values();
            tools
                .map(|tool| {
                    characters(&tool.description) + characters(&tool.parameters.to_string())
                })
                .sum()
        }
        Dimension::S => {
            let skills = harness.skills.values();
            skills
                .map(|skill| characters(&skill.body) + characters(&skill.python))
                .sum()
        }
        Dimension::Mid => {
            let hooks = &harness.middleware.hooks;
            return HookPoint::ALL
                .into_iter()
                .map(|point| hooks.at(point).len())
                .sum();
        }
        Dimension::M => {
            let entries = harness.memory.entries.iter();
            entries.map(|entry| characters(entry)).sum()
        }
    };
    total.div_ceil(CHARS_PER_TOKEN)
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
        assert_eq!(LIMITS.check(&start(), &skill(&"a".repeat(40))), Ok(()));
        let error = LIMITS.check(&start(), &skill(&"a".repeat(41))).unwrap_err();
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
    fn what_ships_fits_with_room() {
        let limits = GrowthLimits::default();
        for dimension in DIMENSIONS {
            assert!(
                size(&start(), dimension) * 2 < limits.of(dimension),
                "{dimension}"
            );
        }
    }
}
