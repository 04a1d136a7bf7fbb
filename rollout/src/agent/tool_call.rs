//! One tool call: checks, hooks, execution, and the message that goes back.

use harness::{Hook, Tool, ToolState};
use sandbox::{Execution, Exit, SandboxError, SandboxPolicy, SessionCall};

use super::{Run, with_causes};
use crate::protocol;
use crate::tools::{self, ToolFault};
use crate::trajectory::{Event, ExitReason, StepKind, ToolCall};

impl Run<'_> {
    /// Runs a call and adds its result to the conversation.
    pub(super) async fn call_tool(&mut self, call: ToolCall) -> Result<(), ExitReason> {
        let harness = self.harness;
        let is_repeated = self
            .record
            .calls
            .iter()
            .any(|(tool, arguments)| *tool == call.tool && *arguments == call.arguments);
        self.record
            .calls
            .push((call.tool.clone(), call.arguments.clone()));
        let written = |call: &ToolCall| {
            protocol::render_call(self.format, &call.tool, &harness.tools, &call.arguments)
        };
        let Some(tool) = harness.tools.get(call.tool.as_str()) else {
            let name = call.tool.clone();
            let known: Vec<&str> = harness.tools.keys().map(|name| name.as_str()).collect();
            let error = match known.as_slice() {
                [] => format!("[error] there is no tool {name}"),
                known => format!("[error] there is no tool {name}, only {}", known.join(", ")),
            };
            self.record.step(
                StepKind::ToolCall,
                written(&call),
                Some(Event::UnknownTool { name }),
            );
            self.answer_call("", &error, None);
            return Ok(());
        };
        let program = match tools::program(tool, &call.arguments) {
            Ok(program) => program,
            Err(reason) => {
                let error = format!("[error] {reason}");
                let event = Event::BadArguments { reason };
                self.record
                    .step(StepKind::ToolCall, written(&call), Some(event));
                self.answer_call("", &error, None);
                return Ok(());
            }
        };
        let event = is_repeated.then_some(Event::RepeatedCall);
        self.record.step(StepKind::ToolCall, program, event);
        for hook in &harness.middleware.hooks.pre_tool_call {
            if let Hook::DetectRepeat { message } = hook
                && is_repeated
            {
                self.record.fired(hook, message);
                self.record.say_result(message);
                return Ok(());
            }
        }
        self.execute(tool, program).await
    }

    async fn execute(&mut self, tool: &Tool, program: &str) -> Result<(), ExitReason> {
        let mut hooks = self.harness.middleware.hooks.pre_tool_call.iter();
        let printing = hooks.find(|hook| matches!(hook, Hook::AutoPrintLastExpression {}));
        // Not a secret: a program that prints it only has the hook recorded once too often.
        let marker = format!("value-{:016x}", super::call_seed(self.seed, u32::MAX));
        let printed = printing.map(|_| marker.as_str());
        let code = self.script.of(program, tool.state, printed);
        let left = self.wall_left()?;
        let policy = tools::sandbox_policy(tool, left);
        let SessionCall {
            mut execution,
            is_state_lost,
        } = match self.run_program(tool, &code, &policy).await {
            Ok(call) => call,
            Err(fault) => return self.take_fault(&fault),
        };
        if execution.exit == Exit::TimedOut && policy.wall == left {
            return Err(ExitReason::WallBudget);
        }
        if let Some(hook) = printing
            && let Some(stderr) = execution.stderr.trim_end().strip_suffix(&marker)
        {
            execution.stderr = stderr.trim_end().to_owned();
            self.record
                .fired(hook, "the value of the last expression was printed");
        }
        execution.stdout = tools::without_addresses(execution.stdout);
        execution.stderr = tools::without_addresses(execution.stderr);
        let mut error = tools::error_line(&execution, &policy);
        if is_state_lost {
            error = tools::with_lost_state(&error);
        }
        if tools::is_success(&execution) {
            self.record.last_output = Some(execution.stdout.clone());
        }
        self.answer_call(&execution.stdout, &error, Some((tool, &execution)));
        Ok(())
    }

    /// A program that couldn't be run. Where it is the harness that asks for what the sandbox can't give,
    /// that is a failed call like any other; anything else is a fault of the surroundings.
    fn take_fault(&mut self, fault: &ToolFault) -> Result<(), ExitReason> {
        let (reason, exit) = match fault.source.downcast_ref::<SandboxError>() {
            Some(SandboxError::Policy(error)) => (error.to_string(), Exit::OutOfMemory),
            Some(error @ SandboxError::NoForkServer { .. }) => (error.to_string(), Exit::Code(1)),
            _ => {
                return Err(ExitReason::Infrastructure {
                    reason: with_causes(fault),
                    is_retryable: true,
                    wait_s: None,
                });
            }
        };
        self.answer_call("", &format!("[error] the tool can't run: {reason}"), None);
        self.record.note(Event::ToolError { exit });
        Ok(())
    }

    /// Runs a program as the tool says: by itself, or in the rollout's interpreter.
    async fn run_program(
        &mut self,
        tool: &Tool,
        code: &str,
        policy: &SandboxPolicy,
    ) -> Result<SessionCall, ToolFault> {
        let sandbox = &self.agent.sandbox;
        match tool.state {
            ToolState::Stateless => Ok(SessionCall {
                execution: sandbox.run_python(code, policy).await?,
                is_state_lost: false,
            }),
            ToolState::Stateful => {
                let session = match self.session.take() {
                    Some(session) => session,
                    None => sandbox.open_session().await?,
                };
                self.session.insert(session).call(code, policy).await
            }
        }
    }

    /// Applies the hooks for results and adds the tool message. `error` is empty for a success;
    /// `ran` is absent if nothing was run.
    pub(super) fn answer_call(
        &mut self,
        output: &str,
        error: &str,
        ran: Option<(&Tool, &Execution)>,
    ) {
        let hooks = &self.harness.middleware.hooks;
        let mut output = output.trim_end().to_owned();
        let mut fired: Vec<(&Hook, String)> = Vec::new();
        // Shortening concerns what the program printed, so it comes before anything is added.
        for hook in &hooks.post_tool_call {
            if let Hook::TruncateOutput { max_chars, marker } = hook
                && let Some(shorter) = keep_ends(&output, *max_chars, |_| marker.clone())
            {
                fired.push((
                    hook,
                    format!("output of {} characters was cut", output.chars().count()),
                ));
                output = shorter;
            }
        }
        let limit = ran.map_or(usize::MAX, |(tool, _)| tool.limits.output_chars);
        let mut is_cut = ran.is_some_and(|(_, execution)| execution.is_truncated);
        let note = |count| format!("\n[output cut: {count} characters left out here]\n");
        if let Some(shorter) = keep_ends(&output, limit, note) {
            output = shorter;
            is_cut = true;
        }
        let is_empty = error.is_empty() && output.trim().is_empty();
        let mut text = tools::render_result(&output, error);
        for hook in &hooks.post_tool_call {
            match hook {
                Hook::EmptyOutputHint { message } if is_empty => {
                    text.clone_from(message);
                    fired.push((hook, message.clone()));
                }
                Hook::AppendMessage { message } => {
                    text = format!("{text}\n{message}");
                    fired.push((hook, message.clone()));
                }
                _ => {}
            }
        }
        for hook in &hooks.on_tool_error {
            if let Hook::ErrorHint { message } = hook
                && !error.is_empty()
            {
                text = format!("{text}\n{message}");
                fired.push((hook, message.clone()));
            }
        }
        self.record.say_result(&text);
        if let Some((_, execution)) = ran {
            if !error.is_empty() {
                let exit = execution.exit.clone();
                self.record.note(Event::ToolError { exit });
            }
            if is_empty {
                self.record.note(Event::EmptyOutput);
            }
            if is_cut {
                self.record.note(Event::OutputTruncated);
            }
        }
        for (hook, what) in fired {
            self.record.fired(hook, what);
        }
    }
}

/// The first and the last part of a text that is longer than `most` characters, with a marker between,
/// which is made of the number of characters left out: results tend to stand at the end, what they are
/// about at the beginning.
fn keep_ends(text: &str, most: usize, marker: impl FnOnce(usize) -> String) -> Option<String> {
    let length = text.chars().count();
    if length <= most {
        return None;
    }
    let head: String = text.chars().take(most - most / 2).collect();
    let tail: String = text.chars().skip(length - most / 2).collect();
    Some(format!("{head}{}{tail}", marker(length - most)))
}
