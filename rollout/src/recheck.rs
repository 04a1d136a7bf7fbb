//! Judging a finished rollout again, when the gold answer or the verifier is another than it was.
//!
//! A rollout is costly and a verdict is not. The gold answer decides nothing but the verdict, so that
//! another one changes that alone. The verifier also finds the answer, which hooks may act on: a
//! rollout under such hooks might have gone another way, and can't be judged by what it did.

use harness::{Harness, Hook, RetryExit};

use crate::protocol;
use crate::trajectory::{Event, ExitReason, Message, Role, StepKind, Trajectory, Verdict};
use crate::verifier::{Verifier, VerifierKind};

/// What finished rollouts are judged by now.
#[derive(Clone, Copy)]
pub struct Recheck<'a> {
    /// The harness that the rollouts ran under.
    pub harness: &'a Harness,
    /// The verifier's kind.
    pub kind: &'a VerifierKind,
    /// The verifier.
    pub verifier: &'a dyn Verifier,
    /// The task's answer.
    pub gold: &'a str,
}

impl Recheck<'_> {
    /// Judges a rollout that was made under the verifier `made_under`; without one that isn't known.
    /// `false` where it has to be made again, and is left as it was.
    pub async fn judge(
        &self,
        trajectory: &mut Trajectory,
        made_under: Option<&VerifierKind>,
    ) -> bool {
        let reads_alike = made_under.is_some_and(|kind| kind.reading() == self.kind.reading());
        let compares_alike = made_under == Some(self.kind);
        let is_course_another = made_under.is_some()
            && (asks_for_answers(self.harness) && !reads_alike
                || compares_answers(self.harness) && !compares_alike);
        if is_course_another {
            return false;
        }
        if reads_alike || asks_for_answers(self.harness) {
            self.compare(trajectory).await;
        } else {
            self.read(trajectory).await;
        }
        true
    }

    /// Judges the answer that stands in the record.
    async fn compare(&self, trajectory: &mut Trajectory) {
        let Some(answer) = &trajectory.answer else {
            return;
        };
        let rule = &trajectory.verdict.rule;
        // What the last comparison passed over stands behind the rule.
        let rule = rule.split_once('+').map_or(rule.as_str(), |(rule, _)| rule);
        trajectory.verdict = self.verifier.judge(self.gold, answer, rule).await;
    }

    /// Finds the answer in the final text and judges it.
    async fn read(&self, trajectory: &mut Trajectory) {
        let text = final_text(self.harness, trajectory).unwrap_or_default();
        if matches!(trajectory.exit, ExitReason::Answered | ExitReason::NoAnswer) {
            let said = protocol::without_reasoning(&text);
            trajectory.exit = match self.verifier.extract(&said) {
                Some(_) => ExitReason::Answered,
                None => ExitReason::NoAnswer,
            };
        }
        let (answer, verdict) = match self.verifier.extract(&text) {
            Some(found) => {
                let rule = found.rule.name();
                let verdict = self.verifier.judge(self.gold, &found.answer, rule).await;
                (Some(found.answer), verdict)
            }
            None => (None, Verdict::no_answer()),
        };
        let mut steps = trajectory.steps.iter_mut().rev();
        if let Some(step) = steps.find(|step| step.kind == StepKind::Final) {
            step.text = answer.clone().unwrap_or_default();
            step.event = answer.is_none().then_some(Event::NoFinalAnswer);
        }
        trajectory.answer = answer;
        trajectory.verdict = verdict;
    }
}

/// The last reply, if it is whole and neither a plan nor a call, nor meant to be one.
fn final_text(harness: &Harness, trajectory: &Trajectory) -> Option<String> {
    let messages = &trajectory.messages;
    let is_reply = |message: &Message| message.role == Role::Assistant;
    let last = messages.iter().rposition(is_reply)?;
    let (reply, after) = (&messages[last], &messages[last + 1..]);
    // A call that can't be read is answered like one that was run.
    let is_answered = after.iter().any(|message| message.role == Role::Tool);
    let mut hooks = harness.middleware.hooks.on_start.iter();
    let is_plan = hooks.any(|hook| {
        matches!(hook, Hook::Plan { next, .. }
            if after.first().is_some_and(|message| message.content == *next))
    });
    let is_final = reply.train && reply.tool_calls.is_empty() && !is_answered && !is_plan;
    is_final.then(|| reply.content.clone())
}

/// Whether hooks act on whether an answer was found, or find one in what isn't kept whole.
fn asks_for_answers(harness: &Harness) -> bool {
    let hooks = &harness.middleware.hooks;
    let mut hooks = hooks.post_model_call.iter().chain(&hooks.on_finish);
    hooks.any(|hook| match hook {
        Hook::Nudge { .. }
        | Hook::Verify { .. }
        | Hook::Vote { .. }
        | Hook::AnswerFromLastResult {} => true,
        Hook::Retry { exits, .. } => exits.contains(&RetryExit::NoAnswer),
        Hook::RepairJson {}
        | Hook::ExtractFencedCode {}
        | Hook::ForceFinalAnswer { .. }
        | Hook::Compact { .. }
        | Hook::AutoPrintLastExpression {}
        | Hook::DetectRepeat { .. }
        | Hook::TruncateOutput { .. }
        | Hook::EmptyOutputHint { .. }
        | Hook::AppendMessage { .. }
        | Hook::ErrorHint { .. }
        | Hook::Plan { .. } => false,
    })
}

/// Whether hooks compare answers with each other.
fn compares_answers(harness: &Harness) -> bool {
    let mut hooks = harness.middleware.hooks.on_finish.iter();
    hooks.any(|hook| matches!(hook, Hook::Vote { .. }))
}
