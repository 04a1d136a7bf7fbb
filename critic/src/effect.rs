//! What a patch should do, said before it is measured, and what came of it.
//!
//! A patch *should fix* the tasks whose failures asked for it. It *puts at risk* tasks that were
//! solved in a way that it interferes with: a hook that would have acted in the course of the rollout,
//! a call format other than the one the calls were written in, a limit that the rollout would have
//! met. A text that changes reaches every conversation; at risk by that are those that went badly
//! before they went well, which a clean course is not. Both lists are compared with what happens to
//! the very same tasks and seeds under the patched harness.

use std::collections::BTreeSet;

use harness::{Harness, Hook, HookPoint};
use rollout::{Event, StepKind, TaskId, Trajectory};
use serde::{Deserialize, Serialize};

/// The effect that a proposal promises, on the tasks of the diagnosis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predicted {
    /// Failed tasks that it should fix.
    pub fixes: BTreeSet<TaskId>,
    /// Solved tasks that it puts at risk.
    pub at_risk: BTreeSet<TaskId>,
}

/// What became of the tasks of the diagnosis under the patched harness.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// Tasks that failed before.
    pub failed: u32,
    /// Those of them that are solved now.
    pub fixed: BTreeSet<TaskId>,
    /// Tasks that were solved before.
    pub solved: u32,
    /// Those of them that fail now.
    pub broken: BTreeSet<TaskId>,
    /// Tasks that count in none of these: the verifier couldn't decide an answer, before or now, or there is no
    /// rollout now. Empty in runs made before they were kept.
    #[serde(default)]
    pub unjudged: BTreeSet<TaskId>,
}

impl Effect {
    /// Of the same tasks with the same seeds, in the same order; `None` for what could not be rolled out again.
    pub fn of(before: &[Trajectory], after: &[Option<Trajectory>]) -> Self {
        let mut effect = Effect::default();
        for (old, new) in before.iter().zip(after) {
            let decided = new.as_ref().filter(|new| !new.verdict.undecided);
            let Some(new) = decided.filter(|_| !old.verdict.undecided) else {
                effect.unjudged.insert(old.task.clone());
                continue;
            };
            match (old.verdict.correct, new.verdict.correct) {
                (false, is_correct) => {
                    effect.failed += 1;
                    if is_correct {
                        effect.fixed.insert(old.task.clone());
                    }
                }
                (true, is_correct) => {
                    effect.solved += 1;
                    if !is_correct {
                        effect.broken.insert(old.task.clone());
                    }
                }
            }
        }
        effect
    }
}

/// How well a prediction met what happened, in counts that add up over patches.
///
/// A sampled policy fails a task and solves it again under the same harness, so that counts of what was fixed
/// mean little by themselves. A patch that changes nothing fixes as many as it breaks, on average; and one that
/// was predicted at random fixes its share of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Foresight {
    /// Tasks that should have been fixed, but for those of which nobody can say whether they were.
    pub fixes_predicted: u32,
    /// Tasks that were fixed.
    pub fixes: u32,
    /// Tasks that are both.
    pub fixes_foreseen: u32,
    /// What that would be on average if the predicted ones had been drawn from those that failed.
    #[serde(default)]
    pub fixes_by_chance: f64,
    /// Tasks that were put at risk, in the same way.
    pub risks_predicted: u32,
    /// Tasks that were broken.
    pub breaks: u32,
    /// Tasks that are both.
    pub breaks_foreseen: u32,
    /// What that would be on average if those at risk had been drawn from the solved ones.
    #[serde(default)]
    pub breaks_by_chance: f64,
    /// Tasks that were fixed, less those that were broken.
    #[serde(default)]
    pub net: i64,
}

