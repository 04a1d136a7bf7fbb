//! (θ, φ, task) → trajectory: the agent loop, its protocols, policies and verifiers.
//!
//! The entry is [`rollout`]: one [`Agent`] (harness, policy, tools, verifier and budget), one
//! [`Task`] and a seed give one [`Trajectory`].
//!
//! - [`task`]: tasks and how they are read.
//! - [`trajectory`]: the record that critic, trainer and store share.
//! - [`policy`]: the model that acts: this machine's engine, or an OpenAI-compatible server.
//! - [`protocol`]: the written forms of a tool call.
//! - [`verifier`]: what counts as the answer of a text, and whether it is right.
//! - [`tools`]: running a call.
//! - [`recheck`]: judging a finished rollout again.

pub mod agent;
mod clock;
mod conversation;
pub mod policy;
pub mod protocol;
pub mod recheck;
mod retrieval;
pub mod task;
pub mod tools;
pub mod trajectory;
pub mod verifier;

pub use agent::{Agent, rollout};
pub use policy::{
    ApiKey, BoxFuture, Completion, CompletionRequest, Finish, LocalPolicy, LocalPolicyOptions,
    NativeCall, OpenAiOptions, OpenAiPolicy, Policy, PolicyError, PolicyId, Renderer, ToolSchema,
};
pub use recheck::Recheck;
pub use task::{Columns, ContentHash, Split, Task, TaskError, TaskId, load_tasks};
pub use tools::{Script, ToolFault, ToolRunner, ToolSession};
pub use trajectory::{
    Event, ExitReason, Message, ModelCall, Role, RolloutBudget, RolloutId, RolloutKey, Step,
    StepKind, ToolCall, Trajectory, Usage, Verdict,
};
pub use verifier::{Extracted, ExtractionRule, PureVerifier, Verifier, VerifierKind};
