//! Calls through the policy's own tool interface.

use harness::{CallFormat, Hook};

use super::Run;
use super::reply::REPAIRED;
use crate::conversation;
use crate::policy::{Completion, NativeCall};
use crate::protocol;
use crate::trajectory::{Event, ExitReason, Message, Role, StepKind, ToolCall};

/// Calls of one reply that are run; a policy that makes more is beside itself.
const MOST_CALLS: usize = 16;

impl Run<'_> {
    /// Runs the calls of a reply in their order, and no more than a few. In another call format than
    /// `native` the first one is written into the text, so that the conversation has one form.
    pub(super) async fn take_native_calls(
        &mut self,
        completion: Completion,
    ) -> Result<(), ExitReason> {
        self.record
            .step(StepKind::Assistant, completion.text.as_str(), None);
        self.note_cut(&completion);
        self.record.final_text = None;
        let is_native = self.format == CallFormat::Native;
        let most = if is_native { MOST_CALLS } else { 1 };
        let count = completion.tool_calls.len().saturating_sub(most);
        if count > 0 {
            self.record.note(Event::CallsNotRun { count });
        }
        if !is_native {
            return self.take_in_text(&completion).await;
        }
        let read: Vec<(ToolCall, Option<String>)> = completion
            .tool_calls
            .iter()
            .take(MOST_CALLS)
            .enumerate()
            .map(|(index, call)| self.read(call, index))
            .collect();
        let is_whole = read.iter().all(|(_, problem)| problem.is_none());
        let is_whole = is_whole && !completion.finish.is_cut();
        self.keep_ids(&completion, &completion.text, is_whole);
        self.record.messages.push(Message {
            tool_calls: read.iter().map(|(call, _)| call.clone()).collect(),
            is_native: true,
            train: is_whole,
            ..Message::new(Role::Assistant, completion.text.as_str())
        });
        for (call, problem) in read {
            match problem {
                Some(reason) => self.refuse(&call, reason),
                None => self.call_tool(call).await?,
            }
        }
        Ok(())
    }

    /// The call and what is wrong with its arguments. Such arguments stay in the conversation as a
    /// JSON object that holds them as text.
    fn read(&mut self, call: &NativeCall, index: usize) -> (ToolCall, Option<String>) {
        let (arguments, problem) = match self.arguments(call) {
            Ok(arguments) => (arguments, None),
            Err(reason) => (
                protocol::unreadable_arguments(&call.arguments),
                Some(reason),
            ),
        };
        let mut named = self.record.name_call(call.tool.clone(), arguments);
        named.id = self.record.call_id(index);
        (named, problem)
    }

    fn arguments(
        &mut self,
        call: &NativeCall,
    ) -> Result<serde_json::Map<String, serde_json::Value>, String> {
        if call.tool.is_empty() {
            return Err("it has no name".into());
        }
        let read = protocol::read_arguments(&call.arguments, self.leniency())?;
        if read.is_repaired {
            let hooks = &self.harness.middleware.hooks.post_model_call;
            for hook in hooks
                .iter()
                .filter(|hook| matches!(hook, Hook::RepairJson {}))
            {
                self.record.fired(hook, REPAIRED);
            }
        }
        Ok(read.arguments)
    }

    async fn take_in_text(&mut self, completion: &Completion) -> Result<(), ExitReason> {
        let Some(first) = completion.tool_calls.first() else {
            return Ok(());
        };
        let (call, problem) = self.read(first, 0);
        let tools = &self.harness.tools;
        let written = protocol::render_call(self.format, &call.tool, tools, &call.arguments);
        let content = conversation::text_with_call(&completion.text, &written);
        // These are not the ids that the policy wrote.
        self.record.keep_ids(None);
        self.prior = None;
        self.record.messages.push(Message {
            tool_calls: vec![call.clone()],
            train: problem.is_none(),
            ..Message::new(Role::Assistant, content)
        });
        match problem {
            Some(reason) => self.refuse(&call, reason),
            None => self.call_tool(call).await?,
        }
        Ok(())
    }

    /// Tells the policy that a call can't be read.
    fn refuse(&mut self, call: &ToolCall, reason: String) {
        let error = format!("[error] the call can't be read: {reason}");
        let tools = &self.harness.tools;
        let written = protocol::render_call(CallFormat::Json, &call.tool, tools, &call.arguments);
        let event = Event::UnparsableCall { reason };
        self.record.step(StepKind::ToolCall, written, Some(event));
        self.answer_call("", &error, None);
    }
}