impl Foresight {
    /// Of one patch.
    pub fn of(predicted: &Predicted, effect: &Effect) -> Self {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let both = |a: &BTreeSet<TaskId>, b: &BTreeSet<TaskId>| number(a.intersection(b).count());
        let judged = |set: &BTreeSet<TaskId>| number(set.difference(&effect.unjudged).count());
        let by_chance = |predicted: u32, changed: u32, all: u32| {
            f64::from(predicted.min(all)) * f64::from(changed) / f64::from(all.max(1))
        };
        let (fixes_predicted, fixes) = (judged(&predicted.fixes), number(effect.fixed.len()));
        let (risks_predicted, breaks) = (judged(&predicted.at_risk), number(effect.broken.len()));
        Foresight {
            fixes_predicted,
            fixes,
            fixes_foreseen: both(&predicted.fixes, &effect.fixed),
            fixes_by_chance: by_chance(fixes_predicted, fixes, effect.failed),
            risks_predicted,
            breaks,
            breaks_foreseen: both(&predicted.at_risk, &effect.broken),
            breaks_by_chance: by_chance(risks_predicted, breaks, effect.solved),
            net: i64::from(fixes) - i64::from(breaks),
        }
    }

    /// Of several patches together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Foresight {
            fixes_predicted: self.fixes_predicted + other.fixes_predicted,
            fixes: self.fixes + other.fixes,
            fixes_foreseen: self.fixes_foreseen + other.fixes_foreseen,
            fixes_by_chance: self.fixes_by_chance + other.fixes_by_chance,
            risks_predicted: self.risks_predicted + other.risks_predicted,
            breaks: self.breaks + other.breaks,
            breaks_foreseen: self.breaks_foreseen + other.breaks_foreseen,
            breaks_by_chance: self.breaks_by_chance + other.breaks_by_chance,
            net: self.net + other.net,
        }
    }
}

/// Tasks solved in `trajectories` that a change from `before` to `after` puts at risk.
pub fn at_risk(before: &Harness, after: &Harness, trajectories: &[Trajectory]) -> BTreeSet<TaskId> {
    let solved = trajectories.iter().filter(|t| t.verdict.correct);
    solved
        .filter(|trajectory| interferes(before, after, trajectory))
        .map(|trajectory| trajectory.task.clone())
        .collect()
}

/// Whether the change would have interfered with a rollout that went well.
fn interferes(before: &Harness, after: &Harness, trajectory: &Trajectory) -> bool {
    is_limited(before, after, trajectory)
        || is_hooked(before, after, trajectory)
        || changes_text(before, after, trajectory) && is_fragile(trajectory)
}

/// Call format and limits.
fn is_limited(before: &Harness, after: &Harness, trajectory: &Trajectory) -> bool {
    let (old, new) = (&before.middleware.protocol, &after.middleware.protocol);
    let calls = of_kind(trajectory, StepKind::ToolCall);
    let replies = u32::try_from(of_kind(trajectory, StepKind::Assistant)).unwrap_or(u32::MAX);
    let longest = trajectory.model_calls.iter();
    let longest = longest.map(|call| call.usage.completion_tokens).max();
    let has_new_stop = |text: &str| {
        let mut stops = new.stop.iter().filter(|stop| !old.stop.contains(stop));
        stops.any(|stop| text.contains(stop.as_str()))
    };
    let mut spoken = trajectory
        .steps
        .iter()
        .filter(|step| step.kind == StepKind::Assistant);
    calls > 0 && old.call_format != new.call_format
        || new.max_turns < old.max_turns && replies > new.max_turns
        || new.max_tokens_per_turn < old.max_tokens_per_turn
            && longest.unwrap_or(0) > u64::from(new.max_tokens_per_turn)
        || spoken.any(|step| has_new_stop(&step.text))
        || calls > 0 && before.tools.keys().ne(after.tools.keys())
}

