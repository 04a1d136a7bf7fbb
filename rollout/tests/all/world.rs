//! A policy and a tool that play from a script, and an agent made of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::{CallFormat, Example, ExampleStep, Harness, Hook, ToolName};
use rollout::{
    Agent, BoxFuture, Completion, CompletionRequest, Event, Finish, Policy, PolicyError, PolicyId,
    Recheck, RolloutBudget, Split, Task, TaskId, ToolFault, ToolRunner, ToolSession, Trajectory,
    Usage, Verifier, VerifierKind, verifier,
};
use sandbox::{Execution, Exit, SandboxPolicy, SessionCall};

pub(crate) const GOLD: &str = "987654";

pub(crate) fn task() -> Task {
    asking("How many?", GOLD)
}

/// A task of a problem, which its id is made of.
pub(crate) fn asking(problem: &str, answer: &str) -> Task {
    Task {
        id: TaskId::new(problem),
        problem: problem.into(),
        answer: answer.into(),
    }
}

/// The shipped harness with another call format.
pub(crate) fn naive(format: CallFormat) -> Harness {
    let mut harness = harness::naive().expect("the shipped harness");
    harness.middleware.protocol.call_format = format;
    harness
}

/// What rolls out under these, judges whole numbers, and has time and tokens enough.
pub(crate) fn agent(
    harness: Harness,
    policy: Arc<dyn Policy>,
    sandbox: Arc<dyn ToolRunner>,
) -> Agent {
    Agent {
        harness: Arc::new(harness),
        policy,
        sandbox,
        verifier: verifier::build(&VerifierKind::Integer, None),
        budget: RolloutBudget {
            max_tokens: 100_000,
            wall: Duration::from_secs(300),
        },
        sandbox_level: "test".into(),
    }
}

/// A solved problem whose program prints a sum, or whatever else `sum` is.
pub(crate) fn example(problem: &str, sum: &str, result: &str) -> Example {
    Example {
        title: format!("sum-{result}"),
        problem: problem.into(),
        steps: vec![ExampleStep {
            say: String::new(),
            tool: ToolName::new("python").expect("name"),
            arguments: [("code".to_owned(), format!("print({sum})"))].into(),
            result: result.into(),
        }],
        answer: format!("The answer is \\boxed{{{result}}}."),
    }
}

/// Plays replies and keeps the requests. An id is a byte of the reply.
pub(crate) struct ScriptedPolicy {
    id: PolicyId,
    replies: Mutex<VecDeque<Result<Completion, PolicyError>>>,
    pub(crate) requests: Mutex<Vec<CompletionRequest>>,
}

impl Policy for ScriptedPolicy {
    fn id(&self) -> &PolicyId {
        &self.id
    }

    fn complete(
        &self,
        request: CompletionRequest,
    ) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        self.requests.lock().expect("lock").push(request);
        let reply = self.replies.lock().expect("lock").pop_front();
        Box::pin(async move {
            match reply {
                Some(reply) => reply,
                // A script that has ended is a policy that never answers.
                None => std::future::pending().await,
            }
        })
    }

    fn ids_of(&self, output_ids: &[u32], kept: &str) -> Option<usize> {
        let bytes: Vec<u32> = kept.bytes().map(u32::from).collect();
        output_ids.starts_with(&bytes).then_some(bytes.len())
    }
}

/// Plays executions and keeps the programs, and where a session was opened.
#[derive(Clone, Default)]
pub(crate) struct ScriptedTool {
    executions: Arc<Mutex<VecDeque<Result<Execution, ToolFault>>>>,
    pub(crate) programs: Arc<Mutex<Vec<String>>>,
}

/// An interpreter of a [`ScriptedTool`]. It is lost when a program runs out of time.
struct ScriptedSession(ScriptedTool);

impl ToolSession for ScriptedSession {
    fn call<'a>(
        &'a mut self,
        code: &'a str,
        policy: &'a SandboxPolicy,
    ) -> BoxFuture<'a, Result<SessionCall, ToolFault>> {
        Box::pin(async move {
            let execution = self.0.run_python(code, policy).await?;
            let is_state_lost = execution.exit == Exit::TimedOut;
            Ok(SessionCall {
                execution,
                is_state_lost,
            })
        })
    }
}

impl ScriptedTool {
    pub(crate) fn playing(executions: Vec<Execution>) -> Self {
        ScriptedTool {
            executions: Arc::new(Mutex::new(executions.into_iter().map(Ok).collect())),
            programs: Arc::default(),
        }
    }
}

impl ToolRunner for ScriptedTool {
    fn run_python<'a>(
        &'a self,
        code: &'a str,
        _policy: &'a SandboxPolicy,
    ) -> BoxFuture<'a, Result<Execution, ToolFault>> {
        self.programs.lock().expect("lock").push(code.to_owned());
        let next = self.executions.lock().expect("lock").pop_front();
        Box::pin(async move { next.expect("the script has an execution") })
    }

    fn open_session(&self) -> BoxFuture<'_, Result<Box<dyn ToolSession>, ToolFault>> {
        self.programs.lock().expect("lock").push("(session)".into());
        Box::pin(async { Ok(Box::new(ScriptedSession(self.clone())) as Box<dyn ToolSession>) })
    }
}

