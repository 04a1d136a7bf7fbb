//! Why a run stopped, and what a person can do about it.

use std::path::PathBuf;

use model::adapter::AdapterError;
use model::chat_template::ChatTemplateError;
use model::decode::EngineError;
use model::export::ExportError;
use model::tokenizer::TokenizerError;
use model::weights::WeightsError;
use registry::{RegistryError, VersionName};
use rollout::policy::PolicyError;
use sandbox::SandboxError;
use sqlx::migrate::MigrateError;
use trainer::{CheckpointError, DatasetError, TrainError};

use crate::config::ConfigError;
use crate::splits::SplitError;
use crate::stop::StopReason;
use crate::store::StoreError;

/// Anything that ends a run before its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration can't be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The problems can't be used.
    #[error(transparent)]
    Splits(#[from] SplitError),
    /// The starting harness can't be read.
    #[error("harness: {path}: {reason}")]
    Harness {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// No model where the configuration says.
    #[error("model.path: {path} does not exist")]
    NoModel {
        /// Where it was looked for.
        path: PathBuf,
        /// Whether it is a known model that `scripts/fetch-model` fetches.
        is_known: bool,
    },
    /// The processor can't compute in what `model.arithmetic` says.
    #[error("model.arithmetic: {0}")]
    Arithmetic(#[from] crate::arithmetic::NoBf16),
    /// A known model's file is not the published one.
    #[error("{path} is damaged: its hash is not that of {name}")]
    DamagedModel {
        /// The file.
        path: PathBuf,
        /// The model.
        name: &'static str,
    },
    /// The model has no usable tokenizer or chat template.
    #[error("model {path}: {reason}")]
    ModelPart {
        /// The model.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// The weights can't be loaded.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The tokenizer can't be loaded.
    #[error("model: the tokenizer can't be used")]
    Tokenizer(#[from] TokenizerError),
    /// The chat template can't be loaded.
    #[error("model: the chat template can't be used")]
    Template(#[from] ChatTemplateError),
    /// The engine can't start.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An adapter can't be read.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// The model can't be written for other programs.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The policy can't be set up.
    #[error("policy: {0}")]
    Policy(#[from] PolicyError),
    /// A verifier that is a program can't be started.
    #[error("{field}: cannot start {program}")]
    NoJudge {
        /// The field or option that names it.
        field: String,
        /// The program.
        program: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A verifier can read none of its gold answers.
    #[error(
        "{field}: not one gold answer can be read, such as that of {task}: nothing would ever be right"
    )]
    NoGold {
        /// The field that names the verifier.
        field: String,
        /// A problem.
        task: String,
    },
    /// The key's variable is not set.
    #[error("{field}: the environment has no {name}")]
    NoKey {
        /// The field that names the variable.
        field: &'static str,
        /// The variable.
        name: String,
    },
    /// The critic's client can't be set up.
    #[error("critic.llm: the client can't be set up")]
    Critic {
        /// The cause.
        source: PolicyError,
    },
    /// The critic's server can't be used.
    #[error("critic.llm.base_url: {url}: {reason}")]
    CriticServer {
        /// Its address.
        url: String,
        /// What happened.
        reason: String,
    },
    /// The server can't be used.
    #[error("policy.base_url: {url}: {reason}")]
    Server {
        /// Its address.
        url: String,
        /// What happened.
        reason: String,
    },
    /// Programs can't be run.
    #[error(transparent)]
    Tools(#[from] rollout::ToolFault),
    /// The sandbox can't start.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No trajectory can be trained on.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// Training failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// A tensor operation failed.
    #[error("tensor operation failed")]
    Tensor(#[from] candle_core::Error),
    /// A file that the command names can't be read.
    #[error("cannot read {path}")]
    Named {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Training data that isn't as it should be.
    #[error("{path}: {reason}")]
    Data {
        /// The file.
        path: PathBuf,
        /// What is wrong where.
        reason: String,
    },
    /// Two models would be served under one name, or one under none.
    #[error("{path} can't be served as {name:?}: {reason}")]
    ServedName {
        /// The name.
        name: String,
        /// Whose it would be.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Trained weights that were to be served can't be used.
    #[error("{path} can't be served as {name:?}")]
    ServedWeights {
        /// The name they would have.
        name: String,
        /// Their directory.
        path: PathBuf,
        /// What is wrong with them.
        source: Box<RunError>,
    },
    /// The address can't be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: String,
        /// The cause.
        source: std::io::Error,
    },
    /// A file operation failed.
    #[error("cannot access {path}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Rollouts fail for reasons that are not the policy's answers.
    #[error("rollouts can't be finished: {reason}")]
    Infrastructure {
        /// What happened.
        reason: String,
    },
    /// The model's engine in this process broke down.
    #[error("the model can't answer any more: {reason}")]
    PolicyStopped {
        /// What happened.
        reason: String,
    },
    /// A worker panicked.
    #[error("a worker failed: {reason}")]
    Panic {
        /// The panic.
        reason: String,
    },
    /// There is a run of this name under another configuration.
    #[error("{directory} holds a run with another configuration; it differs in {field}")]
    OtherConfig {
        /// The run's directory.
        directory: PathBuf,
        /// The first field that differs.
        field: String,
    },
    /// Another process runs this run.
    #[error("{directory} is in use by another coharness process")]
    Busy {
        /// The run's directory.
        directory: PathBuf,
    },
    /// No such run.
    #[error("no run {name} below {root}")]
    NoRun {
        /// What was asked for.
        name: String,
        /// Where runs are.
        root: PathBuf,
    },
    /// What is to be a run is an evaluation.
    #[error("{name} is an evaluation, not a run")]
    Evaluation {
        /// Its name, as `--run` takes it.
        name: String,
    },
    /// No trained weights, or several, begin like this.
    #[error("no single trained weights of {run} begin with {prefix}; {known}")]
    NoWeights {
        /// What was asked for.
        prefix: String,
        /// The run's directory.
        run: PathBuf,
        /// What is there.
        known: String,
    },
    /// No rollout, or several, begin like this.
    #[error("{reason}")]
    NoTrajectory {
        /// What was asked for and what there is.
        reason: String,
    },
    /// A rollback in a run that would go on from another version.
    #[error("run {name} is not finished; going on, it would build on the version it accepted last")]
    Unfinished {
        /// The run.
        name: String,
    },
    /// What a person has put in the place of what the run stood on can't be run.
    #[error("{version}, put on top of {head} by hand, can't be used")]
    PutByHand {
        /// The version.
        version: VersionName,
        /// What the run stood on.
        head: VersionName,
        /// What is wrong with it.
        source: Box<RunError>,
    },
    /// A training's checkpoints have no room.
    #[error(
        "no space left to train in {path}: checkpoints and weights take up to {needed_mib} MiB, {free_mib} are free"
    )]
    NoRoom {
        /// The run's directory.
        path: PathBuf,
        /// What the training writes, MiB.
        needed_mib: u64,
        /// What is free, MiB.
        free_mib: u64,
    },
    /// Training on a device this build does not have.
    #[error("model_loop.sft.device: this build has no CUDA support")]
    NoCuda,
    /// The run stopped in an orderly way and can go on.
    #[error("stopped: {reason}")]
    Stopped {
        /// Why.
        reason: StopReason,
    },
}

impl RunError {
    /// Exit code of the process; `docs/exit-codes.md` lists them.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_)
            | Self::Splits(_)
            | Self::NoGold { .. }
            | Self::Harness { .. }
            | Self::OtherConfig { .. }
            | Self::PutByHand { .. }
            | Self::NoRun { .. }
            | Self::Evaluation { .. }
            | Self::NoWeights { .. }
            | Self::NoTrajectory { .. }
            | Self::Named { .. }
            | Self::Data { .. }
            | Self::ServedName { .. }
            | Self::ServedWeights { .. }
            | Self::Export(
                ExportError::Exists { .. }
                | ExportError::NeedsGguf { .. }
                | ExportError::NoPlace { .. }
                | ExportError::TooLarge { .. }
                | ExportError::Tokenizer(_),
            )
            | Self::Registry(RegistryError::UnknownVersion { .. }) => 2,
            Self::NoModel { .. }
            | Self::DamagedModel { .. }
            | Self::ModelPart { .. }
            | Self::Weights(_)
            | Self::Tokenizer(_)
            | Self::Template(_)
            | Self::NoKey { .. }
            | Self::NoJudge { .. }
            | Self::Server { .. }
            | Self::CriticServer { .. }
            | Self::Critic { .. }
            | Self::NoCuda
            | Self::Arithmetic(_)
            | Self::Listen { .. }
            | Self::Infrastructure { .. }
            | Self::PolicyStopped { .. }
            | Self::Sandbox(_)
            | Self::Tools(_)
            | Self::Train(TrainError::Memory { .. } | TrainError::FixedMemory { .. })
            | Self::Policy(_) => 3,
            Self::Stopped { .. } | Self::Busy { .. } | Self::Unfinished { .. } => 4,
            _ if self.is_disk_full() => 5,
            _ => 1,
        }
    }

    fn is_disk_full(&self) -> bool {
        match self {
            Self::Store(StoreError::Full) | Self::NoRoom { .. } => true,
            Self::Registry(error) => error.is_disk_full(),
            Self::Io { source, .. }
            | Self::Export(ExportError::Io { source, .. })
            | Self::Train(TrainError::Checkpoint(CheckpointError::Io { source, .. })) => {
                use std::io::ErrorKind::{QuotaExceeded, StorageFull};
                matches!(source.kind(), StorageFull | QuotaExceeded)
            }
            _ => false,
        }
    }

    /// What to do about it, where that can be said.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoModel { is_known: true, .. } => {
                "Run scripts/fetch-model, or set model.path to a .gguf file or a Hugging Face directory.".into()
            }
            Self::NoModel { .. } => {
                "Set model.path to a .gguf file or a Hugging Face directory that exists on this machine.".into()
            }
            Self::DamagedModel { path, .. } => {
                format!("Remove {} and run scripts/fetch-model again.", path.display())
            }
            Self::OtherConfig { .. } => {
                "Give the new run another run.name or run.seed, or another --dir; or remove the directory.".into()
            }
            Self::Store(StoreError::Migrate {
                source: MigrateError::VersionMissing(_),
                ..
            }) => "A later version of coharness has written it; only that one can go on with it.".into(),
            Self::Store(StoreError::Unfolded { .. }) => {
                "Copy the run's directory, the log run.db-wal with it, to where you can write, and name that place with --dir."
                    .into()
            }
            Self::Splits(SplitError::TooFew { .. }) => {
                "Lower them, name more files in tasks.also, or let tasks.splits.shrink take fewer in the same proportion, \
                 where that leaves 1 evolve, 4 gate and 1 test problem."
                    .into()
            }
            Self::Splits(SplitError::SharedId { .. }) => {
                "Give one of them another id, or set tasks.columns.id to a column that isn't there: problems are then named \
                 by their texts."
                    .into()
            }
            _ if self.is_disk_full() => {
                "Free some, then give the same command; nothing finished is lost.".into()
            }
            Self::Busy { .. } => "Wait for it, or stop it; `coharness status` shows what it does.".into(),
            Self::NoRun { .. } => "`coharness status` lists the runs; --dir names another place.".into(),
            Self::Evaluation { name } => format!(
                "The same `coharness eval` command shows its result again; `coharness trajectories list --run {name}` lists its \
                 rollouts."
            ),
            Self::NoTrajectory { .. } => "`coharness trajectories list` shows them.".into(),
            Self::NoKey { name, .. } => format!("Set {name} to the server's key."),
            Self::NoJudge { .. } => {
                "A name without a slash is looked up on PATH; a relative path of a configuration starts from its file, one \
                 of --program from where the command is given. The file has to be executable. A run that was begun when \
                 relative paths started elsewhere goes on with a link to the program beside the configuration."
                    .into()
            }
            Self::ServedName { .. } => "Name it yourself: --adapter NAME=DIR.".into(),
            Self::ServedWeights { .. } => {
                "It has to be the directory of a LoRA adapter over this model, in PEFT's format, or of a full set of its weights."
                    .into()
            }
            Self::Listen { .. } => "Choose another --port (0 takes a free one) or --host.".into(),
            Self::Server { .. } | Self::CriticServer { .. } | Self::Infrastructure { .. } => {
                "Check that the server runs and serves the model, then give the same command again; nothing finished is lost.".into()
            }
            Self::PolicyStopped { .. } => {
                "Its engine broke down, for which the messages above may have a cause; the same command starts it anew, and \
                 nothing finished is lost."
                    .into()
            }
            Self::Unfinished { .. } => "Let it finish first (the same `coharness run` command goes on with it).".into(),
            Self::PutByHand { version, head, .. } => format!(
                "Commit a harness that can be used on top of it, or {}; then give the same command again.",
                moving_back(*head, *version)
            ),
            Self::Registry(RegistryError::HeadMoved { expected, found }) => format!(
                "Only a finished run takes commits. Keep this one (`git branch mine {found}`) and {}; then give the same \
                 command again, and put it back when the run has finished.",
                moving_back(*expected, *found)
            ),
            Self::NoCuda => "Build with `--features cuda`, or set model_loop.sft.device to cpu.".into(),
            Self::Train(TrainError::OtherMethod { .. }) => {
                "Set method, rank, alpha, rank_stabilised and targets of model_loop.sft to those of the weights, or start to base.".into()
            }
            Self::Train(TrainError::Memory { .. }) => {
                "Free some, or raise model_loop.sft.memory_mib if it is set, and give the same command again. A smaller \
                 model_loop.sft.batch needs less, with a larger accumulate to the same result, and so does a smaller \
                 max_tokens; if rollouts were made already, that is another run, under another run.name."
                    .into()
            }
            Self::Train(TrainError::FixedMemory { .. }) => {
                "No batch is small enough. Free some, or raise model_loop.sft.memory_mib if it is set, and give the same \
                 command again. With method: full, an adapter (method: lora) takes less; with lora a smaller rank, fewer \
                 targets, or model.arithmetic: bf16."
                    .into()
            }
            Self::Export(ExportError::Exists { .. }) => "Remove it, or name another --out.".into(),
            Self::Export(ExportError::NeedsGguf { .. }) => {
                "Let --out end in .gguf, or take another --type.".into()
            }
            Self::Export(ExportError::NoPlace { form: "a GGUF file", .. } | ExportError::Tokenizer(_)) => {
                "Write a directory instead: an --out that doesn't end in .gguf.".into()
            }
            Self::Export(ExportError::NoPlace { .. }) => "Write a GGUF file instead: an --out that ends in .gguf.".into(),
            Self::Export(ExportError::TooLarge { .. }) => "A larger --type holds them: bf16 or f32; if they are no numbers, the adapter is broken.".into(),
            Self::Stopped { reason: StopReason::File } => {
                "Remove the file `stop`, then give the same command to go on.".into()
            }
            Self::Stopped { reason: StopReason::Cap(used) } => {
                let field = used.cap.field();
                format!(
                    "What was in flight is stored. To go on, raise {field} in the configuration and give `coharness run` again, \
                     or add --set {field}=N to it; `coharness resume` keeps to the limit that the run has."
                )
            }
            Self::Stopped { .. } => "Give the same command, or `coharness resume`, to go on.".into(),
            _ => return None,
        })
    }
}