/// Hooks that are new and would have acted, and hooks that are gone and did.
fn is_hooked(before: &Harness, after: &Harness, trajectory: &Trajectory) -> bool {
    HookPoint::ALL.into_iter().any(|point| {
        let (old, new) = (
            before.middleware.hooks.at(point),
            after.middleware.hooks.at(point),
        );
        let added = new.iter().filter(|hook| !old.contains(hook));
        let mut removed = old.iter().filter(|hook| !new.contains(hook));
        let is_gone = |hook: &Hook| {
            trajectory.events().any(
                |(_, event)| matches!(event, Event::HookFired { hook: kind } if kind == hook.kind()),
            )
        };
        removed.any(is_gone) || added.into_iter().any(|hook| would_act(hook, after, trajectory))
    })
}

fn would_act(hook: &Hook, after: &Harness, trajectory: &Trajectory) -> bool {
    let has = |is_meant: fn(&Event) -> bool| trajectory.events().any(|(_, event)| is_meant(event));
    let results = || {
        let steps = trajectory.steps.iter();
        steps.filter(|step| step.kind == StepKind::ToolResult)
    };
    match hook {
        Hook::RepairJson {} => has(|event| matches!(event, Event::UnparsableCall { .. })),
        Hook::ExtractFencedCode {} | Hook::Nudge { .. } => {
            has(|event| matches!(event, Event::NoToolCall))
        }
        Hook::ForceFinalAnswer { .. } => {
            let replies = of_kind(trajectory, StepKind::Assistant);
            replies >= after.middleware.protocol.max_turns as usize
        }
        Hook::AutoPrintLastExpression {} | Hook::EmptyOutputHint { .. } => {
            has(|event| matches!(event, Event::EmptyOutput))
        }
        Hook::DetectRepeat { .. } => has(|event| matches!(event, Event::RepeatedCall)),
        Hook::ErrorHint { .. } => has(|event| {
            matches!(
                event,
                Event::ToolError { .. } | Event::UnparsableCall { .. } | Event::BadArguments { .. }
            )
        }),
        Hook::TruncateOutput { max_chars, .. } => {
            results().any(|step| step.text.chars().count() > *max_chars)
        }
        Hook::AppendMessage { .. } => results().next().is_some(),
        Hook::Compact { above_tokens, .. } => trajectory
            .model_calls
            .iter()
            .any(|call| call.usage.prompt_tokens > u64::from(*above_tokens)),
        // A check or a vote may overturn any answer, and a plan lead to another.
        Hook::Verify { .. } | Hook::Vote { .. } | Hook::Plan { .. } => true,
        // They act where there is no answer, and there was one.
        Hook::AnswerFromLastResult {} | Hook::Retry { .. } => false,
    }
}

/// Whether the model would have read, or sampled, something else from the start.
fn changes_text(before: &Harness, after: &Harness, trajectory: &Trajectory) -> bool {
    let is_shown = |body: &str| trajectory.steps.iter().any(|step| step.text.contains(body));
    let skills = |harness: &Harness| -> Vec<(String, String)> {
        let skills = harness.skills.values();
        // A new skill with triggers may be shown; an old one was if its text is there.
        skills
            .map(|skill| (skill.body.trim().to_owned(), skill.python.clone()))
            .collect()
    };
    let (old, new) = (skills(before), skills(after));
    let mut lost = old.iter().filter(|skill| !new.contains(skill));
    let has_new = new.iter().any(|skill| !old.contains(skill));
    before.prompts != after.prompts
        || before.memory != after.memory
        || before.tools != after.tools
        || before.middleware.sampling != after.middleware.sampling
        || has_new
        || lost.any(|(body, _)| is_shown(body))
}

/// Whether a rollout went badly before it went well.
fn is_fragile(trajectory: &Trajectory) -> bool {
    let has_fault = trajectory
        .events()
        .any(|(_, event)| !matches!(event, Event::HookFired { .. } | Event::TextAfterCall { .. }));
    has_fault || of_kind(trajectory, StepKind::ToolCall) == 0
}

