//! One reply: what it says, what is remarkable about it, and what follows.

use harness::Hook;

use super::Run;
use crate::policy::{Completion, Finish};
use crate::protocol::{self, Leniency, Parsed};
use crate::trajectory::{Event, ExitReason, Message, Role, StepKind};

/// What is recorded of a call that `repair_json` mended.
pub(super) const REPAIRED: &str = "the call's JSON was repaired";

impl Run<'_> {
    /// Reads a reply and acts on it. `Some` when it was the last.
    pub(super) async fn take_reply(
        &mut self,
        completion: Completion,
    ) -> Result<Option<ExitReason>, ExitReason> {
        if !completion.tool_calls.is_empty() {
            return self.take_native_calls(completion).await.map(|()| None);
        }
        let leniency = self.leniency();
        let is_cut = completion.finish.is_cut();
        let text = completion.text.as_str();
        let parsed = protocol::parse(text, self.format, &self.harness.tools, leniency, !is_cut);
        let end = parsed.call.as_ref().map_or(text.len(), |call| call.end);
        let (kept, cut) = text.split_at(end);
        self.note_reply(&completion, &parsed, cut);
        // A whole call in a reply that was cut later on is whole all the same.
        let is_whole = !is_cut || parsed.call.is_some();
        self.keep_ids(&completion, kept, is_whole);

        let mut message = Message::new(Role::Assistant, kept);
        message.train = is_whole;
        if let Some(call) = parsed.call {
            let call = self.record.name_call(call.tool, call.arguments);
            message.tool_calls.push(call.clone());
            self.record.messages.push(message);
            self.record.final_text = None;
            self.call_tool(call).await?;
            return Ok(None);
        }
        self.record.messages.push(message);
        if let Some(problem) = parsed.problem {
            // The policy gets to know what was wrong, as of any call that failed.
            self.record.final_text = None;
            let error = format!("[error] the call can't be read: {problem}");
            self.answer_call("", &error, None);
            return Ok(None);
        }
        self.record.final_text = is_whole.then(|| text.to_owned());
        if is_cut && self.record.usage.completion_tokens >= self.agent.budget.max_tokens {
            return Ok(Some(ExitReason::TokenBudget));
        }
        if self.nudge(is_whole.then_some(&*parsed.before)) {
            return Ok(None);
        }
        Ok(Some(if is_cut && is_all_reasoning(&completion) {
            ExitReason::ReasoningCut
        } else if is_cut {
            ExitReason::ReplyCut
        } else if self.agent.verifier.extract(&parsed.before).is_some() {
            ExitReason::Answered
        } else {
            ExitReason::NoAnswer
        }))
    }

    pub(super) fn leniency(&self) -> Leniency {
        let hooks = &self.harness.middleware.hooks.post_model_call;
        Leniency {
            repair_json: hooks.contains(&Hook::RepairJson {}),
            fenced_code: hooks.contains(&Hook::ExtractFencedCode {}),
        }
    }

    /// Records the reply with all that is remarkable about it.
    fn note_reply(&mut self, completion: &Completion, parsed: &Parsed, cut: &str) {
        self.record
            .step(StepKind::Assistant, completion.text.as_str(), None);
        self.note_cut(completion);
        if let Some(reason) = &parsed.problem {
            let reason = reason.clone();
            self.record.note(Event::UnparsableCall { reason });
        } else if parsed.call.is_none()
            && !self.harness.tools.is_empty()
            && self.record.calls.is_empty()
        {
            self.record.note(Event::NoToolCall);
        }
        let characters = cut.trim().chars().count();
        // A surplus bracket is no text.
        if cut.contains(char::is_alphanumeric) {
            self.record.note(Event::TextAfterCall { characters });
        }
        let call = parsed.call.as_ref();
        for hook in &self.harness.middleware.hooks.post_model_call {
            match hook {
                Hook::RepairJson {} if call.is_some_and(|call| call.is_repaired) => {
                    self.record.fired(hook, REPAIRED);
                }
                Hook::ExtractFencedCode {} if call.is_some_and(|call| call.is_extracted) => {
                    self.record.fired(hook, "a code block was taken as a call");
                }
                _ => {}
            }
        }
    }

    pub(super) fn note_cut(&mut self, completion: &Completion) {
        match completion.finish {
            Finish::Length if is_all_reasoning(completion) => {
                self.record.note(Event::ReasoningLimit);
            }
            Finish::Length => self.record.note(Event::LengthLimit),
            Finish::Filtered => self.record.note(Event::Filtered),
            Finish::Stop | Finish::StopString | Finish::ToolCalls => {}
        }
    }

    /// Keeps the ids of what stays in the conversation, for the record and for the next call. Those
    /// of a reply that isn't whole serve the next call alone.
    pub(super) fn keep_ids(&mut self, completion: &Completion, kept: &str, is_whole: bool) {
        let count = if kept.len() == completion.text.len() {
            Some(completion.output_ids.len())
        } else {
            self.agent.policy.ids_of(&completion.output_ids, kept)
        };
        let count = count.filter(|_| !completion.output_ids.is_empty());
        self.record.keep_ids(count.filter(|_| is_whole));
        self.prior = count.map(|count| {
            let mut ids = completion.prompt_ids.clone();
            ids.extend_from_slice(&completion.output_ids[..count]);
            ids
        });
    }

    /// Sends the nudge for a reply with neither call nor answer, if a hook has one left; a reply
    /// that was cut has no text to find one in. Before any tool result a bare number is more often a
    /// step of the working than the answer.
    fn nudge(&mut self, text: Option<&str>) -> bool {
        let extracted = text.and_then(|text| self.agent.verifier.extract(text));
        let has_answer = extracted.is_some_and(|extracted| {
            extracted.rule.is_explicit() || self.record.last_output.is_some()
        });
        for hook in &self.harness.middleware.hooks.post_model_call {
            if let Hook::Nudge { message, max } = hook
                && !has_answer
                && self.nudges < *max
            {
                self.nudges += 1;
                self.record.fired(hook, message);
                self.record.say(Role::User, StepKind::User, message);
                return true;
            }
        }
        false
    }
}

/// Whether a reply has nothing but reasoning.
fn is_all_reasoning(completion: &Completion) -> bool {
    let text = completion.text.trim();
    text.is_empty() && !completion.reasoning.is_empty() || protocol::is_inside_reasoning(text)
}
