//! Hand-made trajectories for tests.

use harness::{Harness, Patch, naive};
use rollout::{
    ContentHash, Event, ExitReason, PolicyId, RolloutBudget, RolloutId, RolloutKey, Split, Step,
    StepKind, TaskId, Trajectory, Usage, Verdict,
};
use std::time::Duration;

pub(crate) const PROBLEM: &str = "Mo has 5 kites and buys 7 more. Count the kites.";

pub(crate) fn start() -> Harness {
    naive().unwrap()
}

/// `harness` after `ops`, written as JSON.
pub(crate) fn patched(harness: &Harness, dimension: &str, ops: &str) -> Harness {
    let text = format!(r#"{{"dimension":"{dimension}","ops":{ops}}}"#);
    Patch::from_json(&text).unwrap().apply(harness).unwrap()
}

/// A failed rollout without an answer: system, user, and then what is added.
pub(crate) fn failed(seed: u64) -> Trajectory {
    let harness = start().id();
    let policy = PolicyId::new("theta-0");
    let task_hash = ContentHash::of_problem(PROBLEM);
    let budget = RolloutBudget {
        max_tokens: 1000,
        wall: Duration::from_secs(60),
    };
    let id = RolloutId::of(&RolloutKey {
        policy: &policy,
        harness: &harness,
        task_hash: &task_hash,
        seed,
        budget: &budget,
        sandbox_level: "none",
    });
    Trajectory {
        id,
        task: TaskId::new(format!("task-{seed}")),
        task_hash,
        split: Split::Evolve,
        harness,
        policy,
        seed,
        sandbox_level: "none".to_owned(),
        steps: Vec::new(),
        messages: Vec::new(),
        model_calls: Vec::new(),
        answer: None,
        verdict: Verdict {
            correct: false,
            undecided: false,
            rule: "none".to_owned(),
        },
        exit: ExitReason::NoAnswer,
        usage: Usage::default(),
        wall_ms: 1,
    }
    .with(StepKind::System, "You solve problems.", None)
    .with(StepKind::User, PROBLEM, None)
}

pub(crate) trait Build: Sized {
    fn with(self, kind: StepKind, text: &str, event: Option<Event>) -> Self;
    fn reply(self, text: &str, event: Option<Event>) -> Self;
    fn call(self, code: &str) -> Self;
    fn result(self, text: &str, event: Option<Event>) -> Self;
    fn exit(self, exit: ExitReason) -> Self;
    fn answered(self, answer: &str) -> Self;
    fn problem(self, text: &str) -> Self;
    fn system(self, text: &str) -> Self;
}

impl Build for Trajectory {
    fn with(mut self, kind: StepKind, text: &str, event: Option<Event>) -> Self {
        let text = text.to_owned();
        self.steps.push(Step { kind, text, event });
        self
    }

    fn reply(self, text: &str, event: Option<Event>) -> Self {
        self.with(StepKind::Assistant, text, event)
    }

    fn call(self, code: &str) -> Self {
        self.reply(&format!("```python\n{code}\n```"), None)
            .with(StepKind::ToolCall, code, None)
    }

    fn result(self, text: &str, event: Option<Event>) -> Self {
        self.with(StepKind::ToolResult, text, event)
    }

    fn exit(mut self, exit: ExitReason) -> Self {
        self.exit = exit;
        self
    }

    fn answered(mut self, answer: &str) -> Self {
        self.answer = Some(answer.to_owned());
        self.verdict.rule = "boxed".to_owned();
        self.exit = ExitReason::Answered;
        self.reply(&format!("The answer is \\boxed{{{answer}}}."), None)
            .with(StepKind::Final, answer, None)
    }

    fn problem(mut self, text: &str) -> Self {
        self.steps[1].text = text.to_owned();
        self
    }

    fn system(mut self, text: &str) -> Self {
        self.steps[0].text = text.to_owned();
        self
    }
}