fn of_kind(trajectory: &Trajectory, kind: StepKind) -> usize {
    let steps = trajectory.steps.iter();
    steps.filter(|step| step.kind == kind).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Build, failed, patched, start};

    fn solved(trajectory: Trajectory) -> Trajectory {
        let mut trajectory = trajectory.answered("12");
        trajectory.verdict.correct = true;
        trajectory
    }

    fn tasks(numbers: &[u64]) -> BTreeSet<TaskId> {
        let name = |number| TaskId::new(format!("task-{number}"));
        numbers.iter().copied().map(name).collect()
    }

    fn rolled(trajectories: Vec<Trajectory>) -> Vec<Option<Trajectory>> {
        trajectories.into_iter().map(Some).collect()
    }

    /// 1 went cleanly, 2 needed a second program, 3 called nothing.
    fn courses() -> Vec<Trajectory> {
        let empty = Some(Event::EmptyOutput);
        vec![
            solved(failed(1).call("print(12)").result("12", None)),
            solved(
                failed(2)
                    .call("12")
                    .result("[no output]", empty)
                    .call("print(12)")
                    .result("12", None),
            ),
            solved(failed(3)),
            failed(4).call("12").result("[no output]", None),
        ]
    }

    fn risks(dimension: &str, ops: &str) -> BTreeSet<TaskId> {
        at_risk(&start(), &patched(&start(), dimension, ops), &courses())
    }

    #[test]
    fn a_hook_puts_at_risk_where_it_would_have_acted() {
        let hook = |point: &str, value: &str| {
            let path = format!("middleware.hooks.{point}");
            risks(
                "Mid",
                &format!(r#"[{{"op":"add","path":"{path}","value":{value}}}]"#),
            )
        };
        let hint = r#"{"type":"empty_output_hint","message":"Print."}"#;
        assert_eq!(hook("post_tool_call", hint), tasks(&[2]));
        let append = r#"{"type":"append_message","message":"Box it."}"#;
        assert_eq!(hook("post_tool_call", append), tasks(&[1, 2]));
        assert_eq!(
            hook("on_finish", r#"{"type":"vote","samples":3}"#),
            tasks(&[1, 2, 3])
        );
        assert_eq!(
            hook("on_finish", r#"{"type":"answer_from_last_result"}"#),
            tasks(&[])
        );
        let cut = r#"{"type":"truncate_output","max_chars":5,"marker":"-"}"#;
        assert_eq!(hook("post_tool_call", cut), tasks(&[2]));
    }

    #[test]
    fn a_format_puts_calls_at_risk_and_more_turns_nothing() {
        let set = |field: &str, value: &str| {
            let path = format!("middleware.protocol.{field}");
            risks(
                "Mid",
                &format!(r#"[{{"op":"replace","path":"{path}","value":{value}}}]"#),
            )
        };
        assert_eq!(set("call_format", "\"fenced\""), tasks(&[1, 2]));
        assert_eq!(set("max_turns", "8"), tasks(&[]));
        assert_eq!(set("max_turns", "2"), tasks(&[2]));
        assert_eq!(set("stop", "[\"boxed\"]"), tasks(&[1, 2, 3]));
    }

    #[test]
    fn a_text_puts_at_risk_what_went_badly_first() {
        let ops = r#"[{"op":"replace","path":"prompts.system","value":"Be brief."}]"#;
        assert_eq!(risks("P", ops), tasks(&[2, 3]));
    }

    #[test]
    fn effects_and_predictions_are_counted_on_the_same_tasks() {
        let before = courses();
        let mut after = before.clone();
        after[0].verdict.correct = false;
        after[3].verdict.correct = true;
        let effect = Effect::of(&before, &rolled(after));
        assert_eq!((effect.failed, effect.solved), (1, 3));
        assert_eq!(
            (&effect.fixed, &effect.broken),
            (&tasks(&[4]), &tasks(&[1]))
        );
        let predicted = Predicted {
            fixes: tasks(&[4, 9]),
            at_risk: tasks(&[2]),
        };
        let foresight = Foresight::of(&predicted, &effect);
        assert_eq!(
            (foresight.fixes_predicted, foresight.fixes_foreseen),
            (2, 1)
        );
        assert_eq!((foresight.breaks, foresight.breaks_foreseen), (1, 0));
        let twice = foresight.and(foresight);
        assert_eq!((twice.fixes, twice.risks_predicted), (2, 2));
    }

    #[test]
    fn a_prediction_stands_beside_what_chance_would_have_foreseen() {
        let effect = Effect {
            failed: 8,
            fixed: tasks(&[1, 2, 3, 4]),
            solved: 10,
            broken: tasks(&[11, 12, 13, 14]),
            unjudged: BTreeSet::new(),
        };
        let foresight = |fixes: &[u64], at_risk: &[u64]| {
            let predicted = Predicted {
                fixes: tasks(fixes),
                at_risk: tasks(at_risk),
            };
            Foresight::of(&predicted, &effect)
        };
        // Half of the failed tasks were fixed, and of six predicted ones no more.
        let idle = foresight(&[1, 2, 3, 5, 6, 7], &[11, 15, 16, 17, 18]);
        assert_eq!((idle.fixes_foreseen, idle.fixes_by_chance), (3, 3.0));
        assert_eq!((idle.breaks_foreseen, idle.breaks_by_chance), (1, 2.0));
        assert_eq!(idle.net, 0);
        let sharp = foresight(&[1, 2, 3, 4], &[]);
        assert_eq!((sharp.fixes_foreseen, sharp.fixes_by_chance), (4, 2.0));
        assert_eq!(idle.and(sharp).fixes_by_chance, 5.0);
        // Tasks that weren't rolled out again can't be drawn.
        let wide: Vec<u64> = (1..=9).collect();
        assert_eq!(foresight(&wide, &[]).fixes_by_chance, 4.0);
        let nothing = Foresight::of(&Predicted::default(), &Effect::default());
        assert_eq!(nothing, Foresight::default());
    }

    #[test]
    fn what_nobody_could_judge_was_neither_failed_nor_solved_nor_broken() {
        let mut before = courses();
        let mut after = before.clone();
        before[3].verdict.undecided = true;
        after[0].verdict.correct = false;
        after[0].verdict.undecided = true;
        let mut after = rolled(after);
        after[1] = None;
        let effect = Effect::of(&before, &after);
        assert_eq!((effect.failed, effect.solved), (0, 1));
        assert!(effect.fixed.is_empty() && effect.broken.is_empty());
        assert_eq!(effect.unjudged, tasks(&[1, 2, 4]));
    }

    #[test]
    fn a_prediction_is_not_held_to_what_nobody_could_judge() {
        let effect = Effect {
            failed: 2,
            fixed: tasks(&[1]),
            solved: 2,
            broken: tasks(&[11]),
            unjudged: tasks(&[3, 13]),
        };
        let predicted = Predicted {
            fixes: tasks(&[1, 3]),
            at_risk: tasks(&[11, 13]),
        };
        let foresight = Foresight::of(&predicted, &effect);
        let fixes = (foresight.fixes_predicted, foresight.fixes_foreseen);
        let risks = (foresight.risks_predicted, foresight.breaks_foreseen);
        assert_eq!((fixes, risks), ((1, 1), (1, 1)));
        let by_chance = (foresight.fixes_by_chance, foresight.breaks_by_chance);
        assert_eq!(by_chance, (0.5, 0.5));
    }

    #[test]
    fn an_effect_of_an_earlier_version_is_read() {
        let text = r#"{"failed": 1, "fixed": ["task-1"], "solved": 0, "broken": []}"#;
        let effect: Effect = serde_json::from_str(text).expect("an effect");
        assert_eq!((effect.fixed, effect.unjudged), (tasks(&[1]), tasks(&[])));
    }
}