/// An error with its causes in one line.
pub(crate) fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let message = next.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = next.source();
    }
    text
}

/// How a person takes the versions after `to` off the registry's branch, up to `last`. Their tags would be in
/// the way of the run's own versions.
fn moving_back(to: VersionName, last: VersionName) -> String {
    let later = std::iter::successors(Some(to.next()), |name| Some(name.next()));
    let later: Vec<String> = later
        .take_while(|name| *name <= last)
        .map(|name| name.to_string())
        .collect();
    let tags = match later.is_empty() {
        true => String::new(),
        false => format!(" and `git tag -d {}`", later.join(" ")),
    };
    format!(
        "take it off main: in the run's registry.git, `git update-ref refs/heads/main {to}`{tags}"
    )
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_head_that_was_moved_has_a_way_back() {
        let name = |number: u32| VersionName::new(number).expect("a number");
        let moved = RunError::from(RegistryError::HeadMoved {
            expected: name(2),
            found: name(4),
        });
        let hint = moved.hint().unwrap_or_default();
        let way_out = "`git update-ref refs/heads/main v2` and `git tag -d v3 v4`";
        assert!(hint.contains(way_out), "{hint}");
        assert!(hint.contains("when the run has finished"), "{hint}");
    }

    #[test]
    fn a_full_disk_and_a_used_up_quota_have_their_own_code_and_a_hint() {
        let io = |source: io::Error| RunError::Io {
            path: "run".into(),
            source,
        };
        // ENOSPC and EDQUOT of Linux.
        for error in [
            RunError::from(StoreError::Full),
            io(io::Error::from_raw_os_error(28)),
            io(io::Error::from_raw_os_error(122)),
        ] {
            assert_eq!(error.exit_code(), 5, "{error}");
            let hint = error.hint().unwrap_or_default();
            assert!(hint.starts_with("Free some"), "{error}: {hint}");
        }
        let denied = io(io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!((denied.exit_code(), denied.hint()), (1, None));
    }
}
