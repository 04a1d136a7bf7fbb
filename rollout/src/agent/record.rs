//! What a rollout leaves behind, while it grows.

use std::time::Instant;

use harness::Hook;
use serde_json::{Map, Value};

use super::Agent;
use crate::policy::Completion;
use crate::task::{Split, Task};
use crate::trajectory::{
    Event, ExitReason, Message, ModelCall, Role, RolloutId, RolloutKey, Step, StepKind, ToolCall,
    Trajectory, Usage, Verdict,
};
use crate::verifier::Verifier;

pub(super) struct Record {
    pub(super) started: Instant,
    pub(super) messages: Vec<Message>,
    /// Messages that were there before the first reply.
    opening: usize,
    steps: Vec<Step>,
    model_calls: Vec<ModelCall>,
    pub(super) usage: Usage,
    /// Calls so far, for telling repetitions.
    pub(super) calls: Vec<(String, Map<String, Value>)>,
    /// Output of the last program that succeeded.
    pub(super) last_output: Option<String>,
    /// The last reply, if it has no call.
    pub(super) final_text: Option<String>,
}

impl Record {
    /// Starts with the opening of the conversation. Examples are the harness's and no part of what
    /// happened.
    pub(super) fn new(messages: Vec<Message>) -> Self {
        let step = |kind, message: &Message| Step {
            kind,
            text: message.content.clone(),
            event: None,
        };
        let system = messages.iter().find(|message| message.role == Role::System);
        let system = system.map(|message| step(StepKind::System, message));
        let task = messages.last().map(|message| step(StepKind::User, message));
        Record {
            started: Instant::now(),
            steps: system.into_iter().chain(task).collect(),
            opening: messages.len(),
            messages,
            model_calls: Vec::new(),
            usage: Usage::default(),
            calls: Vec::new(),
            last_output: None,
            final_text: None,
        }
    }

    pub(super) fn step(&mut self, kind: StepKind, text: impl Into<String>, event: Option<Event>) {
        self.steps.push(Step {
            kind,
            text: text.into(),
            event,
        });
    }

    /// Something remarkable about the last step.
    pub(super) fn note(&mut self, event: Event) {
        match self.steps.last_mut() {
            Some(step) if step.event.is_none() => step.event = Some(event),
            Some(step) => {
                let kind = step.kind;
                self.step(kind, "", Some(event));
            }
            None => {}
        }
    }

    pub(super) fn fired(&mut self, hook: &Hook, what: impl Into<String>) {
        let hook = hook.kind().to_owned();
        self.step(StepKind::Hook, what, Some(Event::HookFired { hook }));
    }

    /// Adds a message and its step.
    pub(super) fn say(&mut self, role: Role, kind: StepKind, text: &str) {
        self.messages.push(Message::new(role, text));
        self.step(kind, text, None);
    }

    /// Adds the result of a call. It goes where the call came from.
    pub(super) fn say_result(&mut self, text: &str) {
        let mut replies = self.messages.iter().rev();
        let call = replies.find(|message| message.role == Role::Assistant);
        let is_native = call.is_some_and(|message| message.is_native);
        self.say(Role::Tool, StepKind::ToolResult, text);
        if let Some(message) = self.messages.last_mut() {
            message.is_native = is_native;
        }
    }

    pub(super) fn add_call(&mut self, seed: u64, completion: &Completion) {
        self.usage.add(&completion.usage);
        self.model_calls.push(ModelCall {
            seed,
            prompt_ids: completion.prompt_ids.clone(),
            output_ids: completion.output_ids.clone(),
            logprobs: completion.logprobs.clone(),
            usage: completion.usage,
            finish: completion.finish,
            finish_reason: completion.finish_reason.clone(),
            reasoning: completion.reasoning.clone(),
        });
    }

    /// Cuts the last call's ids to those that stay in the conversation.
    pub(super) fn keep_ids(&mut self, count: Option<usize>) {
        if let Some(call) = self.model_calls.last_mut() {
            let count = count.unwrap_or(0);
            call.output_ids.truncate(count);
            call.logprobs.truncate(count);
        }
    }

    /// Gives a call its name within the rollout.
    pub(super) fn name_call(&self, tool: String, arguments: Map<String, Value>) -> ToolCall {
        ToolCall {
            id: self.call_id(0),
            tool,
            arguments,
        }
    }

    /// The name of the call that is `index` places behind the next one.
    pub(super) fn call_id(&self, index: usize) -> String {
        let earlier = self.messages[self.opening..].iter();
        let earlier: usize = earlier.map(|message| message.tool_calls.len()).sum();
        format!("call_{}", earlier + index + 1)
    }

