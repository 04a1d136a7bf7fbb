//! The agent loop: turns of policy and tools until an answer or a limit.

mod ending;
mod native;
mod record;
mod reply;
mod start;
mod tool_call;
mod vote;

use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::{CallFormat, Harness, Hook};

use crate::conversation;
use crate::policy::{Completion, CompletionRequest, Policy, PolicyError, ToolSchema};
use crate::task::{Split, Task};
use crate::tools::{Script, ToolRunner, ToolSession};
use crate::trajectory::{Event, ExitReason, Message, Role, RolloutBudget, StepKind, Trajectory};
use crate::verifier::Verifier;
use record::Record;

/// Time for a policy to say at the deadline that it was kept from asking.
const DEADLINE_GRACE: Duration = Duration::from_millis(20);

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
    let (record, exit) = vote::samples(agent, task, seed).await;
    record.finish(agent, task, split, seed, exit).await
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
    /// The problem, for whoever checks the answer.
    problem: &'a str,
    script: Script,
    record: Record,
    /// Calls of the policy so far; each has a seed by its number.
    calls: u32,
    /// Ids of the conversation up to the last reply.
    prior: Option<Vec<u32>>,
    /// Tokens of the last prompt and reply together.
    context_used: u64,
    nudges: u32,
    /// The interpreter of tools that keep state, from their first call on.
    session: Option<Box<dyn ToolSession>>,
    retries: u32,
    doubts: u32,
}

impl<'a> Run<'a> {
    fn new(agent: &'a Agent, task: &'a Task, seed: u64) -> Self {
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
            problem: &task.problem,
            script: Script::new(harness, &task.problem),
            calls: 0,
            record: Record::new(conversation::open(harness, format, &task.problem)),
            prior: None,
            context_used: 0,
            nudges: 0,
            session: None,
            retries: 0,
            doubts: 0,
        }
    }

    async fn turns(&mut self) -> Result<ExitReason, ExitReason> {
        let turns = self.harness.middleware.protocol.max_turns;
        self.begin().await?;
        for turn in 0..turns {
            for hook in &self.harness.middleware.hooks.pre_model_call {
                if let Hook::ForceFinalAnswer { message } = hook
                    && turn + 1 == turns
                {
                    self.record.fired(hook, message);
                    self.record.say(Role::User, StepKind::User, message);
                }
                self.compact(hook);
            }
            let completion = self.complete().await?;
            if let Some(exit) = self.take_reply(completion).await? {
                let is_last = turn + 1 == turns;
                if is_last || exit != ExitReason::Answered || !self.is_doubted().await? {
                    return Ok(exit);
                }
            }
        }
        self.record.note(Event::TurnLimit);
        Ok(ExitReason::TurnLimit)
    }

    /// The next reply of the conversation.
    async fn complete(&mut self) -> Result<Completion, ExitReason> {
        let tools = self.announced_tools();
        let grammar = self.grammar()?;
        self.go_on(tools, grammar).await
    }

    /// The policy's next message in the conversation.
    async fn go_on(
        &mut self,
        tools: Vec<ToolSchema>,
        grammar: Option<String>,
    ) -> Result<Completion, ExitReason> {
        let middleware = &self.harness.middleware;
        let per_turn = middleware.protocol.max_tokens_per_turn;
        // What the budget says comes first, and no more is asked for than it leaves.
        let reply = per_turn.min(self.tokens_left()?);
        // The conversation only grows, so this needs no tokeniser to be certain. The policy itself
        // checks the exact length where it can.
        if self.context_used + u64::from(reply) > u64::from(middleware.context.max_tokens) {
            self.record.note(Event::ContextLimit);
            return Err(ExitReason::ContextLimit);
        }
        let messages = self.record.messages.clone();
        let prior = self.prior.take();
        let completion = self.ask(messages, tools, prior, grammar).await?;
        self.context_used = completion.usage.prompt_tokens + completion.usage.completion_tokens;
        Ok(completion)
    }

    /// One call of the policy.
    async fn ask(
        &mut self,
        messages: Vec<Message>,
        tools: Vec<ToolSchema>,
        prior: Option<Vec<u32>>,
        grammar: Option<String>,
    ) -> Result<Completion, ExitReason> {
        let middleware = &self.harness.middleware;
        let left = self.wall_left()?;
        let request = CompletionRequest {
            messages,
            tools,
            max_tokens: middleware
                .protocol
                .max_tokens_per_turn
                .min(self.tokens_left()?),
            context_tokens: middleware.context.max_tokens,
            temperature: middleware.sampling.temperature,
            top_p: middleware.sampling.top_p,
            top_k: middleware.sampling.top_k,
            min_p: middleware.sampling.min_p,
            stop: middleware.protocol.stop.clone(),
            seed: call_seed(self.seed, self.calls),
            prior,
            grammar,
            deadline: Some(Instant::now() + left),
        };
        self.calls += 1;
        let seed = request.seed;
        // A policy that was kept from asking says so at the deadline itself.
        let limit = left + DEADLINE_GRACE;
        let reply = tokio::time::timeout(limit, self.agent.policy.complete(request));
        match reply.await {
            Err(_) => Err(ExitReason::WallBudget),
            Ok(Err(PolicyError::ContextOverflow { .. })) => {
                self.record.note(Event::ContextLimit);
                Err(ExitReason::ContextLimit)
            }
            Ok(Err(error)) => Err(ExitReason::Infrastructure {
                reason: with_causes(&error),
                is_retryable: error.is_retryable(),
                wait_s: match error {
                    PolicyError::RateLimited { wait } => Some(wait.as_secs()),
                    _ => None,
                },
            }),
            Ok(Ok(completion)) => {
                self.record.add_call(seed, &completion);
                Ok(completion)
            }
        }
    }

    /// Tokens that the budget leaves.
    fn tokens_left(&self) -> Result<u32, ExitReason> {
        let spent = self.record.usage.completion_tokens;
        match self.agent.budget.max_tokens.saturating_sub(spent) {
            0 => Err(ExitReason::TokenBudget),
            left => Ok(u32::try_from(left).unwrap_or(u32::MAX)),
        }
    }

    /// What the harness holds replies to.
    fn grammar(&self) -> Result<Option<String>, ExitReason> {
        if !self.harness.middleware.protocol.constrained {
            return Ok(None);
        }
        if !self.agent.policy.follows_grammars() {
            // Quietly dropping what the harness promises would make every comparison wrong.
            return Err(ExitReason::Infrastructure {
                reason: "middleware.protocol.constrained needs the policy `local`".into(),
                is_retryable: false,
                wait_s: None,
            });
        }
        Ok(crate::protocol::call_grammar(
            self.format,
            &self.harness.tools,
        ))
    }

    /// The tools for the policy's own interface.
    fn announced_tools(&self) -> Vec<ToolSchema> {
        if self.format != CallFormat::Native {
            return Vec::new();
        }
        ToolSchema::of(&self.harness.tools)
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

/// An error with what caused it, in one line.
pub(crate) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
