//! What comes before the first turn.

use harness::Hook;

use super::Run;
use crate::trajectory::{ExitReason, Message, Role, StepKind};

impl Run<'_> {
    /// Does what hooks say for the beginning.
    pub(super) async fn begin(&mut self) -> Result<(), ExitReason> {
        let harness = self.harness;
        for hook in &harness.middleware.hooks.on_start {
            if let Hook::Plan { message, next } = hook {
                self.plan(hook, message, next).await?;
            }
        }
        Ok(())
    }

    /// Asks for a plan, which stays in the conversation. No tool is announced: what looks like a call
    /// in a plan is none.
    async fn plan(&mut self, hook: &Hook, message: &str, next: &str) -> Result<(), ExitReason> {
        self.record.fired(hook, message);
        self.record.say(Role::User, StepKind::User, message);
        let completion = self.go_on(Vec::new(), None).await?;
        let text = completion.text.as_str();
        self.record.step(StepKind::Assistant, text, None);
        self.note_cut(&completion);
        let is_whole = !completion.finish.is_cut();
        if text.trim().is_empty() {
            // Nothing but reasoning, or nothing at all: there is no message to go on from.
            self.record.keep_ids(None);
        } else {
            self.keep_ids(&completion, text, is_whole);
            self.record.messages.push(Message {
                train: is_whole,
                ..Message::new(Role::Assistant, text)
            });
        }
        self.record.say(Role::User, StepKind::User, next);
        Ok(())
    }
}