    /// Finds and judges the answer and closes the record.
    pub(super) async fn finish(
        mut self,
        agent: &Agent,
        task: &Task,
        split: Split,
        seed: u64,
        exit: ExitReason,
    ) -> Trajectory {
        let (answer, verdict) = if exit.is_infrastructure() {
            (None, Verdict::no_answer())
        } else {
            self.judge(agent, task).await
        };
        let task_hash = task.content_hash();
        let harness = agent.harness.id();
        let id = RolloutId::of(&RolloutKey {
            policy: agent.policy.id(),
            harness: &harness,
            task_hash: &task_hash,
            seed,
            budget: &agent.budget,
            sandbox_level: &agent.sandbox_level,
        });
        Trajectory {
            id,
            task: task.id.clone(),
            task_hash,
            split,
            harness,
            policy: agent.policy.id().clone(),
            seed,
            sandbox_level: agent.sandbox_level.clone(),
            steps: self.steps,
            messages: self.messages,
            model_calls: self.model_calls,
            answer,
            verdict,
            exit,
            usage: self.usage,
            wall_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }

    async fn judge(&mut self, agent: &Agent, task: &Task) -> (Option<String>, Verdict) {
        let Some(Found { answer, rule, hook }) = self.find(agent) else {
            self.step(StepKind::Final, "", Some(Event::NoFinalAnswer));
            return (None, Verdict::no_answer());
        };
        let verdict = agent.verifier.judge(&task.answer, &answer, rule).await;
        if let Some(hook) = hook {
            self.fired(hook, answer.as_str());
        }
        let event = hook.map(|_| Event::NoFinalAnswer);
        self.step(StepKind::Final, answer.as_str(), event);
        (Some(answer), verdict)
    }

    /// The answer, as it will be judged.
    pub(super) fn answer(&self, agent: &Agent) -> Option<String> {
        self.find(agent).map(|found| found.answer)
    }

    /// The answer of the final text, or where a hook says so that of the last result.
    fn find<'a>(&self, agent: &'a Agent) -> Option<Found<'a>> {
        let verifier: &dyn Verifier = agent.verifier.as_ref();
        let text = self.final_text.as_deref().unwrap_or_default();
        if let Some(extracted) = verifier.extract(text) {
            return Some(Found {
                rule: extracted.rule.name(),
                answer: extracted.answer,
                hook: None,
            });
        }
        let mut hooks = agent.harness.middleware.hooks.on_finish.iter();
        let hook = hooks.find(|hook| matches!(hook, Hook::AnswerFromLastResult {}))?;
        let output = self.last_output.as_deref().unwrap_or_default();
        let mut lines = output.lines().rev().map(str::trim);
        let line = lines.find(|line| !line.is_empty())?;
        Some(Found {
            rule: "last_result",
            answer: verifier.extract(line)?.answer,
            hook: Some(hook),
        })
    }

    /// Goes back to the opening. The steps stay, and so do the calls of the policy, but for the ids:
    /// nobody is to learn from what led nowhere.
    pub(super) fn begin_again(&mut self) {
        self.messages.truncate(self.opening);
        self.calls.clear();
        self.last_output = None;
        self.final_text = None;
        for call in &mut self.model_calls {
            forget(call);
        }
    }

    /// Takes the ids from the last call of the policy.
    pub(super) fn forget_ids(&mut self) {
        if let Some(call) = self.model_calls.last_mut() {
            forget(call);
        }
    }

    /// Shares the budget with an earlier sample.
    pub(super) fn go_on_from(&mut self, earlier: &Record) {
        self.started = earlier.started;
        self.usage = earlier.usage;
    }

    /// Puts `marker` in the place of tool results, but for the `keep` latest ones and those of
    /// examples; how many it was.
    pub(super) fn replace_results(&mut self, keep: usize, marker: &str) -> usize {
        let results = self.messages[self.opening..].iter_mut();
        let results = results.filter(|message| message.role == Role::Tool);
        let older = results.rev().skip(keep);
        let mut count = 0;
        for message in older.filter(|message| message.content.len() > marker.len()) {
            marker.clone_into(&mut message.content);
            count += 1;
        }
        count
    }
}

/// An answer and where it was found.
struct Found<'a> {
    answer: String,
    rule: &'static str,
    /// The hook that found it, if one did.
    hook: Option<&'a Hook>,
}

fn forget(call: &mut ModelCall) {
    call.prompt_ids.clear();
    call.output_ids.clear();
    call.logprobs.clear();
}