pub(crate) fn reply(text: &str) -> Completion {
    Completion {
        text: text.into(),
        finish: Finish::Stop,
        prompt_ids: vec![0, 1],
        output_ids: text.bytes().map(u32::from).collect(),
        logprobs: vec![-0.5; text.len()],
        usage: Usage {
            prompt_tokens: 100,
            completion_tokens: 10,
            ..Usage::default()
        },
        reasoning: String::new(),
        finish_reason: None,
        tool_calls: Vec::new(),
    }
}

pub(crate) fn cut(text: &str) -> Completion {
    Completion {
        finish: Finish::Length,
        ..reply(text)
    }
}

/// A reply with a program in a fence.
pub(crate) fn code(program: &str) -> Completion {
    reply(&format!("```python\n{program}\n```"))
}

pub(crate) fn printed(stdout: &str) -> Execution {
    Execution {
        stdout: stdout.into(),
        stderr: String::new(),
        exit: Exit::Code(0),
        is_truncated: false,
        duration: Duration::from_millis(1),
    }
}

pub(crate) fn failed(stderr: &str) -> Execution {
    Execution {
        stderr: stderr.into(),
        exit: Exit::Code(1),
        ..printed("")
    }
}

/// A script, and how to run it.
pub(crate) struct Script {
    pub(crate) harness: Harness,
    pub(crate) budget: RolloutBudget,
    /// In place of that of the kind `integer`.
    pub(crate) verifier: Option<Arc<dyn Verifier>>,
    pub(crate) task: Task,
    replies: Vec<Result<Completion, PolicyError>>,
    executions: Vec<Result<Execution, ToolFault>>,
}

/// What a script came to.
pub(crate) struct Outcome {
    pub(crate) trajectory: Trajectory,
    pub(crate) requests: Vec<CompletionRequest>,
    pub(crate) programs: Vec<String>,
}

pub(crate) fn script(format: CallFormat) -> Script {
    Script {
        harness: naive(format),
        budget: RolloutBudget {
            max_tokens: 1000,
            wall: Duration::from_secs(20),
        },
        verifier: None,
        task: task(),
        replies: Vec::new(),
        executions: Vec::new(),
    }
}

impl Script {
    pub(crate) fn reply(mut self, reply: Completion) -> Self {
        self.replies.push(Ok(reply));
        self
    }

    pub(crate) fn refuse(mut self, error: PolicyError) -> Self {
        self.replies.push(Err(error));
        self
    }

    pub(crate) fn run(mut self, execution: Execution) -> Self {
        self.executions.push(Ok(execution));
        self
    }

    pub(crate) fn fault(mut self, fault: ToolFault) -> Self {
        self.executions.push(Err(fault));
        self
    }

    pub(crate) fn hook(mut self, hook: Hook) -> Self {
        let hooks = &mut self.harness.middleware.hooks;
        match hook.point().name() {
            "on_start" => hooks.on_start.push(hook),
            "pre_model_call" => hooks.pre_model_call.push(hook),
            "post_model_call" => hooks.post_model_call.push(hook),
            "pre_tool_call" => hooks.pre_tool_call.push(hook),
            "post_tool_call" => hooks.post_tool_call.push(hook),
            "on_tool_error" => hooks.on_tool_error.push(hook),
            _ => hooks.on_finish.push(hook),
        }
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Script)) -> Self {
        change(&mut self);
        self
    }

    pub(crate) async fn play(self) -> Outcome {
        let policy = Arc::new(ScriptedPolicy {
            id: PolicyId::new("scripted"),
            replies: Mutex::new(self.replies.into()),
            requests: Mutex::default(),
        });
        let tool = Arc::new(ScriptedTool {
            executions: Arc::new(Mutex::new(self.executions.into())),
            programs: Arc::default(),
        });
        let is_usual = self.verifier.is_none();
        let usual = agent(
            self.harness,
            Arc::clone(&policy) as Arc<dyn Policy>,
            Arc::clone(&tool) as Arc<dyn ToolRunner>,
        );
        let agent = Agent {
            budget: self.budget,
            verifier: self.verifier.unwrap_or_else(|| Arc::clone(&usual.verifier)),
            ..usual
        };
        let trajectory = rollout::rollout(&agent, &self.task, Split::Evolve, 7).await;
        if is_usual {
            check_recheck(&agent, &self.task, &trajectory).await;
        }
        Outcome {
            trajectory,
            requests: policy.requests.lock().expect("lock").clone(),
            programs: tool.programs.lock().expect("lock").clone(),
        }
    }
}

/// Judged anew by what it was judged by, a rollout stays as it is.
async fn check_recheck(agent: &Agent, task: &Task, trajectory: &Trajectory) {
    let recheck = Recheck {
        harness: &agent.harness,
        kind: &VerifierKind::Integer,
        verifier: agent.verifier.as_ref(),
        gold: &task.answer,
    };
    let mut again = trajectory.clone();
    if !trajectory.exit.is_infrastructure() {
        assert!(recheck.judge(&mut again, None).await);
    }
    assert_eq!(&again, trajectory);
}

impl Outcome {
    /// All events, in order.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.trajectory
            .events()
            .map(|(_, event)| event.clone())
            .collect()
    }

    /// Texts of all messages after the opening, in order.
    pub(crate) fn said(&self) -> Vec<&str> {
        let messages = self.trajectory.messages.iter().skip(2);
        messages.map(|message| message.content.as_str()).collect()
    }
}

pub(crate) fn fired(hook: &str) -> Event {
    Event::HookFired { hook: hook.into() }
}
