//! The agent loop: turns of policy and tools until an answer or a limit.

mod native;
mod record;
mod tool_call;

use std::sync::Arc;
use std::time::Duration;

use harness::{CallFormat, Harness, Hook, Tool, ToolName};

use crate::conversation;
use crate::policy::{Completion, CompletionRequest, Finish, Policy, PolicyError, ToolSchema};
use crate::protocol::{self, Leniency, Parsed};
use crate::task::{Split, Task};
use crate::tools::{ToolRunner, ToolSession};
use crate::trajectory::{Event, ExitReason, Message, Role, RolloutBudget, StepKind, Trajectory};
use crate::verifier::Verifier;
use record::Record;

/// What is recorded of a call that `repair_json` mended.
const REPAIRED: &str = "the call's JSON was repaired";

/// Everything a rollout needs but the task. Cheap to clone; one serves any number of rollouts.
#[derive(Clone)]
pub struct Agent {
    /// φ.
    pub harness: Arc<Harness>,
    /// θ.
    pub policy: Arc<dyn Policy>,
    /// What runs programs.
    pub sandbox: Arc<dyn ToolRunner>,
    /// What judges answers. Only it sees the gold answer.
    pub verifier: Arc<dyn Verifier>,
    /// What one rollout may spend.
    pub budget: RolloutBudget,
    /// What the sandbox enforces, for the record.
    pub sandbox_level: String,
}

/// Runs one task. Never fails: what goes wrong is the trajectory's exit reason.
pub async fn rollout(agent: &Agent, task: &Task, split: Split, seed: u64) -> Trajectory {
    let mut run = Run::new(agent, task, seed);
    let exit = run.turns().await.unwrap_or_else(|exit| exit);
    run.record.finish(agent, task, split, seed, exit)
}

/// Seed of the model call in one turn.
fn call_seed(seed: u64, turn: u32) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.update(&turn.to_le_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

/// One rollout in progress. Its methods return the exit reason as an error when it is over.
struct Run<'a> {
    agent: &'a Agent,
    harness: &'a Harness,
    /// The harness's call format, or the one in its place.
    format: CallFormat,
    seed: u64,
    record: Record,
    /// Ids of the conversation up to the last reply.
    prior: Option<Vec<u32>>,
    /// Tokens of the last prompt and reply together.
    context_used: u64,
    nudges: u32,
    /// The interpreter of tools that keep state, from their first call on.
    session: Option<Box<dyn ToolSession>>,
}

impl<'a> Run<'a> {
    fn new(agent: &'a Agent, task: &Task, seed: u64) -> Self {
        let harness = &agent.harness;
        let format = match harness.middleware.protocol.call_format {
            CallFormat::Native if !agent.policy.has_tool_interface() => CallFormat::Xml,
            format => format,
        };
        Run {
            agent,
            harness,
            format,
            seed,
            record: Record::new(conversation::open(harness, format, &task.problem)),
            prior: None,
            context_used: 0,
            nudges: 0,
            session: None,
        }
    }

    async fn turns(&mut self) -> Result<ExitReason, ExitReason> {
        let turns = self.harness.middleware.protocol.max_turns;
        for turn in 0..turns {
            for hook in &self.harness.middleware.hooks.pre_model_call {
                if let Hook::ForceFinalAnswer { message } = hook
                    && turn + 1 == turns
                {
                    self.record.fired(hook, message);
                    self.record.say(Role::User, StepKind::User, message);
                }
            }
            let completion = self.complete(turn).await?;
            if let Some(exit) = self.take_reply(completion).await? {
                return Ok(exit);
            }
        }
        self.record.note(Event::TurnLimit);
        Ok(ExitReason::TurnLimit)
    }

    /// One call of the policy.
    async fn complete(&mut self, turn: u32) -> Result<Completion, ExitReason> {
        let middleware = &self.harness.middleware;
        let per_turn = middleware.protocol.max_tokens_per_turn;
        let spent = self.record.usage.completion_tokens;
        let left = self.agent.budget.max_tokens.saturating_sub(spent);
        if left == 0 {
            return Err(ExitReason::TokenBudget);
        }
        // The conversation only grows, so this needs no tokeniser to be certain. The policy itself
        // checks the exact length where it can.
        if self.context_used + u64::from(per_turn) > u64::from(middleware.context.max_tokens) {
            self.record.note(Event::ContextLimit);
            return Err(ExitReason::ContextLimit);
        }
        let request = CompletionRequest {
            messages: self.record.messages.clone(),
            tools: self.announced_tools(),
            max_tokens: per_turn.min(u32::try_from(left).unwrap_or(u32::MAX)),
            context_tokens: middleware.context.max_tokens,
            temperature: middleware.sampling.temperature,
            top_p: middleware.sampling.top_p,
            top_k: middleware.sampling.top_k,
            stop: middleware.protocol.stop.clone(),
            seed: call_seed(self.seed, turn),
            prior: self.prior.take(),
        };
        let seed = request.seed;
        let reply = tokio::time::timeout(self.wall_left()?, self.agent.policy.complete(request));
        let completion = match reply.await {
            Err(_) => return Err(ExitReason::WallBudget),
            Ok(Err(PolicyError::ContextOverflow { .. })) => {
                self.record.note(Event::ContextLimit);
                return Err(ExitReason::ContextLimit);
            }
            Ok(Err(error)) => {
                return Err(ExitReason::Infrastructure {
                    reason: with_causes(&error),
                    is_retryable: error.is_retryable(),
                    wait_s: match error {
                        PolicyError::RateLimited { wait } => Some(wait.as_secs()),
                        _ => None,
                    },
                });
            }
            Ok(Ok(completion)) => completion,
        };
        self.context_used = completion.usage.prompt_tokens + completion.usage.completion_tokens;
        self.record.add_call(seed, &completion);
        Ok(completion)
    }

    /// The tools for the policy's own interface.
    fn announced_tools(&self) -> Vec<ToolSchema> {
        if self.format != CallFormat::Native {
            return Vec::new();
        }
        let tools = self.harness.tools.iter();
        let schema = |(name, tool): (&ToolName, &Tool)| ToolSchema {
            name: name.to_string(),
            description: tool.description.trim().to_owned(),
            parameters: tool.parameters.clone(),
        };
        tools.map(schema).collect()
    }

    /// Reads a reply and acts on it. `Some` when it was the last.
    async fn take_reply(
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

    fn leniency(&self) -> Leniency {
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

    fn note_cut(&mut self, completion: &Completion) {
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
    fn keep_ids(&mut self, completion: &Completion, kept: &str, is_whole: bool) {
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

    /// Wall time that remains.
    fn wall_left(&self) -> Result<Duration, ExitReason> {
        let left = self
            .agent
            .budget
            .wall
            .checked_sub(self.record.started.elapsed());
        // Below this neither a program nor a reply can do anything.
        left.filter(|left| *left >= Duration::from_millis(1))
            .ok_or(ExitReason::WallBudget)
    }
}

/// Whether a reply has nothing but reasoning.
fn is_all_reasoning(completion: &Completion) -> bool {
    let text = completion.text.trim();
    text.is_empty() && !completion.reasoning.is_empty() || protocol::is_inside_reasoning(text)
}

/// An error with what caused it, in one line.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
