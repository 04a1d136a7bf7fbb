//! Workshops for tests: problems, policies and tools that are given, and a run's directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use coharness::config::{Config, Loaded};
use coharness::harness_loop::Head;
use coharness::history::History;
use coharness::observer::{Notice, Observer, Silent};
use coharness::run::registry_path;
use coharness::splits::Splits;
use coharness::standing::Standing;
use coharness::stop::Stop;
use coharness::store::Store;
use coharness::workshop::{Environment, Parts, Workshop};
use critic::TriedPatch;
use harness::{Dimension, Harness, Patch, PatchOp};
use registry::{Acceptance, Decision, Delta, ModelId, Origin, Provenance, Registry, RunId};
use rollout::{
    BoxFuture, Completion, CompletionRequest, Finish, Message, Policy, PolicyError, PolicyId, Task,
    TaskId, ToolFault, ToolRunner, Usage,
};
use sandbox::{Execution, Exit, SandboxPolicy};

/// A configuration of a policy that the test gives, with so many problems to evolve, to decide and to
/// score on; `more` are further sections. Without one on the gate nothing is looked at again.
pub(crate) fn small([evolve, gate, test]: [u32; 3], more: &str) -> String {
    let quiet = match more.contains("gate:") {
        true => "",
        false => "gate: {retest_every: 0, reference_every: 0}\n",
    };
    format!(
        "\
run: {{name: small}}
model: {{path: none}}
policy: {{kind: openai, base_url: 'http://127.0.0.1:1/v1', model: none}}
tasks:
  path: none
  verifier: integer
  splits: {{evolve: {evolve}, gate: {gate}, test: {test}}}
harness: naive
budget: {{tokens_per_problem: 4000, seconds_per_problem: 60}}
{quiet}{more}
"
    )
}

/// Where a run begins.
pub(crate) struct Scene<'a> {
    pub(crate) config: &'a str,
    pub(crate) splits: Splits,
    pub(crate) directory: &'a Path,
    pub(crate) is_aloud: bool,
}

impl Scene<'_> {
    /// A workshop with the sandbox and, where the configuration asks for one, the model of this
    /// machine.
    pub(crate) async fn on_this_machine(self, start: &Harness, python: PathBuf) -> Workshop {
        let mut parts = self.parts(start).await;
        parts.environment.python = python;
        Workshop::open(parts).await.expect("a workshop")
    }

    /// A workshop with tools that are given.
    pub(crate) async fn with_tools(self, start: &Harness, tools: Arc<dyn ToolRunner>) -> Workshop {
        let parts = self.parts(start).await;
        Workshop::with_tools(parts, tools, "test")
    }

    /// The same, told to `observer`.
    pub(crate) async fn watched(
        self,
        start: &Harness,
        tools: Arc<dyn ToolRunner>,
        observer: Arc<dyn Observer>,
    ) -> Workshop {
        let mut parts = self.parts(start).await;
        parts.observer = observer;
        Workshop::with_tools(parts, tools, "test")
    }

    /// A run's parts, its registry at `start`; of a run that is there already, it goes on.
    async fn parts(self, start: &Harness) -> Parts {
        let directory = self.directory.to_owned();
        std::fs::create_dir_all(&directory).expect("folder");
        let config: Config = harness::yaml::from_str(self.config).expect("a configuration");
        let registry = Registry::open_or_create(&registry_path(&directory)).expect("a registry");
        let provenance = Provenance {
            source: "a test".into(),
            run: None,
            unix_seconds: 0,
        };
        registry.create_initial(start, &provenance).expect("v1");
        let observer: Arc<dyn Observer> = match self.is_aloud {
            true => Arc::new(Aloud),
            false => Arc::new(Silent),
        };
        Parts {
            loaded: Loaded {
                config,
                origin: "the test".into(),
                base: None,
            },
            splits: self.splits,
            store: Store::open(&directory).await.expect("a store"),
            registry,
            environment: Environment {
                cache: directory.clone(),
                python: PathBuf::new(),
                helper: PathBuf::from(env!("CARGO_BIN_EXE_coharness")),
                scratch: directory.clone(),
                allow_weak_sandbox: true,
                key: |_| None,
            },
            observer,
            stop: Arc::new(Stop::new(directory.join("stop"), None)),
            directory,
        }
    }
}

/// Tells what happens.
struct Aloud;

impl Observer for Aloud {
    fn notice(&self, notice: Notice) {
        if let Notice::Line(text) | Notice::Warning(text) | Notice::Waiting(text) = notice {
            println!("  {text}");
        }
    }
}

/// What a policy makes of a conversation.
type Reply = dyn Fn(&[Message]) -> Result<String, PolicyError> + Send + Sync;

/// A policy whose replies follow from the conversation by a function.
pub(crate) struct Scripted {
    id: PolicyId,
    reply: Box<Reply>,
    /// Generated tokens of a reply.
    tokens: fn(&str) -> u64,
}

impl Scripted {
    pub(crate) fn policy(id: &str, reply: fn(&[Message]) -> String) -> Arc<dyn Policy> {
        Self::failing(id, move |messages| Ok(reply(messages)))
    }

