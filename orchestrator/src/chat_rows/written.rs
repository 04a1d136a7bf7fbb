//! Rollouts as rows.

use harness::{CallFormat, Harness};
use rollout::policy::ToolSchema;
use rollout::protocol;
use rollout::trajectory::{Message, Role, ToolCall, Trajectory};
use serde_json::{Value, json};

/// A rollout as a row: the conversation as the policy had it, its own replies marked with `train`, and
/// the tools of its harness, if that is known. Those that went through the policy's own interface stand
/// under `tools`, where a chat template finds them; those that the system prompt describes under
/// `tools_in_prompt`, since a template would say them a second time.
pub fn of_trajectory(trajectory: &Trajectory, harness: Option<&Harness>) -> Value {
    let mut row = json!({
        "id": trajectory.id.as_str(),
        "task": trajectory.task.as_str(),
        "correct": trajectory.verdict.correct,
    });
    if let Some(harness) = harness.filter(|harness| !harness.tools.is_empty()) {
        let name = if is_announced(trajectory, harness) {
            "tools"
        } else {
            "tools_in_prompt"
        };
        let tool = |tool: ToolSchema| json!({"type": "function", "function": tool});
        row[name] = ToolSchema::of(&harness.tools)
            .into_iter()
            .map(tool)
            .collect();
    }
    let mut ids = CallIds::default();
    let messages = trajectory.messages.iter();
    row["messages"] = messages.map(|message| written(message, &mut ids)).collect();
    row
}

/// Whether the tools went through the policy's own interface. A policy without one gets them described
/// in the system prompt, whatever the harness asks for.
fn is_announced(trajectory: &Trajectory, harness: &Harness) -> bool {
    let described = protocol::render_tools(CallFormat::Xml, &harness.tools);
    let mut messages = trajectory.messages.iter();
    harness.middleware.protocol.call_format == CallFormat::Native
        && !messages
            .any(|message| message.role == Role::System && message.content.contains(&described))
}

/// Ids of the calls of one conversation. Calls are numbered anew: those of worked examples have the same
/// names as the policy's own. Results come in the order of their calls.
#[derive(Default)]
struct CallIds {
    made: usize,
    answered: usize,
}

impl CallIds {
    fn of_call(&mut self) -> String {
        self.made += 1;
        format!("call_{}", self.made)
    }

    fn of_result(&mut self) -> Option<String> {
        (self.answered < self.made).then(|| {
            self.answered += 1;
            format!("call_{}", self.answered)
        })
    }
}

fn written(message: &Message, ids: &mut CallIds) -> Value {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let mut written = json!({"role": role, "content": message.content});
    if role == "assistant" {
        written["train"] = json!(message.train);
    }
    if !message.is_native {
        return written;
    }
    if !message.tool_calls.is_empty() {
        let call = |call: &ToolCall| {
            let function = json!({"name": call.tool, "arguments": call.arguments});
            json!({"id": ids.of_call(), "type": "function", "function": function})
        };
        written["tool_calls"] = message.tool_calls.iter().map(call).collect();
    } else if role == "tool"
        && let Some(id) = ids.of_result()
    {
        written["tool_call_id"] = id.into();
    }
    written
}
