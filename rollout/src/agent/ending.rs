//! Hooks that keep a rollout from ending, or from growing: compaction, new beginnings, checks.

use harness::{Hook, RetryExit};

use super::Run;
use crate::protocol;
use crate::trajectory::{ExitReason, Message, Role, StepKind};

impl Run<'_> {
    /// All turns, begun again where a hook says so.
    pub(super) async fn attempts(&mut self) -> ExitReason {
        loop {
            let exit = self.turns().await.unwrap_or_else(|exit| exit);
            let retries = self.retries;
            let is_meant = |hook: &&Hook| {
                matches!(hook, Hook::Retry { exits, max }
                    if retries < *max && exits.iter().any(|retry| is_same(*retry, &exit)))
            };
            let hook = self
                .harness
                .middleware
                .hooks
                .on_finish
                .iter()
                .find(is_meant);
            let Some(hook) = hook.filter(|_| self.tokens_left().is_ok()) else {
                return exit;
            };
            self.retries += 1;
            let what = format!("it ended with {} and begins again", exit.name());
            self.record.fired(hook, what);
            self.record.begin_again();
            self.prior = None;
            self.context_used = 0;
            self.nudges = 0;
        }
    }

    /// Puts the marker in the place of older tool results, if the conversation is long.
    pub(super) fn compact(&mut self, hook: &Hook) {
        let Hook::Compact {
            above_tokens,
            keep_results,
            marker,
        } = hook
        else {
            return;
        };
        if self.context_used <= u64::from(*above_tokens) {
            return;
        }
        let count = self.record.replace_results(*keep_results as usize, marker);
        if count == 0 {
            return;
        }
        let what = format!("{count} older results were replaced");
        self.record.fired(hook, what);
        // The ids of the longer conversation are no beginning of this one, and its length is the
        // policy's to find out.
        self.prior = None;
        self.context_used = 0;
    }

    /// Has the final reply checked, if a hook says so; whether most checks doubt it.
    pub(super) async fn is_doubted(&mut self) -> Result<bool, ExitReason> {
        let mut hooks = self.harness.middleware.hooks.on_finish.iter();
        let Some((hook, prompt, sceptics, message)) = hooks.find_map(|hook| match hook {
            Hook::Verify {
                prompt,
                sceptics,
                message,
                max,
            } if self.doubts < *max => Some((hook, prompt, *sceptics, message)),
            _ => None,
        }) else {
            return Ok(false);
        };
        let solution = self.record.final_text.as_deref().unwrap_or_default();
        let question = format!(
            "Problem:\n{}\n\nSolution:\n{}",
            self.problem.trim(),
            protocol::without_reasoning(solution)
        );
        let mut doubting = 0;
        for _ in 0..sceptics {
            let messages = vec![
                Message::new(Role::System, prompt.trim()),
                Message::new(Role::User, question.as_str()),
            ];
            let completion = self.ask(messages, Vec::new(), None, None).await?;
            // A check is no part of the conversation, and nobody is to learn from it.
            self.record.forget_ids();
            doubting += u32::from(says_wrong(&completion.text));
        }
        let what = format!("{doubting} of {sceptics} checks doubt the answer");
        if doubting * 2 <= sceptics {
            self.record.step(StepKind::Hook, what, None);
            return Ok(false);
        }
        self.doubts += 1;
        self.record.fired(hook, what);
        self.record.say(Role::User, StepKind::User, message);
        Ok(true)
    }
}

fn is_same(retry: RetryExit, exit: &ExitReason) -> bool {
    match retry {
        RetryExit::NoAnswer => *exit == ExitReason::NoAnswer,
        RetryExit::ReplyCut => *exit == ExitReason::ReplyCut,
        RetryExit::ReasoningCut => *exit == ExitReason::ReasoningCut,
        RetryExit::TurnLimit => *exit == ExitReason::TurnLimit,
        RetryExit::ContextLimit => *exit == ExitReason::ContextLimit,
    }
}

/// Whether the last of the words RIGHT and WRONG in a check is the second.
fn says_wrong(text: &str) -> bool {
    let text = protocol::without_reasoning(text).to_uppercase();
    let words = text.split(|c: char| !c.is_alphanumeric());
    let mut verdicts = words.filter(|word| matches!(*word, "RIGHT" | "WRONG"));
    verdicts.next_back() == Some("WRONG")
}