    /// One that may fail.
    pub(crate) fn failing(
        id: &str,
        reply: impl Fn(&[Message]) -> Result<String, PolicyError> + Send + Sync + 'static,
    ) -> Arc<dyn Policy> {
        Arc::new(Self {
            id: PolicyId::new(id),
            reply: Box::new(reply),
            tokens: |_| 20,
        })
    }

    /// One that may fail, and whose words are a token each.
    pub(crate) fn counted(
        id: &str,
        reply: impl Fn(&[Message]) -> Result<String, PolicyError> + Send + Sync + 'static,
    ) -> Arc<dyn Policy> {
        Arc::new(Self {
            id: PolicyId::new(id),
            reply: Box::new(reply),
            tokens: |text| text.split_whitespace().count() as u64,
        })
    }
}

impl Policy for Scripted {
    fn id(&self) -> &PolicyId {
        &self.id
    }

    fn complete(
        &self,
        request: CompletionRequest,
    ) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        let reply = (self.reply)(&request.messages);
        let completion = reply.map(|text| Completion {
            usage: Usage {
                prompt_tokens: 50,
                completion_tokens: (self.tokens)(&text),
                ..Usage::default()
            },
            text,
            reasoning: String::new(),
            finish: Finish::Stop,
            finish_reason: None,
            prompt_ids: Vec::new(),
            output_ids: Vec::new(),
            logprobs: Vec::new(),
            tool_calls: Vec::new(),
        });
        Box::pin(async move { completion })
    }
}

/// Every program prints 42.
pub(crate) struct FortyTwo;

impl ToolRunner for FortyTwo {
    fn run_python<'a>(
        &'a self,
        _: &'a str,
        _: &'a SandboxPolicy,
    ) -> BoxFuture<'a, Result<Execution, ToolFault>> {
        let execution = Execution {
            stdout: "42\n".into(),
            stderr: String::new(),
            exit: Exit::Code(0),
            is_truncated: false,
            duration: std::time::Duration::from_millis(1),
        };
        Box::pin(async move { Ok(execution) })
    }
}

/// A decision of an earlier round on a patch of dimension P that sets `path`, with other weights.
pub(crate) fn earlier_decision(path: &str, value: &str) -> Decision {
    let patch = Patch {
        dimension: Dimension::P,
        ops: vec![PatchOp::replace(
            path.parse().expect("a path"),
            value.into(),
        )],
        summary: format!("set {path}"),
    };
    Decision {
        run: RunId::new("small-seed0").expect("a name"),
        round: 1,
        model: ModelId::new("earlier").expect("a name"),
        root_cause: "prompt_ambiguity".into(),
        severity: "high".into(),
        evidence: "It was so.".into(),
        patch,
        removes: None,
        gate_mode: "sequential".into(),
        gate_detail: String::new(),
        unix_seconds: 1,
    }
}

/// Accepts a patch of dimension P that sets `path`, as an earlier round with other weights did.
pub(crate) fn accept(workshop: &Workshop, parent: &Head, path: &str, value: &str) -> Head {
    let delta = Delta {
        estimate: 0.5,
        low: 0.3,
        high: 0.7,
        confidence: 0.95,
        gained: 10,
        lost: 0,
        pairs: 20,
    };
    let decision = earlier_decision(path, value);
    let harness = decision.patch.apply(&parent.harness).expect("a harness");
    let acceptance = Acceptance {
        decision,
        delta_in: delta,
        delta_out: delta,
    };
    let version = workshop
        .with_registry(|registry| registry.commit_patch(&parent.version, &harness, &acceptance))
        .expect("a version");
    Head {
        version,
        harness: Arc::new(harness),
    }
}

/// Lets the critic know of the patch that led to `head`, as the harness loop does where the gate accepts one
/// with the weights of `policy`.
pub(crate) fn remember(history: &mut History, head: &Head, policy: &str) {
    let Origin::Patch(acceptance) = &head.version.origin else {
        panic!("{:?}", head.version.origin);
    };
    // It sets a field by name, so that it does the same to the harness before it.
    let patch = acceptance.decision.patch.clone();
    let tried = TriedPatch::new(&head.harness, patch, PolicyId::new(policy), true);
    history.tried.push(tried);
}

/// What the critic knows of each patch: whether it counts as accepted.
pub(crate) fn accepted(history: &History) -> Vec<bool> {
    let tried = history.tried.iter();
    tried.map(|tried| tried.is_accepted).collect()
}

/// A run on this version, with the base weights.
pub(crate) fn on(head: &Head) -> Standing {
    Standing {
        head: head.clone(),
        adapter: None,
    }
}

/// The same with trained weights.
pub(crate) fn trained_on(head: &Head, adapter: &str) -> Standing {
    Standing {
        head: head.clone(),
        adapter: Some(adapter.to_owned()),
    }
}

/// `count` problems with a number, `text` around it, and an answer of that number.
pub(crate) fn numbered(
    name: &str,
    count: u32,
    text: fn(u32) -> String,
    answer: fn(u32) -> u32,
) -> Vec<Task> {
    (1..=count)
        .map(|number| Task {
            id: TaskId::new(format!("{name}-{number}")),
            problem: text(number),
            answer: answer(number).to_string(),
        })
        .collect()
}

/// The first number of a text.
pub(crate) fn first_number(text: &str) -> u32 {
    text.split(|c: char| !c.is_ascii_digit())
        .find_map(|word| word.parse().ok())
        .expect("a number")
}
